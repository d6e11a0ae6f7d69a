"""Reading messages: by queue offset, by place in the log, by time (DefaultMessageStore.getMessage).

Every message is checked before it is handed out: a reader rather gets an error than other bytes
than those that were sent.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Protocol

from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.commitlog.api import GetStatus, Got, Log
from shalott.broker.rocket.commitlog.codec import FILLER_MIN_BYTES, START, is_message, store_ms_at
from shalott.broker.rocket.commitlog.commit_log import MESSAGE_BYTES_MAX
from shalott.broker.rocket.commitlog.consume_queues import ConsumeQueue

log = logging.getLogger("shalott.broker.commitlog")

DIGEST_BYTES = 1 << 20
READ_AHEAD_BYTES = 64 << 10  # messages of one queue lie near each other


async def get(
    message_log: Log, queue: ConsumeQueue | None, offset: int, max_messages: int, max_bytes: int
) -> Got:
    """See Store.get."""
    if queue is None:
        return Got(GetStatus.NO_QUEUE, 0, 0, 0)
    first, end = queue.first, queue.end
    if offset < first:
        return Got(GetStatus.TOO_SMALL, first, first, end)
    if offset >= end:
        status = GetStatus.NO_NEW if offset == end else GetStatus.TOO_FAR
        return Got(status, end, first, end)
    units = await queue.units(offset, min(max_messages, end - offset))
    messages: list[bytes] = []
    window, base, taken = b"", 0, 0
    for place, size, _ in units:
        if size == 0:  # a hole: no message ever had this offset
            offset += 1
            continue
        if messages and taken + size > max_bytes:
            break
        if not base <= place <= base + len(window) - size:
            base, window = place, await read_fully(message_log, place, max(size, READ_AHEAD_BYTES))
            if len(window) < size:
                break  # cut off or removed meanwhile
        message = window[place - base : place - base + size]
        if not is_message(message, place):
            raise StorageError(f"the message at {place} in the log is damaged")
        messages.append(message)
        taken += size
        offset += 1
    status = GetStatus.FOUND if messages else GetStatus.RETRY
    return Got(status, offset, first, end, tuple(messages))


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


async def queue_offset_at_ms(message_log: Log, queue: ConsumeQueue, store_ms: int) -> int:
    """The first message stored at ``store_ms`` or later; the queue's end if there is none."""
    low, high = queue.first, queue.end
    while low < high:
        middle = (low + high) // 2
        unit = await queue.unit(middle)
        message = None if unit is None else await message_at(message_log, unit[0])
        if message is None or store_ms_at(message, 0) < store_ms:
            low = middle + 1
        else:
            high = middle
    return low


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


async def digest(message_log: Log, start: int, end: int) -> str:
    """A fingerprint of the log's bytes, to compare replicas with. Raises StorageError if they are
    not all there."""
    made = hashlib.blake2b(digest_size=16)
    while start < end:
        part = await message_log.read(start, min(DIGEST_BYTES, end - start))
        if not part:
            raise StorageError(f"there is nothing at {start} in the log")
        made.update(part)
        start += len(part)
    return made.hexdigest()
