"""Alarm: one timer that is moved ahead as needed, for who knows when it next has something to do.

It is never put off: one that goes off too early only finds that there is nothing to do yet, and
that costs less than a new timer each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """``ring`` is called in the event loop, once for each ``set`` that was not overtaken."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def set(self, due_ms: int, now_ms: int) -> None:
        """Ring at ``due_ms`` of a clock that shows ``now_ms``, or before."""
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        delay_s = max(1, due_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._is_up)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_up(self) -> None:
        self._timer = None
        self._ring()
