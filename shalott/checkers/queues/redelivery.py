"""Deliveries that a queue's master should have flagged as redelivered, and did not.

AMQP 0-9-1 (basic.get-ok, field redelivered) lets a server forget that it delivered a message: a
mirror that is promoted need not know what the dead master handed out last, so a second delivery
without the flag proves nothing in general. The master itself knows, as long as it rules: all that
it takes back was delivered, and it marks it, as rabbit_variable_queue does.

So a pair of deliveries of one message is judged only if one master ruled the queue from before the
first to after the second, by the nodes' own event logs, and nothing happened to the queue's roles
meanwhile. Then at most one delivery is without the flag, and none that began after another had
ended. Where that is broken the master forgot what it did, or two processes served one queue.

A client that worked on a message when its channel ended did not acknowledge it: for total-queue
that is no delivery, but the client had the message, so it counts here. Its row is a dequeue that
failed, with the value as ``extra.given_back``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.history.columns import Operations
from shalott.checkers.history.faults import Surroundings, decode_object
from shalott.checkers.history.tenures import NodeEvent, Tenure, ends_tenure, event_tenures
from shalott.checkers.queues.outcomes import MessageOutcomes
from shalott.core.history import History

MS = 1_000_000
SLACK_NS = 250 * MS  # what an event log's clock may be apart from the harness's, with time to act
JUDGED_MAX = 32  # deliveries of one message, where all is wrong
GIVEN_BACK = "given back"  # how the error of a delivery begins that was not acknowledged
GIVEN_BACK_VALUE = "given_back"  # the key of its value in ``extra``


class Delivery(NamedTuple):
    """A message that a client had, at some time between begin and end."""

    row: int  # position in the operations
    begin_ns: int
    end_ns: int
    flagged: bool


def unflagged(
    ops: Operations,
    outcomes: MessageOutcomes,
    history: History,
    around: Surroundings,
    events: Sequence[NodeEvent],
) -> dict[int, tuple[int, int]]:
    """Messages that one master delivered again without the flag, each with the positions of two
    such deliveries in the operations."""
    rules: _Rules | None = None
    found: dict[int, tuple[int, int]] = {}
    for message, deliveries in _delivered_again(ops, outcomes, history).items():
        suspects = [pair for pair in combinations(deliveries[:JUDGED_MAX], 2) if _lacks_flag(*pair)]
        if not suspects:
            continue
        rules = rules or _Rules(events, around)
        queue = ops.key.names[ops.key.codes[outcomes.messages.row[message]]]
        for first, second in suspects:
            begin_ns = min(first.begin_ns, second.begin_ns)
            if rules.one_master(queue, begin_ns, max(first.end_ns, second.end_ns)):
                found[message] = (first.row, second.row)
                break
    return found


def _delivered_again(
    ops: Operations, outcomes: MessageOutcomes, history: History
) -> dict[int, list[Delivery]]:
    """The deliveries of each message that was delivered more than once."""
    given_back = _given_back(ops, outcomes, history)
    several = np.flatnonzero(outcomes.messages.delivered > 1)
    deliveries = {int(message): list[Delivery]() for message in several} | given_back
    wanted = np.fromiter(deliveries, np.int64, len(deliveries))
    for place in np.flatnonzero(np.isin(outcomes.deliveries.message, wanted)):
        message, row = outcomes.deliveries.message[place], outcomes.deliveries.row[place]
        deliveries[int(message)].append(_delivery(ops, int(row)))
    return deliveries


def _delivery(ops: Operations, row: int) -> Delivery:
    return Delivery(
        row, int(ops.invoke_ns[row]), int(ops.complete_ns[row]), bool(ops.redelivered[row])
    )


def _given_back(
    ops: Operations, outcomes: MessageOutcomes, history: History
) -> dict[int, list[Delivery]]:
    """Deliveries that were not acknowledged because the channel ended, by message."""
    names = tuple(name for name in ops.error.names if name.startswith(GIVEN_BACK))
    rows = np.flatnonzero(ops.error.among(names) & ops.f.equal("dequeue"))
    values, found = outcomes.messages.value, dict[int, list[Delivery]]()
    for row, value in zip(rows, _values_given_back(history, ops.index[rows]), strict=True):
        message = int(np.searchsorted(values, value)) if isinstance(value, int) else len(values)
        if message < len(values) and values[message] == value:
            found.setdefault(message, []).append(_delivery(ops, int(row)))
    return found


def _values_given_back(history: History, indexes: Iterable[int]) -> list[object]:
    wanted = pa.array(list(indexes), pa.int64())
    if not len(wanted):
        return []
    rows = history.ops.filter(pc.is_in(history.ops["index"], wanted))
    return [decode_object(extra).get(GIVEN_BACK_VALUE) for extra in rows["extra"].to_pylist()]


def _lacks_flag(one: Delivery, other: Delivery) -> bool:
    """Whether the later of the two, whichever it is, should have been flagged and is not."""
    if not one.flagged and not other.flagged:
        return True
    earlier, later = sorted((one, other), key=lambda delivery: delivery.begin_ns)
    return not later.flagged and earlier.end_ns < later.begin_ns


class _Rules:
    """Who ruled which queue when, and when roles changed."""

    def __init__(self, events: Sequence[NodeEvent], around: Surroundings) -> None:
        tenures: dict[str, list[Tenure]] = {}
        for tenure in event_tenures(events, around):
            tenures.setdefault(tenure.group, []).append(tenure)
        self._tenures: Mapping[str, Sequence[Tenure]] = tenures
        self._turns = [event for event in events if _is_turn(event)]

    def one_master(self, queue: str, begin_ns: int, end_ns: int) -> bool:
        """Whether one process, and certainly no other, ruled from before begin to after end."""
        begin_ns, end_ns = begin_ns - SLACK_NS, end_ns + SLACK_NS
        present = [
            tenure
            for tenure in self._tenures.get(queue, ())
            if tenure.begin_ns <= end_ns and begin_ns <= tenure.end_ns
        ]
        if len(present) != 1:
            return False
        (tenure,) = present
        if tenure.begin_ns > begin_ns or tenure.end_ns < end_ns:
            return False
        return not any(_disturbs(event, tenure, begin_ns, end_ns) for event in self._turns)


def _is_turn(event: NodeEvent) -> bool:
    """Whether a node or one of its queues began, ended or changed its role by this."""
    if event.group == "":
        return ends_tenure(event, "") or event.kind in ("started", "crashed")
    return event.kind in ("role", "crashed")


def _disturbs(event: NodeEvent, tenure: Tenure, begin_ns: int, end_ns: int) -> bool:
    """Whether another became master since the tenure began, or the master's process may have
    changed between begin and end."""
    if event.group == tenure.group and event.role == "master" and event.node != tenure.node:
        return tenure.begin_ns <= event.run_ns <= end_ns
    is_own = event.group in ("", tenure.group) and event.node == tenure.node
    return is_own and begin_ns <= event.run_ns <= end_ns
