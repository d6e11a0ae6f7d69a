"""The invariants I1 to I4 of a log that a SyncStateSet replicates, asserted over the whole run.

The invariants are docs/protocols.md 2.9. Each has a checker of its own, which reads what the nodes
told and answered:

- ``i1-acked-on-members``: what is acknowledged is on every member of the set at that time
  (acked_copies.py); without sets, on as many nodes as the system promises;
- ``i2-master-from-set``: a new master is a member of the controllers' set (sync_state_sets.py);
- ``i3-master-has-acked``: a new master's log holds all that was acknowledged (masters_logs.py);
- ``i4-one-master-an-epoch``: and who is fenced changes no set (sync_state_sets.py).

I2 and I4 hold under any settings, unless the plan allows unclean elections. I1 and I3 are
promised by settings: where they are not, what broke them is told, and the run is valid. Faults that
take away what a disk had (``UNSOUND``) end the promise too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.faults import Fault, read_surroundings
from shalott.checkers.history.tenures import read_events
from shalott.checkers.mastership import acked_copies as copies
from shalott.checkers.mastership import masters_logs as logs
from shalott.checkers.mastership.election_records import elections_of, with_window
from shalott.checkers.mastership.sync_state_sets import (
    FENCED,
    HEADLESS,
    OUTSIDE,
    SHARED,
    fenced,
    outside_set,
    sets_before,
    shared_epochs,
)
from shalott.core.history import History
from shalott.core.plan import Effect

ANOMALIES_MAX = 32
MS = 1_000_000
UNSOUND = frozenset[Effect]({"empties-disk", "damages-data"})


@dataclass(frozen=True, slots=True)
class AckedOnMembers:
    """I1. ``by_set``: on the SyncStateSet; else ``copies`` of ``nodes``. ``flushed``: a copy counts
    when it is on the disk; if it doesn't have to be, a power loss may take it."""

    promised: bool
    by_set: bool = False
    flushed: bool = True
    nodes: int = 0
    copies: int = 1
    tolerance_ms: int = 100
    name: str = "i1-acked-on-members"

    def check(self, history: History) -> Result:
        events, around = read_events(history), read_surroundings(history)
        acked = copies.acked_lines(events)
        sets = copies.sets_of(events, around) if self.by_set else None
        tolerance_ns = self.tolerance_ms * MS
        found = [] if sets is None else [
            *copies.without_members(acked, sets, tolerance_ns)
        ]  # fmt: skip
        found += copies.lacking(
            acked,
            sets,
            around.observations,
            nodes=self.nodes,
            copies=self.copies,
            tolerance_ns=tolerance_ns,
            unflushing=() if self.flushed else [f for f in around.injected if f.takes_power],
        )
        judged = len(acked)
        if sets is not None:
            judged = sum(bool(sets.members(one, tolerance_ns)) for one in acked)
        counts = {"acked-count": len(acked), "judged-count": judged}
        kinds = copies.KINDS
        return _result(self.name, found, kinds, counts, around.injected, promised=self.promised)


@dataclass(frozen=True, slots=True)
class MasterFromSet:
    """I2. ``unclean``: the plan allows others."""

    unclean: bool = False
    name: str = "i2-master-from-set"

    def check(self, history: History) -> Result:
        events = read_events(history)
        elections = elections_of(events)
        judged = sets_before(events, elections)
        found = [] if self.unclean else list(outside_set(judged))
        counts = {"election-count": len(elections), "judged-count": len(judged)}
        injected = read_surroundings(history).injected
        # The first election of all is held without a set, and there may be no other.
        has_told = len(elections) or None
        return _result(self.name, found, (OUTSIDE,), counts, injected, seen=has_told)


@dataclass(frozen=True, slots=True)
class MasterHasAcked:
    """I3."""

    promised: bool
    name: str = "i3-master-has-acked"

    def check(self, history: History) -> Result:
        events = read_events(history)
        acked = logs.acknowledged_ends(events)
        beginnings = logs.beginnings_of(events)
        found = [
            *logs.lost_at_masters(acked, beginnings),
            *logs.cut_by_themselves(events),
        ]
        counts = {"acked-tenure-count": len(acked), "judged-count": len(beginnings)}
        injected = read_surroundings(history).injected
        kinds = logs.KINDS
        return _result(self.name, found, kinds, counts, injected, promised=self.promised)


@dataclass(frozen=True, slots=True)
class OneMasterAnEpoch:
    """I4. Needs no configuration."""

    name: str = "i4-one-master-an-epoch"

    def check(self, history: History) -> Result:
        events, around = read_events(history), read_surroundings(history)
        elections = elections_of(events)
        found = [
            *shared_epochs(events, elections, around.observations),
            *fenced(events, elections),
        ]
        masters = sum(event.kind == "role" and event.role == "master" for event in events)
        counts = {"election-count": len(elections), "judged-count": len(elections) + masters}
        return _result(self.name, found, (SHARED, FENCED, HEADLESS), counts, around.injected)


def _result(
    name: str,
    found: Sequence[Anomaly],
    kinds: Sequence[str],
    counts: dict[str, int],
    injected: Sequence[Fault],
    *,
    promised: bool = True,
    seen: int | None = None,
) -> Result:
    """False if it was broken and promised; "unknown" if it was promised and no node told of it."""
    unsound = [fault.name for fault in injected if UNSOUND.intersection(fault.effects)]
    judged = bool(counts["judged-count"] or seen)
    notes: list[str] = []
    if unsound and not promised:
        unsound = []
    if found and (not promised or unsound):
        why = f"a disk lost what it had ({unsound[0]})" if unsound else "these settings"
        notes.append(f"It was broken, and is not promised under {why}: told, and valid.")
    if promised and not judged:
        notes.append("No node told of it: nothing was judged.")
    broken = bool(found) and promised and not unsound
    return Result(
        checker=name,
        valid=False if broken else (True if judged or not promised else "unknown"),
        counts={**counts, **{f"{k}-count": sum(a.kind == k for a in found) for k in kinds}},
        anomalies=tuple(with_window(anomaly, injected) for anomaly in found[:ANOMALIES_MAX]),
        notes=tuple(notes),
    )
