"""The documented windows of loss of mirrored queues, and what must be seen for each to be named.

They are numbered as in docs/evidence/loss-windows.md and as RabbitMQ's manual describes them: L1 an
unsynchronised mirror is promoted on failure; L2 a mirror joined empty under manual synchronisation
and the master died; L3 the losing side of a partition is discarded (``ignore``, ``autoheal``, and
what a master confirmed before ``pause_minority`` paused it); L4 a restarted mirror wiped its
contents and was promoted before it was synchronised again; L6 what is transient does not outlive a
restart; L7 no client awaited a confirm; L8 the same as L1 on a controlled shutdown; L11 a suspended
master acted on after it was resumed; L12 every node stopped and the first to start was not the last
to stop. L5, and what else of L7 follows from what clients do: checkers/queues/guarantees.py.

A window is a record: of which turning points it speaks, and its steps. A step is a predicate over
the run of losses, the turning point, and all events, probes, observations and faults; it answers
with the evidence that it saw, or None. A loss has a window's name only if each step is seen. The
last step of each is the lost messages' own time line: they were acknowledged when, and through
whom, what this window takes was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shalott.checkers.history.faults import Fault
from shalott.checkers.history.loss import Run
from shalott.checkers.history.tenures import NodeEvent
from shalott.checkers.queues.turning_points import CLOCK_SLACK_NS, Kind, S, Scene, TurningPoint

SHUTDOWN_NS = 30 * S  # from a master's orderly stop to the promotion that it leads to
UNNOTICED_NS = 30 * S  # how long after its end a fault may be the reason of a promotion
RESUMED_NS = 10 * S  # how long after it wakes up a master may take itself for one

Evidence = Mapping[str, object]  # event: row of the events; operation: index in the history


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One run of losses held against one turning point.

    ``through``: the nodes that its publishes went through. ``transient``: what does not outlive a
    restart, in words, or "". ``confirms``: whether the publishers awaited them.
    """

    scene: Scene
    point: TurningPoint
    run: Run
    through: tuple[str, ...]
    transient: str = ""
    confirms: bool = True

    @property
    def own_events(self) -> Iterator[NodeEvent]:
        """Those of the queue on the turning point's node."""
        point = self.point
        return (e for e in self.scene.events if (e.group, e.node) == (point.group, point.node))

    @property
    def faults_before(self) -> Iterator[Fault]:
        at_ns = self.point.at_ns
        return (f for f in self.scene.around.injected if f.invoke_ns <= at_ns)


@dataclass(frozen=True, slots=True)
class Step:
    """``says`` is what must be seen, as a sentence; ``seen`` answers with what shows it."""

    says: str
    seen: Callable[[Look], Evidence | None]


@dataclass(frozen=True, slots=True)
class Window:
    id: str
    text: str
    kinds: tuple[Kind, ...]
    steps: tuple[Step, ...]


# --- promotions -----------------------------------------------------------------------------------


def _point_itself(look: Look) -> Evidence | None:
    return look.point.evidence


def _predecessor_gone(look: Look) -> Evidence | None:
    other, at_ns = look.point.other, look.point.at_ns
    if not other:
        return None
    for fault in look.faults_before:
        hit = other in fault.nodes and (fault.takes_processes or fault.suspends)
        if (hit or _cuts(fault, other)) and at_ns <= fault.end_ns + UNNOTICED_NS:
            return {"operation": fault.index}
    for each in look.scene.around.operator_restarts:
        if other in each.nodes and each.begin_ns <= at_ns <= each.begin_ns + UNNOTICED_NS:
            return {"at_ns": each.begin_ns}
    claims = [
        t
        for t in look.scene.tenures
        if (t.group, t.node) == (look.point.group, other) and t.begin_ns <= at_ns
    ]
    last = max(claims, key=lambda t: t.end_ns, default=None)
    if last is not None and last.end_ns <= at_ns + CLOCK_SLACK_NS:
        return {"event" if last.witness == "events" else "operation": last.evidence}
    return None


