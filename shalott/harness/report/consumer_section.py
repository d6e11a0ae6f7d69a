"""The report's section on consumers, of runs that had any: its picture, its tables, its words.

The picture of consumers: a block for each queue or group, a row for each holder, and lag.

A bar says who had the queue, its filling how many messages he had not acknowledged: the mean over
each cell of a grid, in steps, so that a million deliveries cost what a thousand do. Rows become
thin where there are many, and what is too short or too much to be seen is counted, not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.checker import Result
from shalott.checkers.history.columns import Bools, Ints
from shalott.core.history import History
from shalott.harness.report import draw
from shalott.harness.report.consumer_deliveries import (
    Cause,
    Deliveries,
    causes_of,
    dead_letters,
    deliveries_again,
    deliveries_of,
    group_dead_letters,
    lanes_of_messages,
)
from shalott.harness.report.consumer_lag import (
    LagPanel,
    WaitPicture,
    Waits,
    lag_panels,
    occupancy,
    passages_of,
    peaks,
    wait_pictures,
    wait_tables,
)
from shalott.harness.report.consumer_rows import Floats, Rows, read_rows
from shalott.harness.report.consumer_tenures import Tenure, of_deliveries, packed, tenures_of
from shalott.harness.report.draw import HEIGHT, Bar, RatePanel, Shape
from shalott.harness.report.message_outcomes import LaneTable, explained_causes, outcomes_by_lane
from shalott.harness.report.series import bucket_width_ms

_LANES_TOLD = 12  # in the cursor's words
_HAND_OVERS = ("rebalanced", "lock-lost", "left", "died")
HOLDERS_MAX = 300
_BAD = ("lost", "refused", "cancelled-by-server", "lock-lost", "died", "hung-up")


@dataclass(frozen=True, slots=True)
class ConsumerSection:
    is_group: bool
    summary: str
    rates: RatePanel  # deliveries a second: ok the first, info again with the flag, empty without
    lags: list[LagPanel]
    lags_left_out: list[str]
    waits: list[WaitPicture]
    blocks: list[Block]
    blocks_left_out: list[str]
    blocked: list[Bar]
    causes: list[Cause]
    again: int
    explained: list[tuple[str, int]]
    outcomes: LaneTable | None
    dead: list[tuple[str, str, int]]
    wait_tables: list[tuple[str, list[Waits]]]
    wait_lanes_left_out: int
    holders: list[HolderRow]
    holder_count: int
    cursor_data: dict[str, object]


def consumer_section(
    history: History, results: Sequence[Result], end_ns: int
) -> ConsumerSection | None:
    """None if the run had no consumers."""
    rows = read_rows(history)
    if rows is None:
        return None
    found = deliveries_of(rows)
    again = deliveries_again(found, lanes_of_messages(rows, found))
    tenures = tenures_of(rows, end_ns)
    which = of_deliveries(rows.kind, tenures, found)
    passages = passages_of(rows, found)
    names = pick_blocks(tenures, found)
    lags = lag_panels(passages, names, end_ns)
    blocks = build_blocks(
        rows.kind, tenures, found, which, end_ns,
        _marks(rows, tenures, end_ns), _findings(results),
    )  # fmt: skip
    is_again = np.zeros(len(found), dtype=np.bool_)
    is_again[again.row] = True
    rates, series = _rates(found, is_again, end_ns)
    return ConsumerSection(
        is_group=rows.kind == "group",
        summary=_summary(rows.kind, tenures, found, len(again.row)),
        rates=rates,
        lags=lags,
        lags_left_out=names[len(lags) :],
        waits=wait_pictures(passages, end_ns),
        blocks=blocks,
        blocks_left_out=names[len(blocks) :],
        blocked=_blocked(rows, end_ns),
        causes=causes_of(rows.kind, found, again),
        again=len(again.row),
        explained=explained_causes(results),
        outcomes=outcomes_by_lane(results),
        dead=dead_letters(rows) if rows.kind == "consume" else _dead_of_groups(rows),
        wait_tables=wait_tables(passages, names),
        wait_lanes_left_out=max(0, len(names) - len(wait_tables(passages, names)[0][1])),
        holders=holder_rows(tenures, found, which, again.row, end_ns),
        holder_count=len(tenures),
        cursor_data={
            "width": bucket_width_ms(end_ns),
            "deliveries": series,
            "lag": {panel.name: panel.values for panel in lags[:_LANES_TOLD]},
        },
    )


def _summary(kind: str, tenures: Sequence[Tenure], found: Deliveries, again: int) -> str:
    holders, lanes = len({t.holder for t in tenures}), len({t.block for t in tenures})
    who, where = ("member", "group") if kind == "group" else ("consumer", "queue")
    return (
        f"{_several(holders, who)} of {_several(lanes, where)} "
        f"{'was' if holders == 1 else 'were'} given {_several(len(found), 'message')}, "
        f"{again:,} of them again."
    )


def _several(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _rates(
    found: Deliveries, is_again: Bools, end_ns: int
) -> tuple[RatePanel, dict[str, list[float]]]:
    width = bucket_width_ms(end_ns)
    count = int(end_ns // (width * 1_000_000)) + 1
    bucket = np.minimum(found.begin_ns // (width * 1_000_000), count - 1)
    chosen = {"ok": ~is_again, "info": is_again & found.again, "empty": is_again & ~found.again}
    per_second = {
        name: np.bincount(bucket[mine], minlength=count).astype(np.float64) * (1000 / width)
        for name, mine in chosen.items()
    }
    top = draw.rate_top(per_second, slice(None))
    panel = RatePanel("deliver", draw.rate_ticks(top), draw.rate_shapes(per_second, width, top))
    words = {"ok": "first", "info": "again, flagged", "empty": "again, not flagged"}
    return panel, {
        words[name]: [round(float(value), 1) for value in values]
        for name, values in per_second.items()
    }


def _blocked(rows: Rows, end_ns: int) -> list[Bar]:
    if rows.kind == "group":
        return []
    own = rows.of("blocked")
    ends = np.minimum(rows.end_ns[own], end_ns)
    return [
        Bar(round(begin / 1e6, 1), round(end / 1e6, 1), "blocked", "", "a connection was blocked")
        for begin, end in zip(rows.begin_ns[own].tolist(), ends.tolist(), strict=True)
    ]


def _marks(rows: Rows, tenures: Sequence[Tenure], end_ns: int) -> dict[str, list[Bar]]:
    """Moments of each block: who lost what in a rebalance; resets; queues that were deleted or
    purged."""
    found: dict[str, list[Bar]] = {}
    if rows.kind == "consume":
        for f, what in (("delete-queue", "deleted"), ("purge-queue", "purged")):
            own = rows.of(f)
            for name, at in zip(
                rows.names("key").take(own).words(), rows.begin_ns[own].tolist(), strict=True
            ):
                found.setdefault(name, []).append(_moment(at, what, f"{name} was {what}"))
        return found
    for group, at, moved in _rebalances(tenures, end_ns / 400):
        queues = _several(moved, "queue")
        found.setdefault(group, []).append(
            _moment(at, "rebalance", f"rebalance: {queues} given up")
        )
    own = rows.of("reset")
    for name, at in zip(
        rows.names("x_group").take(own).words(), rows.begin_ns[own].tolist(), strict=True
    ):
        found.setdefault(name, []).append(_moment(at, "reset", "the operator set the offsets"))
    return found


def _moment(at_ns: float, kind: str, title: str) -> Bar:
    at = round(at_ns / 1e6, 1)
    return Bar(at, at, kind, "", f"{title} at {draw.seconds_label(at)}")


def _rebalances(tenures: Sequence[Tenure], apart_ns: float) -> list[tuple[str, int, int]]:
    """(group, when, queues given up): what was given up close together is one rebalance."""
    ends = sorted((t.block, t.end_ns) for t in tenures if t.ended in _HAND_OVERS)
    found: list[tuple[str, int, int]] = []
    last = 0
    for group, at in ends:
        if found and found[-1][0] == group and at - last <= apart_ns:
            found[-1] = (group, found[-1][1], found[-1][2] + 1)
        else:
            found.append((group, at, 1))
        last = at
    return found


def _findings(results: Sequence[Result]) -> Mapping[str, list[Bar]]:
    """What checkers found that lasted: two who had one queue at once, a consumer that was stuck."""
    found: dict[str, list[Bar]] = {}
    for anomaly in (a for result in results for a in result.anomalies):
        begin, end = anomaly.detail.get("begin_ns"), anomaly.detail.get("end_ns")
        if isinstance(begin, int) and isinstance(end, int):
            bar = Bar(round(begin / 1e6, 1), round(end / 1e6, 1), "finding", "", anomaly.summary)
            for name in ("group", "queue"):
                if isinstance(anomaly.detail.get(name), str):
                    found.setdefault(anomaly.detail[name], []).append(bar)
    return found


def _dead_of_groups(rows: Rows) -> list[tuple[str, str, int]]:
    """Messages that were in the groups' dead letters at the end."""
    letters = group_dead_letters(rows)
    found: dict[str, set[int]] = {}
    for group, value in zip(letters.lane.words(), letters.value.tolist(), strict=True):
        found.setdefault(group, set()).add(value)
    return sorted((group, "retries used up", len(values)) for group, values in found.items())


