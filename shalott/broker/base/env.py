"""Env: a node's whole outside world, besides asyncio streams.

A node never reads the clock, draws a random number or opens a file in any other way. That is what
lets the same broker run on an operating system and in a deterministic simulation (cluster/sim).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from shalott.broker.base.disk import Disk
from shalott.broker.base.files import begin_life


class Clock(Protocol):
    """Two clocks: one that never goes back, and one that people read."""

    def monotonic_ns(self) -> int: ...

    def wall_ns(self) -> int: ...


class Rng(Protocol):
    """Only ``random()`` and ``getrandbits()``: the same in every Python version."""

    def random(self) -> float: ...

    def getrandbits(self, k: int, /) -> int: ...


class SystemClock:
    """The operating system's clocks."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()


class EventLog(Protocol):
    """Where a node says what happened to its roles."""

    def emit(
        self,
        group: str,
        kind: str,
        *,
        role: str = "",
        epoch: int = 0,
        detail: dict[str, object] | None = None,
    ) -> None:
        """Record an event now. Never blocks; written in order, flushed at once."""
        ...


def never(site: str) -> bool:
    """``Env.buggify`` outside simulation."""
    return False


class Witness(Protocol):
    """Hears, at the instant, of what a node does that a promise hangs on: that it votes, confirms,
    lets consumers see something (cluster/sim/oracles says which, and with what). It must change
    nothing.
    """

    def __call__(self, what: str, /, *details: object) -> None: ...


def unseen(what: str, /, *details: object) -> None:
    """``Env.witness`` outside simulation."""


@dataclass(frozen=True, slots=True)
class Env:
    """What a node may touch. ``incarnation`` grows by one at every start of the node's process.

    ``buggify(site)`` says whether to misbehave now at ``site`` in a way that the design allows;
    it never does outside simulation. ``bugs`` are the ids of the historical bugs that are switched
    on in this node (broker/known_bugs.py). ``witness`` hears what a simulation checks at once.
    """

    node_id: str
    incarnation: int
    clock: Clock
    rng: Rng
    disk: Disk
    events: EventLog
    bugs: tuple[str, ...] = ()
    buggify: Callable[[str], bool] = never
    witness: Witness = unseen

    def choose_index(self, count: int) -> int:
        """A uniform index into a sequence of ``count`` items."""
        assert count > 0
        return int(self.rng.random() * count)

    def has_bug(self, bug: str) -> bool:
        """Whether the historical bug with this id is switched on."""
        return bug in self.bugs


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What a node is started on. The callables get the incarnation; ``starts`` is how often the
    machine has started the node (broker/base/files.py).
    """

    clock: Clock
    make_rng: Callable[[int], Rng]
    disk: Disk
    open_events: Callable[[int], Awaitable[EventLog]]
    buggify: Callable[[str], bool] = never
    witness: Witness = unseen
    starts: int = 0

    async def begin_life(self, node_id: str, bugs: tuple[str, ...]) -> Env:
        incarnation = await begin_life(self.disk, self.starts)
        return Env(
            node_id,
            incarnation,
            self.clock,
            self.make_rng(incarnation),
            self.disk,
            await self.open_events(incarnation),
            bugs=bugs,
            buggify=self.buggify,
            witness=self.witness,
        )


def seeded_rng(seed: int, incarnation: int) -> Rng:
    """The random source of one life of a real node; simulated nodes bring their own keyed streams.

    Every life draws other numbers: message ids are drawn, and a restarted node that drew the ids of
    its former life again would have its messages taken for those that are in the queue already.
    """
    return random.Random(f"{seed}/{incarnation}")


async def pause_ms(duration_ms: float) -> None:
    """Where a node waits for time alone to pass."""
    await asyncio.sleep(duration_ms / 1000)


async def wait_ms(changed: asyncio.Event, most_ms: float) -> None:
    """Until ``changed`` is set; when it takes longer it is set here. For who clears it anyhow
    before it looks what there is to do: ``asyncio.timeout`` costs three times as much."""
    timer = asyncio.get_running_loop().call_later(most_ms / 1000, changed.set)
    try:
        await changed.wait()
    finally:
        timer.cancel()