def _joined(look: Look) -> NodeEvent | None:
    """The promoted mirror's last beginning as one."""
    joins = (e for e in look.own_events if e.role == "mirror" and e.kind in ("role", "wiped"))
    before = (e for e in joins if e.run_ns <= look.point.at_ns)
    return max(before, key=lambda e: e.run_ns, default=None)


def _sync_begun(look: Look) -> NodeEvent | None:
    """A synchronisation of the promoted mirror since it joined: it threw away what it had."""
    joined = _joined(look)
    since_ns = joined.run_ns if joined is not None else 0
    for event in reversed(look.scene.events):
        begun = (event.kind, event.group) == ("sync_started", look.point.group)
        of_it = look.point.node in event.detail.get("mirrors", (event.node,))
        if begun and of_it and since_ns <= event.run_ns <= look.point.at_ns:
            return event
    return None


def _is_synchronising(look: Look) -> Evidence | None:
    begun = _sync_begun(look)
    return {"event": begun.row} if begun is not None else None


def _never_synchronised(look: Look) -> Evidence | None:
    return {} if _sync_begun(look) is None else None


def _restart(look: Look) -> Evidence | None:
    joined, node = _joined(look), look.point.node
    until_ns = joined.run_ns if joined is not None else look.point.at_ns
    for fault in look.faults_before:
        if fault.takes_processes and node in fault.nodes and fault.invoke_ns <= until_ns:
            return {"operation": fault.index}
    for each in look.scene.around.operator_restarts:
        if node in each.nodes and each.begin_ns <= until_ns:
            return {"at_ns": each.begin_ns}
    if joined is not None and joined.incarnation > 1:
        return {"event": joined.row}
    return None


def _not_restarted(look: Look) -> Evidence | None:
    return {} if _restart(look) is None else None


def _orderly_stop(look: Look) -> Evidence | None:
    point = look.point
    if "shutdown" in point.reason:
        return point.evidence
    for event in look.scene.events:
        told = event.kind == "loss_window" and str(event.detail.get("reason", "")).startswith("L8")
        by_master = (event.group, event.node) == (point.group, point.other)
        if told and by_master and 0 <= point.at_ns - event.run_ns <= SHUTDOWN_NS:
            return {"event": event.row}
    if "before" in point.evidence:  # no node tells of itself: only what was seen of it
        for fault in look.faults_before:
            orderly = "in-order" in fault.effects and point.other in fault.nodes
            if orderly and point.at_ns <= fault.end_ns + S:
                return {"operation": fault.index}
    return None


def _no_orderly_stop(look: Look) -> Evidence | None:
    return {} if _orderly_stop(look) is None else None


def _acknowledged_before_it_had_them(look: Look) -> Evidence | None:
    """A mirror has what was published since it joined, or since its synchronisation began."""
    joined, begun = _joined(look), _sync_begun(look)
    if joined is None:
        if "before" not in look.point.evidence:
            return None
        begins_ns, row = look.point.at_ns, look.point.evidence
    else:
        latest = begun if begun is not None else joined
        begins_ns, row = latest.run_ns, {"event": latest.row}
    return row if look.run.end_ns <= begins_ns + CLOCK_SLACK_NS else None


# --- partitions and suspended masters -------------------------------------------------------------


def _cuts(fault: Fault, node: str) -> bool:
    if not fault.is_partition:
        return False
    if fault.links:
        return any(node in link for link in fault.links)
    return node in fault.nodes or not fault.nodes


def _cut_apart(fault: Fault, one: str, other: str) -> bool:
    """Both ways: through a link that is cut one way a publish, or its confirm, may still come."""
    return (one, other) in fault.links and (other, one) in fault.links


