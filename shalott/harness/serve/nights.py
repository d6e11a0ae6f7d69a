"""Nights over time: each night as a matrix of cells, each cell with what it was in nights before.

A night is what the matrix called it, or the UTC day of runs that belong to none. A cell is what the
matrix calls it, or system, profile, cluster, workload and the faults that a run was asked for. Runs
that were only repeated, because another had failed, are no sample: they are counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.harness.matrix.cell_names import split_key
from shalott.harness.matrix.night_findings import STATUSES, CellFindings, Share, by_cell, share
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
from shalott.harness.serve.told_nights import Places, ToldNight, night_findings, placed
from shalott.harness.store.intervals import wilson

SPARK_NIGHTS = 20
NIGHTS_MAX = 400
COLUMNS_MAX = 60
CELL_ROWS = 100
CODES = 7  # of runs in a tally: the verdicts, expected ones of two kinds, and repeated ones
Told = Mapping[str, ToldNight]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Runs by verdict; ``night`` says of which night. ``expected``: not valid, as their cell may
    be; they are in no other count but ``expected_invalid``'s. ``again``: repeated; in none."""

    night: str
    invalid: int = 0
    unknown: int = 0
    none: int = 0  # without a verdict
    valid: int = 0
    expected: int = 0
    expected_invalid: int = 0
    again: int = 0

    @property
    def total(self) -> int:
        return self.invalid + self.unknown + self.none + self.valid + self.expected

    @property
    def worst(self) -> str:
        """The word of the gravest verdict among them."""
        if self.invalid:
            return "invalid"
        if self.unknown or self.none:
            return "unknown"
        if self.expected:
            return "expected"
        return "valid" if self.valid else "absent"


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """``statuses``: cells by their gravest finding. ``planned``, ``ran``: None if no matrix says
    how many there were to be."""

    name: str
    counts: Counts
    cells: int
    red_cells: int
    statuses: dict[str, int] = {}
    planned: int | None = None
    ran: int | None = None
    over: bool = True


class NightList(msgspec.Struct, frozen=True, kw_only=True):
    nights: tuple[Night, ...]
    notes: tuple[str, ...]


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """``spark``: this cell in the last nights, the oldest first, this night last. ``status``: of
    its gravest finding; "expected" if it is not valid and need not be; else "". ``planned``: how
    many runs it was to have; None if no matrix says so."""

    cell: str
    counts: Counts
    spark: tuple[Counts, ...]
    status: str = ""
    planned: int | None = None


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
    found: NightFound


class CellFound(msgspec.Struct, frozen=True, kw_only=True):
    """A cell's findings as one: ``kinds`` by status, the gravest first; ``shown`` and ``again`` of
    its runs and of those that repeated them."""

    cell: str
    status: str
    kinds: dict[str, tuple[str, ...]]
    headline: str
    run: str
    command: str
    seeds: tuple[int, ...]
    shown: Share | None
    again: Share | None
    seen_in: tuple[str, ...]


class NightFound(msgspec.Struct, frozen=True, kw_only=True):
    """A night's findings, a cell each, the gravest first. ``expected``: its runs that are not
    valid, and need not be. ``planned`` and ``ran``: None if no matrix says so; ``why`` not all was
    run."""

    night: str
    planned: int | None
    ran: int | None
    over: bool
    why: str
    shards: str
    compared_with: tuple[str, ...]
    counts: Counts
    statuses: dict[str, int]
    cells: tuple[CellFound, ...]


class CellNight(msgspec.Struct, frozen=True, kw_only=True):
    """A cell in a night; medians over its runs."""

    counts: Counts
    latency_p99_ms: float | None
    rto_ms: float | None
    lost: int


class CellHistory(msgspec.Struct, frozen=True, kw_only=True):
    """``failing``: the share of invalid runs of those that were judged, and its 95 % interval, of
    ``total`` runs without those that were repeated (``again``)."""

    cell: str
    nights: tuple[CellNight, ...]  # the newest first
    total: int
    again: int
    failing: tuple[float, float, float] | None
    rows: tuple[RunRow, ...]
    notes: tuple[str, ...]


