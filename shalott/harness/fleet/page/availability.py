"""How long nobody was served: the longest outages, and recovery after each kind of fault."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shalott.harness.fleet.page.data import (
    LINKS,
    OutageRow,
    Outages,
    Recoveries,
    RecoveryRow,
    listed,
)
from shalott.harness.fleet.page.facts import Fact

Row = Mapping[str, Any]  # of the table `unavailability`
MS = 1_000_000


def in_force(faults: Sequence[Row], begin_ns: int, end_ns: int) -> tuple[str, ...]:
    """The kinds of the faults that touched a stretch of time."""
    return tuple(
        sorted(
            {
                row["fault"]
                for row in faults
                if row["effective_ns"] < end_ns and row["healed_ns"] > begin_ns
            }
        )
    )


def outages_of(sample: Sequence[Fact], rows: Mapping[str, Sequence[Row]], at_most: int) -> Outages:
    """``rows``: of each run. Of each run its worst queue."""
    found = [row for fact in sample if (row := _outage(fact, rows.get(fact.run, ())))]
    found.sort(key=lambda row: (-row.gap_ns, row.run))
    return Outages(rows=listed(found, at_most), measured=len(found), runs=len(sample))


def _outage(fact: Fact, rows: Sequence[Row]) -> OutageRow | None:
    gaps = [row for row in rows if row["kind"] == "load"]
    if gaps:
        worst = max(gaps, key=lambda row: (row["gap_ns"], row["queue"]))
        faults = [row for row in rows if row["kind"] == "fault"]
        return OutageRow(
            run=fact.run,
            axes=fact.axes,
            gap_ns=worst["gap_ns"],
            queue=worst["queue"],
            begin_ns=worst["begin_ns"],
            during=in_force(faults, worst["begin_ns"], worst["end_ns"]),
        )
    told = fact.row["unavailable_ms_max"]
    if told is None or not math.isfinite(told):
        return None
    return OutageRow(
        run=fact.run,
        axes=fact.axes,
        gap_ns=round(told * MS),
        queue=None,
        begin_ns=None,
        during=None,
    )


def recoveries_of(
    sample: Sequence[Fact], rows: Mapping[str, Sequence[Row]], at_most: int
) -> Recoveries:
    """By kind of fault and system, the slowest first."""
    groups: dict[tuple[str, str], list[tuple[str, Row]]] = {}
    runs: set[str] = set()
    for fact in sample:
        for row in rows.get(fact.run, ()):
            if row["kind"] == "fault":
                runs.add(fact.run)
                groups.setdefault((row["fault"], fact.axes.system), []).append((fact.run, row))
    found = [_recovery(fault, system, own) for (fault, system), own in groups.items()]

    def slowness(row: RecoveryRow) -> tuple[float, float, str, str]:
        judged = row.faults > row.unasked
        worst = row.worst_ns if row.worst_ns is not None else math.inf if judged else -1.0
        p95 = row.p95_ns if row.p95_ns is not None else math.inf if judged else -1.0
        return -p95, -worst, row.fault, row.system

    return Recoveries(
        rows=listed(sorted(found, key=slowness), at_most),
        runs=len(runs),
        unknown=sum(fact.line is None for fact in sample),
    )


def _recovery(fault: str, system: str, own: Sequence[tuple[str, Row]]) -> RecoveryRow:
    judged = [
        (math.inf if row["recovery_ns"] is None else row["recovery_ns"], run)
        for run, row in own
        if row["recovery_ns"] is not None or row["operations"]
    ]
    judged.sort()
    times = [time for time, _ in judged]
    return RecoveryRow(
        fault=fault,
        system=system,
        faults=len(own),
        runs=len({run for run, _ in own}),
        unasked=len(own) - len(judged),
        never=sum(math.isinf(time) for time in times),
        median_ns=nearest_rank(times, 0.5),
        p95_ns=nearest_rank(times, 0.95),
        worst_ns=nearest_rank(times, 1.0),
        worst=tuple(dict.fromkeys(run for _, run in reversed(judged)))[:LINKS],
    )


def nearest_rank(values: Sequence[float], q: float) -> int | None:
    """The smallest of the sorted values that a share ``q`` of them does not exceed; None of none,
    and of infinity."""
    if not values:
        return None
    found = values[max(0, math.ceil(q * len(values) - 1e-9) - 1)]
    return None if math.isinf(found) else int(found)
