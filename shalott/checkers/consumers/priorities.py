"""Who and what goes first: message priorities, and priorities of consumers.

Sources. RabbitMQ, Classic Queues Support Priorities, Interaction with Consumers: with a limit of
unsettled deliveries a high-priority message does not wait for low-priority ones that are still in
the queue, only for those that are with consumers. RabbitMQ, Consumer Priorities: "messages only go
to lower priority consumers when the high priority consumers block", which they do when their limit
of unsettled deliveries is reached or their network is congested.

Theory. A message was certainly ready from its confirm on, until it came for the first time. What
came meanwhile, and ``LATE_NS`` apart from both ends, was chosen while it waited; so was what came
to a consumer that began meanwhile; and on the channel on which it came itself nothing needs to be
apart at the end. A consumer had certainly room if what it had been given by ``LATE_NS`` later, less
what it had settled with an answer ``LATE_NS`` before, is below its limit; consumers without a limit
may be blocked by their network alone, which is not seen, and are not judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.consume_case import Case, Finding, anomaly_of, by_consumer
from shalott.checkers.consumers.redeliveries import LATE_NS
from shalott.checkers.consumers.rows import OK
from shalott.checkers.history.columns import NEVER, Ints


@dataclass(frozen=True, slots=True)
class _Firsts:
    """First deliveries of a queue's messages, in order of time."""

    row: Ints
    priority: Ints
    ready_ns: Ints  # NEVER: it is unknown when
    asked_ns: Ints  # when what it came to was begun: it can't have left its queue before
    left_ns: Ints  # the earliest time at which it can have left its queue in quiet times
    at_ns: Ints
    channel: Ints
    quiet: Ints
    ruled: Ints


def priority(case: Case) -> Finding:
    """A message is not delivered while one of higher priority waits.

    Source: RabbitMQ, Classic Queues Support Priorities.
    """
    rows = case.rows.deliveries
    judged, late, before = 0, list[Ints](), list[Ints]()
    for code in range(len(case.rows.queues)):
        highest = case.queue_rules(code).max_priority
        if not highest:
            continue
        firsts = _first_deliveries(case, code, highest)
        judged += len(firsts.row)
        for level in range(1, highest + 1):
            overtaken, by = _passed_over(firsts, level)
            late.append(firsts.row[overtaken])
            before.append(firsts.row[by])
    found = np.concatenate(late) if late else np.zeros(0, dtype=np.int64)
    found, first = np.unique(found, return_index=True)
    others = np.concatenate(before)[first] if before else found
    return Finding(
        judged=judged,
        anomalies=anomaly_of(
            case, "priority", found, [rows.index[others]],
            "delivered while a message of higher priority waited",
        ),
        counts={"priority-count": len(found)},
    )  # fmt: skip


def _first_deliveries(case: Case, code: int, highest: int) -> _Firsts:
    deliveries, published = case.rows.deliveries, case.rows.published
    own = np.flatnonzero((published.queue == code) & (case.first >= 0))
    first = case.first[own]
    # What has no flag was never out, so it was ready all the time.
    own, first = own[~deliveries.flagged[first]], first[~deliveries.flagged[first]]
    order = np.argsort(deliveries.at_ns[first], kind="stable")
    own, first = own[order], first[order]
    confirmed = published.ack[own] == OK
    asked_ns = np.append(case.rows.consumers.begin_ns, NEVER)[deliveries.consumer[first]]
    asked_ns = np.where(asked_ns == NEVER, -1, asked_ns)
    asked_ns = np.where(deliveries.taken[first], deliveries.begin_ns[first], asked_ns)
    return _Firsts(
        row=first,
        priority=np.clip(published.priority[own], 0, highest),
        ready_ns=np.where(confirmed, np.minimum(published.complete_ns[own], NEVER - 1), NEVER),
        asked_ns=asked_ns,
        left_ns=np.maximum(deliveries.at_ns[first] - LATE_NS, asked_ns),
        at_ns=deliveries.at_ns[first],
        channel=deliveries.channel[first],
        quiet=case.quiet[first],
        ruled=case.ruled[first],
    )


def _passed_over(firsts: _Firsts, level: int) -> tuple[Ints, Ints]:
    """Deliveries below a level while one of that level or above waited, each with that one."""
    low = np.flatnonzero(firsts.priority < level)
    high = np.flatnonzero((firsts.priority >= level) & (firsts.ready_ns < NEVER))
    given = high[firsts.channel[high] >= 0]
    together = firsts.channel + 1
    nowhere = np.zeros(len(firsts.row), dtype=np.int64)
    looks = (
        (high, nowhere, firsts.quiet, firsts.left_ns, firsts.left_ns),
        (given, together, firsts.quiet, firsts.left_ns, firsts.at_ns),
        # One master, one channel: what it sent first came first, in bad times too.
        (given, together, firsts.ruled, firsts.asked_ns, firsts.at_ns),
    )
    by = np.full(len(low), -1, dtype=np.int64)
    for among, group, stretch, left_ns, until_ns in looks:
        found = _waited(firsts, low, among, group, stretch, left_ns, until_ns)
        by = np.where(by >= 0, by, found)
    return low[by >= 0], by[by >= 0]


