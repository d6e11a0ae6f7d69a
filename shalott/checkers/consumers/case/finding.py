"""What a judge says, and how it becomes a checker's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shalott.checkers.base import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.consumers.case.case import Case, Reader
from shalott.checkers.history.columns import Ints
from shalott.core.history import History

S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``judged``: how many cases the promise was held against. ``doubts``: why what is missing
    proves nothing; with any of them the best that can be said is "unknown"."""

    judged: int = 0
    anomalies: Sequence[Anomaly] = ()
    excused: tuple[str, ...] = ()  # kinds of anomaly that break nothing
    counts: Mapping[str, int | float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    doubts: Sequence[str] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One checker. ``source``: who promises it."""

    name: str
    promise: str
    source: str
    judge: Callable[[Case], Finding]


@dataclass(frozen=True, slots=True)
class PromiseChecker:
    """A checker of one promise; those of one run share a reader."""

    promise: Promise
    reader: Reader

    @property
    def name(self) -> str:
        return self.promise.name

    def check(self, history: History) -> Result:
        case = self.reader.read(history)
        found = self.promise.judge(case)
        anomalies = tuple(_blamed(anomaly, case) for anomaly in found.anomalies)
        broken = [each.kind for each in anomalies if each.kind not in found.excused]
        doubts = list(found.doubts)
        if not len(case.rows.deliveries.index):
            doubts.append("Nothing was delivered: nothing is known of this promise.")
        return Result(
            checker=self.name,
            valid=False if broken else ("unknown" if doubts else True),
            counts={"judged-count": found.judged, **found.counts},
            anomalies=anomalies,
            notes=(*doubts, *found.notes),
            detail={
                "promise": self.promise.promise,
                "source": self.promise.source,
                "broken": list(dict.fromkeys(broken)),
                **found.detail,
            },
        )


# What a library that recovers by itself may do on its own account: publish a message twice. All
# else is the server's, as the rows of such a library are read off the wire.
OF_CLIENTS = ("acked-again", "twice-at-once", "unflagged")


def _blamed(anomaly: Anomaly, case: Case) -> Anomaly:
    """Says whose doing it may be, where a library recovers by itself."""
    if case.rules.client == "own" or anomaly.kind not in OF_CLIENTS:
        return anomaly
    detail = {**anomaly.detail, "by": "client", "client": case.rules.client}
    return Anomaly(
        kind=anomaly.kind, summary=anomaly.summary, operations=anomaly.operations, detail=detail
    )


def anomaly_of(
    case: Case, kind: str, deliveries: Ints, others: Sequence[Ints], what: str
) -> list[Anomaly]:
    """One anomaly for all ``deliveries`` (positions) of a kind, none if there are none.

    ``others``: history indexes that belong to each, in columns as long; they are given with it.
    ``what``: goes behind "3 messages were " or "1 message was ".
    """
    count = len(deliveries)
    if not count:
        return []
    rows = case.rows.deliveries
    shown = max(1, OPERATIONS_MAX // (len(others) + 1))
    columns = [*(column[:shown] for column in others), rows.index[deliveries[:shown]]]
    together = np.stack(columns, axis=1).ravel()
    operations = tuple(dict.fromkeys(int(index) for index in together if index >= 0))
    messages = "message was" if count == 1 else "messages were"
    first = int(deliveries[0])
    return [
        Anomaly(
            kind=kind,
            summary=f"{count} {messages} {what}, first at {rows.at_ns[first] / S:.1f} s in"
            f" {case.rows.queues[rows.queue[first]]}",
            operations=operations[:OPERATIONS_MAX],
            detail={
                "count": count,
                "values": [int(value) for value in rows.value[deliveries[:OPERATIONS_MAX]]],
                "queues": tallied(case.rows.queues, rows.queue[deliveries]),
                "consumers": tallied(case.rows.consumers.name, rows.consumer[deliveries]),
            },
        )
    ]


def tallied(names: Sequence[str], codes: Ints) -> dict[str, int]:
    """How many rows each name has."""
    own = codes[codes >= 0]
    counts = np.bincount(own, minlength=len(names)) if len(own) else np.zeros(len(names), int)
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}
