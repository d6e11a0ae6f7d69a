"""The host's own wall clock: read beside the clocks that are never set, and set.

Setting it takes root, and is done only where the user allowed it (``--ssh-set-time``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

READINGS = 20
Reading = tuple[int, int, int]  # CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME, in ns


def read_clocks() -> Reading:
    """All three at one moment, of the narrowest of several readings."""
    best: tuple[int, Reading] | None = None
    for _ in range(READINGS):
        before = time.monotonic_ns()
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        wall = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = after - before, ((before + after) // 2, boot, wall)
    assert best is not None
    return best[1]


def set_wall(wall_ns: int) -> None:
    """Raises OSError without the right to it."""
    time.clock_settime_ns(time.CLOCK_REALTIME, wall_ns)


@dataclass(frozen=True)
class HostClock:
    """``read`` and ``write`` are replaced in tests: there is one such clock on a machine."""

    read: Callable[[], Reading] = read_clocks
    write: Callable[[int], None] = set_wall

    def set(self, true_ns: int, offset_ns: int) -> None:
        """So far ahead of the true time, which is CLOCK_BOOTTIME and ``true_ns``."""
        _, boot, _ = self.read()
        self.write(boot + true_ns + offset_ns)


HOST_CLOCK = HostClock()
