"""consumer-fates: what became of every message, and the verdict on it.

Every message that its publisher was told is safe has exactly one of these outcomes; the first
that holds counts. A policy takes a message only if the plan names it and it was due.

    consumed             delivered, and its acknowledgement had certainly arrived
    drained              still there when the run was over: basic.get took it
    dead-lettered        found among the dead letters, with the queue in its x-death
    consumed-unsure      delivered, and acknowledged without an answer, or no_ack
    rejected             a consumer refused it
    expired              its time to live had passed while it could be in the queue
    dropped              so many others came that the queue's length may have pushed it out
    deleted              its queue was deleted or purged, or had no consumer for longer than it may
    sent-untold          it may have been sent to a no_ack consumer whose channel ended meanwhile
    dead-letter-unsafe   rejection, expiry or length should have made it a dead letter, and
                         something happened near it: those are published without confirms
    dead-letter-missing  the same, and nothing happened
    doubtful             none of these, and its queue was not emptied
    lost                 none of these

Sources. RabbitMQ's guides Time-To-Live and Expiration; Queue Length Limit; Dead Letter Exchanges,
whose section Safety says that "dead-lettered messages are re-published without publisher confirms
turned on internally", so that they may be lost if a node fails meanwhile. AMQP 0-9-1, queue.delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly
from shalott.checkers.consumers.cancellation import served_after_leaving
from shalott.checkers.consumers.consume_case import Case, Finding, anomaly_of
from shalott.checkers.consumers.policies import Removals, come_behind, removals
from shalott.checkers.consumers.redeliveries import (
    CLASSES,
    causes,
    classes,
    dead_letters_again,
    judge_pairs,
)
from shalott.checkers.consumers.rows import (
    ACK,
    AUTO,
    FAIL,
    INFO,
    NONE,
    OK,
    REJECT,
    Death,
    Published,
)
from shalott.checkers.history.column_values import Words
from shalott.checkers.history.columns import NEVER, Bools, Codes, Ints, Operations
from shalott.checkers.history.loss import LossDetail
from shalott.checkers.queues.guarantees import ClientGuarantees
from shalott.checkers.queues.loss_story import loss_story
from shalott.checkers.queues.outcomes import LOST as LOST_OUTCOME
from shalott.checkers.queues.outcomes import OK as OK_OUTCOME
from shalott.checkers.queues.outcomes import Deliveries, MessageOutcomes, Messages
from shalott.core.history import History

QUEUES_MAX = 1000
NOT_PROMISED = ("dead-letter-unsafe", "dead-letter-missing", "lost")  # if a plan promises nothing


def consumer_fates(case: Case, history: History) -> Finding:
    """Nothing that was acknowledged to its publisher is lost to its consumers.

    Source: RabbitMQ, Reliability Guide, Acknowledgements and Confirms; Consumer Acknowledgements
    and Publisher Confirms, When Will Published Messages Be Confirmed by the Broker.
    """
    fates = case.once(message_fates)
    published, deliveries = case.rows.published, case.rows.deliveries
    lost = fates.fate == LOST
    loss, lost_anomalies = _loss(case, fates, history) if lost.any() else ({}, [])
    phantom = (published.ack == FAIL) & fates.came_out
    early = (deliveries.message >= 0) & (
        deliveries.at_ns < np.append(published.invoke_ns, 0)[deliveries.message]
    )
    unknown = (deliveries.message < 0) & ~deliveries.damaged
    undue, twice = undue_letters(case), dead_letters_again(case)
    anomalies = [
        *lost_anomalies,
        *_of_messages(case, "dead-letter-missing", fates.fate == MISSING,
                      "taken by a policy in quiet times and not found among the dead letters"),
        *_of_messages(case, "dead-letter-unsafe", fates.fate == UNSAFE,
                      "taken by a policy, or lost, near a fault, and not found among the dead"
                      " letters, which are published without confirms"),
        *_of_messages(case, "phantom", phantom, "delivered although the publish had failed"),
        *anomaly_of(case, "too-early", np.flatnonzero(early), [], "delivered before the publish"),
        *anomaly_of(case, "unexpected", np.flatnonzero(unknown), [],
                    "delivered although no client had published such to this queue"),
        *anomaly_of(case, "corrupted", np.flatnonzero(deliveries.damaged), [],
                    "damaged: the body failed its CRC"),
        *anomaly_of(case, "dead-letter-twice", twice.again, [deliveries.index[twice.before]],
                    "dead-lettered twice by one master"),
        *anomaly_of(case, "dead-letter-undue", undue, [],
                    "among the dead letters for a reason that was not there"),
    ]  # fmt: skip
    doubtful = int((fates.fate == DOUBTFUL).sum())
    doubts = [f"{queue} was not drained: {why}." for queue, why in fates.undrained.items()]
    if doubtful:
        doubts.append(f"{doubtful} acknowledged messages may be lost or may still be there.")
    if published.repeated:
        doubts.append(f"{published.repeated} publishes repeat another's value.")
    # A queue that was not drained makes no doubt where nothing of it is missing.
    serious = doubtful > 0 or published.repeated > 0 or not case.complete
    kinds = {each.kind: each for each in anomalies if each.kind != "lost"}
    return Finding(
        judged=int((published.ack == OK).sum()),
        anomalies=anomalies,
        excused=("dead-letter-unsafe",) if case.rules.keeps_acknowledged else NOT_PROMISED,
        counts=_counts(case, fates, kinds),
        doubts=doubts if serious else (),
        notes=() if serious else doubts,
        detail={**_detail(case, fates), "undrained": fates.undrained, "loss": loss},
    )


def _of_messages(case: Case, kind: str, mask: Bools, what: str) -> list[Anomaly]:
    """One anomaly for all messages of a kind, with their publishes and first deliveries."""
    members = np.flatnonzero(mask)
    if not len(members):
        return []
    published = case.rows.published
    first = case.first[members[: OPERATIONS_MAX // 2]]
    indexes = np.append(case.rows.deliveries.index, -1)[first]
    together = np.stack((published.index[members[: OPERATIONS_MAX // 2]], indexes), axis=1)
    messages = "message was" if len(members) == 1 else "messages were"
    at_s = published.invoke_ns[members[0]] / 1e9
    queue = case.rows.queues[published.queue[members[0]]]
    return [
        Anomaly(
            kind=kind,
            summary=f"{len(members)} {messages} {what}, first of {queue}, published at"
            f" {at_s:.1f} s",
            operations=tuple(int(index) for index in together.ravel() if index >= 0),
            detail={
                "count": len(members),
                "values": [int(value) for value in published.value[members[:OPERATIONS_MAX]]],
            },
        )
    ]


def _counts(case: Case, fates: Fates, kinds: dict[str, Anomaly]) -> dict[str, int | float]:
    published, deliveries = case.rows.published, case.rows.deliveries
    by_ack = np.bincount(published.ack, minlength=3)
    own = fates.fate[fates.fate >= 0]
    by_fate = np.bincount(own, minlength=len(FATES))
    unsure = published.ack == INFO
    again = fates.dead_letters > 1
    found: dict[str, int | float] = {
        "attempt-count": len(published.index),
        "acknowledged-count": int(by_ack[OK]),
        "failed-count": int(by_ack[FAIL]),
        "indeterminate-count": int(by_ack[INFO]),
        "delivery-count": int((~deliveries.taken).sum()),
        "taken-count": int(deliveries.taken.sum()),
        **{f"{name}-count": int(by_fate[code]) for code, name in enumerate(FATES)},
        "recovered-count": int((unsure & fates.came_out).sum()),
        "not-enqueued-count": int(((published.ack != OK) & ~fates.came_out).sum()),
        "dead-lettered-twice-count": int(again.sum()),
    }
    for kind in ("phantom", "too-early", "unexpected", "corrupted", "dead-letter-undue"):
        found[f"{kind}-count"] = int(kinds[kind].detail["count"]) if kind in kinds else 0
    for name, count in zip(CLASSES, _class_counts(case), strict=True):
        found[f"{name}-delivery-count"] = count
    return found


def _class_counts(case: Case) -> list[int]:
    deliveries = case.rows.deliveries
    found = case.once(_classes)
    own = found[~deliveries.taken]
    return [int(count) for count in np.bincount(own, minlength=len(CLASSES))]


def _classes(case: Case) -> Codes:
    return classes(case, served_after_leaving(case))


def _detail(case: Case, fates: Fates) -> dict[str, object]:
    queues = case.rows.queues
    table = np.zeros((len(queues), len(FATES)), dtype=np.int64)
    own = np.flatnonzero(fates.fate >= 0)
    np.add.at(table, (case.rows.published.queue[own], fates.fate[own]), 1)
    by_class = np.zeros((len(queues), len(CLASSES)), dtype=np.int64)
    given = np.flatnonzero(~case.rows.deliveries.taken & (case.rows.deliveries.queue >= 0))
    np.add.at(by_class, (case.rows.deliveries.queue[given], case.once(_classes)[given]), 1)
    pairs = case.once(judge_pairs).pairs
    return {
        "fates": _named(FATES, table.sum(axis=0)),
        "fates-by-queue": _by_queue(queues, FATES, table),
        "deliveries": _named(CLASSES, _class_counts(case)),
        "deliveries-by-queue": _by_queue(queues, CLASSES, by_class),
        "redeliveries-by-cause": causes(case, pairs),
    }


def _named(names: Sequence[str], counts: Iterable[int]) -> dict[str, int]:
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _by_queue(queues: Sequence[str], names: Sequence[str], table: Ints) -> dict[str, object]:
    used = [code for code in range(len(queues)) if table[code].any()][:QUEUES_MAX]
    return {queues[code]: _named(names, table[code]) for code in used}


def _loss(case: Case, fates: Fates, history: History) -> tuple[LossDetail, list[Anomaly]]:
    """The anatomy of loss, as total-queue tells it: each message as if it had a publish alone."""
    published = case.rows.published
    size = len(published.index)
    ops = _as_operations(case, published)
    order = np.arange(size)
    outcome = np.where(fates.fate == LOST, LOST_OUTCOME, OK_OUTCOME).astype(np.int32)
    nothing = np.zeros(0, dtype=np.int64)
    messages = Messages(
        value=published.value,
        row=order,
        ack=np.where(fates.fate == DOUBTFUL, INFO, published.ack).astype(np.int32),
        delivered=fates.came_out.astype(np.int64),
        outcome=outcome,
        too_early=np.zeros(size, dtype=np.bool_),
    )
    outcomes = MessageOutcomes(messages, Deliveries(nothing, nothing), nothing, 0, 0)
    detail, anomalies = loss_story(ops, outcomes, history, case.around, ClientGuarantees())
    return detail, list(_with_deliveries(case, anomalies))


def _as_operations(case: Case, published: Published) -> Operations:
    size = len(published.index)
    nothing = Words(np.zeros(size, dtype=np.int32), ("",))
    kinds = np.array(published.ack, dtype=np.int32)
    return Operations(
        index=published.index,
        process=published.process,
        node=published.node,
        f=Words(np.zeros(size, dtype=np.int32), ("enqueue",)),
        key=Words(published.queue.astype(np.int32), case.rows.queues),
        value=published.value,
        has_value=np.ones(size, dtype=np.bool_),
        type=Words(kinds, ("ok", "fail", "info")),
        invoke_ns=published.invoke_ns,
        complete_ns=published.complete_ns,
        redelivered=np.zeros(size, dtype=np.bool_),
        error=nothing,
    )


def _with_deliveries(case: Case, anomalies: Sequence[Anomaly]) -> Iterator[Anomaly]:
    """Says of what was lost whether a consumer had been given it."""
    published = case.rows.published
    given = case.first[np.argsort(published.index, kind="stable")] >= 0
    indexes: Ints = np.sort(published.index)
    for anomaly in anomalies:
        at = np.searchsorted(indexes, np.array(anomaly.operations, dtype=np.int64))
        count = int(given[np.minimum(at, len(given) - 1)].sum()) if len(given) else 0
        yield Anomaly(
            kind=anomaly.kind,
            summary=anomaly.summary,
            operations=anomaly.operations,
            detail={**anomaly.detail, "delivered-before-of-these": count},
        )


# --- the outcomes ---------------------------------------------------------------------------------

FATES = (
    "consumed",
    "drained",
    "dead-lettered",
    "consumed-unsure",
    "rejected",
    "expired",
    "dropped",
    "deleted",
    "sent-untold",
    "dead-letter-unsafe",
    "dead-letter-missing",
    "doubtful",
    "lost",
)
(
    CONSUMED, DRAINED, DEAD_LETTERED, UNSURE, REJECTED, EXPIRED, DROPPED, DELETED,
    UNTOLD, UNSAFE, MISSING, DOUBTFUL, LOST,
) = range(13)  # fmt: skip
NOT_ACKNOWLEDGED = -1


@dataclass(frozen=True, slots=True)
class Fates:
    """A row a message. ``fate``: position in FATES, NOT_ACKNOWLEDGED of those that were not."""

    fate: Codes
    came_out: Bools  # anywhere, in any life
    dead_letters: Ints  # how often it ended among the dead letters
    undrained: dict[str, str]  # queues that may still hold something, and why
    removals: Removals


def message_fates(case: Case) -> Fates:
    """Every message's; those that were not acknowledged have none."""
    seen = _Seen(case)
    undrained = undrained_queues(case)
    open_queues = np.array([name in undrained for name in case.rows.queues], dtype=np.bool_)
    published = case.rows.published
    acknowledged = published.ack == OK
    fate = np.full(len(published.index), LOST, dtype=np.int32)
    missing = acknowledged & ~seen.came_to_an_end
    gone = removals(case, np.flatnonzero(missing), open_queues)
    fate[open_queues[published.queue]] = DOUBTFUL
    for code, mask in (
        (MISSING, gone.missing),
        (UNSAFE, gone.unsafe),
        (DOUBTFUL, gone.doubtful),
        (UNTOLD, gone.untold),
        (DELETED, gone.deleted),
        (DROPPED, gone.dropped),
        (EXPIRED, gone.expired),
        (REJECTED, gone.rejected),
        (UNSURE, seen.unsure),
        (DEAD_LETTERED, seen.dead),
        (DRAINED, seen.drained),
        (CONSUMED, seen.consumed),
        (NOT_ACKNOWLEDGED, ~acknowledged),
    ):
        fate[mask] = code
    return Fates(fate, seen.came_out, seen.dead_letters, undrained, gone)