def _partition(look: Look) -> Fault | None:
    """The last one that cut the loser off, and had begun when the first message was lost."""
    cuts = [f for f in look.faults_before if _cuts(f, look.point.node)]
    begun = [f for f in cuts if f.effective_ns <= look.run.begin_ns + CLOCK_SLACK_NS]
    return max(begun, key=lambda f: f.effective_ns, default=None)


def _was_cut_off(look: Look) -> Evidence | None:
    fault = _partition(look)
    if fault is not None:
        return {"operation": fault.index}
    for event in look.scene.events:  # a network that no fault was to break
        of_it = look.point.node in (event.node, event.detail.get("with"))
        in_time = event.run_ns <= look.run.begin_ns + CLOCK_SLACK_NS
        if event.kind == "partition" and of_it and in_time:
            return {"event": event.row}
    return None


def _was_master(since_ns: int, look: Look) -> Evidence | None:
    """The loser claimed the queue at some time from an instant to the turning point."""
    for tenure in look.scene.tenures:
        own = (tenure.group, tenure.node) == (look.point.group, look.point.node)
        if own and tenure.begin_ns <= look.point.at_ns and tenure.end_ns >= since_ns:
            return {"event" if tenure.witness == "events" else "operation": tenure.evidence}
    return None


def _was_master_apart(look: Look) -> Evidence | None:
    return _was_master(look.run.begin_ns - CLOCK_SLACK_NS, look)


def _another_took_over(look: Look) -> Evidence | None:
    """Another node was master when the loser had ceased to be one, or already before."""
    point = look.point
    for tenure in look.scene.tenures:
        another = tenure.group == point.group and tenure.node != point.node
        if another and tenure.end_ns >= look.run.begin_ns - CLOCK_SLACK_NS:
            return {"event" if tenure.witness == "events" else "operation": tenure.evidence}
    return None


def _acknowledged_alone(look: Look) -> Evidence | None:
    """Through its side, until it gave up; and by itself, where masters tell what they confirm."""
    run, fault = look.run, _partition(look)
    if run.end_ns > look.point.at_ns + CLOCK_SLACK_NS:
        return None
    beyond = [
        n for n in look.through if fault is not None and _cut_apart(fault, n, look.point.node)
    ]
    return None if beyond else _confirmed(look, run.begin_ns)


def _confirmed(look: Look, since_ns: int) -> Evidence | None:
    """That the loser confirmed writes between then and the last lost one. {}: masters of this
    system do not tell."""
    acked = [e for e in look.scene.events if e.kind == "acked" and e.group == look.point.group]
    if not acked:
        return {}
    for event in acked:
        if event.node != look.point.node:
            continue
        first_ns, last_ns = event.bounds_ns("first_ns")[0], event.bounds_ns("last_ns")[1]
        if first_ns <= look.run.end_ns + CLOCK_SLACK_NS and last_ns >= since_ns - CLOCK_SLACK_NS:
            return {"event": event.row}
    return None


def _suspension(look: Look) -> Fault | None:
    point = look.point
    own = [f for f in look.faults_before if f.suspends and point.node in f.nodes]
    near = [f for f in own if point.at_ns <= f.end_ns + RESUMED_NS]
    return max(near, key=lambda f: f.effective_ns, default=None)


def _was_suspended(look: Look) -> Evidence | None:
    fault = _suspension(look)
    return {"operation": fault.index} if fault is not None else None


def _was_master_then(look: Look) -> Evidence | None:
    fault = _suspension(look)
    for tenure in look.scene.tenures if fault is not None else ():
        own = (tenure.group, tenure.node) == (look.point.group, look.point.node)
        if own and fault is not None and tenure.begin_ns <= fault.invoke_ns <= tenure.end_ns:
            return {"event" if tenure.witness == "events" else "operation": tenure.evidence}
    return None


