"""A node for the management API: real process runtime and tables, queue processes of few lines."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from shalott.broker.base.env import Env, SystemClock
from shalott.broker.base.errors import BrokerError, MetadataUnavailable
from shalott.broker.rabbit.amqp.alarms import Alarms
from shalott.broker.rabbit.amqp.channel import Channel
from shalott.broker.rabbit.amqp.connection import ConnectionInfo
from shalott.broker.rabbit.amqp.counts import Counts
from shalott.broker.rabbit.amqp.exchanges import Router
from shalott.broker.rabbit.amqp.queue_protocol import MESSAGES as QUEUE_MESSAGES
from shalott.broker.rabbit.amqp.queue_protocol import (
    Confirmed,
    Content,
    Count,
    Delete,
    Get,
    Got,
    GotEmpty,
    Inspect,
    Publish,
    Purge,
    Stat,
    Stats,
)
from shalott.broker.rabbit.amqp.services import ChannelInfo, Port, Services, Session
from shalott.broker.rabbit.config import NodeConfig, Peer
from shalott.broker.rabbit.management.agent import NAME as CLIENTS
from shalott.broker.rabbit.management.agent import ClientsAgent
from shalott.broker.rabbit.management.api import serve_other
from shalott.broker.rabbit.management.backend import Rates
from shalott.broker.rabbit.management.clients import clients_of_node, send_away
from shalott.broker.rabbit.management.nodes import admit, forget
from shalott.broker.rabbit.management.views import look
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import QueueRow, Record, queue_key
from shalott.broker.rabbit.metadata.tables import LocalTransaction, Tables
from shalott.broker.rabbit.mirrored.messages import MESSAGES as MIRRORED_MESSAGES
from shalott.broker.rabbit.mirrored.messages import CancelSync, Claim, Claimed, SyncQueue
from shalott.broker.rabbit.node.node_state import MEMBER
from shalott.broker.rabbit.processes.messages import MESSAGES, Codec, Done, Failed, Message, Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller, Runtime
from shalott.broker.rabbit.storage.disk_space import DiskMonitor
from shalott.broker.rabbit.storage.memory import MemoryMonitor
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import NoEvents

T = TypeVar("T")


class FakeMetadata:
    """One node's tables, with writes that succeed at once unless ``is_available`` is False."""

    def __init__(self, running: list[str]) -> None:
        self.tables = Tables()
        self.running = running
        self.is_available = True

    def read(self, table: str, key: str) -> Record | None:
        return self.tables.read(table, key)

    def version(self, table: str, key: str) -> int:
        return self.tables.row_version(table, key)

    def rows(self, table: str) -> list[tuple[str, Record]]:
        return self.tables.rows(table)

    async def transact(
        self,
        body: Callable[[Transaction], T],
        *,
        confirmed: bool = False,
        once: bool = False,
        timeout_ms: float = 30000,
    ) -> T:
        if not self.is_available:
            raise MetadataUnavailable("no leader")
        transaction = LocalTransaction(self.tables)
        result = body(transaction)
        self.tables.apply(self.tables.version + 1, transaction.changes())
        return result

    needs_majority = False

    def is_in_majority(self) -> bool:
        return True

    def is_settled(self, table: str, key: str) -> bool:
        return True

    def running_nodes(self) -> list[str]:
        return self.running

    def put(self, table: str, row: QueueRow) -> None:
        transaction = LocalTransaction(self.tables)
        transaction.write(table, row.key, row)
        self.tables.apply(self.tables.version + 1, transaction.changes())


class FakeQueue(Process):
    """A master that holds messages, or a mirror that claims."""

    def __init__(self, key: str, role: str = "master") -> None:
        super().__init__()
        self.key = key
        self.role = role
        self.messages: list[Content] = []
        self.asked: list[Message] = []
        self.is_mute = False
        self.metadata: FakeMetadata | None = None  # where its row is to be deleted

    async def handle(self, message: Message) -> None:
        if isinstance(message, Publish):
            self.messages.append(message.content)
            assert message.seq is not None
            confirm = Confirmed(self.pid, self.key, (message.seq,))
            self.runtime.send(message.channel, confirm)

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        self.asked.append(request)
        if self.is_mute:
            return None
        match request:
            case Stat() | Inspect():
                return Stats(len(self.messages), 1, 2, "running")
            case Claim():
                count = len(self.messages)
                return Claimed(self.key, self.role, 7, "running", count, 1, True)
            case Purge():
                count, self.messages = len(self.messages), []
                return Count(count)
            case Get():
                if not self.messages:
                    return GotEmpty()
                return Got(1, False, self.messages.pop(0), len(self.messages))
            case Delete(if_empty=True) if self.messages:
                return Failed("not_empty")
            case Delete():
                assert self.metadata is not None
                await self.metadata.transact(lambda tx: tx.delete("queue", self.key))
                return Count(0)
            case SyncQueue():
                return Done()
            case CancelSync():
                return Failed("not_mirrored", "it has no mirrors")
        return Failed("unsupported")


