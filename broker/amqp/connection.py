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

from broker.amqp.assembler import Assembler
from broker.amqp.channel import Channel
from broker.amqp.errors import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    FRAME_ERROR,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    AmqpError,
)
from broker.amqp.exchanges import Router
from broker.amqp.handshake import Agreement, LoginRefused, shake_hands
from broker.amqp.queue_methods import remove_queue
from broker.amqp.services import ConnectionGone, Services, Session
from broker.amqp.wire import (
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    Frame,
    Method,
    content_frames,
    decode_method,
    encode_frame,
    encode_method,
    read_frame,
)
from broker.errors import BrokerError
from broker.metadata.records import QueueRow
from broker.processes.messages import Down, Message, Pid
from broker.processes.process import Process

log = logging.getLogger("broker.amqp")

HANDSHAKE_TIMEOUT_MS = 10_000
CLOSE_TIMEOUT_MS = 2_000  # for the client's close-ok, and for the last bytes to leave
CHANNEL_GRACE_MS = 2_000  # for channels to end by themselves
CLEANUP_TIMEOUT_MS = 5_000  # for the deletion of exclusive queues

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
    state: State
    channels: int
    peer_host: str
    peer_port: int
    connected_at_ns: int  # on the node's wall clock


class ChannelPort:
    """One channel's way to the client (broker.amqp.services.Port)."""

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._number = number

    async def send(self, method: Method) -> None:
        await self.send_payload(encode_method(method))

    async def send_payload(self, payload: bytes) -> None:
        await self._connection.send_frames(encode_frame(METHOD, self._number, payload))

    async def send_content(self, payload: bytes, properties: bytes, body: bytes) -> None:
        frame_max = self._connection.frame_max
        content = content_frames(self._number, properties, body, frame_max)
        frames = (encode_frame(METHOD, self._number, payload), *content)
        await self._connection.send_frames(b"".join(frames))

    def closed(self) -> None:
        self._connection.channel_closed(self._number)

    def failed(self, error: Exception) -> None:
        assert isinstance(error, AmqpError)
        self._connection.channel_failed(self._number, error)


