"""Where stored messages end: a walk along their size fields (docs/protocols.md 6.3).

HAService sends raw bytes, so a slave's log may end in the middle of a message. Whoever becomes a
master, or cuts its log, cuts between messages.
"""

from __future__ import annotations

import struct

from shalott.broker.rocket.commitlog.api import Log

SIZE = struct.Struct(">I")


async def last_boundary(log: Log, start: int, limit: int) -> int:
    """The last end of a whole message, or of a file's padding, that is not beyond ``limit``;
    ``start`` is one. Bytes from ``start`` on must have come from a master.
    """
    position = start
    while position + SIZE.size <= limit:
        head = await read_exactly(log, position, SIZE.size)
        if len(head) < SIZE.size:
            break
        size = int(SIZE.unpack(head)[0])
        if size < SIZE.size or position + size > limit:
            break
        position += size
    return position


async def read_exactly(log: Log, offset: int, size: int) -> bytes:
    """``size`` bytes across the ends of files; fewer only at the log's end."""
    parts = b""
    while len(parts) < size:
        part = await log.read(offset + len(parts), size - len(parts))
        if not part:
            break
        parts += part
    return parts
