"""Deliveries of what had been delivered: why, whether flagged, and whether they may be at all.

Sources. AMQP 0-9-1, basic.deliver, field redelivered; RabbitMQ's guide Consumer Acknowledgements
and Publisher Confirms, sections Automatic Requeueing of Deliveries and When Will Nacked Messages
Be Redelivered; on failover its guide Classic Queue Mirroring, Non-graceful Master Failure: all
unacknowledged messages are requeued, and clients may see duplicates, which
docs/evidence/loss-windows.md calls L9: an acknowledgement that had not reached the mirrors is not
known to who is promoted.

What is certain, and nothing else is judged:

- *After its acknowledgement*: the acknowledgement was sent and answered while the queue was quiet,
  since its delivery, so the master had it; and the same master ruled until the next delivery. Or a
  mirror was promoted since, but so long after that it had been told (``PROPAGATED_NS``).
- *Without the flag*: one master ruled from the one delivery to the next. Two of its deliveries
  lack the flag; or one comes, long after another, without it. Or an heir delivers it, and flags all
  that it had as a mirror (rabbit_mirror_queue_slave publishes everything as delivered).
- *Twice at once*: the queue was quiet, the first had not been settled, and both channels were
  answered later on.

Which of two deliveries on different connections was sent first can't be seen closer than
``LATE_NS``: a client reads what it is sent in its own time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.case.case import Case
from shalott.checkers.consumers.case.finding import Finding, anomaly_of
from shalott.checkers.consumers.case.intervals import S
from shalott.checkers.consumers.messages.copies import (
    PROPAGATED_NS,
    Pairs,
    read_pairs,
    was_mirrored,
)
from shalott.checkers.consumers.messages.refusals import refused_acks
from shalott.checkers.consumers.rows.settling import ACK, AUTO, RECOVER, REJECT, REQUEUE
from shalott.checkers.history.columns import NEVER, Bools, Ints

LATE_NS = S  # how much later than another client one may read what was sent before
HANDLED_NS = S // 4  # by then a queue has done what it was sent before it answered

CLASSES = (
    "first",
    "redelivered-flagged",
    "redelivered-unflagged",
    "redelivered-unsure",
    "after-ack",
    "to-cancelled",
    "twice-at-once",
    "unexpected",
    "corrupted",
)
FIRST, FLAGGED, UNFLAGGED, UNSURE, AFTER_ACK, CANCELLED, TWICE, UNEXPECTED, CORRUPTED = range(9)
CAUSES = (
    "requeued",
    "recover",
    "channel-closed",
    "connection-lost",
    "failover",
    "fault-near",
    "unexplained",
)


@dataclass(frozen=True, slots=True)
class Redeliveries:
    """``pairs``, and of each whether it breaks a rule."""

    pairs: Pairs
    acked_again: Bools
    unflagged: Bools
    twice: Bools


def judge_pairs(case: Case) -> Redeliveries:
    pairs = case.once(read_pairs)
    return Redeliveries(
        pairs, _acked_again(case, pairs), _unflagged(case, pairs), _twice(case, pairs)
    )


def acked_again(case: Case) -> Finding:
    """A message that its consumer acknowledged, or rejected for good, is not delivered again.

    Source: RabbitMQ, Consumer Acknowledgements and Publisher Confirms, Delivery Acknowledgement
    Modes: an acknowledged message is done with, and the broker deletes it. Under failover: L9.
    """
    found = case.once(judge_pairs)
    settled = case.rows.deliveries.settled
    again = found.pairs.again[found.acked_again]
    acks = _index(case, found.pairs.before[found.acked_again])
    sure = (settled.kind == ACK) & settled.ok
    return Finding(
        judged=int(sure.sum()),
        anomalies=[
            *anomaly_of(case, "acked-again", again, [acks],
                        "delivered again after the acknowledgement or rejection had taken effect"),
            *refused_acks(case),
        ],
        counts={"acked-again-count": len(again)},
    )  # fmt: skip


def _index(case: Case, deliveries: Ints) -> Ints:
    """The history's index of what settled each, -1 if nothing did."""
    settled = case.rows.deliveries.settled
    return np.append(case.rows.settlements.index, -1)[settled.by[deliveries]]


