"""Invariant I1: what is acknowledged is, at that time, on every replica that must have it.

The invariant is docs/protocols.md 2.9. Under controllers that is every member of the controllers'
SyncStateSet and of the master's own; in the other systems a number of copies. Two witnesses:

- who the master knows to have each message when it acknowledges it (``holders`` of an ``acked``
  event): a member that is not among them is ``acked-without-member``;
- how far a node says that its log goes, when it is asked later in the same epoch: a member that
  lacks what had been acknowledged is ``member-lacks-acked``, too many nodes that lack it are
  ``too-few-copies``. Who restarted in between is asked as well: what counts is on the disk.

A set counts only where it certainly stood, from a while before the first message of an ``acked``
line was taken until a while after the line was written (``tolerance_ns``: what clocks are apart).
It ends with the next set of the very next epoch, as told by controllers or as a master heard of it
from them, or where the controller that told it may have died with a later set untold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from shalott.checkers.checker import Anomaly
from shalott.checkers.history.faults import Claim, Fault, Observation, Surroundings
from shalott.checkers.history.tenures import NodeEvent
from shalott.checkers.mastership.elections import anomaly_of, by_controllers, set_epoch_of
from shalott.checkers.mastership.masters_logs import end_of
from shalott.core.plan import Effect

WITHOUT, LACKS, FEW = "acked-without-member", "member-lacks-acked", "too-few-copies"
KINDS = (WITHOUT, LACKS, FEW)
# What may take a line that was told away, or what a log holds.
SILENCING = frozenset[Effect](
    {"ends-processes", "suspends", "troubles-disk", "empties-disk", "slows", "starves"}
)


@dataclass(frozen=True, slots=True)
class Acked:
    """One ``acked`` line: everything in it was taken at ``first_ns`` or later, and acknowledged at
    ``told_ns`` or before."""

    event: NodeEvent
    end: int
    first_ns: int
    told_ns: int


@dataclass(frozen=True, slots=True)
class Stood:
    """A SyncStateSet that certainly stood in [begin_ns, end_ns]."""

    event: NodeEvent
    members: tuple[str, ...]
    begin_ns: int
    end_ns: int


def acked_lines(events: Sequence[NodeEvent]) -> list[Acked]:
    found = []
    for event in events:
        if event.kind == "acked" and end_of(event):
            first_ns, _ = event.bounds_ns("first_ns")
            found.append(Acked(event, end_of(event), first_ns, event.run_ns))
    return found


# -- where it has to be ----------------------------------------------------------------------------


@dataclass(slots=True)
class Sets:
    """The sets of all groups: the controllers', and each master's own, by its own clock."""

    decided: dict[str, list[Stood]] = field(default_factory=dict)
    own: dict[tuple[str, str, int], list[NodeEvent]] = field(default_factory=dict)
    names: dict[tuple[str, str], str] = field(default_factory=dict)  # (group, id) to node

    def required(self, acked: Acked, tolerance_ns: int) -> dict[str, NodeEvent]:
        """Who else had to have it, by name, and who says so."""
        found = self.members(acked, tolerance_ns)
        found.pop(acked.event.node, None)
        return found

    def members(self, acked: Acked, tolerance_ns: int) -> dict[str, NodeEvent]:
        """Of both sets, with the master; empty where it is unknown which set stood."""
        event, found = acked.event, dict[str, NodeEvent]()
        for stood in self.decided.get(event.group, ()):
            begun = stood.begin_ns + tolerance_ns <= acked.first_ns
            if begun and acked.told_ns + tolerance_ns <= stood.end_ns:
                found |= dict.fromkeys(stood.members, stood.event)
        for member, told in self._believed(acked):
            found.setdefault(self.names.get((event.group, member), member), told)
        return found

    def _believed(self, acked: Acked) -> Iterator[tuple[str, NodeEvent]]:
        """By the master's own set, if it was one all the time."""
        event = acked.event
        first_ns = int(event.detail.get("first_ns", event.at_ns))
        told = self.own.get((event.group, event.node, event.incarnation), [])
        before = [one for one in told if one.at_ns <= first_ns]
        if before and not any(first_ns < one.at_ns <= event.at_ns for one in told):
            for member in before[-1].detail.get("set") or ():
                yield str(member), before[-1]


