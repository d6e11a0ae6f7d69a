"""The invariants I1 to I4 of a log that a SyncStateSet replicates, asserted over the whole run.

The invariants are docs/protocols.md 2.9. Each has a checker of its own, which reads what the nodes
told and answered:

- ``i1-acked-on-members``: what is acknowledged is on every member of the set at that time
  (acked_copies.py); without sets, on as many nodes as the system promises;
- ``i2-master-from-set``: a new master is a member of the controllers' set;
- ``i3-master-has-acked``: a new master's log holds all that was acknowledged (masters_logs.py);
- ``i4-one-master-an-epoch``: and who is fenced changes no set.

I2 and I4 hold under any settings, unless the plan allows unclean elections. I1 and I3 are
promised by settings: where they are not, what broke them is told, and the run is valid. Faults that
take away what a disk had (``UNSOUND``) end the promise too.

I2 and I4 are judged by epochs, so neither clocks nor late lines matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.faults import Fault, Observation, read_surroundings
from shalott.checkers.history.tenures import NodeEvent, read_events
from shalott.checkers.mastership import acked_copies as copies
from shalott.checkers.mastership import masters_logs as logs
from shalott.checkers.mastership.elections import (
    Election,
    anomaly_of,
    by_controllers,
    elections_of,
    master_of,
    members_of,
    named,
    set_epoch_of,
    with_window,
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
        found = [*logs.lost_at_masters(acked, beginnings), *logs.cut_by_themselves(events)]
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
        found = [*shared_epochs(events, elections, around.observations), *fenced(events, elections)]
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


OUTSIDE = "elected-outside-set"
SHARED, FENCED, HEADLESS = "two-masters-in-epoch", "fenced-alteration", "set-without-master"


# -- I2 --------------------------------------------------------------------------------------------


def sets_before(
    events: Sequence[NodeEvent], elections: Sequence[Election]
) -> list[tuple[Election, NodeEvent]]:
    """Each election with who told the set that it was held in: the one of the set's epoch before.
    Elections whose set no node told are left out, and so are those that gave a master up."""
    told: dict[tuple[str, int], NodeEvent] = {}
    for event in by_controllers(events):
        told.setdefault((event.group, set_epoch_of(event)), event)
    found = []
    for election in elections:
        set_epoch = set_epoch_of(election.event)
        before = told.get((election.event.group, set_epoch - 1)) if set_epoch > 1 else None
        if election.master and before is not None:
            found.append((election, before))
    return found


def outside_set(judged: Sequence[tuple[Election, NodeEvent]]) -> Iterator[Anomaly]:
    for election, before in judged:
        event, members = election.event, members_of(before)
        if not members or election.master in members or event.detail.get("unclean"):
            continue
        summary = (
            f"{election.master} was elected master of {event.group} for epoch {election.epoch}"
            f" from outside of the SyncStateSet {named(members)}"
        )
        yield anomaly_of(OUTSIDE, summary, before, event)


# -- I4 --------------------------------------------------------------------------------------------


def shared_epochs(
    events: Sequence[NodeEvent], elections: Sequence[Election], observations: Sequence[Observation]
) -> Iterator[Anomaly]:
    """By elections, by what nodes said and did, and by what they answered. Epoch 0 stands for a
    system that has none."""
    yield from _told_twice(events, elections)
    first: dict[tuple[str, int], tuple[str, Observation]] = {}
    known: dict[tuple[str, int, str], bool] = {}
    for seen in observations:
        for claim in seen.claims:
            if claim.role != "master" or not claim.epoch:
                continue
            other, earlier = first.setdefault((claim.group, claim.epoch), (seen.node, seen))
            key = (claim.group, claim.epoch, seen.node)
            if other != seen.node and key not in known:
                known[key] = True
                yield Anomaly(
                    kind=SHARED,
                    summary=f"{other} and {seen.node} both answered that they were master of"
                    f" {claim.group} in epoch {claim.epoch}",
                    operations=(earlier.index, seen.index),
                    detail={
                        "group": claim.group, "nodes": [other, seen.node], "events": [],
                        "at_ns": seen.end_ns,
                    },
                )  # fmt: skip


def _told_twice(events: Sequence[NodeEvent], elections: Sequence[Election]) -> Iterator[Anomaly]:
    first: dict[tuple[str, str, int], tuple[str, NodeEvent]] = {}
    known: dict[tuple[str, str, int, str], bool] = {}
    told = [("elected", one.master, one.event) for one in elections if one.master]
    for event in events:
        if event.kind in ("role", "epoch", "acked") and event.role == "master":
            told.append(("node", event.node, event))
    for witness, master, event in sorted(told, key=lambda one: one[2].run_ns):
        if not event.epoch:
            continue
        # Controllers name brokers by id, brokers are nodes: each witness is judged by itself.
        key = (event.group, witness, event.epoch)
        other, earlier = first.setdefault(key, (master, event))
        if other != master and (*key, master) not in known:
            known[*key, master] = True
            summary = f"{other} and {master} were both master of {event.group} in epoch"
            yield anomaly_of(SHARED, f"{summary} {event.epoch}", earlier, event)


def fenced(events: Sequence[NodeEvent], elections: Sequence[Election]) -> Iterator[Anomaly]:
    """Of each set that was changed: the election before it, by the epoch of the set."""
    changes = [e for e in by_controllers(events) if e.kind == "set_changed"]
    for event in changes:
        earlier = [
            one
            for one in elections
            if one.event.group == event.group and set_epoch_of(one.event) < set_epoch_of(event)
        ]
        if not earlier:
            continue
        ruling, members = max(earlier, key=lambda one: one.epoch), members_of(event)
        if master_of(event) != ruling.master:
            summary = (
                f"the SyncStateSet of {event.group} was changed to {named(members)} in the name of"
                f" {master_of(event) or 'no node'}, after {ruling.master or 'no node'} was made"
                f" master in epoch {ruling.epoch}"
            )
            yield anomaly_of(FENCED, summary, ruling.event, event)
        elif members and ruling.master not in members:
            summary = (
                f"the SyncStateSet of {event.group} was changed to {named(members)}, and"
                f" its master {ruling.master} is not in it"
            )
            yield anomaly_of(HEADLESS, summary, ruling.event, event)
