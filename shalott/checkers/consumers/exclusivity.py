"""Queues that serve one consumer alone: single active consumers, and exclusive ones.

Sources. RabbitMQ, Consumers, Single Active Consumer: only one consumer at a time consumes from a
queue, and another takes over when it is cancelled or dies; a consumer that comes later does not
take its place. RabbitMQ, Consumers, Exclusivity, and AMQP 0-9-1, basic.consume.exclusive: only
this consumer can access the queue.

Theory. Two consumers are served by one master in good times. Both channels were answered after the
second of the two deliveries, and neither consumer had begun to leave by then: so both were there
from the first delivery to the second, and nothing had changed who is active. That one was served
before the other does not matter: whichever order they were sent in, one of them was not active. Two
consumers that are both served are *claimed*; that both acknowledged what they got, with an answer,
and so took part in the queue, is *effective*. That an exclusive consumer and another both got
consume-ok, and were both there when all was quiet, is claimed too.
"""

from __future__ import annotations

import numpy as np

from shalott.checkers.checker import Anomaly
from shalott.checkers.consumers.consume_case import Case, Finding, anomaly_of
from shalott.checkers.consumers.rows import ACK
from shalott.checkers.history.columns import NEVER, Bools, Ints


def single_active(case: Case) -> Finding:
    """One consumer at a time is served, and another only when that one has left.

    Source: RabbitMQ, Consumers, Single Active Consumer.
    """
    codes = [code for code in range(len(case.rows.queues)) if case.queue_rules(code).single_active]
    own = np.flatnonzero(np.isin(case.rows.deliveries.queue, codes) & ~case.rows.deliveries.taken)
    first, second = _turns(case, own)
    wrong = _both_there(case, first, second)
    first, second = first[wrong], second[wrong]
    return _told(case, "dual-active-consumer", len(own), first, second, [])


def exclusive(case: Case) -> Finding:
    """An exclusive consumer is the only one of its queue.

    Source: AMQP 0-9-1, basic.consume.exclusive; RabbitMQ, Consumers, Exclusivity.
    """
    consumers, deliveries = case.rows.consumers, case.rows.deliveries
    queues = np.unique(consumers.queue[consumers.exclusive])
    own = np.flatnonzero(np.isin(deliveries.queue, queues) & ~deliveries.taken)
    first, second = _turns(case, own)
    alone = np.append(consumers.exclusive, False)
    wrong = _both_there(case, first, second)
    wrong &= alone[deliveries.consumer[first]] | alone[deliveries.consumer[second]]
    admitted = _admitted_beside(case)
    return _told(
        case, "not-exclusive", int(consumers.exclusive.sum()), first[wrong], second[wrong], admitted
    )


def _turns(case: Case, own: Ints) -> tuple[Ints, Ints]:
    """Deliveries one after the other, by queue, to different consumers: in one quiet stretch, or by
    one master while at most processes ended, which leaves the others' consumers as they are."""
    deliveries = case.rows.deliveries
    order = own[np.argsort(deliveries.queue[own], kind="stable")]
    first, second = order[:-1], order[1:]
    other = deliveries.consumer[first] != deliveries.consumer[second]
    known = (deliveries.consumer[first] >= 0) & (deliveries.consumer[second] >= 0)
    quiet = (case.quiet[first] == case.quiet[second]) & (case.quiet[first] >= 0)
    ruled = (case.ruled[first] == case.ruled[second]) & (case.ruled[first] >= 0)
    ruled &= ~case.calm.rough.touched(deliveries.at_ns[first], deliveries.at_ns[second])
    turns = other & known & (quiet | ruled)
    return first[turns], second[turns]


def _both_there(case: Case, first: Ints, second: Ints) -> Bools:
    """Whether both consumers were certainly there from the one delivery to the other."""
    deliveries = case.rows.deliveries
    at_ns = deliveries.at_ns[second]
    return np.asarray(
        _is_there(case, deliveries.consumer[first], at_ns)
        & _is_there(case, deliveries.consumer[second], at_ns)
    )


def _is_there(case: Case, consumer: Ints, at_ns: Ints) -> Bools:
    consumers = case.rows.consumers
    alive_ns = np.append(case.rows.channels.alive_ns, -1)[consumers.channel[consumer]]
    stays = (consumers.leaving_ns[consumer] > at_ns) & (consumers.end_ns[consumer] > at_ns)
    return np.asarray(stays & (alive_ns >= at_ns) & (consumers.active_ns[consumer] < NEVER))


def _admitted_beside(case: Case) -> list[tuple[int, int]]:
    """Pairs of consumers of one queue, one of them exclusive, that were both let in and were there
    as soon as all was quiet, which may be after a failover."""
    consumers, found = case.rows.consumers, list[tuple[int, int]]()
    let_in = consumers.active_ns < NEVER
    for alone in np.flatnonzero(consumers.exclusive & let_in):
        beside = np.flatnonzero((consumers.queue == consumers.queue[alone]) & let_in)
        beside = beside[beside != alone]
        both_ns = np.maximum(consumers.active_ns[beside], consumers.active_ns[alone])
        quiet_ns = _next_quiet(case, int(consumers.queue[alone]), both_ns)
        there = _is_there(case, beside, quiet_ns)
        there &= _is_there(case, np.full(len(beside), alone), quiet_ns)
        found += [(int(alone), int(other)) for other in beside[there]]
    return found


def _next_quiet(case: Case, queue: int, at_ns: Ints) -> Ints:
    """The first quiet instant of a queue from each of these on, or NEVER."""
    quiet = case.calm.quiet
    low, high = int(quiet.first[queue]), int(quiet.first[queue + 1])
    stretch = np.searchsorted(quiet.end[low:high], at_ns)
    begins = np.append(quiet.begin[low:high], NEVER)
    return np.asarray(np.maximum(begins[stretch], at_ns))


def _told(
    case: Case, kind: str, judged: int, first: Ints, second: Ints, admitted: list[tuple[int, int]]
) -> Finding:
    rows, consumers, settled = (
        case.rows.deliveries,
        case.rows.consumers,
        case.rows.deliveries.settled,
    )
    sure = (settled.kind == ACK) & settled.ok
    effective = sure[first] & sure[second]
    pairs = {
        (int(rows.queue[a]), *sorted((int(rows.consumer[a]), int(rows.consumer[b]))))
        for a, b in zip(first, second, strict=True)
    }
    names = [
        {"queue": case.rows.queues[queue], "consumers": [consumers.name[a], consumers.name[b]]}
        for queue, a, b in sorted(pairs)
    ]
    anomalies = anomaly_of(
        case, kind, second, [rows.index[first]],
        "delivered to one consumer while another was served that was there all the time",
    )  # fmt: skip
    anomalies += [
        Anomaly(
            kind=kind,
            summary=f"{consumers.name[one]} was exclusive, and {consumers.name[other]} was let in"
            f" beside it, in {case.rows.queues[consumers.queue[one]]}",
            operations=tuple(
                int(consumers.index[each]) for each in (one, other) if consumers.index[each] >= 0
            ),
            detail={"consumers": [consumers.name[one], consumers.name[other]]},
        )
        for one, other in admitted
    ]
    return Finding(
        judged=judged,
        anomalies=anomalies,
        counts={
            f"{kind}-claimed-count": len(second) + len(admitted),
            f"{kind}-effective-count": int(effective.sum()),
        },
        detail={"pairs": names[:100]},
    )
