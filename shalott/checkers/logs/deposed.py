"""What became of a master of a replicated log that acknowledged messages which are gone.

Read from events (``acked``, ``elected``, ``role``, ``epoch``, ``truncated``) and faults, in the
order in which things happen: it acknowledges, something hits it, somebody is elected, somebody
becomes master with a log that ends earlier, the former one steps down, and cuts its log. Each that
was seen is a Step with its evidence; the cause is told by which of them were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shalott.checkers.history.faults import Fault, Surroundings
from shalott.checkers.history.loss import Run
from shalott.checkers.history.tenures import NodeEvent

S = 1_000_000_000
SLACK_NS = S // 4  # what lines of nodes' logs and the clients' clock may be apart
UNNOTICED_NS = 30 * S  # how long after its end a fault may be the reason of a change of masters
_BEYOND_ALL = 1 << 62  # an epoch

CAUSES = {
    "unflushed": "what was acknowledged had not been flushed, and a loss of power took it",
    "alone": "a master that was cut off went on acknowledging, and another one took its place",
    "asleep": "a master that had been suspended went on acknowledging when it woke up",
    "deposed": "a master acknowledged when another one had taken its place",
    "behind": "who became master did not have all that the one before had acknowledged",
    "unexplained": "no event and no fault explains it",
}


@dataclass(frozen=True, slots=True)
class Step:
    """``event`` is a row of the events, ``operation`` an index of the history; -1: none."""

    says: str
    at_ns: int
    node: str = ""
    event: int = -1
    operation: int = -1

    def detail(self) -> dict[str, Any]:
        proof = {"event": self.event, "operation": self.operation}
        told = {"says": self.says, "at_ns": self.at_ns, "node": self.node}
        return told | {name: at for name, at in proof.items() if at >= 0}


@dataclass(frozen=True, slots=True)
class Fate:
    cause: str  # a key of CAUSES
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """Of each group its events, in order of time."""

    by_group: dict[str, list[NodeEvent]]
    around: Surroundings

    @staticmethod
    def read(events: Sequence[NodeEvent], around: Surroundings) -> Scene:
        by_group: dict[str, list[NodeEvent]] = {}
        for event in events:
            by_group.setdefault(event.group, []).append(event)
        return Scene(by_group, around)


@dataclass(frozen=True, slots=True)
class _Ack:
    """The word of ``node`` that the run was acknowledged; ``end``: how far its log was then."""

    event: NodeEvent
    end: int


def what_happened(scene: Scene, group: str, run: Run) -> Fate:
    """To the node that acknowledged a run of losses, and so to its messages."""
    events = scene.by_group.get(group, [])
    ack = _acknowledgement(events, run)
    begun = _successor(events, run, ack)
    until_ns = begun.run_ns if begun is not None else scene.around.end_ns
    hits = list(_hits(scene.around, run, ack, until_ns))
    steps = [
        *([_acknowledged(ack, run)] if ack else []),
        *(Step(says, f.invoke_ns, run.node, operation=f.index) for says, f in hits),
    ]
    if begun is not None:
        steps += [*_elected(events, begun), _became(begun, ack)]
        steps += _afterwards(events, run, begun, ack)
    steps.sort(key=lambda step: step.at_ns)
    return Fate(_cause(events, run, begun, ack, [fault for _, fault in hits]), tuple(steps))


def _acknowledgement(events: Sequence[NodeEvent], run: Run) -> _Ack | None:
    """The first word of the node that reaches to the run's end."""
    for event in events:
        if event.kind == "acked" and event.node == run.node:
            last_ns = int(event.detail.get("last_ns", event.at_ns)) + event.run_ns - event.at_ns
            first_ns = int(event.detail.get("first_ns", event.at_ns)) + event.run_ns - event.at_ns
            if last_ns >= run.end_ns - SLACK_NS and first_ns <= run.end_ns + SLACK_NS:
                return _Ack(event, int(event.detail.get("end") or 0))
    return None


def _acknowledged(ack: _Ack, run: Run) -> Step:
    event = ack.event
    says = f"{event.node} acknowledged as master, in epoch {event.epoch}"
    if ack.end:
        says += f", its log up to {ack.end}"
    holders = event.detail.get("holders")
    if isinstance(holders, list) and not holders:
        says += ", alone: it knew of nobody else who had it"
    return Step(says, run.begin_ns, event.node, event=event.row)


def _successor(events: Sequence[NodeEvent], run: Run, ack: _Ack | None) -> NodeEvent | None:
    """Who became master after the run, or during it, or before it unnoticed by the node: another
    node, or that one in another life. The first whose log ends earlier, if any does: a node that
    dies takes its last words of what it acknowledged with it."""
    found: NodeEvent | None = None
    epoch = _own_epoch(events, run, ack)
    for event in events:
        if event.kind not in ("role", "epoch") or event.role != "master":
            continue
        if ack is None:
            is_later = event.run_ns >= run.begin_ns or event.epoch > epoch
            same_life = event.node == run.node
        else:
            same_life = (event.node, event.incarnation) == (run.node, ack.event.incarnation)
            again = event.node == run.node and event.incarnation > ack.event.incarnation
            is_later = event.epoch > ack.event.epoch or again
        if same_life or not is_later:
            continue
        end = event.detail.get("end")
        if ack is not None and ack.end and isinstance(end, int) and end < ack.end:
            return event
        found = found or event
    return found


