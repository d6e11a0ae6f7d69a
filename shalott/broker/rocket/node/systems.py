"""The three systems: which replica a broker has, on which store, and what else its port serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from shalott.broker.base.env import Env
from shalott.broker.rocket.addresses import AddressBook
from shalott.broker.rocket.commitlog.replica import Replica
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import RocketConfig
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.dledger.replica import DLedgerReplica
from shalott.broker.rocket.ha.replica import MasterSlaveReplica
from shalott.broker.rocket.remoting.codes import RequestCode, ResponseCode
from shalott.broker.rocket.remoting.command import Command, response
from shalott.broker.rocket.remoting.server import Caller, Handler
from shalott.broker.rocket.replicas.replica import AutoSwitchReplica

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
    env: Env,
    config: RocketConfig,
    book: AddressBook,
    controllers: ControllerClient | None,
    fail: Fail,
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
    env: Env, config: RocketConfig, book: AddressBook, fail: Fail
) -> OpenedReplica:
    store = await MessageStore.open(env, config.store)
    store.failure_listener = lambda error: fail(str(error))
    replica = await MasterSlaveReplica.open(env, config, store, book, fail=fail)
    return OpenedReplica(replica, store.close)


async def _open_dledger(
    env: Env, config: RocketConfig, book: AddressBook, fail: Fail
) -> OpenedReplica:
    replica = await DLedgerReplica.open(env, config, book, fail=fail)
    return OpenedReplica(replica, replica.close)


async def _open_controlled(
    env: Env, config: RocketConfig, book: AddressBook, controllers: ControllerClient, fail: Fail
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
