"""Why messages were lost: which documented window of mirrored queues explains a run of losses.

The windows are numbered as in docs/architecture.md and RabbitMQ's manual describes them: L1 an
unsynchronised mirror is promoted on failure; L2 a mirror joined empty under manual synchronisation
and the master died; L3 the losing side of a partition is discarded (``ignore``, ``autoheal``, and
what a master confirmed before ``pause_minority`` paused it); L4 a restarted mirror wiped its
contents and was promoted before it was synchronised again; L8 the same as L1 on a controlled
shutdown; L11 a suspended master acted on after it was resumed; L12 every node stopped and the first
to start was not the last to stop. L5, L6 and L7 follow from what clients do:
checkers/queues/guarantees.py.

A turning point is an instant at which a queue's contents may have changed hands for the worse, with
the node event, observation or fault that shows it. A run of losses is explained by the first
turning point after its last acknowledgement: what was lost had been acknowledged before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shalott.checkers.history.faults import Fault, Surroundings
from shalott.checkers.history.loss import Run
from shalott.checkers.history.tenures import (
    NodeEvent,
    Tenure,
    event_tenures,
    observed_tenures,
    overlaps,
)

S = 1_000_000_000
CLOCK_SLACK_NS = S  # an acknowledgement may be recorded this much after what made it worthless
SHUTDOWN_NS = 30 * S  # from a master's orderly stop to the promotion that it leads to
DISCARDING = ("discarded", "wiped", "truncated")

WINDOWS = {
    "L1": "an unsynchronised mirror was promoted",
    "L2": "a mirror that had joined empty, and was never synchronised, was promoted",
    "L3": "the losing side of a partition was discarded",
    "L4": "a mirror that had been restarted, and was not synchronised since, was promoted",
    "L5": "a dequeue that needed no acknowledgement was never answered",
    "L6": "the queue or its messages were transient, and no node kept them running",
    "L7": "the publisher had awaited no confirm",
    "L8": "an unsynchronised mirror was promoted on a controlled shutdown",
    "L11": "a suspended master went on acting as master",
    "L12": "every node had stopped; the one that recovered the queue had not stopped last",
    "unexplained": "no node event, observation or fault explains it",
}


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """``evidence`` holds ``event`` (row of the events) or ``operation`` (index in the history)."""

    group: str
    at_ns: int
    window: str  # a key of WINDOWS
    text: str
    evidence: dict[str, Any] = field(default_factory=dict)
    node: str = ""  # whose contents were lost, where known
    in_minority: bool = False  # a master that paused


def turning_points(events: Sequence[NodeEvent], around: Surroundings) -> list[TurningPoint]:
    """Every one of every queue, in order of time."""
    by_events = event_tenures(events, around)
    by_polls = observed_tenures(around.observations)
    # RabbitMQ's log never names a queue's first master: the polls tell of it.
    told = {(tenure.group, tenure.node) for tenure in by_events}
    polled = [tenure for tenure in by_polls if (tenure.group, tenure.node) not in told]
    tenures = [*by_events, *polled]
    promoted = list(_unsynchronised_promotions(events, around))
    known = {point.group for point in promoted}
    found = [
        *promoted,
        *(p for p in _observed_promotions(around, by_polls, events) if p.group not in known),
        *_ended_double_tenures(tenures, events, around),
        *_discards(events, around),
        *_told_windows(events),
        *_paused_minorities(events, tenures, around),
        *_whole_stops(tenures, events, around),
    ]
    return sorted(found, key=lambda point: (point.at_ns, point.window))


def explain(run: Run, points: Sequence[TurningPoint]) -> TurningPoint | None:
    """The turning point, of those of the run's queue, behind the loss of a run."""
    # Only what went through the losing node, or was acknowledged before the split, is lost with it.
    own = [point for point in points if not (run.node and point.node) or run.node == point.node]
    for candidates in (own, points):
        after = [p for p in candidates if p.at_ns >= run.end_ns - CLOCK_SLACK_NS]
        if after:
            return after[0]
    during = [point for point in points if point.at_ns >= run.begin_ns - CLOCK_SLACK_NS]
    return during[-1] if during else None