def _hits(
    around: Surroundings, run: Run, ack: _Ack | None, until_ns: int
) -> Iterator[tuple[str, Fault]]:
    """Faults of the node that were in force from the run on until there was another master, and
    losses of power that it had come back from."""
    again = ack is not None and ack.event.incarnation > 1
    for fault in around.injected:
        near = fault.invoke_ns <= until_ns and fault.end_ns + UNNOTICED_NS >= run.begin_ns
        if not near or not _touches(fault, run.node):
            continue
        over = fault.end_ns < run.begin_ns
        if fault.takes_power:
            if not over or again:
                yield f"{run.node} lost its power: fault {fault.name}", fault
        elif fault.takes_processes:
            if not over:
                yield f"{run.node} ended: fault {fault.name}", fault
        elif fault.suspends:
            yield f"{run.node} was suspended: fault {fault.name}", fault
        elif fault.is_partition and not over:
            yield f"{run.node} was cut off: fault {fault.name}", fault


def _touches(fault: Fault, node: str) -> bool:
    return node in fault.nodes or any(node in link for link in fault.links)


def _elected(events: Sequence[NodeEvent], begun: NodeEvent) -> Iterator[Step]:
    for event in events:
        is_own = event.detail.get("master") == begun.node and event.epoch == begun.epoch
        if event.kind == "elected" and is_own:
            members = event.detail.get("set")
            of = f" out of {{{', '.join(map(str, members))}}}" if members else ""
            yield Step(
                f"the controllers' leader {event.node} elected {begun.node} for epoch"
                f" {event.epoch}{of}",
                event.run_ns,
                event.node,
                event=event.row,
            )
            return


def _became(begun: NodeEvent, ack: _Ack | None) -> Step:
    again = ack is not None and ack.event.node == begun.node
    says = f"{begun.node} {'came back as' if again else 'became'} master in epoch {begun.epoch}"
    end = begun.detail.get("end")
    if isinstance(end, int):
        says += f" with a log that ends at {end}"
        if ack is not None and ack.end > end:
            says += f", before {ack.end}"
    return Step(says, begun.run_ns, begun.node, event=begun.row)


def _afterwards(
    events: Sequence[NodeEvent], run: Run, begun: NodeEvent, ack: _Ack | None
) -> Iterator[Step]:
    """How the former master heard of it, and what was cut off anybody's log because of it."""
    epoch = ack.event.epoch if ack is not None else -1
    elected = [step.at_ns for step in _elected(events, begun)]
    since_ns = min([begun.run_ns, *elected])
    for event in events:
        was = event.node == run.node and event.run_ns >= since_ns and run.node != begun.node
        if was and event.kind == "role" and event.role != "master":
            now = f": it is a {event.role} now" if event.role not in ("", "none") else ""
            yield Step(f"{event.node} was deposed{now}", event.run_ns, event.node, event=event.row)
            break
    end = ack.end if ack is not None else 0
    for event in events:
        if event.kind != "truncated" or event.run_ns < run.begin_ns or event.epoch < epoch:
            continue
        before, to = event.detail.get("from"), event.detail.get("to")
        if isinstance(to, int) and (event.node == run.node or not end or to < end):
            says = f"{event.node} cut its log from {before} down to {to}"
            yield Step(says, event.run_ns, event.node, event=event.row)


def _own_epoch(events: Sequence[NodeEvent], run: Run, ack: _Ack | None) -> int:
    """In which the node acknowledged the run: its own last one until then; if it was never seen as
    master, none that anybody could be beyond."""
    if ack is not None:
        return ack.event.epoch
    own = [
        event.epoch
        for event in events
        if event.node == run.node
        and (event.kind, event.role) == ("role", "master")
        and event.run_ns <= run.begin_ns
    ]
    return max(own, default=_BEYOND_ALL)


def _was_deposed(events: Sequence[NodeEvent], run: Run, ack: _Ack | None) -> bool:
    """Whether another node was elected, or was master, in a later epoch, before the node
    acknowledged the run."""
    before = [event for event in events if event.run_ns <= run.begin_ns]
    epoch = _own_epoch(events, run, ack)
    return any(
        event.epoch > epoch
        and (
            (event.kind == "elected" and event.detail.get("master") not in (None, run.node))
            or (event.node != run.node and (event.kind, event.role) == ("role", "master"))
        )
        for event in before
    )


def _cause(
    events: Sequence[NodeEvent],
    run: Run,
    begun: NodeEvent | None,
    ack: _Ack | None,
    hits: Sequence[Fault],
) -> str:
    if any(fault.takes_power for fault in hits):
        return "unflushed"
    if begun is None:
        return "unexplained"
    if any(f.is_partition and f.invoke_ns <= run.end_ns + SLACK_NS for f in hits):
        return "alone"
    if any(f.suspends and f.invoke_ns <= run.end_ns for f in hits):
        return "asleep"
    if _was_deposed(events, run, ack):
        return "deposed"
    end = begun.detail.get("end")
    shorter = ack is not None and isinstance(end, int) and end < ack.end
    return "behind" if shorter or (ack is None and hits) else "unexplained"
