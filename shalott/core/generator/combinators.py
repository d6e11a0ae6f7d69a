"""Generators made of generators: a rate, a time limit, one after another."""

from __future__ import annotations

import msgspec

from shalott.core.generator.base import (
    Answer,
    Completed,
    Context,
    Generator,
    Pending,
    Scheduled,
)
from shalott.core.rng import draw_float

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
