"""Application: the broker on a node, from the moment its tables are there: queues, then AMQP
clients.

A node makes a new one at every start and every resumption, and stops it when it pauses, loses an
autoheal, or ends. The order matters: clients come last and go first; queue processes end in good
order, so that masters can hand over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.rabbit.amqp.alarms import Alarms
from shalott.broker.rabbit.amqp.counts import Counts
from shalott.broker.rabbit.amqp.dead_letters import DeadLetters
from shalott.broker.rabbit.amqp.exchanges import predeclared_exchanges
from shalott.broker.rabbit.amqp.listener import Listener
from shalott.broker.rabbit.amqp.services import Services
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.access import ReplicatedMetadata
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import exchange_key
from shalott.broker.rabbit.mirrored.messages import SUPERVISOR
from shalott.broker.rabbit.mirrored.storage import QueueStorage
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.rabbit.queue_process.state import QueueContext
from shalott.broker.rabbit.storage.lazy_sync import LazySyncDisk
from shalott.broker.rabbit.storage.memory import MemoryMonitor
from shalott.broker.rabbit.supervision.maintenance import drop_orphans, hand_over
from shalott.broker.rabbit.supervision.queues_service import QueuesService
from shalott.broker.rabbit.supervision.supervisor import QueueSupervisor

log = logging.getLogger("shalott.broker.application")

VHOST = "/"
# What a master that has waited in vain for its mirrors needs to write so into its queue's row.
CLEAR_MS = 2000


@dataclass(frozen=True, slots=True)
class Host:
    """What a broker has of its node, which outlives it."""

    env: Env
    config: NodeConfig
    runtime: Runtime
    metadata: ReplicatedMetadata
    memory: MemoryMonitor
    alarms: Alarms


class Application:
    """``fail`` ends the node's process: a queue's disk failed. ``restarted``: the process had a
    broker before this one.
    """

    def __init__(
        self,
        host: Host,
        *,
        may_confirm: Callable[[], bool],
        fail: Callable[[str], None],
        restarted: bool = False,
    ) -> None:
        env, config, runtime, metadata = host.env, host.config, host.runtime, host.metadata
        self._env = env
        self._config = config
        self._runtime = runtime
        self._metadata = metadata
        self.queues = QueuesService(env, runtime, metadata)
        counts = Counts()
        self.dead_letters = DeadLetters(env, metadata, self.queues, counts)
        self._storage = QueueStorage(
            LazySyncDisk(env.disk) if env.has_bug("OUR-03") else env.disk,
            env.clock,
            env.buggify,
            host.memory,
            sync_interval_ms=config.confirm_sync_ms,
        )
        self._context = QueueContext(
            env,
            config,
            metadata,
            self._storage,
            dead_letters=self.dead_letters.of,
            fail=fail,
            restarted=restarted,
        )
        self.supervisor = QueueSupervisor(self._context)
        self.listener = Listener(
            Services(env, runtime, config, metadata, self.queues, may_confirm, host.alarms, counts)
        )
        self._started = False

    async def start(self) -> None:
        """Recover queues and take clients. Raises ConfigError if the AMQP port can't be had."""
        await self._metadata.transact(_declare_exchanges)
        if self._config.startup_delay_ms:
            # Another one at each start: nodes that start together must not be ready together.
            await pause_ms(self._env.rng.random() * self._config.startup_delay_ms)
        await drop_orphans(self._context, self._runtime)
        self._runtime.spawn(self.dead_letters)
        self._runtime.spawn(self.supervisor, name=SUPERVISOR)
        self._started = True
        await self.supervisor.recovered()
        await self.listener.start()

    async def hand_over(self) -> None:
        """The operator takes the node out of service, and ``stop`` follows."""
        if self._started:
            await hand_over(self._context, self._runtime)

    async def stop(self, reason: str) -> None:
        """Send the clients away (320), then end the queue processes."""
        log.info("stopping the broker: %s", reason)
        await self.listener.stop(f"broker forced connection closure: {reason}")
        if self._started:
            await self.supervisor.children.stop_all(self._config.slave_wait_timeout_ms + CLEAR_MS)
            await self._runtime.kill(self.supervisor.pid)
            await self._runtime.kill(self.dead_letters.pid)
        self._storage.forget_all()


def _declare_exchanges(transaction: Transaction) -> None:
    for row in predeclared_exchanges(VHOST):
        key = exchange_key(row.vhost, row.name)
        if transaction.read("exchange", key) is None:
            transaction.write("exchange", key, row)