class FakeClustering:
    """Says no, as a node does whose broker runs."""

    standing = MEMBER

    async def reset(self, *, force: bool) -> None:
        raise BrokerError("the broker on this node must be stopped: stop_app")

    async def join(self, through: str) -> None:
        raise BrokerError("the broker on this node must be stopped: stop_app")

    async def force_boot(self) -> None:
        raise BrokerError("the broker on this node must be stopped: stop_app")

    async def seed(self, node: str) -> None:
        raise BrokerError("the broker on this node must be stopped: stop_app")


class FakeNode:
    """Implements ManagementBackend and Queues. Make it inside an event loop."""

    def __init__(self, *, running: Sequence[str] = ("n1", "n2", "n3")) -> None:
        self.disk = MemoryDisk()
        self.env = Env("n1", 3, SystemClock(), random.Random(1), self.disk, NoEvents())
        peers = (Peer("n2", "h2", 25672), Peer("n3", "h3", 25672))
        self.config = NodeConfig(name="n1", data_dir="unused", peers=peers)
        codec = Codec((*MESSAGES, *QUEUE_MESSAGES, *MIRRORED_MESSAGES))
        self.runtime = Runtime("n1", 3, codec)
        self.metadata = FakeMetadata(list(running))
        self.queues: FakeNode | None = self
        self.phase = "running"
        self.memory = MemoryMonitor(self.env.clock, self.config.memory_limit_bytes)
        self.alarms = Alarms()
        self.started_ns = self.env.clock.monotonic_ns()
        self.reported: dict[str, list[str]] = {}
        self.processes: dict[str, FakeQueue] = {}
        self.clients: list[ConnectionInfo] = []
        self.takes_clients = True
        self.app = self
        self.clustering = FakeClustering()
        self.disk_space = DiskMonitor(self.disk, self.config.disk_free_limit, lambda is_on: None)
        self.opened: list[ChannelInfo] = []  # channels of each of them
        self.closed: list[tuple[Pid, str]] = []
        self.rates = Rates()
        self.counts = Counts()
        self.runtime.spawn(
            ClientsAgent(
                partial(clients_of_node, self),
                partial(send_away, self),
                self.alarms,
                partial(look, self),
                partial(forget, self),
                partial(admit, self),
                partial(serve_other, self),
            ),
            name=CLIENTS,
        )

    # -- ManagementBackend -------------------------------------------------------------------------

    def partitions(self) -> Mapping[str, Sequence[str]]:
        return self.reported

    def local_queues(self) -> Mapping[str, Pid]:
        return {key: process.pid for key, process in self.processes.items()}

    def connections(self) -> Sequence[ConnectionInfo]:
        return self.clients

    async def take_clients(self, takes: bool) -> None:
        self.takes_clients = takes

    def shut_down(self) -> None:
        self.phase = "stopping"

    def stop_app(self) -> None:
        self.phase = "stopped"

    def start_app(self) -> None:
        self.phase = "running"

    def channels(self) -> Sequence[tuple[ConnectionInfo, Sequence[ChannelInfo]]]:
        return [(info, self.opened) for info in self.clients]

    def make_channel(self, port: Port, session: Session) -> Channel | None:
        if self.queues is None:
            return None
        services = Services(
            self.env, self.runtime, self.config, self.metadata, self, lambda: True, self.alarms
        )
        return Channel(services, session, port, Router(self.metadata))

    def close_connection(self, pid: Pid, text: str) -> bool:
        self.closed.append((pid, text))
        return True

    # -- Queues ------------------------------------------------------------------------------------

    def lookup(self, vhost: str, name: str) -> QueueRow | None:
        row = self.metadata.read("queue", queue_key(vhost, name))
        assert row is None or isinstance(row, QueueRow)
        return row

    def is_available(self, row: QueueRow) -> bool:
        return row.pid is not None and self.runtime.is_alive(row.pid)

    async def declare(
        self,
        *,
        vhost: str,
        name: str,
        durable: bool,
        auto_delete: bool,
        exclusive_owner: Pid | None,
        arguments: Mapping[str, Any],
    ) -> QueueRow:
        existing = self.lookup(vhost, name)
        if existing is not None:
            return existing
        process = FakeQueue(queue_key(vhost, name))
        process.metadata = self.metadata
        pid = self.runtime.spawn(process)
        row = QueueRow(
            vhost=vhost,
            name=name,
            durable=durable,
            auto_delete=auto_delete,
            arguments=dict(arguments),
            pid=pid,
        )
        self.processes[row.key] = process
        self.metadata.put("queue", row)
        return row

    async def remove(self, row: QueueRow) -> int:
        process = self.processes.pop(row.key)
        await self.runtime.kill(process.pid)
        await self.metadata.transact(lambda tx: tx.delete("queue", row.key))
        return len(process.messages)

    # -- for tests ---------------------------------------------------------------------------------

    async def add_queue(self, name: str, **changes: Any) -> FakeQueue:
        """A durable queue whose master is here, its row changed as said."""
        row = await self.declare(
            vhost="/",
            name=name,
            durable=True,
            auto_delete=False,
            exclusive_owner=None,
            arguments={},
        )
        self.metadata.put("queue", msgspec.structs.replace(row, **changes))
        return self.processes[row.key]

    async def stop(self) -> None:
        for process in self.processes.values():
            await self.runtime.kill(process.pid)
