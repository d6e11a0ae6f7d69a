"""The journal's file format: what a group commit looks like on disk, how a damaged file is read.

Theory. A file is a sequence of *batches*, one for each sync: ``magic 4 | ordinal 8 | length 4 |
crc32 4 | payload``, the payload a sequence of ``length 4 | record``, integers big-endian, the CRC
over ordinal, length and payload. Batch k+1 is written only after batch k was synced. So when
something unreadable is found there are two cases:

- Nothing readable with a higher ordinal follows: this was the last batch, its sync may never have
  returned, and no caller was told that it is durable. It is a *torn tail* and is cut off. (Pages of
  one batch may reach the platter in any order, so the tail may be torn anywhere, not only at its
  end.)
- A readable batch with a higher ordinal follows: this batch had been synced, and the file was
  *corrupted* since. That is a StorageError. The file is left as it is: going on without the batch
  would silently lose confirmed messages.

Bit rot in the very last batch can't be told from a torn tail; checksums of the whole file can't
help there either.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shalott.broker.base.errors import StorageError

MAGIC = b"\xf5SJ1"
HEADER = struct.Struct(">4sQII")  # magic, ordinal, payload length, crc
LENGTH = struct.Struct(">I")
# A batch larger than this is split: it bounds what one sync has to write, and what a reader must
# believe.
MAX_BATCH_BYTES = 8 << 20
MAX_RECORD_BYTES = 1 << 30


TakeBatch = Callable[[list[bytes], int, int], None]


class Batch(NamedTuple):
    ordinal: int
    payload: memoryview
    end: int  # offset of the byte after it


class Scan(NamedTuple):
    records: list[bytes]
    batches: int
    size: int  # bytes of the readable prefix; the rest is a torn tail


def encode_batch(ordinal: int, records: Sequence[bytes]) -> bytes:
    """One batch with ``records`` in it."""
    parts = []
    for record in records:
        parts.append(LENGTH.pack(len(record)))
        parts.append(record)
    payload = b"".join(parts)
    crc = zlib.crc32(payload, zlib.crc32(struct.pack(">QI", ordinal, len(payload))))
    return HEADER.pack(MAGIC, ordinal, len(payload), crc) + payload


def scan(data: bytes) -> Scan:
    """Read a file. Raises StorageError if a synced batch can't be read any more."""
    records: list[bytes] = []
    scanner = Scanner(lambda found, start, end: records.extend(found))
    scanner.feed(data)
    scanner.finish()
    return Scan(records, scanner.batches, scanner.size)


class Scanner:
    """A file that is fed piece by piece, so that no more of it is in memory than a batch needs.

    ``take`` gets the records of each batch, and where it begins and ends.
    """

    def __init__(self, take: TakeBatch) -> None:
        self._take = take
        self._data = b""
        self._base = 0  # where the data begins
        self.batches = 0
        self.size = 0  # bytes of the readable prefix
        self.last = b""  # its last batch, as it stands there

    def feed(self, piece: bytes) -> None:
        self._data = self._data[self.size - self._base :] + piece
        self._base = self.size
        view = memoryview(self._data)
        last = offset = 0
        while (batch := _read_batch(view, offset)) is not None and batch.ordinal == self.batches:
            self._take(_split(batch.payload), self._base + offset, self._base + batch.end)
            self.batches += 1
            last, offset = offset, batch.end
        if offset:
            self.size = self._base + offset
            self.last = self._data[last:offset]

    def finish(self) -> None:
        """There is nothing more. Raises StorageError if what is left is no torn tail."""
        _require_torn_tail(self._data, self.size - self._base, self._base, self.batches)


def read_batches(data: bytes) -> list[bytes]:
    """The records of whole batches, as a scan found them. Raises StorageError if they are not."""
    view = memoryview(data)
    records: list[bytes] = []
    offset = 0
    while offset < len(data):
        batch = _read_batch(view, offset)
        if batch is None:
            raise StorageError(f"the batch at byte {offset} of what was read is unreadable")
        records += _split(batch.payload)
        offset = batch.end
    return records


def _read_batch(view: memoryview, offset: int) -> Batch | None:
    """The batch at ``offset``, or None if what is there is none."""
    if len(view) - offset < HEADER.size:
        return None
    magic, ordinal, length, crc = HEADER.unpack_from(view, offset)
    start = offset + HEADER.size
    if magic != MAGIC or length > len(view) - start:
        return None
    payload = view[start : start + length]
    expected = zlib.crc32(payload, zlib.crc32(struct.pack(">QI", ordinal, length)))
    return Batch(ordinal, payload, start + length) if crc == expected else None


def _split(payload: memoryview) -> list[bytes]:
    records = []
    offset = 0
    while offset < len(payload):
        (length,) = LENGTH.unpack_from(payload, offset)
        offset += LENGTH.size
        records.append(bytes(payload[offset : offset + length]))
        offset += length
    assert offset == len(payload), "a batch whose checksum is right is malformed"
    return records


def _require_torn_tail(data: bytes, offset: int, base: int, ordinal: int) -> None:
    """Raise unless nothing after ``offset`` proves that batch ``ordinal`` had been synced. The data
    begins at byte ``base``."""
    view = memoryview(data)
    found = data.find(MAGIC, offset)
    while found >= 0:
        batch = _read_batch(view, found)
        if batch is not None and batch.ordinal > ordinal:
            raise StorageError(
                f"corrupted at byte {base + offset}: batch {ordinal} is unreadable,"
                f" but batch {batch.ordinal} at byte {base + found} is intact"
            )
        found = data.find(MAGIC, found + 1)
