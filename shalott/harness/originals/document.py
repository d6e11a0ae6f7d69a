"""docs/evidence/originals.md: the ladder's table, written from its rows and from what was run.

Nothing in it is written by hand: ``shalott bugs --original --document`` writes it anew.
"""

from __future__ import annotations

import difflib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from shalott.broker.known_bugs import known_bug
from shalott.core.errors import StoreError, UsageError
from shalott.core.plan import FaultAction, Plan, dump_plan
from shalott.harness.originals.controller_rows import CONTROLLER_ROWS
from shalott.harness.originals.evidence import KeptLooks, Look, minutes_to_first, tally
from shalott.harness.originals.replication_rows import REPLICATION_ROWS
from shalott.harness.originals.row import RELEASES, Row
from shalott.harness.originals.running import plan_of
from shalott.harness.originals.undecided_rows import UNDECIDED_ROWS
from shalott.harness.run.atomic_file import write_atomically

DOCUMENT = "evidence/originals.md"
PLANS = Path("plans") / "originals"
Looks = Mapping[str, Sequence[Look]]

OFTEN = 3  # sound runs of each side, for a comparison to say anything
# What is compared, by the checkers' own numbers, and how many of the unit make one that is shown.
COMPARED: Mapping[str, tuple[str, float]] = {
    "messages lost": ("lost-write-count", 1),
    "offsets given twice": ("shared-offset-count", 1),
    "longest time without an acknowledgement, s": ("longest-gap-ms", 1000),
    "time to the next master, s": ("takeover-ms-max", 1000),
}

_HEAD = """\
# The originals: which known bugs RocketMQ's own releases show

For readers who ask whether a known bug is one of the released RocketMQ.

Each row is a bug of the catalogue ([known-bugs.md](known-bugs.md)), a loss that RocketMQ's defaults
allow (W-), or what was first seen on the original itself (M-). Its plan was run on a release of
RocketMQ, in containers, that has the bug, and as the control on one that has not; where every
release has it, under settings that close it, if there are any. Which releases have a bug was read
in their sources; the section of each row says where. "Ours" is the same plan (the same faults, load
and settings) on our own broker in simulation, with the bug switched on and off. Where no release
is without a bug and no setting closes it, its control is "none", and it is decided by the release
that has it and by our broker's switch, on and off in simulation; where there is no such switch
either ("-"), by the release alone. "0 of 2" is an answer too: it was looked for, and not found.
What the control shows as well is not counted as found.

This page is generated: `shalott bugs --original` runs what is missing and writes it;
`--bug KB-RKT-17` runs one row, `--repeat 5` so many times, `--version 5.5.0` on that release. A
side of a row stops after {enough} finds running, but with `--every`. Runs that saw too little,
because the machine stalled or a node did not start, are not counted. Every run stands in
`originals.json`, with the machine's load. The plans lie in `docs/plans/originals/`, and run again
with `shalott test --plan docs/plans/originals/kb-rkt-17.json`.

"""


def render(kept: Looks) -> str:
    decided = [row for row in LADDER if is_decided(row, kept)]
    found = [row for row in decided if _found(row, kept)]
    lines = [
        f"{len(LADDER)} rows. Decided on real releases: {len(decided)}; found: {len(found)}. Those",
        "that are not decided wait for something, or for their runs: see [below](#not-decided).",
        "",
        "## Decided",
        "",
        *_table(decided, kept),
        "",
        "## Not decided",
        "",
        "| id | what it is | releases with it | without it | waits for |",
        "|" + " --- |" * 5,
    ]
    for row in LADDER:
        if row not in decided:
            cells = (row.id, title_of(row), _span(row.has), _span(row.free), _waits_for(row, kept))
            lines.append("| " + " | ".join(cells) + " |")
    lines += side_by_side(kept)
    for row in LADDER:
        if row.setup is not None or row.same_as:
            lines += ["", *_about(row, kept)]
    return _HEAD.format(enough="three") + "\n".join(lines) + "\n"


def is_decided(row: Row, kept: Looks) -> bool:
    """A sound run on a release that has it, and one of the control; where there is no control, one
    of each side of our switch, if there is a switch."""
    if row.same_as:
        return is_decided(find_row(row.same_as), kept)
    looks = kept.get(row.id, ())
    if row.setup is None or not tally(looks, "with").runs:
        return False
    if row.control_words:
        return tally(looks, "control").runs > 0
    return row.ours is None or all(tally(looks, side).runs for side in ("ours-on", "ours-off"))


