"""When a queue was left in peace, so that what it did is its own doing.

Theory. Almost nothing of AMQP's promises to consumers holds while a master changes, a link breaks
or a node stands still: unsettled deliveries come again, acknowledgements get lost, consumers are
moved or cancelled. So most rules speak of stretches of time in which that is ruled out, and there
are three kinds of them:

- *ruled*: one process was the queue's master throughout, by the nodes' own event logs (as in
  checkers/queues/redelivery.py), or by unbroken answers to the harness's polls where logs do not
  tell the first master (RabbitMQ). What the master itself knew, it still knows.
- *quiet*: ruled, and besides no fault was in force or had ended shortly before, no node came or
  went, no synchronisation held the queue up, no client deleted it, and the harness ran.
- *inherited*: from the queue's first master on, as long as masters only ended and mirrors were
  promoted in their place. What had been told to all mirrors in time is known to every heir.
- an *heir's*: ruled, by a mirror that was promoted. What it had then it had as a mirror.

A run without any word of masters is quiet until its first fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from shalott.checkers.consumers.intervals import MS, S, Stretch, Timetable, union, without
from shalott.checkers.consumers.rows import QueueChange
from shalott.checkers.history.columns import NEVER, Ints
from shalott.checkers.history.faults import Fault, Surroundings
from shalott.checkers.history.tenures import (
    NodeEvent,
    Tenure,
    ends_tenure,
    event_tenures,
    observed_tenures,
)
from shalott.core.history import History
from shalott.core.op import NEMESIS

AFTER_NS = 5 * S  # so long after its end a fault may still be felt, where nodes tell what they feel
AFTER_SILENT_NS = 15 * S  # where they don't


@dataclass(frozen=True, slots=True)
class Calm:
    """By queue. The last place of ``quiet`` stands for all queues together. ``promoted_ns``: when,
    of each stretch of ``heirs``. ``troubles``: what disturbs every queue, in order."""

    ruled: Timetable
    quiet: Timetable
    inherited: Timetable
    heirs: Timetable
    promoted_ns: Ints
    troubles: tuple[Stretch, ...]
    rough: Timetable


def read_calm(
    queues: Sequence[str],
    around: Surroundings,
    events: Sequence[NodeEvent],
    changes: Sequence[QueueChange],
    mortal: frozenset[str],
) -> Calm:
    masters = Masters(around, events, mortal)
    troubles = list(_troubles(around, events))
    ruled, quiet, inherited, heirs = [], [], [], []
    for code, queue in enumerate(queues):
        changed = [
            (change.begin_ns, min(change.end_ns, around.end_ns) + S)
            for change in changes
            if change.queue == code and not change.failed
        ]
        own = without(masters.ruled(queue), changed)
        ruled.append(own)
        quiet.append(without(own, [*troubles, *_holds(queue, around, events)]))
        inherited.append(without(masters.inherited(queue), changed))
        heirs.append(sorted(masters.heirs(queue, own)))
    everywhere = quiet[0] if quiet else []
    for other in quiet[1:]:
        everywhere = _both(everywhere, other, around.end_ns)
    rough = union(
        (fault.invoke_ns - BEFORE_NS, fault.end_ns + AFTER_NS)
        for fault in around.injected
        if not is_gentle(fault)
    )
    return Calm(
        Timetable.of(ruled),
        Timetable.of([*quiet, everywhere]),
        Timetable.of(inherited),
        Timetable.of([[(begin, end) for begin, end, _ in each] for each in heirs]),
        np.array([at_ns for each in heirs for _, _, at_ns in each], dtype=np.int64),
        tuple(union(troubles)),
        Timetable.of([rough]),
    )


def _both(one: Sequence[Stretch], other: Sequence[Stretch], end_ns: int) -> list[Stretch]:
    return without(one, without([(-S, end_ns + S)], other))


def _troubles(around: Surroundings, events: Sequence[NodeEvent]) -> Iterator[Stretch]:
    """What disturbs every queue."""
    after_ns = AFTER_NS if events else AFTER_SILENT_NS
    for fault in around.injected:
        yield fault.invoke_ns - BEFORE_NS, fault.end_ns + after_ns
    for restart in around.operator_restarts:
        yield restart.begin_ns - BEFORE_NS, restart.end_ns + after_ns
    for stall in around.stalls:
        yield stall.begin_ns - BEFORE_NS, stall.end_ns + S
    for event in events:
        if event.group == "" and event.kind != "resources":
            yield event.run_ns - BEFORE_NS, event.run_ns + S


def _holds(queue: str, around: Surroundings, events: Sequence[NodeEvent]) -> Iterator[Stretch]:
    """Synchronisations, during which a queue serves no client, and changes of its mirrors."""
    begun_ns = NEVER
    for event in events:
        if event.group != queue:
            continue
        if event.kind == "sync_started":
            begun_ns = min(begun_ns, event.run_ns)
        elif event.kind in ("sync_done", "synchronised") and begun_ns != NEVER:
            yield begun_ns - SLACK_NS, event.run_ns + S
            begun_ns = NEVER
        if event.kind in ("role", "promoted", "sync_started", "crashed", "deleted"):
            yield event.run_ns - SLACK_NS, event.run_ns + S
    if begun_ns != NEVER:
        yield begun_ns - SLACK_NS, min(begun_ns + 30 * S, around.end_ns)


# Who was master of a queue, and for how long, by the better witness of each queue: the nodes' own
# event logs, or the harness's polls.

SLACK_NS = 250 * MS  # how far an event log's clock may be apart, with time to act
BEFORE_NS = S // 2  # a fault may begin to show so long before it was asked for, by clocks apart
GENTLE = {"ends-processes", "in-order"}  # effects that leave an heir all that was told in time


def is_gentle(fault: Fault) -> bool:
    """Whether it does no more than end processes: nothing stands still, gets lost or goes wrong."""
    return bool(fault.effects) and GENTLE.issuperset(fault.effects)


def nodes_that_died(history: History) -> frozenset[str]:
    """Whose process ended though no fault asked for it, at any time."""
    died = pc.and_(pc.equal(history.ops["process"], NEMESIS), pc.equal(history.ops["f"], "died"))
    return frozenset(history.ops.filter(died)["node"].to_pylist())


class Masters:
    """Of all queues. ``mortal``: nodes whose last word may well be the last of their lives."""

    def __init__(
        self, around: Surroundings, events: Sequence[NodeEvent], mortal: frozenset[str]
    ) -> None:
        self._around = around
        self._events = events
        self._told: dict[str, list[Tenure]] = {}
        for tenure in event_tenures(events, around):
            whole = tenure if tenure.node in mortal else self._to_the_end(tenure)
            self._told.setdefault(tenure.group, []).append(whole)
        self._seen: dict[str, list[Tenure]] = {}
        for tenure in observed_tenures(around.observations):
            self._seen.setdefault(tenure.group, []).append(tenure)
        self._whole = {
            event.group for event in events if event.role == "master" and _began_as(event)
        }
        self._turns = [event for event in events if _is_turn(event)]

    def _to_the_end(self, tenure: Tenure) -> Tenure:
        """Nodes are not asked in the drain, and say little: one whose log does not end the tenure,
        and that had a word after the last fault, went on.
        """
        own = [event for event in self._events if event.node == tenure.node]
        asked = [event for event in own if event.kind == "replica"]  # by the harness, at the end
        told = [event for event in own if event.kind != "replica"]
        ended = any(
            event.incarnation > tenure.incarnation
            or (event.run_ns >= tenure.end_ns and ends_tenure(event, tenure.group))
            for event in told
        )
        troubles = [(f.invoke_ns, f.end_ns) for f in self._around.injected]
        troubles += [(each.begin_ns, each.end_ns) for each in self._around.operator_restarts]
        killed = any(begin_ns == tenure.end_ns for begin_ns, _ in troubles)
        if ended or killed:
            return tenure
        words = [event.run_ns for event in told]
        words += [e.run_ns for e in asked if e.group == tenure.group and e.role == "master"]
        words += [o.end_ns for o in self._around.observations if o.node == tenure.node and o.ok]
        if max(words) <= max((end_ns for _, end_ns in troubles), default=0):
            return tenure
        return replace(tenure, end_ns=max(tenure.end_ns, self._around.end_ns + SLACK_NS))

    def ruled(self, queue: str) -> list[Stretch]:
        told, seen = self._told.get(queue, []), self._seen.get(queue, [])
        tenures = told if queue in self._whole or not seen else seen
        if not tenures:
            first_ns = min(
                (fault.invoke_ns for fault in self._around.injected), default=self._around.end_ns
            )
            return [(0, first_ns - BEFORE_NS)] if first_ns > BEFORE_NS else []
        stretches: list[Stretch] = []
        for tenure in tenures:
            others = [
                (other.begin_ns - SLACK_NS, other.end_ns + SLACK_NS)
                for other in (*told, *seen)
                if other.node != tenure.node or (other.witness == tenure.witness and
                                                 other.begin_ns != tenure.begin_ns)
            ]  # fmt: skip
            turns = [
                (event.run_ns - SLACK_NS, event.run_ns + SLACK_NS)
                for event in self._turns
                if _disturbs(event, tenure)
            ]
            whole = (tenure.begin_ns + SLACK_NS, tenure.end_ns - SLACK_NS)
            if whole[0] <= whole[1]:
                stretches += without([whole], [*others, *turns])
        return stretches

    def heirs(self, queue: str, ruled: Sequence[Stretch]) -> Iterator[tuple[int, int, int]]:
        """The parts of ``ruled`` in which a mirror that was promoted did, each with when it was."""
        began = {
            (event.node, event.run_ns)
            for event in self._events
            if event.group == queue and event.role == "master" and _began_as(event) == "promoted"
        }
        for tenure in self._told.get(queue, []):
            if (tenure.node, tenure.begin_ns) in began:
                for begin_ns, end_ns in ruled:
                    if tenure.begin_ns <= begin_ns and end_ns <= tenure.end_ns:
                        yield begin_ns, end_ns, tenure.begin_ns

    def inherited(self, queue: str) -> list[Stretch]:
        told = self._told.get(queue, [])
        if queue not in self._whole or not told:
            return []
        end_ns = self._around.end_ns
        ends = [f.invoke_ns for f in self._around.injected if not is_gentle(f)]
        ends += [each.begin_ns for each in self._around.operator_restarts]
        beginnings = [
            event.run_ns
            for event in self._events
            if event.group == queue and event.role == "master" and event.kind == "role"
            and _began_as(event) != "promoted"
        ]  # fmt: skip
        ends += sorted(beginnings)[1:]
        latest_ns = -1
        for tenure in sorted(told, key=lambda each: each.begin_ns):
            if tenure.begin_ns < latest_ns:
                ends.append(tenure.begin_ns)
            latest_ns = max(latest_ns, tenure.end_ns)
        begin_ns = min(tenure.begin_ns for tenure in told) + SLACK_NS
        end_ns = min([end_ns, *(at_ns - BEFORE_NS for at_ns in ends)])
        return [(begin_ns, end_ns)] if begin_ns <= end_ns else []


def _began_as(event: NodeEvent) -> str:
    return str(event.detail.get("started_as") or "")


def _is_turn(event: NodeEvent) -> bool:
    """Whether a node or one of its queues began, ended or changed its role by this."""
    if event.group == "":
        return ends_tenure(event, "") or event.kind in ("started", "starting", "crashed")
    return event.kind in ("role", "crashed", "deleted", "demoted")


def _disturbs(event: NodeEvent, tenure: Tenure) -> bool:
    """Whether another became master, or the master's process may have changed."""
    if event.group == tenure.group and event.role == "master" and event.node != tenure.node:
        return True
    return event.group in ("", tenure.group) and event.node == tenure.node