class _OpenChannel:
    """A channel number in use."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.assembler = Assembler()


class _ClosingChannel:
    """A channel number whose channel failed: everything but the client's close-ok is discarded."""

    def __init__(self) -> None:
        self.closed_by_client_too = False


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
        self._reader = reader
        self._writer = writer
        self._on_end = on_end
        self._clock = services.env.clock
        self._state: State = "starting"
        self._agreement: Agreement | None = None
        self.frame_max = services.config.frame_max
        self._channels: dict[int, _OpenChannel | _ClosingChannel] = {}
        self._alive: dict[Pid, Channel] = {}
        self._no_channels = asyncio.Event()
        self._no_channels.set()
        self._owes_close_ok = False
        self._reading_paused = False
        self._last_read_ns = self._last_write_ns = self._clock.monotonic_ns()
        self._connected_at_ns = self._clock.wall_ns()
        self._peer = writer.get_extra_info("peername") or ("unknown", 0)
        self._local = writer.get_extra_info("sockname") or ("unknown", 0)

    # -- for the listener --------------------------------------------------------------------------

    def info(self) -> ConnectionInfo:
        peer_host, peer_port = self._peer[:2]
        local_host, local_port = self._local[:2]
        return ConnectionInfo(
            name=f"{peer_host}:{peer_port} -> {local_host}:{local_port}",
            pid=self.pid,
            user="" if self._agreement is None else self._agreement.user,
            vhost="" if self._agreement is None else self._agreement.vhost,
            state=self._state,
            channels=len(self._alive),
            peer_host=peer_host,
            peer_port=peer_port,
            connected_at_ns=self._connected_at_ns,
        )

    def fail(self, error: AmqpError) -> None:
        """Close with ``error``: tell the client, end the channels. For anyone in the node."""
        if self._state in ("closing", "closed"):
            return
        self._state = "closing"
        log.warning("closing connection %s: %s", self.info().name, error)
        if not isinstance(error, LoginRefused) or error.tell:
            close = commands.Connection.Close(
                error.code, error.reply_text, error.class_id, error.method_id
            )
            self._write(encode_frame(METHOD, 0, encode_method(close)))
        else:
            self._writer.close()
        self.after(CLOSE_TIMEOUT_MS, CloseTimeout())
        self._end_channels()

    # -- for channels ------------------------------------------------------------------------------

    async def send_frames(self, data: bytes) -> None:
        """Write, and wait while the client is slow to read."""
        if self._state != "running":
            return
        self._write(data)
        try:
            await self._writer.drain()
        except ConnectionError:
            pass  # the reader sees it too, and ends everything

    def channel_closed(self, number: int) -> None:
        self._channels.pop(number, None)
        if self._state == "running":
            self._write(encode_frame(METHOD, number, encode_method(commands.Channel.CloseOk())))

    def channel_failed(self, number: int, error: AmqpError) -> None:
        if error.hard:
            self.fail(error)
            return
        self._channels[number] = _ClosingChannel()
        if self._state == "running":
            close = commands.Channel.Close(
                error.code, error.reply_text, error.class_id, error.method_id
            )
            self._write(encode_frame(METHOD, number, encode_method(close)))

    # -- the process -------------------------------------------------------------------------------

    async def run(self) -> None:
        serving = asyncio.create_task(self._serve(), name=f"reader of {self.pid}")
        try:
            await super().run()
        finally:
            self._state = "closed"
            serving.cancel()
            self._end_channels()
            self._writer.transport.abort()
            self._on_end(self.pid)
            await asyncio.wait([serving])

    async def handle(self, message: Message) -> None:
        match message:
            case Down():
                self._on_channel_down(message)
            case HeartbeatTick():
                self._on_heartbeat_tick()
            case CloseTimeout():
                self._writer.transport.abort()
            case Served():
                self.exit("normal")

    def _on_channel_down(self, message: Down) -> None:
        channel = self._alive.pop(message.pid, None)
        if channel is not None:
            channel.make_room()
        if not self._alive:
            self._no_channels.set()
        if message.reason.startswith("crash"):
            self.fail(AmqpError(INTERNAL_ERROR, f"a channel failed: {message.reason}"))

    def _on_heartbeat_tick(self) -> None:
        assert self._agreement is not None
        interval_ns = self._agreement.heartbeat_s * 1_000_000_000
        now_ns = self._clock.monotonic_ns()
        if self._reading_paused:
            self._last_read_ns = now_ns  # its heartbeats may be waiting in the socket
        if now_ns - self._last_read_ns > 2 * interval_ns:
            log.warning("connection %s missed its heartbeats", self.info().name)
            self._writer.transport.abort()
            return
        if now_ns - self._last_write_ns >= interval_ns // 2:
            self._write(HEARTBEAT_FRAME)
        self._schedule_heartbeat()

    def _schedule_heartbeat(self) -> None:
        assert self._agreement is not None
        if self._agreement.heartbeat_s:
            self.after(self._agreement.heartbeat_s * 500, HeartbeatTick())

    # -- the reader --------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            await self._converse()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception:
            # A bug of ours must not leave a connection that nobody reads.
            log.exception("the reader of %s crashed", self.info().name)
        try:
            await self._release()
            await self._hang_up()
        finally:
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
            await (self._discard() if desynchronised else self._await_close_ok())

    async def _open(self) -> bool:
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
                header = await self._reader.readexactly(len(PROTOCOL_HEADER))
                if header != PROTOCOL_HEADER:
                    self._write(PROTOCOL_HEADER)  # what we would have liked to hear
                    return False
                self._agreement = await shake_hands(
                    self._services.config, self._send_method, self._receive_method
                )
        except TimeoutError:
            log.warning("connection %s took too long to open", self.info().name)
            return False
        self.frame_max = self._agreement.frame_max
        if self._state == "starting":  # and not closed by the node meanwhile
            self._state = "running"
        self._schedule_heartbeat()
        return True

    async def _send_method(self, method: Method) -> None:
        if self._state == "starting":
            self._write(encode_frame(METHOD, 0, encode_method(method)))
            await self._writer.drain()

    async def _receive_method(self) -> Method:
        while True:
            frame = await self._next_frame()
            if frame.kind == HEARTBEAT:
                continue
            if frame.kind != METHOD or frame.channel != 0:
                text = f"a frame of type {frame.kind} on channel {frame.channel} while opening"
                raise AmqpError(COMMAND_INVALID, text)
            return decode_method(frame.payload)

    async def _next_frame(self) -> Frame:
        frame = await read_frame(self._reader, self.frame_max)
        self._last_read_ns = self._clock.monotonic_ns()
        return frame

    async def _read_commands(self) -> None:
        while True:
            frame = await self._next_frame()
            if self._state != "running":
                if _is_end(frame):
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
            raise _blame(AmqpError(NOT_IMPLEMENTED, "connection.update-secret"), method)
        text = f"{method.name} makes no sense on channel 0 of an open connection"
        raise _blame(AmqpError(COMMAND_INVALID, text), method)

    async def _on_channel_frame(self, frame: Frame) -> None:
        use = self._channels.get(frame.channel)
        if isinstance(use, _OpenChannel):
            await self._feed(frame, use)
            return
        if use is not None and not self._closing_done(frame, use):
            return
        method = decode_method(frame.payload) if frame.kind == METHOD else None
        if isinstance(method, commands.Channel.Open):
            self._open_channel(frame.channel)
        elif not isinstance(method, commands.Channel.CloseOk):
            text = f"expected channel.open on channel {frame.channel}"
            error = AmqpError(CHANNEL_ERROR, text)
            raise error if method is None else _blame(error, method)

    async def _feed(self, frame: Frame, use: _OpenChannel) -> None:
        command = use.assembler.feed(frame)
        if command is None:
            return
        method = command.method
        if isinstance(method, commands.Channel.Open):
            text = f"second channel.open seen on channel {frame.channel}"
            raise _blame(AmqpError(CHANNEL_ERROR, text), method)
        if method.index >> 16 == commands.Connection.frame_id:
            text = f"{method.name} on channel {frame.channel}, not 0"
            raise _blame(AmqpError(COMMAND_INVALID, text), method)
        use.channel.accept(command)
        if not use.channel.has_room:
            self._reading_paused = True
            await use.channel.room()
            self._reading_paused = False

    def _closing_done(self, frame: Frame, use: _ClosingChannel) -> bool:
        """Whether the number can be used anew. Answers a close that crossed ours."""
        if frame.kind != METHOD:
            return False
        method = decode_method(frame.payload)
        if isinstance(method, commands.Channel.Close):
            use.closed_by_client_too = True
            ok = encode_method(commands.Channel.CloseOk())
            self._write(encode_frame(METHOD, frame.channel, ok))
            return False
        reopened = use.closed_by_client_too and isinstance(method, commands.Channel.Open)
        if reopened or isinstance(method, commands.Channel.CloseOk):
            del self._channels[frame.channel]
            return True
        return False

    def _open_channel(self, number: int) -> None:
        assert self._agreement is not None
        if number > self._agreement.channel_max:
            text = f"channel {number} is over channel_max {self._agreement.channel_max}"
            raise AmqpError(NOT_ALLOWED, text)
        notify = self._agreement.capabilities.get("consumer_cancel_notify") is True
        session = Session(self.pid, self._agreement.user, self._agreement.vhost, notify)
        channel = Channel(self._services, session, ChannelPort(self, number), self._router)
        pid = self.runtime.spawn(channel)
        self._channels[number] = _OpenChannel(channel)
        self._alive[pid] = channel
        self._no_channels.clear()
        self.runtime.monitor(pid, self.pid)
        self._write(encode_frame(METHOD, number, encode_method(commands.Channel.OpenOk())))

    # -- the end -----------------------------------------------------------------------------------

    async def _await_close_ok(self) -> None:
        """CloseTimeout ends this, if the client doesn't."""
        while not _is_end(await read_frame(self._reader, self.frame_max)):
            pass

    async def _discard(self) -> None:
        """Frames can't be told apart any more: wait for the end, or for CloseTimeout."""
        while await self._reader.read(65536):
            pass

    def _end_channels(self) -> None:
        for pid, channel in self._alive.items():
            channel.make_room()
            self.runtime.send(pid, ConnectionGone())

    async def _release(self) -> None:
        """End what belongs to the connection."""
        if self._state != "closed":
            self._state = "closing"
        self._end_channels()
        try:
            async with asyncio.timeout(CHANNEL_GRACE_MS / 1000):
                await self._no_channels.wait()
        except TimeoutError:
            for pid in list(self._alive):
                # It waits for a queue or a table that doesn't answer.
                await self.runtime.kill(pid)
        try:
            async with asyncio.timeout(CLEANUP_TIMEOUT_MS / 1000):
                await self._delete_exclusive_queues()
        except (TimeoutError, BrokerError) as error:
            log.warning("exclusive queues of %s were not deleted: %s", self.info().name, error)

    async def _delete_exclusive_queues(self) -> None:
        for _, row in self._services.metadata.rows("queue"):
            if isinstance(row, QueueRow) and row.exclusive_owner == self.pid:
                await remove_queue(self._services, row)

    async def _hang_up(self) -> None:
        """Send what is still unsent, close-ok included, and close the socket."""
        if self._owes_close_ok:
            close_ok = encode_method(commands.Connection.CloseOk())
            self._write(encode_frame(METHOD, 0, close_ok))
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await self._writer.wait_closed()
        except (TimeoutError, ConnectionError):
            self._writer.transport.abort()

    def _write(self, data: bytes) -> None:
        if not self._writer.transport.is_closing():
            self._writer.write(data)
            self._last_write_ns = self._clock.monotonic_ns()


def _is_end(frame: Frame) -> bool:
    """Whether this settles a connection that the node is closing; all else is of no interest."""
    if frame.kind != METHOD or frame.channel != 0:
        return False
    index = int.from_bytes(frame.payload[:4], "big")
    return index in (commands.Connection.CloseOk.index, commands.Connection.Close.index)


def _blame(error: AmqpError, method: Method) -> AmqpError:
    """``error`` with the method that it is about."""
    error.class_id, error.method_id = method.index >> 16, method.index & 0xFFFF
    return error
