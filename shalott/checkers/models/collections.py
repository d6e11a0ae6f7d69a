"""Sequential specifications of queues, sets, counters and logs."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Final

from shalott.checkers.history.column_values import exact
from shalott.checkers.history.concurrent import UNKNOWN, Operation
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.model import Meaning, Meanings, OneOf, aliases, one_of

_Element = tuple[float, Hashable]  # of a priority queue: its turn, the value
QUEUE: Final = aliases(
    ("enqueue add offer send publish put produce", Meaning("enqueue", argument=True)),
    ("dequeue remove poll receive consume take", Meaning("dequeue", result=True, settles=True)),
)


@dataclass(frozen=True, slots=True)
class FifoQueue:
    """enqueue(v), dequeue -> the oldest, or nil if there is none. The state: oldest first."""

    name: ClassVar[str] = "fifo-queue"
    meanings: ClassVar[Meanings] = QUEUE
    init: ClassVar[Hashable] = ()

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, tuple)
        if op.f == "enqueue":
            return (*state, exact(op.argument))
        if op.result is None:
            return None if state else state
        if not state or (op.result is not UNKNOWN and state[0] != exact(op.result)):
            return None
        return state[1:]

    def is_pure(self, op: Operation) -> bool:
        return op.f == "dequeue" and op.result is None


@dataclass(frozen=True, slots=True)
class UnorderedQueue:
    """A bag: enqueue(v), dequeue -> any of them, or nil if there is none.

    The state: (value, how many) pairs.
    """

    name: ClassVar[str] = "unordered-queue"
    meanings: ClassVar[Meanings] = QUEUE
    init: ClassVar[Hashable] = frozenset[Hashable]()

    def step(self, state: Hashable, op: Operation) -> Hashable | OneOf:
        assert isinstance(state, frozenset)
        counts: dict[Hashable, int] = dict(state)
        if op.f == "enqueue":
            value = exact(op.argument)
            counts[value] = counts.get(value, 0) + 1
            return frozenset(counts.items())
        if op.result is None:
            return None if state else state
        if op.result is not UNKNOWN:
            return _without(counts, exact(op.result)) if exact(op.result) in counts else None
        return OneOf(tuple(_without(counts, value) for value in counts)) if counts else None

    def is_pure(self, op: Operation) -> bool:
        return op.f == "dequeue" and op.result is None


def _without(counts: dict[Hashable, int], value: Hashable) -> frozenset[Hashable]:
    fewer = {**counts, value: counts[value] - 1}
    if not fewer[value]:
        del fewer[value]
    return frozenset(fewer.items())


@dataclass(frozen=True, slots=True)
class Stack:
    """push(v), pop -> the newest, or nil if there is none. The state: oldest first."""

    name: ClassVar[str] = "stack"
    meanings: ClassVar[Meanings] = aliases(
        ("push enqueue add offer put", Meaning("push", argument=True)),
        ("pop dequeue remove poll take", Meaning("pop", result=True, settles=True)),
    )
    init: ClassVar[Hashable] = ()

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, tuple)
        if op.f == "push":
            return (*state, exact(op.argument))
        if op.result is None:
            return None if state else state
        if not state or (op.result is not UNKNOWN and state[-1] != exact(op.result)):
            return None
        return state[:-1]

    def is_pure(self, op: Operation) -> bool:
        return op.f == "pop" and op.result is None


@dataclass(frozen=True, slots=True)
class PriorityQueue:
    """enqueue(v), dequeue -> one of the highest priority, or nil if there is none.

    v is a pair (priority, message), or a number, which is its own priority; a dequeue returns what
    was enqueued. The state: the elements, the next one first; equal ones in order of arrival.
    """

    name: ClassVar[str] = "priority-queue"
    meanings: ClassVar[Meanings] = aliases(
        ("enqueue insert add offer send publish put", Meaning("enqueue", argument=True)),
        ("dequeue remove poll receive consume take", Meaning("dequeue", result=True, settles=True)),
    )
    init: ClassVar[Hashable] = ()

    first: str = "highest"  # as brokers have it; or the "lowest" number, as heaps do
    ties: str = "any"  # of one priority "any" may come first; or "fifo", the oldest

    def __post_init__(self) -> None:
        one_of("first", self.first, "highest", "lowest")
        one_of("ties", self.ties, "any", "fifo")

    def step(self, state: Hashable, op: Operation) -> Hashable | OneOf:
        assert isinstance(state, tuple)
        if op.f == "enqueue":
            return self._put(state, op.argument)
        if op.result is None:
            return None if state else state
        if not state:
            return None
        turn = state[0][0]
        known = 1 if self.ties == "fifo" else sum(each[0] == turn for each in state)
        ready = range(known)
        if op.result is not UNKNOWN:
            wanted = exact(op.result)
            ready_now = [at for at in ready if state[at][1] == wanted]
            return _dropped(state, ready_now[0]) if ready_now else None
        return OneOf(tuple(dict.fromkeys(_dropped(state, at) for at in ready)))

    def is_pure(self, op: Operation) -> bool:
        return op.f == "dequeue" and op.result is None

    def _put(self, state: tuple[_Element, ...], value: Hashable) -> Hashable:
        """Elements are (turn, value, number among equal ones); without order among equal turns
        they are sorted, so that one multiset is one state."""
        turn = priority_of(value) * (1 if self.first == "lowest" else -1)
        element = (turn, exact(value))
        if self.ties == "fifo":
            at = sum(each[0] <= turn for each in state)
        else:
            at = sum((each[0], repr(each[1])) <= (turn, repr(element[1])) for each in state)
        return (*state[:at], element, *state[at:])


def _dropped(state: tuple[_Element, ...], at: int) -> tuple[_Element, ...]:
    return (*state[:at], *state[at + 1 :])


def priority_of(value: Hashable) -> float:
    """The priority of what is enqueued. Raises ValueError: it has none."""
    priority = value[0] if isinstance(value, tuple) and len(value) == 2 else value
    if isinstance(priority, bool) or not isinstance(priority, int | float) or priority != priority:
        raise ValueError(
            "a priority queue's element is a number or a pair that begins with one, not"
            f" {value_text(value)}"
        )
    return priority


@dataclass(frozen=True, slots=True)
class Set:
    """add(v), remove(v), contains(v) -> bool, read -> all of them. The state: its elements.

    An add or remove that returned a boolean says whether it changed the set.
    """

    name: ClassVar[str] = "set"
    meanings: ClassVar[Meanings] = aliases(
        ("add insert", Meaning("add", argument=True, result=True, settles=True)),
        ("remove delete", Meaning("remove", argument=True, result=True, settles=True)),
        ("contains", Meaning("contains", argument=True, result=True, pure=True)),
        ("read", Meaning("read", result=True, pure=True)),
    )
    init: ClassVar[Hashable] = frozenset[Hashable]()

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, frozenset)
        if op.f == "read":
            return state if op.result is UNKNOWN or state == _elements(op.result) else None
        value = exact(op.argument)
        present = value in state
        if op.f == "contains":
            if op.result is not UNKNOWN and not isinstance(op.result, bool):
                raise ValueError(f"contains returns true or false, not {value_text(op.result)}")
            return state if op.result is UNKNOWN or op.result == present else None
        changes = not present if op.f == "add" else present
        if isinstance(op.result, bool) and op.result != changes:
            return None
        return state | {value} if op.f == "add" else state - {value}


def _elements(result: Hashable) -> frozenset[Hashable]:
    if not isinstance(result, tuple | frozenset):
        raise ValueError(f"a read of a set returns its elements, not {value_text(result)}")
    return frozenset(exact(element) for element in result)


@dataclass(frozen=True, slots=True)
class Counter:
    """inc(n), dec(n), n = 1 if nil; read -> the sum so far."""

    name: ClassVar[str] = "counter"
    meanings: ClassVar[Meanings] = aliases(
        ("inc add increment", Meaning("inc", argument=True)),
        ("dec decrement", Meaning("dec", argument=True)),
        ("read get", Meaning("read", result=True, pure=True)),
    )

    initial: int = 0

    @property
    def init(self) -> Hashable:
        return self.initial

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, int)
        if op.f == "read":
            return state if op.result is UNKNOWN or state == exact(op.result) else None
        amount = 1 if op.argument is None else op.argument
        if type(amount) is not int:
            raise ValueError(f"{op.f} needs an integer, not {value_text(op.argument)}")
        return state + amount if op.f == "inc" else state - amount


@dataclass(frozen=True, slots=True)
class Log:
    """append(v) -> its offset, read(offset) -> v or nil (not there yet), tail -> how many.

    Offsets begin at 0. An append that returned nil does not say where. The state: its values.
    """

    name: ClassVar[str] = "log"
    meanings: ClassVar[Meanings] = aliases(
        ("append send", Meaning("append", argument=True, result=True, settles=True)),
        ("read poll", Meaning("read", argument=True, result=True, pure=True)),
        ("tail", Meaning("tail", result=True, pure=True)),
    )
    init: ClassVar[Hashable] = ()

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, tuple)
        if op.f == "append":
            known = op.result is not UNKNOWN and op.result is not None
            if known and exact(op.result) != len(state):
                return None
            return (*state, exact(op.argument))
        if op.result is UNKNOWN:
            return state
        if op.f == "tail":
            return state if exact(op.result) == len(state) else None
        if type(op.argument) is not int or op.argument < 0:
            raise ValueError(f"a read needs an offset, not {value_text(op.argument)}")
        there = state[op.argument] if op.argument < len(state) else None
        return state if there == exact(op.result) else None
