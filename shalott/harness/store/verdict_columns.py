"""What a run's verdict says in columns: counts of its checkers, by whichever system it was of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.harness.report.violations import REMARKS
from shalott.harness.store.run_files import Result, Results

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
    "group-fates": {
        "lost": ("lost", "retry-lost"),
    },
    "group-redelivery": {
        "duplicated": ("twice-at-once",),
        "redelivered": ("redelivered",),
    },
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
    """The kinds because of which a checker said no; as harness/report/violations.py has it."""
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
