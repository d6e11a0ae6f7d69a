"""Waiting in tests: for a turn of the event loop, or until something holds in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
    """Let virtual time pass until it holds; an AssertionError after ``within_s``."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not condition():
        if loop.time() > deadline_s:
            raise AssertionError(f"never happened: {what or condition}")
        await asyncio.sleep(step_s)
