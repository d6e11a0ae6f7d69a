"""BrokerService: the broker of a node: its replica with its store, the port that clients use, and
what runs beside: registration, the slave's copies, tables' files, delayed messages, silent clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from shalott.broker.base.env import Env
from shalott.broker.rocket.commitlog.replica import Replica
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.dledger.replica import DLedgerReplica
from shalott.broker.rocket.ha.replica import MasterSlaveReplica
from shalott.broker.rocket.node.registration import Registration
from shalott.broker.rocket.node.slave_sync import SlaveSync
from shalott.broker.rocket.processor.acked import AckedEvents
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.client_requests import expire_clients
from shalott.broker.rocket.processor.delays import deliver_delayed
from shalott.broker.rocket.processor.handlers import broker_handlers, closed
from shalott.broker.rocket.processor.tables import Tables
from shalott.broker.rocket.processor.topics import system_topics
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller, Handler, RemotingServer
from shalott.broker.rocket.replicas.replica import AutoSwitchReplica

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
            env, own=system_topics(config.broker), epoch=lambda: opened.replica.epoch
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
        await self.broker.pushes.wait()
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

    def _spawn(self, job: Coroutine[object, object, None], name: str) -> None:
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


# -- the three systems -----------------------------------------------------------------------------
# Which replica a broker has, on which store, and what else its port serves.


@dataclass(frozen=True)
class OpenedReplica:
    """``close`` what lies below the replica, when that has stopped. ``handlers``: requests of the
    system's own that the broker's port serves.
    """

    replica: Replica
    close: Callable[[], Awaitable[None]]
    handlers: dict[int, Handler] = field(default_factory=dict)


async def open_replica(
    env: Env,
    config: RocketConfig,
    book: AddressBook,
    controllers: ControllerClient | None,
    fail: Callable[[str], None],
) -> OpenedReplica:
    """On what the disk holds. Raises BrokerError and OSError."""
    match config.system:
        case "master-slave":
            return await _open_master_slave(env, config, book, fail)
        case "controller":
            assert controllers is not None, "a broker under controllers knows where they are"
            return await _open_controlled(env, config, book, controllers, fail)
        case "dledger":
            return await _open_dledger(env, config, book, fail)


async def _open_master_slave(
    env: Env, config: RocketConfig, book: AddressBook, fail: Callable[[str], None]
) -> OpenedReplica:
    store = await MessageStore.open(env, config.store)
    store.failure_listener = lambda error: fail(str(error))
    replica = await MasterSlaveReplica.open(env, config, store, book, fail=fail)
    return OpenedReplica(replica, store.close)


async def _open_dledger(
    env: Env, config: RocketConfig, book: AddressBook, fail: Callable[[str], None]
) -> OpenedReplica:
    replica = await DLedgerReplica.open(env, config, book, fail=fail)
    return OpenedReplica(replica, replica.close)


async def _open_controlled(
    env: Env,
    config: RocketConfig,
    book: AddressBook,
    controllers: ControllerClient,
    fail: Callable[[str], None],
) -> OpenedReplica:
    store = await MessageStore.open(env, config.store, confirm_from_checkpoint=True)
    store.failure_listener = lambda error: fail(str(error))
    replica = await AutoSwitchReplica.open(
        env, config, store, controllers, book, failed=lambda error: fail(str(error))
    )

    async def role_changed(request: Command, caller: Caller) -> Command:
        replica.role_changed(request)
        return response(ResponseCode.SUCCESS)

    async def epoch_cache(request: Command, caller: Caller) -> Command:
        return response(ResponseCode.SUCCESS, body=replica.epoch_cache())

    handlers: dict[int, Handler] = {
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED: role_changed,
        RequestCode.GET_BROKER_EPOCH_CACHE: epoch_cache,
    }
    return OpenedReplica(replica, store.close, handlers)
