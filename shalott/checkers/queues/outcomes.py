"""The outcome of every message: what its sender was told against how often it came out.

Each value is in exactly one row (its enqueue was ok, fail, info, or never invoked) and one column
(delivered never, once, several times; the further deliveries flagged redelivered or not):

    enqueue   never delivered   once        several, flagged   several, not flagged
    ok        lost              ok          redelivered        duplicated
    info      not-enqueued      recovered   redelivered        duplicated
    fail      not-enqueued      phantom     phantom            phantom
    never     -                 unexpected  unexpected         unexpected

A delivery is a dequeue that brought a value, be it ok or info (the client had the message, only the
outcome of its acknowledgement is unknown). "Several, not flagged" means that more than one delivery
is without the redelivered flag, or that the only one without it began after another had ended: then
it was certainly not the first. Deliveries that overlap in time are given the benefit of the doubt.

The sets extend those of Jepsen's total-queue (jepsen/src/jepsen/checker.clj): its ok is the values
delivered and attempted; its recovered is our recovered plus those of redelivered, duplicated and
phantom that were not acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.history.column_values import Words
from shalott.checkers.history.columns import NEVER, Bools, Codes, Ints, Operations

OK, RECOVERED, LOST, DUPLICATED, REDELIVERED, PHANTOM, NOT_ENQUEUED = range(7)
MESSAGE_OUTCOMES = (
    "ok",
    "recovered",
    "lost",
    "duplicated",
    "redelivered",
    "phantom",
    "not-enqueued",
)
ACKS = ("ok", "fail", "info")
_ACK_OK, _ACK_FAIL = 0, 1


@dataclass(frozen=True, slots=True)
class Messages:
    """The attempted values, sorted by value; one array position a message."""

    value: Ints
    row: Ints  # position of the enqueue in the operations
    ack: Codes  # position in ACKS
    delivered: Ints  # how often
    outcome: Codes  # position in MESSAGE_OUTCOMES
    too_early: Bools  # delivered before its enqueue began


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Dequeues that brought a value, in the operations' order."""

    row: Ints  # position in the operations
    message: Ints  # position in Messages; -1: never attempted


@dataclass(frozen=True, slots=True)
class MessageOutcomes:
    """Every message and delivery, and what does not fit the table above."""

    messages: Messages
    deliveries: Deliveries
    corrupted: Ints  # dequeues whose body failed its CRC, as positions in the operations
    repeated_attempts: int  # enqueues of a value that another enqueue had: the harness's own fault
    enqueues_without_value: int

    def rows_of(self, message: int) -> list[int]:
        rows = self.deliveries.row[self.deliveries.message == message]
        return [int(self.messages.row[message]), *map(int, rows)]


def message_outcomes(ops: Operations) -> MessageOutcomes:
    is_enqueue = ops.f.equal("enqueue")
    enqueues = np.flatnonzero(is_enqueue & ops.has_value)
    values = ops.value[enqueues]
    order = np.argsort(values, kind="stable")
    enqueues, values = enqueues[order], values[order]
    is_first = np.ones(len(values), dtype=np.bool_)
    is_first[1:] = values[1:] != values[:-1]
    repeated = int(len(values) - is_first.sum())
    enqueues, values = enqueues[is_first], values[is_first]

    is_dequeue = ops.f.among(("dequeue", "drain"))
    taken = np.flatnonzero(is_dequeue & ops.has_value & ~ops.type.equal("fail"))
    message = _positions(values, ops.value[taken])
    deliveries = Deliveries(row=taken, message=message)
    ack = _ack_codes(ops.type, enqueues)
    delivered, unflagged, early = _deliveries_of(ops, enqueues, deliveries)
    return MessageOutcomes(
        messages=Messages(
            value=values,
            row=enqueues,
            ack=ack,
            delivered=delivered,
            outcome=_outcomes(ack, delivered, unflagged),
            too_early=early,
        ),
        deliveries=deliveries,
        corrupted=np.flatnonzero(is_dequeue & ops.error.equal("corrupted")),
        repeated_attempts=repeated,
        enqueues_without_value=int((is_enqueue & ~ops.has_value).sum()),
    )


def _positions(sorted_values: Ints, wanted: Ints) -> Ints:
    """Where each wanted value is; -1 where it is not."""
    if not len(sorted_values):
        return np.full(len(wanted), -1, dtype=np.int64)
    low, high = int(sorted_values[0]), int(sorted_values[-1])
    if high - low < 4 * len(sorted_values) + 1024:  # dense ids: a table beats a binary search
        table = np.full(high - low + 1, -1, dtype=np.int64)
        table[sorted_values - low] = np.arange(len(sorted_values))
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, table[np.where(inside, wanted - low, 0)], -1)
    order = np.argsort(wanted)  # a search for rising values stays in the cache
    found = np.empty(len(wanted), dtype=np.int64)
    found[order] = np.searchsorted(sorted_values, wanted[order])
    found = np.minimum(found, len(sorted_values) - 1)
    return np.where(sorted_values[found] == wanted, found, -1)


def _ack_codes(types: Words, rows: Ints) -> Codes:
    """Positions in ACKS; what is neither ok nor fail is info."""
    known = {"ok": _ACK_OK, "fail": _ACK_FAIL}
    table = np.array([known.get(name, 2) for name in types.names], dtype=np.int32)
    return table[types.codes[rows]] if len(rows) else np.zeros(0, dtype=np.int32)


def _deliveries_of(
    ops: Operations, enqueues: Ints, deliveries: Deliveries
) -> tuple[Ints, Bools, Bools]:
    """For each message: how often delivered, whether again without the flag, whether too early."""
    count = len(enqueues)
    rows = deliveries.row[deliveries.message >= 0]
    message = deliveries.message[deliveries.message >= 0]
    delivered = np.bincount(message, minlength=count).astype(np.int64)
    first_end = np.full(count, NEVER, dtype=np.int64)
    np.minimum.at(first_end, message, ops.complete_ns[rows])
    early = first_end < ops.invoke_ns[enqueues]

    bare = ~ops.redelivered[rows]
    bare_count = np.bincount(message[bare], minlength=count)
    again = bare & (ops.invoke_ns[rows] > first_end[message])
    unflagged = (bare_count > 1) | (np.bincount(message[again], minlength=count) > 0)
    return delivered, unflagged & (delivered > 1), early


def _outcomes(ack: Codes, delivered: Ints, unflagged: Bools) -> Codes:
    """The table in the module's docstring."""
    outcome = np.where(ack == _ACK_OK, OK, RECOVERED)
    outcome = np.where(delivered > 1, REDELIVERED, outcome)
    outcome = np.where(unflagged, DUPLICATED, outcome)
    outcome = np.where(ack == _ACK_FAIL, PHANTOM, outcome)
    never = np.where(ack == _ACK_OK, LOST, NOT_ENQUEUED)
    return np.where(delivered == 0, never, outcome).astype(np.int32)
