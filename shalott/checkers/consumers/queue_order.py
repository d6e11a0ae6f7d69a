"""queue-order: what remains of first in, first out, when consumers take and give back.

Sources. AMQP 0-9-1 specification, 4.7 Content Ordering, for one path through the server; RabbitMQ,
Queues, Message Ordering: "queues in RabbitMQ are ordered collections of messages. Messages are
enqueued and dequeued (delivered to consumers) in a FIFO manner", with one exception: "the ordering
can be affected by ... redeliveries"; Consumer Acknowledgements, Negative Acknowledgement and
Requeuing: "when a message is requeued, it will be placed to its original position in its queue, if
possible. If not (due to concurrent deliveries and acknowledgements from other consumers when
multiple consumers share a queue), the message will be requeued to a position closer to queue head."

Theory. A message is *before* another of its queue if it was confirmed before the other's publish
was begun. What is before another and waits in the queue is delivered before it:

- *first deliveries*: of two that none had been given, in one quiet stretch since both publishes,
  the one that is before comes first. On one channel the client sees the order itself; on different
  ones only if the second came more than ``LATE_NS`` sooner.
- *after a requeue*: a message that a consumer gave back is in its old place or further ahead. What
  its channel is sent next was sent when it was back for sure, if that came ``LATE_NS`` after the
  requeue's answer (RabbitMQ's queues answer sooner than they requeue), or if the consumer's window
  was full when it sent the requeue and nothing else of it was settled since: then the broker could
  send it nothing before. So that is no message that comes behind it and that none had been given.

With message priorities (x-max-priority) none of this holds between levels, and such queues are left
to ``priority``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.consume_case import Case, Finding, anomaly_of, by_consumer
from shalott.checkers.consumers.prefetch import Tally, own_settled, own_windows
from shalott.checkers.consumers.redeliveries import LATE_NS
from shalott.checkers.consumers.rows import FAIL, OK, RECOVER, REQUEUE
from shalott.checkers.history.columns import NEVER, Bools, Ints, by_group, split_by

FAR = np.iinfo(np.int64).max


def queue_order(case: Case) -> Finding:
    """What is before another message in the queue is delivered before it.

    Source: RabbitMQ, Queues, Message Ordering; Consumer Acknowledgements, Negative Acknowledgement
    and Requeuing of Deliveries.
    """
    deliveries = case.rows.deliveries
    plain = np.array(
        [case.queue_rules(code).max_priority == 0 for code in range(len(case.rows.queues))],
        dtype=np.bool_,
    )
    firsts = _first_deliveries(case, plain)
    overtaken, earlier = _overtaken(case, firsts)
    requeued = _requeued(case, plain)
    misplaced, instead = _misplaced(case, requeued)
    return Finding(
        judged=len(firsts) + len(requeued),
        anomalies=[
            *anomaly_of(case, "order", overtaken, [deliveries.index[earlier]],
                        "delivered after a message that had been published later"),
            *anomaly_of(case, "requeue-order", misplaced, [deliveries.index[instead]],
                        "given back, and not delivered before those behind"),
        ],
        counts={
            "first-delivery-count": len(firsts),
            "requeued-count": len(requeued),
            "order-count": len(overtaken),
            "requeue-order-count": len(misplaced),
        },
    )  # fmt: skip


def _first_deliveries(case: Case, plain: Bools) -> Ints:
    """Those of messages that lay in a quiet queue from their publish on, in order of publish."""
    deliveries, published = case.rows.deliveries, case.rows.published
    own = np.flatnonzero((case.first >= 0) & (published.ack != FAIL) & plain[published.queue])
    first = case.first[own]
    begun = case.calm.quiet.at(published.queue[own], published.invoke_ns[own])
    quiet = (case.quiet[first] >= 0) & (begun == case.quiet[first])
    kept = quiet & ~deliveries.flagged[first]
    return np.asarray(first[kept])


def _overtaken(case: Case, firsts: Ints) -> tuple[Ints, Ints]:
    """Deliveries that came after one of a later message, each with such a one.

    Messages are gone through in order of when their publish was begun, from the last: the earliest
    delivery among all of later ones is the running minimum.
    """
    deliveries, published = case.rows.deliveries, case.rows.published
    if len(firsts) < 2:
        return firsts[:0], firsts[:0]
    message = deliveries.message[firsts]
    confirmed_ns = np.where(published.ack[message] == OK, published.complete_ns[message], NEVER)
    late_ns = np.where(deliveries.taken[firsts], 0, LATE_NS)
    across = _behind(
        case.quiet[firsts],
        published.invoke_ns[message],
        confirmed_ns,
        deliveries.at_ns[firsts],
        np.minimum(deliveries.begin_ns[firsts], deliveries.at_ns[firsts] - late_ns),
    )
    on_channel = np.flatnonzero(deliveries.channel[firsts] >= 0)
    channel = deliveries.channel[firsts][on_channel]
    width = int(case.quiet[firsts].max()) + 1
    alone = _behind(
        channel * width + case.quiet[firsts][on_channel],
        published.invoke_ns[message][on_channel],
        confirmed_ns[on_channel],
        deliveries.at_ns[firsts][on_channel],
        deliveries.at_ns[firsts][on_channel],
    )
    other = across
    fresh = (alone >= 0) & (other[on_channel] < 0)
    other[on_channel[fresh]] = on_channel[alone[fresh]]
    wrong = np.flatnonzero(other >= 0)
    return firsts[wrong], firsts[other[wrong]]


def _behind(group: Ints, begun_ns: Ints, confirmed_ns: Ints, came_ns: Ints, left_ns: Ints) -> Ints:
    """Of each row another one of its group that was begun after this was confirmed, and had come
    (``came_ns``) before this can have left the queue (``left_ns``); -1 if there is none.

    Rows are in order of ``begun_ns``."""
    found = np.full(len(group), -1, dtype=np.int64)
    for own in split_by(group):
        if len(own) < 2:
            continue
        earliest = np.append(np.minimum.accumulate(came_ns[own][::-1])[::-1], FAR)
        # What was begun after this was confirmed stands behind it: few rows have to be looked up.
        doubted = np.flatnonzero(earliest[1:] < left_ns[own])
        later = np.searchsorted(begun_ns[own], confirmed_ns[own[doubted]], side="right")
        is_wrong = earliest[later] < left_ns[own[doubted]]
        wrong, later = doubted[is_wrong], later[is_wrong]
        for place, since in zip(wrong[:1000], later[:1000], strict=True):
            behind = own[since:]
            found[own[place]] = behind[int(np.argmin(came_ns[behind]))]
        found[own[wrong[1000:]]] = own[-1]
    return found


@dataclass(frozen=True, slots=True)
class _Requeued:
    """Deliveries that were given back, for sure. ``back_ns``: what comes later on the channel, or
    to the consumer if its window was ``full``, was sent when the message was back."""

    delivery: Ints
    back_ns: Ints
    full: Bools

    def __len__(self) -> int:
        return len(self.delivery)


def _requeued(case: Case, plain: Bools) -> _Requeued:
    deliveries, settled = case.rows.deliveries, case.rows.deliveries.settled
    given_back = (settled.kind == REQUEUE) | (settled.kind == RECOVER)
    own = np.flatnonzero(given_back & settled.ok & (deliveries.message >= 0) & (case.quiet >= 0))
    own = own[plain[deliveries.queue[own]]]
    done = case.calm.quiet.at(deliveries.queue[own], settled.done_ns[own])
    own = own[done == case.quiet[own]]
    full = _full_windows(case, own)
    # recover-ok is the channel's answer: the queue may have heard nothing yet.
    own, full = (column[full | (settled.kind[own] == REQUEUE)] for column in (own, full))
    back_ns = np.where(full, settled.sent_ns[own], settled.done_ns[own] + LATE_NS)
    return _Requeued(own, back_ns, full)


def _full_windows(case: Case, own: Ints) -> Bools:
    """Of these deliveries whether their consumer's window was full when they were settled."""
    deliveries, windows = case.rows.deliveries, case.once(own_windows)
    found = np.zeros(len(own), dtype=np.bool_)
    if not len(windows.row):
        return found
    place = np.minimum(np.searchsorted(windows.row, own), len(windows.row) - 1)
    known = windows.row[place] == own
    place, sent_ns = place[known], deliveries.settled.sent_ns[own[known]]
    at_ns = deliveries.at_ns[windows.row]
    number = windows.number[place]
    given = Tally.of(windows.number, at_ns, int(at_ns.max())).before(number, sent_ns)
    unsettled = given - case.once(own_settled).before(number, sent_ns)
    found[known] = unsettled >= windows.limit[place]
    return found


