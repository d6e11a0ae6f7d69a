"""What became of the messages of queues, and what came again: checkers/queues/outcomes.py by queue.

Rows may be of one bucket of values of a huge run: ``merge_parts`` puts such rows together. So the
evidence of a part is a list of lists, one a message, and ``flat`` makes the column of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from shalott.checkers.history.columns import Bools, Codes, Ints
from shalott.checkers.queues.outcomes import (
    DUPLICATED,
    LOST,
    MESSAGE_OUTCOMES,
    PHANTOM,
    MessageOutcomes,
    message_outcomes,
)
from shalott.checkers.queues.redelivery import unflagged
from shalott.spark_analysis.kernels.run_data import RunData
from shalott.spark_analysis.kernels.tables import EVIDENCE, OF_LOGS, OPERATIONS_MAX, Row
from shalott.spark_analysis.kernels.tables import MESSAGE_OUTCOMES as COLUMNS

_OF_KIND = {"lost": LOST, "duplicated": DUPLICATED, "phantom": PHANTOM}
_NAMES = {name: name.replace("-", "_") for name in MESSAGE_OUTCOMES} | {"ok": "delivered_once"}


def message_rows(run: str, data: RunData) -> tuple[list[Row], list[Row]]:
    """Rows of LOST_MESSAGES, with evidence as lists of lists, and of REDELIVERIES."""
    ops = data.ops
    outcomes = message_outcomes(ops)
    lost = list(_outcome_rows(run, data, outcomes))
    several = outcomes.messages.delivered > 1
    again: dict[int, tuple[int, int]] = {}
    if several.any() or data.given_back.ops.num_rows:
        again = unflagged(ops, outcomes, data.given_back, data.around, data.events)
    return lost, list(_redelivery_rows(run, data, outcomes, list(again)))


def _outcome_rows(run: str, data: RunData, outcomes: MessageOutcomes) -> Iterable[Row]:
    ops, messages, deliveries = data.ops, outcomes.messages, outcomes.deliveries
    queue, names = ops.key.codes[messages.row], ops.key.names
    nowhere = deliveries.row[deliveries.message < 0]
    _, first = np.unique(ops.value[nowhere], return_index=True)
    unexpected = ops.key.codes[nowhere[first]]
    corrupted = ops.key.codes[outcomes.corrupted]

    def count(codes: Ints | Codes) -> Ints:
        return np.bincount(codes, minlength=len(names))

    counts = {
        "attempts": count(queue),
        "acknowledged": count(queue[messages.ack == 0]),
        **{
            _NAMES[name]: count(queue[messages.outcome == code])
            for code, name in enumerate(MESSAGE_OUTCOMES)
        },
        "unexpected": count(unexpected),
        "corrupted": count(corrupted),
        "too_early": count(queue[messages.too_early]),
    }
    evidence = _Evidence(data, outcomes)
    used = np.unique(np.concatenate((np.unique(queue), unexpected, corrupted)))
    for code in used.tolist():
        own = queue == code
        row: Row = {"run": run, "queue": names[code], **dict.fromkeys(OF_LOGS)}
        row |= {name: int(found[code]) for name, found in counts.items()}
        for kind, outcome in _OF_KIND.items():
            some = row[kind] > 0
            proof = evidence.of(own & (messages.outcome == outcome)) if some else []
            row[f"{kind}_operations"] = proof
        own_first = nowhere[first][unexpected == code] if row["unexpected"] else first[:0]
        row["unexpected_operations"] = evidence.of_unexpected(own_first, nowhere)
        yield row


class _Evidence:
    """The operations that prove what became of a message."""

    def __init__(self, data: RunData, outcomes: MessageOutcomes) -> None:
        self._ops, self._outcomes = data.ops, outcomes
        self._ends: tuple[Ints, Ints] | None = None

    def _first_and_last(self) -> tuple[Ints, Ints]:
        """Of each message the rows of its first and last delivery, -1 if there is none."""
        if self._ends is None:
            deliveries, count = self._outcomes.deliveries, len(self._outcomes.messages.row)
            known = deliveries.message >= 0
            message, row = deliveries.message[known], deliveries.row[known]
            first, last = np.full((2, count), -1, dtype=np.int64)
            last[message] = row  # of several the last one stays
            first[message[::-1]] = row[::-1]
            self._ends = first, last
        return self._ends

    def of(self, members: Bools) -> list[list[int]]:
        """Of the first of these messages, in order of their enqueues."""
        index, sent = self._ops.index, self._outcomes.messages.row
        chosen = np.flatnonzero(members)
        chosen = chosen[np.argsort(sent[chosen], kind="stable")][:OPERATIONS_MAX]
        first, last = self._first_and_last()
        return [
            list(dict.fromkeys(int(index[row]) for row in rows if row >= 0))
            for rows in zip(sent[chosen], first[chosen], last[chosen], strict=True)
        ]

    def of_unexpected(self, first: Ints, nowhere: Ints) -> list[list[int]]:
        """``first``: the rows of the first deliveries of such values."""
        index, value = self._ops.index, self._ops.value
        found = []
        for row in np.sort(first)[:OPERATIONS_MAX].tolist():
            same = nowhere[value[nowhere] == value[row]]
            found.append(list(dict.fromkeys((int(index[row]), int(index[same[-1]])))))
        return found


def _redelivery_rows(
    run: str, data: RunData, outcomes: MessageOutcomes, again: Sequence[int]
) -> Iterable[Row]:
    names, messages = data.ops.key.names, outcomes.messages
    queue = data.ops.key.codes[messages.row]
    size = len(names)
    deliveries = np.bincount(queue, messages.delivered, minlength=size)
    extra = np.maximum(messages.delivered - 1, 0)
    several = np.bincount(queue, extra, minlength=size)
    unsaid = np.bincount(queue[messages.outcome == DUPLICATED], minlength=size)
    by_master = np.bincount(queue[np.array(again, dtype=np.int64)], minlength=size)
    most = np.zeros(size, dtype=np.int64)
    np.maximum.at(most, queue, messages.delivered)
    for code in np.flatnonzero(deliveries).tolist():
        yield {
            "run": run, "kind": "queue", "lane": names[code],
            "deliveries": int(deliveries[code]), "again": int(several[code]),
            "unflagged": int(unsaid[code]), "by_one_master": int(by_master[code]),
            "most": int(most[code]),
        }  # fmt: skip


def merge_lost(parts: Iterable[Row]) -> list[Row]:
    """Rows of LOST_MESSAGES of several buckets of values as one a run and queue."""
    found: dict[tuple[str, str], Row] = {}
    counts = ("attempts", "acknowledged", *COLUMNS, "unexpected", "corrupted", "too_early")
    for part in parts:
        place = (part["run"], part["queue"])
        if place not in found:
            found[place] = dict(part)
            continue
        row = found[place]
        for name in counts:
            row[name] += part[name]
        for kind in EVIDENCE:
            row[f"{kind}_operations"] = row[f"{kind}_operations"] + part[f"{kind}_operations"]
    return list(found.values())


def merge_redeliveries(parts: Iterable[Row]) -> list[Row]:
    found: dict[tuple[str, str, str], Row] = {}
    for part in parts:
        place = (part["run"], part["kind"], part["lane"])
        if place not in found:
            found[place] = dict(part)
            continue
        row = found[place]
        for name in ("deliveries", "again", "unflagged", "by_one_master"):
            row[name] += part[name]
        row["most"] = max(row["most"], part["most"])
    return list(found.values())


def flat(row: Row) -> Row:
    """With evidence as a column has it: the first operations, message by message."""
    lists = {
        f"{kind}_operations": [
            index for message in sorted(row[f"{kind}_operations"]) for index in message
        ][:OPERATIONS_MAX]
        for kind in EVIDENCE
    }
    return {**row, **lists}
