"""What a broker of a group without elections remembers of its role, beyond its configuration.

Failover by hand is `promote` on one node and `follow` on the others; a restart must not undo it.
The file is replaced as a whole, durably.
"""

from __future__ import annotations

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import StorageError
from shalott.broker.base.files import read_file, replace_file

PATH = "ha/role.json"


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
    text = await read_file(disk, PATH)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=RoleRecord)
    except msgspec.DecodeError as error:
        raise StorageError(f"{PATH} is no role: {error}") from error


async def write_role(disk: Disk, record: RoleRecord) -> None:
    """Durable when it returns; a crash leaves the old one or the new one."""
    await replace_file(disk, PATH, msgspec.json.encode(record))