def _unsynchronised_promotions(
    events: Sequence[NodeEvent], around: Surroundings
) -> Iterator[TurningPoint]:
    for event in events:
        if event.kind == "promoted" and event.detail.get("synchronised") is False:
            shutdown = "shutdown" in str(event.detail.get("reason", "")) or any(
                e.group == event.group and 0 <= event.run_ns - e.run_ns <= SHUTDOWN_NS
                for e in events
                if e.kind == "loss_window" and _named_window(e) == "L8"
            )
            sync_begun = _sync_begun(events, event)
            window = _promotion_window(event.node, event.run_ns, shutdown, sync_begun, around)
            yield TurningPoint(
                group=event.group,
                at_ns=event.run_ns,
                window=window,
                text=f"{event.node} was promoted at {_s(event.run_ns)} without being synchronised",
                evidence={"event": event.row},
            )


def _promotion_window(
    node: str, at_ns: int, shutdown: bool, sync_begun: bool, around: Surroundings
) -> str:
    if shutdown:
        return "L8"
    if sync_begun:
        return "L1"
    restarted = [f for f in around.injected if f.takes_processes and node in f.nodes]
    operated = [t for t, nodes in around.operator_restarts if node in nodes]
    if any(f.invoke_ns < at_ns for f in restarted) or any(t < at_ns for t in operated):
        return "L4"
    return "L2"


def _sync_begun(events: Sequence[NodeEvent], promotion: NodeEvent) -> bool:
    """Whether a synchronisation was begun after the promoted mirror last joined."""
    joined_ns = max(
        (
            e.run_ns
            for e in events
            if e.group == promotion.group
            and e.node == promotion.node
            and e.kind == "role"
            and e.role == "mirror"
            and e.run_ns <= promotion.run_ns
        ),
        default=0,
    )
    return any(
        e.kind == "sync_started"
        and e.group == promotion.group
        and joined_ns <= e.run_ns <= promotion.run_ns
        and promotion.node in e.detail.get("mirrors", (e.node,))
        for e in events
    )


