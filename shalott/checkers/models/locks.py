"""Sequential specifications of locks and semaphores.

A mutex does not ask who releases it (Knossos's). The others know their owner, a process. A process
whose operation crashed is another one afterwards, as in Jepsen; but where operations return a map
with an :owner or :client (Hazelcast's tests), that is the owner, in all of its processes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from shalott.checkers.history.column_values import MapPairs
from shalott.checkers.history.concurrent import FORM, UNKNOWN, ConcurrentHistory, Operation, Values
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.model import Meaning, Meanings, aliases

FREE: Final = -1  # no process has this number
AsRead = Callable[[ConcurrentHistory], ConcurrentHistory]
_OWNERS: Final = ("owner", "client", "holder", "session")  # as maps have them


def owned(history: ConcurrentHistory) -> ConcurrentHistory:
    """The history with its owners for processes: of each the first process that it was.

    An operation that names no owner, since it crashed or failed, is that of its process's last one.
    """
    names = {**_owners_in(history.argument), **_owners_in(history.result)}
    if not names:
        return history
    process = history.process.copy()
    first: dict[Hashable, int] = {}
    last: dict[int, int] = {}  # by process: the owner that it was
    for row, number in enumerate(history.process.tolist()):
        name = next((names[form] for form in _forms(history, row) if form in names), None)
        if name is not None:
            last[number] = first.setdefault(name, number)
        process[row] = last.get(number, number)
    return replace(history, process=process)


def _owners_in(values: Values) -> dict[Hashable, Hashable]:
    """By map: the owner that it names."""
    found: dict[Hashable, Hashable] = {}
    for form in values.forms:
        if isinstance(form, MapPairs):
            named = {str(key): each for key, each in form}
            owner = next((named[name] for name in _OWNERS if named.get(name) is not None), None)
            if owner is not None:
                found[form] = owner
    return found


def _forms(history: ConcurrentHistory, row: int) -> list[Hashable]:
    both = (history.result, history.argument)
    return [column.get(row) for column in both if column.kind.item(row) == FORM]


LOCK: Final = aliases(("acquire lock", Meaning("acquire")), ("release unlock", Meaning("release")))


@dataclass(frozen=True, slots=True)
class Mutex:
    """acquire, release; anyone may release it. The state: whether it is held."""

    name: ClassVar[str] = "mutex"
    meanings: ClassVar[Meanings] = LOCK
    init: ClassVar[Hashable] = False

    def step(self, state: Hashable, op: Operation) -> Hashable:
        wanted = op.f == "acquire"
        return None if state == wanted else wanted


@dataclass(frozen=True, slots=True)
class OwnerLock:
    """A lock that only its owner may release. The state: the owner, or -1."""

    name: ClassVar[str] = "owner-lock"
    meanings: ClassVar[Meanings] = LOCK
    by_process: ClassVar[bool] = True
    as_read: ClassVar[AsRead] = staticmethod(owned)
    init: ClassVar[Hashable] = FREE

    def step(self, state: Hashable, op: Operation) -> Hashable:
        if op.f == "acquire":
            return op.process if state == FREE else None
        return FREE if state == op.process else None


@dataclass(frozen=True, slots=True)
class ReentrantLock:
    """A lock that its owner may acquire again, and releases as often. The state: (owner, times)."""

    name: ClassVar[str] = "reentrant-lock"
    meanings: ClassVar[Meanings] = LOCK
    by_process: ClassVar[bool] = True
    as_read: ClassVar[AsRead] = staticmethod(owned)
    init: ClassVar[Hashable] = (FREE, 0)

    limit: int = 0  # how often it may be held at once; 0: as often as asked for

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, tuple)
        owner, times = state
        if op.f == "acquire":
            if owner not in (FREE, op.process) or (self.limit and times >= self.limit):
                return None
            return (op.process, times + 1)
        if owner != op.process:
            return None
        return (owner, times - 1) if times > 1 else (FREE, 0)


@dataclass(frozen=True, slots=True)
class FencedLock:
    """A lock with an owner whose acquire -> token, greater than every token known before it.

    A token is an integer, or a map's :fence or :token.

    A token that no client got to know (a crashed acquire, or nil) may have been any, between others
    too: it constrains nothing. The state: (owner, the last known token or nil).
    """

    name: ClassVar[str] = "fenced-lock"
    meanings: ClassVar[Meanings] = aliases(
        ("acquire lock", Meaning("acquire", result=True, settles=True)),
        ("release unlock", Meaning("release")),
    )
    by_process: ClassVar[bool] = True
    as_read: ClassVar[AsRead] = staticmethod(owned)
    init: ClassVar[Hashable] = (FREE, None)

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, tuple)
        owner, last = state
        if op.f == "release":
            return (FREE, last) if owner == op.process else None
        if owner != FREE:
            return None
        if op.result is UNKNOWN or op.result is None:
            return (op.process, last)
        token = token_of(op.result)
        if token is None:
            raise ValueError(_NO_TOKEN.format(value_text(op.result)))
        return (op.process, token) if last is None or token > last else None


@dataclass(frozen=True, slots=True)
class ReentrantFencedLock:
    """A lock that its owner may acquire again, with the token of its first acquire: greater than
    every token known before. The state: (owner, times, its token or nil, the last known or nil).

    A token is an integer, or a map's :fence or :token; nil, or one of a map that is 0 or less, is
    not known.
    """

    name: ClassVar[str] = "reentrant-fenced-lock"
    meanings: ClassVar[Meanings] = FencedLock.meanings
    by_process: ClassVar[bool] = True
    as_read: ClassVar[AsRead] = staticmethod(owned)
    init: ClassVar[Hashable] = (FREE, 0, None, None)

    limit: int = 0  # how often it may be held at once; 0: as often as asked for

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, tuple)
        owner, times, held, last = state
        if op.f == "release":
            if owner != op.process:
                return None
            return (owner, times - 1, held, last) if times > 1 else (FREE, 0, None, last)
        if owner not in (FREE, op.process) or (self.limit and times >= self.limit):
            return None
        token = _known_token(op.result)
        if token is None or (owner != FREE and token == held):
            return (op.process, times + 1, held, last)
        if held is not None or (last is not None and token <= last):
            return None
        return (op.process, times + 1, token, token)


def _known_token(result: Hashable) -> int | None:
    if result is UNKNOWN or result is None:
        return None
    token = token_of(result)
    if token is None:
        raise ValueError(_NO_TOKEN.format(value_text(result)))
    return None if token <= 0 and isinstance(result, MapPairs) else token


_NO_TOKEN: Final = "a token is an integer, or a map that has one as its :fence or :token, not {}"
_TOKENS: Final = ("fence", "token", "fencing-token", "fencing_token")  # as maps have them


def token_of(value: Hashable) -> int | None:
    """The fencing token that an acquire returned; None: there is none in it."""
    if type(value) is int:
        return value
    if not isinstance(value, MapPairs):
        return None
    named = {str(key): each for key, each in value}
    found = next((named[name] for name in _TOKENS if name in named), None)
    return found if type(found) is int else None


@dataclass(frozen=True, slots=True)
class Semaphore:
    """``permits`` permits: acquire(n), release(n), n = 1 if nil. The state: how many are free."""

    name: ClassVar[str] = "semaphore"
    meanings: ClassVar[Meanings] = aliases(
        ("acquire", Meaning("acquire", argument=True)),
        ("release", Meaning("release", argument=True)),
    )

    permits: int = 1

    @property
    def init(self) -> Hashable:
        return self.permits

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, int)
        count = 1 if op.argument is None else op.argument
        if type(count) is not int or count < 1:
            raise ValueError(f"{op.f} needs a number of permits, not {value_text(op.argument)}")
        free = state - count if op.f == "acquire" else state + count
        return free if 0 <= free <= self.permits else None


@dataclass(frozen=True, slots=True)
class OwnedSemaphore:
    """``permits`` permits, one acquired at a time, which only who holds one may release.

    The state: (owner, how many) pairs.
    """

    name: ClassVar[str] = "owned-semaphore"
    meanings: ClassVar[Meanings] = LOCK
    by_process: ClassVar[bool] = True
    as_read: ClassVar[AsRead] = staticmethod(owned)
    init: ClassVar[Hashable] = frozenset[Hashable]()

    permits: int = 1

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, frozenset)
        held: dict[int, int] = dict(state)
        own = held.pop(op.process, 0)
        if op.f == "acquire":
            if sum(held.values()) + own >= self.permits:
                return None
            return frozenset({*held.items(), (op.process, own + 1)})
        if not own:
            return None
        return frozenset({*held.items(), (op.process, own - 1)} - {(op.process, 0)})
