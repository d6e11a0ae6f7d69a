"""What the newest night shows beside those before it, told apart as a matrix tells it.

A night is what its matrix called it; runs of no matrix are put together by UTC day, and by what ran
there: system, profile, cluster, workload, faults, and settings where these differ. What a matrix
expects of a cell is read from the night's own file, or else from its runs' tags; of runs of no
matrix all that is not valid is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from shalott.core.errors import UsageError
from shalott.harness.fleet.page_data import Changes, count_verdicts, listed
from shalott.harness.fleet.run_facts import Fact
from shalott.harness.matrix.cells import Cell, cell_as_told, expand
from shalott.harness.matrix.night_findings import STATUSES, findings_of
from shalott.harness.matrix.night_journal import nights_of, read_head
from shalott.harness.matrix.run_outcomes import (
    FIRST,
    EarlierNights,
    Outcome,
    earlier_nights,
    outcome_of,
    tags_of,
)
from shalott.harness.store.columns import RUNS_SCHEMA

COMPARED_NIGHTS = 7  # as a matrix does if it says nothing
_SETTINGS = ("parameters", "bugs", "nodes", "concurrency", "rate_asked_hz", "time_limit_ns")


@dataclass(frozen=True, slots=True)
class Placed:
    fact: Fact
    matrix: str
    night: str
    cell: str

    @property
    def group(self) -> tuple[str, str]:
        return self.matrix, self.night

    @property
    def outcome(self) -> Outcome:
        seed = self.fact.row["seed"] or 0
        return outcome_of(self.fact.row, cell=self.cell, seed=seed, turn=self.fact.turn or FIRST)


def changes_of(runs: Sequence[Fact], store: Path | None, at_most: int) -> Changes | None:
    """``runs``: the sample, and what was run again. ``store``: where nights are kept; None: out of
    reach. None of no run whose time is known."""
    placed = place(runs)
    if not placed:
        return None
    newest = max(placed, key=lambda one: (one.fact.started_ns or 0, one.fact.run))
    tonight = [one for one in placed if one.group == newest.group]
    began_ns = min(one.fact.started_ns or 0 for one in tonight)
    compared, rules = _expected(store, newest)
    earlier = earlier_nights(
        _as_table(placed), newest.matrix, but=[newest.night], before_ns=began_ns, at_most=compared
    )
    tags = {one.cell: tags_of(one.fact.row["tags"]) for one in tonight}
    known = rules or {}
    cells = [known.get(key) or cell_as_told(key, own) for key, own in tags.items()]
    findings = findings_of(cells, [one.outcome for one in tonight], earlier)
    counts = {status: sum(one.status == status for one in findings) for status in STATUSES}
    return Changes(
        night=newest.night,
        matrix=newest.matrix,
        verdicts=count_verdicts(one.fact.verdict for one in tonight if not one.fact.is_again),
        again=sum(one.fact.is_again for one in tonight),
        compared_with=_names(earlier),
        expectations=rules is not None or all(own.expect for own in tags.values()),
        findings=listed(findings, at_most),
        statuses={status: count for status, count in counts.items() if count},
    )


def _names(earlier: EarlierNights) -> tuple[str, ...]:
    """The nights that any cell is compared with, the newest first."""
    began = {one.night: one.began_ns for own in earlier.nights.values() for one in own}
    return tuple(sorted(began, key=lambda night: -began[night]))


def place(runs: Sequence[Fact]) -> list[Placed]:
    """Runs of known time in their nights and cells."""
    settings: dict[str, dict[str, None]] = {}
    for fact in runs:
        if not fact.row["cell"]:
            settings.setdefault(_plain_cell(fact), {})[_settings(fact)] = None
    placed = []
    for fact in runs:
        if fact.started_ns is None:
            continue
        cell = fact.row["cell"] or ""
        if not cell:
            cell = _plain_cell(fact)
            if len(settings[cell]) > 1:
                cell += f"@{_settings(fact)}"
        night = fact.row["night"] or ""
        matrix = str(fact.tags.get("matrix", "")) if night else ""
        placed.append(Placed(fact, matrix, night or fact.day, cell))
    return placed


def _plain_cell(fact: Fact) -> str:
    axes = fact.axes
    return "/".join((axes.system, axes.profile, axes.cluster, axes.workload, axes.nemesis))


def _settings(fact: Fact) -> str:
    """Short, and another for other settings."""
    data = msgspec.json.encode([fact.row[name] for name in _SETTINGS])
    return hashlib.blake2b(data, digest_size=2).hexdigest()


def _as_table(placed: Sequence[Placed]) -> pa.Table:
    """The rows as ``earlier_nights`` takes them: each has its night, its cell and its matrix."""
    rows = [
        {
            **one.fact.row,
            "night": one.night,
            "cell": one.cell,
            "tags": msgspec.json.encode({"matrix": one.matrix, "turn": one.fact.turn}).decode(),
        }
        for one in placed
    ]
    schema = pa.schema([field.with_nullable(True) for field in RUNS_SCHEMA])
    return pa.Table.from_pylist(rows, schema=schema)


def _expected(store: Path | None, newest: Placed) -> tuple[int, Mapping[str, Cell] | None]:
    """How many nights the matrix compares, and its cells; None: what they expect is not known."""
    if store is None or not newest.matrix:
        return COMPARED_NIGHTS, None
    for directory in nights_of(store, newest.matrix):
        try:
            head = read_head(directory)
            if head.name != newest.night:
                continue
            definition = head.matrix.definition
            cells = expand(definition, head.name).cells
        except UsageError:  # its file is damaged, or names what is not installed any more
            return COMPARED_NIGHTS, None
        return definition.night.compare_with, {cell.key: cell for cell in cells}
    return COMPARED_NIGHTS, None
