"""AutoSwitchHAClient: a slave's end of the connection to its master.

After store/ha/autoswitch/AutoSwitchHAClient.java; docs/protocols.md 2.1, 2.5, 2.6. READY: cut an
incomplete last message and connect. HANDSHAKE: learn the master's epochs and truncate at the point
up to which both logs are equal. TRANSFER: append what comes, acknowledge what is safe. Any mismatch
ends the connection; the next one begins anew.

Where this is stricter than upstream, so that an acknowledgement is a promise:

- What is acknowledged is on the disk when ``store.flush`` is sync, else with the operating system
  (upstream's log is a mapped file: written is all it ever is).
- A master of an older epoch than this log's last is not followed: a controller that was deposed may
  still name it, and truncating to it would lose what was acknowledged since.
- An entry of an epoch is durable before its first byte is written, and comes with bytes only, never
  with a heartbeat (epochs.py says why; KB-RKT-A has it upstream's way).
- Without any epoch in common, when the master has its log from the beginning, nothing is in common.
  Upstream gives up, and again after every reconnection (KB-RKT-22).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import BrokerError, DiskFull, StorageError
from shalott.broker.rocket.autoswitch import epochs, packets
from shalott.broker.rocket.autoswitch.epochs import EpochFileCache
from shalott.broker.rocket.autoswitch.packets import EpochStart, HaProtocolError, HaState
from shalott.broker.rocket.autoswitch.truncation import (
    end_of_whole_messages,
    is_cancelled,
    search_start,
    uninterrupted,
)
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import HaConfig

log = logging.getLogger("shalott.broker.ha")

CONNECT_TIMEOUT_MS = 3000
CONNECT_LATE_MS = 500
RETRY_FIRST_MS = 100
UNWRITTEN_BYTES_MAX = 4 << 20  # the network waits for the disk beyond this
READ_ONCE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """Whom to follow: the master's HA address as it is advertised, and its epoch."""

    address: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slave:
    """What a client needs of the service. ``handshake`` says who this slave is."""

    env: Env
    group: str
    config: HaConfig
    store: MessageStore
    cache: EpochFileCache
    handshake: packets.SlaveHandshake
    acks_flushed: bool
    dial: Callable[[str], tuple[str, int]]
    truncate: Callable[[int], Awaitable[None]]  # the store, durably; tells the event log
    failed: Callable[[BrokerError], None]  # the disk is lost, and the node with it


