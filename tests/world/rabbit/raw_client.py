"""A client that does what it is told, also what no client should: frames over a blocking socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pamqp.frame
from pamqp import base, body, commands, header, heartbeat

from tests.broker.rabbit.amqp.pika_flows import Address

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
CAPABILITIES: dict[str, Any] = {
    "consumer_cancel_notify": True,
    "authentication_failure_close": True,
}

Payload = base.Frame | header.ContentHeader | body.ContentBody | heartbeat.Heartbeat
T = TypeVar("T")


class RawClient:
    """Every wait ends after ``timeout_s`` with an error."""

    def __init__(self, address: Address, *, timeout_s: float = 10) -> None:
        self._socket = socket.create_connection((address.host, address.port), timeout_s)
        self._buffer = b""

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, channel: int, *frames: Any) -> None:
        data = b"".join(pamqp.frame.marshal(frame, channel) for frame in frames)
        self._socket.sendall(data)

    def receive_bytes(self, size: int) -> bytes:
        """Fewer only at the end of the stream."""
        while len(self._buffer) < size:
            data = self._socket.recv(65536)
            if not data:
                break
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def receive(self) -> tuple[int, Any]:
        """The next frame, heartbeats too, and its channel. EOFError at the end."""
        start = self.receive_bytes(7)
        if len(start) < 7:
            raise EOFError
        size = int.from_bytes(start[3:7], "big")
        _, channel, frame = pamqp.frame.unmarshal(start + self.receive_bytes(size + 1))
        return channel, frame

    def expect(self, kind: type[T], channel: int = 0) -> T:
        """The next frame but heartbeats, which must be of this kind."""
        while True:
            number, frame = self.receive()
            if not isinstance(frame, heartbeat.Heartbeat):
                assert isinstance(frame, kind), f"{frame.name}: {dict(frame)}"
                assert number == channel
                return frame

    def at_end(self) -> bool:
        return self.receive_bytes(1) == b""

    def shake_hands(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        heartbeat_s: int = 0,
        frame_max: int = 131072,
        vhost: str = "/",
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        self.send_bytes(PROTOCOL_HEADER)
        self.expect(commands.Connection.Start)
        given = CAPABILITIES if capabilities is None else capabilities
        self.send(
            0,
            commands.Connection.StartOk(
                client_properties={"capabilities": given},
                mechanism="PLAIN",
                response=f"\0{user}\0{password}",
            ),
        )
        self.expect(commands.Connection.Tune)
        self.send(0, commands.Connection.TuneOk(2047, frame_max, heartbeat_s))
        self.send(0, commands.Connection.Open(vhost))
        self.expect(commands.Connection.OpenOk)

    def open_channel(self, number: int = 1) -> None:
        self.send(number, commands.Channel.Open())
        self.expect(commands.Channel.OpenOk, number)

    def declare(self, queue: str, channel: int = 1, **options: Any) -> None:
        self.send(channel, commands.Queue.Declare(queue=queue, **options))
        self.expect(commands.Queue.DeclareOk, channel)

    def publish(self, queue: str, data: bytes, channel: int = 1, **options: Any) -> None:
        self.send(
            channel,
            commands.Basic.Publish(routing_key=queue, **options),
            header.ContentHeader(body_size=len(data)),
            *([body.ContentBody(data)] if data else []),
        )

    def expect_content(self, kind: type[T], channel: int = 1) -> tuple[T, bytes]:
        method = self.expect(kind, channel)
        size = self.expect(header.ContentHeader, channel).body_size
        data = b""
        while len(data) < size:
            data += self.expect(body.ContentBody, channel).value
        return method, data


@contextmanager
def raw(address: Address, *, timeout_s: float = 10) -> Iterator[RawClient]:
    client = RawClient(address, timeout_s=timeout_s)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def opened(address: Address, **options: Any) -> Iterator[RawClient]:
    """A client with channel 1 open."""
    with raw(address) as client:
        client.shake_hands(**options)
        client.open_channel()
        yield client
