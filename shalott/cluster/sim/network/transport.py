"""SimTransport: what a program holds of a simulated connection.

It does what asyncio's selector transports do, in the same order: ``connection_made`` before
anything is read, ``data_received`` only while reading is not paused, ``connection_lost`` last and
in a callback of its own, ``pause_writing`` when the buffer of what the kernel does not take passes
the high water mark. Conformance tests run the same programs on both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from shalott.cluster.sim.network.addresses import SocketName
from shalott.cluster.sim.network.links import FIN
from shalott.cluster.sim.network.tcp import Socket

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.loop import SimLoop

HIGH_WATER_BYTES = 64 * 1024
READ_BYTES_MAX = 256 * 1024
WRITES_BEFORE_WARNING = 5

log = logging.getLogger("asyncio")


class Server(Protocol):
    """What a transport needs of the server that accepted it (listening.py)."""

    def attach(self) -> None: ...

    def detach(self) -> None: ...


class Program:
    """The protocol that a transport calls, and the marks at which it is told to pause writing."""

    __slots__ = ("_loop", "_paused", "_transport", "high_water", "low_water", "protocol")

    def __init__(
        self, loop: SimLoop, transport: asyncio.Transport, protocol: asyncio.BaseProtocol
    ) -> None:
        self._loop = loop
        self._transport = transport
        self.protocol: Any = protocol
        self._paused = False
        self.set_marks(None, None)

    def set_marks(self, high: int | None, low: int | None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self.high_water = high
        self.low_water = low

    def pause_if_above(self, size: int) -> None:
        if size > self.high_water and not self._paused:
            self._paused = True
            self._call("pause_writing")

    def resume_if_below(self, size: int) -> None:
        if self._paused and size <= self.low_water:
            self._paused = False
            self._call("resume_writing")

    def _call(self, method: str) -> None:
        try:
            getattr(self.protocol, method)()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, f"protocol.{method}() failed")

    def failed(self, error: BaseException, message: str) -> None:
        """Its own errors are reported; those of its connection are not."""
        if not isinstance(error, OSError):
            self._report(error, message)

    def _report(self, error: BaseException, message: str) -> None:
        self._loop.call_exception_handler(
            {
                "message": message,
                "exception": error,
                "transport": self._transport,
                "protocol": self.protocol,
            }
        )


class InboxReader:
    """Hands a socket's inbox to its transport, one read call at a time."""

    __slots__ = ("_draining", "_loop", "_socket", "_transport")

    def __init__(self, loop: SimLoop, socket: Socket, transport: SimTransport) -> None:
        self._loop = loop
        self._socket = socket
        self._transport = transport
        self._draining = False

    def start(self) -> None:
        if not self._transport.is_reading():
            return
        self._socket.reading = True
        if self._socket.inbox and not self._draining:
            self._draining = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        """One read call: all the bytes that wait, or the sign that is next."""
        self._draining = False
        inbox = self._socket.inbox
        if not self._socket.reading or not inbox:
            return
        first = inbox.popleft()
        if isinstance(first, int):
            self._transport.receive_sign(first)
        else:
            chunks, size = [first], len(first)
            while inbox and isinstance(inbox[0], bytes) and size < READ_BYTES_MAX:
                chunks.append(inbox[0])
                size += len(inbox[0])
                inbox.popleft()
            self._socket.lane.acks.send(size)
            self._transport.receive(b"".join(chunks))
        if self._socket.reading and inbox and not self._draining:
            self._draining = True
            self._loop.call_soon(self._read)


