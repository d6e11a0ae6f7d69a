"""The interactive timeline of an explanation: one piece of HTML that fetches nothing.

A row for each client, a bar for each operation from its call to its return, the stuck operation
marked, and the partial linearizations to step through. The bars are drawn on a canvas (only those
in view), so that ten thousand operations stay smooth; what the window holds is also there as text
and as a table, for readers without a script and for screen readers. The page's script and style are
templates/timeline.js and templates/timeline.css.
"""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory
from shalott.checkers.linearizability.explanation import (
    TEXT_MAX,
    TYPES,
    Explanation,
    ShownOperation,
    operation_text,
    operations_of,
)
from shalott.checkers.linearizability.model_words import cut_operations
from shalott.checkers.models import Meanings

OPERATIONS_MAX = 20_000  # drawn on one timeline: those nearest to the window
_ROWS_MAX = 300  # of the table

_TEMPLATES = Path(__file__).parent / "templates"


def timeline_html(explanation: Explanation, history: ConcurrentHistory | None = None) -> str:
    """A piece of HTML with all that it needs. ``history`` is drawn around the window, faintly."""
    return assets_html() + timeline_body(explanation, history)


def write_timeline(
    path: Path, explanation: Explanation, history: ConcurrentHistory | None = None
) -> None:
    path.write_text(timeline_page([(explanation, history)]), encoding="utf-8")


def timeline_page(parts: list[tuple[Explanation, ConcurrentHistory | None]]) -> str:
    sources = list(dict.fromkeys(part.source for part, _ in parts if part.source))
    bodies = "".join(
        f"<h2>{escape(_heading(part, len(sources) > 1))}</h2>{timeline_body(part, history)}"
        if len(parts) > 1
        else timeline_body(part, history)
        for part, history in parts
    )
    return page_of(", ".join(sources), bodies, brand="linearizability", heading="Not linearizable")


def page_of(source: str, bodies: str, *, brand: str, heading: str) -> str:
    """A page about what is wrong in a history. ``bodies`` is HTML."""
    title = heading[0].lower() + heading[1:]
    return _template("timeline_page.html").format(
        title=escape(f"{title}: {source}" if source else title),
        brand=escape(brand),
        heading=escape(heading),
        source=escape(source),
        page_style=_template("timeline_page.css"),
        assets=assets_html(),
        bodies=bodies,
    )


def _heading(explanation: Explanation, names_file: bool) -> str:
    """Which object it is, and of which file if there are several."""
    name = explanation.key or explanation.model
    return f"{explanation.source} · {name}" if names_file and explanation.source else name


@cache
def assets_html() -> str:
    """Style and script; once a page, before the timelines."""
    return f"<style>{_template('timeline.css')}</style><script>{_template('timeline.js')}</script>"


@cache
def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def timeline_body(explanation: Explanation, history: ConcurrentHistory | None = None) -> str:
    content = msgspec.json.encode(_content(explanation, history)).decode()
    return _template("timeline.html").format(
        reason=escape(explanation.reason),
        facts=_facts(explanation),
        notes="".join(f'<p class="small soft">{escape(note)}</p>' for note in explanation.notes),
        table=_table(explanation),
        content=content.replace("<", "\\u003c"),
    )


def _facts(explanation: Explanation) -> str:
    """Where and by whom, in a line."""
    shown = len(explanation.operations)
    parts = [
        f"model <b>{escape(explanation.model)}</b>",
        f"object <b>{escape(explanation.key)}</b>" if explanation.key else "",
        f"found by <b>{escape(explanation.by)}</b>",
        f"window of <b>{shown:,}</b> of {explanation.operation_count:,} operations"
        if explanation.operation_count
        else f"<b>{shown:,}</b> operations",
        f"no order for its first <b>{explanation.prefix_count:,}</b>"
        if explanation.prefix_count
        else "",
        "" if explanation.is_proof else "the window alone does not prove it",
    ]
    return " · ".join(part for part in parts if part)


def _table(explanation: Explanation) -> str:
    orders = {
        step.operation: number
        for number, step in enumerate(
            explanation.linearizations[0].steps if explanation.linearizations else (), start=1
        )
    }
    rows = []
    for at, shown in enumerate(explanation.operations[:_ROWS_MAX]):
        mark = ' class="stuck"' if shown.role == "stuck" else ""
        ret = "never" if shown.ret is None else f"{shown.ret:,}"
        rows.append(
            f'<tr{mark}><td class="number">{shown.place:,}</td><td class="number">{shown.process}'
            f'</td><td>{escape(shown.text)}</td><td><span class="chip {shown.type}">{shown.type}'
            f'</span></td><td class="number">{shown.call:,}</td><td class="number">{ret}</td>'
            f'<td>{shown.role}</td><td class="number">{orders.get(at, "–")}</td></tr>'
        )
    left = len(explanation.operations) - len(rows)
    more = f'<p class="small soft">and {left:,} more.</p>' if left > 0 else ""
    return (
        f'<table><thead><tr><th class="number">{escape(explanation.place_name)}</th>'
        '<th class="number">process</th><th>operation</th><th>outcome</th>'
        '<th class="number">called at</th><th class="number">returned at</th><th>role</th>'
        '<th class="number">order</th></tr></thead><tbody>'
        + "".join(rows)
        + f"</tbody></table>{more}"
    )