def _found(row: Row, kept: Looks) -> bool:
    """What the control shows as well is no evidence of the bug."""
    looks = kept.get(row.same_as or row.id, ())
    return tally(looks, "with").found > 0 and not tally(looks, "control").found


_COLUMNS = (
    *("id", "what it is", "shows itself as", "on", "found", "after min", "control", "found there"),
    *("ours on", "off"),
)


def _table(rows: Sequence[Row], kept: Looks) -> Iterator[str]:
    yield "| " + " | ".join(_COLUMNS) + " |"
    yield "|" + " --- |" * len(_COLUMNS)
    for row in rows:
        told = find_row(row.same_as) if row.same_as else row
        looks = kept.get(told.id, ())
        minutes = minutes_to_first(looks)
        cells = [
            f"[{row.id}](#{row.id.lower()})", title_of(row), told.shows.words, _run_on(told, looks),
            tally(looks, "with").words, "-" if minutes is None else f"{minutes:.1f}",
            told.control_words or "none", tally(looks, "control").words,
            tally(looks, "ours-on").words, tally(looks, "ours-off").words,
        ]  # fmt: skip
        yield "| " + " | ".join(cells) + " |"


def _run_on(row: Row, looks: Sequence[Look]) -> str:
    """The releases on which it was looked for, as they come."""
    names = [look.release for look in looks if look.side == "with" and not look.void]
    return ", ".join(dict.fromkeys(names)) or row.run_on


def _span(names: Sequence[str]) -> str:
    """ "5.0.0 to 5.1.0"; releases that can be had, in their order."""
    if not names:
        return "none"
    if len(names) == len(RELEASES):
        return "all"
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _waits_for(row: Row, kept: Looks) -> str:
    if row.waits_for:
        return row.waits_for
    looks = kept.get(row.id, ())
    void = [look.void for look in looks if look.void and look.side in ("with", "control")]
    missing = "its run" if not tally(looks, "with").runs else "the run of its control"
    if not row.control_words and tally(looks, "with").runs:
        missing = "the runs of our broker"
    return missing + (f" ({len(void)} were void: {void[-1]})" if void else "")


def _about(row: Row, kept: Looks) -> Iterator[str]:
    yield f"## {row.id}"
    yield ""
    yield f"{title_of(row)}."
    yield ""
    yield f"- Releases with it: {_span(row.has)}; without it: {_span(row.free)}."
    if row.read_in:
        yield f"- Read in: {row.read_in}."
    if row.same_as:
        yield f"- Its plan is that of [{row.same_as}](#{row.same_as.lower()})."
        return
    assert row.setup is not None
    yield f"- {row.why}"
    yield f"- Plan: {_plan_words(row)}."
    for look in kept.get(row.id, ()):
        if look.side in ("with", "control"):
            yield f"- {_look_words(look)}"
    if links := links_of(row):
        yield f"- Links: {', '.join(f'<{link}>' for link in links)}"


def _plan_words(row: Row) -> str:
    setup = row.setup
    assert setup is not None
    settings = ", ".join(f"`{name}={value}`" for name, value in setup.policy.items())
    words = [
        f"{setup.replication}, profile `{setup.profile}`, {len(setup.nodes)} nodes,"
        f" {setup.rate_hz:g} operations a second for {setup.time_limit_ms / 1000:g} s",
        *([settings] if settings else []),
        *(_fault_words(action) for action in row.faults),
    ]
    return "; ".join(words)


def _fault_words(action: FaultAction) -> str:
    at = f"at {action.at_ms / 1000:g} s for {action.duration_ms / 1000:g} s"
    target = action.target or " from ".join(_sides(action))
    return f"`{action.kind}` {target} {at}"


