"""RocketNode: everything that runs in one process of a RocketMQ system, and its life.

A node hosts any of three services: a name server, a controller and a broker. They start in that
order, as a broker looks for the two others, and stop in the other one. The management API answers
from first to last.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Literal

from shalott.broker.base.env import Env, Platform
from shalott.broker.base.errors import BrokerError, ConfigError
from shalott.broker.base.http_server import ManagementServer
from shalott.broker.rocket.commitlog.api import Store
from shalott.broker.rocket.commitlog.replica import Replica
from shalott.broker.rocket.config import AddressBook, RocketConfig, controller_addresses
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.controller.service import Controller
from shalott.broker.rocket.nameserver.server import NameServer
from shalott.broker.rocket.node.broker_service import BrokerService
from shalott.broker.rocket.node.management import respond
from shalott.broker.rocket.processor.tables import Tables
from shalott.broker.rocket.remoting.client import RemotingClient

log = logging.getLogger("shalott.broker.node")

RocketPhase = Literal["booting", "running", "stopping", "stopped"]


class RocketNode:
    """Made by ``open``; ``start`` it, await ``fatal``, ``stop`` it."""

    def __init__(self, env: Env, config: RocketConfig) -> None:
        """Use ``open``."""
        self.env = env
        self.config = config
        self.phase: RocketPhase = "stopped"
        self.book = AddressBook(config)
        self.client = RemotingClient(self.book.dial)
        self.name_server = NameServer(env, config) if "nameserver" in config.services else None
        # For all services: an operator may ask any node for the controllers' word.
        self.controllers: ControllerClient | None = None
        if config.system == "controller":
            self.controllers = ControllerClient(self.client, controller_addresses(config))
        self.controller: Controller | None = None
        if "controller" in config.services:
            self.controller = Controller(env, config, self.book, fail=self.fail)
        self.broker: BrokerService | None = None
        self.management = ManagementServer(
            partial(respond, self), host=config.bind_host, port=config.ports["management"]
        )
        self.fatal: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        self._starting: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, config: RocketConfig, platform: Platform) -> RocketNode:
        """Read what a former life left on the disk."""
        return cls(await platform.begin_life(config.name, config.bugs), config)

    @property
    def replica(self) -> Replica | None:
        """The broker's, once it is open."""
        return None if self.broker is None else self.broker.replica

    @property
    def store(self) -> Store | None:
        return None if self.broker is None else self.broker.replica.store

    @property
    def tables(self) -> Tables | None:
        return None if self.broker is None else self.broker.broker.tables

    async def start(self) -> None:
        """Listen, and begin to start the broker: what becomes of that is in ``phase`` and
        ``fatal``. Raises ConfigError if a port of the other services is taken.
        """
        await self.management.start()
        self.phase = "booting"
        if self.name_server is not None:
            await self.name_server.start()
        if self.controller is not None:
            await self.controller.start()
        self._starting = asyncio.create_task(self._start_broker(), name="start broker")
        self._starting.add_done_callback(self._start_ended)

    async def stop(self) -> None:
        """An orderly end: name servers hear of it, files are flushed."""
        self.phase = "stopping"
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self.broker is not None:
            await self.broker.stop()
        if self.controller is not None:
            await self.controller.stop()
        if self.name_server is not None:
            await self.name_server.stop()
        await self.client.close()
        self.phase = "stopped"
        self.env.events.emit("", "role", role="stopped")
        await self.management.stop()

    def fail(self, reason: str) -> None:
        """The node can't go on (its disk failed, say): end the process without pretending an
        orderly stop.
        """
        self.env.events.emit("", "crashed", detail={"process": "node", "reason": reason})
        self._give_up(BrokerError(reason))

    def _give_up(self, error: BrokerError) -> None:
        if not self.fatal.done():
            self.fatal.set_result(error)

    async def _start_broker(self) -> None:
        if "broker" in self.config.services:
            self.broker = await BrokerService.open(
                self.env, self.config, self.book, self.client, self.controllers, self.fail
            )
            await self.broker.start()
        self.phase = "running"
        self.env.events.emit("", "role", role="running")
        log.info("the node runs: %s", ", ".join(self.config.services))

    def _start_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ConfigError):
            self._give_up(error)
        elif error is not None:
            log.error("the broker did not start", exc_info=error)
            self.fail(f"the broker did not start: {type(error).__name__}: {error}")
