"""Generators: pure values that say which operation comes next; and those made of others.

After jepsen.generator, which moved from mutable to pure generators because only those can be
tested, composed and replayed. A generator is asked by one worker at a time and answers with an
operation and the moment it is due, with ``Pending`` (nothing for you now, ask again), or with None
(exhausted); it returns its successor and changes nothing. It hears of completions through
``update``.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from shalott.core.op import Invocation, OpType
from shalott.core.rng import draw_float


class Context(msgspec.Struct, frozen=True):
    """Who asks, and when."""

    now_ns: int
    process: int
    node: str
    in_flight: int = 0  # operations of all processes that have not completed yet
    holds: tuple[str, ...] = ()  # what the client of who asks holds (``Holding``)


class Scheduled(msgspec.Struct, frozen=True):
    """Do this at ``at_ns``, or at once if that has passed.

    ``when_lost``: or as soon as the client notices that it has lost what it holds (``Watchful``).
    ``due_ns``: when the generator's schedule wanted it, which may be long before ``at_ns`` if no
    worker was free; None if no schedule paces it. Latencies are measured from there too.
    """

    at_ns: int
    invocation: Invocation
    when_lost: bool = False
    due_ns: int | None = None


class Pending(msgspec.Struct, frozen=True):
    """Ask again when an operation has completed, or at ``until_ns``, whichever comes first."""

    until_ns: int | None = None


class Completed(msgspec.Struct, frozen=True):
    """What a generator hears of an operation's end."""

    now_ns: int
    process: int
    node: str
    invocation: Invocation
    kind: OpType
    error: str | None = None


Answer = Scheduled | Pending | None


class Generator(Protocol):
    def next(self, context: Context) -> tuple[Answer, Generator]: ...

    def update(self, event: Completed) -> Generator: ...


# How far a staggered generator may run behind before it gives up operations instead of sending them
# in a burst. It covers the event loop's timer granularity, not an outage.
MAX_LAG_NS = 100_000_000


class Stagger(msgspec.Struct, frozen=True):
    """Space operations of all processes together, ``mean_ns`` apart on average.

    Gaps are uniform in [0, 2 mean), as Jepsen's stagger draws them; no logarithm is involved, so
    they are the same on every machine. Arrivals do not wait for completions: as long as a worker is
    free, the rate holds however slow the system is. When none was free, the operation that waited
    keeps the time at which it was due, and those that should have followed it are given up.
    """

    inner: Generator
    mean_ns: float
    key: int  # of the random stream
    count: int = 0
    due_ns: int | None = None

    def next(self, context: Context) -> tuple[Answer, Generator]:
        due_ns = context.now_ns if self.due_ns is None else self.due_ns
        due_ns = max(due_ns, context.now_ns - MAX_LAG_NS)
        answer, inner = self.inner.next(context)
        if not isinstance(answer, Scheduled):
            return answer, Stagger(inner, self.mean_ns, self.key, self.count, self.due_ns)
        gap_ns = int(draw_float(self.key, self.count) * 2 * self.mean_ns)
        at_ns = due_ns if answer.at_ns <= context.now_ns else max(due_ns, answer.at_ns)
        wanted_ns = at_ns if self.due_ns is None or at_ns != due_ns else self.due_ns
        successor = Stagger(inner, self.mean_ns, self.key, self.count + 1, at_ns + gap_ns)
        return Scheduled(at_ns, answer.invocation, due_ns=wanted_ns), successor

    def update(self, event: Completed) -> Generator:
        inner = self.inner.update(event)
        if inner is self.inner:
            return self
        return Stagger(inner, self.mean_ns, self.key, self.count, self.due_ns)


class TimeLimit(msgspec.Struct, frozen=True):
    """Exhausted ``limit_ns`` after it was first asked. What was begun before may end later."""

    inner: Generator
    limit_ns: int
    end_ns: int | None = None

    def next(self, context: Context) -> tuple[Answer, Generator]:
        end_ns = context.now_ns + self.limit_ns if self.end_ns is None else self.end_ns
        if context.now_ns >= end_ns:
            return None, self
        answer, inner = self.inner.next(context)
        due_ns = answer.at_ns if isinstance(answer, Scheduled) else end_ns
        if isinstance(answer, Pending) and answer.until_ns is not None:
            due_ns = answer.until_ns
        if answer is not None and due_ns >= end_ns:
            answer = Pending(end_ns)
        return answer, TimeLimit(inner, self.limit_ns, end_ns)

    def update(self, event: Completed) -> Generator:
        inner = self.inner.update(event)
        return self if inner is self.inner else TimeLimit(inner, self.limit_ns, self.end_ns)


class Phases(msgspec.Struct, frozen=True):
    """One generator after another; each begins when all operations of the last have completed."""

    parts: tuple[Generator, ...]

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if not self.parts:
            return None, self
        answer, first = self.parts[0].next(context)
        if answer is not None:
            return answer, Phases((first, *self.parts[1:]))
        if context.in_flight > 0 and len(self.parts) > 1:
            return Pending(), Phases((first, *self.parts[1:]))
        return Phases(self.parts[1:]).next(context)

    def update(self, event: Completed) -> Generator:
        if not self.parts:
            return self
        first = self.parts[0].update(event)
        return self if first is self.parts[0] else Phases((first, *self.parts[1:]))


class Limit(msgspec.Struct, frozen=True):
    """Exhausted after ``remaining`` operations."""

    inner: Generator
    remaining: int

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if self.remaining <= 0:
            return None, self
        answer, inner = self.inner.next(context)
        spent = 1 if isinstance(answer, Scheduled) else 0
        return answer, Limit(inner, self.remaining - spent)

    def update(self, event: Completed) -> Generator:
        inner = self.inner.update(event)
        return self if inner is self.inner else Limit(inner, self.remaining)
