"""Turning points: instants at which a queue's contents may have changed hands for the worse.

Each has the node event, observation or fault that shows it. That one is there explains no loss by
itself: checkers/queues/loss_windows.py says what else must be seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from shalott.checkers.history.faults import Fault, Surroundings
from shalott.checkers.history.tenures import (
    NodeEvent,
    Tenure,
    event_tenures,
    observed_tenures,
    overlaps,
)

S = 1_000_000_000
CLOCK_SLACK_NS = S  # an acknowledgement may be recorded this much after what made it worthless
DISCARDING = ("discarded", "wiped", "truncated")

# promotion: of a mirror that was not synchronised; double: a master beside another one ceased to be
# one; discard: a node threw messages away; paused: a master found itself in a minority; whole-stop:
# a queue was recovered when every node had been down; recovered: from a disk, by its own master.
Kind = Literal["promotion", "double", "discard", "paused", "whole-stop", "recovered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurningPoint:
    """``evidence`` holds ``event`` (row of the events) or ``operation`` (index in the history).

    ``node``: the promoted one, or whose contents were lost, or who recovered the queue. ``other``:
    the master before it, or beside it; "" if no node says. ``since_ns``: of a whole stop, when the
    last node went down.
    """

    kind: Kind
    group: str
    at_ns: int
    text: str
    evidence: dict[str, object]
    node: str
    other: str = ""
    since_ns: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    events: Sequence[NodeEvent]
    around: Surroundings
    tenures: Sequence[Tenure] = field(default_factory=tuple)
    polled: Sequence[Tenure] = field(default_factory=tuple)


def read_scene(events: Sequence[NodeEvent], around: Surroundings) -> Scene:
    by_events = event_tenures(events, around)
    by_polls = observed_tenures(around.observations)
    # RabbitMQ's log never names a queue's first master: the polls tell of it.
    told = {(tenure.group, tenure.node) for tenure in by_events}
    polled = [tenure for tenure in by_polls if (tenure.group, tenure.node) not in told]
    return Scene(events, around, (*by_events, *polled), tuple(by_polls))


def turning_points(scene: Scene) -> list[TurningPoint]:
    promoted = list(_unsynchronised_promotions(scene))
    known = {point.group for point in promoted}
    found = [
        *promoted,
        *(point for point in _observed_promotions(scene) if point.group not in known),
        *_ended_double_tenures(scene),
        *_discards(scene),
        *_paused_masters(scene),
        *_whole_stops(scene),
        *_recoveries(scene),
    ]
    return sorted(found, key=lambda point: (point.at_ns, point.kind))


def master_before(scene: Scene, group: str, node: str, at_ns: int) -> str:
    """Who was the last master of a queue, other than ``node``, to begin before; "": none was."""
    before = [t for t in scene.tenures if t.group == group and t.begin_ns <= at_ns]
    others = [t for t in before if t.node != node]
    return max(others, key=lambda t: t.begin_ns).node if others else ""


def _unsynchronised_promotions(scene: Scene) -> Iterator[TurningPoint]:
    for event in scene.events:
        if event.kind == "promoted" and event.detail.get("synchronised") is False:
            told = event.detail.get("master_was")
            yield TurningPoint(
                kind="promotion",
                group=event.group,
                at_ns=event.run_ns,
                text=f"{event.node} was promoted at {seconds(event.run_ns)} without being"
                " synchronised",
                evidence={"event": event.row},
                node=event.node,
                other=str(told or master_before(scene, event.group, event.node, event.run_ns)),
                reason=str(event.detail.get("reason", "")),
            )


def _observed_promotions(scene: Scene) -> Iterator[TurningPoint]:
    """A new master that its predecessor did not list as synchronised when it was last asked."""
    # A poll is up to a round old: a node's own word about the same promotion is better.
    synchronised = [
        (e.group, e.node, e.run_ns)
        for e in scene.events
        if e.kind == "promoted" and e.detail.get("synchronised") is True
    ]
    last_tenure: dict[str, Tenure] = {}
    for tenure in sorted(scene.polled, key=lambda r: r.begin_ns):
        old = last_tenure.get(tenure.group)
        last_tenure[tenure.group] = tenure
        if old is None or old.node == tenure.node or old.end_ns > tenure.begin_ns:
            continue
        seen = [
            (poll, claim)
            for poll in scene.around.observations
            for claim in poll.claims
            if claim.group == tenure.group and poll.node == old.node and claim.role == "master"
            and poll.end_ns <= max(old.end_ns, old.begin_ns) + S
        ]  # fmt: skip
        refuted = any(
            (group, node) == (tenure.group, tenure.node) and abs(at_ns - tenure.begin_ns) <= 2 * S
            for group, node, at_ns in synchronised
        )
        if seen and not refuted and tenure.node not in seen[-1][1].synchronised:
            poll = seen[-1][0]
            yield TurningPoint(
                kind="promotion",
                group=tenure.group,
                at_ns=tenure.begin_ns,
                text=f"{tenure.node} was seen as master from {seconds(tenure.begin_ns)}; at "
                f"{seconds(poll.end_ns)} {old.node} had not listed it as synchronised",
                evidence={"operation": tenure.evidence, "before": poll.index},
                node=tenure.node,
                other=old.node,
            )


def _ended_double_tenures(scene: Scene) -> Iterator[TurningPoint]:
    """Two masters at once: the one whose tenure ended first lost what it had acknowledged alone."""
    for overlap in overlaps(scene.tenures, 0):
        loser = min(overlap.first, overlap.second, key=lambda tenure: tenure.end_ns)
        other = overlap.second if loser is overlap.first else overlap.first
        key = "event" if loser.witness == "events" else "operation"
        yield TurningPoint(
            kind="double",
            group=loser.group,
            at_ns=loser.end_ns,
            text=f"{loser.node} was master beside {other.node} from {seconds(overlap.begin_ns)} and"
            f" ceased to be at {seconds(loser.end_ns)}",
            evidence={key: loser.evidence},
            node=loser.node,
            other=other.node,
        )


def _discards(scene: Scene) -> Iterator[TurningPoint]:
    """A node that says itself that it threw messages away."""
    for event in scene.events:
        if event.kind not in DISCARDING or event.detail.get("count") == 0:
            continue
        count = event.detail.get("count")
        what = "its messages" if count is None else f"{count} messages"
        yield TurningPoint(
            kind="discard",
            group=event.group,
            at_ns=event.run_ns,
            text=f"{event.node} {event.kind} {what} at {seconds(event.run_ns)}",
            evidence={"event": event.row},
            node=event.node,
            other=master_before(scene, event.group, event.node, event.run_ns),
            reason=str(event.detail.get("reason", "")),
        )


def _paused_masters(scene: Scene) -> Iterator[TurningPoint]:
    """A master that paused itself in a minority: what it confirmed just before may be gone."""
    for event in scene.events:
        if event.group or event.role != "paused":
            continue
        for tenure in scene.tenures:
            ended_here = abs(tenure.end_ns - event.run_ns) <= S or (
                tenure.begin_ns <= event.run_ns <= tenure.end_ns
            )
            if tenure.node == event.node and ended_here:
                yield TurningPoint(
                    kind="paused",
                    group=tenure.group,
                    at_ns=event.run_ns,
                    text=f"{event.node}, master, found itself in a minority and paused at "
                    f"{seconds(event.run_ns)}",
                    evidence={"event": event.row},
                    node=event.node,
                )


def _whole_stops(scene: Scene) -> Iterator[TurningPoint]:
    """Every node was down at once: the queue is what the first to recover it has."""
    nodes = {e.node for e in scene.events} | {o.node for o in scene.around.observations}
    for fault in _whole_outages(scene.around.injected, nodes):
        recovered: dict[str, Tenure] = {}
        for tenure in sorted(scene.tenures, key=lambda each: each.begin_ns):
            if tenure.begin_ns > fault.effective_ns:
                recovered.setdefault(tenure.group, tenure)
        for group, tenure in recovered.items():
            earlier = [
                each
                for each in scene.tenures
                if each.group == group and each.begin_ns <= fault.effective_ns
            ]
            last = max(earlier, key=lambda each: (each.end_ns, each.begin_ns), default=None)
            yield TurningPoint(
                kind="whole-stop",
                group=group,
                at_ns=tenure.begin_ns,
                text=f"every node was stopped by fault {fault.name}; {tenure.node} recovered the "
                f"queue at {seconds(tenure.begin_ns)}",
                evidence={"event" if tenure.witness == "events" else "operation": tenure.evidence},
                node=tenure.node,
                other=last.node if last is not None else "",
                since_ns=fault.effective_ns,
            )


def _whole_outages(faults: Sequence[Fault], nodes: set[str]) -> Iterator[Fault]:
    """The fault that took the last node, each time that none was left."""
    taking = [fault for fault in faults if fault.takes_processes]
    for fault in taking:
        down = {
            node
            for other in taking
            for node in other.nodes
            if other.invoke_ns <= fault.effective_ns <= other.end_ns
        }
        if nodes and nodes <= down:
            yield fault


def _recoveries(scene: Scene) -> Iterator[TurningPoint]:
    """A master that says that it took the queue up from its disk."""
    for event in scene.events:
        if event.kind == "role" and event.detail.get("started_as") == "recovered":
            yield TurningPoint(
                kind="recovered",
                group=event.group,
                at_ns=event.run_ns,
                text=f"{event.node} recovered the queue from its disk at {seconds(event.run_ns)}",
                evidence={"event": event.row},
                node=event.node,
            )


def seconds(at_ns: int) -> str:
    return f"{at_ns / S:.1f} s"
