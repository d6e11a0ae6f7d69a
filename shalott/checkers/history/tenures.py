"""Who said that it was master of what, and from when to when.

A tenure is a stretch in which one node claimed one group. It has two witnesses, kept apart: the
nodes' event logs ("events") and the harness's polls ("observed"). Both err on the side of silence,
because a false dual master costs more trust than a missed instant of a true one: a killed node
tenures no longer than until it was asked to die, a node that wrote nothing more no longer than its
last sign of life, and an observed tenure lasts from the first to the last of consecutive answers.
Nodes on one host share a wall clock, so their events compare; across hosts the tolerance of
checkers.mastership must cover the skew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from shalott.checkers.history.faults import Decoded, Fault, Observation, Surroundings, decode_object
from shalott.core.history import History

STOOD_MIN_NS = 50_000_000  # of a clock that falls behind: less is noise


@dataclass(frozen=True, slots=True)
class Standstill:
    """A node's time stood still, somewhere between two of its lines, by its own clock: a machine
    that is suspended has no time meanwhile."""

    since_ns: int
    until_ns: int
    lasted_ns: int


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One line of a node's event log. ``row`` is its position in the history's events.
    ``standstills``: where in its life so far the node's time stood still."""

    row: int
    run_ns: int
    at_ns: int
    node: str
    incarnation: int
    group: str
    kind: str
    role: str
    epoch: int
    detail: Decoded = field(default_factory=dict)
    standstills: tuple[Standstill, ...] = ()

    def bounds_ns(self, name: str) -> tuple[int, int]:
        """When the node's clock showed what the detail calls so, on the run's clock: at the
        earliest, for its time may have stood still since then, and at the latest."""
        own_ns = int(self.detail.get(name, self.at_ns))
        latest_ns = earliest_ns = own_ns + self.run_ns - self.at_ns
        for each in self.standstills:
            if own_ns < each.until_ns:
                earliest_ns -= each.lasted_ns
            if own_ns <= each.since_ns:
                latest_ns -= each.lasted_ns
        return earliest_ns, latest_ns


@dataclass(frozen=True, slots=True)
class Tenure:
    """``node`` claimed ``group`` in [begin_ns, end_ns].

    ``evidence`` is a row of the events, or an operation's index, by witness.
    """

    group: str
    node: str
    begin_ns: int
    end_ns: int
    epoch: int
    witness: str  # events, observed
    evidence: int
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two nodes were masters of one group at once; ``first`` began no later than ``second``."""

    first: Tenure
    second: Tenure

    @property
    def begin_ns(self) -> int:
        return max(self.first.begin_ns, self.second.begin_ns)

    @property
    def end_ns(self) -> int:
        return min(self.first.end_ns, self.second.end_ns)


def read_events(history: History) -> list[NodeEvent]:
    """The events that could be placed on the run's clock, in that order."""
    events = history.events
    if not events.num_rows:
        return []
    placed = pc.is_valid(events["run_ns"]).to_pylist()
    found = [
        NodeEvent(
            row=number,
            run_ns=row["run_ns"],
            at_ns=row["at_ns"],
            node=row["node"],
            incarnation=row["incarnation"],
            group=row["group"],
            kind=row["kind"],
            role=row["role"],
            epoch=row["epoch"],
            detail=decode_object(row["detail"]),
        )
        for number, (row, is_placed) in enumerate(zip(events.to_pylist(), placed, strict=True))
        if is_placed
    ]
    return _with_standstills(sorted(found, key=lambda e: (e.run_ns, e.node, e.at_ns)))


def _with_standstills(events: Sequence[NodeEvent]) -> list[NodeEvent]:
    """A clock that stands still falls behind the run's."""
    before: dict[tuple[str, int], NodeEvent] = {}
    told: list[NodeEvent] = []
    for event in events:
        last = before.get((event.node, event.incarnation), event)
        known = last.standstills
        lasted_ns = (event.run_ns - last.run_ns) - (event.at_ns - last.at_ns)
        if lasted_ns > STOOD_MIN_NS:
            known = (*known, Standstill(last.at_ns, event.at_ns, lasted_ns))
        if known:
            event = replace(event, standstills=known)
        before[event.node, event.incarnation] = event
        told.append(event)
    return told


def event_tenures(events: Sequence[NodeEvent], around: Surroundings) -> list[Tenure]:
    """Tenures by the nodes' own logs, in order of their begin."""
    by_node: dict[str, list[NodeEvent]] = {}
    for event in events:
        by_node.setdefault(event.node, []).append(event)
    tenures: list[Tenure] = []
    for node, own in sorted(by_node.items()):
        # A node's own order is certain: its wall clock may be set back, its incarnation may not.
        own.sort(key=lambda event: (event.incarnation, event.at_ns, event.row))
        tenures.extend(_tenures_of(own, _deaths(node, around), _last_answer_ns(node, around)))
    return sorted(tenures, key=lambda tenure: (tenure.begin_ns, tenure.node))


def _deaths(node: str, around: Surroundings) -> list[int]:
    """When the harness set about ending this node's process."""
    killed = [f.invoke_ns for f in around.injected if f.takes_processes and node in f.nodes]
    restarted = [each.begin_ns for each in around.operator_restarts if node in each.nodes]
    return sorted([*killed, *restarted])


