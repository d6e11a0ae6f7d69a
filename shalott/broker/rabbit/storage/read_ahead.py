"""ReadAhead: brings a queue's messages back from its page files, when the queue process asks.

The process waits, as rabbit_variable_queue's does: a segment or some contents at a time, the next
ones to be handed out. While memory is short those are fewer, and what was read ahead is dropped
again: its page is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shalott.broker.rabbit.storage.entries import ENTRY_BYTES, Entry, read_run
from shalott.broker.rabbit.storage.memory import RamUse
from shalott.broker.rabbit.storage.message_order import Line
from shalott.broker.rabbit.storage.message_table import MessageTable
from shalott.broker.rabbit.storage.pages import PageReader, runs_of

READ_COUNT, READ_BYTES = 256, 1 << 20


class ReadAhead:
    """Of one queue. ``reader`` None: nothing is ever paged."""

    def __init__(self, messages: MessageTable, ram: RamUse, reader: PageReader | None) -> None:
        self._messages = messages
        self._ram = ram
        self._reader = reader
        self._read: dict[int, Entry] = {}  # the next one first; some are gone or away again
        self.count = 0  # messages that were read
        self.brought_alpha: Callable[[Entry], None] = lambda entry: None  # the pager's

    async def find_head(self) -> None:
        """If the head is in a delta, read its segment. Raises StorageError."""
        while (line := self._messages.order.away()) is not None:
            await self._bring(line)

    async def _bring(self, line: Line) -> None:
        segment = line.delta[0]
        entries = await segment.read(self._reader)
        self.count += len(entries)
        self._messages.in_delta -= segment.count
        brought = line.bring(entries)
        assert brought is segment, "a segment is read by one at a time"
        if segment.source is not None:
            for entry in entries:
                self._messages.entries[entry.id] = entry
                self.brought_alpha(entry)
            return
        room = self._ram.room - ENTRY_BYTES * len(entries)
        for entry in entries:
            self._messages.entries[entry.id] = entry
            if entry is not entries[0] and room < entry.weight:
                entry.content, room = None, 0  # in order: none behind it either
                self._ram.grow(ENTRY_BYTES)
            else:
                room -= entry.weight
                self._ram.grow(ENTRY_BYTES + entry.weight)
        self._was_read(entries)

    async def read(self) -> None:
        """See that the head's content is in memory, and that of some behind it. Raises
        StorageError."""
        await self.find_head()
        head = self._messages.order.head()
        if head is None or head.content is not None:
            return
        wanted, size, permitted = [head], head.weight, min(READ_BYTES, self._ram.room)
        for entry in self._messages.order.line_of(head).ahead(READ_COUNT):
            if entry is head or entry.content is not None:
                continue
            if size + entry.weight > permitted:
                break
            wanted.append(entry)
            size += entry.weight
        await self.load(wanted)
        self._was_read(wanted)

    def _was_read(self, entries: list[Entry]) -> None:
        fresh = {entry.id: entry for entry in entries}
        self._read = fresh | {i: e for i, e in self._read.items() if i not in fresh and e.is_ahead}

    def give_back(self, room: int) -> list[Entry]:
        """What was read ahead and may not be in memory, ``room`` being how many more may. The next
        one stays: it may be about to be handed out."""
        ahead = [entry for entry in self._read.values() if entry.is_ahead]
        kept = max(1, room)
        self._read = {entry.id: entry for entry in ahead[:kept]}
        return ahead[kept:]

    async def load(self, entries: Iterable[Entry]) -> None:
        """See that they have their contents. Raises StorageError."""
        away = [(e.page, e.serial, e) for e in entries if e.content is None and e.page is not None]
        away.sort(key=lambda one: one[0])
        found = iter(away)
        for run in runs_of([page for page, _, _ in away]):
            for paged, _ in await read_run(self._reader, run):
                entry = next(found)[2]
                assert paged.serial == entry.serial, "a page holds another message"
                entry.content = paged.content
                self.count += 1
                self._ram.grow(entry.weight)

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()

    def clear(self) -> None:
        self._read = {}