def _replaced_meanwhile(look: Look) -> Evidence | None:
    fault, point = _suspension(look), look.point
    for tenure in look.scene.tenures if fault is not None else ():
        another = tenure.group == point.group and tenure.node != point.node
        begun = fault is not None and fault.effective_ns <= tenure.begin_ns <= point.at_ns
        if another and begun:
            return {"event" if tenure.witness == "events" else "operation": tenure.evidence}
    return None


def _acknowledged_by_it(look: Look) -> Evidence | None:
    fault, run = _suspension(look), look.run
    if fault is None or run.end_ns > look.point.at_ns + CLOCK_SLACK_NS:
        return None
    if run.begin_ns < fault.effective_ns - CLOCK_SLACK_NS:
        return None
    return _confirmed(look, run.begin_ns)


# --- stops of every node, and what is transient ---------------------------------------------------


def _all_were_down(look: Look) -> Evidence | None:
    for fault in look.scene.around.injected:
        if fault.takes_processes and fault.effective_ns == look.point.since_ns:
            return {"operation": fault.index}
    return None


def _another_was_last(look: Look) -> Evidence | None:
    other = look.point.other
    return {} if other and other != look.point.node else None


def _acknowledged_before_it(look: Look) -> Evidence | None:
    until_ns = look.point.since_ns or look.point.at_ns
    return {} if look.run.end_ns <= until_ns + CLOCK_SLACK_NS else None


def _is_transient(look: Look) -> Evidence | None:
    return {} if look.transient else None


def _no_confirms(look: Look) -> Evidence | None:
    return None if look.confirms else {}


_PROMOTED = Step("a mirror that was not synchronised was promoted", _point_itself)
_GONE = Step("its predecessor had failed, or was out of reach", _predecessor_gone)
_BEFORE_JOIN = Step(
    "what was lost had been acknowledged before that mirror joined, or began to synchronise",
    _acknowledged_before_it_had_them,
)
_CUT = Step("the node was cut off before the first lost message", _was_cut_off)
_MASTER = Step("it was master of the queue meanwhile", _was_master_apart)
_OTHER = Step("another node was master of the queue, too, or after it", _another_took_over)
_GAVE_UP = Step("it ceased to be master, or threw messages away", _point_itself)
_ALONE = Step("what was lost had been acknowledged on its side meanwhile", _acknowledged_alone)
_BEFORE = Step("what was lost had been acknowledged before", _acknowledged_before_it)
_ORDERLY = Step("its predecessor was stopped in order", _orderly_stop)
_NOT_ORDERLY = Step("its predecessor was not stopped in order", _no_orderly_stop)
_SYNC = Step("a synchronisation of that mirror had begun", _is_synchronising)
_NO_SYNC = Step("no node had synchronised that mirror since it joined", _never_synchronised)
_RECOVERED = Step("the queue was recovered", _point_itself)
_ALL_DOWN = Step("every node was down at once", _all_were_down)
_TRANSIENT = Step("the queue or its messages were transient", _is_transient)
_PARTED = (_CUT, _MASTER, _OTHER, _GAVE_UP, _ALONE)