class _Tally:
    """Every run of kind ``run`` counted by cell, night and verdict."""

    def __init__(self, runs: Runs, places: Places) -> None:
        cell, night = cells(runs).dictionary_encode(), runs.group.dictionary_encode()
        started = pc.fill_null(runs.table["started_wall_ns"], 0).to_numpy()
        verdicts = pc.index_in(
            pc.fill_null(runs.table["valid"], ""), value_set=pa.array([*VERDICTS])
        ).fill_null(2)
        codes = verdicts.to_numpy().copy()
        invalid = codes == 0
        codes[places.expected] = 4
        codes[places.expected & invalid] = 5
        codes[places.again] = 6
        self.cells: list[str] = cell.dictionary.to_pylist()
        names: list[str] = night.dictionary.to_pylist()
        at_cell, at_night = cell.indices.to_numpy(), night.indices.to_numpy()
        kept = matching(runs, Filters())
        newest = np.full(len(names), -1, dtype=np.int64)
        np.maximum.at(newest, at_night[kept], started[kept])
        order = [at for at in np.argsort(-newest, kind="stable") if newest[at] >= 0]
        self.nights = [names[at] for at in order]  # the newest first
        combined = (at_cell.astype(np.int64) * len(names) + at_night) * CODES + codes
        values, counts = np.unique(combined[kept], return_counts=True)
        table: dict[tuple[int, int], list[int]] = {}
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            where, verdict = divmod(value, CODES)
            table.setdefault(divmod(where, len(names)), [0] * CODES)[verdict] = count
        self.of: dict[str, dict[str, Counts]] = {}
        for (one, when), told in table.items():
            own = self.of.setdefault(self.cells[one], {})
            own[names[when]] = _counts(names[when], told)


def _tally(runs: Runs, told: Told) -> _Tally:
    found: _Tally | None = runs.made.get("tally")
    if found is None:
        found = runs.made["tally"] = _Tally(runs, placed(runs, told))
    return found


def _counts(night: str, told: Sequence[int]) -> Counts:
    invalid, unknown, none, valid, doubts, expected_invalid, again = told
    return Counts(
        night=night, invalid=invalid, unknown=unknown, none=none, valid=valid,
        expected=doubts + expected_invalid, expected_invalid=expected_invalid, again=again,
    )  # fmt: skip


def _sum(night: str, counts: Sequence[Counts]) -> Counts:
    names = [name for name in Counts.__struct_fields__ if name != "night"]
    return Counts(night=night, **{n: sum(getattr(each, n) for each in counts) for n in names})


def _in_night(tally: _Tally, told: Told, night: str) -> dict[str, Counts]:
    """The cells of the night: those that ran, and those that are to run or came to no run."""
    found = {cell: own[night] for cell, own in tally.of.items() if night in own}
    if night in told:
        for cell, parts in told[night].cells.items():
            failed = sum(part.harness_failed for part in parts)
            own = found.get(cell) or Counts(night=night)
            found[cell] = msgspec.structs.replace(own, none=max(own.none, failed))
    return found


def night_found(runs: Runs, told: Told, night: str) -> NightFound:
    tally = _tally(runs, told)
    own = told.get(night)
    blocks = by_cell(night_findings(runs, told, night))
    counts = _in_night(tally, told, night)
    return NightFound(
        night=night,
        planned=own.planned if own else None,
        ran=own.ran if own else None,
        over=own.over if own else True,
        why=own.why if own else "",
        shards=own.shards if own else "",
        compared_with=own.compared_with if own else (),
        counts=_sum(night, list(counts.values())),
        statuses=_statuses(blocks),
        cells=tuple(_cell_found(block, counts.get(block.cell)) for block in blocks),
    )


def _statuses(blocks: Sequence[CellFindings]) -> dict[str, int]:
    counts = Counter(block.status for block in blocks)
    return {status: counts[status] for status in STATUSES if counts[status]}


def _cell_found(block: CellFindings, counts: Counts | None) -> CellFound:
    chief = block.chief
    bad = counts.invalid + counts.unknown + counts.none if counts else 0
    shares = [one.again for one in block.findings if one.again is not None]
    return CellFound(
        cell=block.cell,
        status=block.status,
        kinds={
            status: tuple(dict.fromkeys(one.kind for one in own))
            for status, own in block.by_status.items()
        },
        headline=chief.headline,
        run=chief.run,
        command=chief.command,
        seeds=block.seeds,
        shown=share(bad, counts.total) if counts and bad else None,
        again=max(shares, key=lambda each: each.k) if shares else None,
        seen_in=block.seen_in,
    )


def list_nights(runs: Runs, told: Told) -> NightList:
    tally = _tally(runs, told)
    return NightList(
        nights=tuple(_night(runs, told, name) for name in tally.nights[:NIGHTS_MAX]),
        notes=runs.notes,
    )


