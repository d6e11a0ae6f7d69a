"""Two runs side by side: where their plans differ, what was found in each, and their timelines.

A timeline has the figures of its report, drawn as plain SVG, so that both stand on one axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shalott.checkers.checker import Result
from shalott.core.errors import StoreError, UsageError
from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, History, read_history
from shalott.core.json_value import Json
from shalott.core.op import NEMESIS
from shalott.core.sums import check_sum
from shalott.harness.report.cluster_timeline import read_timeline
from shalott.harness.report.losses import loss_lanes
from shalott.harness.report.run_picture import Stage, build_stage
from shalott.harness.report.series import latencies, rates, read_clients
from shalott.harness.report.shown_anomalies import double_tenure_bars
from shalott.harness.run.store import EVENTS, HISTORY, PLAN
from shalott.harness.serve.cached_table import VERDICTS, Runs
from shalott.harness.serve.request import Query, Refused, RunPath, StoreFiles
from shalott.harness.serve.run_view import inner, read_json, results_of, row_of
from shalott.harness.serve.runs_page import RunRow

LEAVES_MAX = 20_000
DIFFERENCES_MAX = 400
DEPTH_MAX = 30
TEXT_MAX = 300
ABSENT = "absent"
CLIENT_ROWS_MAX = 2_000_000  # of longer histories only what the nemesis did is drawn
OBSERVE_INTERVAL_MS = 500


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """``path``: dotted, a fault by its id."""

    path: str
    a: str
    b: str


class FoundInBoth(msgspec.Struct, frozen=True, kw_only=True):
    """How often each run has an anomaly; None: its checker did not judge that run."""

    checker: str
    kind: str
    a: int | None
    b: int | None


class CheckerPair(msgspec.Struct, frozen=True, kw_only=True):
    checker: str
    a: str
    b: str


class Side(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    verdict: str
    headline: str
    row: RunRow | None
    note: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    a: Side
    b: Side
    differences: tuple[Difference, ...]
    equal: int  # values of the plans that are alike
    left_out: int
    anomalies: tuple[FoundInBoth, ...]
    checkers: tuple[CheckerPair, ...]  # whose verdicts differ


class ComparedRuns:
    """What the page shows: the comparison as data, and the two drawings, on one axis."""

    def __init__(self, comparison: Comparison, drawn: tuple[DrawnTimeline, DrawnTimeline]) -> None:
        self.comparison = comparison
        self.drawn = drawn
        ends = [each.stage.end_ms for each in drawn if each.stage is not None]
        self.end_ms = max(ends, default=1.0)


def compare(places: StoreFiles, runs: Runs, query: Query, *, draw: bool) -> ComparedRuns:
    """The two runs of the parameter ``run``. Raises Refused."""
    names = query.by_name.get("run", [])
    if len(names) != 2:
        raise Refused(400, f"Choose two runs to compare; there {_number(len(names))}.")
    a, b = (places.run(name) for name in names)
    plans = [read_json(places, place, PLAN) for place in (a, b)]
    verdicts = [results_of(places, place) for place in (a, b)]
    results = [tuple(found.results) if found else () for found, _ in verdicts]
    drawn = [
        draw_timeline(places, place, _nodes(plan), own) if draw else DrawnTimeline(None)
        for place, plan, own in zip((a, b), plans, results, strict=True)
    ]
    differences, equal = plan_differences(*plans)
    sides = [
        _side(place, runs, found.headline if found else "", notes)
        for place, (found, notes) in zip((a, b), verdicts, strict=True)
    ]
    comparison = Comparison(
        a=sides[0],
        b=sides[1],
        differences=tuple(differences[:DIFFERENCES_MAX]),
        equal=equal,
        left_out=max(0, len(differences) - DIFFERENCES_MAX),
        anomalies=_anomalies(results[0], results[1]),
        checkers=_checkers(results[0], results[1]),
    )
    return ComparedRuns(comparison, (drawn[0], drawn[1]))


def _number(count: int) -> str:
    return "is one" if count == 1 else f"are {count}"


def _side(place: RunPath, runs: Runs, headline: str, notes: tuple[str, ...]) -> Side:
    row = row_of(runs, place.name)
    return Side(
        run=place.name,
        verdict=row.verdict if row else "no verdict",
        headline=headline or (row.headline if row else "It has no verdict."),
        row=row,
        note=" ".join(notes),
    )


def _nodes(plan: Json) -> tuple[str, ...]:
    nodes = inner(plan, ("cluster", "nodes"))
    return tuple(map(str, nodes)) if isinstance(nodes, list) else ()


def plan_differences(a: Json, b: Json) -> tuple[list[Difference], int]:
    """Values that differ, by path, and how many are alike. Plans of different versions too."""
    first, second = dict(_leaves(a, "", 0)), dict(_leaves(b, "", 0))
    found, equal = [], 0
    for path in dict.fromkeys([*first, *second]):
        one, other = first.get(path, ABSENT), second.get(path, ABSENT)
        if one == other:
            equal += 1
        else:
            found.append(Difference(path=path, a=one[:TEXT_MAX], b=other[:TEXT_MAX]))
    return found, equal


def _leaves(value: Json, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Every value with its path, at most so many; what is nested too deep is one text."""
    left = LEAVES_MAX
    waiting = [(value, path, depth)]
    while waiting and left:
        at, path, depth = waiting.pop()
        children = list(_children(at, path)) if depth < DEPTH_MAX else []
        if children:
            waiting += [(child, name, depth + 1) for name, child in reversed(children)]
        else:
            left -= 1
            yield path or "plan", msgspec.json.encode(at).decode()


