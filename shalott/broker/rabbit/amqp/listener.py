"""Listener: the node's AMQP port. Accepts clients, counts them, and sends them away when the node
stops or pauses.

``start`` and ``stop`` may alternate: a node that pauses (pause_minority) stops listening and starts
again when it resumes.
"""

from __future__ import annotations

import asyncio
import logging

from shalott.broker.base.errors import cannot_listen
from shalott.broker.base.listener import listen
from shalott.broker.rabbit.amqp.channel import Channel
from shalott.broker.rabbit.amqp.connection import Connection, ConnectionInfo
from shalott.broker.rabbit.amqp.counts import OPENED, Counts
from shalott.broker.rabbit.amqp.errors import CONNECTION_FORCED, AmqpError
from shalott.broker.rabbit.amqp.exchanges import Router
from shalott.broker.rabbit.amqp.limits import NAME as CLIENT_COUNTS
from shalott.broker.rabbit.amqp.limits import ClientCounts, CountChannels, CountConnections
from shalott.broker.rabbit.amqp.services import ChannelInfo, Port, Services, Session
from shalott.broker.rabbit.processes.messages import Pid

log = logging.getLogger("shalott.broker.amqp")

STOP_GRACE_MS = 3_000  # for clients to answer connection.close; then they are cut off


class Listener:
    """One for each node. ``port`` 0 (in tests) takes a free one."""

    def __init__(
        self, services: Services, *, host: str | None = None, port: int | None = None
    ) -> None:
        self._services = services
        self._host = services.config.bind_host if host is None else host
        self._port = services.config.amqp_port if port is None else port
        self._router = Router(services.metadata)
        self._servers: list[asyncio.Server] = []
        self._counts: ClientCounts | None = None
        self._connections: dict[Pid, Connection] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def port(self) -> int:
        """The port in use."""
        return self._port

    @property
    def counts(self) -> Counts:
        """Of the broker, since it started."""
        return self._services.counts

    @property
    def listening(self) -> bool:
        return bool(self._servers)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def connections(self) -> list[ConnectionInfo]:
        """Live connections, in order of arrival."""
        return [connection.info() for connection in self._connections.values()]

    def channels(self) -> list[tuple[ConnectionInfo, list[ChannelInfo]]]:
        """Of each live connection."""
        return [(each.info(), each.channels()) for each in self._connections.values()]

    async def start(self) -> None:
        """Listen. Raises ConfigError if the port can't be had."""
        await self.resume()
        self._counts = ClientCounts(self._count)
        self._services.runtime.spawn(self._counts, name=CLIENT_COUNTS)

    async def resume(self) -> None:
        """Listen, after ``suspend``. Raises ConfigError."""
        assert not self._servers, "already listening"
        try:
            self._servers.append(await listen(self._accepted, self._host, self._port))
        except OSError as error:
            raise cannot_listen("AMQP", self._host, self._port, "amqp_port", error) from error
        self._port = int(self._servers[0].sockets[0].getsockname()[1])
        log.info("listening for AMQP on %s:%d", self._host, self._port)
        tls = self._services.config.ssl
        if tls is not None:
            try:
                own = await listen(self._accepted, self._host, tls.port, tls)
            except OSError as error:
                raise cannot_listen("AMQP", self._host, tls.port, "ssl.port", error) from error
            self._servers.append(own)
            log.info("listening for AMQP over TLS on %s:%d", self._host, tls.port)

    def suspend(self) -> None:
        """Listen no more, and keep the clients that are there."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()

    async def stop(self, text: str = "broker forced connection closure: shutdown") -> None:
        """Listen no more, and close every connection with 320. Returns when all are gone."""
        servers = self._servers
        self.suspend()
        await self.close_connections(text)
        for server in servers:
            await server.wait_closed()
        if self._counts is not None:
            await self._services.runtime.kill(self._counts.pid)
            self._counts = None

    def _count(self, request: CountConnections | CountChannels) -> int:
        found = [
            info
            for info in self.connections()
            if info.state in ("running", "blocking", "blocked") and request.user in ("", info.user)
        ]
        if isinstance(request, CountChannels):
            return sum(info.channels for info in found)
        return sum(request.vhost in ("", info.vhost) for info in found)

    async def close_connections(self, text: str, *, grace_ms: float = STOP_GRACE_MS) -> None:
        """Send every client close 320; cut off those that don't answer in time."""
        for connection in list(self._connections.values()):
            connection.fail(AmqpError(CONNECTION_FORCED, text))
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self._empty.wait()
        except TimeoutError:
            for pid in list(self._connections):
                await self._services.runtime.kill(pid)

    def close_connection(self, pid: Pid, text: str) -> bool:
        """Close one connection with 320, as an operator may. False if there is none."""
        connection = self._connections.get(pid)
        if connection is not None:
            connection.fail(AmqpError(CONNECTION_FORCED, text))
        return connection is not None

    def make_channel(self, port: Port, session: Session) -> Channel:
        """One of no connection, for the node's own use. It is not spawned yet."""
        return Channel(self._services, session, port, self._router)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self._services, self._router, reader, writer, self._ended)
        pid = self._services.runtime.spawn(connection)
        self._connections[pid] = connection
        self._empty.clear()
        self.counts.add(OPENED)

    def _ended(self, pid: Pid) -> None:
        self._connections.pop(pid, None)
        if not self._connections:
            self._empty.set()
