"""wait_until: for what can only be asked for, because it tells nobody when it changes (processes
of others)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def wait_until(condition: Callable[[], bool], timeout_s: float, interval_s: float) -> bool:
    """Ask until the condition holds; False if it still doesn't at the deadline."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while not condition():
        if loop.time() > deadline_s:
            return False
        await asyncio.sleep(interval_s)
    return True