class SimTransport(asyncio.Transport):
    """``waiter`` is set when ``connection_made`` has been called."""

    __slots__ = (
        "_closing",
        "_connected",
        "_eof",
        "_loop",
        "_lost",
        "_paused",
        "_program",
        "_reader",
        "_server",
        "_socket",
        "buffered",
    )

    def __init__(
        self,
        loop: SimLoop,
        socket: Socket,
        protocol: asyncio.BaseProtocol,
        *,
        waiter: asyncio.Future[None] | None = None,
        server: Server | None = None,
    ) -> None:
        super().__init__(
            {
                "sockname": socket.local,
                "peername": socket.remote,
                "socket": SocketName(socket.local, socket.remote),
            }
        )
        self._loop = loop
        self._socket = socket
        self._server = server
        self.buffered = bytearray()  # what the kernel did not take
        self._closing = False
        self._lost = 0  # connection_lost is due or called; then counts writes in vain
        self._eof = False
        self._paused = False
        self._program = Program(loop, self, protocol)
        self._reader = InboxReader(loop, socket, self)
        socket.transport = self
        if server is not None:
            server.attach()
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._reader.start)
        if waiter is not None:
            loop.call_soon(_set_unless_done, waiter)

    def __repr__(self) -> str:
        state = "closing" if self._closing else "open"
        return f"<SimTransport {state} {self._socket.local} -> {self._socket.remote}>"

    # -- asked by the program ----------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._program.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._program.protocol
        return protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._closing and not self._paused

    def pause_reading(self) -> None:
        if self.is_reading():
            self._paused = True
            self._socket.reading = False

    def resume_reading(self) -> None:
        if self._closing or not self._paused:
            return
        self._paused = False
        self._reader.start()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if type(data) is not bytes and not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(
                f"data argument must be a bytes-like object, not {type(data).__name__!r}"
            )
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data:
            return
        if self._lost:
            if self._lost >= WRITES_BEFORE_WARNING:
                log.warning("socket.send() raised exception.")
            self._lost += 1
            return
        if not self.buffered:
            kernel = self._socket
            if kernel.error is not None:
                self._force_close(kernel.error)
                return
            if not isinstance(data, bytes):
                data = bytes(data)
            sent = kernel.send(data)
            if sent == len(data):
                return
            data = data[sent:]
        self.buffered += data
        self._program.pause_if_above(len(self.buffered))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._closing or self._eof:
            return
        self._eof = True
        if not self.buffered:
            self._socket.shutdown()

    def get_write_buffer_size(self) -> int:
        return len(self.buffered)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._program.low_water, self._program.high_water

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._program.set_marks(high, low)
        self._program.pause_if_above(len(self.buffered))

    def close(self) -> None:
        """Send what is buffered, then close."""
        if self._closing:
            return
        self._closing = True
        self._socket.reading = False
        if not self.buffered:
            self._lost += 1
            self._loop.call_soon(self._connection_lost, None)

    def abort(self) -> None:
        """Close now. What the kernel has taken still goes out, as on a real one."""
        self._force_close(None)

    # -- told by the kernel ------------------------------------------------------------------------

    def receive(self, payload: bytes) -> None:
        """Bytes for the program."""
        if self._lost:
            return
        protocol = self._program.protocol
        try:
            if isinstance(protocol, asyncio.BufferedProtocol):
                _fill(protocol, payload)
            else:
                protocol.data_received(payload)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._program.failed(error, "Fatal error: protocol.data_received() call failed.")
            self._force_close(error)

    def receive_sign(self, sign: int) -> None:
        """The peer's end of file, or the connection's death."""
        if self._lost:
            return
        if sign != FIN:
            self._force_close(self._socket.error)
            return
        try:
            keep_open = self._program.protocol.eof_received()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._program.failed(error, "Fatal error: protocol.eof_received() call failed.")
            self._force_close(error)
            return
        if keep_open:
            self._socket.reading = False
        else:
            self.close()

    def writable(self) -> None:
        """The kernel has room again."""
        if self._lost or not self.buffered:
            return
        sent = self._socket.send(bytes(self.buffered[: self._socket.room]))
        del self.buffered[:sent]
        self._program.resume_if_below(len(self.buffered))
        if not self.buffered:
            if self._closing:
                self._lost += 1
                self._connection_lost(None)
            elif self._eof:
                self._socket.shutdown()

    def freeze(self) -> None:
        """Its process is dead: no protocol is called any more."""
        self._closing = True
        self._lost += 1
        self.buffered.clear()

    # -- within ------------------------------------------------------------------------------------

    def _force_close(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self.buffered.clear()
        self._closing = True
        self._socket.reading = False
        self._lost += 1
        self._loop.call_soon(self._connection_lost, error)

    def _connection_lost(self, error: BaseException | None) -> None:
        try:
            self._program.protocol.connection_lost(error)
        finally:
            self._socket.close()
            self._program.protocol = None
            server, self._server = self._server, None
            if server is not None:
                server.detach()


def _fill(protocol: asyncio.BufferedProtocol, payload: bytes) -> None:
    while payload:
        buffer = memoryview(protocol.get_buffer(len(payload)))
        size = min(len(buffer), len(payload))
        if not size:
            raise RuntimeError("get_buffer() returned an empty buffer")
        buffer[:size] = payload[:size]
        protocol.buffer_updated(size)
        payload = payload[size:]


def _set_unless_done(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


ProtocolFactory = Callable[[], asyncio.BaseProtocol]
