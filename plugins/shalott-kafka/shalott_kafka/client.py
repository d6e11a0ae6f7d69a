"""A client of Kafka that sends to a topic's partitions and polls them, by aiokafka.

    transactions   fail    an error before the commit was asked for, and a producer of the same
                           transactional id, which aborts what was open, has begun within a second
                   info    any error from the commit on, or if none has begun
    idempotence    info    any error: the library sends again until it knows, and may have sent
    neither        fail    the broker refused the one request before it appended anything (REFUSED)
                   info    everything else: an answer that did not come, a leader that lost its
                           place behind the append
    polls alone    fail    any error: nothing was changed

Without idempotence the library's producer would send again what may be stored already, as any of
Kafka's does, and a duplicate would be its work; so one request is sent, once (retries=0). After any
error producer and consumer are made anew: what they still had under way ends with them.

    commits        fail    the group has a new generation, or does not know the member
                   info    any other error

A poll that returns nothing has reached the end of what is committed, as the copy has it that is
read: the leader's, or with ``reads`` = "nearest" the one on the client's own node. A follower may
know less than its leader, and for as long as nothing is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
)
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    MessageSizeTooLargeError,
    NodeNotReadyError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.group import LeaveGroupRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

import shalott.api as api
from shalott_kafka.protected import ProtectedProducer

if TYPE_CHECKING:
    from shalott_kafka.settings import KafkaParameters

TOPIC = "shalott"
POLL_WAIT_MS = 100
CLOSE_S = 1.0  # a member says that it leaves
FENCE_S = 1.0  # a producer takes the place of one whose transaction is open
ENDINGS_MAX = 40
R = TypeVar("R")
TROUBLES = (KafkaError, OSError, TimeoutError)
# A leader that lost its place says so too while others still have to acknowledge what it appended:
# https://github.com/apache/kafka, DelayedProduce. With acks=1 nothing waits behind the append.
REFUSED = (NotEnoughReplicasError, MessageSizeTooLargeError)
NOT_COMMITTED = (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
GROUP, MISSED_MS = "readers", 6000  # of a member that is gone; no broker takes less
Pairs = list[tuple[int, int]]

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # faults are not its news


class Moves(ConsumerRebalanceListener):  # type: ignore[misc]
    """The partitions that the group took or gave."""

    def __init__(self) -> None:
        self.keys: list[int] = []

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.keys += [each.partition for each in revoked]

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.keys += [each.partition for each in assigned]


class KafkaClient:
    """See ``Partitioned``. It is of one node: that is asked for the cluster's brokers, and polls
    read from its copy of a partition if it has one that is in sync."""

    def __init__(
        self, host: str, port: int, *, timeout_ms: int, asked: KafkaParameters, prefix: str = ""
    ) -> None:
        self._host, self._at = host, f"{host}:{port}"
        self._timeout_s, self._asked = timeout_ms / 1000, asked
        self._topic, self._group = f"{prefix}{TOPIC}", f"{prefix}{GROUP}"
        self._id = str(uuid.uuid4())
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._has_sent = False  # what may be done although no answer comes
        self._is_open = False  # a transaction, whose commit was not asked for
        self._is_member = False  # of the group
        self._moves = Moves()

    async def open(self) -> None:
        try:
            await within(self._timeout_s, self._ready_consumer())
        except TROUBLES as error:
            await self.close()
            raise api.Unreachable(f"no broker at {self._at}: {_words(error)}") from error

    async def transact(
        self, mops: Sequence[tuple[object, ...]], places: Mapping[int, int]
    ) -> list[tuple[int, int] | dict[int, Pairs]]:
        self._has_sent = self._is_open = False
        try:
            return await within(self._timeout_s, self._do_all(mops, dict(places)))
        except TROUBLES as error:
            await self.close()
            may_happen = self._has_sent or (self._is_open and not await self._fence())
            raise (api.Indefinite if may_happen else api.Definite)(_words(error)) from error
        except api.ClientError:
            await self.close()  # what it polled is polled again
            raise

    async def subscribe(self, keys: Sequence[int]) -> None:
        """A group is of topics: a member is given any of the topic's partitions."""
        await self.close()
        self._is_member = bool(keys)
        try:
            await within(self._timeout_s, self._ready_consumer())
        except TROUBLES as error:
            await self.close()
            kind = api.Indefinite if isinstance(error, TimeoutError) else api.Unreachable
            raise kind(_words(error)) from error

    async def commit(self, places: Mapping[int, int]) -> None:
        if self._consumer is None:
            raise api.Definite("its consumer, which polled them, has left the group")
        try:
            at = {TopicPartition(self._topic, key): offset for key, offset in places.items()}
            await within(self._timeout_s, self._consumer.commit(at))
        except NOT_COMMITTED as error:
            await self.close()
            raise api.Definite(_words(error)) from error
        except TROUBLES as error:
            await self.close()
            raise api.Indefinite(_words(error)) from error

    def moved(self) -> Sequence[int]:
        keys, self._moves.keys = self._moves.keys, []
        return keys

    async def close(self) -> None:
        """At once: what is under way is not waited for."""
        producer, consumer = self._producer, self._consumer
        self._producer = self._consumer = None
        with contextlib.suppress(*TROUBLES):
            if producer is not None:
                await _end(producer)
        if consumer is not None:
            await _end_consumer(consumer)

    async def _ready_consumer(self) -> None:
        if self._consumer is not None:
            return
        self._positions = {}
        asked, is_near = self._asked, self._asked.reads == "nearest"
        self._consumer = AIOKafkaConsumer(
            *((self._topic,) if self._is_member else ()),
            bootstrap_servers=self._at,
            group_id=self._group if self._is_member else None,
            isolation_level="read_committed",
            auto_offset_reset=asked.offset_reset if self._is_member else "none",
            enable_auto_commit=False,
            request_timeout_ms=max(asked.request_timeout_ms, 2 * MISSED_MS),
            session_timeout_ms=MISSED_MS,
            max_poll_interval_ms=MISSED_MS,
            heartbeat_interval_ms=1000,
            fetch_max_wait_ms=POLL_WAIT_MS,
            client_rack=self._host if is_near else None,
        )
        if self._is_member:
            self._consumer.subscribe((self._topic,), listener=self._moves)
        await self._consumer.start()

    async def _ready_producer(self) -> None:
        """One that is made with the transactional id of the one before fences that one."""
        if self._producer is not None:
            return
        asked = self._asked
        is_protected = asked.transactions and asked.transaction_version == "2"
        make = ProtectedProducer if is_protected else AIOKafkaProducer
        self._producer = make(
            bootstrap_servers=self._at,
            acks=asked.acks if asked.acks == "all" else int(asked.acks),
            enable_idempotence=asked.idempotence,
            transactional_id=self._id if asked.transactions else None,
            transaction_timeout_ms=asked.transaction_timeout_ms,
            request_timeout_ms=asked.request_timeout_ms,
        )
        await self._producer.start()

    async def _fence(self) -> bool:
        """Whether the transaction that is open is aborted now, and nothing of it comes yet."""
        try:
            await within(FENCE_S, self._ready_producer())
        except TROUBLES:
            await self.close()
            return False
        return True

    async def _do_all(
        self, mops: Sequence[tuple[object, ...]], places: dict[int, int]
    ) -> list[tuple[int, int] | dict[int, Pairs]]:
        kinds = {mop[0] for mop in mops}
        if "poll" in kinds:
            await self._ready_consumer()
        if "send" not in kinds:
            return await self._do_each(mops, places)
        await self._ready_producer()
        if self._asked.transactions:
            return await self._transact(mops, places)
        self._has_sent = True
        return await self._do_each(mops, places)

    async def _transact(
        self, mops: Sequence[tuple[object, ...]], places: dict[int, int]
    ) -> list[tuple[int, int] | dict[int, Pairs]]:
        producer = self._producer
        assert producer is not None
        await producer.begin_transaction()
        self._is_open = True
        done = await self._do_each(mops, places)
        self._has_sent = True
        await producer.commit_transaction()
        return done

    async def _do_each(
        self, mops: Sequence[tuple[object, ...]], places: dict[int, int]
    ) -> list[tuple[int, int] | dict[int, Pairs]]:
        """A poll goes on behind the one before."""
        send = self._send if self._asked.idempotence else self._send_once
        done: list[tuple[int, int] | dict[int, Pairs]] = []
        for mop in mops:
            if mop[0] == "send":
                done.append(await send(*mop[1:]))
            else:
                polled = await self._poll(places)
                places |= {key: pairs[-1][0] + 1 for key, pairs in polled.items()}
                done.append(polled)
        return done

    async def _send(self, key: object, value: object) -> tuple[int, int]:
        """By the library's producer: it sends again until it knows."""
        assert self._producer is not None and isinstance(key, int) and isinstance(value, int)
        stored = await self._producer.send_and_wait(self._topic, str(value).encode(), partition=key)
        return stored.offset, value

    async def _send_once(self, key: object, value: object) -> tuple[int, int]:
        """One request, with the outcome that its answer has. Raises ClientError."""
        assert self._producer is not None and isinstance(key, int) and isinstance(value, int)
        client = self._producer.client
        await self._producer.partitions_for(self._topic)
        leader = client.cluster.leader_for_partition(TopicPartition(self._topic, key))
        if leader in (None, -1):
            await client.force_metadata_update()
            raise api.Definite(f"partition {key} has no leader")
        batch = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 14)
        batch.append(0, int(time.time() * 1000), None, str(value).encode(), [])
        acks = -1 if self._asked.acks == "all" else int(self._asked.acks)
        records = [(self._topic, [(key, bytes(batch.build()))])]
        request = ProduceRequest(None, acks, int(self._timeout_s * 1000), records)
        try:
            answer = await client.send(leader, request)
        except NodeNotReadyError as error:
            raise api.Definite(f"no connection to the leader of {key}") from error
        [(_, [(_, code, offset, *_)])] = answer.topics
        if code:
            await client.force_metadata_update()
            raise outcome_of(code, acks)
        return offset, value

    async def _poll(self, places: Mapping[int, int]) -> dict[int, Pairs]:
        consumer = self._consumer
        assert consumer is not None
        if self._is_member:
            return _found(await consumer.getmany(timeout_ms=POLL_WAIT_MS))
        wanted = {TopicPartition(self._topic, key): offset for key, offset in places.items()}
        if consumer.assignment() != set(wanted):
            consumer.assign(list(wanted))
            self._positions = {}
        for partition, offset in wanted.items():
            if self._positions.get(partition) != offset:
                consumer.seek(partition, offset)
        self._positions, begun_ms = wanted, int(time.time() * 1000)
        while wanted:
            found = _found(await consumer.getmany(timeout_ms=POLL_WAIT_MS))
            if found:
                after = {
                    TopicPartition(self._topic, key): at[-1][0] + 1 for key, at in found.items()
                }
                self._positions = wanted | after
                return found
            if all([await _is_at_end(consumer, each, begun_ms) for each in wanted]):
                break
        return {}


