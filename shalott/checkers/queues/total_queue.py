"""total-queue: what happened to every message, and whether the delivery promise was kept.

Extends Jepsen's checker of that name (jepsen/src/jepsen/checker.clj). The outcomes are defined in
checkers/queues/outcomes.py, the anatomy of loss in checkers/history/loss.py, its causes in
checkers/queues/loss_windows.py.

What makes a run invalid depends on the promise. A message that came from nowhere, was damaged, came
before it was sent, or was delivered although its sender was told that it certainly was not taken
(phantom: a sender that repeats it has it twice, one that drops it acts on a falsehood), or that one
master delivered again without the flag (unflagged: checkers/queues/redelivery.py) breaks any
promise. Beyond that, at-least-once forbids loss; at-most-once forbids a second delivery, flagged
redelivered or not; exactly-once forbids both. Under at-least-once duplicates are only counted.

A message is known to be lost only if its queue was drained: after the beginning of the drain phase
every node that served clients answered ``empty`` for it, and the recording is whole. Messages that
are missing from a queue that was not drained may still be in it: then the verdict is "unknown".
An ``info`` dequeue without a value explains no loss: a client acknowledges only what it has read.
(Where the broker was told not to wait for that, see checkers/queues/guarantees.py, the loss is a
loss still.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.history.columns import EXCHANGE, Bools, Ints, Operations, client_operations
from shalott.checkers.history.faults import Surroundings, read_surroundings
from shalott.checkers.history.tenures import read_events
from shalott.checkers.queues.guarantees import CAREFUL, ClientGuarantees
from shalott.checkers.queues.loss_story import loss_story
from shalott.checkers.queues.outcomes import (
    ACKS,
    DUPLICATED,
    LOST,
    MESSAGE_OUTCOMES,
    NOT_ENQUEUED,
    OK,
    PHANTOM,
    RECOVERED,
    REDELIVERED,
    MessageOutcomes,
    message_outcomes,
)
from shalott.checkers.queues.redelivery import unflagged
from shalott.core.errors import UsageError
from shalott.core.history import History

FORBIDDEN_ALWAYS = ("unexpected", "corrupted", "phantom", "too-early", "unflagged")
FORBIDDEN = {
    "at-least-once": (*FORBIDDEN_ALWAYS, "lost"),
    "at-most-once": (*FORBIDDEN_ALWAYS, "duplicated", "redelivered"),
    "exactly-once": (*FORBIDDEN_ALWAYS, "lost", "duplicated", "redelivered"),
}
Again = Mapping[int, tuple[int, int]]  # unflagged messages, with two deliveries of each
NO_QUEUE = " no queue '"  # what a node answers that knows none of that name
VALUES_MAX = 1000  # values listed for one kind


@dataclass(frozen=True, slots=True)
class TotalQueue:
    """``delivery``: at-least-once, at-most-once or exactly-once. ``guarantees``: the clients'
    guarantees."""

    delivery: str = "at-least-once"
    guarantees: ClientGuarantees = CAREFUL
    name: str = "total-queue"

    def __post_init__(self) -> None:
        if self.delivery not in FORBIDDEN:
            raise UsageError(f"unknown delivery {self.delivery}: one of {', '.join(FORBIDDEN)}")

    def check(self, history: History) -> Result:
        ops = client_operations(history)
        around = read_surroundings(history)
        outcomes = message_outcomes(ops)
        undrained = undrained_queues(ops, around, history.complete)
        again = unflagged(ops, outcomes, history, around, read_events(history))
        counts = _counts(ops, outcomes)
        counts["unflagged-count"] = len(again)
        loss, loss_anomalies = loss_story(ops, outcomes, history, around, self.guarantees)
        doubtful = _doubtful_losses(ops, outcomes, undrained)
        counts["lost-provably-count"] = counts["lost-count"] - doubtful
        counts["lost-unexplained-count"] = loss.get("by-cause", {}).get("unexplained", 0)
        broken = [
            kind
            for kind in FORBIDDEN[self.delivery]
            if counts[f"{kind}-count"] > (doubtful if kind == "lost" else 0)
        ]
        forbids_loss = "lost" in FORBIDDEN[self.delivery]
        uncertain = bool(outcomes.repeated_attempts) or (forbids_loss and doubtful > 0)
        return Result(
            checker=self.name,
            valid=False if broken else ("unknown" if uncertain else True),
            counts=counts,
            anomalies=(*loss_anomalies, *_message_anomalies(ops, outcomes, again)),
            notes=tuple(_notes(outcomes, undrained, doubtful, history.complete)),
            detail={
                "delivery": self.delivery,
                "broken": broken,
                "undrained": undrained,
                "matrix": _matrix(outcomes),
                "values": _values_by_kind(ops, outcomes, again),
                "loss": loss,
            },
        )


def undrained_queues(ops: Operations, around: Surroundings, complete: bool) -> dict[str, str]:
    """Queues that can't be known to be empty at the end, each with the reason.

    One that the drain had declared first is of those that may vanish: if it has, it is empty.
    """
    asked = ops.f.among(("enqueue", "dequeue"))
    names = [ops.key.names[code] for code in np.unique(ops.key.codes[asked])]
    queues = [name for name in names if not name.startswith(EXCHANGE)]
    drain = around.phase("drain")
    if not complete:
        return dict.fromkeys(queues, "the recording was cut short")
    if drain is None:
        return dict.fromkeys(queues, "there was no drain")
    if drain.end_ns is None:
        return dict.fromkeys(queues, "the drain did not end")
    draining = ops.invoke_ns >= drain.begin_ns
    declared = ops.key.codes[ops.f.equal("declare-queue") & draining]
    gone = [code for code, error in enumerate(ops.error.names) if NO_QUEUE in error]
    said_empty = ops.error.equal("empty") | (
        ops.f.equal("dequeue") & np.isin(ops.error.codes, gone) & np.isin(ops.key.codes, declared)
    )
    said_empty &= ops.type.equal("fail") & draining
    served = [ops.node.names[code] for code in np.unique(ops.node.codes)]
    nodes = [node for node in served if node not in around.left_out]
    silent: dict[str, str] = {}
    for queue in queues:
        own = ops.node.codes[said_empty & ops.key.equal(queue)]
        heard = {ops.node.names[code] for code in np.unique(own)}
        missing = [node for node in nodes if node not in heard]
        if missing:
            silent[queue] = f"{', '.join(missing)} never said that it was empty"
    return silent


def _doubtful_losses(ops: Operations, outcomes: MessageOutcomes, undrained: dict[str, str]) -> int:
    if not undrained:
        return 0
    lost = outcomes.messages.row[outcomes.messages.outcome == LOST]
    codes = [ops.key.names.index(queue) for queue in undrained]
    return int(np.isin(ops.key.codes[lost], codes).sum())


def _counts(ops: Operations, outcomes: MessageOutcomes) -> dict[str, int | float]:
    """Jepsen's keys, of messages. ok-count is all that was attempted and delivered, as there; the
    further counts of outcomes are disjoint, so Jepsen's recovered is ours plus what came out of
    phantom, and of duplicated and redelivered without acknowledgement."""
    messages, deliveries = outcomes.messages, outcomes.deliveries
    by_outcome = np.bincount(messages.outcome, minlength=len(MESSAGE_OUTCOMES))
    by_ack = np.bincount(messages.ack, minlength=len(ACKS))
    nowhere = ops.value[deliveries.row[deliveries.message < 0]]
    dequeues = ops.f.among(("dequeue", "drain"))
    return {
        "attempt-count": len(messages.value),
        "acknowledged-count": int(by_ack[0]),
        "failed-count": int(by_ack[1]),
        "indeterminate-count": int(by_ack[2]),
        "delivery-count": len(deliveries.row),
        "ok-count": int((messages.delivered > 0).sum()),
        "delivered-once-count": int(by_outcome[OK]),
        "lost-count": int(by_outcome[LOST]),
        "unexpected-count": len(np.unique(nowhere)),
        "duplicated-count": int(by_outcome[DUPLICATED]),
        "redelivered-count": int(by_outcome[REDELIVERED]),
        "recovered-count": int(by_outcome[RECOVERED]),
        "phantom-count": int(by_outcome[PHANTOM]),
        "not-enqueued-count": int(by_outcome[NOT_ENQUEUED]),
        "corrupted-count": len(outcomes.corrupted),
        "too-early-count": int(messages.too_early.sum()),
        "indeterminate-dequeue-count": int(
            (dequeues & ~ops.has_value & ~ops.type.among(("ok", "fail"))).sum()
        ),
    }


def _matrix(outcomes: MessageOutcomes) -> dict[str, dict[str, int]]:
    """What the sender was told (rows) against how often the message came out (columns)."""
    columns = np.minimum(outcomes.messages.delivered, 2)
    cells = np.bincount(outcomes.messages.ack * 3 + columns, minlength=9).reshape(3, 3)
    names = ("0", "1", "several")
    return {
        ack: {name: int(cells[i, j]) for j, name in enumerate(names)} for i, ack in enumerate(ACKS)
    }


def _kinds(outcomes: MessageOutcomes, again: Again) -> dict[str, Bools]:
    """Kinds of anomaly other than loss that are properties of an attempted message."""
    outcome = outcomes.messages.outcome
    unflagged_ones = np.zeros(len(outcome), dtype=np.bool_)
    unflagged_ones[list(again)] = True
    return {
        "phantom": outcome == PHANTOM,
        "duplicated": outcome == DUPLICATED,
        "redelivered": outcome == REDELIVERED,
        "too-early": outcomes.messages.too_early,
        "unflagged": unflagged_ones,
    }


SUMMARIES = {
    "phantom": "delivered although the enqueue had certainly failed",
    "duplicated": "delivered again without the redelivered flag",
    "redelivered": "delivered again, each time flagged redelivered",
    "too-early": "delivered before the enqueue was invoked",
    "unflagged": "delivered again without the redelivered flag by the master that knew it",
    "unexpected": "delivered although no client had enqueued it",
    "corrupted": "damaged: its body failed the CRC",
}


def _message_anomalies(ops: Operations, outcomes: MessageOutcomes, again: Again) -> list[Anomaly]:
    """One anomaly a kind, with the operations of the first messages of it."""
    found: list[Anomaly] = []
    for kind, mask in _kinds(outcomes, again).items():
        members = np.flatnonzero(mask)
        rows: list[int] = []
        for message in members[:OPERATIONS_MAX]:
            if kind == "unflagged":
                rows += [int(outcomes.messages.row[message]), *again[int(message)]]
            elif len(rows) < OPERATIONS_MAX:
                rows += outcomes.rows_of(int(message))
        found += _anomaly(ops, kind, len(members), rows, outcomes.messages.value[members])
    nowhere = outcomes.deliveries.row[outcomes.deliveries.message < 0]
    values = np.unique(ops.value[nowhere])
    found += _anomaly(ops, "unexpected", len(values), nowhere, values)
    return found + _anomaly(ops, "corrupted", len(outcomes.corrupted), outcomes.corrupted, None)


def _anomaly(
    ops: Operations, kind: str, count: int, rows: Sequence[int] | Ints, values: Ints | None
) -> list[Anomaly]:
    if not count:
        return []
    listed = [] if values is None else [int(value) for value in values[:OPERATIONS_MAX]]
    messages = "message was" if count == 1 else "messages were"
    return [
        Anomaly(
            kind=kind,
            summary=f"{count} {messages} {SUMMARIES[kind]}",
            operations=tuple(int(ops.index[row]) for row in rows[:OPERATIONS_MAX]),
            detail={"count": count, "values": listed},
        )
    ]


def _values_by_kind(
    ops: Operations, outcomes: MessageOutcomes, again: Again
) -> dict[str, list[int]]:
    """Jepsen's lists of values, each cut at VALUES_MAX."""
    messages, deliveries = outcomes.messages, outcomes.deliveries
    kinds = {
        "lost": messages.value[messages.outcome == LOST],
        "recovered": messages.value[messages.outcome == RECOVERED],
        **{kind: messages.value[mask] for kind, mask in _kinds(outcomes, again).items()},
        "unexpected": np.unique(ops.value[deliveries.row[deliveries.message < 0]]),
    }
    return {kind: [int(v) for v in values[:VALUES_MAX]] for kind, values in kinds.items()}


def _notes(
    outcomes: MessageOutcomes, undrained: dict[str, str], doubtful: int, complete: bool
) -> list[str]:
    notes = [f"{queue} was not drained: {why}." for queue, why in undrained.items()]
    if doubtful:
        notes.append(
            f"{doubtful} acknowledged messages are missing from queues that were not drained: "
            "they may be lost or may still be there."
        )
    if not complete:
        notes.append("The recording was cut short; deliveries after its end are not known.")
    if outcomes.repeated_attempts:
        notes.append(
            f"{outcomes.repeated_attempts} enqueues repeat another's value: the harness broke its "
            "own rule that values are unique, so the outcomes are not certain."
        )
    if outcomes.enqueues_without_value:
        notes.append(
            f"{outcomes.enqueues_without_value} enqueues have no value and were not judged."
        )
    return notes
