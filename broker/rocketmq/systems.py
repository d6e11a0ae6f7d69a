"""The three systems: which replica a broker has, on which store, and what else its port serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from broker.commitlog.store import MessageStore
from broker.controller.service import Controller
from broker.env import Env
from broker.errors import ConfigError
from broker.ha.replica import MasterSlaveReplica
from broker.remoting.client import RemotingClient
from broker.remoting.server import Handler
from broker.rocketmq.addresses import AddressBook
from broker.rocketmq.config import RocketConfig
from broker.rocketmq.replica import Replica

Fail = Callable[[str], None]


@dataclass(frozen=True)
class OpenedReplica:
    """``close`` what lies below the replica, when that has stopped. ``handlers``: requests of the
    system's own that the broker's port serves.
    """

    replica: Replica
    close: Callable[[], Awaitable[None]]
    handlers: dict[int, Handler] = field(default_factory=dict)


async def open_replica(
    env: Env, config: RocketConfig, book: AddressBook, client: RemotingClient, fail: Fail
) -> OpenedReplica:
    """On what the disk holds. Raises BrokerError and OSError."""
    match config.system:
        case "master-slave":
            return await _open_master_slave(env, config, book, fail)
        case _:
            raise ConfigError(f"the system {config.system} is not there yet")


async def _open_master_slave(
    env: Env, config: RocketConfig, book: AddressBook, fail: Fail
) -> OpenedReplica:
    store = await MessageStore.open(env, config.store)
    store.failure_listener = lambda error: fail(str(error))
    replica = await MasterSlaveReplica.open(env, config, store, book, fail=fail)
    return OpenedReplica(replica, store.close)


async def open_controller(
    env: Env, config: RocketConfig, book: AddressBook, fail: Fail
) -> Controller:
    raise ConfigError("controllers are not there yet")
