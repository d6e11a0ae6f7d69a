"""What all judges of one run look at: its rows, what happened around them, and when it was calm.

It is read once for a history, however many judges ask, and kept only as long as the history is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.consumers.consume_rules import ConsumeRules, QueueRules
from shalott.checkers.consumers.quiet_times import Calm, nodes_that_died, read_calm
from shalott.checkers.consumers.row_reading import read_rows
from shalott.checkers.consumers.rows import Rows
from shalott.checkers.history.columns import Ints, Operations, by_group, client_operations
from shalott.checkers.history.faults import Surroundings, read_surroundings
from shalott.checkers.history.tenures import NodeEvent, read_events
from shalott.core.history import History

T = TypeVar("T")


@dataclass(frozen=True)  # no slots: what is derived is kept when it was asked for
class Case:
    rules: ConsumeRules
    complete: bool  # the recording
    ops: Operations
    rows: Rows
    around: Surroundings
    events: tuple[NodeEvent, ...]
    calm: Calm
    _made: dict[Callable[[Case], object], object] = field(default_factory=dict, repr=False)

    def once(self, make: Callable[[Case], T]) -> T:
        if make not in self._made:
            self._made[make] = make(self)
        return cast(T, self._made[make])

    def queue_rules(self, code: int) -> QueueRules:
        """Those of a queue; one that the plan does not name has none."""
        name = self.rows.queues[code]
        for rules in self.rules.queues:
            if rules.name == name:
                return rules
        return QueueRules(name=name)

    @cached_property
    def quiet(self) -> Ints:
        """Of each delivery the quiet stretch of its queue that it fell in."""
        deliveries = self.rows.deliveries
        return self.calm.quiet.at(deliveries.queue, deliveries.at_ns)

    @cached_property
    def ruled(self) -> Ints:
        """Of each delivery the stretch in which one master ruled."""
        deliveries = self.rows.deliveries
        return self.calm.ruled.at(deliveries.queue, deliveries.at_ns)

    @cached_property
    def published_quiet(self) -> Ints:
        """Of each message the quiet stretch in which it was confirmed."""
        published = self.rows.published
        return self.calm.quiet.at(published.queue, published.complete_ns)

    @cached_property
    def first(self) -> Ints:
        """Of each message its first delivery before it died, -1 if there was none."""
        deliveries = self.rows.deliveries
        found = np.full(len(self.rows.published.index), -1, dtype=np.int64)
        own = np.flatnonzero((deliveries.message >= 0) & (deliveries.life == 0))[::-1]
        found[deliveries.message[own]] = own
        return found


def read_case(history: History, rules: ConsumeRules) -> Case:
    ops = client_operations(history)
    rows = read_rows(history, rules, ops)
    around = read_surroundings(history)
    events = tuple(read_events(history))
    calm = read_calm(rows.queues, around, events, rows.changes, nodes_that_died(history))
    return Case(rules, history.complete, ops, rows, around, events, calm)


_Kept = tuple["weakref.ref[pa.Table]", "weakref.ref[pa.Table]", Case]  # of which tables


@dataclass(slots=True)
class Reader:
    """Reads a history for its first judge and remembers it for the others."""

    rules: ConsumeRules
    _kept: _Kept | None = field(default=None, repr=False)

    def read(self, history: History) -> Case:
        """The same case for the same table of operations and of events."""
        if self._kept is not None:
            ops, events, case = self._kept
            if ops() is history.ops and events() is history.events:
                return case
        case = read_case(history, self.rules)
        self._kept = (weakref.ref(history.ops, self._forget), weakref.ref(history.events), case)
        return case

    def _forget(self, _: object) -> None:
        self._kept = None


# Deliveries brought together by whom they were made to.


@dataclass(frozen=True, slots=True)
class Held:
    """Deliveries by whom they were made to."""

    order: Ints
    begin: Ints

    def of(self, code: int) -> Ints:
        """Positions of the deliveries, in order of time."""
        return self.order[self.begin[code] : self.begin[code + 1]]


def by_consumer(case: Case) -> Held:
    return _held(case.rows.deliveries.consumer, len(case.rows.consumers))


def by_channel(case: Case) -> Held:
    return _held(case.rows.deliveries.channel, len(case.rows.channels.name))


def _held(code: Ints, size: int) -> Held:
    order = by_group(code + 1)  # those of none come first
    counts = np.bincount(code + 1, minlength=size + 1)
    return Held(order, np.cumsum(counts))


# What a judge says, and how it becomes a checker's result.

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
    detail: Mapping[str, object] = field(default_factory=dict)


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
    own = codes[codes >= 0]
    counts = np.bincount(own, minlength=len(names)) if len(own) else np.zeros(len(names), int)
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}
