"""MemoryMonitor: how much memory a node's queues take, and how much of their messages they may keep
there.

After rabbit_memory_monitor and vm_memory_monitor. What is counted is what the queues hold, not what
the operating system says of the process: bodies and properties in memory, and a fixed cost for
each entry. So it is the same in a simulation, and one seed gives one run; a process takes more than
that (docs/explanation/memory.md has figures).

Every queue tells a *duration*: how long what it has in memory lasts at its rates of ingress and
egress. Above the paging ratio of the limit (``vm_memory_high_watermark_paging_ratio``, half of it)
all get the same target: the average duration, divided by the part of the limit that is used.
Above the limit itself there is an alarm, which stops publishers. Below the paging ratio nothing
runs: no timer, no rates.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Callable
from typing import Protocol

from shalott.broker.base.env import Clock

log = logging.getLogger("shalott.broker.memory")

INTERVAL_MS = 2500  # as both monitors of RabbitMQ
SUM_INC_THRESHOLD = 0.95
SUM_INC_AMOUNT = 1.0
HALF_LIFE_S = 5.0
UNLIMITED = sys.maxsize


class Traffic:
    """How much went through a queue, and how fast it goes, from look to look."""

    __slots__ = ("_at_ns", "_counted", "_rate", "_was", "count", "held")

    def __init__(self) -> None:
        self.count = 0  # messages in, out, and acknowledgements in and out, together
        self.held = 0  # messages that are in memory
        self._counted = 0
        self._was = 0  # held at the last look
        self._rate = 0.0  # a second
        self._at_ns: int | None = None

    def look(self, now_ns: int) -> float:
        """The duration now, in seconds: infinite without any traffic."""
        passed_s = 0.0 if self._at_ns is None else (now_ns - self._at_ns) / 1e9
        if passed_s > 0:
            fresh = (self.count - self._counted) / passed_s
            weight = math.exp(passed_s * math.log(0.5) / HALF_LIFE_S)
            self._rate = weight * self._rate + (1 - weight) * fresh
        elif self._at_ns is None:
            self._rate, self._was = float(self.count), self.held  # as if all came in a second
        self._at_ns, self._counted = now_ns, self.count
        held, self._was = self.held + self._was, self.held
        # By four, as upstream: so a queue that takes all of the paging ratio may keep what it has.
        return math.inf if self._rate <= 0 else held / (4 * self._rate)

    def held_for(self, duration_s: float) -> int:
        """How many messages are so long a time's."""
        return UNLIMITED if math.isinf(duration_s) else int(duration_s * self._rate)


class Held(Protocol):
    """A queue, as the monitor knows it."""

    traffic: Traffic

    def set_target(self, count: int) -> None:
        """So many messages may be in memory."""
        ...


