"""What a broker of a group without elections remembers of its role, beyond its configuration.

Failover by hand is `promote` on one node and `follow` on the others; a restart must not undo it.
The file is replaced as a whole, durably.
"""

from __future__ import annotations

import msgspec

from broker.disk import Disk
from broker.errors import StorageError

PATH = "ha/role.json"
READ_BYTES = 1 << 12


class RoleRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``master``: the node that is followed, "" for a master. ``agreed``: whether this log is known
    to be a part of that master's. ``epoch``: of failovers by hand, counted by ours alone.
    """

    is_master: bool
    master: str = ""
    epoch: int = 0
    agreed: bool = True


async def read_role(disk: Disk) -> RoleRecord | None:
    """None if nobody ever failed over. Raises StorageError if the file makes no sense."""
    try:
        file = await disk.open(PATH, create=False)
    except FileNotFoundError:
        return None
    text = b""
    try:
        while chunk := await file.pread(READ_BYTES, len(text)):
            text += chunk
    finally:
        await file.close()
    try:
        return msgspec.json.decode(text, type=RoleRecord)
    except msgspec.DecodeError as error:
        raise StorageError(f"{PATH} is no role: {error}") from error


async def write_role(disk: Disk, record: RoleRecord) -> None:
    """Durable when it returns; a crash leaves the old one or the new one."""
    file = await disk.open(PATH + ".new", create=True)
    try:
        await file.truncate(0)
        data = msgspec.json.encode(record)
        written = 0
        while written < len(data):
            written += await file.pwrite(data[written:], written)
        await file.sync()
    finally:
        await file.close()
    await disk.rename(PATH + ".new", PATH)
    directory = PATH.rpartition("/")[0]
    await disk.sync_dir(directory)
    await disk.sync_dir("")