def _night(runs: Runs, told: Told, name: str) -> Night:
    own = told.get(name)
    counts = _in_night(_tally(runs, told), told, name)
    red = sum(each.invalid > 0 for each in counts.values())
    statuses: dict[str, int] = {}
    if own is not None:  # of other nights finding out takes longer, and their own pages say it
        statuses = _statuses(by_cell(own.findings))
    return Night(
        name=name,
        counts=_sum(name, list(counts.values())),
        cells=len(counts),
        red_cells=red,
        statuses=statuses,
        planned=own.planned if own else None,
        ran=own.ran if own else None,
        over=own.over if own else True,
    )


def found_nights(runs: Runs, told: Told, at_most: int) -> tuple[NightFound, ...]:
    """The newest nights with what they found, the newest first."""
    return tuple(night_found(runs, told, name) for name in _names(runs, told)[:at_most])


def _names(runs: Runs, told: Told) -> list[str]:
    """The newest first; before them one that has begun, and of which no run has ended."""
    tally = _tally(runs, told)
    waiting = [name for name, own in told.items() if not own.over and name not in tally.nights]
    return [*sorted(waiting, reverse=True), *tally.nights]


def night_matrix(runs: Runs, told: Told, query: Query) -> NightMatrix:
    """The night that is asked for, or the newest. Raises Refused."""
    tally, nights = _tally(runs, told), _names(runs, told)
    night = query.text("night") or (nights[0] if nights else "")
    if night not in nights:
        raise Refused(404, "There is no such night in this store.")
    at = nights.index(night)
    window = nights[at : at + SPARK_NIGHTS][::-1]
    found = night_found(runs, told, night)
    statuses = {each.cell: each.status for each in found.cells}
    grid: dict[str, dict[str, list[MatrixCell]]] = {}
    columns: dict[str, int] = {}
    for cell, counts in _in_night(tally, told, night).items():
        row, column = axes_of(cell)
        own = tally.of.get(cell, {})
        parts = told[night].cells.get(cell) if night in told else None
        made = MatrixCell(
            cell=cell,
            counts=counts,
            spark=tuple(own.get(name) or Counts(night=name) for name in window),
            status=statuses.get(cell) or ("expected" if counts.expected else ""),
            planned=sum(part.planned for part in parts) if parts else None,
        )
        grid.setdefault(row, {}).setdefault(column, []).append(made)
        columns[column] = columns.get(column, 0) + counts.invalid
    names = sorted(columns, key=lambda name: (-columns[name], name))
    shown, rest = names[:COLUMNS_MAX], names[COLUMNS_MAX:]
    return NightMatrix(
        night=night,
        before=nights[at + 1] if at + 1 < len(nights) else "",
        after=nights[at - 1] if at else "",
        counts=found.counts,
        columns=tuple(shown),
        rows=tuple(
            MatrixRow(label=row, boxes=tuple(_box(boxes.get(name, ())) for name in shown))
            for row, boxes in sorted(grid.items(), key=_reddest_first)
        ),
        left_out=sum(len(boxes.get(name, ())) for boxes in grid.values() for name in rest),
        notes=runs.notes,
        found=found,
    )


def axes_of(cell: str) -> tuple[str, str]:
    """The row and the column of a cell: what runs, and what breaks it, by the cell's own name."""
    what, faults = split_key(cell)
    faults = ", ".join(filter(None, faults.split("+")))
    return " · ".join(what), "no fault" if faults in ("", "none") else faults


def _box(made: Sequence[MatrixCell]) -> tuple[MatrixCell, ...]:
    return tuple(sorted(made, key=lambda each: each.cell))


def _reddest_first(item: tuple[str, dict[str, list[MatrixCell]]]) -> tuple[int, str]:
    label, boxes = item
    return (-sum(each.counts.invalid for box in boxes.values() for each in box), label)


def cell_history(runs: Runs, told: Told, query: Query) -> CellHistory:
    """One cell over all nights. Raises Refused."""
    cell = query.text("cell")
    tally = _tally(runs, told)
    own = tally.of.get(cell, {})
    if not own and not any(cell in night.cells for night in told.values()):
        raise Refused(404, "There is no such cell in this store.")
    mask = matching(runs, Filters(cell=cell))
    numbers = runs.order[mask[runs.order]]
    counts = _sum("", list(own.values()))
    failed = counts.invalid + counts.expected_invalid
    return CellHistory(
        cell=cell,
        nights=tuple(
            _cell_night(runs, mask & ~placed(runs, told).again, own[night])
            for night in tally.nights
            if night in own
        )[:NIGHTS_MAX],
        total=counts.total,
        again=counts.again,
        failing=_share(failed, failed + counts.valid),
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