@dataclass(frozen=True, slots=True)
class HolderRow:
    """A tenure in words and numbers; ``span`` in ms, for the picture."""

    tenure: Tenure
    deliveries: int
    again: int
    most: int
    is_bad: bool  # it did not end as its client wanted
    span: tuple[float, float]


def holder_rows(
    tenures: Sequence[Tenure], found: Deliveries, which: Ints, again_rows: Ints, end_ns: int
) -> list[HolderRow]:
    """The first tenures, by block and begin."""
    mine = np.flatnonzero(which >= 0)
    lane = which[mine].astype(np.int32)
    ends = np.minimum(found.end_ns[mine], end_ns)
    most = peaks(lane, found.begin_ns[mine], np.maximum(ends, found.begin_ns[mine]), len(tenures))
    counts = np.bincount(lane, minlength=len(tenures))
    repeated = which[again_rows]
    again = np.bincount(repeated[repeated >= 0], minlength=len(tenures))
    return [
        HolderRow(
            tenure=one,
            deliveries=int(counts[place]),
            again=int(again[place]),
            most=int(most[place]),
            is_bad=one.ended in _BAD,
            span=(one.begin_ns / 1e6, one.end_ns / 1e6),
        )
        for place, one in enumerate(tenures[:HOLDERS_MAX])
    ]


