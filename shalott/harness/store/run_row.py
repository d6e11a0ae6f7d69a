"""A run's row, made of the files in its directory. Missing or damaged files raise nothing.

The latency digest is a histogram with log-linear buckets, which can be added up over runs. A bucket
holds latencies that differ by at most 1/32, counted in microseconds: below 32 us each has a bucket
of its own, and every doubling above it is cut into 32 equal parts (after HdrHistogram, Gil Tene).
Two digests are merged by adding the counts of equal buckets; a quantile of the sum is then exact to
1/32 of its value, which no mean of quantiles is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shalott.harness.report.results import REMARKS
from shalott.harness.store.columns import FINDING, RUN, RUNS_SCHEMA, SCHEMA_VERSION, Row
from shalott.harness.store.run_files import (
    HISTORY,
    PLAN,
    RESULTS,
    TAGS,
    Plan,
    Result,
    Results,
    RunDirectory,
    Unreadable,
    read_json,
    read_latencies,
)

MS, DAY_NS = 1_000_000, 86_400 * 10**9
T = TypeVar("T")
PARTS = 32
_SHIFT = PARTS.bit_length() - 1
US, MS_IN_US = 1000, 1000
LARGEST_US = 2**46  # two years: what is longer counts as this


def read_run(place: RunDirectory) -> Row:
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
        **verdict_columns_of(results),
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


def acknowledged_ns(history: pa.Table) -> npt.NDArray[np.int64]:
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
    parameters: dict[str, object] = {
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


def _tested_columns(tested: Mapping[str, object] | None) -> Row:
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


def _times(place: RunDirectory, plan: Plan, results: Results) -> Row:
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


def _json(value: object) -> str:
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


def _least(field: pa.Field) -> object:
    return "" if pa.types.is_string(field.type) else 0


def buckets_of(took_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bucket of each latency in ns; negative ones count as 0."""
    us = np.clip(took_ns // US, 0, LARGEST_US)
    # The position of the highest bit; exact, as such numbers are whole in a double.
    high = np.frexp(us.astype(np.float64))[1] - 1
    shift = np.maximum(high - _SHIFT, 0)
    return np.asarray(shift * PARTS + (us >> shift), dtype=np.int64)


def bounds_us(bucket: int) -> tuple[int, int]:
    """The latencies of a bucket in us: from the first to below the second."""
    shift = max(bucket // PARTS - 1, 0)
    first = bucket - shift * PARTS
    return first << shift, (first + 1) << shift


def digest(took_ns: npt.NDArray[np.int64]) -> list[dict[str, int]]:
    """[{"bucket", "count"}] in order; [] of nothing."""
    found, counts = np.unique(buckets_of(took_ns), return_counts=True)
    return [
        {"bucket": int(bucket), "count": int(count)}
        for bucket, count in zip(found, counts, strict=True)
    ]


def merged(digests: Iterable[Iterable[Mapping[str, int]]]) -> list[dict[str, int]]:
    """The digest of all that these were made of."""
    total: Counter[int] = Counter()
    for one in digests:
        for each in one:
            total[each["bucket"]] += each["count"]
    return [{"bucket": bucket, "count": total[bucket]} for bucket in sorted(total)]


def quantile_ms(of: Iterable[Mapping[str, int]], share: float) -> float | None:
    """The middle of the bucket below or in which ``share`` of all is; None of nothing."""
    ordered = sorted((each["bucket"], each["count"]) for each in of)
    wanted = share * sum(count for _, count in ordered)
    seen = 0
    for bucket, count in ordered:
        seen += count
        if seen >= wanted - 1e-9:
            low, high = bounds_us(bucket)
            return (low + high) / 2 / MS_IN_US
    return None


# Checkers that say what became of messages: (checker, names of its counts by column).
_MESSAGES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "total-queue": {
        "acknowledged": ("acknowledged",),
        "lost": ("lost",),
        "lost_unexplained": ("lost-unexplained",),
        "recovered": ("recovered",),
        "duplicated": ("duplicated",),
        "redelivered": ("redelivered",),
    },
    "log": {
        "acknowledged": ("acknowledged",),
        "lost": ("lost-write",),
        "recovered": ("recovered",),
        "duplicated": ("duplicate",),
    },
    "consumer-fates": {
        "acknowledged": ("acknowledged",),
        "lost": ("lost",),
        "lost_unexplained": ("lost-unexplained",),
        "recovered": ("recovered",),
        "redelivered": ("redelivered-delivery",),
    },
    "group-fates": {"lost": ("lost", "retry-lost")},
    "group-redelivery": {"duplicated": ("twice-at-once",), "redelivered": ("redelivered",)},
}


def verdict_columns_of(results: Results) -> dict[str, object]:
    """The columns that results.json fills."""
    by_checker = {result.checker: result for result in results.results}
    return {
        "valid": valid_text(results.valid),
        "complete": results.complete,
        "failed_checkers": [r.checker for r in results.results if r.valid is False],
        "unknown_checkers": [r.checker for r in results.results if not isinstance(r.valid, bool)],
        "anomalies": [row for result in results.results for row in _anomalies(result)],
        "harness_failures": list(results.failures),
        "headline": results.headline,
        "elapsed_ns": results.elapsed_ns,
        "iteration": results.iteration,
        **_messages(by_checker),
        **_faults(by_checker),
        **_rates(by_checker),
        **_mastership(by_checker.get("mastership")),
        **_availability(by_checker.get("availability")),
    }


def valid_text(valid: object) -> str | None:
    """true, false or unknown; None if the verdict is none of these."""
    if isinstance(valid, bool):
        return "true" if valid else "false"
    return "unknown" if valid == "unknown" else None


def _count(result: Result | None, name: str) -> int | float | None:
    found = None if result is None else result.counts.get(name)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _whole(result: Result | None, name: str) -> int | None:
    found = _count(result, name)
    return None if found is None else int(found)


def _anomalies(result: Result) -> list[dict[str, object]]:
    """A row a kind, in the order in which they were told."""
    broken = broken_kinds(result)
    kinds: dict[str, int] = {}
    for anomaly in result.anomalies:
        own = anomaly.detail.get("count", 1) if isinstance(anomaly.detail, dict) else 1
        kinds[anomaly.kind] = kinds.get(anomaly.kind, 0) + (own if isinstance(own, int) else 1)
    return [
        {
            "checker": result.checker,
            "kind": kind,
            "count": max(number, _whole(result, f"{kind}-count") or 0),
            "broken": kind in broken,
        }
        for kind, number in kinds.items()
    ]


def broken_kinds(result: Result) -> Sequence[str]:
    """The kinds because of which a checker said no; as harness/report/results.py has it."""
    if result.valid is not False:
        return ()
    broken = result.part("broken")
    kinds = [str(kind) for kind in broken] if isinstance(broken, list) and broken else []
    kinds = kinds or [anomaly.kind for anomaly in result.anomalies]
    return [kind for kind in kinds if kind not in REMARKS] or kinds


def _messages(by_checker: Mapping[str, Result]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for checker, columns in _MESSAGES.items():
        for column, names in columns.items():
            counts = [_whole(by_checker.get(checker), f"{name}-count") for name in names]
            known = [count for count in counts if count is not None]
            if known:
                found[column] = sum(known)
    found["rpo_messages"] = found.get("lost")
    return found


def _faults(by_checker: Mapping[str, Result]) -> dict[str, int | None]:
    noticed, stats = by_checker.get("noticed"), by_checker.get("stats")
    made = _whole(noticed, "effective-fault-count")
    if made is None:  # of before the checker `noticed`
        made = _whole(stats, "fault-count")
    skipped = _whole(noticed, "skipped-fault-count")
    unproved = _whole(noticed, "unproved-fault-count")
    return {
        "faults_made": made,
        "faults_skipped": skipped if skipped is not None else _whole(stats, "skipped-fault-count"),
        "faults_unproved": (
            unproved if unproved is not None else _whole(stats, "unproved-fault-count")
        ),
    }


def _rates(by_checker: Mapping[str, Result]) -> dict[str, object]:
    rates = by_checker.get("rates")
    quantiles = None if rates is None else rates.part("latency_ms")
    quantiles = quantiles if isinstance(quantiles, dict) else {}
    return {
        "rate_reached_hz": _count(rates, "reached-hz"),
        "rate_acknowledged_hz": _count(rates, "acknowledged-hz"),
        "latency_p50_ms": quantiles.get("0.5"),
        "latency_p99_ms": quantiles.get("0.99"),
    }


def _mastership(result: Result | None) -> dict[str, int | None]:
    return {
        "dual_master_claimed": _whole(result, "dual-master-claimed-count"),
        "dual_master_effective": _whole(result, "dual-master-effective-count"),
    }


def _availability(result: Result | None) -> dict[str, object]:
    if result is None:
        return {}
    faults = result.part("faults")
    recovered = [
        row["recovery_ms"]
        for row in (faults if isinstance(faults, list) else [])
        if isinstance(row, dict) and isinstance(row.get("recovery_ms"), int | float)
    ]
    return {
        "rto_ms": max(recovered, default=None),
        "never_recovered": _whole(result, "never-recovered-count"),
        "unavailable_ms_max": _count(result, "longest-gap-ms"),
    }
