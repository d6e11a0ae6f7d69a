"""A run of the workload ``group``, read and worked out once for all of its checkers.

Groups that are stuck: messages wait, members live, and nothing happens.

When everything is healed a group has ``stuck_after_ms`` to consume what waits, or at least to go on
with it. It has more where something keeps its queues that can't be asked back: the lock of an
orderly member that died is its for 60 s (RebalanceLockManager), and one whose death a broker may
not have noticed is a member, with queues, for two minutes (CHANNEL_EXPIRED_TIMEOUT). Stalls of the
harness do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly
from shalott.checkers.groups.deliveries import Judged, assignment_of, judge
from shalott.checkers.groups.group_fates import (
    Broadcast,
    Fates,
    broadcast,
    fates,
    final_offsets,
    places,
)
from shalott.checkers.groups.group_history import ENDS, GroupHistory, read_groups
from shalott.checkers.groups.group_rules import GroupRules
from shalott.checkers.groups.master_changes import MS
from shalott.checkers.groups.offsets import Fall, OffsetBook, floors, wrong_beginnings
from shalott.checkers.groups.orderly import LOCK_NS
from shalott.checkers.groups.retries import delayed_due_ns, due_ns, late_ns
from shalott.checkers.history.columns import NEVER, Bools, Ints
from shalott.checkers.history.faults import stalled_ns
from shalott.checkers.logs.records import FAIL
from shalott.core.history import History


class Case:
    """What is derived from a history, each thing when a checker first asks for it."""

    def __init__(self, history: History, rules: GroupRules) -> None:
        self.story: GroupHistory = read_groups(history, rules)
        self.book = OffsetBook(self.story)

    @cached_property
    def assignment(self) -> Ints:
        return assignment_of(self.story, self.story.deliveries)

    @cached_property
    def floor(self) -> Ints:
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
    def __init__(self, rules: GroupRules) -> None:
        self._rules = rules
        self._last: tuple[History, Case] | None = None

    def case(self, history: History) -> Case:
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


CHANNEL_NS = 120_000 * MS  # CHANNEL_EXPIRED_TIMEOUT of upstream's ConsumerManager
TOLERANCE_NS = 1_000 * MS
AFTER_NS = 10_000 * MS  # to hear of it and to consume what waited
DIED = ENDS.index("died")


@dataclass(frozen=True, slots=True)
class Waiting:
    """One group at the end. ``lives``: it had members as long as it takes. ``stuck``: positions
    in ``fates`` that had waited long enough; ``undecided``: what the members had no time for."""

    group: int
    lives: bool
    stuck: Ints
    undecided: Ints


def deadlines_ns(story: GroupHistory) -> Ints:
    """By group: when what can be consumed has been, at the latest; NEVER: nothing was healed."""
    healed_ns = _healed_ns(story)
    groups, lives = story.rules.groups, story.lives
    found = np.full(len(groups), NEVER, dtype=np.int64)
    if healed_ns is None:
        return found
    for number, group in enumerate(groups):
        own = lives.group == number
        died_ns = lives.end_ns[own & (lives.ended == DIED) & (lives.end_ns <= healed_ns)]
        due_ns = healed_ns + story.rules.stuck_after_ms * MS
        if len(died_ns) and group.orderly:
            due_ns = max(due_ns, int(died_ns.max()) + LOCK_NS + AFTER_NS)
        unnoticed_ns = died_ns[story.turns.troubled(died_ns, died_ns)]
        if len(unnoticed_ns):
            due_ns = max(due_ns, int(unnoticed_ns.max()) + CHANNEL_NS + AFTER_NS)
        # Who is there to the end may have come after the heal.
        last_ns = lives.begin_ns[own & (lives.end_ns >= due_ns - TOLERANCE_NS)]
        if len(last_ns):
            due_ns = max(due_ns, int(last_ns.min()) + story.rules.stuck_after_ms * MS)
        due_ns += stalled_ns(story.around.stalls, healed_ns, story.end_ns)
        found[number] = due_ns
    return found


def waiting(story: GroupHistory, fates: Fates, deadlines: Ints) -> list[Waiting]:
    """Every group that has offsets at brokers."""
    found, lives = [], story.lives
    pending = fates.of("pending")
    patience_ns = max(story.rules.stuck_after_ms * MS, late_ns(story))
    for number, group in enumerate(story.rules.groups):
        if group.broadcast:
            continue
        close_ns = int(np.minimum(lives.end_ns[lives.group == number], story.end_ns).max(initial=0))
        is_over = close_ns + TOLERANCE_NS >= int(deadlines[number])
        own = pending[fates.group[pending] == number]
        ready_ns = _ready_ns(story, number)[fates.message[own]]
        idle_ns = np.maximum(ready_ns, _last_given_ns(story, number)[fates.message[own]])
        old: Bools = idle_ns + patience_ns <= close_ns + TOLERANCE_NS
        is_stuck = old & is_over
        may_be = ~is_stuck & (ready_ns <= close_ns) & (close_ns >= (_healed_ns(story) or NEVER))
        found.append(Waiting(number, is_over, own[is_stuck], own[may_be]))
    return found


def _last_given_ns(story: GroupHistory, number: int) -> Ints:
    """By message: when the group was last given anything from where the message waits. A group
    that is slow, but goes on, is not stuck."""
    rows, keys = story.deliveries, story.keys
    given_ns = np.zeros(len(keys.names) + 1, dtype=np.int64)
    own = np.flatnonzero(rows.group == number)
    np.maximum.at(given_ns, rows.key[own], np.minimum(rows.end_ns[own], story.end_ns))
    key = story.messages.key
    here = places(story, key) >= np.maximum(final_offsets(story, number)[key], 0)
    retry = np.flatnonzero(keys.retry_of == number)
    elsewhere_ns = int(given_ns[retry].max(initial=0))
    return np.where(here, given_ns[key], elsewhere_ns)


def _ready_ns(story: GroupHistory, number: int) -> Ints:
    """By message: from when on the group could consume it, at the latest."""
    sent, ready_ns = story.send_backs, delayed_due_ns(story)
    mine = np.flatnonzero((sent.group == number) & (sent.message >= 0) & (sent.type != FAIL))
    np.maximum.at(ready_ns, sent.message[mine], due_ns(story, mine))
    return np.asarray(ready_ns)


def _healed_ns(story: GroupHistory) -> int | None:
    for name in ("heal", "load"):
        phase = story.around.phase(name)
        if phase is not None and phase.end_ns is not None:
            return phase.end_ns
    return None