class AutoSwitchHAClient:
    """Follows one master until its task is cancelled."""

    def __init__(self, slave: Slave, following: Following) -> None:
        self.state = HaState.READY
        self.following = following
        self.last_read_ns = 0
        self.last_write_ns = 0
        self.transferred_bytes = 0
        self._slave = slave
        self._clock = slave.env.clock
        self._began_ns = self._clock.monotonic_ns()
        self._store = slave.store
        self._cache = slave.cache
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._grown = asyncio.Event()
        self._followed = False  # the last connection got as far as TRANSFER

    async def run(self) -> None:
        """Connect again and again; soon at first, for a new master may not be ready yet."""
        retry_ms = RETRY_FIRST_MS
        while True:
            self._followed = False
            try:
                # A task of its own: until Python 3.11.3 the next timeout in a task that a failed
                # TaskGroup has cancelled ends the task itself, silently (CPython gh-102780).
                await asyncio.create_task(self._session(), name="ha session")
            except* (HaProtocolError, DiskFull) as errors:
                log.info("master %s: %s", self.following.address, errors.exceptions[0])
            except* (OSError, EOFError, TimeoutError):
                log.info("master %s: no connection", self.following.address)
            except* StorageError as errors:
                self._slave.failed(StorageError(str(errors.exceptions[0])))
            if is_cancelled():  # and the session ended of itself meanwhile, or with an error
                raise asyncio.CancelledError
            if self._followed:
                retry_ms = RETRY_FIRST_MS
            await asyncio.sleep(retry_ms / 1000)
            retry_ms = min(2 * retry_ms, self._slave.config.reconnect_interval_ms)

    @property
    def is_connected(self) -> bool:
        return self.state is HaState.TRANSFER

    def rate_bytes_s(self) -> int:
        """Since this master is followed."""
        life_ns = self._clock.monotonic_ns() - self._began_ns
        return self.transferred_bytes * 1_000_000_000 // max(1, life_ns)

    async def _session(self) -> None:
        self.state = HaState.READY
        if self._slave.env.buggify("ha.connect_late"):
            await pause_ms(CONNECT_LATE_MS)
        await self._cut_incomplete_message()
        host, port = self._slave.dial(self.following.address)
        async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
            self._reader, self._writer = await asyncio.open_connection(host, port)
        try:
            self.state = HaState.HANDSHAKE
            truncated = await self._handshake()
            # KB-RKT-25: what reports is another thread, that a truncation wakes, and it says in
            # which state it finds the client.
            races = truncated and self._slave.env.has_bug("KB-RKT-25")
            await self._first_ack(self.state if races else HaState.TRANSFER)
            await self._follow()
        finally:
            self.state = HaState.READY
            self._writer.transport.abort()

    async def _follow(self) -> None:
        self.state, self._followed = HaState.TRANSFER, True
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._read_frames(), name="ha frames")
            loops.create_task(self._report(), name="ha report")

    # -- READY -------------------------------------------------------------------------------------

    async def _cut_incomplete_message(self) -> None:
        """truncateInvalidMsg. What is cut was never whole, so never acknowledged to a client."""
        store = self._store
        end = await end_of_whole_messages(store.log, search_start(self._slave.env, store))
        cut = end < store.log.max_offset
        if cut:
            await self._slave.truncate(end)
        if cut or not self._slave.env.has_bug("KB-RKT-A"):
            await uninterrupted(self._cache.truncate_suffix(end))

    # -- HANDSHAKE ---------------------------------------------------------------------------------

    async def _handshake(self) -> bool:
        """Whether this log was cut."""
        slave = self._slave
        self._write(packets.encode_slave_handshake(slave.handshake))
        async with asyncio.timeout(slave.config.housekeeping_interval_ms / 1000):
            header, entries = await self._master_handshake()
        oldest = max(self.following.epoch, self._cache.last_epoch)
        if header.epoch < oldest:
            raise HaProtocolError(f"it is of epoch {header.epoch}, older than {oldest}")
        slave.env.witness("followed", slave.group, header.epoch)
        return await self._truncate(entries, header.max_offset)

    async def _master_handshake(self) -> tuple[packets.MasterHandshake, tuple[EpochStart, ...]]:
        if self._slave.env.has_bug("KB-RKT-24"):
            return await self._master_handshake_at_once()
        header = packets.decode_master_handshake(
            await self._reader.readexactly(packets.MASTER_HANDSHAKE_BYTES)
        )
        body = await self._reader.readexactly(header.entries_bytes)
        return header, packets.decode_entries(body)

    async def _master_handshake_at_once(
        self,
    ) -> tuple[packets.MasterHandshake, tuple[EpochStart, ...]]:
        """KB-RKT-24: what the first read brings is taken for the whole packet."""
        data = await self._reader.read(READ_ONCE_BYTES)
        if len(data) < packets.MASTER_HANDSHAKE_BYTES:
            raise HaProtocolError("a handshake that is cut off")
        header = packets.decode_master_handshake(data[: packets.MASTER_HANDSHAKE_BYTES])
        body = data[packets.MASTER_HANDSHAKE_BYTES :]
        if len(body) < header.entries_bytes:
            raise HaProtocolError(f"a handshake with {len(body)} of {header.entries_bytes} bytes")
        return header, packets.decode_entries(body[: header.entries_bytes])

    async def _truncate(self, entries: tuple[EpochStart, ...], master_end: int) -> bool:
        """Cut this log where it may begin to differ from the master's; whether that was needed."""
        replicated, cache = self._store.log, self._cache
        if not cache.entries:
            if replicated.max_offset > replicated.min_offset:
                raise HaProtocolError("no epochs are known of this log, it can't be compared")
            return False
        point = cache.consistent_point(replicated.max_offset, entries, master_end)
        if point == epochs.NO_POINT:
            point = self._point_without_match(entries)
        truncated = point < replicated.max_offset
        if truncated:
            await self._slave.truncate(point)
        await uninterrupted(cache.truncate_suffix(point))
        return truncated

    def _point_without_match(self, entries: tuple[EpochStart, ...]) -> int:
        """Nothing is in common. Both logs begin at one offset, and differ from there on."""
        begin = self._cache.entries[0].start_offset
        comparable = bool(entries) and entries[0].start_offset <= begin
        if self._slave.env.has_bug("KB-RKT-22") or not comparable:
            raise HaProtocolError("no epoch in common: there is no consistent point")
        return begin

    # -- TRANSFER ----------------------------------------------------------------------------------

    async def _first_ack(self, state: HaState) -> None:
        """Where to go on from: all that is here, so all of it must be safe."""
        end = self._store.log.max_offset
        await self._safe(end)
        self._slave.env.witness("cut", end)
        self._acknowledge(end, state)
        await self._drain()

    async def _safe(self, end: int) -> None:
        if self._slave.acks_flushed:
            await self._store.log.flushed(end)
        else:
            await self._store.log.written(end)

    def _safe_offset(self) -> int:
        replicated = self._store.log
        return replicated.flushed_offset if self._slave.acks_flushed else replicated.written_offset

    async def _read_frames(self) -> None:
        silence_s = self._slave.config.housekeeping_interval_ms / 1000
        while True:
            async with asyncio.timeout(silence_s):
                header = packets.decode_transfer(
                    await self._reader.readexactly(packets.TRANSFER_BYTES)
                )
                body = await self._reader.readexactly(header.body_bytes)
            self.last_read_ns = self._clock.monotonic_ns()
            await self._take(header, body)

    async def _take(self, header: packets.Transfer, body: bytes) -> None:
        store = self._store
        end = store.log.max_offset
        if header.offset != end and end > store.log.min_offset:
            raise HaProtocolError(f"it pushes {header.offset}, this log ends at {end}")
        if body or self._slave.env.has_bug("KB-RKT-A"):
            await self._enter(header)
        if body:
            store.append_raw(header.offset, body)
            self.transferred_bytes += len(body)
            self._grown.set()
        store.set_confirm_offset(max(0, min(header.confirm_offset, store.log.max_offset)))
        if store.log.max_offset - store.log.written_offset > UNWRITTEN_BYTES_MAX:
            await store.log.written(store.log.max_offset)

    async def _enter(self, header: packets.Transfer) -> None:
        """The frame's epoch is the one in which bytes are written now."""
        last = self._cache.last
        entry = EpochStart(header.epoch, header.epoch_start_offset)
        if entry == last:
            return
        if self._slave.env.has_bug("KB-RKT-A"):  # KB-RKT-A: epoch_entry_on_heartbeat
            await uninterrupted(self._cache.append(entry))  # whether or not it fits
            return
        replicated = self._store.log
        is_new = replicated.max_offset == replicated.min_offset
        if not is_new and entry.start_offset != replicated.max_offset:
            raise HaProtocolError(f"it is in the midst of {entry}, this log's last is {last}")
        if not await uninterrupted(self._cache.append(entry)):
            raise HaProtocolError(f"{entry} does not follow {last}")

    async def _report(self) -> None:
        """Acknowledge what has become safe; when idle, what was acknowledged before."""
        idle_s = self._slave.config.heartbeat_interval_ms / 1000
        loop = asyncio.get_running_loop()
        while True:
            timer = loop.call_later(idle_s, self._grown.set)
            try:
                await self._grown.wait()
            finally:
                timer.cancel()
            self._grown.clear()
            await self._safe(self._store.log.max_offset)
            self._acknowledge(self._safe_offset())
            await self._drain()

    # -- writing -----------------------------------------------------------------------------------

    def _acknowledge(self, end: int, state: HaState = HaState.TRANSFER) -> None:
        slave, replicated = self._slave, self._store.log
        if slave.acks_flushed:
            slave.env.witness("holds", replicated.directory, replicated.segment_bytes, end)
        self._write(packets.encode_ack(end, state))

    def _write(self, data: bytes) -> None:
        self._writer.write(data)
        self.last_write_ns = self._clock.monotonic_ns()

    async def _drain(self) -> None:
        if not self._writer.transport.get_write_buffer_size():
            return
        async with asyncio.timeout(self._slave.config.housekeeping_interval_ms / 1000):
            await self._writer.drain()
