"""Two masters at once, by the faults in force; outages; recovery after each kind of fault."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shalott.harness.fleet.page_data import (
    LINKS,
    DualRow,
    Duals,
    OutageRow,
    Outages,
    Recoveries,
    RecoveryRow,
    listed,
    share,
)
from shalott.harness.fleet.run_facts import Fact
from shalott.spark_analysis.kernels.tables import Row

Key = tuple[str, str, str]
# A fault is in force a little before it is proved so: what begins within that is its doing.
PROOF_NS = 1_000_000_000
NO_FAULT, UNTIMED, UNTOLD = "no fault yet", "time not known", "faults not known"
MS = 1_000_000


def cause_of(overlap: Row, faults: Sequence[Row] | None) -> str:
    """Kinds of faults in words. ``faults``: the run's, of the table `unavailability`; None: the
    engine does not tell them."""
    begin_ns = overlap["begin_ns"]
    if faults is None:
        return UNTOLD
    if begin_ns is None:
        return UNTIMED
    kinds = in_force(faults, begin_ns, begin_ns + 1)
    kinds = kinds or in_force(faults, begin_ns, begin_ns + PROOF_NS)
    if kinds:
        return " + ".join(kinds)
    over = [row for row in faults if row["healed_ns"] <= begin_ns]
    if not over:
        return NO_FAULT
    last_ns = max(row["healed_ns"] for row in over)
    last = sorted({row["fault"] for row in over if row["healed_ns"] == last_ns})
    return f"after {' + '.join(last)}"


def duals_of(
    sample: Sequence[Fact],
    overlaps: Mapping[str, Sequence[Row]],
    unavailability: Mapping[str, Sequence[Row]] | None,
    at_most: int,
) -> Duals:
    """The tables `dual_masters` and `unavailability`, by run. What two nodes acknowledged as
    masters comes first."""
    judged = [fact for fact in sample if fact.line is not None]
    population: dict[Key, int] = {}
    groups: dict[tuple[Key, str], list[tuple[str, Row]]] = {}
    for fact in judged:
        key = _key(fact)
        population[key] = population.get(key, 0) + 1
        faults = None
        if unavailability is not None:
            own = unavailability.get(fact.run, ())
            faults = [row for row in own if row["kind"] == "fault"]
        for overlap in overlaps.get(fact.run, ()):
            groups.setdefault((key, cause_of(overlap, faults)), []).append((fact.run, overlap))
    rows = [_row(key, cause, own, population[key]) for (key, cause), own in groups.items()]
    rows.sort(key=lambda row: (-row.effective, -row.claimed, row.system, row.profile, row.mode,
                               row.cause))  # fmt: skip
    return Duals(rows=listed(rows, at_most), runs=len(judged), unknown=len(sample) - len(judged))


def _key(fact: Fact) -> Key:
    mode = fact.line.partition_mode if fact.line else ""
    return fact.axes.system, fact.axes.profile, mode


def _row(key: Key, cause: str, own: Sequence[tuple[str, Row]], of: int) -> DualRow:
    effective = [(run, row) for run, row in own if row["kind"] == "effective"]
    per_run: dict[str, tuple[int, int]] = {}
    for run, row in own:
        torn, all_of_it = per_run.get(run, (0, 0))
        per_run[run] = (torn + (row["kind"] == "effective"), all_of_it + 1)
    lengths = [row["end_ns"] - row["begin_ns"] for _, row in own if row["begin_ns"] is not None]
    system, profile, mode = key
    return DualRow(
        system=system,
        profile=profile,
        mode=mode,
        cause=cause,
        claimed=len(own) - len(effective),
        effective=len(effective),
        runs=share(len(per_run), of),
        torn=share(len({run for run, _ in effective}), of),
        longest_ns=max(lengths, default=None),
        worst=tuple(
            sorted(per_run, key=lambda run: (-per_run[run][0], -per_run[run][1], run))[:LINKS]
        ),
    )


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
    longest_ms = fact.row["unavailable_ms_max"]
    if longest_ms is None or not math.isfinite(longest_ms):
        return None
    return OutageRow(
        run=fact.run,
        axes=fact.axes,
        gap_ns=round(longest_ms * MS),
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
