"""Stand-ins for what lies behind the AMQP layer: tables in memory, queues of one process each, one
node.

They follow the contracts (broker/rabbit/metadata/api.py, broker/rabbit/amqp/queue_protocol.py,
broker/rabbit/amqp/services.py) but neither replicate nor store anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from shalott.broker.rabbit.amqp import queue_protocol as protocol
from shalott.broker.rabbit.amqp.exchanges import drop_unused
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import TABLES, BindingRow, QueueRow, Record, queue_key
from shalott.broker.rabbit.processes.messages import Done, Down, Failed, Message, Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller, Runtime
from tests.world.clock.turns import turns

T = TypeVar("T")


class MemoryTransaction:
    def __init__(self, metadata: MemoryMetadata) -> None:
        self._metadata = metadata

    def read(self, table: str, key: str) -> Record | None:
        return self._metadata.read(table, key)

    def version(self, table: str, key: str) -> int:
        return self._metadata.version(table, key)

    def rows(self, table: str) -> list[tuple[str, Record]]:
        return self._metadata.rows(table)

    def write(self, table: str, key: str, record: Record) -> None:
        self._metadata.put(table, key, record)

    def delete(self, table: str, key: str) -> None:
        self._metadata.remove(table, key)


class MemoryMetadata:
    """Tables of one node. ``broken``: what a write raises, for tests of its absence."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Record]] = {table: {} for table in TABLES}
        self._version = 0
        self.broken: Exception | None = None

    def read(self, table: str, key: str) -> Record | None:
        return self._tables[table].get(key)

    def version(self, table: str, key: str) -> int:
        return self._version

    def rows(self, table: str) -> list[tuple[str, Record]]:
        return sorted(self._tables[table].items())

    def put(self, table: str, key: str, record: Record) -> None:
        self._version += 1
        self._tables[table][key] = record

    def remove(self, table: str, key: str) -> None:
        self._version += 1
        self._tables[table].pop(key, None)

    async def transact(self, body: Callable[[Transaction], T], *, timeout_ms: float = 30000) -> T:
        await turns()
        if self.broken is not None:
            raise self.broken
        return body(MemoryTransaction(self))

    needs_majority = False

    def is_in_majority(self) -> bool:
        return True

    def is_settled(self, table: str, key: str) -> bool:
        return True

    def running_nodes(self) -> list[str]:
        return ["n1"]


class End(Message, frozen=True):
    """The queue was deleted."""


@dataclass
class _Stored:
    position: int
    content: protocol.Content
    redelivered: bool = False


@dataclass
class _Consumer:
    request: protocol.Consume
    unsettled: int = 0


@dataclass
class _Given:
    stored: _Stored
    channel: Pid
    consumer: _Consumer | None


