"""How far delayed messages were delivered: by level, and TimerCheckpoint for those with a time of
their own, as it lies in ``config/timercheck`` and as slaves get it (GET_TIMER_CHECK_POINT).

After store/timer/TimerCheckpoint.java: seven longs, big-endian, in a file with room behind them.
Upstream keeps a log and a wheel of slots besides; what is to be delivered is found here in the
queue of timers itself, so the place in that log stays 0. An original that goes on begins where the
oldest timer lies that still waits, at the time that it is, and so delivers none early and loses
none; those that came later and were delivered it may deliver again. Ours go by what lies behind the
longs, which tells more; an original does not know that, and what it says counts then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from zlib import crc32

from shalott.broker.base.env import Env
from shalott.broker.rocket.processor.table_files import DELAYS, TIMERS
from shalott.broker.rocket.processor.topics import DelayTable, next_version
from shalott.broker.rocket.remoting.route_data import DataVersion

FILE_BYTES = 4096
_LONGS = struct.Struct(">7q")
_OLD_LONGS = struct.Struct(">4q")  # before 5.0.1 there was no version
_OURS = struct.Struct(">4sqqI")  # magic, due ms, known end, the CRC of the longs
_MAGIC = b"TIM1"
SLOT_MS = 1000  # timerPrecisionMs


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """The longs: an original goes on from ``queue_offset`` at ``read_ms``; ``master_queue_offset``
    is its slaves' own business. ``ours``: (``due_ms``, ``known_end``).
    """

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    version: DataVersion = DataVersion()
    ours: tuple[int, int] | None = None

    @property
    def due_ms(self) -> int:
        """Of the timers before ``known_end``, those that were due before that are delivered; of the
        others nothing is known."""
        return self.read_ms if self.ours is None else self.ours[0]

    @property
    def known_end(self) -> int:
        return self.queue_offset if self.ours is None else self.ours[1]

    def encode(self) -> bytes:
        """As an answer carries it."""
        version = self.version
        longs = _LONGS.pack(
            self.read_ms,
            self.log_position,
            self.queue_offset,
            self.master_queue_offset,
            version.state_version,
            version.timestamp,
            version.counter,
        )
        if self.ours is None:
            return longs
        return longs + _OURS.pack(_MAGIC, *self.ours, crc32(longs))

    def as_file(self) -> bytes:
        return self.encode().ljust(FILE_BYTES, b"\0")


def decode_timer_checkpoint(data: bytes) -> TimerCheckpoint:
    """Of an answer or a file. Raises ValueError if it is none."""
    if len(data) >= _LONGS.size:
        read, at, queue, master, state, stamp, counter = _LONGS.unpack_from(data)
        version = DataVersion(state_version=state, timestamp=stamp, counter=counter)
        found = TimerCheckpoint(read, at, queue, master, version, _ours(data))
    elif len(data) >= _OLD_LONGS.size:
        found = TimerCheckpoint(*_OLD_LONGS.unpack_from(data))
    else:
        raise ValueError(f"{len(data)} bytes are no checkpoint of timers")
    if min(found.read_ms, found.queue_offset, found.due_ms, found.known_end) < 0:
        raise ValueError("a checkpoint of timers has no negative places")
    return found


def _ours(data: bytes) -> tuple[int, int] | None:
    """None if nothing of ours is there, or an original has changed the longs since."""
    if len(data) < _LONGS.size + _OURS.size:
        return None
    magic, due_ms, known_end, crc = _OURS.unpack_from(data, _LONGS.size)
    if magic != _MAGIC or crc != crc32(data[: _LONGS.size]):
        return None
    return due_ms, known_end


class DelayTables:
    """How far each delay level, and the timers, were delivered."""

    def __init__(self, env: Env, epoch: Callable[[], int], touch: Callable[[str], None]) -> None:
        self.delays: dict[int, int] = {}
        self.timers = TimerCheckpoint()
        self._leads = False  # ``timers`` are of this broker's own deliveries
        self._waiting: tuple[int, int] | None = None
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

    def put_timers(self, due_ms: int, known_end: int, waiting: tuple[int, int] | None) -> None:
        """Where this master stands with messages that have a time of their own. ``waiting``: when
        the next is due, and where the oldest lies in the queue; None if none waits."""
        self._leads, self._waiting = True, waiting
        oldest = known_end if waiting is None else waiting[1]
        known = self.timers
        if ((due_ms, known_end), oldest) != (known.ours, known.queue_offset):
            version = next_version(known.version, self._epoch(), self._wall_ms())
            self.timers = TimerCheckpoint(
                known.read_ms, 0, oldest, oldest, version, (due_ms, known_end)
            )
            self._touch(TIMERS)

    def timers_now(self) -> TimerCheckpoint:
        """As a master tells it now: an original's wheel would be turned up to this second, or up to
        what is due and not delivered."""
        if self.timers.ours is None or not self._leads:
            return self.timers
        now_ms = self._wall_ms() // SLOT_MS * SLOT_MS
        read_ms = now_ms if self._waiting is None else min(now_ms, self._waiting[0])
        return replace(self.timers, read_ms=read_ms)

    def _wall_ms(self) -> int:
        return self._env.clock.wall_ns() // 1_000_000

    def replace_timers(self, checkpoint: TimerCheckpoint) -> None:
        """Take a master's."""
        self._leads = False
        if checkpoint != self.timers:
            self.timers = checkpoint
            self._touch(TIMERS)

    def limit_timers(self, end: int) -> None:
        """The queue of timers ends there: what comes next was never seen by anybody."""
        known = self.timers
        if known.known_end > end:
            oldest = min(known.queue_offset, end)
            self.timers = replace(
                known, queue_offset=oldest, master_queue_offset=oldest, ours=(known.due_ms, end)
            )
            self._touch(TIMERS)
