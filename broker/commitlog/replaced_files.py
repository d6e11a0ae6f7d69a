"""Small files that are read and replaced as a whole: a crash leaves the old content or the new."""

from __future__ import annotations

import errno

from broker.disk import Disk
from broker.storage.journal import sync_parents

READ_BYTES = 1 << 20


async def read_file(disk: Disk, path: str) -> bytes | None:
    """All of it; None if it is absent. Raises OSError."""
    try:
        file = await disk.open(path, create=False)
    except FileNotFoundError:
        return None
    try:
        data = b""
        while chunk := await file.pread(READ_BYTES, len(data)):
            data += chunk
        return data
    finally:
        await file.close()


async def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Durable when it returns. Raises OSError, with the old content in force."""
    temporary = path + ".new"
    file = await disk.open(temporary, create=True)
    try:
        await file.truncate(0)
        done = 0
        while done < len(data):
            count = await file.pwrite(data[done:], done)
            if count <= 0:
                raise OSError(errno.EIO, "the disk takes no more bytes")
            done += count
        await file.sync()
    finally:
        await file.close()
    await disk.rename(temporary, path)
    await sync_parents(disk, path)