def _sides(action: FaultAction) -> tuple[str, str]:
    links = action.links or ()
    half = links[: len(links) // 2]
    return (
        "+".join(dict.fromkeys(one for one, _ in half)),
        "+".join(dict.fromkeys(other for _, other in half)),
    )


def _look_words(look: Look) -> str:
    what = "control, " if look.side == "control" else ""
    if look.void:
        return f"{what}{look.release}, seed {look.seed}: void ({look.void}), load {look.load:g}."
    counts = ", ".join(
        f"{name.removesuffix('-count')} {value:g}"
        for name, value in sorted(look.counts.items())
        if name.endswith("-count") and name != "acked-count"
    )
    told = "found" if look.found else "not found"
    extra = f"; seen {look.lines} times" if look.lines else ""
    gap = look.counts.get("longest-gap-ms", 0) / 1000
    return (
        f"{what}{look.release}, seed {look.seed}: {told}{extra} ({counts or 'no anomaly'});"
        f" longest time without an acknowledgement {gap:.1f} s; load {look.load:g}."
    )


# -- the files -------------------------------------------------------------------------------------


def stored_plan(row: Row) -> Plan:
    """What docs/plans/originals has of a row: on the release that has the bug."""
    plan = plan_of(row, row.run_on)
    return msgspec.structs.replace(plan, name=row.id.lower())


def write_document(directory: Path, kept: KeptLooks) -> None:
    """The document, and every row's plan beside it. Raises StoreError."""
    known = {row.id for row in LADDER}
    try:
        for folder in (directory / PLANS, (directory / DOCUMENT).parent):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write into {directory}: {error.strerror}") from error
    for row in LADDER:
        if row.setup is not None:
            path = directory / PLANS / f"{row.id.lower()}.json"
            write_atomically(path, dump_plan(stored_plan(row)))
    told = {name: looks for name, looks in kept.items() if name in known}
    write_atomically(directory / DOCUMENT, render(told).encode())


# -- side by side --------------------------------------------------------------------------------


def side_by_side(kept: Mapping[str, Sequence[Look]]) -> Iterator[str]:
    """A section for all such rows, or nothing."""
    often = [row for row in LADDER if _runs_by_release(kept.get(row.id, ()))]
    if not often:
        return
    yield from ("", "## Side by side", "")
    yield "The same plan, many times on the original and on ours with the switch on. Numbers are"
    yield "least / median / most of the sound runs."
    for row in often:
        yield from ("", *_comparison(row, _runs_by_release(kept[row.id])))


def _runs_by_release(looks: Sequence[Look]) -> Mapping[str, Sequence[Look]]:
    """Sound runs by where they were made; {} if there are too few."""
    sound = [look for look in looks if not look.void]
    original = [look for look in sound if look.side == "with"]
    ours = [look for look in sound if look.side == "ours-on"]
    if len(original) < OFTEN or len(ours) < OFTEN:
        return {}
    by_release: dict[str, list[Look]] = {}
    for look in (*original, *ours):
        by_release.setdefault(look.release, []).append(look)
    return by_release


def _comparison(row: Row, sides: Mapping[str, Sequence[Look]]) -> Iterator[str]:
    yield "| " + " | ".join((row.id, "found", *COMPARED)) + " |"
    yield "|" + " --- |" * (2 + len(COMPARED))
    for release, looks in sides.items():
        where = "in simulation" if looks[0].side == "ours-on" else "in containers"
        numbers = [_spread(looks, name, unit) for name, unit in COMPARED.values()]
        told = tally(looks, looks[0].side).words
        yield "| " + " | ".join((f"{release} {where}", told, *numbers)) + " |"


def _spread(looks: Sequence[Look], name: str, unit: float) -> str:
    values = sorted(look.counts.get(name, 0) / unit for look in looks)
    shown = (values[0], statistics.median(values), values[-1])
    return " / ".join(f"{value:.1f}" if unit > 1 else f"{value:.0f}" for value in shown)


def _family(row_id: str) -> str:
    return row_id.rpartition("-")[0] if row_id.startswith("KB") else row_id[0]


LADDER: tuple[Row, ...] = tuple(
    sorted(
        (*REPLICATION_ROWS, *CONTROLLER_ROWS, *UNDECIDED_ROWS),
        key=lambda row: (("KB-RKT", "KB-DL", "M", "W").index(_family(row.id)), row.id),
    )
)


def title_of(row: Row) -> str:
    """The row's own, or the catalogue's."""
    return row.title or known_bug(row.id).title


def links_of(row: Row) -> tuple[str, ...]:
    if row.links or row.title:
        return row.links
    return known_bug(row.id).links


def find_row(row_id: str) -> Row:
    """Raises UsageError, naming near ones or all."""
    by_id = {row.id: row for row in LADDER}
    if row_id.upper() in by_id:
        return by_id[row_id.upper()]
    near = difflib.get_close_matches(row_id.upper(), by_id, n=3, cutoff=0.7)
    advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(by_id)}"
    raise UsageError(f"the ladder has no {row_id}: {advice}")
