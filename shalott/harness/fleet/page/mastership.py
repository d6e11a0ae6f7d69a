"""Two masters at once, by what was in force when they came to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shalott.harness.fleet.page.availability import in_force
from shalott.harness.fleet.page.data import LINKS, DualRow, Duals, listed, share
from shalott.harness.fleet.page.facts import Fact

Row = Mapping[str, Any]
Key = tuple[str, str, str]
# A fault is in force a little before it is proved so: what begins within that is its doing.
PROOF_NS = 1_000_000_000
NO_FAULT, UNTIMED, UNTOLD = "no fault yet", "time not known", "faults not known"


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
