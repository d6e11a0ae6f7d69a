"""Forwards: a node's ports on this machine's loopback, for hosts behind a jump host.

Each connection is a channel to the host, which dials its own node: what is cut between nodes does
not touch it. A node that does not listen ends the connection as soon as it is made, in place of
refusing it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping

import paramiko

from shalott.cluster.nodes import Endpoint
from shalott.cluster.ssh.agent_link import AgentLink
from shalott.cluster.ssh.connection import CONNECT_TIMEOUT_S
from shalott.core.errors import HarnessError

log = logging.getLogger("shalott.cluster.ssh")

HERE = "127.0.0.1"
CHUNK = 1 << 16


class Forwards:
    """Of one host, over its link's connection, whichever it is by then."""

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self._servers: dict[str, asyncio.Server] = {}
        self._writers: dict[asyncio.StreamWriter, None] = {}

    async def open(self, ports: Mapping[str, int]) -> None:
        for name, number in ports.items():
            self._servers[name] = await self._listen(number)

    async def _listen(self, number: int) -> asyncio.Server:
        async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._join(number, reader, writer)

        return await asyncio.start_server(joined, HERE, 0)

    def endpoint(self, name: str) -> Endpoint:
        return Endpoint(HERE, self._servers[name].sockets[0].getsockname()[1])

    async def close(self) -> None:
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        # The channels end with the connection, and their threads with them.

    async def _join(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._writers[writer] = None
        channel = None
        try:
            channel = await self._link.in_thread(lambda: self._dial(number))
            loop, sink = asyncio.get_running_loop(), channel
            threading.Thread(
                target=_read, args=(loop, channel, writer), name="ssh-forward", daemon=True
            ).start()
            while data := await reader.read(CHUNK):
                await self._link.in_thread(lambda data=data: sink.sendall(data))  # type: ignore[misc]
            await self._link.in_thread(sink.shutdown_write)
        except (OSError, EOFError, paramiko.SSHException, HarnessError, RuntimeError) as error:
            log.debug("a forwarded connection ends: %s", error)
            writer.transport.abort()
            if channel is not None:
                channel.close()
        finally:
            self._writers.pop(writer, None)

    def _dial(self, number: int) -> paramiko.Channel:
        """Raises HarnessError without a connection, SSHException if no program listens."""
        connection = self._link.connection
        if connection is None:
            raise HarnessError("there is no connection now")
        return connection.transport.open_channel(
            "direct-tcpip", (HERE, number), (HERE, 0), timeout=CONNECT_TIMEOUT_S
        )


def _read(
    loop: asyncio.AbstractEventLoop, channel: paramiko.Channel, writer: asyncio.StreamWriter
) -> None:
    """In a thread: what the node says goes to the event loop."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
        try:
            while data := channel.recv(CHUNK):
                loop.call_soon_threadsafe(writer.write, data)
        except (OSError, EOFError, paramiko.SSHException):
            loop.call_soon_threadsafe(writer.transport.abort)
        loop.call_soon_threadsafe(writer.close)
