"""Inode: one file's bytes on a simulated disk, as readers see them and as a power loss leaves them.

Theory. ``cached`` is the file as every process sees it: the page cache. ``durable`` is what was
synced. Between the two lies the ordered list of operations since the last sync. When the power
goes, each dirty sector is found as it was at some moment of its own: the kernel writes back pages
in any order and at any time, and the disk writes whole sectors of 512 bytes. A page holds all
writes to it so far, so a later write to a sector never survives without the earlier ones to that
sector. The size of a grown file is written by itself, so a file may also be found too short, or
long enough with zeros in it. Truncations are metadata and reach a journaling file system's log in
order: when one is lost, everything after it in the file is lost too.

Alagappan et al. (OSDI 2014, "All File Systems Are Not Created Equal") found all of these on
real file systems.

A sync that fails leaves the pages clean and their content in the cache, as Linux does: readers
still see what no later sync will write.
"""

from __future__ import annotations

from typing import Literal

from shalott.core.rng import Stream

SECTOR_BYTES = 512
PAGE_BYTES = 4096

# What becomes of unsynced operations in a power loss:
# "keep": all survive, as if the kernel had just written them back.
# "drop": the first few survive whole, in order; the rest never happened.
# "torn": anything that a disk may do.
# "all": none survives.
PowerLoss = Literal["keep", "drop", "torn", "all"]

Write = tuple[int, bytes]
Truncation = int  # to this size

# Of the files that are torn, how many lose everything, keep a torn prefix, keep any sectors.
TORN_WAYS = ("nothing", "prefix", "half", "most")
KEPT = {"half": 0.5, "most": 0.9}


class Inode:
    """``linked``: it has a name in the cache. ``opens``: handles on it. ``rotten_bytes``: how many
    of its bytes a fault flipped."""

    __slots__ = ("cached", "draws", "durable", "linked", "opens", "rotten_bytes", "unsynced")

    def __init__(self, draws: Stream) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        self.unsynced: list[Write | Truncation] = []
        self.draws = draws  # for latencies
        self.linked = True
        self.opens = 0
        self.rotten_bytes = 0

    def write(self, data: bytes, offset: int) -> None:
        if data:
            put(self.cached, data, offset)
            self.unsynced.append((offset, data))

    def truncate(self, size: int) -> None:
        resize(self.cached, size)
        self.unsynced.append(size)

    def sync(self) -> None:
        apply(self.durable, self.unsynced)
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """The device refused: what was to be synced stays visible and is never written."""
        self.unsynced.clear()

    def flip(self, position: int, bit: int) -> None:
        """A stored bit rots. A reader sees it, unless the page waits to be written over it."""
        dirty = any(
            operation <= position
            if isinstance(operation, int)
            else operation[0] <= position < operation[0] + len(operation[1])
            for operation in self.unsynced
        )
        if not dirty and position < len(self.cached):
            self.cached[position] ^= 1 << bit
        self.durable[position] ^= 1 << bit
        self.rotten_bytes += 1

    def overwrite(self, data: bytes, offset: int) -> None:
        """As another program may, which syncs what it wrote and nothing else."""
        self.write(data, offset)
        kept = data[: max(0, len(self.durable) - offset)]
        self.durable[offset : offset + len(kept)] = kept
        self.rotten_bytes += len(data)

    def cut(self, size: int) -> None:
        """The same of a truncation; it grows nothing."""
        if size < len(self.cached):
            self.rotten_bytes += len(self.cached) - size
            self.truncate(size)
        del self.durable[size:]

    def lose_power(self, loss: PowerLoss, fate: Stream) -> None:
        """What is durable is all there is from now on, and some of the rest, as ``fate`` draws."""
        if self.unsynced:
            if loss == "keep":
                self.sync()
            elif loss == "all":
                pass
            elif loss == "drop":
                apply(self.durable, self.unsynced[: fate.below(len(self.unsynced) + 1)])
            else:
                self.durable = _torn(self.durable, self.unsynced, fate)
        self.unsynced.clear()
        self.cached = bytearray(self.durable)


def put(content: bytearray, data: bytes | bytearray, offset: int) -> None:
    if len(content) < offset:
        resize(content, offset)
    content[offset : offset + len(data)] = data


def resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def apply(content: bytearray, operations: list[Write | Truncation]) -> None:
    for operation in operations:
        if isinstance(operation, int):
            resize(content, operation)
        else:
            put(content, operation[1], operation[0])


def _torn(durable: bytearray, operations: list[Write | Truncation], fate: Stream) -> bytearray:
    way = fate.choice(TORN_WAYS)
    if way == "nothing":
        return durable
    if way == "prefix":
        whole = fate.below(len(operations) + 1)
        return _platter(durable, operations[: whole + 1], whole, 0.5, fate)
    return _platter(durable, operations, 0, KEPT[way], fate)


def _platter(
    durable: bytearray, operations: list[Write | Truncation], whole: int, kept: float, fate: Stream
) -> bytearray:
    """What is found after ``operations``, of which the first ``whole`` were written back for sure
    and each sector, size and truncation of the others with probability ``kept``."""
    page = bytearray(durable)  # the cache as it was after each operation
    platter = bytearray(durable)
    size = len(durable)
    for number, operation in enumerate(operations):
        certain = number < whole
        if isinstance(operation, int):
            if not certain and fate.random() >= kept:
                break
            resize(page, operation)
            resize(platter, operation)
            size = operation
            continue
        offset, data = operation
        before = len(page)
        put(page, data, offset)
        first = offset - offset % SECTOR_BYTES
        for start in range(first, offset + len(data), SECTOR_BYTES):
            if certain or fate.random() < kept:
                put(platter, page[start : start + SECTOR_BYTES], start)
        if len(page) > before and (certain or fate.random() < kept):
            size = len(page) if certain else _grown(before, len(page), fate)
    resize(platter, size)
    return platter


def _grown(before: int, after: int, fate: Stream) -> int:
    """The size found when a write that grew the file was on its way: all, or up to some sector."""
    if fate.random() < 0.5:
        return after
    boundary = before + fate.below(after - before)
    return max(before, boundary - boundary % SECTOR_BYTES)
