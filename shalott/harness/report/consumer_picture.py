"""The picture of consumers: a block for each queue or group, a row for each holder, and lag.

A bar says who had the queue, its filling how many messages he had not acknowledged: the mean over
each cell of a grid, in steps, so that a million deliveries cost what a thousand do. Rows become
thin where there are many, and what is too short or too much to be seen is counted, not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.history.columns import Ints
from shalott.harness.report import draw
from shalott.harness.report.consumer_deliveries import Deliveries
from shalott.harness.report.consumer_lag import occupancy
from shalott.harness.report.consumer_rows import Floats
from shalott.harness.report.consumer_tenures import Tenure, packed
from shalott.harness.report.draw import HEIGHT, Bar, Shape

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