BLOCKS_MAX = 12
ROWS_MAX = 64  # of one block
TENURES_MAX = 1500  # drawn, of all blocks
CELLS_MAX = 24_000  # of all fillings
GRID_MAX = 400  # cells of one filling
MARKS_MAX = 200  # of one block
_LEVELS = 5
_ROW_REM, _ROW_REM_MIN, _BLOCK_REM = 1.15, 0.3, 15.0
_THIN_REM = 0.75  # below it a filling is a shade, not a height
_COLOURS = 8


@dataclass(frozen=True, slots=True)
class TenureBar:
    """``top`` and ``tall`` in percent of the block; ``colour`` of the member, from 0."""

    bar: Bar
    top: float
    tall: float
    colour: int


@dataclass(frozen=True, slots=True)
class Block:
    name: str
    height: float  # rem
    bars: list[TenureBar]
    shapes: list[Shape]  # what was not acknowledged
    row_names: list[tuple[float, str]]  # percent from the top, a queue of the group
    marks: list[Bar]  # moments: a rebalance, a reset, a queue deleted
    findings: list[Bar]  # what checkers found about the block
    note: str  # what its height means, and what is not drawn
    is_thin: bool
    label: str  # in words, for who can't see it


def pick_blocks(tenures: Sequence[Tenure], found: Deliveries) -> list[str]:
    """The blocks by deliveries, most first; all of them."""
    counts = dict.fromkeys((one.block for one in tenures), 0)
    sizes = np.bincount(found.lane.codes + 1, minlength=len(found.lane.names) + 1)[1:]
    for name, size in zip(found.lane.names, sizes.tolist(), strict=True):
        if size:
            counts[name] = size
    return sorted(counts, key=lambda name: (-counts[name], name))


