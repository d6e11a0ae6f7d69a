"""Small files that hold one number, replaced atomically."""

from __future__ import annotations

from broker.disk import Disk
from broker.errors import StorageError

NUMBER_BYTES_MAX = 64


async def read_number(disk: Disk, path: str) -> int:
    """The number in ``path``; 0 if it is absent. Raises StorageError if it holds no number."""
    try:
        file = await disk.open(path, create=False)
    except FileNotFoundError:
        return 0
    try:
        text = b""
        while chunk := await file.pread(NUMBER_BYTES_MAX, len(text)):  # reads may be short
            text += chunk
    finally:
        await file.close()
    try:
        return int(text)
    except ValueError as error:
        raise StorageError(f"{path} should hold a number") from error


async def write_number(disk: Disk, path: str, number: int) -> None:
    """Durable when it returns; a crash leaves the old number or the new one."""
    directory = path.rpartition("/")[0]
    temporary = path + ".new"
    file = await disk.open(temporary, create=True)
    try:
        await file.truncate(0)
        data = str(number).encode()
        written = 0
        while written < len(data):
            written += await file.pwrite(data[written:], written)
        await file.sync()
    finally:
        await file.close()
    await disk.rename(temporary, path)
    await disk.sync_dir(directory)
