"""Nights over time: each night as a matrix of cells, each cell with what it was in nights before.

A night is what the matrix called it, or the UTC day of runs that belong to none. A cell is what the
matrix calls it, or system, profile, cluster, workload and faults of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.harness.serve.cached_table import VERDICTS, Runs
from shalott.harness.serve.request import Query, Refused
from shalott.harness.serve.runs_page import (
    Filters,
    Mask,
    RunRow,
    as_mask,
    cells,
    matching,
    row_views,
)
from shalott.harness.store.intervals import wilson

SPARK_NIGHTS = 20
NIGHTS_MAX = 400
COLUMNS_MAX = 60
CELL_ROWS = 100


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Runs by verdict; ``night`` says of which night."""

    night: str
    invalid: int = 0
    unknown: int = 0
    none: int = 0  # without a verdict
    valid: int = 0

    @property
    def total(self) -> int:
        return self.invalid + self.unknown + self.none + self.valid

    @property
    def worst(self) -> str:
        """The word of the gravest verdict among them."""
        if self.invalid:
            return "invalid"
        if self.unknown or self.none:
            return "unknown"
        return "valid" if self.valid else "absent"


class Night(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    counts: Counts
    cells: int
    red_cells: int


class NightList(msgspec.Struct, frozen=True, kw_only=True):
    nights: tuple[Night, ...]
    notes: tuple[str, ...]


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """``spark``: this cell in the last nights, the oldest first, this night last."""

    cell: str
    counts: Counts
    spark: tuple[Counts, ...]


class MatrixRow(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    boxes: tuple[tuple[MatrixCell, ...], ...]  # one a column


class NightMatrix(msgspec.Struct, frozen=True, kw_only=True):
    night: str
    before: str  # the nights beside it; empty if there is none
    after: str
    counts: Counts
    columns: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    left_out: int  # cells in columns beyond those that are drawn
    notes: tuple[str, ...]


class CellNight(msgspec.Struct, frozen=True, kw_only=True):
    """A cell in a night; medians over its runs."""

    counts: Counts
    latency_p99_ms: float | None
    rto_ms: float | None
    lost: int


class CellHistory(msgspec.Struct, frozen=True, kw_only=True):
    """``failing``: the share of invalid runs of those that were judged, and its 95 % interval."""

    cell: str
    nights: tuple[CellNight, ...]  # the newest first
    total: int
    failing: tuple[float, float, float] | None
    rows: tuple[RunRow, ...]
    notes: tuple[str, ...]


class _Tally:
    """Every run of kind ``run`` counted by cell, night and verdict."""

    def __init__(self, runs: Runs) -> None:
        mask = pa.array(matching(runs, Filters()))
        cell, night = cells(runs).dictionary_encode(), runs.group.dictionary_encode()
        started = pc.fill_null(runs.table["started_wall_ns"], 0).to_numpy()
        codes = pc.index_in(
            pc.fill_null(runs.table["valid"], ""), value_set=pa.array([*VERDICTS])
        ).fill_null(2)
        self.cells: list[str] = cell.dictionary.to_pylist()
        names: list[str] = night.dictionary.to_pylist()
        at_cell, at_night = cell.indices.to_numpy(), night.indices.to_numpy()
        kept = mask.to_numpy(zero_copy_only=False)
        newest = np.full(len(names), -1, dtype=np.int64)
        np.maximum.at(newest, at_night[kept], started[kept])
        order = [at for at in np.argsort(-newest, kind="stable") if newest[at] >= 0]
        self.nights = [names[at] for at in order]  # the newest first
        combined = (at_cell.astype(np.int64) * len(names) + at_night) * 4 + codes.to_numpy()
        values, counts = np.unique(combined[kept], return_counts=True)
        table: dict[tuple[int, int], list[int]] = {}
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            where, verdict = divmod(value, 4)
            table.setdefault(divmod(where, len(names)), [0, 0, 0, 0])[verdict] = count
        self.of: dict[str, dict[str, Counts]] = {}
        for (one, when), told in table.items():
            own = self.of.setdefault(self.cells[one], {})
            own[names[when]] = _counts(names[when], told)


def _tally(runs: Runs) -> _Tally:
    found: _Tally | None = runs.made.get("tally")
    if found is None:
        found = runs.made["tally"] = _Tally(runs)
    return found


def _counts(night: str, told: Sequence[int]) -> Counts:
    invalid, unknown, none, valid = told
    return Counts(night=night, invalid=invalid, unknown=unknown, none=none, valid=valid)


def _sum(night: str, counts: Sequence[Counts]) -> Counts:
    return Counts(
        night=night,
        invalid=sum(each.invalid for each in counts),
        unknown=sum(each.unknown for each in counts),
        none=sum(each.none for each in counts),
        valid=sum(each.valid for each in counts),
    )


def list_nights(runs: Runs) -> NightList:
    tally = _tally(runs)
    by_night: dict[str, list[Counts]] = {}
    for own in tally.of.values():
        for night, counts in own.items():
            by_night.setdefault(night, []).append(counts)
    return NightList(
        nights=tuple(
            Night(
                name=name,
                counts=_sum(name, by_night[name]),
                cells=len(by_night[name]),
                red_cells=sum(counts.invalid > 0 for counts in by_night[name]),
            )
            for name in tally.nights[:NIGHTS_MAX]
        ),
        notes=runs.notes,
    )


def night_matrix(runs: Runs, query: Query) -> NightMatrix:
    """The night that is asked for, or the newest. Raises Refused."""
    tally = _tally(runs)
    night = query.text("night") or (tally.nights[0] if tally.nights else "")
    if night not in tally.nights:
        raise Refused(404, "There is no such night in this store.")
    at = tally.nights.index(night)
    window = tally.nights[at : at + SPARK_NIGHTS][::-1]
    placed: dict[str, dict[str, list[MatrixCell]]] = {}
    columns: dict[str, int] = {}
    for cell, (row, column) in _axes(runs, night).items():
        own = tally.of[cell]
        made = MatrixCell(
            cell=cell,
            counts=own[night],
            spark=tuple(own.get(name) or Counts(night=name) for name in window),
        )
        placed.setdefault(row, {}).setdefault(column, []).append(made)
        columns[column] = columns.get(column, 0) + own[night].invalid
    names = sorted(columns, key=lambda name: (-columns[name], name))
    shown, rest = names[:COLUMNS_MAX], names[COLUMNS_MAX:]
    return NightMatrix(
        night=night,
        before=tally.nights[at + 1] if at + 1 < len(tally.nights) else "",
        after=tally.nights[at - 1] if at else "",
        counts=_sum(night, [own[night] for own in tally.of.values() if night in own]),
        columns=tuple(shown),
        rows=tuple(
            MatrixRow(label=row, boxes=tuple(_box(boxes.get(name, ())) for name in shown))
            for row, boxes in sorted(placed.items(), key=_reddest_first)
        ),
        left_out=sum(len(boxes.get(name, ())) for boxes in placed.values() for name in rest),
        notes=runs.notes,
    )


def _axes(runs: Runs, night: str) -> Mapping[str, tuple[str, str]]:
    """The row and the column of each cell of the night: what runs, and what breaks it."""
    table = runs.table
    mask = pa.array(matching(runs, Filters(night=night)))
    names = ("system", "profile", "cluster", "workload")
    own = [pc.fill_null(table[name], "?").filter(mask).to_pylist() for name in names]
    faults = table["nemesis"].filter(mask).to_pylist()
    own_cells = cells(runs).filter(mask).to_pylist()
    return {
        cell: (" · ".join(parts), ", ".join(filter(None, kinds or ())) or "no fault")
        for cell, kinds, *parts in zip(own_cells, faults, *own, strict=True)
    }


def _box(made: Sequence[MatrixCell]) -> tuple[MatrixCell, ...]:
    return tuple(sorted(made, key=lambda each: each.cell))


def _reddest_first(item: tuple[str, dict[str, list[MatrixCell]]]) -> tuple[int, str]:
    label, boxes = item
    return (-sum(each.counts.invalid for box in boxes.values() for each in box), label)


def cell_history(runs: Runs, query: Query) -> CellHistory:
    """One cell over all nights. Raises Refused."""
    cell = query.text("cell")
    tally = _tally(runs)
    own = tally.of.get(cell)
    if own is None:
        raise Refused(404, "There is no such cell in this store.")
    mask = matching(runs, Filters(cell=cell))
    numbers = runs.order[mask[runs.order]]
    counts = _sum("", list(own.values()))
    return CellHistory(
        cell=cell,
        nights=tuple(_cell_night(runs, mask, own[night]) for night in tally.nights if night in own)[
            :NIGHTS_MAX
        ],
        total=counts.total,
        failing=_share(counts.invalid, counts.invalid + counts.valid),
        rows=row_views(runs, numbers[:CELL_ROWS]),
        notes=runs.notes,
    )


def _cell_night(runs: Runs, mask: Mask, counts: Counts) -> CellNight:
    both = pa.array(mask & as_mask(pc.equal(runs.group, counts.night)))
    return CellNight(
        counts=counts,
        latency_p99_ms=_median(runs.table["latency_p99_ms"].filter(both)),
        rto_ms=_median(runs.table["rto_ms"].filter(both)),
        lost=pc.sum(runs.table["lost"].filter(both)).as_py() or 0,
    )


def _median(values: pa.ChunkedArray) -> float | None:
    known = pc.drop_null(values).to_numpy()
    finite = known[np.isfinite(known)]
    return round(float(np.median(finite)), 3) if len(finite) else None


def _share(hits: int, of: int) -> tuple[float, float, float] | None:
    """With its interval; None of none."""
    return (hits / of, *wilson(hits, of)) if of else None