def redelivered_flag(case: Case) -> Finding:
    """A master flags what it delivers again.

    Source: AMQP 0-9-1, basic.deliver.redelivered: indicates that the message has been previously
    delivered; RabbitMQ, Reliability Guide, Consumer Side: if a message is delivered and then
    requeued, RabbitMQ will set the redelivered flag. A mirror that was promoted flags what it had
    been told of.
    """
    found = case.once(judge_pairs)
    again = found.pairs.again[found.unflagged]
    before = case.rows.deliveries.index[found.pairs.before[found.unflagged]]
    one_master = case.ruled[found.pairs.again] == case.ruled[found.pairs.before]
    return Finding(
        judged=int((one_master & (case.ruled[found.pairs.again] >= 0)).sum()),
        anomalies=anomaly_of(
            case, "unflagged", again, [before],
            "delivered again without the redelivered flag by the master that knew it",
        ),
        counts={"unflagged-count": len(again)},
    )  # fmt: skip


def delivered_at_once(case: Case) -> Finding:
    """An unsettled message is with one consumer.

    Source: RabbitMQ, AMQP 0-9-1 Model Explained: messages are load balanced between consumers; one
    is given to another only when it was requeued.
    """
    found = case.once(judge_pairs)
    again = found.pairs.again[found.twice]
    before = case.rows.deliveries.index[found.pairs.before[found.twice]]
    return Finding(
        judged=len(found.pairs),
        anomalies=anomaly_of(
            case, "twice-at-once", again, [before], "with two living consumers at the same time"
        ),
        counts={"twice-at-once-count": len(again)},
    )


def _acked_again(case: Case, pairs: Pairs) -> Bools:
    deliveries, settled = case.rows.deliveries, case.rows.deliveries.settled
    before, again = pairs.before, pairs.again
    done_ns = settled.done_ns[before]
    sure = ((settled.kind[before] == ACK) | (settled.kind[before] == REJECT)) & settled.ok[before]
    sure &= ~_looks_like_another(case, pairs)
    # RabbitMQ's queues answer, and hear of a channel's end, before they settle what came first.
    end_ns = np.append(case.rows.channels.end_ns, NEVER)[deliveries.channel[before]]
    sure &= end_ns - HANDLED_NS > np.where(sure, done_ns, 0)
    sure &= deliveries.begin_ns[again] > done_ns
    queue = deliveries.queue[before]
    given, done = case.quiet[before], case.calm.quiet.at(queue, np.where(sure, done_ns, -1))
    in_peace = sure & (given >= 0) & (given == done)
    same_master = (case.ruled[before] == case.ruled[again]) & (case.ruled[before] >= 0)
    told = case.calm.quiet.end_of(done) >= done_ns + np.where(sure, PROPAGATED_NS, 0)
    same_line = _same_line(case, pairs)
    return np.asarray(in_peace & (same_master | (told & same_line)))


def _same_line(case: Case, pairs: Pairs) -> Bools:
    """Whether whoever made the later delivery inherited from who made the one before."""
    deliveries, chain = case.rows.deliveries, case.calm.inherited
    queue = deliveries.queue[pairs.before]
    line = chain.at(queue, deliveries.at_ns[pairs.before])
    return np.asarray((line >= 0) & (line == chain.at(queue, deliveries.at_ns[pairs.again])))


def _looks_like_another(case: Case, pairs: Pairs) -> Bools:
    """Dead letters of which neither delivery is flagged: rather two letters than one come again."""
    deliveries = case.rows.deliveries
    bare = ~deliveries.flagged[pairs.before] & ~deliveries.flagged[pairs.again]
    return np.asarray(bare & (deliveries.life[pairs.again] > 0))