def _misplaced(case: Case, requeued: _Requeued) -> tuple[Ints, Ints]:
    """Requeued deliveries, and what their consumer or channel was sent in their place."""
    deliveries = case.rows.deliveries
    if not len(requeued):
        return requeued.delivery, requeued.delivery
    own = requeued.delivery
    by_channel = _Next(deliveries.channel, deliveries.at_ns, deliveries.channel[own])
    by_consumer = _Next(deliveries.consumer, deliveries.at_ns, deliveries.consumer[own])
    following = np.where(
        requeued.full,
        by_consumer.after(deliveries.consumer[own], requeued.back_ns),
        by_channel.after(deliveries.channel[own], requeued.back_ns),
    )
    kept = np.flatnonzero(following >= 0)
    own, following = own[kept], following[kept]
    wrong = np.flatnonzero(_comes_behind(case, own, following) & _came_later(case, own, following))
    own, following, full = own[wrong], following[wrong], requeued.full[kept][wrong]
    proved = ~full | _alone(case, own, following)
    return own[proved], following[proved]


class _Next:
    """The next delivery of a holder after an instant. ``at_ns`` rises; only of those holders that
    are ``asked`` for."""

    def __init__(self, holder: Ints, at_ns: Ints, asked: Ints) -> None:
        self._width = int(at_ns.max(initial=0)) + 2
        most = max(int(holder.max(initial=0)), int(asked.max(initial=0)))
        wanted = np.zeros(most + 2, dtype=np.bool_)
        wanted[asked] = True
        wanted[-1] = False  # of none
        rows = np.flatnonzero(wanted[holder])
        self._rows = rows[by_group(holder[rows])]
        self._key = holder[self._rows] * self._width + at_ns[self._rows]

    def after(self, holder: Ints, at_ns: Ints) -> Ints:
        wanted = holder * self._width + np.minimum(at_ns, self._width - 1)
        if not len(self._key):
            return np.full(len(holder), -1, dtype=np.int64)
        at = np.searchsorted(self._key, wanted, side="right")
        inside = at < len(self._key)
        at = np.minimum(at, len(self._key) - 1)
        inside &= self._key[at] // self._width == holder
        return np.where(inside, self._rows[at], -1)


