"""How long messages stay: time to live, and the length of a queue.

Sources. RabbitMQ, Time-To-Live and Expiration: "the server guarantees that dead messages will not
be delivered using basic.deliver or included in a basic.get-ok response"; the original expiry time
of a message is preserved if it is requeued. A queue knows of a message at the earliest when its
publish was begun and at the latest when it was confirmed. RabbitMQ, Queue Length Limit, for ready
messages: the oldest ones are dropped or dead-lettered from the front of the queue, or publishes
rejected.

Theory. A dead letter of which the queue says "expired" that is seen sooner than its time to live
after its publish was begun, is too early in any case. A message that is delivered later than
its time to live (and ``LATE_NS``) after it was confirmed, and after the quiet stretch began in
which it was delivered, is too late: who came back from its disk, or was given the message anew, may
count anew. A mirror does not: it has been told when each message expires. So heirs are held to the
first time, unless something stood still or went wrong meanwhile; a promotion may take ``HEIR_NS``.
A consumer of a channel with a limit of its own may be sent later what the queue gave in time, and
is not judged.
For the length those messages count that were certainly ready: confirmed, and not given to anybody
until ``LATE_NS`` before they came, or until the consumer that had them was begun.
"""

from __future__ import annotations

import numpy as np

from shalott.checkers.consumers.consume_case import Case, Finding, anomaly_of
from shalott.checkers.consumers.policies import times_to_live
from shalott.checkers.consumers.redeliveries import LATE_NS, was_mirrored
from shalott.checkers.consumers.rows import OK
from shalott.checkers.history.columns import NEVER, Ints

MS = 1_000_000
EARLY_SHARE = 0.02  # of a time to live: clocks that run apart
EARLY_NS = 20 * MS
HEIR_NS = 1000 * MS


def ttl(case: Case) -> Finding:
    """A message expires neither early nor never.

    Source: RabbitMQ, Time-To-Live and Expiration.
    """
    published = case.rows.published
    early, late = _expired_early(case), _delivered_late(case)
    lives = _times(case)
    return Finding(
        judged=int((lives >= 0).sum()),
        anomalies=[
            *anomaly_of(case, "expired-early", early, [_publish(case, early)],
                        "dead-lettered as expired before the time to live had passed"),
            *anomaly_of(case, "delivered-expired", late, [_publish(case, late)],
                        "delivered long after the time to live had passed"),
        ],
        counts={
            "expired-early-count": len(early),
            "delivered-expired-count": len(late),
            "message-with-ttl-count": int((published.ttl_ms >= 0).sum()),
        },
    )  # fmt: skip


def _publish(case: Case, deliveries: Ints) -> Ints:
    return case.rows.published.index[case.rows.deliveries.message[deliveries]]


def _times(case: Case) -> Ints:
    """Each message's time to live in ms, NONE where it has none."""
    return case.once(_all_times)


def _all_times(case: Case) -> Ints:
    published = case.rows.published
    lives = published.ttl_ms.copy()
    for code, queue in enumerate(case.rows.queues):
        if any(each.name == queue and each.ttl_ms for each in case.rules.queues):
            own = np.flatnonzero(published.queue == code)
            lives[own] = times_to_live(case, case.queue_rules(code), own)
    return lives


def _expired_early(case: Case) -> Ints:
    """Dead letters that were seen too soon after their publish."""
    deliveries, lives = case.rows.deliveries, case.rows.lives
    published, ttl_ms = case.rows.published, _times(case)
    found: list[Ints] = []
    for code in range(1, len(lives)):
        first = lives[code][-1]  # of its own queue: what came later began anew
        if first.reason != "expired" or first.count > 1 or first.queue not in case.rows.queues:
            continue
        own = np.flatnonzero((deliveries.life == code) & (deliveries.message >= 0))
        message = deliveries.message[own]
        of_it = published.queue[message] == case.rows.queues.index(first.queue)
        lasted = ttl_ms[message] * MS * (1 - EARLY_SHARE) - EARLY_NS
        early = deliveries.at_ns[own] < published.invoke_ns[message] + lasted
        found.append(own[of_it & early & (ttl_ms[message] >= 0)])
    return np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