def _content(explanation: Explanation, history: ConcurrentHistory | None) -> dict[str, object]:
    """What the script draws, as columns: operations by call, the explanation's by position."""
    columns = (
        _shown_columns(explanation.operations)
        if history is None or not len(history)
        else _history_columns(explanation, nearest(history, explanation))
    )
    calls = columns["call"]
    assert isinstance(calls, list)
    position = {call: at for at, call in enumerate(calls)}
    mine = [position[shown.call] for shown in explanation.operations]
    return columns | {
        "mine": mine,
        "roles": [shown.role for shown in explanation.operations],
        "prefix": explanation.prefix,
        "place_name": explanation.place_name,
        "linearizations": [
            {
                "begin": each.begin,
                "before": [mine[at] for at in each.before],
                "steps": [(mine[step.operation], step.state) for step in each.steps],
                "blocked": [(mine[stop.operation], stop.why) for stop in each.blocked],
            }
            for each in explanation.linearizations
        ],
    }


def nearest(
    history: ConcurrentHistory, explanation: Explanation, most: int = OPERATIONS_MAX
) -> ConcurrentHistory:
    """At most so many operations about the window, which is always there in addition."""
    if len(history) <= most:
        return history
    calls = np.array([shown.call for shown in explanation.operations] or [0])
    middle = int(np.searchsorted(history.call, int(np.median(calls))))
    begin = min(max(0, middle - most // 2), len(history) - most)
    chosen = np.zeros(len(history), dtype=np.bool_)
    chosen[begin : begin + most] = True
    chosen |= np.isin(history.call, calls)
    return history.take(chosen)


def _shown_columns(operations: tuple[ShownOperation, ...]) -> dict[str, object]:
    ordered = sorted(operations, key=lambda shown: shown.call)
    has_clock = bool(ordered) and all(shown.call_ns is not None for shown in ordered)
    texts = {shown.text: None for shown in ordered}
    number = {text: at for at, text in enumerate(texts)}
    processes = np.array([shown.process for shown in ordered], dtype=np.int64)
    crashed = np.array([shown.ret is None for shown in ordered], dtype=np.bool_)
    lanes, names = lanes_of(processes, crashed)
    return {
        "call": [shown.call for shown in ordered],
        "ret": [-1 if shown.ret is None else shown.ret for shown in ordered],
        "process": processes.tolist(),
        "lane": lanes.tolist(),
        "lanes": names,
        "text": [number[shown.text] for shown in ordered],
        "texts": list(texts),
        "type": [TYPES.index(shown.type) for shown in ordered],
        "place": [shown.place for shown in ordered],
        "call_ns": [shown.call_ns for shown in ordered] if has_clock else None,
        "ret_ns": [-1 if shown.ret_ns is None else shown.ret_ns for shown in ordered]
        if has_clock
        else None,
    }


def _history_columns(explanation: Explanation, history: ConcurrentHistory) -> dict[str, object]:
    lanes, names = lanes_of(history.process.astype(np.int64), history.ret == NEVER)
    texts, codes = _texts(history, explanation.meanings)
    shown = {each.call: each for each in explanation.operations}
    missing = shown.keys() - dict.fromkeys(history.call.tolist())
    assert not missing, "the window's operations are not in the history that is drawn"
    texts = [*texts, *(each.text for each in explanation.operations)]  # cut among themselves
    for at, call in enumerate(history.call.tolist()):
        if call in shown:
            codes[at] = len(texts) - len(shown) + list(shown).index(call)
    columns: dict[str, object] = {
        "call": history.call.tolist(),
        "ret": np.where(history.ret == NEVER, -1, history.ret).tolist(),
        "process": history.process.tolist(),
        "lane": lanes.tolist(),
        "lanes": names,
        "text": codes,
        "texts": texts,
        "type": history.type.tolist(),
        "place": history.place.tolist(),
        "call_ns": None,
        "ret_ns": None,
    }
    if history.call_ns is not None and history.ret_ns is not None:
        columns["call_ns"] = history.call_ns.tolist()
        columns["ret_ns"] = history.ret_ns.tolist()
    return columns


def _texts(history: ConcurrentHistory, meanings: Meanings) -> tuple[list[str], list[int]]:
    number: dict[str, int] = {}
    codes = []
    for operation, kind in zip(operations_of(history), history.type.tolist(), strict=True):
        text = operation_text(operation, kind, meanings.get(operation.f))
        codes.append(number.setdefault(text, len(number)))
    return cut_operations(list(number), TEXT_MAX), codes


def lanes_of(
    process: npt.NDArray[np.int64], crashed: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """A lane for each client: (the lane of each operation, the lanes' names).

    A process whose operation crashed is retired, and its successor has the next id, which is the
    old one plus the number of clients (Jepsen's rule). Where the history obeys that, they share a
    lane; otherwise each process has its own. Operations must be in the order of their calls.
    """
    ids, first = np.unique(process, return_index=True)
    if not len(ids):
        return np.zeros(0, dtype=np.int64), []
    retired_at = {int(p): at for at, p in enumerate(process.tolist()) if crashed[at]}
    begins = dict(zip(ids.tolist(), first.tolist(), strict=True))
    clients = _client_count(begins, retired_at)
    if clients is None:
        return np.searchsorted(ids, process), [str(p) for p in ids.tolist()]
    residues = np.unique(ids % clients)
    members: dict[int, list[str]] = {}
    for p in ids.tolist():
        members.setdefault(p % clients, []).append(str(p))
    lanes = np.searchsorted(residues, process % clients)
    return lanes, [", ".join(members[int(r)]) for r in residues]


def _client_count(begins: dict[int, int], retired_at: dict[int, int]) -> int | None:
    """The number of clients n such that process p succeeds p - n wherever there is such a p."""
    differences = sorted(
        {later - retired for retired in retired_at for later in begins if later > retired}
    )
    for n in differences:
        pairs = [(p - n, p) for p in begins if p - n in begins]
        if pairs and all(
            before in retired_at and retired_at[before] < begins[p] for before, p in pairs
        ):
            newcomers = [p for p in begins if begins[p] > min(retired_at.values())]
            if all(p < n or p - n in begins for p in newcomers):
                return n
    return None
