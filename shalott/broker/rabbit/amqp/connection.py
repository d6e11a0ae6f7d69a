"""Connection: the process behind one client's TCP connection.

Two tasks share it. The *reader* (``_serve``) shakes hands, reads frames and hands commands to
channels; the process itself handles what comes from inside the node: ends of channels, heartbeat
ticks, orders to close. All exits meet in ``_release``: the channels end first (so that what they
held unsettled goes back to its queues), then the connection's exclusive queues are deleted, and
only then close-ok is sent.

Once the node has sent connection.close, only the client's close-ok is of interest, and not for
long: ``CLOSE_TIMEOUT_MS``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

import msgspec
from pamqp import commands

from shalott.broker.base.env import Clock
from shalott.broker.base.errors import BrokerError
from shalott.broker.rabbit.amqp.alarms import Throttle
from shalott.broker.rabbit.amqp.channel import Channel
from shalott.broker.rabbit.amqp.channel_table import ChannelTable, blame
from shalott.broker.rabbit.amqp.client_socket import CLOSE_TIMEOUT_MS, ClientSocket, is_end
from shalott.broker.rabbit.amqp.errors import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    FRAME_ERROR,
    AmqpError,
)
from shalott.broker.rabbit.amqp.exchanges import Router
from shalott.broker.rabbit.amqp.handshake import Agreement, shake_hands
from shalott.broker.rabbit.amqp.login import Login, LoginRefused
from shalott.broker.rabbit.amqp.services import ChannelInfo, Port, Services, Session
from shalott.broker.rabbit.amqp.wire import (
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    Frame,
    Method,
    decode_method,
)
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Down, Message, Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.turns import Turn

log = logging.getLogger("shalott.broker.amqp")

HANDSHAKE_TIMEOUT_MS = 10_000
GOODBYE_S = 30  # for the client to close, or a heartbeat's interval (rabbit_reader.erl)
CHANNEL_GRACE_MS = 2_000  # for channels to end by themselves
CLEANUP_TIMEOUT_MS = 5_000  # for the deletion of exclusive queues

_CHANNEL_OPEN = commands.Channel.Open.index.to_bytes(4, "big")

State = Literal["starting", "running", "closing", "closed"]


class HeartbeatTick(Message, frozen=True):
    """connection -> itself, twice an interval."""


class CloseTimeout(Message, frozen=True):
    """connection -> itself: the client has had its time."""


class Served(Message, frozen=True):
    """reader -> connection: it is all over."""


class ConnectionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A live connection, as the management API shows it."""

    name: str
    pid: Pid
    user: str
    vhost: str
    state: State | Literal["blocking", "blocked"]
    channels: int
    peer_host: str
    peer_port: int
    connected_at_ns: int  # on the node's wall clock
    host: str = ""
    port: int = 0
    mechanism: str = ""
    client_properties: dict[str, object] = {}
    channel_max: int = 0
    frame_max: int = 0
    timeout_s: int = 0  # of heartbeats
    received: int = 0  # frames
    received_bytes: int = 0
    sent: int = 0  # writes
    sent_bytes: int = 0
    unsent_bytes: int = 0
    tls: dict[str, object] = {}


class Heartbeats:
    """What a connection sends now and then, and how long it bears that nothing comes
    (rabbit_heartbeat.erl).
    """

    def __init__(
        self, connection: Process, socket: ClientSocket, throttle: Throttle, clock: Clock
    ) -> None:
        self.reading_paused = False
        self._connection = connection
        self._socket = socket
        self._throttle = throttle
        self._clock = clock
        self._interval_s = 0

    def begin(self, interval_s: int) -> None:
        """0: without heartbeats."""
        self._interval_s = interval_s
        self._schedule()

    def tick(self) -> None:
        """Twice an interval."""
        interval_ns = self._interval_s * 1_000_000_000
        now_ns = self._clock.monotonic_ns()
        if self.reading_paused:
            self._socket.last_read_ns = now_ns  # its heartbeats may be waiting in the socket
            if self._socket.is_closing:
                self._throttle.release()  # the client is gone, which reading would have told
        if now_ns - self._socket.last_read_ns > 2 * interval_ns:
            log.warning("connection %s missed its heartbeats", self._socket.name)
            self._socket.abort()
            return
        if now_ns - self._socket.last_write_ns >= interval_ns // 2:
            self._socket.write(HEARTBEAT_FRAME)
        self._schedule()

    def _schedule(self) -> None:
        if self._interval_s:
            self._connection.after(self._interval_s * 500, HeartbeatTick())