def dead_letters_again(case: Case) -> Pairs:
    """Two dead letters of one message, in one queue, for one death."""
    pairs = case.once(read_pairs)
    one_master = (case.ruled[pairs.before] == case.ruled[pairs.again]) & (
        case.ruled[pairs.again] >= 0
    )
    two = _looks_like_another(case, pairs) & one_master
    return Pairs(pairs.before[two], pairs.again[two])


def _unflagged(case: Case, pairs: Pairs) -> Bools:
    deliveries = case.rows.deliveries
    before, again = pairs.before, pairs.again
    one_master = (case.ruled[before] == case.ruled[again]) & (case.ruled[again] >= 0)
    long_after = deliveries.begin_ns[again] > deliveries.at_ns[before] + LATE_NS
    long_after &= (case.quiet[before] == case.quiet[again]) & (case.quiet[again] >= 0)
    taken_later = deliveries.taken[before] & (deliveries.begin_ns[again] > deliveries.at_ns[before])
    bare = ~deliveries.flagged[again]
    proved = ~deliveries.flagged[before] | long_after | taken_later
    mirrored = was_mirrored(case, deliveries.message[before], again)
    judged = (one_master & proved) | mirrored
    return np.asarray(judged & bare & ~_looks_like_another(case, pairs))


def _twice(case: Case, pairs: Pairs) -> Bools:
    deliveries, settled = case.rows.deliveries, case.rows.deliveries.settled
    before, again = pairs.before, pairs.again
    at_ns = deliveries.at_ns[again]
    alive_ns = np.append(case.rows.channels.alive_ns, -1)
    held = (settled.sent_ns[before] > at_ns) & (settled.kind[before] != AUTO)
    living = (alive_ns[deliveries.channel[before]] >= at_ns) & (
        deliveries.taken[again] | (alive_ns[deliveries.channel[again]] >= at_ns)
    )
    quiet = (case.quiet[before] == case.quiet[again]) & (case.quiet[again] >= 0)
    held &= ~_looks_like_another(case, pairs)
    return np.asarray(held & living & quiet & ~deliveries.taken[before])


def causes(case: Case, pairs: Pairs) -> dict[str, int]:
    """Why each delivery came again, by the first explanation that there is."""
    deliveries, settled = case.rows.deliveries, case.rows.deliveries.settled
    before, again = pairs.before, pairs.again
    at_ns = deliveries.at_ns[again]
    channels = case.rows.channels
    channel = deliveries.channel[before]
    over = np.append(channels.end_ns, NEVER)[channel] <= at_ns
    lost = np.array([*(each in ("lost", "hung-up") for each in channels.ended), False])[channel]
    sent = settled.sent_ns[before] <= at_ns
    known = (case.ruled[before] >= 0) & (case.ruled[again] >= 0)
    checks = (
        sent & (settled.kind[before] == REQUEUE),
        sent & (settled.kind[before] == RECOVER),
        over & ~lost,
        lost & (over | (np.append(channels.alive_ns, -1)[channel] < at_ns)),
        known & (case.ruled[before] != case.ruled[again]),
        (case.quiet[before] < 0) | (case.quiet[before] != case.quiet[again]),
        np.ones(len(again), dtype=np.bool_),
    )
    left, found = np.ones(len(again), dtype=np.bool_), dict[str, int]()
    for name, holds in zip(CAUSES, checks, strict=True):
        found[name] = int((left & holds).sum())
        left &= ~holds
    return found


def classes(case: Case, to_cancelled: Bools) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Of each delivery its position in CLASSES: the gravest thing that is true of it."""
    deliveries = case.rows.deliveries
    judged = case.once(judge_pairs)
    again = judged.pairs.again
    found = np.full(len(deliveries.index), FIRST, dtype=np.int32)
    found[again] = np.where(deliveries.flagged[again], FLAGGED, UNSURE)
    found[again[judged.unflagged]] = UNFLAGGED
    found[again[judged.twice]] = TWICE
    found[again[judged.acked_again]] = AFTER_ACK
    found[to_cancelled] = CANCELLED
    found[deliveries.message < 0] = UNEXPECTED
    found[deliveries.damaged] = CORRUPTED
    return found
