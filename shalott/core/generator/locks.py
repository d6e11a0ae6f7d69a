"""The generator of the lock workload: acquire, hold, release, on a few locks.

Attempts to acquire come at a rate that all processes share. Who gets a lock holds it for a drawn
time and releases it then, or as soon as its client notices that the lock is lost. When the time is
over whoever holds a lock releases it at once, so that nothing is held when the generator ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shalott.core.generator.base import (
    Answer,
    Completed,
    Context,
    Generator,
    Pending,
    Scheduled,
)
from shalott.core.generator.combinators import MAX_LAG_NS
from shalott.core.op import Invocation
from shalott.core.rng import draw_below, draw_float, stream_key


class Hold(msgspec.Struct, frozen=True):
    """A lock that a process holds, and until when it means to."""

    key: str
    until_ns: int


class LockMix(msgspec.Struct, frozen=True):
    """A process holds one lock at most. Holds and gaps are uniform in [0, 2 mean)."""

    keys: tuple[str, ...]
    gap_ns: float  # mean, between attempts of all processes
    hold_ns: float  # mean
    limit_ns: int
    which_key: int
    gap_key: int
    hold_key: int
    count: int = 0
    due_ns: int | None = None
    end_ns: int | None = None
    acquired: int = 0
    holds: Mapping[int, Hold] = {}  # by process

    def next(self, context: Context) -> tuple[Answer, Generator]:
        now_ns = context.now_ns
        end_ns = now_ns + self.limit_ns if self.end_ns is None else self.end_ns
        hold = self.holds.get(context.process)
        if hold is not None:
            release = Invocation(f="release", key=hold.key)
            return Scheduled(min(hold.until_ns, end_ns), release, when_lost=True), self
        if now_ns >= end_ns:
            return None, self
        wanted_ns = now_ns if self.due_ns is None else self.due_ns
        due_ns = max(wanted_ns, now_ns - MAX_LAG_NS)
        if due_ns >= end_ns:
            return Pending(end_ns), msgspec.structs.replace(self, end_ns=end_ns)
        key = self.keys[draw_below(self.which_key, self.count, len(self.keys))]
        gap_ns = int(draw_float(self.gap_key, self.count) * 2 * self.gap_ns)
        successor = msgspec.structs.replace(
            self, count=self.count + 1, due_ns=due_ns + gap_ns, end_ns=end_ns
        )
        wanted = Invocation(f="acquire", key=key)
        return Scheduled(due_ns, wanted, due_ns=wanted_ns), successor

    def update(self, event: Completed) -> Generator:
        if event.invocation.f == "acquire" and event.kind == "ok":
            drawn_ns = int(draw_float(self.hold_key, self.acquired) * 2 * self.hold_ns)
            hold = Hold(event.invocation.key, event.now_ns + drawn_ns)
            holds = {**self.holds, event.process: hold}
            return msgspec.structs.replace(self, holds=holds, acquired=self.acquired + 1)
        if event.invocation.f == "release":
            holds = {who: held for who, held in self.holds.items() if who != event.process}
            return msgspec.structs.replace(self, holds=holds)
        return self


def lock_mix(
    keys: Sequence[str], *, rate_hz: float, hold_ms: float, limit_ms: int, seed: int, part: str
) -> LockMix:
    """``part`` tells the draws of one mix of a run from those of another."""
    return LockMix(
        keys=tuple(keys),
        gap_ns=1e9 / rate_hz,
        hold_ns=hold_ms * 1e6,
        limit_ns=limit_ms * 1_000_000,
        which_key=stream_key(seed, "lock", part, "key"),
        gap_key=stream_key(seed, "lock", part, "gap"),
        hold_key=stream_key(seed, "lock", part, "hold"),
    )
