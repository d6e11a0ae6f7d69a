"""Small files that are read and replaced as a whole: a crash leaves the old content or the new.

A file whose former content is kept has a second one beside it (``.bak``, as upstream's
ConfigManager has it): what is read when the first makes no sense. The
node's incarnation is kept in one.
"""

from __future__ import annotations

import errno
from contextlib import suppress

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import sync_parents

READ_BYTES = 1 << 20
FORMER = ".bak"


async def read_file(disk: Disk, path: str) -> bytes | None:
    """All of it, durable; None if it is absent. Raises OSError.

    Its writer may have been killed before its name was durable. A reader that acted on it
    (a vote that is given again, a temporary file that is removed) would lose it with the power.
    """
    try:
        file = await disk.open(path, create=False)
    except FileNotFoundError:
        return None
    try:
        data = b""
        while chunk := await file.pread(READ_BYTES, len(data)):  # reads may be short
            data += chunk
        await sync_parents(disk, path)
        return data
    finally:
        await file.close()


async def replace_file(disk: Disk, path: str, data: bytes, *, keep_former: bool = False) -> None:
    """Durable when it returns. Raises OSError, with the old content in force.

    ``keep_former``: what was in it is in ``path + FORMER`` then. A crash, or an error, may leave
    it there and nothing in ``path``: the reader looks at both.
    """
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
    if keep_former:
        with suppress(FileNotFoundError):
            await disk.rename(path, path + FORMER)
    await disk.rename(temporary, path)
    await sync_parents(disk, path)


async def read_number(disk: Disk, path: str) -> int:
    """The number in ``path``; 0 if it is absent. Raises StorageError if it holds no number."""
    text = await read_file(disk, path)
    try:
        return 0 if text is None else int(text)
    except ValueError as error:
        raise StorageError(f"{path} should hold a number") from error


async def write_number(disk: Disk, path: str, number: int) -> None:
    """Durable when it returns; a crash leaves the old number or the new one."""
    await replace_file(disk, path, str(number).encode())


# -- the incarnation -------------------------------------------------------------------------------
# A node's incarnation grows with every start. Processes, links and tables tell a node's runs
# apart by it. The data directory holds it, but an operator may replace a broken disk by an empty
# one. Erlang's daemon epmd, which is not on that disk, counts the starts of a node for that
# reason (its "creation"); here the machine does.


async def begin_life(disk: Disk, starts: int) -> int:
    """The number of the life that begins, durable when this returns.

    Args:
        starts: how often the machine has started the node, this time included; 0 if that is not
        counted.
    """
    incarnation = max(await read_number(disk, "incarnation") + 1, starts)
    await write_number(disk, "incarnation", incarnation)
    return incarnation
