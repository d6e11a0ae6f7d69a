"""The files of a ledger: what a member finds of its former life, its checkpoint, its term and vote.

Entries are found up to the first that is not whole and sound.

The data is what counts. The index is not synced with it, so of the index only what the checkpoint
covers is believed: up to there, data and index were on the disk together. Behind it the data
is read entry by entry, with its CRCs, and the index is built again. A torn tail is cut, durably,
and what is kept of it is written and synced again: a member must not forget what it acknowledged,
and the kernel calls pages clean that never reached the disk after a failed sync.

A ledger that an original wrote is taken over if it can be read from its first entry to its last. Of
one only blank room is cut, which upstream allocates ahead: what is not understood there is no tail
that we left, and the member does not start.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import StorageError
from shalott.broker.base.files import read_file, replace_file
from shalott.broker.raft.api import HardState
from shalott.broker.rocket.commitlog.log_reads import read_fully
from shalott.broker.rocket.commitlog.segments import SegmentedLog
from shalott.broker.rocket.dledger.entry import (
    HEADER_BYTES,
    UNCHECKED,
    UNIT_BYTES,
    Directory,
    Header,
    decode_header,
    decode_units,
    encode_unit,
    filler_bytes,
    is_sound,
)

log = logging.getLogger("shalott.broker.dledger")

DATA, INDEX, CHECKPOINT = "dledger/data", "dledger/index", "dledger/checkpoint"
INDEX_SEGMENT_BYTES = UNIT_BYTES << 16
READ_BYTES = 1 << 20
_CHECKPOINT = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """The first ``count`` entries are flushed, and so are their index units."""

    count: int = 0
    end: int = 0  # the position after them


@dataclass(frozen=True, slots=True)
class FoundLedger:
    data: SegmentedLog
    index: SegmentedLog
    directory: Directory
    checkpoint: LedgerCheckpoint


async def open_ledger_files(disk: Disk, segment_bytes: int, *, is_ours: bool = True) -> FoundLedger:
    """``is_ours``: no other than members of ours ever wrote there. Raises StorageError, OSError."""
    checkpoint = await _read_checkpoint(disk)
    data = await SegmentedLog.open(disk, DATA, segment_bytes)
    index = await SegmentedLog.open(disk, INDEX, INDEX_SEGMENT_BYTES)
    try:
        if data.min_offset:
            raise StorageError(
                f"{DATA} begins at {data.min_offset}: another program removed its first entries,"
                " and without them it is of no use here"
            )
        return await _recover(data, index, checkpoint, is_ours=is_ours)
    except BaseException:
        await data.abandon()
        await index.abandon()
        raise


async def _recover(
    data: SegmentedLog, index: SegmentedLog, checkpoint: LedgerCheckpoint, *, is_ours: bool
) -> FoundLedger:
    if data.max_offset < checkpoint.end:
        raise StorageError(f"{DATA} ends at {data.max_offset}; {checkpoint.end} were flushed")
    directory = await _indexed(index, checkpoint)
    await _scan(data, directory)
    if directory.end < data.max_offset:
        if not is_ours and not await _is_blank(data, directory.end):
            raise StorageError(
                f"{DATA} has something at {directory.end} that can't be understood and that no"
                " member of ours wrote: it is left as it is"
            )
        found = data.max_offset
        log.warning("the ledger is cut from %d to %d: a torn tail", found, directory.end)
        await data.truncate(directory.end)
    await data.settle(checkpoint.end)
    await index.truncate(checkpoint.count * UNIT_BYTES)
    await index.settle(checkpoint.count * UNIT_BYTES)
    for number in range(checkpoint.count + 1, directory.last_index + 1):
        index.append(unit_of(directory, number))
    return FoundLedger(data, index, directory, checkpoint)


async def _is_blank(data: SegmentedLog, position: int) -> bool:
    """Whether nothing lies there up to the end."""
    while position < data.max_offset:
        chunk = await read_fully(data, position, _within_file(data, position, READ_BYTES))
        if not chunk or chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True


def unit_of(directory: Directory, index: int) -> bytes:
    position, size = directory.position_of(index), directory.size_of(index)
    return encode_unit(index, directory.term_at(index), position, size)


async def _indexed(index: SegmentedLog, checkpoint: LedgerCheckpoint) -> Directory:
    """The entries that the checkpoint covers. Raises StorageError if units are damaged."""
    directory, offset = Directory(), 0
    while directory.last_index < checkpoint.count:
        size = min(READ_BYTES, checkpoint.count * UNIT_BYTES - offset)
        units = decode_units(await index.read(offset, size))
        for unit in units:
            if unit.index != directory.last_index + 1 or unit.position < directory.end:
                raise StorageError(f"{INDEX} is damaged at {unit.index}")
            directory.add(unit.position, unit.size, unit.term)
        if not units:
            raise StorageError(f"{INDEX} is damaged after {directory.last_index}")
        offset += len(units) * UNIT_BYTES
    if directory.end != checkpoint.end:
        raise StorageError(f"{INDEX} ends at {directory.end}, not at {checkpoint.end}")
    return directory


async def _scan(data: SegmentedLog, directory: Directory) -> None:
    """Add the whole and sound entries that follow."""
    position, wanted = directory.end, READ_BYTES
    while True:
        chunk = await read_fully(data, position, _within_file(data, position, wanted))
        following = _scan_chunk(chunk, position, data.segment_bytes, directory)
        if following > position:
            position, wanted = following, READ_BYTES
            continue
        header = decode_header(chunk)
        if header is None or header.size <= len(chunk):
            return  # the end, or a tail that is torn
        if position + header.size > data.max_offset or header.size <= wanted:
            return
        wanted = header.size


async def find_unchecked_terms(found: FoundLedger) -> dict[int, None]:
    """Whose entries have no CRCs. Raises StorageError."""
    unchecked: dict[int, None] = {}
    for term, first in found.directory.first_of_terms:
        position = found.directory.position_of(first)
        header = decode_header(await read_fully(found.data, position, HEADER_BYTES))
        if header is not None and header.chain_crc == UNCHECKED:
            unchecked[term] = None
    return unchecked


def _within_file(data: SegmentedLog, position: int, size: int) -> int:
    room = data.segment_bytes - position % data.segment_bytes
    return max(0, min(size, room, data.max_offset - position))


def _scan_chunk(chunk: bytes, base: int, segment_bytes: int, directory: Directory) -> int:
    """Add what is whole in ``chunk``; returns where to go on, ``base`` if nothing was."""
    at = 0
    while True:
        room = segment_bytes - (base + at) % segment_bytes
        if filler_bytes(chunk, at) == room:
            return base + at + room
        header = decode_header(chunk, at)
        if header is None or not _is_next(header, base + at, directory):
            return base + at
        body = chunk[at + HEADER_BYTES : at + header.size]
        if not is_sound(header, body):
            return base + at
        directory.add(base + at, header.size, header.term)
        at += header.size


def _is_next(header: Header, position: int, directory: Directory) -> bool:
    last = directory.last_index
    return (header.position, header.index) == (position, last + 1) and (
        header.term >= directory.term_at(last)
    )


# -- the checkpoint --------------------------------------------------------------------------------


async def _read_checkpoint(disk: Disk) -> LedgerCheckpoint:
    found = await read_file(disk, CHECKPOINT)
    if found is None:
        return LedgerCheckpoint()
    if len(found) != _CHECKPOINT.size:
        if b"endIndex=" in found:
            return LedgerCheckpoint()  # an original's: its index is not ours
        raise StorageError(f"{CHECKPOINT} is damaged")
    return LedgerCheckpoint(*_CHECKPOINT.unpack(found))


async def write_checkpoint(disk: Disk, checkpoint: LedgerCheckpoint) -> None:
    """Durable when it returns. Raises OSError."""
    await replace_file(disk, CHECKPOINT, _CHECKPOINT.pack(checkpoint.count, checkpoint.end))


# -- term and vote ---------------------------------------------------------------------------------
# What a member may never forget: its term, and whom it voted for in it.
#
# Source: dledger/MemberState.java, which writes a properties file by deleting the old one and
# renaming the new one, without a sync: a power loss takes the vote back, and the member votes
# again in the same term (KB-DL-21). Here the file is durable before the vote is answered.


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


def encode_member_state(hard: HardState) -> bytes:
    return msgspec.json.encode(MemberRecord(curr_term=hard.term, vote_leader=hard.voted_for))


async def write_member_state(disk: Disk, hard: HardState, *, durable: bool = True) -> None:
    """Raises OSError. Not durable (KB-DL-21): a kill leaves it, a power loss may not."""
    data = encode_member_state(hard)
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
