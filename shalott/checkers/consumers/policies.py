"""What a plan's policies may have removed: only where they were due.

Each condition is necessary for the policy to have taken the message, so what fulfils none was lost.
Expiry: its time to live ended before the queue was known to be empty. Length: at least as many
others as the queue may hold can have come behind it. Rejection: a consumer refused a delivery of
it. Deletion: a client deleted the queue, or purged it, after it may have got there, or it had no
consumer for so long. A queue with dead letters passes on what the first three take: then it should
be found there, unless the queue of dead letters has policies of its own.

Whether something happened near a missing dead letter is asked of the time in which the policy took
it, as far as that is known: a rejection's is; a message that was never delivered and waits with
others of the same time to live goes when that ends; otherwise all the time until the drain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.consume_case import Case
from shalott.checkers.consumers.consume_rules import QueueRules
from shalott.checkers.consumers.intervals import S, Stretch, union, without
from shalott.checkers.consumers.rows import FAIL, NONE, OK, REJECT
from shalott.checkers.history.columns import NEVER, Bools, Ints

MS = 1_000_000
UNUSED_SLACK = 0.95  # of the time that a queue may be without consumers


@dataclass(frozen=True, slots=True)
class Removals:
    rejected: Bools
    expired: Bools
    dropped: Bools
    deleted: Bools
    unsafe: Bools
    missing: Bools
    untold: Bools  # sent to a consumer that acknowledges nothing, perhaps, and never read
    doubtful: Bools  # it may lie among dead letters that were not drained


def removals(case: Case, gone: Ints, open_queues: Bools) -> Removals:
    """What may have become of those ``gone``, acknowledged messages whose end was not seen.
    ``open_queues`` were not drained."""
    size = len(case.rows.published.index)
    found = Removals(*(np.zeros(size, dtype=np.bool_) for _ in range(8)))
    queue = case.rows.published.queue[gone]
    for code in np.unique(queue):
        _of_queue(case, int(code), gone[queue == code], open_queues, found)
    return found


def _of_queue(case: Case, code: int, gone: Ints, open_queues: Bools, found: Removals) -> None:
    rules = case.queue_rules(code)
    found.deleted[gone] = _deleted(case, code, rules, gone)
    found.untold[gone] = maybe_sent(case, code, gone)
    reject_ns, reject_end_ns = _rejections(case, gone)
    rejected = reject_ns < NEVER
    expired = _expired(case, code, rules, gone)
    dropped = _dropped(case, code, rules, gone)
    if not rules.dead_letters:
        found.rejected[gone], found.expired[gone], found.dropped[gone] = rejected, expired, dropped
        return
    target = (
        case.rows.queues.index(rules.dead_letters)
        if (rules.dead_letters in case.rows.queues)
        else NONE
    )
    taken = rejected | expired | dropped
    if target != NONE and _removes(case, target):
        found.rejected[gone], found.expired[gone], found.dropped[gone] = rejected, expired, dropped
        return
    if target != NONE and open_queues[target]:
        found.doubtful[gone] = taken
        return
    if target != NONE:
        found.untold[gone] |= taken & maybe_sent(case, target, gone)
    calm = _calm(case, code, target)
    begin_ns, end_ns = _when_taken(case, code, rules, gone)
    begin_ns = np.where(rejected, np.minimum(reject_ns, begin_ns), begin_ns)
    end_ns = np.where(rejected & (end_ns == NEVER), reject_end_ns, end_ns)
    # A rejection is when it was; only what waits may have been taken at some other time.
    alone = rejected & ~expired & ~dropped
    begin_ns = np.where(alone, reject_ns, begin_ns)
    end_ns = np.where(alone, reject_end_ns, end_ns)
    peaceful = taken & calm(begin_ns, end_ns)
    found.missing[gone] = peaceful
    found.unsafe[gone] = taken & ~peaceful


def _removes(case: Case, code: int) -> bool:
    """Whether a queue of dead letters takes or refuses messages on its own account."""
    rules = case.queue_rules(code)
    changes = (*case.rows.changes, *case.rows.purges)
    deleted = any(each.queue == code and not each.failed for each in changes)
    limits = rules.ttl_ms or rules.max_length or rules.expires_ms
    return bool(limits or deleted or rules.dead_letters or _rejects(case, code))


def _rejects(case: Case, code: int) -> bool:
    deliveries = case.rows.deliveries
    own = deliveries.settled.kind[deliveries.queue == code]
    return bool((own == REJECT).any())


def _expired(case: Case, code: int, rules: QueueRules, gone: Ints) -> Bools:
    ttl_ms = times_to_live(case, rules, gone)
    due_ns = case.rows.published.invoke_ns[gone] + ttl_ms * MS
    return np.asarray((ttl_ms >= 0) & (due_ns <= _empty_ns(case, code)))


def times_to_live(case: Case, rules: QueueRules, messages: Ints) -> Ints:
    """The shorter of the queue's and the message's own, in ms; NONE if there is neither."""
    own = case.rows.published.ttl_ms[messages]
    if not rules.ttl_ms:
        return own
    return np.where(own >= 0, np.minimum(own, rules.ttl_ms), rules.ttl_ms)


def _empty_ns(case: Case, code: int) -> int:
    """When the queue was known to be empty at last."""
    said = case.rows.emptied.get(code)
    return case.around.end_ns if said is None or not len(said) else int(said.max())


def _dropped(case: Case, code: int, rules: QueueRules, gone: Ints) -> Bools:
    if not rules.max_length or rules.overflow != "drop-head":
        return np.zeros(len(gone), dtype=np.bool_)
    if any(each.dead_letters == rules.name for each in case.rules.queues):
        return np.ones(len(gone), dtype=np.bool_)  # dead letters push as well, unseen
    return np.asarray(come_behind(case, code, gone) >= rules.max_length)


def come_behind(case: Case, code: int, messages: Ints, until_ns: Ints | None = None) -> Ints:
    """How many others can have come behind each message in its queue, if their publish was begun
    before ``until_ns``."""
    published = case.rows.published
    others = np.flatnonzero((published.queue == code) & (published.ack != FAIL))
    ends = np.sort(np.where(published.ack[others] == OK, published.complete_ns[others], NEVER))
    before = np.searchsorted(ends, published.invoke_ns[messages], side="right")
    begun = np.full(len(messages), len(others), dtype=np.int64)
    if until_ns is not None:
        begun = np.searchsorted(np.sort(published.invoke_ns[others]), until_ns)
    return np.asarray(begun - before - 1)


def _rejections(case: Case, gone: Ints) -> tuple[Ints, Ints]:
    """Of each message when the first rejection of it was sent, and when it must have taken effect;
    NEVER if none rejected it."""
    deliveries = case.rows.deliveries
    size = len(case.rows.published.index)
    refused = (deliveries.settled.kind == REJECT) & (deliveries.message >= 0)
    own = np.flatnonzero(refused & (deliveries.life == 0))
    sent, done = np.full(size, NEVER), np.full(size, NEVER)
    np.minimum.at(sent, deliveries.message[own], deliveries.settled.sent_ns[own])
    np.minimum.at(done, deliveries.message[own], deliveries.settled.done_ns[own])
    return sent[gone], done[gone]


def _deleted(case: Case, code: int, rules: QueueRules, gone: Ints) -> Bools:
    published = case.rows.published
    found = np.zeros(len(gone), dtype=np.bool_)
    for change in (*case.rows.changes, *case.rows.purges):
        if change.queue == code and change.gone and not change.failed:
            found |= published.invoke_ns[gone] < change.end_ns
    if not rules.expires_ms:
        return found
    unused = [
        end
        for begin, end in _without_consumers(case, code)
        if end - begin >= UNUSED_SLACK * rules.expires_ms * MS
    ]
    if unused:
        found |= published.invoke_ns[gone] < max(unused)
    return found


def _without_consumers(case: Case, code: int) -> list[Stretch]:
    """When the queue had no consumer that was known to live."""
    consumers, end_ns = case.rows.consumers, case.around.end_ns
    own = np.flatnonzero((consumers.queue == code) & (consumers.active_ns < NEVER))
    used = [(int(consumers.active_ns[each]), _lived_ns(case, int(each))) for each in own]
    return without([(0, end_ns)], union(stretch for stretch in used if stretch[0] <= stretch[1]))


def _lived_ns(case: Case, consumer: int) -> int:
    """Until when a consumer was surely there, as its queue sees it.

    A client waits in vain for a node that lost power, or is cut off, and sees the end of its
    consumer long after the queue did. So from the first trouble on that it was not heard of after,
    it is unknown.
    """
    consumers, channel = case.rows.consumers, int(case.rows.consumers.channel[consumer])
    leaving_ns, end_ns = consumers.leaving_ns[consumer], consumers.end_ns[consumer]
    until_ns = int(min(leaving_ns, end_ns, case.around.end_ns))
    heard_ns = int(case.rows.channels.alive_ns[channel]) if channel >= 0 else NONE
    heard_ns = max(heard_ns, int(consumers.active_ns[consumer]))
    for begin_ns, ended_ns in case.calm.troubles:
        if ended_ns >= heard_ns:
            return min(until_ns, max(heard_ns, begin_ns))
    return until_ns


def _when_taken(case: Case, code: int, rules: QueueRules, gone: Ints) -> tuple[Ints, Ints]:
    """The time in which expiry or length must have taken each message."""
    published = case.rows.published
    begin_ns = published.invoke_ns[gone]
    end_ns = np.full(len(gone), _empty_ns(case, code), dtype=np.int64)
    same_life = rules.ttl_ms > 0 and not (published.ttl_ms[published.queue == code] >= 0).any()
    if same_life and not rules.max_length:
        deliveries = case.rows.deliveries
        came = np.zeros(len(published.index), dtype=np.bool_)
        came[deliveries.message[(deliveries.message >= 0) & (deliveries.life == 0)]] = True
        waits = ~came[gone]
        due_ns = published.complete_ns[gone] + rules.ttl_ms * MS + S
        end_ns = np.where(waits & (due_ns < end_ns), due_ns, end_ns)
    return begin_ns, end_ns


def _calm(case: Case, code: int, target: int) -> Callable[[Ints, Ints], Bools]:
    """Whether nothing happened to the queue nor to that of its dead letters."""
    quiet = case.calm.quiet

    def calm(begin_ns: Ints, end_ns: Ints) -> Bools:
        peaceful = np.ones(len(begin_ns), dtype=np.bool_)
        for queue in (code, target):
            if queue == NONE:
                return np.zeros(len(begin_ns), dtype=np.bool_)
            place = np.full(len(begin_ns), queue)
            first = quiet.at(place, begin_ns)
            peaceful &= (first >= 0) & (
                first == quiet.at(place, np.where(end_ns == NEVER, -1, end_ns))
            )
        return peaceful

    return calm


# Messages that may have gone to a consumer that acknowledges nothing, and that never got them.
#
# To such a consumer (no_ack) a message counts as consumed as soon as it is sent, so what is on
# its way when a channel or a link ends is gone: window L5 of docs/evidence/loss-windows.md.
#
# Source: RabbitMQ, Consumer Acknowledgements and Publisher Confirms, Acknowledgement Modes and
# Data Safety: "if consumer's TCP connection or channel is closed before successful delivery, the
# message sent by the server will be lost. Therefore, automatic acknowledgement mode should be
# considered unsafe". A broker that has not noticed the end goes on sending: for a moment, or as
# long as a fault hides it.

ORDERLY = ("cancelled", "refused", "cancelled-by-server")  # nothing was on its way any more
NOTICED_NS = 2 * S  # by then a broker in peace has seen a connection end
HIDDEN_NS = 15 * S  # by then it has missed its heartbeats


def maybe_sent(case: Case, code: int, messages: Ints) -> Bools:
    """Which of a queue's messages may have been sent to none."""
    consumers, published = case.rows.consumers, case.rows.published
    own = np.flatnonzero((consumers.queue == code) & consumers.no_ack)
    until_ns = max((_until_ns(case, code, int(each)) for each in own), default=-1)
    return np.asarray(published.invoke_ns[messages] < until_ns)


def _until_ns(case: Case, code: int, consumer: int) -> int:
    """Until when something may have been lost on its way to this one; -1 if nothing was."""
    consumers, quiet = case.rows.consumers, case.calm.quiet
    begin_ns, end_ns = int(consumers.begin_ns[consumer]), int(consumers.end_ns[consumer])
    end_ns = min(end_ns, case.around.end_ns)
    low, high = int(quiet.first[code]), int(quiet.first[code + 1])
    begins, ends = quiet.begin[low:high], quiet.end[low:high]
    at = int(np.searchsorted(begins, end_ns, side="right")) - 1
    in_peace = at >= 0 and ends[at] >= end_ns
    if consumers.ended[consumer] not in ORDERLY:
        hidden = not in_peace or consumers.ended[consumer] in ("lost", "")
        if not hidden:
            return end_ns + NOTICED_NS
        later = int(begins[at + 1]) if at + 1 < len(begins) else case.around.end_ns
        return max(end_ns + HIDDEN_NS, end_ns if in_peace else later)
    if in_peace:  # the last trouble before that
        return int(begins[at]) if begins[at] > begin_ns else -1
    return end_ns
