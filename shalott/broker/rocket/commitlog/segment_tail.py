"""Tail: the newest bytes of a log in memory, in blocks; those not yet written are always there."""

from __future__ import annotations

from bisect import bisect_right

BLOCK_BYTES = 256 << 10  # one write; small enough that a queue's tail costs little


class Block:
    """Bytes that go to one file. Only the last block of a tail grows."""

    __slots__ = ("data", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.data = bytearray()


class Tail:
    """Everything from ``start`` to ``end``. At most ``keep_bytes`` of it are kept for readers."""

    def __init__(self, end: int, keep_bytes: int) -> None:
        self.end = end
        self._keep_bytes = keep_bytes
        self._blocks: list[Block] = []

    @property
    def start(self) -> int:
        return self._blocks[0].start if self._blocks else self.end

    def append(self, data: bytes | bytearray | memoryview, *, fresh: bool) -> None:
        """``fresh``: it is for a new file."""
        if fresh or not self._blocks or len(self._blocks[-1].data) >= BLOCK_BYTES:
            self._blocks.append(Block(self.end))
        self._blocks[-1].data += data
        self.end += len(data)

    def append_across(self, data: bytes | bytearray | memoryview, file_bytes: int) -> None:
        """What is longer than the room in its file goes on in the next one."""
        room = file_bytes - self.end % file_bytes
        if len(data) <= room:
            self.append(data, fresh=room == file_bytes)
            return
        rest = memoryview(data)
        while rest:
            part = rest[: file_bytes - self.end % file_bytes]
            self.append(part, fresh=self.end % file_bytes == 0)
            rest = rest[len(part) :]

    def read(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` bytes, which must be here."""
        index = self._index(offset)
        block = self._blocks[index]
        begin = offset - block.start
        with memoryview(block.data) as view:
            found = bytes(view[begin : begin + size])
        if len(found) == size:
            return found
        parts, size = [found], size - len(found)
        while size > 0:
            index += 1
            with memoryview(self._blocks[index].data) as view:
                parts.append(bytes(view[:size]))
            size -= len(parts[-1])
        return b"".join(parts)

    def unwritten(self, offset: int) -> bytes:
        """From ``offset`` to the end of its block."""
        block = self._blocks[self._index(offset)]
        with memoryview(block.data) as view:
            return bytes(view[offset - block.start :])

    def release(self, written: int) -> None:
        """Drop the oldest blocks that are written and more than readers are promised."""
        drop = 0
        while drop < len(self._blocks) - 1:
            following = self._blocks[drop + 1].start
            if following > written or self.end - following < self._keep_bytes:
                break
            drop += 1
        del self._blocks[:drop]

    def truncate(self, offset: int) -> None:
        while self._blocks and self._blocks[-1].start >= offset:
            self._blocks.pop()
        if self._blocks:
            del self._blocks[-1].data[offset - self._blocks[-1].start :]
        self.end = offset

    def _index(self, offset: int) -> int:
        return bisect_right(self._blocks, offset, key=_start) - 1


def _start(block: Block) -> int:
    return block.start