@dataclass(frozen=True, slots=True)
class Silence:
    """From when on what a node told may not have come through: it may have died meanwhile."""

    faults: Sequence[Fault]
    last_ns: dict[tuple[str, int], int]  # the last line of each life
    lives: dict[str, int]  # the last one of each node
    end_ns: int

    @staticmethod
    def read(events: Sequence[NodeEvent], around: Surroundings) -> Silence:
        last_ns: dict[tuple[str, int], int] = {}
        lives: dict[str, int] = {}
        for event in events:
            life = (event.node, event.incarnation)
            last_ns[life] = max(event.run_ns, last_ns.get(life, 0))
            lives[event.node] = max(event.incarnation, lives.get(event.node, 0))
        faults = [f for f in around.injected if SILENCING.intersection(f.effects)]
        return Silence(faults, last_ns, lives, around.end_ns)

    def begins_ns(self, event: NodeEvent) -> int:
        found = [
            min(fault.invoke_ns, fault.effective_ns)
            for fault in self.faults
            if event.node in fault.nodes and fault.end_ns > event.run_ns
        ]
        if self.lives[event.node] > event.incarnation:
            found.append(self.last_ns[event.node, event.incarnation])
        return min([*found, self.end_ns])


def sets_of(events: Sequence[NodeEvent], around: Surroundings) -> Sets:
    sets = Sets()
    by_group: dict[str, list[NodeEvent]] = {}
    for event in by_controllers(events):
        by_group.setdefault(event.group, []).append(event)
        ids, nodes = event.detail.get("set_ids") or (), event.detail.get("set") or ()
        for member, node in zip(ids, nodes, strict=False):
            sets.names[event.group, str(member)] = str(node)
    ordered = sorted(events, key=lambda e: (e.node, e.incarnation, e.at_ns, e.row))
    heard: dict[str, list[NodeEvent]] = {}
    for event in ordered:
        if event.kind == "set_changed" and "master" not in event.detail and event.role == "master":
            sets.own.setdefault((event.group, event.node, event.incarnation), []).append(event)
            heard.setdefault(event.group, []).append(event)
    silence = Silence.read(events, around)
    for group, own in by_group.items():
        sets.decided[group] = list(_stood(own, heard.get(group, ()), silence))
    return sets


def _stood(
    told: Sequence[NodeEvent], heard: Sequence[NodeEvent], silence: Silence
) -> Iterator[Stood]:
    """``told``: a group's sets. A new leader tells the set again: it stands from then on, too.
    ``heard``: those that masters took for theirs; who heard of a set's epoch heard it decided."""
    first: dict[int, int] = {}
    for event in told:
        first.setdefault(set_epoch_of(event), event.run_ns)
    for event in heard:
        heard_epoch = int(event.detail.get("epoch") or 0)
        first[heard_epoch] = min(event.run_ns, first.get(heard_epoch, event.run_ns))
    for event in told:
        set_epoch = set_epoch_of(event)
        if not set_epoch:
            continue
        following = first.get(set_epoch + 1)
        if following is None and set_epoch < max(first):
            continue  # the next one was not told: it is unknown since when it stood
        until = silence.begins_ns(event)
        end_ns = until if following is None else min(until, following)
        members = tuple(str(member) for member in event.detail.get("set") or ())
        yield Stood(event, members, event.run_ns, end_ns)


# -- by who acknowledges ---------------------------------------------------------------------------


def without_members(acked: Sequence[Acked], sets: Sets, tolerance_ns: int) -> Iterator[Anomaly]:
    """One for each tenure and member."""
    known: dict[tuple[str, str, int, str], bool] = {}
    ids = {(group, node): member for (group, member), node in sets.names.items()}
    for one in acked:
        event = one.event
        holders = event.detail.get("holders")
        if holders is None:
            continue
        having = [str(holder) for holder in holders]
        for member, told in sets.required(one, tolerance_ns).items():
            key = (event.group, event.node, event.epoch, member)
            if ids.get((event.group, member), member) in having or key in known:
                continue
            known[key] = True
            summary = (
                f"{event.node} acknowledged the log of {event.group} up to {one.end} in epoch"
                f" {event.epoch} and did not know that {member}, a member of the SyncStateSet, had"
                " it"
            )
            yield anomaly_of(WITHOUT, summary, told, event)


# -- by who has to have it -------------------------------------------------------------------------


@dataclass(slots=True)
class _Need:
    """What is acknowledged by now in one epoch: by whom it has to be held, as far as that goes."""

    everybody: Acked | None = None  # the furthest
    members: dict[str, tuple[Acked, NodeEvent]] = field(default_factory=dict)
    lacked: dict[str, list[tuple[int, int, Observation]]] = field(default_factory=dict)


