"""Gives the operating system the memory that a node's queues no longer need.

The C library keeps what is freed below something that is still used, and a broker frees bodies
between small objects that stay: after a queue of 150 MB was deleted, all of it was free and none of
it returned (docs/explanation/memory.md). ``malloc_trim`` returns the free pages. It is of the C
library and of a real process, so it is called from outside the broker, which runs in a simulation
too.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

LOOK_EVERY_S = 2.0
WORTH_BYTES = 32 << 20


async def give_back(used: Callable[[], int]) -> None:
    """For ever: each time ``used``, bytes that queues hold, has fallen by much."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only GNU's has it
    most = used()
    while trim is not None:
        await asyncio.sleep(LOOK_EVERY_S)
        now = used()
        most = max(most, now)
        if most - now >= WORTH_BYTES:
            trim(0)
            most = now
