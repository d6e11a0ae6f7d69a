"""NodeClock: the clocks of one simulated machine, as a function of the simulation's true time.

The monotonic clock is a continuous, piecewise linear function of true time: each change of the
drift starts a new piece where the last one is, so it never jumps and never goes back. The wall
clock is the true wall clock plus an offset that may jump, and it gains what the monotonic clock
gains. All arithmetic is in integers (nanoseconds, and drift in parts per billion), so that it is
the same on every machine, and ``global_ns`` is the exact inverse that a loop needs to set timers
by a clock that drifts.

As on a real machine, a timer that is running when the drift changes was set by the old drift.
"""

from __future__ import annotations

from typing import Protocol

BILLION = 1_000_000_000
NS_PER_MS = 1_000_000
PPB_PER_PPM = 1_000


class Time(Protocol):
    """The loop (loop.py)."""

    now_ns: int


class NodeClock:
    """Implements broker.base.env.Clock.

    ``time`` knows the simulation's true time; the true wall clock is ``wall_origin_ns`` later.
    """

    __slots__ = (
        "_base_global_ns",
        "_base_local_ns",
        "_drift_ppb",
        "_offset_ns",
        "_time",
        "_wall_origin_ns",
    )

    def __init__(
        self,
        time: Time,
        *,
        wall_origin_ns: int,
        offset_ms: float = 0,
        drift_ppm: float = 0,
    ) -> None:
        self._time = time
        self._wall_origin_ns = wall_origin_ns
        self._base_global_ns = self._base_local_ns = time.now_ns
        self._drift_ppb = 0
        self._offset_ns = 0
        self.set(offset_ms, drift_ppm)

    def set(self, offset_ms: float, drift_ppm: float) -> None:
        """Put the wall clock so far from the true one, and both clocks to run so much faster."""
        drift_ppb = round(drift_ppm * PPB_PER_PPM)
        assert drift_ppb > -BILLION, "a clock that stands still or runs back is no clock"
        now_ns = self._time.now_ns
        self._base_local_ns = self.local_ns(now_ns)
        self._base_global_ns = now_ns
        self._drift_ppb = drift_ppb
        self._offset_ns = round(offset_ms * NS_PER_MS)

    def skip(self, lasted_ns: int) -> None:
        """The monotonic clock has stood still for so long; the wall clock has been set right."""
        self._base_local_ns -= lasted_ns + lasted_ns * self._drift_ppb // BILLION

    @property
    def drift_ppm(self) -> float:
        return self._drift_ppb / PPB_PER_PPM

    # -- what the node reads -----------------------------------------------------------------------

    def monotonic_ns(self) -> int:
        # local_ns, written out: a broker asks at every message.
        elapsed_ns = self._time.now_ns - self._base_global_ns
        return self._base_local_ns + elapsed_ns + elapsed_ns * self._drift_ppb // BILLION

    def wall_ns(self) -> int:
        now_ns = self._time.now_ns
        return self._wall_origin_ns + now_ns + self._ahead_ns(now_ns)

    # -- what the simulation reads -----------------------------------------------------------------

    def local_ns(self, global_ns: int) -> int:
        """The monotonic clock at a true time; of the present piece: not for the past."""
        elapsed_ns = global_ns - self._base_global_ns
        return self._base_local_ns + elapsed_ns + elapsed_ns * self._drift_ppb // BILLION

    def global_ns(self, local_ns: int) -> int:
        """The first true time at which the monotonic clock shows ``local_ns`` or later.

        A time that was reached before the present piece began has an answer that lies in the past,
        but not the right one.
        """
        elapsed_ns = local_ns - self._base_local_ns
        return self._base_global_ns - (-elapsed_ns * BILLION // (BILLION + self._drift_ppb))

    def offset_ms(self) -> float:
        """How far the wall clock is ahead of the true one now."""
        return self._ahead_ns(self._time.now_ns) / NS_PER_MS

    def _ahead_ns(self, now_ns: int) -> int:
        gained_ns = (now_ns - self._base_global_ns) * self._drift_ppb // BILLION
        return self._offset_ns + gained_ns
