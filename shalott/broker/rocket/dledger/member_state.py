"""What a member may never forget: its term, and whom it voted for in it.

Source: dledger/MemberState.java, which writes a properties file by deleting the old one and
renaming the new one, without a sync: a power loss takes the vote back, and the member votes again
in the same term (KB-DL-21). Here the file is durable before the vote is answered.
"""

from __future__ import annotations

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import StorageError
from shalott.broker.base.files import read_file, replace_file
from shalott.broker.raft.api import HardState

PATH = "dledger/member.json"
FOREIGN_PATH = "dledger/currterm"  # an original's, a Java properties file
_TERM, _LEADER = "currTerm", "voteLeader"


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names as in upstream's file (CURR_TERM, VOTE_LEADER), in snake case."""

    curr_term: int
    vote_leader: str


async def read_member_state(disk: Disk, *, durable: bool = True) -> HardState:
    """Raises OSError, and StorageError if the file makes no sense; one that was not written
    durably may be torn, and counts as none.
    """
    data = await read_file(disk, PATH)
    if data is None:
        return await _read_foreign(disk)
    try:
        record = msgspec.json.decode(data, type=MemberRecord)
    except msgspec.DecodeError as error:
        if not durable:
            return HardState()
        raise StorageError(f"{PATH} is no member's state: {error}") from error
    return HardState(record.curr_term, record.vote_leader)


async def has_member_state(disk: Disk) -> bool:
    """Whether a member of ours was here before. Raises OSError."""
    return await read_file(disk, PATH) is not None


async def _read_foreign(disk: Disk) -> HardState:
    """What an original voted must not be voted again. Raises OSError, StorageError."""
    data = await read_file(disk, FOREIGN_PATH)
    if data is None:
        return HardState()
    lines = (line.partition("=") for line in data.decode("latin-1").splitlines())
    found = {name.strip(): value.strip() for name, _, value in lines}
    if not found.get(_TERM, "").isdecimal():
        raise StorageError(f"{FOREIGN_PATH} is no member's state")
    return HardState(int(found[_TERM]), found.get(_LEADER, ""))


async def write_member_state(disk: Disk, hard: HardState, *, durable: bool = True) -> None:
    """Raises OSError. Not durable (KB-DL-21): a kill leaves it, a power loss may not."""
    data = msgspec.json.encode(MemberRecord(curr_term=hard.term, vote_leader=hard.voted_for))
    if durable:
        await replace_file(disk, PATH, data)
        return
    file = await disk.open(PATH + ".new", create=True)
    try:
        await file.truncate(0)
        done = 0
        while done < len(data):
            done += await file.pwrite(data[done:], done)
    finally:
        await file.close()
    await disk.rename(PATH + ".new", PATH)
