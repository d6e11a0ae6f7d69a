"""HaClient: the slave's side of HAService: it asks for its master's log and appends what it gets.

After store/ha/DefaultHAClient.java; docs/protocols.md 1.4. The end of its own log is all that a
slave says, as request, acknowledgement and heartbeat at once. A frame that does not begin at the
end of the slave's log ends the connection; an empty log takes what comes first.

What a report promises. A slave reports what is in its operating system's hands (upstream: what is
in its page cache, which is the same): its kill takes nothing back. Its power loss may, and then the
master is the one who has it, flushed if it flushes; both at once are two faults.

Where ours differs: housekeeping looks at what was read only. Upstream takes the slave's own reports
for a sign of life, so that a half-open connection lives as long as reports can be buffered. With
KB-RKT-02 it looks at bodies alone, and drops a connection on which nothing but heartbeats went.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import BrokerError, DiskFull, StorageError
from shalott.broker.rocket.commitlog.api import Store
from shalott.broker.rocket.commitlog.replica import HaClientInfo
from shalott.broker.rocket.ha.packets import Frame, FrameReader, HaProtocolError, encode_report

log = logging.getLogger("shalott.broker.ha")

READ_BYTES = 1 << 17
UNREPORTED = -1
WAIT_MS_MIN = 1.0  # a timer may fire a rounding error too early


@dataclass(frozen=True, slots=True)
class ClientRules:
    """Times in ms."""

    heartbeat_interval_ms: float
    housekeeping_interval_ms: float
    reconnect_interval_ms: float
    ignores_heartbeats: bool = False  # KB-RKT-02


class HaClient:
    """Follows one master until ``stop``. ``dial`` says where it is now; ``fail`` ends the node."""

    def __init__(
        self,
        env: Env,
        store: Store,
        rules: ClientRules,
        dial: Callable[[], tuple[str, int]],
        fail: Callable[[str], None],
    ) -> None:
        self.env = env
        self.rules = rules
        self.connected = False
        self.reason = ""  # why the last connection ended
        self.transferred_bytes = 0
        self._store = store
        self._dial = dial
        self._fail = fail
        self._task: asyncio.Task[None] | None = None
        self._last_read_ms = self._last_write_ms = 0.0

    def start(self) -> None:
        self._task = asyncio.create_task(self._follow(), name="HA client")

    async def stop(self) -> None:
        """Nothing is appended after it returns."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def status(self, master: str) -> HaClientInfo:
        """haClientRuntimeInfo of GET_BROKER_HA_STATUS."""
        return {
            "masterAddr": master,
            "maxOffset": self._store.log.max_offset,
            "lastReadTimestamp": int(self._last_read_ms),
            "lastWriteTimestamp": int(self._last_write_ms),
            "transferredByteInSecond": 0,  # upstream's rate; ours counts them all, below
            "transferredBytes": self.transferred_bytes,
            "masterFlushOffset": 0,
            "isActivated": self.connected,
            "reason": self.reason,
        }

    async def _follow(self) -> None:
        while True:
            try:
                await self._one_connection()
            except DiskFull as error:
                self.reason = str(error)
            except StorageError as error:
                self._fail(f"the slave's log can't be written: {error}")
                return
            except (OSError, BrokerError, TimeoutError) as error:
                self.reason = str(error) or type(error).__name__
            log.info("the HA connection to the master ended: %s", self.reason)
            await pause_ms(self.rules.reconnect_interval_ms)

    async def _one_connection(self) -> None:
        host, port = self._dial()
        async with asyncio.timeout(self.rules.reconnect_interval_ms / 1000):
            reader, writer = await asyncio.open_connection(host, port)
        self.connected = True
        try:
            await _SlaveConnection(self, self._store, reader, writer).run()
        finally:
            self.connected = False
            writer.transport.abort()

    def note_read(self, at_ms: float) -> None:
        self._last_read_ms = at_ms

    def note_write(self, at_ms: float) -> None:
        self._last_write_ms = at_ms


class _SlaveConnection:
    """One connection, from its first report to its end."""

    def __init__(
        self,
        client: HaClient,
        store: Store,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._client = client
        self._store = store
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._reported = UNREPORTED
        self._reading = False
        self._silent = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_alive_ms = self._last_report_ms = self._now_ms()

    async def run(self) -> None:
        """Raises for all that ends the connection."""
        await self._store.log.written(self._store.log.max_offset)
        self._report()
        self._set_timer()
        try:
            while True:
                for frame in self._frames.feed(await self._read()):
                    self._take(frame)
                await self._store.log.written(self._store.log.max_offset)
                if self._store.log.written_offset > self._reported or self._report_due_ms() <= 0:
                    self._report()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _set_timer(self) -> None:
        """For the next heartbeat, or the end of a master that is silent."""
        left_ms = self._silent_at_ms() - self._now_ms()
        wait_ms = max(WAIT_MS_MIN, min(left_ms, self._report_due_ms()))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_ms / 1000, self._time_is_up)

    def _time_is_up(self) -> None:
        """A slave that waits for its disk says nothing."""
        if self._silent_at_ms() <= self._now_ms():
            self._silent = True
            self._writer.transport.abort()
            return
        if self._reading and self._report_due_ms() <= 0:
            self._report()
        self._set_timer()

    async def _read(self) -> bytes:
        """What the master sent."""
        self._reading = True
        try:
            data = await self._reader.read(READ_BYTES)
        finally:
            self._reading = False
        if not data:
            silent = self._silent
            raise HaProtocolError(f"the master {'is silent' if silent else 'ended the connection'}")
        if not self._client.rules.ignores_heartbeats:
            self._last_alive_ms = self._now_ms()
        self._client.note_read(self._client.env.clock.wall_ns() / 1e6)
        return data

    def _take(self, frame: Frame) -> None:
        own_end = self._store.log.max_offset
        if own_end not in (0, frame.offset):
            raise HaProtocolError(
                f"the master pushes offset {frame.offset}, this log ends at {own_end}"
            )
        if frame.body:
            self._last_alive_ms = self._now_ms()
            self._store.append_raw(frame.offset, frame.body)
            self._client.transferred_bytes += len(frame.body)

    def _report(self) -> None:
        self._reported = self._store.log.written_offset
        self._last_report_ms = self._now_ms()
        self._client.note_write(self._client.env.clock.wall_ns() / 1e6)
        self._writer.write(encode_report(self._reported))

    def _report_due_ms(self) -> float:
        return self._last_report_ms + self._client.rules.heartbeat_interval_ms - self._now_ms()

    def _silent_at_ms(self) -> float:
        return self._last_alive_ms + self._client.rules.housekeeping_interval_ms

    def _now_ms(self) -> float:
        return self._client.env.clock.monotonic_ns() / 1e6
