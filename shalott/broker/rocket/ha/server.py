"""HaServer: the master's side of HAService: it listens, and streams its log to slaves.

After store/ha/DefaultHAService.java; docs/protocols.md 1.3. Each connection has two tasks: one
reads reports, one sends. A frame is handed to the transport only when the one before has left it,
so no frame begins before the previous one is complete, and what a slow slave holds up is one batch.

Where transfer ends. Upstream sends what is in its page cache, flushed or not: a master that loses
power comes back without its unflushed tail, behind its slaves, and writes other bytes where they
have the old ones (KB-RKT-06). Here a slave never gets what its master could lose: under sync flush
transfer ends at the flushed end, so a slave is never ahead of its master whichever fault hits the
master; under async flush it ends at the written end, so that holds for kills, but not for power
losses, as upstream. With KB-RKT-06 it ends at the written end always.

Who a slave is. The wire has no identity. A peer's address is one as long as no two nodes of the
group share it; where they do (all on one machine) every connection is its own slave, as upstream
counts them, and one slave that reconnects counts twice until housekeeping ends its old connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from shalott.broker.base.env import Env
from shalott.broker.base.errors import StorageError, cannot_listen
from shalott.broker.base.listener import listen
from shalott.broker.rocket.commitlog.api import Log
from shalott.broker.rocket.commitlog.replica import HaConnectionInfo, HaStatus
from shalott.broker.rocket.config import RocketConfig, parse_address
from shalott.broker.rocket.ha.group_transfer import Ack
from shalott.broker.rocket.ha.packets import HaProtocolError, encode_frame
from shalott.broker.rocket.ha.session import Extent, MasterSession, Send, SessionRules

log = logging.getLogger("shalott.broker.ha")

READ_BYTES = 1 << 16
REFUSALS_KEPT = 16
# The longest that a connection's sender sleeps while the log stands still: the log's owner wakes it
# after every append, so this is no more than a belt beside braces.
IDLE_MS_MAX = 1000.0
WAIT_MS_MIN = 1.0  # a timer may fire a rounding error too early


@dataclass(frozen=True, slots=True)
class Refusal:
    """A connection that was ended for what the slave said."""

    address: str
    reason: str
    at_ns: int


class HaServer:
    """``on_ack`` is called when a slave has reported, has come or has gone. ``identify`` names the
    node behind a peer's address, "" if that is not certain.
    """

    def __init__(
        self,
        env: Env,
        store_log: Callable[[], Log],
        rules: SessionRules,
        *,
        flushed_only: bool,
        identify: Callable[[str], Awaitable[str]],
        on_ack: Callable[[], None],
    ) -> None:
        self.env = env
        self.rules = rules
        self.identify = identify
        self.on_ack = on_ack
        self.connections: list[HaConnection] = []
        self.refusals: list[Refusal] = []
        self._store_log = store_log
        self._flushed_only = flushed_only
        self._serving = False
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._tasks: dict[HaConnection, asyncio.Task[None]] = {}

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ConfigError if the port is taken."""
        try:
            self._server = await listen(self._accepted, host, port)
        except OSError as error:
            raise cannot_listen("HAService", host, port, "ha port", error) from error

    async def stop(self) -> None:
        self.serve(False)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None  # it may not have begun
        if self._server is not None:
            self._server.close()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await self._server.wait_closed()

    def serve(self, serving: bool) -> None:
        """Whether this is a master now; when it is one no more, all connections end."""
        self._serving = serving
        if not serving:
            for connection in list(self._tasks):
                connection.close()

    def wake(self) -> None:
        """The log has grown: senders go on as soon as it may be transferred."""
        if self._watching is None and self.connections:
            self._watching = asyncio.create_task(self._watch(), name="HA transferable")

    async def _watch(self) -> None:
        """One wait for all senders, until all that was appended may be transferred."""
        try:
            while True:
                extent = self.extent()
                for connection in self.connections:
                    if connection.session.next_transfer_from < extent.end:
                        connection.grown.set()
                if extent.end >= extent.max or not self.connections:
                    return
                await self.transferable(extent.max)
        except StorageError:
            return  # cut, closed or broken: the mending of it wakes us again
        finally:
            self._watching = None

    def extent(self) -> Extent:
        store_log = self._store_log()
        end = store_log.flushed_offset if self._flushed_only else store_log.written_offset
        return Extent(store_log.min_offset, end, store_log.max_offset)

    async def transferable(self, offset: int) -> None:
        """Return when transfer may go up to ``offset``. Raises StorageError."""
        store_log = self._store_log()
        await (store_log.flushed(offset) if self._flushed_only else store_log.written(offset))

    async def read(self, offset: int, size: int) -> bytes:
        return await self._store_log().read(offset, size)

    def acks(self) -> Iterable[Ack]:
        return [Ack(each.slave, each.session.slave_ack_offset) for each in self.connections]

    def push_to_slave_max_offset(self) -> int:
        """The furthest that any connected slave has acknowledged; -1: nothing."""
        return max([each.session.slave_ack_offset for each in self.connections], default=-1)

    def status(self, max_gap_bytes: int) -> HaStatus:
        """The master's part of GET_BROKER_HA_STATUS."""
        end = self._store_log().max_offset
        infos = [each.status(end, max_gap_bytes) for each in self.connections]
        return {
            "master": True,
            "masterCommitLogMaxOffset": end,
            "inSyncSlaveNums": sum(info["inSync"] for info in infos),
            "haConnectionInfo": infos,
            "refused": [{"addr": each.address, "reason": each.reason} for each in self.refusals],
        }

    def refused(self, address: str, reason: str) -> None:
        now_ns = self.env.clock.monotonic_ns()
        self.refusals = [*self.refusals, Refusal(address, reason, now_ns)][-REFUSALS_KEPT:]
        log.warning("the HA connection of %s ends: %s", address, reason)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._serving:
            writer.transport.abort()
            return
        connection = HaConnection(self, reader, writer)
        task = asyncio.create_task(connection.run(), name=f"HA {connection.address}")
        self._tasks[connection] = task
        task.add_done_callback(lambda _: self._tasks.pop(connection, None))


