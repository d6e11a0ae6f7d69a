"""Made-up runs for the page of a fleet report: rows, lines and tables that tests write by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from shalott.harness.fleet.page_builder import build_page
from shalott.harness.fleet.page_data import PageData
from shalott.harness.store.columns import RUNS_SCHEMA
from shalott.spark_analysis.kernels.tables import TABLES
from shalott.spark_analysis.report_rows import COMPARED, FleetReport, RunLine
from tests.world.harness.served_store import row

DAY_NS = 86_400 * 10**9
FIRST_NS = 1_772_600_400 * 10**9  # 2026-03-04 05:00 UTC
S, MS = 10**9, 10**6


def made(run: str, day: int = 0, **said: Any) -> dict[str, Any]:
    """A row of the table of runs, so many days after the first."""
    known = {"command": None, "nemesis": ["kill"], "cluster": "sim", "headline": None}
    return row(run, **(known | {"started_wall_ns": FIRST_NS + day * DAY_NS} | said))


def line(run: str, **said: Any) -> RunLine:
    """A line of report.json; ``said``: its counts by name, or other fields."""
    names = RunLine.__struct_fields__
    counts = dict.fromkeys(COMPARED, 0)
    counts |= {name: number for name, number in said.items() if name in counts}
    fields: dict[str, Any] = {
        "system": "mirrored", "profile": "upstream", "partition_mode": "ignore", "seed": 7,
        "valid": True, "complete": True, "double_tenure_ns": 0, "undrained": (), "differs": {},
        "workload": "queue",
    }  # fmt: skip
    fields |= {name: value for name, value in said.items() if name in names}
    assert not said.keys() - counts.keys() - set(names)
    return RunLine(run=run, counts=counts, **fields)


def tables(**rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Table]:
    """All of them; what is not given is empty, and a column that is not said is null."""
    return {
        name: pa.Table.from_pylist(list(rows.get(name, ())), schema=schema)
        for name, schema in TABLES.items()
    }


def gap(run: str, gap_ns: int, queue: str = "q1", begin_ns: int = 0) -> dict[str, Any]:
    """A row of `unavailability` of a queue."""
    return {"run": run, "kind": "load", "fault": "", "target": "", "queue": queue,
            "begin_ns": begin_ns, "end_ns": begin_ns + gap_ns, "gap_ns": gap_ns}  # fmt: skip


def fault(
    run: str, kind: str, from_ns: int, to_ns: int, recovery_ns: int | None, operations: int = 9
) -> dict[str, Any]:
    """A row of `unavailability` of a fault."""
    return {"run": run, "kind": "fault", "fault": kind, "target": "n1", "queue": "q1",
            "fault_id": from_ns, "effective_ns": from_ns, "healed_ns": to_ns, "gap_ns": 0,
            "recovery_ns": recovery_ns, "operations": operations, "acknowledged": 0}  # fmt: skip


def overlap(run: str, kind: str, begin_ns: int | None, end_ns: int | None) -> dict[str, Any]:
    """A row of `dual_masters`."""
    return {"run": run, "group": "q1", "kind": kind, "witness": "events", "nodes": ["n1", "n2"],
            "begin_ns": begin_ns, "end_ns": end_ns, "epoch": None, "evidence": []}  # fmt: skip


def page_data(
    rows: Sequence[Mapping[str, Any]],
    lines: Sequence[RunLine] = (),
    found: Mapping[str, pa.Table] | None = None,
    *,
    store: Path | None = None,
    at_most: int = 25,
    engine: str = "local",
) -> PageData:
    """What the page would show."""
    report = FleetReport(store="store", runs=tuple(lines), unreadable=(), engine=engine)
    runs = pa.Table.from_pylist(list(rows), schema=RUNS_SCHEMA)
    return build_page(report, found or tables(), runs, store=store, at_most=at_most)
