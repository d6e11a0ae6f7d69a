"""One-way probes between hosts: datagrams with a random token, sent again and again.

UDP because it is directional: a TCP connection needs both directions, and a cut of one would hide
as a cut of the other.
"""

from __future__ import annotations

import asyncio
import socket

from shalott.cluster.packets.numbered import UNSHAPED_TOS

REPEAT_S = 0.02
FORGOTTEN_AFTER_S = 60.0  # a listener that nobody asks for


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
        loop.call_later(FORGOTTEN_AFTER_S, self._forget, token)
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
