"""What the management API needs of its node. It touches nothing else in the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from shalott.broker.base.env import Env
from shalott.broker.base.http_api import RouteOf
from shalott.broker.rabbit.amqp.alarms import Alarms
from shalott.broker.rabbit.amqp.client_info import ChannelInfo
from shalott.broker.rabbit.amqp.connection import ConnectionInfo
from shalott.broker.rabbit.amqp.queues import Queues
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.management.rates import Rates
from shalott.broker.rabbit.metadata.api import Metadata
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.rabbit.storage.memory import MemoryMonitor


class ManagementBackend(Protocol):
    """A node. Everything here answers at once, also while the broker on it is paused or booting."""

    @property
    def env(self) -> Env: ...

    @property
    def config(self) -> NodeConfig: ...

    @property
    def runtime(self) -> Runtime: ...

    @property
    def metadata(self) -> Metadata: ...

    @property
    def queues(self) -> Queues | None:
        """None while the broker doesn't run."""
        ...

    @property
    def phase(self) -> str:
        """running, booting, paused, stopping or stopped."""
        ...

    @property
    def started_ns(self) -> int:
        """On the node's monotonic clock."""
        ...

    @property
    def memory(self) -> MemoryMonitor: ...

    @property
    def alarms(self) -> Alarms:
        """Of all nodes, as far as this node has heard."""
        ...

    def stop_app(self) -> None:
        """Have the broker end, and stay away. It does not wait."""
        ...

    def start_app(self) -> None: ...

    @property
    def clustering(self) -> Clustering:
        """What becomes of the node while its broker is stopped."""
        ...

    def partitions(self) -> Mapping[str, Sequence[str]]:
        """Node -> the nodes that it says it is partitioned from, as far as this node has heard."""
        ...

    def local_queues(self) -> Mapping[str, Pid]:
        """Key -> this node's own process of that queue, master or mirror, if it has one."""
        ...

    def connections(self) -> Sequence[ConnectionInfo]:
        """This node's AMQP clients."""
        ...

    def channels(self) -> Sequence[tuple[ConnectionInfo, Sequence[ChannelInfo]]]:
        """Of this node's AMQP clients."""
        ...

    @property
    def rates(self) -> Rates:
        """What was counted when somebody asked before."""
        ...

    def close_connection(self, pid: Pid, text: str) -> bool:
        """False if there is none."""
        ...


class Standing(Protocol):
    """See broker.rabbit.node.standing."""

    @property
    def alone(self) -> bool: ...

    @property
    def joining(self) -> str | None: ...

    @property
    def problem(self) -> str | None: ...


class Clustering(Protocol):
    """See broker.rabbit.node.clustering. Each raises BrokerError, with RabbitMQ's reason."""

    @property
    def standing(self) -> Standing: ...

    async def reset(self, *, force: bool) -> None: ...

    async def join(self, through: str) -> None: ...

    async def force_boot(self) -> None: ...


Route = RouteOf[ManagementBackend]