def lacking(
    acked: Sequence[Acked],
    sets: Sets | None,
    observations: Sequence[Observation],
    *,
    nodes: int,
    copies: int,
    tolerance_ns: int,
    unflushing: Sequence[Fault] = (),
) -> Iterator[Anomaly]:
    """``sets`` None: any ``copies`` of ``nodes`` will do. One for each epoch and node.
    ``unflushing``: faults that may take what had counted, since it was not on the disk."""
    waiting = sorted(acked, key=lambda one: one.told_ns, reverse=True)
    needs: dict[tuple[str, int], _Need] = {}
    known: dict[tuple[str, int, str], bool] = {}
    for seen in sorted(observations, key=lambda one: one.begin_ns):
        while waiting and waiting[-1].told_ns + tolerance_ns <= seen.begin_ns:
            _take(needs, waiting.pop(), sets, tolerance_ns)
        for claim in seen.claims:
            need, key = needs.get((claim.group, claim.epoch)), (claim.group, claim.epoch, seen.node)
            if need is None or claim.end is None or key in known:
                continue
            if need.everybody and _may_have_lost(unflushing, need.everybody, seen):
                continue
            found = (
                _copies_missing(need, seen, claim, nodes - copies)
                if sets is None
                else _member_lacking(need, seen, claim)
            )
            if found is not None:
                known[key] = True
                yield found


def _may_have_lost(unflushing: Sequence[Fault], one: Acked, seen: Observation) -> bool:
    """Whether who is asked was hit since the message could be there."""
    return any(
        seen.node in fault.nodes
        and fault.invoke_ns <= seen.end_ns
        and one.first_ns <= fault.effective_ns
        for fault in unflushing
    )


def _take(
    needs: dict[tuple[str, int], _Need], one: Acked, sets: Sets | None, tolerance_ns: int
) -> None:
    need = needs.setdefault((one.event.group, one.event.epoch), _Need())
    if need.everybody is None or need.everybody.end < one.end:
        need.everybody = one
    for member, told in ({} if sets is None else sets.required(one, tolerance_ns)).items():
        if member not in need.members or need.members[member][0].end < one.end:
            need.members[member] = (one, told)


def _member_lacking(need: _Need, seen: Observation, claim: Claim) -> Anomaly | None:
    one, told = need.members.get(seen.node, (None, None))
    if one is None or told is None or claim.end is None or claim.end >= one.end:
        return None
    summary = (
        f"{seen.node} was a member of the SyncStateSet of {claim.group} when {one.event.node}"
        f" acknowledged the log up to {one.end} in epoch {claim.epoch}, and has it up to"
        f" {claim.end} only"
    )
    return _seen_lacking(LACKS, summary, [seen], told, one.event)


def _copies_missing(need: _Need, seen: Observation, claim: Claim, spare: int) -> Anomaly | None:
    """``spare``: so many nodes may lack a message."""
    one = need.everybody
    if one is None or claim.end is None or one.event.node == seen.node or claim.end >= one.end:
        return None
    own = need.lacked.setdefault(seen.node, [])
    if own and own[-1][1] >= claim.end:  # it has not caught up since
        low, high, earlier = own[-1]
        own[-1] = (min(low, claim.end), max(high, one.end), earlier)
    else:
        own.append((claim.end, one.end, seen))
    for end in _ends(need.lacked.values(), claim.end, one.end):
        who = {
            node: next((s for low, high, s in own if low < end <= high), None)
            for node, own in need.lacked.items()
        }
        lack = [found for found in who.values() if found is not None]
        if len(lack) > spare:
            names = " and ".join(sorted(found.node for found in lack))
            summary = (
                f"{one.event.node} acknowledged the log of {claim.group} up to {end} in epoch"
                f" {claim.epoch}, and {names} did not have it later in that epoch: too few copies"
            )
            return _seen_lacking(FEW, summary, lack, one.event)
    return None


def _ends(
    lacked: Iterable[Sequence[tuple[int, int, Observation]]], low: int, high: int
) -> list[int]:
    """Ends at which most nodes may lack something at once, between these."""
    ends = [end for own in lacked for _, end, _ in own if low < end <= high]
    return sorted(dict.fromkeys([high, *ends]))


def _seen_lacking(
    kind: str, summary: str, lack: Sequence[Observation], *proof: NodeEvent
) -> Anomaly:
    found = anomaly_of(kind, summary, *proof)
    nodes = list(dict.fromkeys([*found.detail["nodes"], *(seen.node for seen in lack)]))
    return Anomaly(
        kind=kind,
        summary=summary,
        operations=tuple(seen.index for seen in lack),
        detail={**found.detail, "nodes": nodes, "at_ns": max(seen.end_ns for seen in lack)},
    )
