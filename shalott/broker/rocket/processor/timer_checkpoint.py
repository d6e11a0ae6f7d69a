"""TimerCheckpoint: which messages with a time of their own have been delivered, as it lies in
``config/timercheck`` and as slaves get it (GET_TIMER_CHECK_POINT).

After store/timer/TimerCheckpoint.java: seven longs, big-endian, in a file with room behind them.
Upstream keeps a log and a wheel of slots besides; what is to be delivered is found here in the
queue of timers itself, so the place in that log stays 0. A Java broker that reads it looks for more
than it has lost, and delivers again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

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
