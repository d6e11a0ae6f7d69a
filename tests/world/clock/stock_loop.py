"""A stand-in for SimLoop on asyncio's own loop, so that tests which know nothing of simulation can
use a simulated disk: latencies pass at once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class StockLoop:
    """Implements cluster.sim.disk.calls.TimerLoop. Its time moves with the timers that fire."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.process: None = None

    def call_at_ns(
        self, when_ns: int, callback: Callable[..., Any], *args: Any, process: Any = None
    ) -> asyncio.Handle:
        def fire() -> None:
            self.now_ns = max(self.now_ns, when_ns)
            callback(*args)

        return asyncio.get_running_loop().call_soon(fire)
