"""Pager: moves a queue's messages between memory and its page files.

What it does on its own is done by one task, which lives while there is work: it writes the alphas
that are too many, a batch at a time, then takes gammas that are too many out of memory, and deletes
files that nobody needs. What is read back is read when the queue process asks, and the process
waits (as the original's does): a segment or some contents at a time, the next ones to be handed
out. While memory is short those are fewer, and what was read ahead is dropped again: its page is
still there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from shalott.broker.base.env import never
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import NO_ROOM
from shalott.broker.rabbit.storage.entries import (
    ENTRY_BYTES,
    Entry,
    Paged,
    Place,
    Segment,
    decode_page,
    encode_page,
    entry_of,
)
from shalott.broker.rabbit.storage.memory import UNLIMITED, MemoryMonitor, Traffic
from shalott.broker.rabbit.storage.message_order import Line, Order
from shalott.broker.rabbit.storage.pages import HEADER, Page, PageFiles, PageReader, Run, runs_of

log = logging.getLogger("shalott.broker.storage")

WRITE_COUNT, WRITE_BYTES = 2048, 4 << 20
SEGMENT_COUNT, SEGMENT_BYTES = 4096, 1 << 20
SMALL_SEGMENT_COUNT = 3  # where buggify wants deltas in small queues
READ_COUNT, READ_BYTES = 256, 1 << 20
DISK_FULL_RETRY_MS = 500


class Pager:
    """Of one queue. ``files`` None: nothing is ever paged."""

    def __init__(self, entries: dict[int, Entry], order: Order, files: PageFiles | None) -> None:
        self.traffic = Traffic()
        self.files = files
        self.has_paged = False  # ever in this life
        self.in_delta = 0  # messages
        self.failure_listener: Callable[[StorageError], None] = lambda error: None
        self.buggify: Callable[[str], bool] = never
        self.target = UNLIMITED  # alphas that may be in memory
        self._entries = entries
        self._order = order
        self._reader = None if files is None else files.reader()
        self._monitor: MemoryMonitor | None = None
        self._number = 0  # there
        self._bytes = 0
        self._wanted = UNLIMITED  # what the monitor says; the mode may say less
        self._is_lazy = False
        self._segment_count = SEGMENT_COUNT
        self._looks_at_others = False
        self._others: deque[Entry] = deque()
        self._unwritten: list[Entry] = []
        self._read: dict[int, Entry] = {}  # ahead, the next one first; some are gone or away again
        self._worker: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    # -- what is in memory -------------------------------------------------------------------------

    def join(self, monitor: MemoryMonitor) -> None:
        """From now on the node's monitor knows of this queue."""
        self._monitor = monitor
        monitor.used += self._bytes
        self._number = monitor.enter(self)
        self.grow(0)

    def grow(self, size: int) -> None:
        self._bytes += size
        monitor = self._monitor
        if monitor is not None:
            monitor.used += size
            if monitor.used > monitor.wake_above:
                monitor.wake()

    def shrink(self, size: int) -> None:
        self._bytes -= size
        if self._monitor is not None:
            self._monitor.used -= size

    @property
    def is_working(self) -> bool:
        """Whether something moves."""
        return self._worker is not None

    @property
    def memory(self) -> int:
        """Bytes, as they are accounted."""
        return self._bytes

    def entered(self, entry: Entry) -> None:
        """It is in the order, or unacknowledged."""
        self.traffic.held += 1
        self.grow(ENTRY_BYTES + entry.weight)
        if self.traffic.held > self.target:
            self.balance()

    def left(self, entry: Entry) -> None:
        """It is gone."""
        if entry.is_alpha:
            self.traffic.held -= 1
        self.shrink(ENTRY_BYTES if entry.content is None else ENTRY_BYTES + entry.weight)
        if entry.page is not None:
            self._release(entry.page.file, 1)

    def delivered(self, entry: Entry) -> None:
        """It waits for an acknowledgement; its page has what may be wanted of it."""
        if entry.page is not None and entry.content is not None:
            self._drop_content(entry)

    def left_delta(self, segments: Iterable[Segment]) -> None:
        """They are gone, unread."""
        for segment in segments:
            self.in_delta -= segment.count
            for run in segment.runs:
                self._release(run.file, run.records)

    def _release(self, file: int, count: int) -> None:
        assert self.files is not None
        self.files.release(file, count)
        if self.files.has_dead:
            self.balance()

    def _drop_content(self, entry: Entry) -> None:
        entry.content = None
        self.shrink(entry.weight)

    # -- how much may be ---------------------------------------------------------------------------

    def set_target(self, count: int) -> None:
        """The monitor's word."""
        self._wanted = count
        self._retarget()

    def set_lazy(self, is_lazy: bool) -> None:
        """Lazy: nothing stays in memory but what is read ahead."""
        if is_lazy != self._is_lazy:
            self._is_lazy = is_lazy
            self._retarget()

    def _retarget(self) -> None:
        self.target = 0 if self._is_lazy else self._wanted
        if self.traffic.held > self.target:
            self._looks_at_others = True
            self.balance()
        if self._wanted != UNLIMITED:
            self._give_back()

    # -- out of memory -----------------------------------------------------------------------------

    def balance(self) -> None:
        """See that what is too much leaves memory, and what is dead the disk. Returns at once."""
        if self.files is None or self._closed or self._worker is not None or self._retry:
            return
        self._worker = asyncio.get_running_loop().create_task(self._work(), name="pager")
        self._worker.add_done_callback(self._worked)

    async def _work(self) -> None:
        assert self.files is not None
        while not self._closed:
            batch = self._unwritten = self._unwritten or self._choose()
            if batch:
                await self._write(batch)
                self._unwritten = []
            elif self._cut():
                pass
            elif self.files.has_dead:
                await self.files.tidy()
            else:
                self._worker = None  # now: what comes before the task's end is known needs another
                return

    def _worked(self, worker: asyncio.Task[None]) -> None:
        if self._worker is worker:
            self._worker = None
        error = None if worker.cancelled() else worker.exception()
        if error is None or self._closed:
            return
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            log.warning("no room to page messages out: %s", error)
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(DISK_FULL_RETRY_MS / 1000, self._try_again)
            return
        self._closed = True
        log.error("no more paging: %r", error)
        self.failure_listener(StorageError(f"messages can't be paged out: {error!r}"))

    def _try_again(self) -> None:
        self._retry = None
        self.balance()

    def _choose(self) -> list[Entry]:
        """Alphas to be written: those that are wanted last."""
        count = min(self.traffic.held - self.target, WRITE_COUNT)
        size = WRITE_BYTES
        chosen: list[Entry] = []
        for line in self._order.lines():
            if count <= len(chosen) or size <= 0:
                break
            taken = line.page_out(count - len(chosen), size)
            size -= sum(entry.weight for entry in taken)
            chosen += taken
        if count > len(chosen) and not chosen:
            chosen = self._choose_others(count, size)
        for entry in chosen:
            entry.is_alpha = False
        self.traffic.held -= len(chosen)
        if chosen and not self.has_paged:
            self.has_paged = True
            if self.buggify("storage.small_segments"):
                self._segment_count = SMALL_SEGMENT_COUNT
        return chosen

    def _choose_others(self, count: int, size: int) -> list[Entry]:
        """Unacknowledged and requeued ones: they stay in memory, without their contents."""
        if self._looks_at_others:
            self._looks_at_others = False
            self._others = deque(entry for entry in self._entries.values() if entry.is_alpha)
        chosen: list[Entry] = []
        while self._others and len(chosen) < count and size > 0:
            entry = self._others.popleft()
            if entry.is_alpha and entry.place is not Place.GONE:
                chosen.append(entry)
                size -= entry.weight
        return chosen

    async def _write(self, batch: list[Entry]) -> None:
        assert self.files is not None
        batch = [entry for entry in batch if entry.place is not Place.GONE]
        if not batch:
            return
        pages = await self.files.write([encode_page(entry) for entry in batch])
        for entry, page in zip(batch, pages, strict=True):
            entry.page = page
            if entry.place is Place.GONE:
                self.files.release(page.file)
            else:
                self._drop_content(entry)

    def _cut(self) -> bool:
        """Take a segment of gammas out of memory, if they are too many; whether that was done."""
        permitted = self._segment_count
        if self.target != UNLIMITED:
            permitted = max(permitted, self.target)
        lines = self._order.lines()
        line = lines[0] if len(lines) == 1 else max(lines, key=lambda line: line.gammas)
        if sum(line.gammas for line in lines) < permitted + self._segment_count:
            return False
        taken = line.cut(self._segment_count, SEGMENT_BYTES)
        for entry in taken:
            del self._entries[entry.id]
            self.shrink(ENTRY_BYTES if entry.content is None else ENTRY_BYTES + entry.weight)
        self.in_delta += len(taken)
        return bool(taken)

    # -- back into memory --------------------------------------------------------------------------

    async def find_head(self) -> None:
        """If the head is in a delta, read its segment. Raises StorageError."""
        while (line := self._order.away()) is not None:
            await self._bring(line)

    async def _bring(self, line: Line) -> None:
        segment = line.delta[0]
        entries = [
            entry_of(paged, page)
            for run in segment.runs
            for paged, page in await read_run(self._reader, run)
        ]
        self.in_delta -= segment.count
        brought = line.bring(entries)
        assert brought is segment, "a segment is read by one at a time"
        room = self._room - ENTRY_BYTES * len(entries)
        for entry in entries:
            self._entries[entry.id] = entry
            if entry is not entries[0] and room < entry.weight:
                entry.content, room = None, 0  # in order: none behind it either
                self.grow(ENTRY_BYTES)
            else:
                room -= entry.weight
                self.grow(ENTRY_BYTES + entry.weight)
        self._was_read(entries)

    async def read_ahead(self) -> None:
        """See that the head's content is in memory, and that of some behind it."""
        await self.find_head()
        head = self._order.head()
        if head is None or head.content is not None:
            return
        wanted, size, permitted = [head], head.weight, min(READ_BYTES, self._room)
        for entry in self._order.line_of(head).ahead(READ_COUNT):
            if entry is head or entry.content is not None:
                continue
            if size + entry.weight > permitted:
                break
            wanted.append(entry)
            size += entry.weight
        await self.load(wanted)
        self._was_read(wanted)

    @property
    def _room(self) -> int:
        """How many bytes may be read ahead; the head is read in any case."""
        return UNLIMITED if self._monitor is None else self._monitor.room

    def _was_read(self, entries: list[Entry]) -> None:
        fresh = {entry.id: entry for entry in entries}
        self._read = fresh | {i: e for i, e in self._read.items() if i not in fresh and e.is_ahead}

    def _give_back(self) -> None:
        """Of what was read ahead, all but what may be in memory, and but the next one: it may be
        about to be handed out."""
        ahead = [entry for entry in self._read.values() if entry.is_ahead]
        kept = max(1, self._wanted - self.traffic.held)
        for entry in ahead[kept:]:
            self._drop_content(entry)
        self._read = {entry.id: entry for entry in ahead[:kept]}

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
                self.grow(entry.weight)

    # -- the end -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """No more of this, and give back what was taken. Returns when no write is under way.

        The messages go now, and not when a collector finds the cycles in which a queue and its
        process hold each other: it looks for old garbage only after as much again was allocated.
        """
        self._closed = True
        self.forget()
        if self._retry is not None:
            self._retry.cancel()
        if self._worker is not None:
            await asyncio.wait([self._worker])
        if self.has_paged and self.files is not None and self._reader is not None:
            await self._reader.close()
            await self.files.remove_all()
        self._entries.clear()
        self._others.clear()
        self._unwritten, self._read = [], {}
        for line in self._order.lines():
            line.clear()

    def forget(self) -> None:
        """The memory is the monitor's business no more."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.leave(self._number)
            monitor.used -= self._bytes


async def read_run(reader: PageReader | None, run: Run) -> list[tuple[Paged, Page]]:
    """What is there, record by record. Raises StorageError."""
    assert reader is not None
    read, offset = [], run.offset
    for record in await reader.read(run):
        page = Page(run.file, offset, offset + HEADER.size + len(record))
        read.append((decode_page(record), page))
        offset = page.end
    return read