class HaConnection:
    """One slave's connection, from its acceptance to its end."""

    def __init__(
        self, server: HaServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        peer = writer.get_extra_info("peername") or ("?", 0)
        self.address = f"{peer[0]}:{peer[1]}"
        self.slave = self.address
        self.grown = asyncio.Event()  # there may be something to send
        self._server = server
        self._reader = reader
        self._writer = writer
        self._heard_ms = 0.0
        self._silent = False
        self._silence_timer: asyncio.TimerHandle | None = None
        self.session = MasterSession(server.rules, self._now_ms())
        writer.transport.set_write_buffer_limits(high=0)  # drain: until the frame has left

    async def run(self) -> None:
        server = self._server
        self.slave = await server.identify(self.address.rpartition(":")[0]) or self.address
        server.connections.append(self)
        reading = asyncio.create_task(self._read(), name=f"HA reader {self.address}")
        sending = asyncio.create_task(self._send(), name=f"HA sender {self.address}")
        try:
            await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.close()
            if self._silence_timer is not None:
                self._silence_timer.cancel()
            server.connections.remove(self)
            reading.cancel()
            sending.cancel()
            endings = await asyncio.gather(reading, sending, return_exceptions=True)
            server.on_ack()
        for ending in endings:
            if isinstance(ending, HaProtocolError):
                server.refused(self.address, str(ending))
            elif not isinstance(
                ending, (OSError, StorageError, asyncio.CancelledError, type(None))
            ):
                raise ending

    def close(self) -> None:
        self._writer.transport.abort()

    def status(self, end: int, max_gap_bytes: int) -> HaConnectionInfo:
        session = self.session
        gap = end - session.slave_ack_offset
        return {
            "addr": self.address,
            "slave": self.slave,
            "slaveAckOffset": session.slave_ack_offset,
            "diff": gap,
            "inSync": session.slave_ack_offset >= 0 and 0 <= gap < max_gap_bytes,
            "transferredByteInSecond": 0,  # upstream's rate; ours counts them all, below
            "transferredBytes": session.transferred_bytes,
            "transferFromWhere": session.next_transfer_from,
        }

    async def _read(self) -> None:
        """Until the connection ends, or the slave is silent for too long: the sender may hang
        on a connection that is half open.
        """
        self._heard_ms = self._now_ms()
        self._watch_silence()
        while data := await self._reader.read(READ_BYTES):
            self._heard_ms = self._now_ms()
            was_known = self.session.slave_request_offset >= 0
            if self.session.received(data, self._server.extent(), self._heard_ms):
                if not was_known:
                    self.grown.set()
                self._server.on_ack()
        if self._silent:
            raise HaProtocolError("the slave is silent")

    def _watch_silence(self) -> None:
        left_ms = self._heard_ms + self._server.rules.housekeeping_interval_ms - self._now_ms()
        if left_ms <= 0:
            self._silent = True
            self.close()
        else:
            delay_s = max(WAIT_MS_MIN, left_ms) / 1000
            loop = asyncio.get_running_loop()
            self._silence_timer = loop.call_later(delay_s, self._watch_silence)

    async def _send(self) -> None:
        while True:
            self.grown.clear()
            step = self.session.next_step(self._server.extent(), self._now_ms())
            if isinstance(step, Send):
                await self._send_frame(step)
            else:
                await self._sleep(step.until_ms)

    async def _send_frame(self, step: Send) -> None:
        body = await self._server.read(step.offset, step.size) if step.size else b""
        if step.size and not body:
            raise HaProtocolError(f"the log can't be read at {step.offset}")
        self._writer.write(encode_frame(step.offset, body))
        await self._writer.drain()
        self.session.sent(step, len(body), self._now_ms())

    async def _sleep(self, until_ms: float) -> None:
        extent = self._server.extent()
        if extent.end < extent.max:
            self._server.wake()
        idle_ms = min(max(WAIT_MS_MIN, until_ms - self._now_ms()), IDLE_MS_MAX)
        timer = asyncio.get_running_loop().call_later(idle_ms / 1000, self.grown.set)
        try:
            await self.grown.wait()
        finally:
            timer.cancel()

    def _now_ms(self) -> float:
        return self._server.env.clock.monotonic_ns() / 1e6


# -- names of slaves -------------------------------------------------------------------------------
# PeerNames: which node is behind the address that an HA connection comes from.
#
# The wire says nothing about who a slave is. A host's address does, as long as no two nodes of
# the group share it.


class PeerNames:
    def __init__(self, config: RocketConfig) -> None:
        self._hosts = {
            peer.name: parse_address(peer.advertised["ha"])
            for peer in config.peers
            if "ha" in peer.advertised
        }
        self._own = config.advertised.get("ha", "")

    async def name_of(self, address: str) -> str:
        """The one node at this address; "" if there is none, or more than one."""
        names = [name for name, where in self._hosts.items() if address in await _resolved(*where)]
        if self._own and address in await _resolved(*parse_address(self._own)):
            return ""
        return names[0] if len(names) == 1 else ""


async def _resolved(host: str, port: int) -> list[str]:
    """The addresses of a host; none if its name means nothing now."""
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port)
    except OSError:
        return []
    return [str(info[4][0]) for info in infos]