def _children(value: Json, path: str) -> Iterator[tuple[str, Json]]:
    dot = "." if path else ""
    if isinstance(value, dict):
        for name, child in value.items():
            yield f"{path}{dot}{str(name)[:100]}", child
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for at, child in enumerate(value):
            own = child.get("id", at) if isinstance(child, dict) else at
            yield f"{path}[{str(own)[:50]}]", child


def _anomalies(a: tuple[Result, ...], b: tuple[Result, ...]) -> tuple[FoundInBoth, ...]:
    counts = [_counted(each) for each in (a, b)]
    judged = [{result.checker for result in each} for each in (a, b)]
    keys = sorted({*counts[0], *counts[1]})
    return tuple(
        FoundInBoth(
            checker=checker,
            kind=kind,
            a=counts[0].get((checker, kind), 0) if checker in judged[0] else None,
            b=counts[1].get((checker, kind), 0) if checker in judged[1] else None,
        )
        for checker, kind in keys
    )


def _counted(results: tuple[Result, ...]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for result in results:
        for anomaly in result.anomalies:
            key = (result.checker, anomaly.kind)
            found[key] = found.get(key, 0) + 1
    return found


def _checkers(a: tuple[Result, ...], b: tuple[Result, ...]) -> tuple[CheckerPair, ...]:
    first, second = ({each.checker: _word(each) for each in side} for side in (a, b))
    names = dict.fromkeys([*first, *second])
    return tuple(
        CheckerPair(checker=name, a=first.get(name, ABSENT), b=second.get(name, ABSENT))
        for name in names
        if first.get(name) != second.get(name)
    )


def _word(result: Result) -> str:
    text = str(result.valid).lower() if isinstance(result.valid, bool) else result.valid
    return VERDICTS.get(text, "unknown")


@dataclass(frozen=True, slots=True)
class DrawnTimeline:
    """``note``: why it is not whole, or (without a stage) why there is none."""

    stage: Stage | None
    note: str = ""


def draw_timeline(
    places: StoreFiles, place: RunPath, nodes: tuple[str, ...], results: tuple[Result, ...]
) -> DrawnTimeline:
    try:
        with places.opened(place, HISTORY) as file:
            check_sum(place.path / HISTORY)
            rows = pq.ParquetFile(file).metadata.num_rows
        events = place.path / EVENTS
        if events.is_symlink():
            return DrawnTimeline(None, "Its events are a link, which is not followed.")
        note = ""
        if rows > CLIENT_ROWS_MAX:
            history = _nemesis_only(places, place)
            note = f"It has {rows:,} operations: rates and latencies are in its report."
        else:
            history = read_history(place.path / HISTORY, events, complete=True)
        timeline = read_timeline(history, nodes, OBSERVE_INTERVAL_MS)
        clients = read_clients(history)
        stage = build_stage(
            timeline,
            rates(clients, timeline.end_ns),
            latencies(clients, timeline.end_ns),
            loss_lanes(results),
            double_tenure_bars(results),
        )
        return DrawnTimeline(stage, note)
    except Refused:
        return DrawnTimeline(None, "It has no stored history.")
    except (OSError, pa.ArrowException, StoreError, UsageError) as error:
        return DrawnTimeline(
            None, f"Its history can't be read: {str(error).partition(chr(10))[0][-200:]}"
        )


def _nemesis_only(places: StoreFiles, place: RunPath) -> History:
    with places.opened(place, HISTORY) as file:
        found = pq.read_table(file, filters=[("process", "=", NEMESIS)])
    columns = [
        found[field.name] if field.name in found.column_names else pa.nulls(len(found), field.type)
        for field in HISTORY_SCHEMA
    ]
    table = pa.table(columns, schema=HISTORY_SCHEMA)
    renumbered = table.set_column(0, "index", pa.array(range(len(table)), pa.int64()))
    return History(ops=renumbered.filter(pc.is_valid(renumbered["invoke_ns"])), events=EMPTY_EVENTS)
