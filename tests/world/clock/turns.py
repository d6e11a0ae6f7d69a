"""Waiting in tests: for turns of the event loop, for something that comes to hold, or for virtual
time that passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shalott.cluster.sim.loop.loop import SimLoop

T = TypeVar("T")
DEADLINE_S = 120.0


async def turns(count: int = 1) -> None:
    """``count`` rounds of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(
    condition: Callable[[], object],
    what: str = "",
    step_s: float = 0.01,
    within_s: float = DEADLINE_S,
) -> None:
    """Let time pass until it holds; an AssertionError after ``within_s``."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not condition():
        if loop.time() > deadline_s:
            raise AssertionError(f"never happened: {what or condition}")
        await asyncio.sleep(step_s)


async def answered(
    ask: Callable[[], Awaitable[T]],
    what: str = "",
    step_s: float = 0.01,
    within_s: float = DEADLINE_S,
) -> T:
    """Ask again and again; the first answer that is true. An AssertionError after ``within_s``."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not (answer := await ask()):
        if loop.time() > deadline_s:
            raise AssertionError(f"never happened: {what or ask}")
        await asyncio.sleep(step_s)
    return answer


async def passes(seconds: float) -> None:
    """Let virtual time pass: for what must not happen meanwhile, or is due then."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop), "in real time, await what is to happen"
    await asyncio.sleep(seconds)
