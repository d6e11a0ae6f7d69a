"""A run's row, made of the files in its directory. Nothing that is missing or damaged raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.harness.fleet.runs.columns import FINDING, RUN, RUNS_SCHEMA, SCHEMA_VERSION
from shalott.harness.fleet.runs.latency import digest, quantile_ms
from shalott.harness.fleet.runs.scan import Place
from shalott.harness.fleet.runs.stored import (
    HISTORY,
    PLAN,
    RESULTS,
    TAGS,
    Plan,
    Results,
    Unreadable,
    read_json,
    read_latencies,
)
from shalott.harness.fleet.runs.verdict_facts import verdict_facts

MS, DAY_NS = 1_000_000, 86_400 * 10**9
Row = dict[str, Any]
T = TypeVar("T")


def read_run(place: Place) -> Row:
    """The row of a run or of a finding."""
    trouble: list[str] = []

    def attempt(read: Callable[[], T | None]) -> T | None:
        try:
            return read()
        except Unreadable as error:
            trouble.append(str(error))
            return None

    plan = attempt(lambda: read_json(place.path / PLAN, Plan)) or Plan()
    results = attempt(lambda: read_json(place.path / RESULTS, Results)) or Results()
    tags = attempt(lambda: read_json(place.path / TAGS, dict[str, str])) or {}
    latencies = attempt(lambda: read_latencies(place.path / HISTORY))
    row: Row = {
        "run": place.run,
        "kind": FINDING if place.campaign else RUN,
        "campaign": place.campaign,
        **_plan_columns(plan, results),
        **verdict_facts(results),
        **_tested_columns(results.tested),
        "command": results.command,
        "tags": _json(tags) if tags else None,
        "night": tags.get("night", ""),
        "cell": tags.get("cell", ""),
        "files_changed_ns": place.changed_ns,
        "schema_version": SCHEMA_VERSION,
    }
    row |= _times(place, plan, results)
    if latencies is not None:
        row["latency"] = found = digest(acknowledged_ns(latencies))
        for name, share in (("latency_p50_ms", 0.5), ("latency_p99_ms", 0.99)):
            if row.get(name) is None:
                row[name] = quantile_ms(found, share)
    row["unreadable"] = trouble
    return row


def acknowledged_ns(history: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How long clients' acknowledged operations took, of those that a schedule paced if any was."""
    rows = pc.and_(pc.greater_equal(history["process"], 0), pc.equal(history["type"], "ok"))
    rows = pc.and_(rows, pc.is_valid(history["complete_ns"]))
    if "due_ns" in history.column_names:
        paced = pc.and_(rows, pc.is_valid(history["due_ns"]))
        rows = paced if pc.any(paced).as_py() else rows
    kept = history.filter(rows)
    took = pc.subtract(kept["complete_ns"], kept["invoke_ns"])
    return np.asarray(took.to_numpy(), dtype=np.int64)


def _plan_columns(plan: Plan, results: Results) -> Row:
    parameters: dict[str, Any] = {
        "workload": plan.workload.parameters,
        "system": plan.system.parameters,
        "policy": plan.system.policy,
        "services": plan.system.services,
        "gates": plan.gates,
    }
    limit_ms = plan.time_limit_ms
    return {
        "name": plan.name or results.name,
        "seed": results.seed if plan.seed is None else plan.seed,
        "system": plan.system.name or results.system,
        "profile": plan.system.profile or results.profile,
        "workload": plan.workload.name or results.workload,
        "cluster": plan.cluster.backend,
        "backend": plan.cluster.backend,
        "nodes": None if plan.cluster.nodes is None else len(plan.cluster.nodes),
        "parameters": _json({name: value for name, value in parameters.items() if value}),
        "bugs": list(plan.system.bugs),
        "nemesis": sorted({fault.kind for fault in plan.faults}),
        "rate_asked_hz": plan.workload.rate_hz,
        "concurrency": plan.workload.concurrency,
        "time_limit_ns": None if limit_ms is None else limit_ms * MS,
    }


def _tested_columns(tested: Mapping[str, Any] | None) -> Row:
    def known(name: str) -> str | None:
        value = (tested or {}).get(name)
        if not isinstance(value, str) or value.startswith(("unknown: ", "none: ")):
            return None
        return value

    columns = ("commit", "tree", "shalott", "image", "image_digest")
    return {
        **{name: known(name) for name in columns},
        "tested": None if tested is None else _json(tested),
    }


def _times(place: Place, plan: Plan, results: Results) -> Row:
    """When it was made, and what a simulation's own clock showed.

    Results of before ``virtual_started_ns`` hold the virtual time of a simulation as the run's
    start: the directory's name tells the true one, or else the plan's file.
    """
    virtual_ns, told_ns = results.virtual_started_ns, results.started_wall_ns or None
    named_ns = _named_ns(place.path.name)
    is_old_simulation = virtual_ns is None and plan.cluster.backend == "sim"
    if is_old_simulation and told_ns is not None:
        true_ns = named_ns or place.plan_changed_ns
        if abs(told_ns - true_ns) > DAY_NS:
            virtual_ns, told_ns = told_ns, None
    started_ns = named_ns or told_ns or place.plan_changed_ns
    return {"started_wall_ns": started_ns, "virtual_started_ns": virtual_ns}


def _named_ns(name: str) -> int | None:
    """What the name of a run's directory tells."""
    try:
        began = datetime.strptime(name, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(began.timestamp() * 1000) * MS


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def table_of(rows: list[Row]) -> pa.Table:
    """The rows in the table's schema. A value that does not fit its column is null, and told."""
    try:
        return pa.Table.from_pylist(rows, schema=RUNS_SCHEMA)
    except (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError):
        fitting = [_fitting(row) for row in rows]
        return pa.Table.from_pylist(fitting, schema=RUNS_SCHEMA)


def _fitting(row: Row) -> Row:
    kept: Row = {"unreadable": list(row.get("unreadable") or [])}
    for field in RUNS_SCHEMA:
        value = row.get(field.name)
        if field.name == "unreadable":
            continue
        try:
            pa.array([value], type=field.type)
            kept[field.name] = value
        except (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError) as error:
            kept[field.name] = None if field.nullable else _least(field)
            why = str(error).partition("\n")[0]
            kept["unreadable"].append(f"{field.name} does not fit its column: {why}")
    return kept


def _least(field: pa.Field) -> Any:
    return "" if pa.types.is_string(field.type) else 0