def _last_answer_ns(node: str, around: Surroundings) -> int:
    return max((o.end_ns for o in around.observations if o.node == node and o.ok), default=0)


def _tenures_of(
    own: Sequence[NodeEvent], deaths: Sequence[int], last_answer_ns: int
) -> Iterator[Tenure]:
    """One node's tenures, each cut at the first death after its begin."""
    opened: dict[str, NodeEvent] = {}
    last: NodeEvent | None = None
    for event in own:
        if last is not None and event.incarnation != last.incarnation:
            for begin in opened.values():
                # It died in between: when the harness killed it, or else after its last word.
                killed = any(begin.run_ns < at_ns <= event.run_ns for at_ns in deaths)
                yield _closed(begin, event.run_ns if killed else last.run_ns, deaths)
            opened = {}
        for group in [group for group in opened if ends_tenure(event, group)]:
            yield _closed(opened.pop(group), event.run_ns, deaths)
        if event.kind == "role" and event.group and event.role == "master":
            opened.setdefault(event.group, event)
        last = event
    for begin in opened.values():
        assert last is not None
        killed_ns = [at_ns for at_ns in deaths if at_ns > begin.run_ns]
        yield _closed(begin, max([last.run_ns, last_answer_ns, *killed_ns]), deaths)


def ends_tenure(event: NodeEvent, group: str) -> bool:
    """Whether a node says by this that it is not master of the group (any more)."""
    if event.group == "":
        return event.role in ("paused", "stopped") or event.kind == "autoheal_lost"
    return event.group == group and event.kind == "role" and event.role != "master"


def _closed(begin: NodeEvent, end_ns: int, deaths: Sequence[int]) -> Tenure:
    # A death asked for before the claim belongs to an earlier incarnation.
    end_ns = min([end_ns, *(at_ns for at_ns in deaths if at_ns > begin.run_ns)])
    return Tenure(
        group=begin.group,
        node=begin.node,
        begin_ns=begin.run_ns,
        end_ns=max(begin.run_ns, end_ns),
        epoch=begin.epoch,
        witness="events",
        evidence=begin.row,
        incarnation=begin.incarnation,
    )


def observed_tenures(observations: Sequence[Observation]) -> list[Tenure]:
    """Tenures by consecutive answers of one node; a poll without answer ends them."""
    by_node: dict[str, list[Observation]] = {}
    for observation in observations:
        by_node.setdefault(observation.node, []).append(observation)
    tenures: list[Tenure] = []
    for node, polls in sorted(by_node.items()):
        tenures.extend(_observed_of(node, polls))
    return sorted(tenures, key=lambda tenure: (tenure.begin_ns, tenure.node))


def _observed_of(node: str, polls: Sequence[Observation]) -> Iterator[Tenure]:
    opened: dict[str, Tenure] = {}
    for poll in polls:
        claimed = {claim.group: claim.epoch for claim in poll.claims if claim.role == "master"}
        for group in [group for group in opened if group not in claimed]:
            yield opened.pop(group)
        for group, epoch in claimed.items():
            # The answer was true at some moment of the poll: count from its end, up to its begin.
            opened[group] = (
                replace(opened[group], end_ns=max(opened[group].end_ns, poll.begin_ns))
                if group in opened
                else Tenure(group, node, poll.end_ns, poll.end_ns, epoch, "observed", poll.index)
            )
    yield from opened.values()


def without_pauses(tenures: Iterable[Tenure], faults: Sequence[Fault]) -> list[Tenure]:
    """Tenures without the stretches in which the node's process was frozen and claimed nothing."""
    result: list[Tenure] = []
    for tenure in tenures:
        frozen = [
            (f.effective_ns, f.end_ns) for f in faults if f.suspends and tenure.node in f.nodes
        ]
        begin_ns = tenure.begin_ns
        for pause_ns, resume_ns in sorted(frozen):
            if pause_ns >= tenure.end_ns or resume_ns <= begin_ns:
                continue
            if pause_ns > begin_ns:
                result.append(replace(tenure, begin_ns=begin_ns, end_ns=pause_ns))
            begin_ns = resume_ns
        if begin_ns <= tenure.end_ns:
            result.append(replace(tenure, begin_ns=begin_ns))
    return sorted(result, key=lambda tenure: (tenure.begin_ns, tenure.node))


def overlaps(tenures: Sequence[Tenure], tolerance_ns: int) -> list[Overlap]:
    """Pairs of tenures of two nodes over one group that share more than the tolerance."""
    by_group: dict[str, list[Tenure]] = {}
    for tenure in tenures:
        by_group.setdefault(tenure.group, []).append(tenure)
    found: list[Overlap] = []
    for own in by_group.values():
        own.sort(key=lambda tenure: (tenure.begin_ns, tenure.node))
        for position, first in enumerate(own):
            for second in own[position + 1 :]:
                if second.begin_ns + tolerance_ns >= first.end_ns:
                    break
                shared_ns = min(first.end_ns, second.end_ns) - second.begin_ns
                if second.node != first.node and shared_ns > tolerance_ns:
                    found.append(Overlap(first, second))
    return sorted(found, key=lambda overlap: (overlap.begin_ns, overlap.first.group))