class _Seen:
    """What deliveries say of each message."""

    def __init__(self, case: Case) -> None:
        deliveries, settled = case.rows.deliveries, case.rows.deliveries.settled
        size = len(case.rows.published.index)
        known = deliveries.message >= 0
        alive = known & (deliveries.life == 0)
        acked = alive & (settled.kind == ACK)

        def of(mask: Bools) -> Bools:
            found = np.zeros(size, dtype=np.bool_)
            found[deliveries.message[mask]] = True
            return found

        self.consumed = of(acked & settled.ok)
        automatic = alive & (settled.kind == AUTO) & ~deliveries.taken
        self.unsure = of((acked & ~settled.ok) | automatic)
        self.drained = of(alive & deliveries.taken)
        self.dead = of(known & (deliveries.life > 0))
        self.came_out = of(known)
        self.came_to_an_end = self.consumed | self.unsure | self.drained | self.dead
        ended = known & (deliveries.life > 0)
        ended &= deliveries.taken | ((settled.kind == ACK) & settled.ok)
        self.dead_letters = np.bincount(deliveries.message[ended], minlength=size)


# --- queues that were not seen empty when the run was over ----------------------------------------

NO_QUEUE = ("404", "not found", "not_found", "no queue")  # what a queue that is gone answers


def undrained_queues(case: Case) -> dict[str, str]:
    """Each with the reason; as checkers/queues/total_queue.py has it."""
    rows = case.rows
    codes = np.union1d(rows.published.queue, rows.deliveries.queue)
    queues = [rows.queues[int(code)] for code in codes if code >= 0]
    drain = case.around.phase("drain")
    if not case.complete:
        return dict.fromkeys(queues, "the recording was cut short")
    if drain is None:
        return dict.fromkeys(queues, "there was no drain")
    if drain.end_ns is None:
        return dict.fromkeys(queues, "the drain did not end")
    nodes = [node for node in rows.nodes if node and node not in case.around.left_out]
    silent: dict[str, str] = {}
    for queue in queues:
        heard = _heard(case, queue, drain.begin_ns)
        missing = [node for node in nodes if node not in heard]
        if missing and not _may_be_gone(case, queue):
            silent[queue] = f"{', '.join(missing)} never said that it was empty"
    return silent


