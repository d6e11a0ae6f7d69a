"""The list of runs: what matches, page by page, with what there is to choose from."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shalott.harness.fleet.serve.asked import Asked
from shalott.harness.fleet.serve.filters import (
    Filters,
    Mask,
    cells,
    choices,
    matching,
    ordered,
    read_filters,
)
from shalott.harness.fleet.serve.live import Found, LiveRun
from shalott.harness.fleet.serve.table import VERDICTS, Runs

PAGE_ROWS = 50
PAGE_ROWS_MAX = 500


class AnomalyCount(msgspec.Struct, frozen=True):
    kind: str
    count: int
    checker: str = ""
    broken: bool = False


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run as lists show it. ``group``: its night, or its UTC day."""

    run: str
    kind: str
    group: str
    verdict: str
    headline: str
    system: str
    profile: str
    workload: str
    cluster: str
    cell: str
    nemesis: tuple[str, ...]
    anomalies: tuple[AnomalyCount, ...]
    failed_checkers: tuple[str, ...]
    started_wall_ns: int | None
    elapsed_ns: int | None
    seed: int | None
    commit: str
    acknowledged: int | None
    lost: int | None
    rto_ms: float | None
    unavailable_ms_max: float | None
    latency_p99_ms: float | None


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list. ``verdicts``: how many of all that match have which."""

    filters: Filters
    total: int  # in the table, of the kind that is shown
    matching: int
    verdicts: dict[str, int]
    page: int  # from 1
    pages: int
    rows: tuple[RunRow, ...]
    choices: dict[str, list[str]]
    live: tuple[LiveRun, ...]
    notes: tuple[str, ...]


def list_runs(runs: Runs, asked: Asked, found: Found) -> RunList:
    """Raises Refused."""
    filters = read_filters(asked)
    size = max(1, asked.number("rows", PAGE_ROWS, most=PAGE_ROWS_MAX))
    mask = matching(runs, filters)
    numbers = ordered(runs, mask, filters.order)
    pages = max(1, -(-len(numbers) // size))
    page = min(max(1, asked.number("page", 1)), pages)
    shown = numbers[(page - 1) * size : page * size]
    return RunList(
        filters=filters,
        total=int(matching(runs, Filters(kind=filters.kind)).sum()),
        matching=len(numbers),
        verdicts=count_verdicts(runs, mask),
        page=page,
        pages=pages,
        rows=rows_told(runs, shown),
        choices=choices(runs),
        live=found.live,
        notes=runs.notes + found.notes,
    )


def count_verdicts(runs: Runs, mask: Mask) -> dict[str, int]:
    """Of the rows of a mask, by the word for people; the gravest first."""
    values = pc.fill_null(runs.table["valid"], "").filter(pa.array(mask))
    counted = pc.value_counts(values)
    known = dict(
        zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    )
    return {name: int(known.get(word, 0)) for word, name in VERDICTS.items()}


def rows_told(runs: Runs, numbers: npt.NDArray[np.int64]) -> tuple[RunRow, ...]:
    own = cells(runs).take(pa.array(numbers, type=pa.int64())).to_pylist()
    found = runs.rows(numbers.tolist())
    return tuple(row_told(row, cell) for row, cell in zip(found, own, strict=True))


def row_told(row: dict[str, Any], cell: str) -> RunRow:
    """A row of the table as lists show it."""
    return RunRow(
        run=row["run"],
        kind=row["kind"] or "run",
        group=row["group"],
        verdict=VERDICTS.get(row["valid"] or "", "no verdict"),
        headline=row["headline"] or _without_verdict(row),
        system=row["system"] or "",
        profile=row["profile"] or "",
        workload=row["workload"] or "",
        cluster=row["cluster"] or "",
        cell=cell,
        nemesis=tuple(filter(None, row["nemesis"] or ())),
        anomalies=tuple(
            AnomalyCount(
                each["kind"], each["count"] or 0, each["checker"] or "", bool(each["broken"])
            )
            for each in row["anomalies"] or ()
            if each and each["kind"]
        ),
        failed_checkers=tuple(filter(None, row["failed_checkers"] or ())),
        **{
            name: row[name]
            for name in ("started_wall_ns", "elapsed_ns", "seed", "acknowledged", "lost")
        },
        **{name: row[name] for name in ("rto_ms", "unavailable_ms_max", "latency_p99_ms")},
        commit=row["commit"] or "",
    )


def _without_verdict(row: dict[str, Any]) -> str:
    failures = row["harness_failures"] or ()
    return f"The harness failed: {failures[0]}" if failures else "It has no verdict."
