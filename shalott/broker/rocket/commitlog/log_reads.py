"""Reading the log: whole messages that are sound, and bytes as many as are there."""

from __future__ import annotations

from typing import Protocol

from shalott.broker.rocket.commitlog.api import Log
from shalott.broker.rocket.commitlog.codec import FILLER_MIN_BYTES, START, is_message
from shalott.broker.rocket.commitlog.commit_log import MESSAGE_BYTES_MAX

READ_AHEAD_BYTES = 64 << 10  # messages of one queue lie near each other


async def message_at(message_log: Log, offset: int) -> bytes | None:
    """The whole and sound stored message that lies at ``offset``; None if none does."""
    data = await read_fully(message_log, offset, READ_AHEAD_BYTES)
    if len(data) < FILLER_MIN_BYTES:
        return None
    size = int(START.unpack_from(data, 0)[0])
    if not FILLER_MIN_BYTES <= size <= MESSAGE_BYTES_MAX:
        return None
    if size > len(data):
        data = await read_fully(message_log, offset, size)
    message = data[:size]
    return message if len(message) == size and is_message(message, offset) else None


class Readable(Protocol):
    """A log, or the segments of one."""

    async def read(self, offset: int, size: int) -> bytes: ...


async def read_fully(message_log: Readable, offset: int, size: int) -> bytes:
    """``size`` bytes, fewer at the end of a file or of the log."""
    data = await message_log.read(offset, size)
    while len(data) < size:
        more = await message_log.read(offset + len(data), size - len(data))
        if not more:
            break
        data += more
    return data