def _heard(case: Case, queue: str, since_ns: int) -> set[str]:
    code = case.rows.queues.index(queue)
    if code not in case.rows.emptied:
        return set()
    late = case.rows.emptied[code] >= since_ns
    said = np.unique(case.rows.emptied_by[code][late])
    return {case.ops.node.names[each] for each in said}


def _may_be_gone(case: Case, queue: str) -> bool:
    """Whether it was deleted, or may have been, and was not declared again for sure: then there is
    nothing to drain, if an answer says so."""
    code = case.rows.queues.index(queue)
    expires = case.queue_rules(code).expires_ms > 0
    last = [each for each in case.rows.changes if each.queue == code and not each.failed]
    if not expires and not (last and (last[-1].gone or last[-1].end_ns == NEVER)):
        return False
    ops = case.ops
    asked = ops.f.equal("dequeue") & ops.key.equal(queue) & ops.type.equal("fail")
    errors = {ops.error.names[each] for each in np.unique(ops.error.codes[asked])}
    return any(text in error.lower() for error in errors for text in NO_QUEUE)


# Dead letters whose x-death says what can't have been.
#
# Source: RabbitMQ, Dead Letter Exchanges: messages are dead-lettered if they are rejected without
# requeue, expire, or are dropped because a queue is too long; and to the exchange of their queue.


