"""The monitors of stacks, priority queues and counters: what they find, say and cannot decide."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.linearizability.checking import check
from shalott.checkers.monitors.counter_monitor import CounterMonitor
from shalott.checkers.monitors.monitor import Monitor
from shalott.checkers.monitors.turn_monitor import STACK, PriorityMonitor
from tests.checkers.monitors.comparison import (
    TIMEOUT_S,
    Subject,
    agrees_with_every_order,
    decide,
    more_freedom_keeps_it_linearizable,
    only_the_order_of_events_matters,
    prefixes_stay_linearizable,
)
from tests.checkers.monitors.object_rows import drawn
from tests.checkers.monitors.queue_rows import queue_history, ranked
from tests.checkers.random_histories import APriorityQueue, AQueue, Draw, Thing, Values

pytestmark = pytest.mark.unit


@dataclass
class ARaisedCounter:
    """Of one direction and one step."""

    f: str
    step: int | None
    held: int = 0

    def draw(self, rng: random.Random, process: int) -> Draw:
        return ("read", None) if rng.random() < 0.5 else (self.f, self.step)

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f != "read":
            self.held += (argument or 1) * (1 if f == "inc" else -1)
        return self.held


def one_way(rows: list[Row], rng: random.Random) -> list[Row]:
    """A history of a counter that goes both ways, as if it went one."""
    f, step = rng.choice(["inc", "dec"]), rng.choice([None, 1, 2])
    if rng.random() < 0.1:
        return rows
    return [row if row.f == "read" else row._replace(f=f, argument=step) for row in rows]


def distinct(rng: random.Random) -> Values:
    return Values(rng, distinct=rng.random() < 0.95)


def a_stack(rng: random.Random) -> Thing:
    return AQueue(distinct(rng), lambda count: count - 1)


def a_priority_queue(pairs: bool) -> Callable[[random.Random], Thing]:
    return lambda rng: APriorityQueue(distinct(rng), rng, pairs)


def a_counter(rng: random.Random) -> Thing:
    return ARaisedCounter(rng.choice(["inc", "dec"]), rng.choice([None, 1, 2]))


def as_drawn(rows: list[Row], rng: random.Random) -> list[Row]:
    """Half of the time results that were drawn with hardly a look at the times."""
    return queue_history("stack", rng) if rng.random() < 0.5 else rows


def in_pairs(rows: list[Row], rng: random.Random) -> list[Row]:
    """The same about pairs with a priority of their own, of which several are equal."""
    rows = as_drawn(rows, rng)
    if any(isinstance(row.argument, tuple) for row in rows):
        return rows
    of: dict[Hashable, Hashable] = {None: None}

    def pair(value: Hashable) -> Hashable:
        return of.setdefault(value, (rng.randrange(3), value))

    return [row._replace(argument=pair(row.argument), result=pair(row.result)) for row in rows]


SUBJECTS = {
    "stack": Subject(STACK, "stack", "stack", a_stack, as_drawn),
    "priority-queue": Subject(
        PriorityMonitor(), "priority-queue", "priority-queue", a_priority_queue(False), as_drawn
    ),
    "priority-queue of pairs": Subject(
        PriorityMonitor(), "priority-queue", "priority-queue", a_priority_queue(True), in_pairs
    ),
    "priority-queue:first=lowest,ties=fifo": Subject(
        PriorityMonitor("lowest", "fifo"),
        "priority-queue:first=lowest,ties=fifo",
        "fifo-queue",
        a_priority_queue(False),
        as_drawn,
    ),
    "counter": Subject(CounterMonitor(), "counter", "counter", a_counter, one_way),
    "counter:initial=3": Subject(
        CounterMonitor(3),
        "counter:initial=3",
        "counter",
        lambda rng: ARaisedCounter(rng.choice(["inc", "dec"]), 1, 3),
        one_way,
    ),
}
VIOLATIONS = {
    "stack": {"fresh", "repeated", "empty", "nested"},
    "priority-queue": {"fresh", "repeated", "empty", "turn"},
    "counter": {"never", "ahead", "behind"},
}


@pytest.mark.explore
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_monitor_agrees_with_every_order(name: str) -> None:
    kind = re.split("[ :]", name)[0]
    unknown = {"stack": 0.2, "priority-queue": 0.2, "counter": 0.15}[kind]
    wanted = VIOLATIONS[kind] - ({"never"} if "initial" in name else set())
    agrees_with_every_order(SUBJECTS[name], wanted, unknown)


seeds = st.integers(0, 2**32 - 1)


@pytest.mark.explore
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds, cut_at=st.integers(0, 60))
def test_every_prefix_of_a_linearizable_history_is_linearizable(
    name: str, seed: int, cut_at: int
) -> None:
    prefixes_stay_linearizable(SUBJECTS[name], seed, cut_at)


@pytest.mark.explore
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds, gap=st.integers(1, 1000))
def test_only_the_order_of_events_matters(name: str, seed: int, gap: int) -> None:
    only_the_order_of_events_matters(SUBJECTS[name], seed, gap)


@pytest.mark.explore
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds)
def test_more_freedom_keeps_a_history_linearizable(name: str, seed: int) -> None:
    more_freedom_keeps_it_linearizable(SUBJECTS[name], seed)


@pytest.mark.explore
def test_many_waiting_increments_are_taken_by_their_deadlines() -> None:
    """More than all orders could be tried of: beside the general search."""
    rng, seen = random.Random(7), {True: 0, False: 0}
    for _ in range(150):
        rows = drawn(ARaisedCounter("inc", 1), rng, 24, 12)
        history = from_rows(rows)
        expected = check(history, "counter", by="general").valid
        assert decide(CounterMonitor(), rows).valid is expected, rows
        seen[bool(expected)] += 1
    assert min(seen.values()) > 15, seen


# --- what is found, and said ----------------------------------------------------------------------


def put(value: Hashable, call: int, ret: int | None) -> Row:
    return Row(1, "enqueue", value, None, call, ret, "info" if ret is None else "ok")


def take(value: Hashable, call: int, ret: int | None) -> Row:
    return Row(2, "dequeue", None, value, call, ret, "info" if ret is None else "ok")


def inc(call: int, ret: int | None, by: int | None = None) -> Row:
    return Row(1, "inc", by, None, call, ret, "info" if ret is None else "ok")


def read(value: Hashable, call: int, ret: int | None) -> Row:
    return Row(2, "read", None, value, call, ret)


INVALID: dict[str, tuple[Monitor, list[Row], str]] = {
    "nested": (
        STACK,
        [put(1, 0, 1), put(2, 2, 3), take(1, 4, 5), take(2, 6, 7)],
        "the stack can't have been empty while messages 1 and 2 were on it, so one of them was"
        " pushed first and popped last; but 1 was popped before 2; 2 was pushed after 1",
    ),
    "nested, for ever": (
        STACK,
        [put(1, 0, 1), put(2, 2, 3), take(1, 4, 5)],
        "the stack can't have been empty while messages 1 and 2 were on it, so one of them was"
        " pushed first and popped last; but 1 was popped, and 2 never was; 2 was pushed after 1",
    ),
    "nested, three": (
        STACK,
        [
            put(1, 0, 5), put(2, 1, 2), put(3, 3, 4),
            take(2, 6, 9), take(3, 10, 11), take(1, 7, 8),
        ],
        "the stack can't have been empty while messages 2 and 3 were on it, so one of them was"
        " pushed first and popped last; but 2 was popped before 3; 3 was pushed after 2",
    ),
    "turn": (
        PriorityMonitor(),
        [put(1, 0, 1), put(2, 2, 3), take(1, 4, 5)],
        "message 1 was dequeued although message 2, whose turn came first, was there",
    ),
    "turn, one then another": (
        PriorityMonitor(),
        [put(1, 0, 1), put(3, 2, 3), take(1, 4, 9), put(2, 5, 6), take(3, 7, 8), take(2, 10, 11)],
        "message 1 was dequeued although at every moment of its dequeue a message was there whose"
        " turn came first: 3, then 2",
    ),
    "turn, the lowest first": (
        PriorityMonitor("lowest"),
        [put(2, 0, 1), put(1, 2, 3), take(2, 4, 5)],
        "message 2 was dequeued although message 1, whose turn came first, was there",
    ),
    "empty": (
        PriorityMonitor(),
        [put(1, 0, 1), take(None, 2, 7), put(2, 3, 4), take(1, 5, 6)],
        "a dequeue found the queue empty although there was a message in it: 1, then 2",
    ),
    "fresh": (STACK, [take(1, 0, 1)], "message 1 was dequeued but never enqueued"),
    "ahead": (
        CounterMonitor(),
        [inc(0, 1), inc(2, 3), read(1, 4, 5)],
        "process 2 read 1 when the counter can't have been less than 2 any more: the inc of process"
        " 1 had returned before, as the last of them",
    ),
    "ahead, as a read told": (
        CounterMonitor(),
        [inc(0, 9), inc(1, 8), read(2, 2, 3), read(1, 4, 5)],
        "process 2 read 1 when the counter can't have been less than 2 any more: process 2 had read"
        " 2 before",
    ),
    "behind": (
        CounterMonitor(5),
        [inc(0, None, -2), read(1, 1, 2)],
        "process 2 read 1 when the counter can't have been less than 3",
    ),
    "never": (
        CounterMonitor(),
        [inc(0, 1, 2), read(1, 2, 3)],
        "process 2 read 1, to which no number of steps of 2 leads from 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_a_violation_is_named_and_put_in_words(name: str) -> None:
    monitor, rows, reason = INVALID[name]
    answer = decide(monitor, ranked(rows))
    assert answer.valid is False
    assert answer.violation == name.partition(",")[0]
    assert answer.reason == reason
    assert answer.operations and set(answer.operations) <= set(range(len(rows)))


VALID: dict[str, tuple[Monitor, list[Row]]] = {
    "a crashed pop may have taken what was above": (
        STACK,
        [put(1, 0, 1), put(2, 2, 3), take(None, 4, None), take(1, 5, 6)],
    ),
    "a crashed push that was popped": (STACK, [put(1, 0, None), take(1, 1, 2), take(None, 3, 4)]),
    "a crashed dequeue took what came first": (
        PriorityMonitor(),
        [put(1, 0, 1), put(2, 2, 3), take(None, 4, None), take(1, 5, 6), take(None, 7, 8)],
    ),
    "of one priority any comes first": (
        PriorityMonitor(),
        [put((1, "a"), 0, 1), put((1, "b"), 2, 3), take((1, "b"), 4, 5), take((1, "a"), 6, 7)],
    ),
    "floats and integers are ordered as numbers": (
        PriorityMonitor(),
        [put(1, 0, 1), put(1.5, 2, 3), put(2, 4, 5), take(2, 6, 7), take(1.5, 8, 9)],
    ),
    "the counter passes every number on the way": (
        CounterMonitor(),
        [inc(0, 9), inc(1, 8), read(1, 2, 6), read(2, 3, 5), read(0, 4, 7)],
    ),
    "a crashed increment may happen late": (
        CounterMonitor(),
        [inc(0, None), read(0, 1, 2), read(1, 3, 4)],
    ),
    "a counter that falls": (
        CounterMonitor(1),
        [Row(1, "dec", None, None, 0, 1), read(0, 2, 3)],
    ),
}


@pytest.mark.parametrize("name", VALID)
def test_what_is_right_is_not_accused(name: str) -> None:
    monitor, rows = VALID[name]
    assert decide(monitor, rows).valid is True


UNKNOWN: dict[str, tuple[Monitor, list[Row], str]] = {
    "a crashed pop that would have to take two": (
        STACK,
        [
            take(None, 0, None), put(64, 1, 2), take(None, 3, 5), put(45, 4, 7), put(29, 8, 9),
            take(45, 10, 11),
        ],
        "a dequeue with an unknown result may have taken one of several values",
    ),
    "a crashed dequeue that would have to take two": (
        PriorityMonitor(),
        [
            take(None, 0, None), put(64, 1, 2), take(None, 3, 5), put(45, 4, 7), put(70, 8, 9),
            take(45, 10, 11),
        ],
        "a dequeue with an unknown result may have taken one of several values",
    ),
    "twice": (STACK, [put(1, 0, 1), put(1, 2, 3)], "value 1 was enqueued twice"),
    "no priority": (PriorityMonitor(), [put("a", 0, 1)], "an element has no priority"),
    "ties": (
        PriorityMonitor(ties="fifo"),
        [put((1, "a"), 0, 1), put((1, "b"), 2, 3)],
        "two elements have one priority",
    ),
    "both ways": (
        CounterMonitor(),
        [inc(0, 1), Row(1, "dec", None, None, 2, 3)],
        "it was changed by different amounts",
    ),
    "amounts": (CounterMonitor(), [inc(0, 1), inc(2, 3, 2)], "it was changed by different amounts"),
    "nothing": (
        CounterMonitor(),
        [inc(0, 1, 0)],
        "it was changed by 0, or by a very large number",
    ),
    "a strange f": (
        CounterMonitor(),
        [Row(1, "reset", None, None, 0, 1)],
        "'reset' is not an operation of this object",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_it_cannot_decide_it_hands_over(name: str) -> None:
    monitor, rows, why = UNKNOWN[name]
    answer = decide(monitor, rows)
    assert (answer.valid, answer.why) == ("unknown", why)