class MemoryMonitor:
    """Of one node. ``limit_bytes`` None: there is none."""

    def __init__(
        self, clock: Clock, limit_bytes: int | None = None, *, paging_ratio: float = 0.5
    ) -> None:
        self.used = 0
        self.wake_above = UNLIMITED
        self.is_alarmed = False
        self.on_alarm: Callable[[bool], None] = lambda is_on: None
        self._clock = clock
        self._paging_ratio = paging_ratio
        self._queues: dict[int, Held] = {}
        self._last_number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._target_s = math.inf
        self._stopped = False
        self.limit_bytes: int | None = None
        self._set(limit_bytes)

    def _set(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self._paging_bytes = UNLIMITED if limit_bytes is None else limit_bytes * self._paging_ratio
        self.wake_above = math.ceil(self._paging_bytes)

    def set_limit(self, limit_bytes: int | None) -> None:
        """The operator's: it holds at once."""
        self._set(limit_bytes)
        self._look()

    @property
    def is_looking(self) -> bool:
        """Whether it measures how fast what is in memory goes, again and again."""
        return self._timer is not None

    @property
    def ratio(self) -> float:
        """Used of the limit."""
        if self.limit_bytes is None:
            return 0.0
        return self.used / self.limit_bytes if self.limit_bytes else math.inf

    @property
    def room(self) -> int:
        """Bytes below the limit; none during an alarm."""
        if self.limit_bytes is None:
            return UNLIMITED
        return 0 if self.is_alarmed else max(0, self.limit_bytes - self.used)

    def enter(self, queue: Held) -> int:
        """Returns its number here, for ``leave``."""
        self._last_number += 1
        self._queues[self._last_number] = queue
        if not math.isinf(self._target_s):
            queue.set_target(queue.traffic.held_for(self._target_s))
        return self._last_number

    def leave(self, number: int) -> None:
        del self._queues[number]

    def wake(self) -> None:
        """``used`` has come above ``wake_above``."""
        if not self._stopped:
            self._look()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- looks -------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopped:
            return
        self._tell_queues()  # first: what they can drop at once is no reason for an alarm
        self._judge()
        is_quiet = math.isinf(self._target_s) and self.used <= self._paging_bytes
        if is_quiet and not self.is_alarmed:
            self.wake_above = math.ceil(min(self._paging_bytes, UNLIMITED))
            return
        # The alarm goes off at once, and on only at a look: else it would come and go with each
        # message.
        limit = UNLIMITED if self.limit_bytes is None else self.limit_bytes
        self.wake_above = UNLIMITED if self.is_alarmed else limit
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(INTERVAL_MS / 1000, self._look)

    def _judge(self) -> None:
        is_over = self.limit_bytes is not None and self.used > self.limit_bytes
        if is_over == self.is_alarmed:
            return
        self.is_alarmed = is_over
        if is_over:
            log.warning(
                "memory resource limit alarm set. Memory high watermark: %s, used: %s",
                self.limit_bytes,
                self.used,
            )
        else:
            log.warning("memory resource limit alarm cleared")
        self.on_alarm(is_over)

    def _tell_queues(self) -> None:
        now_ns = self._clock.monotonic_ns()
        finite = [
            duration_s
            for queue in self._queues.values()
            if not math.isinf(duration_s := queue.traffic.look(now_ns))
        ]
        was_s, self._target_s = self._target_s, self._target(sum(finite), len(finite))
        if math.isinf(was_s) and math.isinf(self._target_s):
            return
        for queue in self._queues.values():
            queue.set_target(queue.traffic.held_for(self._target_s))

    def _target(self, sum_s: float, count: int) -> float:
        """The duration that queues may have in memory, in seconds: desired_duration_average."""
        ratio = self.ratio
        if math.isinf(ratio):
            return 0.0
        if ratio < self._paging_ratio or not count:
            return math.inf
        if ratio < SUM_INC_THRESHOLD:
            return (sum_s + SUM_INC_AMOUNT) / count / ratio
        return sum_s / count / ratio


class RamUse:
    """Bytes that one queue takes, as they are accounted; its monitor is told of each change."""

    def __init__(self) -> None:
        self.bytes = 0
        self._monitor: MemoryMonitor | None = None
        self._number = 0  # there

    def join(self, monitor: MemoryMonitor, queue: Held) -> None:
        """From now on the node's monitor knows of this queue."""
        self._monitor = monitor
        monitor.used += self.bytes
        self._number = monitor.enter(queue)
        self.grow(0)

    def grow(self, size: int) -> None:
        self.bytes += size
        monitor = self._monitor
        if monitor is not None:
            monitor.used += size
            if monitor.used > monitor.wake_above:
                monitor.wake()

    def shrink(self, size: int) -> None:
        self.bytes -= size
        if self._monitor is not None:
            self._monitor.used -= size

    @property
    def is_measured(self) -> bool:
        """Whether its rates are looked at by a timer."""
        return self._monitor is not None and self._monitor.is_looking

    @property
    def room(self) -> int:
        """How many bytes may be read ahead; the head is read in any case."""
        return UNLIMITED if self._monitor is None else self._monitor.room

    def forget(self) -> None:
        """The memory is the monitor's business no more."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.leave(self._number)
            monitor.used -= self.bytes
