"""fifo-order: whether messages came out in the order in which they had gone in.

Theory. What a broker that gives messages back promises is the order of *first deliveries*: messages
that were never delivered stay in the order of their enqueues, and a delivery takes the first of
them, wherever returned ones are put. So only the first delivery of each message is judged: if a was
enqueued before b was asked to be, a's first delivery does not come after b's. That is the order
part of the FIFO monitor (checkers/monitors/queue_monitor.py); it is necessary for a FIFO
queue, not sufficient, and says nothing of what never came out (total-queue does).

What was observed first need not have been first. Three rules keep it sound:

- The first delivery lies between the earliest call and the earliest return of a message's observed
  deliveries.
- A dequeue that ended without an answer (info, or failed otherwise than by an empty queue: a master
  may have died with its answer), or with a body that can't be read, may have been the first
  delivery of one message. A message that was overtaken is excused if such a dequeue was called
  before; each excuses one. That is a matching of nested sets, and the monitor does it, if overtaken
  messages are given to it as never dequeued. The flag redelivered excuses nothing by itself: every
  delivery is a dequeue of this history, and a promoted mirror flags all that it has, whether or not
  anybody ever got it (rabbit/rabbit_mirror_queue_slave.erl). But a dequeue that was under way when
  a message was overtaken, and returned a flagged one, may have been asked twice: the broker asks
  the new master what the dead one had answered (rabbit_amqqueue:with), so it excuses one, too.
- An enqueue without an answer, of a message that came out, happened before it came out. One that
  failed, and an unknown value, are total-queue's business and left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import numpy as np

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.engine import new_budget
from shalott.checkers.history.client_history import EMPTY, concurrent_history
from shalott.checkers.history.columns import Bools, Ints, Operations, client_operations
from shalott.checkers.history.concurrent import FAIL, INFO, NEVER, OK, ConcurrentHistory
from shalott.checkers.linearizability.explain import explain
from shalott.checkers.linearizability.explanation import Explanation, to_detail
from shalott.checkers.models.collections import FifoQueue
from shalott.checkers.monitors.monitor import MonitorAnswer
from shalott.checkers.monitors.queue_monitor import FIFO
from shalott.core.history import History

EXPLAINED_MAX = 6  # queues whose violation is drawn
FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class FifoOrder:
    name: str = "fifo-order"

    def check(self, history: History) -> Result:
        ops = client_operations(history)
        names = [ops.key.names[code] for code in np.unique(ops.key.codes)]
        found = {name: queue_order(ops, name) for name in names if name}
        wrong = {name: order for name, order in found.items() if order.answer.valid is False}
        doubts = [
            f"{name} could not be judged: {order.answer.why}."
            for name, order in found.items()
            if order.answer.valid == "unknown"
        ]
        compared = sum(order.compared for order in found.values())
        if not compared:
            doubts.append("No message was delivered: nothing is known of the order.")
        return Result(
            checker=self.name,
            valid=False if wrong else ("unknown" if doubts else True),
            counts={
                "first-delivery-count": compared,
                "redelivered-first-count": sum(order.flagged for order in found.values()),
                "overtaken-count": sum(order.overtaken for order in found.values()),
                "order-count": len(wrong),
            },
            anomalies=tuple(_anomaly(name, order) for name, order in wrong.items()),
            notes=(*doubts, *_notes(found)),
            detail=to_detail(
                [_explanation(name, order) for name, order in wrong.items()][:EXPLAINED_MAX]
            ),
        )


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """What was found of one queue. ``overtaken`` messages came out after later ones."""

    answer: MonitorAnswer
    judged: ConcurrentHistory  # what the monitor saw
    compared: int = 0
    flagged: int = 0  # first observed when they were redelivered
    overtaken: int = 0


def queue_order(ops: Operations, queue: str) -> QueueOrder:
    wanted = ops.key.equal(queue) & ops.f.among(("enqueue", "dequeue"))
    history = concurrent_history(ops, wanted)
    flags = ops.redelivered[np.searchsorted(ops.index, history.place)]
    excuses = _excuses(ops, history)
    messages = first_deliveries(history, flags)
    overtaken = messages.overtaken()
    excuses |= _asked_again(history, flags, messages, overtaken)
    is_excusable = bool(overtaken.any() and excuses.any())
    judged = monitored(history, messages, excuses, overtaken if is_excusable else None)
    answer = FIFO(judged, new_budget())
    return QueueOrder(
        answer=answer,
        judged=judged,
        compared=len(messages.enqueue),
        flagged=int(messages.flagged.sum()),
        overtaken=int(overtaken.sum()),
    )


def _excuses(ops: Operations, history: ConcurrentHistory) -> Bools:
    """Dequeues that may have delivered a message to no client."""
    unanswered = (history.type == INFO) | (history.type == FAIL)
    said_empty = ops.error.equal(EMPTY)[np.searchsorted(ops.index, history.place)]
    unreadable = (history.type == OK) & (history.argument.kind == 0)
    return np.asarray(history.f.equal("dequeue") & (unanswered | unreadable) & ~said_empty)


def _asked_again(
    history: ConcurrentHistory, flags: Bools, messages: FirstDeliveries, overtaken: Bools
) -> Bools:
    """Dequeues that returned a flagged message, and were under way when one was overtaken. Not the
    one that overtook: its new master had the other message at its head.
    """
    flagged = history.f.equal("dequeue") & (history.type == OK) & flags
    found = np.zeros(len(history), dtype=np.bool_)
    for late in np.flatnonzero(overtaken):
        later = np.flatnonzero(messages.enqueue_call >= messages.enqueue_ret[late])
        first = later[np.argmin(messages.ret[later])]
        begun = history.call < messages.ret[first]
        under_way = flagged & begun & (history.ret > messages.call[first])
        under_way[messages.delivery[first]] = False
        found |= under_way
    return found


@dataclass(frozen=True, slots=True)
class FirstDeliveries:
    """A row a message that was enqueued, perhaps, and delivered. Times are the history's ranks."""

    enqueue: Ints  # row of the history
    delivery: Ints  # row of the observed delivery that returned first
    enqueue_call: Ints
    enqueue_ret: Ints  # at the latest when it had come out
    call: Ints  # the first delivery was not before
    ret: Ints  # nor after
    flagged: Bools

    def overtaken(self) -> Bools:
        """Messages whose first delivery came after that of a message enqueued after them."""
        order = np.argsort(self.enqueue_call)
        earliest = np.minimum.accumulate(self.ret[order][::-1])[::-1]  # of these and all later ones
        earliest = np.append(earliest, FAR)
        later = np.searchsorted(self.enqueue_call[order], self.enqueue_ret)
        return np.asarray(earliest[later] < self.call)


