"""What all judges of one run look at: its rows, what happened around them, and when it was calm.

It is read once for a history, however many judges ask, and kept only as long as the history is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from shalott.checkers.consumers.case.calm import Calm, read_calm
from shalott.checkers.consumers.case.masters import nodes_that_died
from shalott.checkers.consumers.rows.reading import read_rows
from shalott.checkers.consumers.rows.rows import Rows
from shalott.checkers.consumers.rows.rules import ConsumeRules, QueueRules
from shalott.checkers.history.columns import Ints, Operations, client_operations
from shalott.checkers.history.faults import Surroundings, read_surroundings
from shalott.checkers.history.tenures import NodeEvent, read_events
from shalott.core.history import History

T = TypeVar("T")


@dataclass(frozen=True)  # no slots: what is derived is kept when it was asked for
class Case:
    """One run."""

    rules: ConsumeRules
    complete: bool  # the recording
    ops: Operations
    rows: Rows
    around: Surroundings
    events: tuple[NodeEvent, ...]
    calm: Calm
    _made: dict[Callable[[Case], Any], Any] = field(default_factory=dict, repr=False)

    def once(self, make: Callable[[Case], T]) -> T:
        """What ``make`` makes of this case, made once."""
        if make not in self._made:
            self._made[make] = make(self)
        found: T = self._made[make]
        return found

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


@dataclass(slots=True)
class Reader:
    """Reads a history for its first judge and remembers it for the others."""

    rules: ConsumeRules
    _kept: Any = field(default=None, repr=False)

    def read(self, history: History) -> Case:
        """The same case for the same table of operations and of events."""
        if self._kept is not None:
            ops, events, case = self._kept
            if ops() is history.ops and events() is history.events:
                found: Case = case
                return found
        case = read_case(history, self.rules)
        self._kept = (
            weakref.ref(history.ops, self._forget),
            weakref.ref(history.events),
            case,
        )
        return case

    def _forget(self, _: object) -> None:
        self._kept = None
