"""The node's event log: who became master, what was promoted, synchronised or truncated, and when.

One JSON object a line in ``events.jsonl``. The harness reads it after a run to judge mastership, so
the words here are a contract: see docs/architecture.md.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

import msgspec

from shalott.broker.base.disk import Disk, File
from shalott.broker.base.env import Clock

log = logging.getLogger("shalott.broker.events")

EVENTS_FILE = "events.jsonl"
READ_BYTES = 1 << 16
# Lines kept while the disk takes none. Beyond that the oldest are dropped, and an event says how
# many.
PENDING_LINES_MAX = 100_000


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One line. ``at_ns`` is the node's own monotonic clock, ``wall_ns`` its wall clock."""

    at_ns: int
    wall_ns: int
    node: str
    incarnation: int
    group: str  # queue name, or "" for the node itself
    # such as role, epoch, promoted, demoted, sync_started, sync_done, set_changed, acked,
    # partition, paused, events_dropped
    kind: str
    role: str = ""  # master, mirror, none; for group "": running, paused, stopped
    epoch: int = 0  # version of the metadata row that gave the role
    detail: dict[str, Any] = {}


class JsonlEventLog:
    """Writes ``events.jsonl`` through the node's disk, in order, in the background.

    This is an observation channel, not node state: a line is handed to the operating system at once
    (so it survives kill -9) but never synced, and a disk that takes nothing never stops the node:
    lines wait in memory and go out with a later event.
    """

    def __init__(self, clock: Clock, node: str, incarnation: int, file: File, size: int) -> None:
        """Use ``open``."""
        self._clock = clock
        self._node = node
        self._incarnation = incarnation
        self._file = file
        self._size = size
        self._encoder = msgspec.json.Encoder()
        self._pending: list[bytes] = []
        self._dropped = 0
        self._writing: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(
        cls, disk: Disk, clock: Clock, *, node: str, incarnation: int, path: str = EVENTS_FILE
    ) -> JsonlEventLog:
        """Append to what former lives wrote; a last line that was torn by a crash is cut off."""
        file = await disk.open(path, create=True)
        size = await file.size()
        whole = await _end_of_last_line(file, size)
        if whole < size:
            await file.truncate(whole)
        return cls(clock, node, incarnation, file, whole)

    def emit(
        self,
        group: str,
        kind: str,
        *,
        role: str = "",
        epoch: int = 0,
        detail: dict[str, object] | None = None,
    ) -> None:
        """Record an event now. Must be called in the event loop; lost after ``close``."""
        if self._closed:
            return
        event = Event(
            at_ns=self._clock.monotonic_ns(),
            wall_ns=self._clock.wall_ns(),
            node=self._node,
            incarnation=self._incarnation,
            group=group,
            kind=kind,
            role=role,
            epoch=epoch,
            detail={} if detail is None else detail,
        )
        self._pending.append(self._encoder.encode(event) + b"\n")
        if len(self._pending) > PENDING_LINES_MAX:
            self._dropped += len(self._pending) - PENDING_LINES_MAX
            del self._pending[:-PENDING_LINES_MAX]
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="event log")

    async def flush(self) -> None:
        """Return when all events so far were handed to the operating system, or the disk refused
        them.
        """
        if self._writing is None and self._pending:
            self._writing = asyncio.create_task(self._write_all(), name="event log")
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Write what is pending and close the file."""
        if not self._closed:
            await self.flush()
            self._closed = True
            await self._file.close()

    async def _write_all(self) -> None:
        try:
            while self._pending:
                lines, self._pending = self._pending, []
                await self._write(lines)
                if self._dropped:
                    dropped, self._dropped = self._dropped, 0
                    self.emit("", "events_dropped", detail={"count": dropped})
        except OSError as error:
            log.warning("the event log can't be written: %s", error.strerror or error)
        finally:
            self._writing = None

    async def _write(self, lines: list[bytes]) -> None:
        """All of ``lines``, or OSError with all of them pending again.

        The size grows only when all is written: what a failed attempt left is overwritten by the
        next.
        """
        data = b"".join(lines)
        written = 0
        try:
            while written < len(data):
                rest = data[written:] if written else data
                count = await self._file.pwrite(rest, self._size + written)
                if count <= 0:
                    raise OSError(errno.EIO, "the disk takes no more bytes")
                written += count
        except OSError:
            self._pending[:0] = lines
            raise
        self._size += len(data)


async def _end_of_last_line(file: File, size: int) -> int:
    """The offset after the last line feed, 0 if there is none."""
    end = size
    while end > 0:
        start = max(0, end - READ_BYTES)
        chunk = b""
        while more := await file.pread(end - start - len(chunk), start + len(chunk)):
            chunk += more  # a read may be short, and what looks torn is cut off
        found = chunk.rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
