"""AutoSwitchHAConnection: the master's end of a slave's connection.

After store/ha/autoswitch/AutoSwitchHAConnection.java; docs/protocols.md 2.1, 2.4, 2.8. Handshake,
then two loops: one reads acknowledgements, one pushes the log from where the slave's first one
says. A frame never crosses the border of an epoch, so that its header says of all its bytes who
wrote them.

Only what is on the master's own disk is sent. Upstream sends what is in memory; a master that loses
power and comes back in the same epoch, before the controllers miss it, then writes other bytes
where its slaves have some already, under the same epoch, so that no truncation will ever find them
(KB-RKT-D).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from shalott.broker.base.env import Clock, Env, pause_ms
from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.autoswitch import packets
from shalott.broker.rocket.autoswitch.epochs import EpochFileCache, EpochRange
from shalott.broker.rocket.autoswitch.packets import HaProtocolError
from shalott.broker.rocket.commitlog.api import Log
from shalott.broker.rocket.config import HaConfig

log = logging.getLogger("shalott.broker.ha")

UNKNOWN = -1
NS_PER_MS = 1_000_000
TRANSFER_LATE_MS = 100
PARTS_APART_MS = 10
WAIT_S_MIN = 0.001  # a timer may fire a rounding error too early


class Master(Protocol):
    """What a connection needs of the service."""

    env: Env
    config: HaConfig
    log: Log
    cache: EpochFileCache
    by_address: bool
    segment_bytes: int
    handshakes_in_parts: bool  # a network that splits what is written at once

    @property
    def epoch(self) -> int: ...

    @property
    def confirm_offset(self) -> int: ...

    @property
    def sendable(self) -> int: ...

    def identify(self, handshake: packets.SlaveHandshake) -> int: ...

    def connected(self, connection: AutoSwitchHAConnection) -> None: ...

    def acknowledged(self, connection: AutoSwitchHAConnection) -> None: ...

    def disconnected(self, connection: AutoSwitchHAConnection) -> None: ...


class AutoSwitchHAConnection:
    """``slave_id`` is known after the handshake; ``ack_offset`` after the first acknowledgement."""

    def __init__(
        self, master: Master, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.slave_id = UNKNOWN
        self.is_learner = False
        self.ack_offset = UNKNOWN
        self.transfer_from = UNKNOWN
        self.transferred_bytes = 0
        self.caught_up_ns = 0
        self.is_caught_up = False  # as of the mark
        self.peer = str((writer.get_extra_info("peername") or ("", 0))[0])
        self.wake = asyncio.Event()  # the log has grown, or an epoch has begun
        self._master = master
        self._clock: Clock = master.env.clock
        self._began_ns = self._clock.monotonic_ns()
        self._reader = reader
        self._writer = writer
        # The mark: where the log ended at a time of the past. A slave that gets there was caught up
        # at that time; then the next frame sets the next mark. Upstream sets it with every frame,
        # and under load there is always a newer one when the acknowledgement comes.
        self._mark_offset = 0
        self._mark_ns = 0
        self._last_file = False

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the slave or the network gives up, or the task is cancelled."""
        try:
            async with asyncio.timeout(self._housekeeping_s):
                await self._handshake()
                await self._first_ack()
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._read_acks(), name="ha acks")
                loops.create_task(self._transfer(), name="ha transfer")
        except* (HaProtocolError, StorageError) as errors:
            log.info("slave %s: %s", self.slave_id, errors.exceptions[0])
        except* (OSError, EOFError, TimeoutError):
            log.info("slave %s: the connection is lost", self.slave_id)
        finally:
            self.abort()
            self._master.disconnected(self)

    def abort(self) -> None:
        """Cut it; ``run`` ends."""
        self._writer.transport.abort()

    def rate_bytes_s(self) -> int:
        """Since it was made."""
        life_ns = self._clock.monotonic_ns() - self._began_ns
        return self.transferred_bytes * 1_000_000_000 // max(1, life_ns)

    @property
    def _housekeeping_s(self) -> float:
        return self._master.config.housekeeping_interval_ms / 1000

    # -- handshake ---------------------------------------------------------------------------------

    async def _handshake(self) -> None:
        master = self._master
        size = packets.SLAVE_HANDSHAKE_BYTES
        if master.by_address:
            size = packets.OLD_SLAVE_HANDSHAKE_BYTES
        data = await self._reader.readexactly(size)
        handshake = packets.decode_slave_handshake(data, by_address=master.by_address)
        self.slave_id = master.identify(handshake)
        self.is_learner = handshake.async_learner
        self._last_file = handshake.sync_from_last_file
        self.caught_up_ns = self._clock.monotonic_ns()
        self._set_mark()
        if master.env.has_bug("KB-RKT-13"):  # KB-RKT-13: it counts before it has said anything
            master.connected(self)
            master.acknowledged(self)
        answer = packets.encode_master_handshake(
            master.cache.entries, max_offset=master.log.max_offset, epoch=master.epoch
        )
        if master.handshakes_in_parts:
            self._writer.write(answer[: packets.MASTER_HANDSHAKE_BYTES])
            answer = answer[packets.MASTER_HANDSHAKE_BYTES :]
            await pause_ms(PARTS_APART_MS)
        self._writer.write(answer)
        await self._writer.drain()

    async def _first_ack(self) -> None:
        """Where the slave's log ends, now that it was cut to what both have."""
        offset = await self._ack()
        master = self._master
        if offset > 0:
            self.transfer_from = offset
        elif self._last_file:
            end = master.log.max_offset
            self.transfer_from = max(master.log.min_offset, end - end % master.segment_bytes)
        else:
            self.transfer_from = master.log.min_offset
        if offset and offset < master.log.min_offset:
            raise HaProtocolError(f"the slave ends at {offset}, before this log begins")
        master.connected(self)
        self._take(offset)

    # -- acknowledgements --------------------------------------------------------------------------

    async def _ack(self) -> int:
        offset = packets.decode_ack(await self._reader.readexactly(packets.ACK_BYTES))
        # Upstream's 5.x believes every number (docs/evidence/original-sources.md, finding i).
        if offset > self._master.log.max_offset:
            raise HaProtocolError(f"the slave acknowledges {offset}, which is not there")
        return offset

    async def _read_acks(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._housekeeping_s) as silence:
            while True:
                self._take(await self._ack())
                silence.reschedule(loop.time() + self._housekeeping_s)

    def _take(self, offset: int) -> None:
        self.ack_offset = max(self.ack_offset, offset)
        if self.ack_offset >= self._master.log.max_offset:
            self.is_caught_up = True
            self.caught_up_ns = self._clock.monotonic_ns()
        elif self.ack_offset >= self._mark_offset:
            self.is_caught_up = True
            self.caught_up_ns = max(self.caught_up_ns, self._mark_ns)
        self._master.acknowledged(self)

    def _set_mark(self) -> None:
        self.is_caught_up = False
        self._mark_offset = self._master.log.max_offset
        self._mark_ns = self._clock.monotonic_ns()

    # -- transfer ----------------------------------------------------------------------------------

    async def _transfer(self) -> None:
        heartbeat_ns = self._master.config.heartbeat_interval_ms * NS_PER_MS
        written_ns = 0  # a first frame at once: the slave hears of epoch and confirm offset
        while True:
            self.wake.clear()
            end = await self._sendable()
            entry = self._entry()
            now_ns = self._clock.monotonic_ns()
            if entry is not None and end > self.transfer_from:
                if self._master.env.buggify("ha.transfer_late"):
                    await pause_ms(TRANSFER_LATE_MS)
                await self._send(entry, end)
            elif entry is not None and now_ns >= written_ns + heartbeat_ns:
                await self._write(b"", entry)
            else:
                await self._wait(written_ns + heartbeat_ns if entry is not None else 0)
                continue
            written_ns = self._clock.monotonic_ns()

    async def _sendable(self) -> int:
        """The end of what may be sent; waits for the disk if that is all there is to wait for."""
        replicated, master = self._master.log, self._master
        if master.sendable <= self.transfer_from < replicated.max_offset:
            await replicated.flushed(replicated.max_offset)
        return master.sendable

    def _entry(self) -> EpochRange | None:
        """Whose bytes come next. None: the epochs do not say, and nothing can be sent."""
        cache = self._master.cache
        entry = cache.at_offset(self.transfer_from)
        is_last = entry is None or entry.epoch == cache.last_epoch
        if is_last and self._master.env.has_bug("KB-RKT-21"):
            entry = cache.of_epoch(self._master.epoch)  # KB-RKT-21: refused, so it isn't there
            if entry is None:
                log.error("there is no epoch %d to build a header of", self._master.epoch)
        return entry

    async def _send(self, entry: EpochRange, end: int) -> None:
        start = self.transfer_from
        size = min(self._master.config.transfer_batch_bytes, min(end, entry.end_offset) - start)
        body = await self._master.log.read(start, size)
        if not body:
            raise HaProtocolError(f"the bytes at {start} are gone")
        replicated, bytes_end = self._master.log, start + len(body)
        self._master.env.witness(
            "sends", replicated.directory, self._master.segment_bytes, start, bytes_end,
            (entry.epoch, entry.start_offset),
        )  # fmt: skip
        await self._write(body, entry)
        self.transfer_from += len(body)
        self.transferred_bytes += len(body)
        if self.is_caught_up:
            self._set_mark()

    async def _write(self, body: bytes, entry: EpochRange) -> None:
        frame = packets.encode_transfer(
            body,
            offset=self.transfer_from,
            epoch=entry.epoch,
            epoch_start_offset=entry.start_offset,
            confirm_offset=self._master.confirm_offset,
        )
        self._writer.write(frame)
        if self._writer.transport.get_write_buffer_size():
            async with asyncio.timeout(self._housekeeping_s):
                await self._writer.drain()

    async def _wait(self, until_ns: int) -> None:
        """For the log to grow, or for the next heartbeat (0: for the log)."""
        if not until_ns:
            await self.wake.wait()
            return
        left_s = max(WAIT_S_MIN, (until_ns - self._clock.monotonic_ns()) / 1e9)
        timer = asyncio.get_running_loop().call_later(left_s, self.wake.set)
        try:
            await self.wake.wait()
        finally:
            timer.cancel()