class MemoryQueue(Process):
    """A master without mirrors: delivers, settles, confirms (not while ``holding``)."""

    def __init__(self, row: QueueRow, on_unused: Callable[[QueueRow], Coroutine[Any, Any, Any]]):
        super().__init__()
        self.row = row
        self.holding = False
        self.ready: deque[_Stored] = deque()
        self.given: dict[int, _Given] = {}
        self.consumers: list[_Consumer] = []
        self.limits: dict[Pid, int] = {}
        self.paused: set[Pid] = set()
        self.written = 0
        self.channels: dict[Pid, int] = {}
        self._held: list[protocol.Publish] = []
        self._on_unused = on_unused
        self._position = 0
        self._ack_id = 0

    # -- from channels

    async def handle(self, message: Message) -> None:
        match message:
            case protocol.Publish():
                self._publish(message)
            case protocol.Settle(channel, ack_ids, outcome):
                self._settle(channel, ack_ids, outcome)
            case protocol.ChannelLimit(channel, prefetch):
                self.limits[channel] = prefetch
            case protocol.Returned(channel, ack_id, redelivered):
                if channel not in self.paused:
                    self.paused.add(channel)
                    self.runtime.send(channel, protocol.Paused(self.pid))
                self._settle(channel, (ack_id,), "requeue", redelivered=redelivered)
            case protocol.Resume(channel):
                self.paused.discard(channel)
            case protocol.Written(_, count):
                self.written += count
            case Down(_, channel, _):
                await self._channel_down(channel)
            case End():
                self.exit("normal")
        self._deliver_all()

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        answer = await self._answer(request)
        caller.reply(answer)
        self._deliver_all()
        return None

    async def _answer(self, request: Message) -> Message:
        match request:
            case protocol.Get(channel, no_ack):
                return self._get(channel, no_ack)
            case protocol.Consume():
                return self._consume(request)
            case protocol.CancelConsumer(channel, tag):
                await self._cancel(channel, tag)
                return Done()
            case protocol.Purge():
                count = len(self.ready)
                self.ready.clear()
                return protocol.Count(count)
            case protocol.Stat():
                counts = (len(self.ready), len(self.given), len(self.consumers))
                return protocol.Stats(*counts, "running")
            case protocol.Delete(if_unused, if_empty):
                if if_unused and self.consumers:
                    return Failed("in_use")
                if if_empty and self.ready:
                    return Failed("not_empty")
                count = len(self.ready)
                await self._on_unused(self.row)
                return protocol.Count(count)
        return Failed("unsupported", type(request).__name__)

    def release(self) -> None:
        """Confirm what was kept back."""
        self.holding = False
        for message in self._held:
            self._confirm(message)
        self._held.clear()

    # -- helpers

    def _publish(self, message: protocol.Publish) -> None:
        limit = self.row.arguments.get("x-max-length")
        if limit is not None and len(self.ready) >= limit:
            if message.seq is not None:
                refused = protocol.Refused(self.pid, self.row.key, (message.seq,))
                self.runtime.send(message.channel, refused)
            return
        self._position += 1
        self.ready.append(_Stored(self._position, message.content))
        if self.holding:
            self._held.append(message)
        else:
            self._confirm(message)

    def _confirm(self, message: protocol.Publish) -> None:
        if message.seq is not None:
            confirmed = protocol.Confirmed(self.pid, self.row.key, (message.seq,))
            self.runtime.send(message.channel, confirmed)

    def _watch(self, channel: Pid) -> None:
        if channel not in self.channels:
            self.channels[channel] = self.runtime.monitor(channel, self.pid)

    def _give(self, stored: _Stored, channel: Pid, consumer: _Consumer | None) -> int:
        self._ack_id += 1
        self.given[self._ack_id] = _Given(stored, channel, consumer)
        if consumer is not None:
            consumer.unsettled += 1
        return self._ack_id

    def _get(self, channel: Pid, no_ack: bool) -> Message:
        if not self.ready:
            return protocol.GotEmpty()
        stored = self.ready.popleft()
        self._watch(channel)
        ack_id = 0 if no_ack else self._give(stored, channel, None)
        return protocol.Got(ack_id, stored.redelivered, stored.content, len(self.ready))

    def _consume(self, request: protocol.Consume) -> Message:
        exclusive = request.exclusive or any(c.request.exclusive for c in self.consumers)
        if exclusive and self.consumers:
            return Failed("access_refused")
        self._watch(request.channel)
        self.consumers.append(_Consumer(request))
        return Done()

    async def _cancel(self, channel: Pid, tag: str) -> None:
        had = bool(self.consumers)
        self.consumers = [
            consumer
            for consumer in self.consumers
            if (consumer.request.channel, consumer.request.tag) != (channel, tag)
        ]
        if had and not self.consumers and self.row.auto_delete:
            await self._on_unused(self.row)

    def _settle(
        self, channel: Pid, ack_ids: tuple[int, ...], outcome: str, *, redelivered: bool = True
    ) -> None:
        for ack_id in ack_ids:
            given = self.given.get(ack_id)
            if given is None or given.channel != channel:
                continue
            del self.given[ack_id]
            if given.consumer is not None:
                given.consumer.unsettled -= 1
            if outcome == "requeue":
                self._requeue(given.stored, redelivered=redelivered)

    def _requeue(self, stored: _Stored, *, redelivered: bool) -> None:
        stored.redelivered = redelivered
        self.ready.append(stored)
        self.ready = deque(sorted(self.ready, key=lambda item: item.position))

    async def _channel_down(self, channel: Pid) -> None:
        self.channels.pop(channel, None)
        self.limits.pop(channel, None)
        self.paused.discard(channel)
        mine = tuple(i for i, given in self.given.items() if given.channel == channel)
        for tag in [c.request.tag for c in self.consumers if c.request.channel == channel]:
            await self._cancel(channel, tag)
        self._settle(channel, mine, "requeue")

    def _may_receive(self, consumer: _Consumer) -> bool:
        request = consumer.request
        if request.no_ack:
            return True
        if request.channel in self.paused:
            return False
        limit = self.limits.get(request.channel, 0)
        on_channel = sum(
            given.channel == request.channel and given.consumer is not None
            for given in self.given.values()
        )
        per_consumer = not request.prefetch or consumer.unsettled < request.prefetch
        return per_consumer and (not limit or on_channel < limit)

    def _deliver_all(self) -> None:
        while self.ready:
            able = [consumer for consumer in self.consumers if self._may_receive(consumer)]
            if not able:
                return
            chosen = max(able, key=lambda consumer: consumer.request.priority)
            self.consumers.remove(chosen)
            self.consumers.append(chosen)
            stored = self.ready.popleft()
            request = chosen.request
            ack_id = 0 if request.no_ack else self._give(stored, request.channel, chosen)
            self.runtime.send(
                request.channel,
                protocol.Deliver(self.pid, request.tag, ack_id, stored.redelivered, stored.content),
            )