def _delivered_late(case: Case) -> Ints:
    deliveries, published, ttl_ms = case.rows.deliveries, case.rows.published, _times(case)
    if not (ttl_ms >= 0).any():
        return np.zeros(0, dtype=np.int64)
    own = np.flatnonzero((deliveries.message >= 0) & (deliveries.life == 0))
    message = deliveries.message[own]
    shared = np.append(case.rows.consumers.shared, False)[deliveries.consumer[own]]
    due = (ttl_ms[message] >= 0) & (published.ack[message] == OK) & ~shared
    own, message = own[due], message[due]
    # Any master by now began to count no later than the quiet stretch.
    since_ns = np.maximum(published.complete_ns[message], case.calm.quiet.begin_of(case.quiet[own]))
    lasted = ttl_ms[message] * MS + LATE_NS
    late = deliveries.begin_ns[own] > since_ns + lasted
    late &= case.quiet[own] >= 0
    begun_ns, given_ns = published.invoke_ns[message], deliveries.begin_ns[own]
    mirrored = was_mirrored(case, message, own) & ~case.calm.rough.touched(begun_ns, given_ns)
    late |= mirrored & (given_ns > published.complete_ns[message] + lasted + HEIR_NS)
    return np.asarray(own[late])


def max_length(case: Case) -> Finding:
    """A queue holds no more ready messages than it may.

    Source: RabbitMQ, Queue Length Limit.
    """
    judged, found, worst = 0, list[Ints](), dict[str, int]()
    for code, queue in enumerate(case.rows.queues):
        limit = case.queue_rules(code).max_length
        if not limit:
            continue
        first, begin_ns, end_ns = _certainly_ready(case, code)
        judged += len(first)
        if not len(first):
            continue
        held, at = _most(begin_ns, end_ns)
        worst[queue] = int(held)
        if held > limit:
            inside = (begin_ns <= at) & (end_ns > at)
            found.append(np.sort(first[inside])[limit:])
    over = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
    return Finding(
        judged=judged,
        anomalies=anomaly_of(
            case, "too-long", over, [_publish(case, over)],
            "ready at once beyond the length of their queue",
        ),
        counts={"too-long-count": len(over)},
        detail={"certainly-ready-max": worst},
    )  # fmt: skip


def _certainly_ready(case: Case, code: int) -> tuple[Ints, Ints, Ints]:
    """First deliveries of a queue's messages, and from when to when each was surely ready."""
    published, deliveries = case.rows.published, case.rows.deliveries
    own = np.flatnonzero((published.queue == code) & (published.ack == OK) & (case.first >= 0))
    first = case.first[own]
    begin_ns, taken = published.complete_ns[own], deliveries.taken[first]
    # Nothing is sent to a consumer before it has asked; and little later than LATE_NS before it
    # comes, in quiet times.
    asked_ns = np.append(case.rows.consumers.begin_ns, NEVER)[deliveries.consumer[first]]
    asked_ns = np.where(
        taken, deliveries.begin_ns[first], np.where(asked_ns == NEVER, -1, asked_ns)
    )
    quiet = (case.published_quiet[own] == case.quiet[first]) & (case.quiet[first] >= 0)
    sent_ns = np.maximum(deliveries.begin_ns[first] - LATE_NS, asked_ns)
    end_ns = np.where(quiet, sent_ns, asked_ns)
    since = case.calm.ruled.at(published.queue[own], begin_ns)
    one_master = (since == case.ruled[first]) & (since >= 0)
    kept = (quiet | one_master) & (begin_ns < end_ns) & ~deliveries.flagged[first]
    return first[kept], begin_ns[kept], end_ns[kept]


def _most(begin_ns: Ints, end_ns: Ints) -> tuple[int, int]:
    """How many of the stretches lay over one another at most, and an instant of that."""
    if not len(begin_ns):
        return 0, 0
    begins, ends = np.sort(begin_ns), np.sort(end_ns)
    held = np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins, side="right")
    at = int(np.argmax(held))
    return int(held[at]), int(begins[at])
