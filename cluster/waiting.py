"""wait_until: for what can only be asked for, because it tells nobody when it changes (processes
of others)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def wait_until(condition: Callable[[], bool], timeout_s: float, interval_s: float) -> bool:
    """Ask until the condition holds; False if it still doesn't at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(interval_s)
    return True
