"""When a queue was left in peace, so that what it did is its own doing.

Theory. Almost nothing of AMQP's promises to consumers holds while a master changes, a link breaks
or a node stands still: unsettled deliveries come again, acknowledgements get lost, consumers are
moved or cancelled. So most rules speak of stretches of time in which that is ruled out, and there
are three kinds of them:

- *ruled*: one process was the queue's master throughout, by the nodes' own event logs (as in
  checkers/queues/redelivery.py), or by unbroken answers to the harness's polls where logs do not
  tell the first master (RabbitMQ). What the master itself knew, it still knows.
- *quiet*: ruled, and besides no fault was in force or had ended shortly before, no node came or
  went, no synchronisation held the queue up, nobody deleted it, and the harness ran.
- *inherited*: from the queue's first master on, as long as masters only ended and mirrors were
  promoted in their place. What had been told to all mirrors in time is known to every heir.
- an *heir's*: ruled, by a mirror that was promoted. What it had then it had as a mirror.

A run without any word of masters is quiet until its first fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.case.intervals import S, Stretch, Timetable, union, without
from shalott.checkers.consumers.case.masters import BEFORE_NS, SLACK_NS, Masters, is_gentle
from shalott.checkers.consumers.rows.rows import QueueChange
from shalott.checkers.history.columns import NEVER, Ints
from shalott.checkers.history.faults import Surroundings
from shalott.checkers.history.tenures import NodeEvent

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
    """Synchronisations, during which a queue serves nobody, and changes of its mirrors."""
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
