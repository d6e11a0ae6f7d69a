"""Sequential specifications of locks and semaphores.

A mutex does not ask who releases it (Knossos's). The others know their owner, a process. A process
whose operation crashed is another one afterwards, as in Jepsen.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Final

from shalott.checkers.history.column_values import MapPairs
from shalott.checkers.history.concurrent import UNKNOWN, Operation
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.model import Meaning, Meanings, aliases

FREE: Final = -1  # no process has this number

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
            raise ValueError(
                "a token is an integer, or a map that has one as its :fence or :token, not"
                f" {value_text(op.result)}"
            )
        return (op.process, token) if last is None or token > last else None


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