class Connection(Process):
    """Spawned by the listener for each accepted socket."""

    def __init__(
        self,
        services: Services,
        router: Router,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_end: Callable[[Pid], None],
    ) -> None:
        super().__init__()
        self._services = services
        self._router = router
        self._on_end = on_end
        self._clock = services.env.clock
        self._state: State = "starting"
        self._agreement: Agreement | None = None
        self._channels: ChannelTable | None = None  # made when there is a pid
        self._owes_close_ok = False
        self._throttle = Throttle(services.alarms)
        self._socket = ClientSocket(
            reader, writer, self._clock, services.config.frame_max, services.runtime.turns.has_woken
        )
        self._login = Login(services, str(self._socket.peer[0]), self._socket.certificate)
        self._heartbeats = Heartbeats(self, self._socket, self._throttle, self._clock)
        self._connected_at_ns = self._clock.wall_ns()

    # -- for the listener --------------------------------------------------------------------------

    def info(self) -> ConnectionInfo:
        socket, agreed = self._socket, self._agreement
        peer_host, peer_port = socket.peer[:2]
        return ConnectionInfo(
            name=socket.name,
            pid=self.pid,
            user="" if agreed is None else agreed.user,
            vhost="" if agreed is None else agreed.vhost,
            state=self._throttle.state if self._state == "running" else self._state,
            channels=len(self._table),
            peer_host=peer_host,
            peer_port=peer_port,
            connected_at_ns=self._connected_at_ns,
            host=socket.local_host,
            port=socket.local_port,
            mechanism="" if agreed is None else agreed.mechanism,
            client_properties={} if agreed is None else agreed.client_properties,
            channel_max=0 if agreed is None else agreed.channel_max,
            frame_max=socket.frame_max,
            timeout_s=0 if agreed is None else agreed.heartbeat_s,
            received=socket.received,
            received_bytes=socket.received_bytes,
            sent=socket.sent,
            sent_bytes=socket.sent_bytes,
            unsent_bytes=socket.unsent,
            tls=socket.tls,
        )

    def channels(self) -> list[ChannelInfo]:
        return self._table.infos()

    def fail(self, error: AmqpError) -> None:
        """Close with ``error``: tell the client, end the channels. For anyone in the node."""
        if self._state in ("closing", "closed"):
            return
        self._state = "closing"
        self._throttle.release()
        why = error.why if isinstance(error, LoginRefused) else error
        log.warning("closing connection %s: %s", self._socket.name, why)
        if not isinstance(error, LoginRefused) or error.tell:
            close = commands.Connection.Close(
                error.code, error.reply_text, error.class_id, error.method_id
            )
            self._socket.write_method(close)
        else:
            self._socket.close()
        self.after(CLOSE_TIMEOUT_MS, CloseTimeout())
        self._table.end_all()

    # -- for channels ------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._state == "running"

    def write(self, data: bytes) -> None:
        self._socket.write(data)

    @property
    def frame_max(self) -> int:
        return self._socket.frame_max

    async def write_and_drain(self, data: bytes) -> None:
        """Write, and wait while the client is slow to read. Dropped unless running."""
        if not self.running:
            return
        self.write(data)
        try:
            await self._socket.drain()
        except ConnectionError:
            pass  # the reader sees it too, and ends everything

    @property
    def _table(self) -> ChannelTable:
        if self._channels is None:
            self._channels = ChannelTable(self.runtime, self.pid, self, self._create_channel)
        return self._channels

    # -- the process -------------------------------------------------------------------------------

    async def run(self) -> None:
        serving = asyncio.create_task(self._serve(), name=f"reader of {self.pid}")
        try:
            await super().run()
        finally:
            self._state = "closed"
            serving.cancel()
            self._table.end_all()
            self._socket.abort()
            self._on_end(self.pid)
            await asyncio.wait([serving])
            if not serving.cancelled() and serving.exception() is not None:
                log.error(
                    "the reader of %s crashed", self._socket.name, exc_info=serving.exception()
                )

    async def handle(self, message: Message) -> None:
        match message:
            case Down():
                self._table.on_down(message)
            case HeartbeatTick():
                self._heartbeats.tick()
            case CloseTimeout():
                self._socket.abort()
            case Served():
                self.exit("normal")

    # -- the reader --------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            await self._converse()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if self._state != "closed":  # else: killed
                await self._release()
                if self._owes_close_ok:
                    agreed_s = 0 if self._agreement is None else self._agreement.heartbeat_s
                    self._socket.write_method(commands.Connection.CloseOk())
                    await self._socket.await_end(min(agreed_s or GOODBYE_S, GOODBYE_S))
                await self._socket.hang_up()
                self.deliver(Served())

    async def _converse(self) -> None:
        """Until the client has closed, or there is nothing more to read."""
        try:
            if not await self._open():
                return
            await self._read_commands()
        except AmqpError as error:
            self.fail(error)
            desynchronised = error.code == FRAME_ERROR
            await (self._socket.discard() if desynchronised else self._socket.await_close_ok())

    async def _open(self) -> bool:
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
                header = await self._socket.read_exactly(len(PROTOCOL_HEADER))
                if header != PROTOCOL_HEADER:
                    self.write(PROTOCOL_HEADER)  # what we would have liked to hear
                    return False
                self._agreement = await shake_hands(
                    self._services.config,
                    self._send_method,
                    self._socket.receive_method,
                    self._login,
                    self.pid,
                )
        except TimeoutError:
            log.warning("connection %s took too long to open", self._socket.name)
            return False
        self._socket.frame_max = self._agreement.frame_max
        self._table.channel_max = self._agreement.channel_max
        if self._state == "starting":  # and not closed by the node meanwhile
            self._state = "running"
        self._heartbeats.begin(self._agreement.heartbeat_s)
        return True

    async def _send_method(self, method: Method) -> None:
        if self._state == "starting":
            self._socket.write_method(method)
            await self._socket.drain()

    async def _read_commands(self) -> None:
        turn = Turn(self.runtime.turns)
        while True:
            frame = await self._socket.next_frame()
            if turn.is_over():
                await turn.end()
            if self._state != "running":
                if is_end(frame):
                    return
            elif frame.kind == HEARTBEAT:
                pass
            elif frame.channel != 0:
                await self._on_channel_frame(frame)
            elif self._on_connection_frame(frame):
                return

    def _on_connection_frame(self, frame: Frame) -> bool:
        """Whether the client closes the connection."""
        if frame.kind != METHOD:
            raise AmqpError(CHANNEL_ERROR, "content on channel 0")
        method = decode_method(frame.payload)
        if isinstance(method, commands.Connection.Close):
            self._owes_close_ok = True
            return True
        if isinstance(method, commands.Connection.UpdateSecret):
            # Users of a name and a password have no secret that expires (rabbit_reader.erl).
            self._socket.write_method(commands.Connection.UpdateSecretOk())
            return False
        text = f"{method.name} makes no sense on channel 0 of an open connection"
        raise blame(AmqpError(COMMAND_INVALID, text), method)

    async def _on_channel_frame(self, frame: Frame) -> None:
        if frame.kind == METHOD and frame.payload.startswith(_CHANNEL_OPEN):
            assert self._agreement is not None
            await self._login.check_channel(self._agreement.user, self.pid)
        channel = self._table.on_frame(frame)
        if channel is not None and not channel.backlog.has_room:
            self._heartbeats.reading_paused = True
            await channel.backlog.room()
            self._heartbeats.reading_paused = False
        if frame.kind != METHOD and self._throttle.stops_content:
            self._heartbeats.reading_paused = True
            await self._throttle.wait(self._tell_blocking)
            self._heartbeats.reading_paused = False

    def _tell_blocking(self, method: Method) -> None:
        assert self._agreement is not None
        if self.running and self._agreement.capabilities.get("connection.blocked") is True:
            self._socket.write_method(method)

    def _create_channel(self, port: Port) -> Channel:
        assert self._agreement is not None
        notify = self._agreement.capabilities.get("consumer_cancel_notify") is True
        session = Session(self.pid, self._agreement.user, self._agreement.vhost, notify)
        return Channel(self._services, session, port, self._router)

    # -- the end -----------------------------------------------------------------------------------

    async def _release(self) -> None:
        """End what belongs to the connection."""
        if self._state != "closed":
            self._state = "closing"
        self._table.end_all()
        await self._table.all_ended(grace_ms=CHANNEL_GRACE_MS)
        try:
            async with asyncio.timeout(CLEANUP_TIMEOUT_MS / 1000):
                await self._delete_exclusive_queues()
        except (TimeoutError, BrokerError) as error:
            log.warning("exclusive queues of %s were not deleted: %s", self._socket.name, error)

    async def _delete_exclusive_queues(self) -> None:
        for _, row in self._services.metadata.rows("queue"):
            if isinstance(row, QueueRow) and row.exclusive_owner == self.pid:
                await self._services.queues.remove(row)