def undue_letters(case: Case) -> Ints:
    """Deliveries of such letters, as positions."""
    deliveries, lives = case.rows.deliveries, case.rows.lives
    undue = np.zeros(len(deliveries.index), dtype=np.bool_)
    for code in range(1, len(lives)):
        own = np.flatnonzero((deliveries.life == code) & (deliveries.message >= 0))
        for number, death in enumerate(lives[code]):
            undue[own] |= ~_was_due(case, death, own, latest=number == 0)
    return np.flatnonzero(undue)


def _was_due(case: Case, death: Death, own: Ints, *, latest: bool) -> Bools:
    """Whether each of the deliveries may be of a message that died like this."""
    yes = np.ones(len(own), dtype=np.bool_)
    if death.queue not in case.rows.queues:
        return yes
    code = case.rows.queues.index(death.queue)
    rules = case.queue_rules(code)
    if not any(each.name == death.queue for each in case.rules.queues):
        return yes
    deliveries, published = case.rows.deliveries, case.rows.published
    if latest and rules.dead_letters in case.rows.queues:
        target = case.rows.queues.index(rules.dead_letters)
        yes &= deliveries.queue[own] == target
    message = deliveries.message[own]
    if death.reason == "expired":
        yes &= (published.ttl_ms[message] != NONE) | (rules.ttl_ms > 0)
    elif death.reason == "maxlen":
        yes &= rules.max_length > 0
        pushed = any(each.dead_letters == rules.name for each in case.rules.queues)
        if latest and not pushed:  # dead letters push as well, unseen
            came_ns = deliveries.at_ns[own]
            behind = come_behind(case, code, message, came_ns)
            yes &= (behind >= rules.max_length) | (published.queue[message] != code)
    elif death.reason == "rejected":
        refused = (deliveries.settled.kind == REJECT) & (deliveries.queue == code)
        refused &= deliveries.message >= 0
        known = np.zeros(len(published.index), dtype=np.bool_)
        known[deliveries.message[refused]] = True
        yes &= known[message]
    return yes
