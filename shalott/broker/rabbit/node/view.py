"""NodeView: a node as the management API sees it
(broker.rabbit.management.backend.ManagementBackend).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shalott.broker.base.env import Env
from shalott.broker.rabbit.amqp.alarms import Alarms
from shalott.broker.rabbit.amqp.connection import ConnectionInfo
from shalott.broker.rabbit.amqp.services import ChannelInfo, Queues
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.management.backend import Rates
from shalott.broker.rabbit.metadata.api import Metadata
from shalott.broker.rabbit.node.clustering import Clustering
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.rabbit.storage.memory import MemoryMonitor

if TYPE_CHECKING:
    from shalott.broker.rabbit.node.node import Node


class NodeView:
    """Everything here answers at once, also while the node is busy."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rates = Rates()

    @property
    def env(self) -> Env:
        return self._node.env

    @property
    def config(self) -> NodeConfig:
        return self._node.config

    @property
    def runtime(self) -> Runtime:
        return self._node.runtime

    @property
    def metadata(self) -> Metadata:
        return self._node.metadata

    @property
    def queues(self) -> Queues | None:
        broker = self._node.broker
        return None if broker is None or self.phase != "running" else broker.queues

    @property
    def phase(self) -> str:
        return self._node.phase

    @property
    def started_ns(self) -> int:
        return self._node.started_ns

    @property
    def memory(self) -> MemoryMonitor:
        return self._node.memory

    @property
    def alarms(self) -> Alarms:
        return self._node.alarms

    def stop_app(self) -> None:
        self._node.stop_app()

    def start_app(self) -> None:
        self._node.start_app()

    @property
    def clustering(self) -> Clustering:
        return self._node.clustering

    def partitions(self) -> Mapping[str, Sequence[str]]:
        return self._node.metadata_server.known_partitions()

    def local_queues(self) -> Mapping[str, Pid]:
        broker = self._node.broker
        return {} if broker is None else broker.supervisor.children()

    def connections(self) -> Sequence[ConnectionInfo]:
        broker = self._node.broker
        return [] if broker is None else broker.listener.connections()

    def channels(self) -> Sequence[tuple[ConnectionInfo, Sequence[ChannelInfo]]]:
        broker = self._node.broker
        return [] if broker is None else broker.listener.channels()

    @property
    def rates(self) -> Rates:
        return self._rates

    def close_connection(self, pid: Pid, text: str) -> bool:
        broker = self._node.broker
        return broker is not None and broker.listener.close_connection(pid, text)
