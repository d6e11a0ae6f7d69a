"""CommitLog: messages one after another in a SegmentedLog; implements MessageLog.

Source: store/CommitLog.java. A message never crosses a file's end: what is too small for the next
one is filled (codec.filler), and at least eight bytes stay free for that. A master's log is made of
whole messages; a slave appends raw bytes of it, and may end in the middle of one.

Recovery looks at every message from the last one of which the checkpoint knows that it is whole,
and cuts the log where one is not, durably: what a power loss left behind a hole must not come back.
A message that is damaged although it was flushed is no torn tail, and the log does not open: to go
on without it would be to lose what was acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import MessageIllegal, StorageError
from shalott.broker.rocket.commitlog.api import Scanned
from shalott.broker.rocket.commitlog.codec import (
    FILLER_MIN_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    START,
    filler,
    first_invalid,
)
from shalott.broker.rocket.commitlog.segments import SegmentedLog

log = logging.getLogger("shalott.broker.commitlog")

DIRECTORY = "commitlog"
RECOVERY_BYTES = 4 << 20
MESSAGE_BYTES_MAX = 64 << 20  # of what a size field says; more is damage


class CommitLog:
    """Made by ``open``."""

    directory = DIRECTORY

    def __init__(self, segments: SegmentedLog) -> None:
        """Use ``open``."""
        self._segments = segments
        # The log is SegmentedLog's; only what a message is, is known here.
        self.written = segments.written
        self.flushed = segments.flushed
        self.read = segments.read
        self.request_flush = segments.writer.request_flush
        self.truncate = segments.truncate
        self.remove_before = segments.remove_before
        self.close = segments.close
        self.abandon = segments.abandon

    @classmethod
    async def open(
        cls,
        disk: Disk,
        segment_bytes: int,
        *,
        whole: int = 0,
        flushed: int = 0,
        truncate_in_memory_only: bool = False,
        allocates: bool = False,
    ) -> CommitLog:
        """What a former life left, up to the last whole message. ``whole`` is the end of a message,
        and everything before ``flushed`` was on the disk, as far as is known.

        Raises StorageError if something is gone that was flushed.
        """
        segments = await SegmentedLog.open(disk, DIRECTORY, segment_bytes, allocates=allocates)
        segments.truncate_in_memory_only = truncate_in_memory_only
        found = cls(segments)
        try:
            await found._recover(whole, flushed)
        except BaseException:
            await segments.abandon()
            raise
        return found

    # -- Log ---------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        return self._segments.min_offset

    @property
    def max_offset(self) -> int:
        return self._segments.max_offset

    @property
    def written_offset(self) -> int:
        return self._segments.writer.written_end

    @property
    def flushed_offset(self) -> int:
        return self._segments.writer.flushed_end

    @property
    def segment_bytes(self) -> int:
        return self._segments.segment_bytes

    @property
    def progress_listener(self) -> Callable[[], None]:
        return self._segments.writer.progress_listener

    @progress_listener.setter
    def progress_listener(self, listener: Callable[[], None]) -> None:
        self._segments.writer.progress_listener = listener

    @property
    def failure_listener(self) -> Callable[[StorageError], None]:
        return self._segments.writer.failure_listener

    @failure_listener.setter
    def failure_listener(self, listener: Callable[[StorageError], None]) -> None:
        self._segments.writer.failure_listener = listener

    # -- appending ---------------------------------------------------------------------------------

    def place(self, sizes: list[int]) -> list[int]:
        """Where messages of these sizes would lie. Raises StorageError, MessageIllegal."""
        segments = self._segments
        segments.writer.require_usable()
        segment_bytes, offset = segments.segment_bytes, segments.max_offset
        offsets = []
        for size in sizes:
            if size + FILLER_MIN_BYTES > segment_bytes:
                raise MessageIllegal(f"a message of {size} bytes fits in no file")
            room = segment_bytes - offset % segment_bytes
            if size + FILLER_MIN_BYTES > room:
                offset += room
            offsets.append(offset)
            offset += size
        return offsets

    def append_placed(self, messages: list[bytes]) -> list[int]:
        segments = self._segments
        ends = []
        for message in messages:
            room = segments.room
            if len(message) + FILLER_MIN_BYTES > room:
                segments.append(filler(room))
            ends.append(segments.append(message) + len(message))
        return ends

    def append_raw(self, offset: int, data: bytes) -> None:
        """A slave's: bytes of the master's log. An empty log begins wherever they do.

        Raises StorageError.
        """
        segments = self._segments
        segments.writer.require_usable()
        if offset != segments.max_offset and segments.max_offset == 0:
            if offset % segments.segment_bytes:
                raise StorageError(f"a log can't begin at {offset}: no file would")
            segments.begin_at(offset)
        if offset != segments.max_offset:
            raise StorageError(f"the log ends at {segments.max_offset}, not at {offset}")
        segments.append(data)

    # -- reading -----------------------------------------------------------------------------------

    async def scan(self, position: int, end: int, max_bytes: int) -> Scanned:
        data, spans, following, missing = await self._walk(position, end, max_bytes)
        if not spans and following == position and missing > max_bytes:
            data, spans, following, _ = await self._walk(position, end, missing)
        return Scanned(data, position, spans, following)

    async def _walk(
        self, position: int, end: int, max_bytes: int
    ) -> tuple[bytes, list[tuple[int, int]], int, int]:
        """(data, spans, where the next stretch begins, how many bytes a message needs there)."""
        data = await self._segments.read(position, min(max_bytes, max(0, end - position)))
        limit = len(data)
        file_bytes = self._segments.segment_bytes
        file_end = position - position % file_bytes + file_bytes
        spans: list[tuple[int, int]] = []
        at = missing = 0
        unpack = START.unpack_from
        while at + FILLER_MIN_BYTES <= limit:
            size, magic = unpack(data, at)
            if magic == MAGIC_BLANK:
                whole = position + at + size == file_end <= end
                return data, spans, file_end if whole else position + at, 0
            if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < FILLER_MIN_BYTES:
                break
            if at + size > limit:
                missing = size if position + at + size <= end else 0
                break
            spans.append((at, size))
            at += size
        return data, spans, position + at, missing

    # -- recovery ----------------------------------------------------------------------------------

    async def _recover(self, whole: int, flushed: int) -> None:
        segments = self._segments
        found = segments.max_offset
        if found < flushed:
            raise StorageError(f"the commit log ends at {found}; {flushed} bytes were flushed")
        end = await self._last_valid(max(whole, segments.min_offset))
        if end < flushed and await self._is_damage(end, flushed):
            raise StorageError(f"the commit log is damaged at {end}, where it was flushed")
        if end < found:
            tail = "a torn tail" if found % segments.segment_bytes else "a tail, or blank room"
            log.warning("the commit log is cut from %d to %d: %s", found, end, tail)
            await segments.truncate(end)
        await segments.settle(min(flushed, end))

    async def _last_valid(self, position: int) -> int:
        """The end of the whole and sound messages that follow ``position``."""
        found = self._segments.max_offset
        while position < found:
            scanned = await self.scan(position, found, RECOVERY_BYTES)
            sound = first_invalid(scanned.data, position, scanned.spans)
            if sound < len(scanned.spans):
                return position + scanned.spans[sound][0]
            if scanned.next == position:
                break
            position = scanned.next
        return position

    async def _is_damage(self, offset: int, flushed: int) -> bool:
        """Whether what lies at ``offset`` was flushed as a whole, and so must be sound.

        A slave flushes raw bytes: the last message may have been flushed in part.
        """
        head = await self._segments.read(offset, min(FILLER_MIN_BYTES, flushed - offset))
        if len(head) < FILLER_MIN_BYTES:
            return False
        size, magic = START.unpack_from(head, 0)
        if magic not in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK):
            return True
        return not FILLER_MIN_BYTES <= size <= MESSAGE_BYTES_MAX or offset + int(size) <= flushed