def _comes_behind(case: Case, own: Ints, following: Ints) -> Bools:
    """Whether what followed is a new message of the same queue that comes behind in it."""
    deliveries, published = case.rows.deliveries, case.rows.published
    message, other = deliveries.message[own], deliveries.message[following]
    behind = (message != other) & (other >= 0) & (published.ack[message] == OK)
    behind &= deliveries.queue[own] == deliveries.queue[following]
    behind &= (deliveries.life[own] == 0) & (deliveries.life[following] == 0)
    behind &= published.complete_ns[message] < published.invoke_ns[other]
    fresh = (case.first[other] == following) & ~deliveries.flagged[following]
    quiet = case.quiet[own] == case.quiet[following]
    return np.asarray(behind & fresh & quiet)


def _alone(case: Case, own: Ints, following: Ints) -> Bools:
    """Whether the consumer settled nothing else until then: RabbitMQ's acks overtake requeues."""
    deliveries, settled = case.rows.deliveries, case.rows.deliveries.settled
    held = case.once(by_consumer)
    found = np.ones(len(own), dtype=np.bool_)
    for place, (row, other) in enumerate(zip(own, following, strict=True)):
        others = held.of(int(deliveries.consumer[row]))
        others = others[settled.by[others] != settled.by[row]]
        sent_ns = settled.sent_ns[others]
        since = sent_ns >= settled.sent_ns[row]
        found[place] = not (since & (sent_ns <= deliveries.at_ns[other])).any()
    return found


def _came_later(case: Case, own: Ints, following: Ints) -> Bools:
    """Whether the requeued message waited while the other was sent: it came later, and for sure.

    What counts is when it came first after the requeue was sent: then a consumer had it again,
    be it before the requeue's answer."""
    deliveries = case.rows.deliveries
    sent_ns = deliveries.settled.sent_ns[own]
    alive = np.where(deliveries.life == 0, deliveries.message, -1)
    message = deliveries.message[own]
    again = _Next(alive, deliveries.at_ns, message).after(message, sent_ns)
    came_ns = np.append(deliveries.at_ns, -1)[again]
    same = deliveries.channel[own] == np.append(deliveries.channel, -2)[again]
    late_ns = np.where(same, 0, LATE_NS)
    quiet = np.append(case.quiet, -1)[again] == case.quiet[own]
    return np.asarray((again >= 0) & quiet & (came_ns > deliveries.at_ns[following] + late_ns))
