"""Turns: no task of a node keeps the loop from the others for long.

What one message of a quiet client takes is many short turns, each of a task that is woken by the
one before: a flood would have a turn, and it takes several tasks, between any two of them.
"""

from __future__ import annotations

import asyncio
from collections import deque

SLICE_S = 0.0001
LOOK_EVERY = 2  # a look at the clock costs a hundredth of what a message does

YIELDS_MAX = 8  # rounds of the loop in which those that were woken go first


class Turns:
    """Of a node. ``woken``: tasks that wait for the loop, having waited for what came."""

    def __init__(self) -> None:
        self.woken = 0
        self._over: deque[asyncio.Future[None]] = deque()  # of tasks that used their time up

    async def next(self) -> None:
        """For a task that used its time up: returns when it may go on. One such task goes on in a
        round of the loop, and none while others that were woken wait.
        """
        turn = asyncio.get_running_loop().create_future()
        self._over.append(turn)
        try:
            await (asyncio.sleep(0) if self._over[0] is turn else turn)
            for _ in range(YIELDS_MAX - 1):
                if not self.woken:
                    break
                await asyncio.sleep(0)
        finally:
            was_first = self._over[0] is turn
            self._over.remove(turn)
            if was_first and self._over and not self._over[0].done():
                self._over[0].set_result(None)

    def has_woken(self, change: int) -> None:
        """So many tasks more, or less, wait for the loop, having waited for what came."""
        self.woken += change


class Turn:
    """How long a task may go on while others wait for the loop. In a simulation, where no time
    passes while it works, for ever.
    """

    __slots__ = ("_count", "_loop", "_over_s", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._over_s = self._loop.time() + SLICE_S

    def begin(self) -> None:
        """The task was waiting."""
        self._over_s = 0.0  # its first piece of work comes at once: the clock is read then

    def is_over(self) -> bool:
        """Asked before each piece of work."""
        self._count += 1
        if not self._over_s:
            self._over_s = self._loop.time() + SLICE_S
            return False
        return self._count % LOOK_EVERY == 0 and self._loop.time() >= self._over_s

    async def end(self) -> None:
        await self._turns.next()
        self._over_s = self._loop.time() + SLICE_S