class MirrorDouble(Process):
    """A mirror that keeps what channels send it and confirms it, unless told to hold."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.holding = False
        self.received: list[protocol.Publish] = []
        self._held: list[protocol.Publish] = []

    async def handle(self, message: Message) -> None:
        if isinstance(message, End):
            self.exit("normal")
        if isinstance(message, protocol.Publish):
            self.received.append(message)
            if self.holding:
                self._held.append(message)
            else:
                self._confirm(message)

    def release(self) -> None:
        self.holding = False
        for message in self._held:
            self._confirm(message)
        self._held.clear()

    def _confirm(self, message: protocol.Publish) -> None:
        if message.seq is not None:
            confirmed = protocol.Confirmed(self.pid, self.key, (message.seq,))
            self.runtime.send(message.channel, confirmed)


class MemoryQueues:
    """Queues of this one node; ``mirrored`` names get that many MirrorDoubles."""

    def __init__(self, runtime: Runtime, metadata: MemoryMetadata) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self.mirrored: dict[str, int] = {}

    def lookup(self, vhost: str, name: str) -> QueueRow | None:
        row = self._metadata.read("queue", queue_key(vhost, name))
        return row if isinstance(row, QueueRow) else None

    def is_available(self, row: QueueRow) -> bool:
        return row.pid is not None and self._runtime.is_alive(row.pid)

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
        await turns()
        existing = self.lookup(vhost, name)
        if existing is not None:
            return existing
        row = QueueRow(
            vhost=vhost,
            name=name,
            durable=durable,
            auto_delete=auto_delete,
            exclusive_owner=exclusive_owner,
            arguments=dict(arguments),
        )
        pid = self._runtime.spawn(MemoryQueue(row, self.remove))
        mirrors = [MirrorDouble(row.key) for _ in range(self.mirrored.get(name, 0))]
        slave_pids = tuple(self._runtime.spawn(mirror) for mirror in mirrors)
        row = msgspec.structs.replace(row, pid=pid, slave_pids=slave_pids)
        self.store(row)
        return row

    def store(self, row: QueueRow) -> None:
        self._metadata.put("queue", row.key, row)
        if row.durable:
            self._metadata.put("durable_queue", row.key, row)

    async def remove(self, row: QueueRow) -> int:
        await turns()
        current = self.lookup(row.vhost, row.name)
        if current is None:
            return 0
        for table in ("queue", "durable_queue"):
            self._metadata.remove(table, row.key)
        sources = []
        for key, binding in self._metadata.rows("binding"):
            if isinstance(binding, BindingRow) and binding.destination == row.name:
                self._metadata.remove("binding", key)
                sources.append(binding.source)
        drop_unused(MemoryTransaction(self._metadata), row.vhost, sources)
        count = 0
        for pid in (current.pid, *current.slave_pids):
            process = None if pid is None else self._runtime.process(pid)
            if process is not None:
                count += len(process.ready) if isinstance(process, MemoryQueue) else 0
                process.deliver(End())
        return count