def _waited(
    firsts: _Firsts,
    low: Ints,
    high: Ints,
    group: Ints,
    stretch: Ints,
    left_ns: Ints,
    until_ns: Ints,
) -> Ints:
    """Of each low one a high one of its stretch and group that was ready before it was chosen and
    left after it had come; -1 if there is none."""
    found = np.full(len(low), -1, dtype=np.int64)
    key = group * (int(stretch.max(initial=0)) + 1) + stretch
    for own in np.unique(key[low[stretch[low] >= 0]]):
        mine = np.flatnonzero((key[low] == own) & (stretch[low] >= 0))
        theirs = high[(key[high] == own) & (stretch[high] >= 0)]
        if not len(theirs):
            continue
        theirs = theirs[np.argsort(firsts.ready_ns[theirs], kind="stable")]
        latest = np.maximum.accumulate(until_ns[theirs])
        ready = np.searchsorted(firsts.ready_ns[theirs], left_ns[low[mine]])
        waits = (ready > 0) & (latest[np.maximum(ready - 1, 0)] > firsts.at_ns[low[mine]])
        for place in np.flatnonzero(waits):
            among = theirs[: ready[place]]
            found[mine[place]] = among[int(np.argmax(until_ns[among]))]
    return found


def consumer_priority(case: Case) -> Finding:
    """A consumer is served only while those of higher priority have no room.

    Source: RabbitMQ, Consumer Priorities.
    """
    consumers, deliveries = case.rows.consumers, case.rows.deliveries
    plain = [
        code for code in range(len(case.rows.queues)) if not case.queue_rules(code).single_active
    ]
    judged, wrong, by = 0, list[Ints](), list[Ints]()
    for high in np.flatnonzero((consumers.prefetch > 0) & ~consumers.shared & ~consumers.no_ack):
        queue = consumers.queue[high]
        below = (consumers.queue == queue) & (consumers.priority < consumers.priority[high])
        if queue not in plain or not below.any():
            continue
        own = np.flatnonzero(
            np.append(below, False)[deliveries.consumer] & (deliveries.queue == queue)
            & ~deliveries.taken & (case.quiet >= 0)
        )  # fmt: skip
        own = own[_is_there(case, int(high), own)]
        judged += len(own)
        own = own[_has_room(case, int(high), deliveries.at_ns[own])]
        wrong.append(own)
        by.append(np.full(len(own), consumers.index[high]))
    found = np.concatenate(wrong) if wrong else np.zeros(0, dtype=np.int64)
    rows = np.concatenate(by) if by else found
    return Finding(
        judged=judged,
        anomalies=anomaly_of(
            case, "consumer-priority", found, [rows],
            "delivered to a consumer while one of higher priority had room",
        ),
        counts={"consumer-priority-count": len(found)},
    )  # fmt: skip


def _is_there(case: Case, high: int, own: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether the consumer was there before, during and after each delivery, in quiet."""
    consumers, at_ns = case.rows.consumers, case.rows.deliveries.at_ns[own]
    channel = consumers.channel[high]
    alive_ns = case.rows.channels.alive_ns[channel] if channel >= 0 else -1
    active_ns = consumers.active_ns[high]
    if active_ns == NEVER:
        return np.zeros(len(own), dtype=np.bool_)
    place = np.full(len(own), consumers.queue[high])
    since = case.calm.quiet.begin_of(case.quiet[own])
    before = case.calm.quiet.at(place, at_ns - LATE_NS) == case.quiet[own]
    there = (active_ns + LATE_NS < at_ns) & (since < at_ns - LATE_NS) & before
    leaves_ns = min(int(consumers.leaving_ns[high]), int(consumers.end_ns[high]))
    stays = at_ns + LATE_NS < leaves_ns
    return np.asarray(there & stays & (alive_ns > at_ns))


def _has_room(case: Case, high: int, at_ns: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether the consumer's window was certainly not full at each instant."""
    deliveries = case.rows.deliveries
    own = case.once(by_consumer).of(high)
    given = np.searchsorted(deliveries.at_ns[own], at_ns + LATE_NS, side="right")
    settled = np.searchsorted(np.sort(deliveries.settled.done_ns[own]), at_ns - LATE_NS)
    return np.asarray(given - settled < case.rows.consumers.prefetch[high])