def first_deliveries(history: ConcurrentHistory, flags: Bools) -> FirstDeliveries:
    """The messages of one queue that were delivered and whose enqueue did not fail."""
    has_value = history.argument.kind != 0
    enqueues = np.flatnonzero(history.f.equal("enqueue") & (history.type != FAIL) & has_value)
    given = np.flatnonzero(history.f.equal("dequeue") & (history.type == OK) & has_value)
    value = history.argument.number
    # Of each value the enqueue that was called first, and its deliveries by return.
    _, first = np.unique(value[enqueues], return_index=True)
    enqueues = enqueues[first]
    given = given[np.isin(value[given], value[enqueues])]
    given = given[np.lexsort((history.ret[given], value[given]))]
    values, first, of = np.unique(value[given], return_index=True, return_inverse=True)
    earliest_call = np.full(len(values), FAR)
    np.minimum.at(earliest_call, of, history.call[given].astype(np.int64))
    enqueues = enqueues[np.searchsorted(value[enqueues], values)]
    delivery = given[first]
    flagged = flags[delivery]
    enqueue_call = history.call[enqueues].astype(np.int64)
    ret = history.ret[delivery].astype(np.int64)
    enqueue_ret = np.minimum(history.ret[enqueues], ret)
    return FirstDeliveries(
        enqueues, delivery, enqueue_call, enqueue_ret, earliest_call, ret, flagged
    )


def monitored(
    history: ConcurrentHistory, messages: FirstDeliveries, excuses: Bools, excused: Bools | None
) -> ConcurrentHistory:
    """What the monitor is asked: enqueues and first deliveries, at the times that are sure.

    ``excused`` messages are left without a delivery, for which the ``excuses`` are put in.
    """
    kept = np.ones(len(messages.delivery), dtype=np.bool_) if excused is None else ~excused
    late = messages.delivery[kept]
    call = history.call.astype(np.int64)
    # Right after the enqueue's call, if nothing better is known; two ranks leave room for it.
    early = messages.call[kept] < call[late]
    call = 2 * call
    late_call = np.where(early, 2 * messages.call[kept] + 1, call[late])
    more = np.flatnonzero(excuses & (excused is not None))
    rows = np.concatenate((messages.enqueue, late, more))
    calls = np.concatenate((call[messages.enqueue], late_call, call[more]))
    order = np.argsort(calls, kind="stable")
    asked, calls = history.take(rows[order]), calls[order]
    rets = 2 * asked.ret.astype(np.int64)
    crashed = (order >= len(rows) - len(more)) | (asked.ret == NEVER)
    order = np.argsort(np.concatenate((calls, rets[~crashed])), kind="stable")
    ranks = np.empty(len(order), dtype=np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    ret = np.full(len(rows), NEVER, dtype=np.int32)
    ret[~crashed] = ranks[len(rows) :]
    kinds = np.where(crashed, np.uint8(INFO), asked.type)
    return replace(asked, call=ranks[: len(rows)], ret=ret, type=kinds)


def _anomaly(queue: str, order: QueueOrder) -> Anomaly:
    return Anomaly(
        kind="order",
        summary=f"{queue}: {order.answer.reason}",
        operations=tuple(int(order.judged.place[row]) for row in order.answer.operations),
        detail={"queue": queue, "violation": order.answer.violation},
    )


def _explanation(queue: str, order: QueueOrder) -> Explanation:
    """The window that the report draws, of first deliveries only."""
    explanation = explain(
        order.judged,
        FifoQueue(),
        witness=order.answer.operations,
        reason=order.answer.reason,
        by="order of first deliveries",
    )
    return msgspec.structs.replace(explanation, key=queue)


def _notes(found: dict[str, QueueOrder]) -> list[str]:
    return [
        f"{order.overtaken} messages of {name} came out after later ones; dequeues without an"
        " answer may have had them before."
        for name, order in found.items()
        if order.overtaken and order.answer.valid is True
    ]
