"""How far delayed messages were delivered: by level, and TimerCheckpoint for those with a time of
their own, as it lies in ``config/timercheck`` and as slaves get it (GET_TIMER_CHECK_POINT).

After store/timer/TimerCheckpoint.java: seven longs, big-endian, in a file with room behind them.
Upstream keeps a log and a wheel of slots besides; what is to be delivered is found here in the
queue of timers itself, so the place in that log stays 0. A Java broker that reads it looks for more
than it has lost, and delivers again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from shalott.broker.base.env import Env
from shalott.broker.rocket.processor.table_files import DELAYS, TIMERS
from shalott.broker.rocket.processor.topics import DelayTable, next_version
from shalott.broker.rocket.remoting.route_data import DataVersion

FILE_BYTES = 4096
_LONGS = struct.Struct(">7q")
_OLD_LONGS = struct.Struct(">4q")  # before 5.0.1 there was no version


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """Of the timers before ``queue_offset``, those that were due before ``read_ms`` are delivered;
    of the others nothing is known. ``master_queue_offset``: upstream's slaves' own business.
    """

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    version: DataVersion = DataVersion()

    def encode(self) -> bytes:
        """As an answer carries it."""
        version = self.version
        return _LONGS.pack(
            self.read_ms,
            self.log_position,
            self.queue_offset,
            self.master_queue_offset,
            version.state_version,
            version.timestamp,
            version.counter,
        )

    def as_file(self) -> bytes:
        return self.encode().ljust(FILE_BYTES, b"\0")


def decode_timer_checkpoint(data: bytes) -> TimerCheckpoint:
    """Of an answer or a file. Raises ValueError if it is none."""
    if len(data) >= _LONGS.size:
        read, at, queue, master, state, stamp, counter = _LONGS.unpack_from(data)
        version = DataVersion(state_version=state, timestamp=stamp, counter=counter)
        found = TimerCheckpoint(read, at, queue, master, version)
    elif len(data) >= _OLD_LONGS.size:
        found = TimerCheckpoint(*_OLD_LONGS.unpack_from(data))
    else:
        raise ValueError(f"{len(data)} bytes are no checkpoint of timers")
    if found.read_ms < 0 or found.queue_offset < 0:
        raise ValueError("a checkpoint of timers has no negative places")
    return found


class DelayTables:
    """How far each delay level, and the timers, were delivered."""

    def __init__(self, env: Env, epoch: Callable[[], int], touch: Callable[[str], None]) -> None:
        self.delays: dict[int, int] = {}
        self.timers = TimerCheckpoint()
        self._env = env
        self._epoch = epoch
        self._touch = touch

    def put_delay(self, level: int, offset: int) -> None:
        self.delays[level] = offset
        self._touch(DELAYS)

    def delay_table(self) -> DelayTable:
        return DelayTable(offset_table=dict(self.delays))

    def replace_delays(self, table: DelayTable) -> None:
        if table.offset_table != self.delays:
            self.delays = dict(table.offset_table)
            self._touch(DELAYS)

    def put_timers(self, read_ms: int, queue_offset: int) -> None:
        """Where this master stands with messages that have a time of their own."""
        known = self.timers
        if (read_ms, queue_offset) != (known.read_ms, known.queue_offset):
            version = next_version(
                known.version, self._epoch(), self._env.clock.wall_ns() // 1_000_000
            )
            self.timers = TimerCheckpoint(read_ms, 0, queue_offset, queue_offset, version)
            self._touch(TIMERS)

    def replace_timers(self, checkpoint: TimerCheckpoint) -> None:
        """Take a master's."""
        if checkpoint != self.timers:
            self.timers = checkpoint
            self._touch(TIMERS)

    def limit_timers(self, end: int) -> None:
        """The queue of timers ends there: what comes next was never seen by anybody."""
        if self.timers.queue_offset > end:
            self.put_timers(self.timers.read_ms, end)
