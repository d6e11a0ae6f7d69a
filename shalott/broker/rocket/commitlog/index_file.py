"""One file of the index of keys: which messages of a stretch of the log have a key.

Source: store/index/IndexFile.java, IndexHeader.java. Big-endian: a header, hash slots, entries:

    beginMs8 endMs8 beginOffset8 endOffset8 slots4 entries4 beginPosition8 endPosition8
    slot4 ...                                     the number of its newest entry, from 1; 0: none
    keyHash4 offset8 seconds4 previous4 ...       previous: the next older entry of the same slot

Upstream maps a file and changes it in place. Ours is filled in memory and written once, as a whole:
a file that is there is right, and never changes. So its header has two fields more, the positions
of the log between which it knows all keys. The hash is a CRC-32 of ``topic#key``, where upstream
has String.hashCode(): it costs a fraction, and no other program reads these files, whose names are
others than upstream's. Different keys may
have one hash: who looks a message up compares its keys.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from zlib import crc32

from shalott.broker.rocket.commitlog.codec import (
    HEAD_V4_BYTES,
    MAGIC_V1_BYTES,
    property_at,
    text_spans,
)

HEADER = struct.Struct(">qqqqiiqq")
ENTRY = struct.Struct(">iqii")
SLOT_BYTES = 4
UNIQ_KEY = b"UNIQ_KEY\x01"
KEYS = b"KEYS\x01"
KEY_SEPARATOR = b" "
SECONDS_MAX = (1 << 31) - 1

Read = Callable[[int, int], Awaitable[bytes]]  # (size, offset)


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """Times and offsets are of the first and the last message with a key; ``begin`` and ``end`` are
    positions of the log."""

    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    slots: int
    entries: int
    begin: int
    end: int

    @property
    def file_bytes(self) -> int:
        return HEADER.size + self.slots * SLOT_BYTES + self.entries * ENTRY.size


def decode_header(data: bytes) -> IndexHeader | None:
    """None if it can't be one."""
    if len(data) < HEADER.size:
        return None
    header = IndexHeader(*HEADER.unpack_from(data, 0))
    sound = header.slots > 0 and header.entries >= 0 and 0 <= header.begin < header.end
    return header if sound else None


class GrowingIndex:
    """A file that is being filled. ``begin`` and ``end`` are positions of the log."""

    def __init__(self, begin: int, slots: int) -> None:
        self.begin = self.end = begin
        self.entries = 0
        self.last_ms = self.last_offset = 0
        self._first_ms = self._first_offset = 0
        self._slots = slots
        self._newest: dict[int, int] = {}  # by slot
        self._data = bytearray()

    def add(self, key_hash: int, offset: int, store_ms: int) -> None:
        if not self.entries:
            self._first_ms, self._first_offset = store_ms, offset
        self.entries += 1
        slot = key_hash % self._slots
        seconds = (store_ms - self._first_ms) // 1000  # a clock may have been put back
        if not -SECONDS_MAX <= seconds <= SECONDS_MAX:
            seconds = SECONDS_MAX if seconds > 0 else -SECONDS_MAX
        self._data += ENTRY.pack(key_hash, offset, seconds, self._newest.get(slot, 0))
        self._newest[slot] = self.entries
        self.last_ms, self.last_offset = store_ms, offset

    def header(self) -> IndexHeader:
        return IndexHeader(
            self._first_ms,
            self.last_ms,
            self._first_offset,
            self.last_offset,
            self._slots,
            self.entries,
            self.begin,
            self.end,
        )

    def encode(self) -> bytes:
        header = self.header()
        slots = [0] * self._slots
        for slot, number in self._newest.items():
            slots[slot] = number
        head = HEADER.pack(
            header.begin_ms,
            header.end_ms,
            header.begin_offset,
            header.end_offset,
            header.slots,
            header.entries,
            header.begin,
            header.end,
        )
        return head + struct.pack(f">{self._slots}i", *slots) + self._data

    async def find(self, key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
        """See ``find_offsets``."""
        data = self.encode()

        async def read(size: int, offset: int) -> bytes:
            return data[offset : offset + size]

        return await find_offsets(read, self.header(), key_hash, begin_ms, end_ms)


async def find_offsets(
    read: Read, header: IndexHeader, key_hash: int, begin_ms: int, end_ms: int
) -> list[int]:
    """Where messages lie whose key may have this hash, and may have been stored in this time: the
    newest first. Of a damaged file, what can be found.
    """
    found = []
    entries_at = HEADER.size + header.slots * SLOT_BYTES
    slot = await read(SLOT_BYTES, HEADER.size + key_hash % header.slots * SLOT_BYTES)
    number, before = int.from_bytes(slot, "big"), header.entries + 1
    while 0 < number < before:  # each is older than the one that leads to it
        data = await read(ENTRY.size, entries_at + (number - 1) * ENTRY.size)
        if len(data) < ENTRY.size:
            break
        hashed, offset, seconds, previous = ENTRY.unpack(data)
        if hashed == key_hash and _may_be_in(header, seconds, begin_ms, end_ms):
            found.append(offset)
        number, before = previous, number
    return found


def _may_be_in(header: IndexHeader, seconds: int, begin_ms: int, end_ms: int) -> bool:
    """Whether a message of this second may have been stored in [begin_ms, end_ms]."""
    if abs(seconds) == SECONDS_MAX:
        return True
    at_ms = header.begin_ms + seconds * 1000
    return at_ms <= end_ms and begin_ms < at_ms + 1000


def hash_of(topic: bytes, key: bytes) -> int:
    return crc32(key, crc32(topic + b"#")) & 0x7FFFFFFF


def keys_of(data: bytes, start: int) -> tuple[bytes, list[bytes]]:
    """(topic, keys) of the message that begins at ``start``, which is whole and valid."""
    if data[start + 4 : start + 8] == MAGIC_V1_BYTES and not data[start + 39] & 0x30:  # most are
        topic_at = start + HEAD_V4_BYTES + 1
        topic_at += int.from_bytes(data[start + HEAD_V4_BYTES - 4 : start + HEAD_V4_BYTES], "big")
        topic_end = topic_at + data[topic_at - 1]
        properties_at = topic_end + 2
        end = properties_at + (data[topic_end] << 8 | data[topic_end + 1])
    else:
        topic_at, topic_end, properties_at, end = text_spans(data, start)
    keys = []
    if unique := property_at(data, UNIQ_KEY, properties_at, end):
        keys.append(unique)
    if named := property_at(data, KEYS, properties_at, end):
        keys += [key for key in named.split(KEY_SEPARATOR) if key]
        if len(keys) > 1:
            keys = list(dict.fromkeys(keys))
    return data[topic_at:topic_end], keys