# In the order in which they are tried at one turning point.
REPLICA_WINDOWS = (
    Window(
        "L8",
        "an unsynchronised mirror was promoted on a controlled shutdown",
        ("promotion",),
        (_PROMOTED, _ORDERLY, _GONE, _BEFORE_JOIN),
    ),
    Window(
        "L1",
        "an unsynchronised mirror was promoted",
        ("promotion",),
        (_PROMOTED, _NOT_ORDERLY, _GONE, _SYNC, _BEFORE_JOIN),
    ),
    Window(
        "L4",
        "a mirror that had been restarted, and was not synchronised since, was promoted",
        ("promotion",),
        (
            *(_PROMOTED, _NOT_ORDERLY, _GONE, _NO_SYNC),
            Step("that mirror had been restarted", _restart),
            _BEFORE_JOIN,
        ),
    ),
    Window(
        "L2",
        "a mirror that had joined empty, and was never synchronised, was promoted",
        ("promotion",),
        (
            *(_PROMOTED, _NOT_ORDERLY, _GONE, _NO_SYNC),
            Step("that mirror had not been restarted", _not_restarted),
            _BEFORE_JOIN,
        ),
    ),
    Window(
        "L11",
        "a suspended master went on acting as master",
        ("double", "discard"),
        (
            Step("the node was suspended", _was_suspended),
            Step("it was master of the queue when it was suspended", _was_master_then),
            Step("another node became master meanwhile", _replaced_meanwhile),
            _GAVE_UP,
            Step("what was lost had been acknowledged by it since", _acknowledged_by_it),
        ),
    ),
    Window(
        "L7",
        "the publisher had awaited no confirm",
        ("paused",),
        (Step("no client awaited a confirm", _no_confirms), *_PARTED),
    ),
    Window(
        "L3",
        "the losing side of a partition was discarded",
        ("double", "discard", "paused"),
        _PARTED,
    ),
    Window(
        "L6",
        "the queue or its messages were transient, and no node kept them running",
        ("whole-stop", "recovered"),
        (_TRANSIENT, _RECOVERED, _BEFORE),
    ),
    Window(
        "L12",
        "every node had stopped; the one that recovered the queue had not stopped last",
        ("whole-stop",),
        (
            _ALL_DOWN,
            _RECOVERED,
            Step("another node had been the last master", _another_was_last),
            _BEFORE,
        ),
    ),
)


# --- which window explains a run of losses --------------------------------------------------------
#
# A run is held against each turning point of its queue (checkers/queues/turning_points.py) and each
# window that speaks of such, in order of time. The first window whose steps are all seen explains
# it; if there is none, nothing documented does, and the loss is "unexplained". A window that the
# plan's settings rule out is not looked at: where it is seen nevertheless, that is no excuse but
# another fault of the broker.

__all__ = ["CLOCK_SLACK_NS", "WINDOWS", "Explanation", "Guarded", "S", "explain"]

WINDOWS = {
    **{window.id: window.text for window in REPLICA_WINDOWS},
    "L5": "a dequeue that needed no acknowledgement was never answered",
    "unexplained": "no documented window of loss explains it",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """``evidence`` holds ``event`` (row of the events) or ``operation`` (index in the history);
    ``steps`` what was seen of each step of the window, in its order."""

    window: str  # a key of WINDOWS
    text: str
    evidence: dict[str, object] = field(default_factory=dict)
    steps: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Guarded:
    """What clients and settings rule out, and let in. ``closed``: ids of windows."""

    closed: Collection[str] = ()
    transient: str = ""
    confirms: bool = True


def explain(
    run: Run,
    through: Sequence[str],
    points: Sequence[TurningPoint],
    scene: Scene,
    guarded: Guarded = Guarded(),  # noqa: B008 - frozen
) -> Explanation | None:
    """What is behind the loss of a run whose publishes went through those nodes.

    ``points``: those of the run's queue, in order of time.
    """
    windows = [window for window in REPLICA_WINDOWS if window.id not in guarded.closed]
    # What took the messages came after the last of them was acknowledged.
    for point in points:
        if point.at_ns < run.end_ns - CLOCK_SLACK_NS:
            continue
        look = Look(
            scene=scene,
            point=point,
            run=run,
            through=tuple(through),
            transient=guarded.transient,
            confirms=guarded.confirms,
        )
        for found in _explanations(look, windows):
            return found
    return None


def _explanations(look: Look, windows: Sequence[Window]) -> Iterator[Explanation]:
    for window in windows:
        if look.point.kind not in window.kinds:
            continue
        steps = []
        for step in window.steps:
            evidence = step.seen(look)
            if evidence is None:
                break
            steps.append({"says": step.says, **evidence})
        else:
            text = look.point.text
            if window.id == "L6":
                text = f"{text}; {look.transient}"
            yield Explanation(window.id, text, dict(look.point.evidence), tuple(steps))
