"""BrokerService: the broker of a node: its replica with its store, the port that clients use, and
what runs beside: registration, the slave's copies, tables' files, delayed messages, silent clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from shalott.broker.base.env import Env
from shalott.broker.rocket.addresses import AddressBook
from shalott.broker.rocket.commitlog.replica import Replica
from shalott.broker.rocket.config import RocketConfig
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.node.registration import Registration
from shalott.broker.rocket.node.slave_sync import SlaveSync
from shalott.broker.rocket.node.systems import OpenedReplica, open_replica
from shalott.broker.rocket.processor.acked import AckedEvents
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.client_requests import expire_clients
from shalott.broker.rocket.processor.delays import deliver_delayed
from shalott.broker.rocket.processor.handlers import broker_handlers, closed
from shalott.broker.rocket.processor.system_topics import system_topics
from shalott.broker.rocket.processor.tables import Tables
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.server import RemotingServer

log = logging.getLogger("shalott.broker.rocketmq")

Fail = Callable[[str], None]


class BrokerService:
    """Made by ``open``. ``fail`` ends the node."""

    def __init__(
        self,
        env: Env,
        config: RocketConfig,
        book: AddressBook,
        opened: OpenedReplica,
        tables: Tables,
        client: RemotingClient,
        fail: Fail,
    ) -> None:
        """Use ``open``."""
        self._env = env
        self._config = config
        self._opened = opened
        self._fail = fail
        self.broker = Broker(
            env=env,
            config=config.broker,
            address=book.advertised(config.name, "remoting"),
            replica=opened.replica,
            tables=tables,
            acked=AckedEvents(env, config.broker.broker_name),
            topics_changed=self._topics_changed,
            started_ms=env.clock.wall_ns() // 1_000_000,
            ha_address=config.advertised.get("ha", ""),
        )
        self.registration = Registration(config, book, self.broker, client)
        self.slave_sync = SlaveSync(
            self.broker,
            book,
            client,
            interval_ms=config.broker.slave_sync_interval_ms,
            topics_changed=self._topics_changed,
        )
        handlers = {**broker_handlers(self.broker), **opened.handlers}
        self.servers = [
            RemotingServer(
                handlers,
                host=config.bind_host,
                port=config.ports[name],
                on_close=lambda caller: closed(self.broker, caller),
                setting=f"ports.{name}",
            )
            for name in ("remoting", "vip")
            if name in config.ports
        ]
        self._tasks: list[asyncio.Task[None]] = []
        opened.replica.on_change = self._role_changed

    @classmethod
    async def open(
        cls,
        env: Env,
        config: RocketConfig,
        book: AddressBook,
        client: RemotingClient,
        controllers: ControllerClient | None,
        fail: Fail,
    ) -> BrokerService:
        """Read what a former life left: this may take long. Raises BrokerError and OSError."""
        opened = await open_replica(env, config, book, controllers, fail)
        tables = await Tables.open(
            env,
            own=system_topics(config.broker),
            epoch=lambda: opened.replica.epoch,
        )
        return cls(env, config, book, opened, tables, client, fail)

    @property
    def replica(self) -> Replica:
        return self._opened.replica

    async def start(self) -> None:
        """Take up the role and serve. Raises ConfigError if a port is taken."""
        # Clients and controllers may call as soon as the replica says who it is.
        for server in self.servers:
            await server.start()
        await self.replica.start()
        self._spawn(self.registration.run(), "registration")
        self._spawn(self.slave_sync.run(), "slave sync")
        self._spawn(self.broker.tables.run(), "tables")
        self._spawn(deliver_delayed(self.broker), "delayed messages")
        self._spawn(expire_clients(self.broker), "silent clients")

    async def stop(self) -> None:
        """An orderly end: name servers forget this broker first, files are written last."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.registration.unregister()
        for server in self.servers:
            await server.stop()
        await asyncio.gather(*self.broker.pushes, return_exceptions=True)
        await self.replica.stop()
        self.broker.acked.stop()
        await self.broker.tables.save()
        await self._opened.close()

    def _role_changed(self) -> None:
        """By the replica, at once."""
        if self.replica.role == "master":
            self.broker.take_over()
        self.registration.wake()
        self.slave_sync.wake()

    def _topics_changed(self) -> None:
        self.registration.wake()

    def _spawn(self, job: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(job, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """None of them ends but with the broker: a broker that does half of its work is worse than
        a dead one, which others replace.
        """
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("%s ended", task.get_name(), exc_info=error)
            self._fail(f"{task.get_name()} ended: {type(error).__name__}: {error}")
