"""MasterSync: copies the master's contents to its unsynchronised mirrors.

After rabbit/rabbit_mirror_queue_sync.erl. The start is told through the ring, so every mirror has
applied all that the master did before; then the master goes straight to those that want it, batch
by batch, each when all have taken the one before (that is the flow control). The queue serves
no client until it is over: eager synchronisation stops the world. A mirror that dies is forgotten;
cancelling tells the others to start again empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from shalott.broker.rabbit.mirrored.messages import (
    SyncAborted,
    SyncAnswer,
    SyncBatch,
    SyncComplete,
    Synced,
    SyncNext,
)
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.shell import Shell
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.broker.rabbit.storage.snapshot import Held

# A batch of large messages is cut short: memory counts bytes (rmq#1279).
BATCH_BYTES_MAX = 16_000_000

Outcome = Literal["complete", "already synchronised", "cancelled", "no mirrors left"]


class MasterSync:
    """One synchronisation. ``on_end`` is called once, with how it ended."""

    def __init__(
        self,
        shell: Shell,
        queue: BackingQueue,
        mirrors: tuple[Pid, ...],
        batch_size: int,
        ref: int,
        on_end: Callable[[Outcome], None],
    ) -> None:
        self._shell = shell
        self.ref = ref
        self._batch_size = batch_size
        self._on_end = on_end
        self._messages = queue.snapshot()
        self._is_reading = False
        self._sent = 0
        self._asked: dict[Pid, None] = dict.fromkeys(mirrors)
        self._ready: dict[Pid, bool] = {}  # mirror -> has taken what it was sent
        self.is_over = False

    def start(self) -> None:
        for mirror in self._asked:
            self._shell.monitor_peer(mirror)
        mirrors = tuple(self._asked)
        self._shell.emit("sync_started", mirrors=[p.node for p in mirrors], messages=self.total)
        self._shell.broadcast(ins.SyncStart(self.ref, self._shell.pid, mirrors))

    @property
    def total(self) -> int:
        return self._messages.total

    @property
    def sent(self) -> int:
        return self._sent

    @property
    def mirrors(self) -> list[Pid]:
        return list(self._ready)

    # -- what mirrors say --------------------------------------------------------------------------

    def answered(self, message: SyncAnswer) -> None:
        if self._asked.pop(message.mirror, 0) is None:
            if message.wanted:
                self._ready[message.mirror] = True
            self._go_on()

    def taken(self, message: SyncNext) -> None:
        if message.ref == self.ref and message.mirror in self._ready:
            self._ready[message.mirror] = True
            self._go_on()

    def process_down(self, pid: Pid) -> None:
        known = self._asked.pop(pid, 0) is None
        known = self._ready.pop(pid, None) is not None or known
        if known:
            self._go_on()

    def cancel(self) -> None:
        for mirror in self._ready:  # those asked have nothing yet, and are told when they answer
            self._shell.send(mirror, SyncAborted(self.ref))
        self._end("cancelled")

    # -- batches -----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self.is_over or self._asked or self._is_reading or not all(self._ready.values()):
            return
        if not self._ready:
            self._end("already synchronised" if not self._sent else "no mirrors left")
        elif self._sent == self.total:
            for mirror in self._ready:
                self._shell.send(mirror, SyncComplete(self.ref))
            self._end("complete")
        else:
            batch = self._messages.take_here(self._batch_size, BATCH_BYTES_MAX)
            if batch is not None:
                self._send(batch)
            else:
                self._is_reading = True
                self._shell.tasks.start(self._read())

    async def _read(self) -> None:
        """A batch of which something is on disk. Nothing changes in the queue meanwhile."""
        batch = await self._messages.take(self._batch_size, BATCH_BYTES_MAX)
        self._is_reading = False
        if self.is_over:
            await self._messages.close()
        elif self._ready:
            self._send(batch)
        else:
            self._go_on()

    def _send(self, batch: list[Held]) -> None:
        self._sent += len(batch)
        clock = self._shell.env.clock
        messages: tuple[Synced, ...] = tuple(
            (h.content, h.unacked, h.expiry and h.expiry.left_ns(clock)) for h in batch
        )
        for mirror in self._ready:
            self._ready[mirror] = False
            self._shell.send(mirror, SyncBatch(self.ref, messages))

    def _end(self, outcome: Outcome) -> None:
        self.is_over = True
        if not self._is_reading:
            self._shell.tasks.start(self._messages.close())
        self._shell.emit("sync_done", outcome=outcome, messages=self._sent)
        self._on_end(outcome)
