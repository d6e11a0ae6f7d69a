"""Measuring what a link between hosts does to packets: numbered datagrams are sent over it, and
before them some that nothing shapes.

Two hosts' clocks differ, so a packet's time alone says nothing. Those that nothing shapes pass the
same way: by how much later than the quickest of them a packet came is what was done to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from shalott.cluster.packets.numbered import (
    BATCH,
    BUFFER_BYTES,
    QUIET_S,
    SECOND_COPY_S,
    SO_NO_CHECK,
    SO_RCVBUFFORCE,
    UNSHAPED_TOS,
    Tally,
    numbered,
    pause_s,
)
from shalott.cluster.ssh.agent.agent_node import NodeError

PLAIN = 10  # datagrams that nothing shapes
PLAIN_S = 0.002  # between them
FORGOTTEN_AFTER_S = 120.0
POLL_S = 0.005


@dataclass
class Receiving:
    """One measurement's datagrams, as they come."""

    receiver: socket.socket
    seen: Tally
    plain: Tally
    last_s: float

    def take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self.receiver.recv(256)
                self.last_s = time.monotonic()
                self.seen.add(data, self.last_s)
                self.plain.add(data, self.last_s)


class Measuring:
    """What this host sends and receives to see what becomes of it."""

    def __init__(self) -> None:
        self._receiving: dict[str, Receiving] = {}

    def expect(self, token: str, address: str, count: int) -> int:
        """The port to which ``count`` datagrams may be sent from now on."""
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.setblocking(False)
        with contextlib.suppress(PermissionError):
            receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        receiver.bind((address, 0))
        one = Receiving(
            receiver,
            Tally(bytes.fromhex(token), count),
            Tally(_plain(token), PLAIN),
            time.monotonic(),
        )
        self._receiving[token] = one
        loop = asyncio.get_event_loop()
        loop.add_reader(receiver.fileno(), one.take)
        loop.call_later(FORGOTTEN_AFTER_S, self._forget, token)
        return int(receiver.getsockname()[1])

    async def send(self, token: str, address: str, port: int, count: int) -> None:
        """Returns when all are sent."""
        to = (address, port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, UNSHAPED_TOS)
            for number in range(PLAIN):
                sender.sendto(numbered(_plain(token), number, time.monotonic()), to)
                await asyncio.sleep(PLAIN_S)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0)
            sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
            for number in range(count):
                sender.sendto(numbered(bytes.fromhex(token), number, time.monotonic()), to)
                if number % BATCH == BATCH - 1:
                    await asyncio.sleep(pause_s(count))

    async def seen(self, token: str, hold_s: float) -> Mapping[str, object]:
        """What came, when nothing more comes. ``hold_s``: how long a packet may be held. Raises
        NodeError."""
        one = self._receiving.get(token)
        if one is None:
            raise NodeError("no receiver waits for these packets")
        asked_s = time.monotonic()
        while not one.seen.has_all:
            if time.monotonic() - max(one.last_s, asked_s) > hold_s + QUIET_S:
                break
            await asyncio.sleep(POLL_S)
        else:
            await asyncio.sleep(SECOND_COPY_S)
        one.take()
        self._forget(token)
        base_ms = one.plain.result()["least_ms"]
        result = one.seen.result(base_ms or 0)
        if result["arrived"] and base_ms is None:
            raise NodeError("of the packets that nothing shapes none arrived")
        return result

    def _forget(self, token: str) -> None:
        one = self._receiving.pop(token, None)
        if one is not None:
            asyncio.get_event_loop().remove_reader(one.receiver.fileno())
            one.receiver.close()


def _plain(token: str) -> bytes:
    """The token of those that nothing shapes."""
    return bytes(byte ^ 0xFF for byte in bytes.fromhex(token))


# -- One-way probes between hosts: datagrams with a random token, sent again and again.
#
# UDP because it is directional: a TCP connection needs both directions, and a cut of one would hide
# as a cut of the other.
REPEAT_S = 0.02
UNASKED_AFTER_S = 60.0  # then a listener is forgotten


class Probes:
    """What this host listens for, and what it sends."""

    def __init__(self) -> None:
        self._sending: dict[str, None] = {}
        self._listening: dict[str, tuple[socket.socket, asyncio.Future[None]]] = {}

    def listen(self, token: str, address: str) -> int:
        """The port at which the token is waited for from now on."""
        loop = asyncio.get_event_loop()
        receiver = _socket_for(address)
        receiver.bind((address, 0))
        heard = loop.create_future()

        def read() -> None:
            try:
                data = receiver.recv(256)
            except OSError:
                return
            if data == token.encode() and not heard.done():
                heard.set_result(None)

        loop.add_reader(receiver.fileno(), read)
        self._listening[token] = receiver, heard
        loop.call_later(UNASKED_AFTER_S, self._forget, token)
        return int(receiver.getsockname()[1])

    async def heard(self, token: str, timeout_s: float) -> bool:
        """Whether it arrives in time; listens no more afterwards."""
        if token not in self._listening:
            return False
        _, heard = self._listening[token]
        done, _ = await asyncio.wait([heard], timeout=timeout_s)
        self._forget(token)
        return bool(done)

    def _forget(self, token: str) -> None:
        if token in self._listening:
            receiver, _ = self._listening.pop(token)
            asyncio.get_event_loop().remove_reader(receiver.fileno())
            receiver.close()

    def send(self, token: str, address: str, port: int, for_s: float) -> None:
        """Send it now, and again until ``hush`` or the time is over."""
        loop = asyncio.get_event_loop()
        sender = _socket_for(address)
        end = loop.time() + for_s
        self._sending[token] = None

        def again() -> None:
            if token not in self._sending or loop.time() > end:
                self._sending.pop(token, None)
                sender.close()
                return
            try:
                sender.sendto(token.encode(), (address, port))
            except OSError:
                pass  # a cut may be seen here already
            loop.call_later(REPEAT_S, again)

        again()

    def hush(self, token: str) -> None:
        self._sending.pop(token, None)


def _socket_for(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.setblocking(False)
    if family == socket.AF_INET:  # nothing shapes it, or a slow link would look cut
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, UNSHAPED_TOS)
    return made
