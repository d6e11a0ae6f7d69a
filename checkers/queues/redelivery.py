"""Deliveries that a queue's master should have flagged as redelivered, and did not.

AMQP 0-9-1 (basic.get-ok, field redelivered) lets a server forget that it delivered a message: a
mirror that is promoted need not know what the dead master handed out last, so a second delivery
without the flag proves nothing in general. The master itself knows, as long as it rules: whatever
it takes back was delivered, and it marks it, as rabbit_variable_queue does.

So a pair of deliveries of one message is judged only if one master ruled the queue from before the
first to after the second, by the nodes' own event logs, and nothing happened to the queue's roles
meanwhile. Then at most one delivery is without the flag, and none that began after another had
ended. Where that is broken the master forgot what it did, or two processes served one queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from shalott.checkers.history.columns import Bools, Ints, Operations
from shalott.checkers.history.faults import Surroundings
from shalott.checkers.history.tenures import NodeEvent, Tenure, ends_tenure, event_tenures
from shalott.checkers.queues.outcomes import MessageOutcomes

MS = 1_000_000
SLACK_NS = 250 * MS  # what an event log's clock may be apart from the harness's, with time to act
PAIRS_MAX = 10_000  # of a history in which all is wrong, enough


def unflagged(
    ops: Operations,
    outcomes: MessageOutcomes,
    around: Surroundings,
    events: Sequence[NodeEvent],
) -> Bools:
    """For each message, whether one master delivered it again without the flag."""
    found = np.zeros(len(outcomes.messages.value), dtype=np.bool_)
    suspects = list(_suspects(ops, outcomes))
    if not suspects:
        return found
    rules = _Rules(events, around)
    for message, begin_ns, end_ns in suspects[:PAIRS_MAX]:
        queue = ops.key.names[ops.key.codes[outcomes.messages.row[message]]]
        if not found[message] and rules.one_master(queue, begin_ns, end_ns):
            found[message] = True
    return found


def _suspects(ops: Operations, outcomes: MessageOutcomes) -> Iterator[tuple[int, int, int]]:
    """(message, begin, end) of pairs of deliveries of which the later one lacks the flag."""
    several = np.flatnonzero(outcomes.messages.delivered > 1)
    rows_of = _rows_by_message(outcomes, several)
    for message in map(int, several):
        for first, second in combinations(rows_of[message], 2):
            if _lacks_flag(ops, first, second) or _lacks_flag(ops, second, first):
                yield (
                    message,
                    int(min(ops.invoke_ns[first], ops.invoke_ns[second])),
                    int(max(ops.complete_ns[first], ops.complete_ns[second])),
                )


def _rows_by_message(outcomes: MessageOutcomes, wanted: Ints) -> dict[int, list[int]]:
    deliveries = outcomes.deliveries
    rows: dict[int, list[int]] = {int(message): [] for message in wanted}
    for place in np.flatnonzero(np.isin(deliveries.message, wanted)):
        rows[int(deliveries.message[place])].append(int(deliveries.row[place]))
    return rows


def _lacks_flag(ops: Operations, earlier: int, later: int) -> bool:
    """Whether ``later``, if it is that, should have been flagged."""
    if ops.redelivered[later]:
        return False
    ended_before = ops.complete_ns[earlier] < ops.invoke_ns[later]
    return bool(ended_before or not ops.redelivered[earlier])


class _Rules:
    """Who ruled which queue when, and when roles changed."""

    def __init__(self, events: Sequence[NodeEvent], around: Surroundings) -> None:
        self._tenures: dict[str, list[Tenure]] = {}
        for tenure in event_tenures(events, around):
            self._tenures.setdefault(tenure.group, []).append(tenure)
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
        return not any(
            begin_ns <= event.run_ns <= end_ns
            and (
                (event.group == queue and (event.role == "master" or event.node == tenure.node))
                or (event.group == "" and event.node == tenure.node)
            )
            for event in self._turns
        )


def _is_turn(event: NodeEvent) -> bool:
    """Whether a node or one of its queues began, ended or changed its role by this."""
    if event.group == "":
        return ends_tenure(event, "") or event.kind in ("started", "crashed")
    return event.kind in ("role", "crashed")
