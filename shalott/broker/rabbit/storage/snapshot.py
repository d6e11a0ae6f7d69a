"""Snapshot: all messages of a backing queue, as they are now, in order, a batch at a time.

For who goes through all of them: a synchronisation, a compaction, a clean end. It holds entries and
segments, not contents, and reads what is on pages when it comes to it; the pages stay until it is
closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shalott.broker.base.disk import Opens
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage.entries import Entry, Expiry, Place, Segment, read_run
from shalott.broker.rabbit.storage.message_order import Line
from shalott.broker.rabbit.storage.pages import PageFiles, PageReader, runs_of


class Held(NamedTuple):
    """A message as the looks show it."""

    content: Content
    redelivered: bool
    unacked: bool
    expiry: Expiry | None = None


def held(entry: Entry, content: Content | None = None) -> Held:
    """``content``: read from its page, if it isn't in memory."""
    content = entry.content or content
    assert content is not None, f"message {entry.id} is on a page: read it first"
    return Held(content, entry.redelivered, entry.place is Place.UNACKED, entry.expiry)


class _Stream:
    """What is in one line's delta, in order."""

    def __init__(self, segments: Iterable[Segment], reader: PageReader) -> None:
        self._segments = deque(segments)
        self._reader = reader
        self._read: deque[Entry] = deque()

    async def head(self) -> Entry | None:
        while not self._read and self._segments:
            self._read.extend(await self._segments.popleft().read(self._reader))
        return self._read[0] if self._read else None

    def take(self) -> Entry:
        return self._read.popleft()


class Snapshot:
    """``total`` messages. Close it."""

    def __init__(
        self,
        entries: Sequence[Entry],
        lines: Sequence[Line],
        files: PageFiles | None,
        disk: Opens | None = None,
    ) -> None:
        """``entries``: those in memory, by serial. ``disk``: where the pages are, if elsewhere."""
        self._entries = entries
        self._at = 0
        self._files = files
        self._reader = None if files is None else files.reader(disk)
        self._streams = [
            _Stream(line.delta, self._reader)
            for line in lines
            if line.delta and self._reader is not None
        ]
        in_delta = sum(segment.count for line in lines for segment in line.delta)
        self.total = len(entries) + in_delta
        if files is not None:
            files.pin()

    def take_here(self, count: int, size: int) -> list[Held] | None:
        """The next ones, up to ``count``, or those that make ``size`` body bytes. None if that
        takes the disk."""
        if self._streams:
            return None
        end = self._at
        while end < min(len(self._entries), self._at + count) and size > 0:
            if self._entries[end].content is None:
                return None
            size -= self._entries[end].size
            end += 1
        begin, self._at = self._at, end
        return [held(entry) for entry in self._entries[begin:end]]

    async def take(self, count: int, size: int) -> list[Held]:
        """The same, wherever they are; none at the end. Raises StorageError."""
        return [held(entry, content) for entry, content in await self.take_entries(count, size)]

    async def take_entries(self, count: int, size: int) -> list[tuple[Entry, Content]]:
        """The same, with all that is known of them."""
        taken: list[Entry] = []
        while len(taken) < count and size > 0 and (entry := await self._next()) is not None:
            taken.append(entry)
            size -= entry.size
        contents = {e.serial: e.content for e in taken if e.content is not None}
        away = sorted((e.page, e.serial) for e in taken if e.content is None and e.page is not None)
        found = iter(away)
        for run in runs_of([page for page, _ in away]):
            for paged, _ in await read_run(self._reader, run):
                _, serial = next(found)
                assert paged.serial == serial, "a page holds another message"
                contents[serial] = paged.content
        return [(entry, contents[entry.serial]) for entry in taken]

    async def _next(self) -> Entry | None:
        """The one of the lowest serial that was not taken yet."""
        best: Entry | None = self._entries[self._at] if self._at < len(self._entries) else None
        source: _Stream | None = None
        for stream in self._streams:
            head = await stream.head()
            if head is not None and (best is None or head.serial < best.serial):
                best, source = head, stream
        if source is not None:
            return source.take()
        if best is not None:
            self._at += 1
        return best

    def unpin(self) -> None:
        """Nothing more will be read."""
        files, self._files = self._files, None
        if files is not None:
            files.unpin()

    async def close(self) -> None:
        self.unpin()
        if self._reader is not None:
            await self._reader.close()