def outcome_of(code: int, acks: int) -> api.ClientError:
    """Of the one request that a broker answered with an error."""
    error = for_code(code)
    is_refused = issubclass(error, REFUSED) or (
        acks == 1 and issubclass(error, NotLeaderForPartitionError)
    )
    return (api.Definite if is_refused else api.Indefinite)(error.__name__)


def _found(polled: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> dict[int, Pairs]:
    return {
        each.partition: [(record.offset, int(record.value)) for record in records]
        for each, records in polled.items()
        if records
    }


async def _is_at_end(consumer: AIOKafkaConsumer, partition: TopicPartition, since: int) -> bool:
    """Whether the copy that is read has told since then that nothing committed is behind."""
    told = consumer.last_poll_timestamp(partition)
    stable = consumer.last_stable_offset(partition)
    return told is not None and told >= since and await consumer.position(partition) >= stable


def _words(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()


async def _end(producer: AIOKafkaProducer) -> None:
    """``stop`` would wait until all is delivered: its sender is ended first, and each task that
    this waits for; the connections are closed behind them."""
    sender = producer._sender.sender_task
    for _ in range(ENDINGS_MAX):
        if sender is None or sender.done():
            break
        sender.cancel()
        await asyncio.wait([sender], timeout=0.05)
    producer._closed = True
    await within(CLOSE_S, producer.client.close())


async def _end_consumer(consumer: AIOKafkaConsumer) -> None:
    """A member leaves at once, by a connection of its own: ``stop`` would first await that it has
    joined, which a group lets nobody before all have that are in it. One that went without a word
    would be among those, and hold up the next, who goes without a word for it, and so on."""
    member, coordinator = (
        consumer._coordinator,
        getattr(consumer._coordinator, "coordinator_id", None),
    )
    if coordinator is not None and member.member_id:
        leave = LeaveGroupRequest(GROUP, member.member_id)
        with contextlib.suppress(*TROUBLES):
            await within(CLOSE_S, consumer._client.send(coordinator, leave))
    for ending in (consumer.stop, consumer._client.close):
        with contextlib.suppress(*TROUBLES):
            await within(CLOSE_S, ending())


_left: set[asyncio.Task[object]] = set()  # whose ends are not waited for


async def within(seconds: float, doing: Coroutine[object, object, R]) -> R:
    """As ``asyncio.wait_for``, of what may take no notice of being cancelled: the library waits in
    places for tasks of its own that do not. Raises TimeoutError."""
    task = asyncio.ensure_future(doing)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            _left.add(task)
            task.add_done_callback(_forget)
    if not task.done() or task in _left:
        raise TimeoutError
    return task.result()


def _forget(task: asyncio.Task[object]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # it is asked for: none is told of at the end
