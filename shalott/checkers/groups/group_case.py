"""A run of the workload ``group``, read and worked out once for all of its checkers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly
from shalott.checkers.groups.deliveries import Judged, assignment_of, judge
from shalott.checkers.groups.group_fates import Broadcast, Fates, broadcast, fates
from shalott.checkers.groups.group_history import GroupHistory, read_groups
from shalott.checkers.groups.group_liveness import Waiting, deadlines_ns, waiting
from shalott.checkers.groups.group_rules import GroupRules
from shalott.checkers.groups.offsets import Fall, OffsetBook, floors, wrong_beginnings
from shalott.checkers.history.columns import NEVER, Ints
from shalott.core.history import History


class Case:
    """What is derived from a history, each thing when a checker first asks for it."""

    def __init__(self, history: History, rules: GroupRules) -> None:
        self.story: GroupHistory = read_groups(history, rules)
        self.book = OffsetBook(self.story)

    @cached_property
    def assignment(self) -> Ints:
        """Of each delivery."""
        return assignment_of(self.story, self.story.deliveries)

    @cached_property
    def floor(self) -> Ints:
        """Of each assignment."""
        rows = self.story.assignments
        until_ns = np.where(rows.end_ns == NEVER, self.story.end_ns, rows.end_ns)
        known = np.flatnonzero(self.assignment >= 0)
        began_ns = self.story.deliveries.begin_ns[known]
        np.minimum.at(until_ns, self.assignment[known], began_ns)
        return floors(self.story, self.book, until_ns)

    @cached_property
    def judged(self) -> Judged:
        return judge(self.story, self.assignment, self.floor)

    @cached_property
    def fates(self) -> Fates:
        return fates(self.story, self.book, self.floor)

    @cached_property
    def deadlines_ns(self) -> Ints:
        return deadlines_ns(self.story)

    @cached_property
    def waiting(self) -> Sequence[Waiting]:
        return waiting(self.story, self.fates, self.deadlines_ns)

    @cached_property
    def beginnings(self) -> Sequence[Fall]:
        return list(wrong_beginnings(self.story, self.floor))

    @cached_property
    def broadcast(self) -> Broadcast:
        return broadcast(self.story, self.deadlines_ns)

    def group(self, number: int) -> str:
        """A group's name; "" if it is none of the plan's."""
        return self.story.rules.groups[number].name if number >= 0 else ""

    def message(self, number: int) -> str:
        """What people are told of a message."""
        messages, names = self.story.messages, self.story.keys.names
        if number < 0:
            return "a message that no client sent"
        key, offset = names[messages.key[number]], int(messages.offset[number])
        where = f"offset {offset} of {key}" if offset >= 0 else key
        return f"message {messages.value[number]} ({where})"

    def sent(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """The operations that sent these messages, some of them."""
        some = [number for _, number in zip(range(OPERATIONS_MAX), numbers, strict=False)]
        return tuple(int(self.story.messages.index[number]) for number in some)


class Shared:
    """The case of the history that was last asked for."""

    def __init__(self, rules: GroupRules) -> None:
        self._rules = rules
        self._last: tuple[History, Case] | None = None

    def case(self, history: History) -> Case:
        """Read it, unless that was done already."""
        if self._last is None or self._last[0] is not history:
            self._last = (history, Case(history, self._rules))
        return self._last[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one checker found. ``kinds``: those of its anomalies that break its promise.

    ``unknown``: sentences, any of which keeps the run from being valid.
    """

    kinds: tuple[str, ...]
    anomalies: tuple[Anomaly, ...] = ()
    counts: Mapping[str, int | float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that must not be. ``text`` is a sentence of the first of its kind."""

    kind: str
    group: int
    text: str
    operations: tuple[int, ...]


# What a library decides by itself: whom it gives what, when it commits, where it begins, and which
# broker it asks for locks and offsets, by routes that may be old. Logs and delays are the broker's.
OF_CLIENTS = (
    *("skipped", "after-commit", "unexplained", "work-of-two", "stuck", "unsubscribed"),
    *("order-back", "order-over", "order-at-once", "commit-back", "offset-not-taken"),
    *("lock-of-two", "offset-back", "spurious-zero", "spurious-end"),
    *("retry-unasked", "retry-twice", "broadcast-hole", "broadcast-unseen"),
)


def anomalies_of(case: Case, found: Iterable[Found]) -> tuple[Anomaly, ...]:
    """One anomaly a kind, with the story of the first and the operations of many."""
    by_kind: dict[str, list[Found]] = {}
    for each in found:
        by_kind.setdefault(each.kind, []).append(each)
    anomalies = []
    client = case.story.rules.client
    for kind, those in by_kind.items():
        blamed = client != "own" and kind in OF_CLIENTS
        operations = dict.fromkeys(index for each in those for index in each.operations)
        groups = sorted({case.group(each.group) for each in those if each.group >= 0})
        more = f" And {len(those) - 1} more." if len(those) > 1 else ""
        anomalies.append(
            Anomaly(
                kind=kind,
                summary=f"{those[0].text}{more}",
                operations=tuple(operations)[:OPERATIONS_MAX],
                detail={"count": len(those), "groups": groups}
                | ({"by": "client", "client": client} if blamed else {}),
            )
        )
    return tuple(anomalies)