def build_blocks(
    kind: str,
    tenures: Sequence[Tenure],
    found: Deliveries,
    which: Ints,
    end_ns: int,
    marks: Mapping[str, Sequence[Bar]],
    findings: Mapping[str, Sequence[Bar]],
) -> list[Block]:
    """The blocks that are drawn, by name."""
    names = sorted(pick_blocks(tenures, found)[:BLOCKS_MAX])
    drawn = _worth_drawing(tenures, names, end_ns)
    held = _fillings(tenures, drawn, found, which, end_ns)
    return [
        _block(
            kind, name, tenures, [p for p in drawn if tenures[p].block == name], held, end_ns,
            marks.get(name, ()), findings.get(name, ()),
        )
        for name in names
    ]  # fmt: skip


def _worth_drawing(tenures: Sequence[Tenure], names: Sequence[str], end_ns: int) -> list[int]:
    """Positions of those that are drawn: the longest, if there are too many."""
    mine = [p for p, one in enumerate(tenures) if one.block in names]
    mine.sort(key=lambda p: (tenures[p].begin_ns - tenures[p].end_ns, p))
    return sorted(mine[:TENURES_MAX])


@dataclass(frozen=True, slots=True)
class _Fillings:
    """Means of unacknowledged messages: a row a tenure (``place`` says which), a column a cell."""

    place: dict[int, int]
    mean: Floats
    most: Ints  # of each tenure, at once: by cells
    cell_ms: float


