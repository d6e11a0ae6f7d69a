"""Pager: moves a queue's messages out of memory, to its page files.

What it does on its own is done by one task, which lives while there is work: it writes the alphas
that are too many, a batch at a time (push_alphas_to_betas), then takes gammas that are too many out
of memory (push_betas_to_deltas), and deletes files that hold nothing live. ReadAhead brings back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from shalott.broker.base.env import never
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import NO_ROOM
from shalott.broker.rabbit.storage.entries import ENTRY_BYTES, Entry, Place, Segment, encode_page
from shalott.broker.rabbit.storage.memory import UNLIMITED, RamUse, Traffic
from shalott.broker.rabbit.storage.message_table import MessageTable
from shalott.broker.rabbit.storage.pages import PageFiles
from shalott.broker.rabbit.storage.read_ahead import ReadAhead

log = logging.getLogger("shalott.broker.storage")

WRITE_COUNT, WRITE_BYTES = 2048, 4 << 20
SEGMENT_COUNT, SEGMENT_BYTES = 4096, 1 << 20
SMALL_SEGMENT_COUNT = 3  # where buggify wants deltas in small queues
DISK_FULL_RETRY_MS = 500


class Pager:
    """Of one queue. ``files`` None: nothing is ever paged."""

    def __init__(
        self, messages: MessageTable, ram: RamUse, ahead: ReadAhead, files: PageFiles | None
    ) -> None:
        self.traffic = Traffic()
        self.written = 0  # messages, to pages
        self.files = files
        self.failure_listener: Callable[[StorageError], None] = lambda error: None
        self.buggify: Callable[[str], bool] = never
        self.target = UNLIMITED  # alphas that may be in memory
        self._messages = messages
        self._ram = ram
        self._ahead = ahead
        ahead.brought_alpha = self.entered
        self._wanted = UNLIMITED  # what the monitor says; the mode may say less
        self._is_lazy = False
        self._segment_count = SEGMENT_COUNT
        self._looks_at_others = False
        self._others: deque[Entry] = deque()
        self._unwritten: list[Entry] = []
        self._worker: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    # -- what is in memory -------------------------------------------------------------------------

    @property
    def is_working(self) -> bool:
        """Whether something moves."""
        return self._worker is not None

    def entered(self, entry: Entry) -> None:
        """It is in the order, or unacknowledged."""
        self.traffic.held += 1
        self._ram.grow(ENTRY_BYTES + entry.weight)
        if self.traffic.held > self.target:
            self.balance()

    def left(self, entry: Entry) -> None:
        """It is gone."""
        if entry.is_alpha:
            self.traffic.held -= 1
        self._ram.shrink(ENTRY_BYTES if entry.content is None else ENTRY_BYTES + entry.weight)
        if entry.page is not None:
            self._release(entry.page.file, 1)

    def delivered(self, entry: Entry) -> None:
        """It waits for an acknowledgement; its page has what may be wanted of it."""
        if entry.page is not None and entry.content is not None:
            self._drop_content(entry)

    def left_delta(self, segments: Iterable[Segment]) -> None:
        """They are gone, unread."""
        for segment in segments:
            self._messages.in_delta -= segment.count
            for run in segment.runs:
                self._release(run.file, run.records)

    def _release(self, file: int, count: int) -> None:
        assert self.files is not None
        self.files.release(file, count)
        if self.files.has_dead:
            self.balance()

    def _drop_content(self, entry: Entry) -> None:
        entry.content = None
        self._ram.shrink(entry.weight)

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
            for entry in self._ahead.give_back(self._wanted - self.traffic.held):
                self._drop_content(entry)

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
        for line in self._messages.order.lines():
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
        if chosen and not self._messages.has_paged:
            self._messages.has_paged = True
            if self.buggify("storage.small_segments"):
                self._segment_count = SMALL_SEGMENT_COUNT
        return chosen

    def _choose_others(self, count: int, size: int) -> list[Entry]:
        """Unacknowledged and requeued ones: they stay in memory, without their contents."""
        if self._looks_at_others:
            self._looks_at_others = False
            self._others = deque(
                entry for entry in self._messages.entries.values() if entry.is_alpha
            )
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
        self.written += len(batch)
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
        lines = self._messages.order.lines()
        line = lines[0] if len(lines) == 1 else max(lines, key=lambda line: line.gammas)
        if sum(line.gammas for line in lines) < permitted + self._segment_count:
            return False
        taken = line.cut(self._segment_count, SEGMENT_BYTES)
        for entry in taken:
            del self._messages.entries[entry.id]
            self._ram.shrink(ENTRY_BYTES if entry.content is None else ENTRY_BYTES + entry.weight)
        self._messages.in_delta += len(taken)
        return bool(taken)

    # -- the end -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """No more of this, and give back what was taken. Returns when no write is under way.

        The messages go now, and not when a collector finds the cycles in which a queue and its
        process hold each other: it looks for old garbage only after as much again was allocated.
        """
        self._closed = True
        self._ram.forget()
        if self._retry is not None:
            self._retry.cancel()
        if self._worker is not None:
            await asyncio.wait([self._worker])
        if self._messages.has_paged and self.files is not None:
            await self._ahead.close()
            await self.files.remove_all()
        self._messages.entries.clear()
        self._others.clear()
        self._unwritten = []
        self._ahead.clear()
        for line in self._messages.order.lines():
            line.clear()
