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

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly
from shalott.checkers.consumers.consume_case import Case, Finding, anomaly_of
from shalott.checkers.consumers.intervals import MS, S
from shalott.checkers.consumers.quiet_times import SLACK_NS
from shalott.checkers.consumers.rows import (
    ACK,
    AUTO,
    OK,
    RECOVER,
    REJECT,
    REQUEUE,
    Death,
    Deliveries,
)
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
    """Whether the node of the later delivery inherited from the node of the one before."""
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


# Acknowledgements that a server refused though they were right.
#
# A server that has settled more than it was asked to does not know a delivery any more that its
# client settles later, and closes the channel: 406, unknown delivery tag. Where the client
# settled nothing twice, and nothing that it had not been given, the mistake is the server's.
#
# Source: AMQP 0-9-1, basic.ack, delivery-tag and multiple (up to and including the tag);
# RabbitMQ, Consumer Acknowledgements, Client Errors: Double Acking and Unknown Tags.

UNKNOWN_TAG = "unknown delivery tag"


def refused_acks(case: Case) -> list[Anomaly]:
    """One anomaly for all channels that were closed like that without a reason."""
    channels, rows = case.rows.channels, case.rows.settlements
    closed = [code for code, why in enumerate(channels.error) if UNKNOWN_TAG in why]
    wrong = [code for code in closed if _settled_rightly(case, code)]
    if not wrong:
        return []
    last = [int(rows.index[rows.channel == code][-1]) for code in wrong]
    names = [channels.name[code] for code in wrong]
    return [
        Anomaly(
            kind="refused-ack",
            summary=f"{len(wrong)} channels were closed for an unknown delivery tag, though their"
            f" clients settled only what was theirs to settle: {', '.join(names[:3])}",
            operations=tuple(last[:OPERATIONS_MAX]),
            detail={"count": len(wrong), "channels": names[:100]},
        )
    ]


def _settled_rightly(case: Case, code: int) -> bool:
    """Whether each row of the channel settled something that had not been settled."""
    rows, by = case.rows.settlements, case.rows.deliveries.settled.by
    own = np.flatnonzero((rows.channel == code) & ((rows.tag > 0) | (rows.upto > 0)))
    return len(own) > 0 and bool(np.isin(own, by).all())


# Deliveries of one copy of a message, one after the other.
#
# A copy is a message in one queue in one life: what was dead-lettered is another copy. A delivery
# and the one before it are what rules about redelivery speak of. Two dead letters of one message
# look alike, and there may be two of them if the queue where it died had another master
# meanwhile: then it may have died twice. Such pairs are none.

PROPAGATED_NS = 2 * S  # by then the mirrors of a quiet queue have been told


@dataclass(frozen=True, slots=True)
class Pairs:
    """Deliveries that were not the first of their copy, each with the one before it, in order."""

    before: Ints  # positions in the deliveries
    again: Ints

    def __len__(self) -> int:
        return len(self.again)


def read_pairs(case: Case) -> Pairs:
    deliveries = case.rows.deliveries
    known = np.flatnonzero(deliveries.message >= 0)
    known = _not_alone(deliveries, known, len(case.rows.published.index))
    order = known[
        np.lexsort(
            (known, deliveries.life[known], deliveries.queue[known], deliveries.message[known])
        )
    ]
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for column in (deliveries.message, deliveries.queue, deliveries.life):
        same &= column[order[1:]] == column[order[:-1]]
    pairs = Pairs(order[:-1][same], order[1:][same])
    one = _is_one_copy(case, pairs)
    return Pairs(pairs.before[one], pairs.again[one])


def _is_one_copy(case: Case, pairs: Pairs) -> Bools:
    """Whether it can have died only once in every queue where it did: one master ruled from the
    publish to the delivery, or all was quiet until its only death was known to the mirrors.
    """
    deliveries, published = case.rows.deliveries, case.rows.published
    ruled, quiet = case.calm.ruled, case.calm.quiet
    found = np.ones(len(pairs), dtype=np.bool_)
    life = deliveries.life[pairs.again]
    for code in np.unique(life[life > 0]).tolist():
        own = np.flatnonzero(life == code)
        again = pairs.again[own]
        message, given_ns = deliveries.message[again], deliveries.at_ns[again]
        begun_ns, deaths = published.invoke_ns[message], case.rows.lives[code]
        for name in dict.fromkeys(death.queue for death in deaths):
            place = case.rows.queues.index(name) if name in case.rows.queues else -1
            places = np.full(len(own), place)
            since = ruled.at(places, begun_ns)
            one = (since >= 0) & (since == ruled.at(places, given_ns))
            if len(deaths) == 1 and place >= 0:
                died_ns = _died_by(case, deaths[0], place)[message]
                calm = quiet.at(places, begun_ns)
                one |= (calm >= 0) & (calm == quiet.at(places, np.minimum(died_ns, given_ns)))
            found[own] &= one
    return found


def _died_by(case: Case, death: Death, place: int) -> Ints:
    """By message: when its death in that queue was known to all mirrors; NEVER: unknown."""
    deliveries, published = case.rows.deliveries, case.rows.published
    died_ns, settled = np.full(len(published.index), -1, dtype=np.int64), deliveries.settled
    given = (deliveries.queue == place) & (deliveries.message >= 0)
    ttl_ms = case.queue_rules(place).ttl_ms
    if death.reason == "rejected":
        refused = given & (settled.kind == REJECT) & settled.ok
        np.maximum.at(died_ns, deliveries.message[refused], settled.done_ns[refused])
    elif death.reason == "expired" and ttl_ms:
        # All that is before it in the queue lives no longer, and no consumer held it.
        own = (published.queue == place) & (published.ack == OK)
        own[deliveries.message[given]] = False
        died_ns[own] = published.complete_ns[own] + ttl_ms * MS + S
    return np.where(died_ns < 0, NEVER, died_ns + PROPAGATED_NS)


def _not_alone(deliveries: Deliveries, known: Ints, messages: int) -> Ints:
    """Those of messages that came more than once: mostly few are worth sorting."""
    often = np.bincount(deliveries.message[known], minlength=messages) > 1
    return known[often[deliveries.message[known]]]


def was_mirrored(case: Case, message: Ints, given: Ints) -> Bools:
    """Whether who made each delivery is an heir, and had its message as a mirror: what is confirmed
    is with every mirror. Of dead letters that is not known: their confirms are not seen.
    """
    deliveries, published = case.rows.deliveries, case.rows.published
    confirmed_ns = np.where(published.ack[message] == OK, published.complete_ns[message], NEVER)
    heir = case.calm.heirs.at(deliveries.queue[given], deliveries.at_ns[given])
    promoted_ns = np.append(case.calm.promoted_ns, -1)[heir]
    return np.asarray((confirmed_ns < promoted_ns - SLACK_NS) & (deliveries.life[given] == 0))