def _fillings(
    tenures: Sequence[Tenure], drawn: Sequence[int], found: Deliveries, which: Ints, end_ns: int
) -> _Fillings:
    place = {position: number for number, position in enumerate(drawn)}
    cells = max(40, min(GRID_MAX, CELLS_MAX // max(1, len(drawn))))
    table = np.full(len(tenures) + 1, -1, dtype=np.int64)
    table[list(drawn)] = np.arange(len(drawn))
    mine = np.flatnonzero(table[which] >= 0)
    lane = table[which[mine]].astype(np.int32)
    edges = np.linspace(0, end_ns, cells + 1)
    mean = occupancy(lane, found.begin_ns[mine], found.end_ns[mine], len(drawn), edges)
    most = np.ceil(mean.max(axis=1, initial=0)).astype(np.int64)
    return _Fillings(place, mean, most, end_ns / 1e6 / cells)


def _block(
    kind: str,
    name: str,
    tenures: Sequence[Tenure],
    members: Sequence[int],
    held: _Fillings,
    end_ns: int,
    marks: Sequence[Bar],
    findings: Sequence[Bar],
) -> Block:
    placed = packed(kind, tenures, members, end_ns / 400)
    rows = min(ROWS_MAX, 1 + max((one.row for one in placed), default=0))
    shown = [one for one in placed if one.row < rows]
    left_out = sum(one.block == name for one in tenures) - len(shown)
    row_rem = max(_ROW_REM_MIN, min(_ROW_REM, _BLOCK_REM / rows))
    holders = {one: place for place, one in enumerate(sorted({tenures[p].holder for p in members}))}
    top = max((float(held.mean[held.place[one.tenure]].max(initial=0)) for one in shown), default=0)
    queues: dict[str, float] = {}
    if kind == "group":
        for one in shown:
            row = 100 * one.row / rows
            queue = tenures[one.tenure].queue
            queues[queue] = min(row, queues.get(queue, row))
    most = f"filled: {draw.number_label(np.ceil(top))} unacknowledged" if top else "nothing held"
    missing = f"; {left_out:,} not drawn" if left_out else ""
    return Block(
        name=name,
        height=round(row_rem * rows, 2),
        bars=[
            TenureBar(
                _tenure_bar(kind, tenures[one.tenure]),
                round(100 * one.row / rows, 2),
                round(92 / rows, 2),
                holders[tenures[one.tenure].holder] % _COLOURS if kind == "group" else 0,
            )
            for one in shown
        ],
        shapes=_filling_shapes(
            [(one.row, held.mean[held.place[one.tenure]]) for one in shown],
            rows, top, held.cell_ms, is_thin=row_rem < _THIN_REM,
        ),
        row_names=[(at, queue) for queue, at in queues.items()] if row_rem >= _THIN_REM else [],
        marks=list(marks[:MARKS_MAX]),
        findings=list(findings[:MARKS_MAX]),
        note=most + missing,
        is_thin=row_rem < _THIN_REM,
        label=_label(kind, name, [tenures[one.tenure] for one in shown], top),
    )  # fmt: skip


def _label(kind: str, name: str, shown: Sequence[Tenure], top: float) -> str:
    holders = len({one.holder for one in shown})
    who = "members" if kind == "group" else "consumers"
    ends: dict[str, int] = {}
    for one in shown:
        ends[one.ended or "not ended"] = ends.get(one.ended or "not ended", 0) + 1
    ends_text = ", ".join(
        f"{n} {end}" for end, n in sorted(ends.items(), key=lambda e: (-e[1], e[0]))
    )
    return (
        f"{name}: {holders} {who} in {len(shown)} tenures ({ends_text}), "
        f"at most {top:.0f} messages unacknowledged; the table below lists them"
    )


def _tenure_bar(kind: str, one: Tenure) -> Bar:
    begin, end = one.begin_ns / 1e6, one.end_ns / 1e6
    what = f"{one.holder} had {one.queue}" if kind == "group" else f"{one.holder} of {one.queue}"
    why = f" ({one.error})" if one.error else ""
    title = (
        f"{what}: {draw.seconds_label(round(begin, 1))} to {draw.seconds_label(round(end, 1))}, "
        f"{one.ended or 'not ended'}{why}"
    )
    note = f"; {one.note}" if one.note else ""
    return Bar(round(begin, 1), round(end, 1), one.ended or "open", one.holder, title + note)


def _filling_shapes(
    rows: Sequence[tuple[int, Floats]], count: int, top: float, cell_ms: float, *, is_thin: bool
) -> list[Shape]:
    """By level: as high as it is full, or where rows are thin as dark."""
    if not top:
        return []
    tall = 0.92 * HEIGHT / count
    paths: dict[int, list[str]] = {}
    for row, means in rows:
        levels = np.ceil(np.clip(means / top, 0, 1) * _LEVELS).astype(np.int64)
        bottom = row * HEIGHT / count + tall
        cuts = np.flatnonzero(np.diff(levels, prepend=-1, append=-1))
        for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            level = int(levels[begin])
            if not level:
                continue
            high = tall if is_thin else tall * level / _LEVELS
            x, wide = round(begin * cell_ms), max(1, round((end - begin) * cell_ms))
            paths.setdefault(level if is_thin else _LEVELS, []).append(
                f"M{x} {bottom - high:.1f}h{wide}v{high:.1f}h-{wide}z"
            )
    return [Shape("held", "".join(paths[level]), level) for level in sorted(paths)]