def _observed_promotions(
    around: Surroundings, tenures: Sequence[Tenure], events: Sequence[NodeEvent]
) -> Iterator[TurningPoint]:
    """A new master that its predecessor did not list as synchronised when it was last asked."""
    # A poll is up to a round old: a node's own word about the same promotion is better.
    synchronised = [
        (e.group, e.node, e.run_ns)
        for e in events
        if e.kind == "promoted" and e.detail.get("synchronised") is True
    ]
    last_tenure: dict[str, Tenure] = {}
    for tenure in sorted(tenures, key=lambda r: r.begin_ns):
        old = last_tenure.get(tenure.group)
        last_tenure[tenure.group] = tenure
        if old is None or old.node == tenure.node or old.end_ns > tenure.begin_ns:
            continue
        seen = [
            (poll, claim)
            for poll in around.observations
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
            stopped = any(
                "in-order" in f.effects
                and old.node in f.nodes
                and f.invoke_ns <= tenure.begin_ns <= f.end_ns + S
                for f in around.injected
            )
            window = _promotion_window(tenure.node, tenure.begin_ns, stopped, False, around)
            yield TurningPoint(
                group=tenure.group,
                at_ns=tenure.begin_ns,
                window=window,
                text=f"{tenure.node} was seen as master from {_s(tenure.begin_ns)}; at "
                f"{_s(poll.end_ns)} {old.node} had not listed it as synchronised",
                evidence={"operation": tenure.evidence, "before": poll.index},
            )


def _ended_double_tenures(
    tenures: Sequence[Tenure], events: Sequence[NodeEvent], around: Surroundings
) -> Iterator[TurningPoint]:
    """Two masters at once: the one whose tenure ended first lost what it had acknowledged alone."""
    for overlap in overlaps(tenures, 0):
        loser = min(overlap.first, overlap.second, key=lambda tenure: tenure.end_ns)
        other = overlap.second if loser is overlap.first else overlap.first
        window = _double_tenure_window(loser, overlap.begin_ns, events, around)
        if window:
            key = "event" if loser.witness == "events" else "operation"
            yield TurningPoint(
                group=loser.group,
                at_ns=loser.end_ns,
                window=window,
                text=f"{loser.node} was master beside {other.node} from {_s(overlap.begin_ns)} and "
                f"ceased to be at {_s(loser.end_ns)}",
                evidence={key: loser.evidence},
                node=loser.node,
            )


def _double_tenure_window(
    loser: Tenure, at_ns: int, events: Sequence[NodeEvent], around: Surroundings
) -> str:
    paused = [f for f in around.injected if f.suspends and loser.node in f.nodes]
    if any(f.invoke_ns <= at_ns <= f.end_ns + 5 * S for f in paused):
        return "L11"
    parted = any(f.is_partition and f.invoke_ns <= loser.end_ns for f in around.injected)
    told = any(e.kind == "partition" and e.run_ns <= loser.end_ns for e in events)
    return "L3" if parted or told else ""


def _discards(events: Sequence[NodeEvent], around: Surroundings) -> Iterator[TurningPoint]:
    """A node that says itself that it threw messages away."""
    for event in events:
        if event.kind not in DISCARDING or event.detail.get("count") == 0:
            continue
        window = _discard_window(event, around)
        if window:
            count = event.detail.get("count")
            what = "its messages" if count is None else f"{count} messages"
            yield TurningPoint(
                group=event.group,
                at_ns=event.run_ns,
                window=window,
                text=f"{event.node} {event.kind} {what} at {_s(event.run_ns)}",
                evidence={"event": event.row},
                node=event.node,
            )


def _told_windows(events: Sequence[NodeEvent]) -> Iterator[TurningPoint]:
    """A node that knows itself which window it opens."""
    for event in events:
        window = _named_window(event)
        if event.kind == "loss_window" and window in WINDOWS:
            yield TurningPoint(
                group=event.group,
                at_ns=event.run_ns,
                window=window,
                text=f"{event.node} said at {_s(event.run_ns)}: {event.detail.get('reason')}",
                evidence={"event": event.row},
            )


def _named_window(event: NodeEvent) -> str:
    """The window in a reason such as ``L8: unsynchronised mirrors take over on shutdown``."""
    return str(event.detail.get("reason", "")).partition(":")[0]


def _discard_window(event: NodeEvent, around: Surroundings) -> str:
    before = [f for f in around.injected if f.invoke_ns <= event.run_ns]
    own = [f for f in before if event.node in f.nodes]
    reason = str(event.detail.get("reason", ""))
    if any(word in reason for word in ("autoheal", "partition", "minority")):
        return "L3"
    latest = max(
        [f for f in own if not f.is_partition] + [f for f in before if f.is_partition],
        key=lambda f: f.end_ns if f.end_ns <= event.run_ns else event.run_ns,
        default=None,
    )
    if latest is None:
        return ""
    if latest.is_partition:
        return "L3"
    return "L11" if latest.suspends else ""  # a restarted mirror's wipe alone loses nothing


def _paused_minorities(
    events: Sequence[NodeEvent], tenures: Sequence[Tenure], around: Surroundings
) -> Iterator[TurningPoint]:
    """A master that paused itself in a minority: what it confirmed just before may be gone."""
    for event in events:
        if event.group or event.role != "paused":
            continue
        for tenure in tenures:
            ended_here = abs(tenure.end_ns - event.run_ns) <= S or (
                tenure.begin_ns <= event.run_ns <= tenure.end_ns
            )
            if tenure.node == event.node and ended_here and _parted(around, event.run_ns):
                yield TurningPoint(
                    group=tenure.group,
                    at_ns=event.run_ns,
                    window="L3",
                    text=f"{event.node}, master, found itself in a minority and paused at "
                    f"{_s(event.run_ns)}",
                    evidence={"event": event.row},
                    node=event.node,
                    in_minority=True,
                )


def _parted(around: Surroundings, at_ns: int) -> bool:
    return any(f.is_partition and f.invoke_ns <= at_ns <= f.end_ns + 5 * S for f in around.injected)


def _whole_stops(
    tenures: Sequence[Tenure], events: Sequence[NodeEvent], around: Surroundings
) -> Iterator[TurningPoint]:
    """Every node was down at once: the queue is what the first to recover it has."""
    nodes = {e.node for e in events} | {o.node for o in around.observations}
    for fault in _whole_outages(around.injected, nodes):
        recovered: dict[str, Tenure] = {}
        for tenure in tenures:
            if tenure.begin_ns > fault.effective_ns:
                recovered.setdefault(tenure.group, tenure)
        for group, tenure in recovered.items():
            yield TurningPoint(
                group=group,
                at_ns=tenure.begin_ns,
                window="L12",
                text=f"every node was stopped by fault {fault.name}; {tenure.node} recovered the "
                f"queue at {_s(tenure.begin_ns)}",
                evidence={"event" if tenure.witness == "events" else "operation": tenure.evidence},
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


def _s(at_ns: int) -> str:
    return f"{at_ns / S:.1f} s"
