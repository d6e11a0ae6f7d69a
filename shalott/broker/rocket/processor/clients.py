"""A broker's clients: who consumes and who produces, as their heartbeats say, and who locks queues
(upstream: ConsumerManager, ProducerManager, RebalanceLockManager).

A member of a group is a connection. It goes with its connection, by unregistering, or after two
minutes without a heartbeat. Whenever the members of a consumer group change, all of them are told,
so that they share the queues out anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from shalott.broker.rocket.processor.fields import BadRequest
from shalott.broker.rocket.remoting.java_json import decode_java_json

CHANNEL_EXPIRED_MS = 120_000  # CHANNEL_EXPIRED_TIMEOUT of upstream's managers

Connection = TypeVar("Connection")


@dataclass
class Member(Generic[Connection]):
    """One client in a group, by its connection."""

    connection: Connection
    client_id: str
    seen_ms: int
    language: int = 0
    version: int = 0


@dataclass
class ConsumerGroup(Generic[Connection]):
    """Members in the order in which they came, and what the last one said of the group."""

    data: ConsumerData
    members: list[Member[Connection]] = field(default_factory=list)


class Groups(Generic[Connection]):
    """Of one broker. Methods that change a consumer group return the connections to tell."""

    def __init__(self) -> None:
        self._consumers: dict[str, ConsumerGroup[Connection]] = {}
        self._producers: dict[str, list[Member[Connection]]] = {}

    def beat(
        self,
        connection: Connection,
        heartbeat: Heartbeat,
        now_ms: int,
        *,
        language: int = 0,
        version: int = 0,
    ) -> dict[str, list[Connection]]:
        """Group -> connections to tell that it changed."""

        def member() -> Member[Connection]:
            return Member(connection, heartbeat.client_id, now_ms, language, version)

        for producer in heartbeat.producers:
            _join(self._producers.setdefault(producer.group, []), member())
        changed = {}
        for data in heartbeat.consumers:
            group = self._consumers.setdefault(data.group, ConsumerGroup(data))
            is_new = _join(group.members, member())
            other_topics = group.data.topics != data.topics
            group.data = data
            if is_new or other_topics:
                changed[data.group] = [member.connection for member in group.members]
        return changed

    def unregister(
        self, connection: Connection, *, producer_group: str, consumer_group: str
    ) -> dict[str, list[Connection]]:
        if producer_group in self._producers:
            self._leave_producers(producer_group, connection)
        return self._leave(consumer_group, connection) if consumer_group else {}

    def closed(self, connection: Connection) -> dict[str, list[Connection]]:
        """A connection is gone."""
        for name in list(self._producers):
            self._leave_producers(name, connection)
        changed: dict[str, list[Connection]] = {}
        for name in list(self._consumers):
            changed |= self._leave(name, connection)
        return changed

    def expire(self, now_ms: int) -> dict[str, list[Connection]]:
        """Drop those that were not heard of for too long."""
        changed: dict[str, list[Connection]] = {}
        for name, members in list(self._producers.items()):
            for member in members:
                if now_ms - member.seen_ms > CHANNEL_EXPIRED_MS:
                    self._leave_producers(name, member.connection)
        for name, group in list(self._consumers.items()):
            for member in list(group.members):
                if now_ms - member.seen_ms > CHANNEL_EXPIRED_MS:
                    changed |= self._leave(name, member.connection)
        return changed

    def client_ids(self, group: str) -> list[str]:
        """Of a consumer group, each once, in order of arrival; none if it is not known."""
        if group not in self._consumers:
            return []
        return list(dict.fromkeys(m.client_id for m in self._consumers[group].members))

    def producers(self) -> dict[str, list[Member[Connection]]]:
        """By group."""
        return {name: list(members) for name, members in self._producers.items()}

    def producer(self, client_id: str) -> Connection | None:
        """The newest connection of a client that produces."""
        for members in self._producers.values():
            for member in reversed(members):
                if member.client_id == client_id:
                    return member.connection
        return None

    def members(self, group: str) -> list[Member[Connection]]:
        """Of a consumer group."""
        known = self._consumers.get(group)
        return [] if known is None else list(known.members)

    def groups_of(self, topic: str) -> list[str]:
        """Consumer groups that subscribe to it."""
        return [name for name, group in self._consumers.items() if topic in group.data.topics]

    def connections(self, group: str) -> list[Connection]:
        """Of a consumer group's members."""
        known = self._consumers.get(group)
        return [] if known is None else [member.connection for member in known.members]

    def consumer(self, group: str) -> ConsumerData | None:
        known = self._consumers.get(group)
        return None if known is None else known.data

    def _leave_producers(self, name: str, connection: Connection) -> None:
        rest = [m for m in self._producers.get(name, ()) if m.connection is not connection]
        if rest:
            self._producers[name] = rest
        else:
            self._producers.pop(name, None)

    def _leave(self, name: str, connection: Connection) -> dict[str, list[Connection]]:
        group = self._consumers.get(name)
        if group is None:
            return {}
        rest = [member for member in group.members if member.connection is not connection]
        if len(rest) == len(group.members):
            return {}
        group.members = rest
        if not rest:
            del self._consumers[name]
        return {name: [member.connection for member in rest]}


def _join(members: list[Member[Connection]], newcomer: Member[Connection]) -> bool:
    """Whether it was not among them."""
    for member in members:
        if member.connection is newcomer.connection:
            member.client_id, member.seen_ms = newcomer.client_id, newcomer.seen_ms
            return False
    members.append(newcomer)
    return True


# -- bodies ----------------------------------------------------------------------------------------
# Heartbeats, consumer lists and queue locks, as JSON.
#
# Enumerations are names from Java and integers from C++ (docs/protocols.md 6.2), so both are
# taken. Unknown fields are ignored: every version has some of its own.


T = TypeVar("T")


class SubscriptionData(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer wants of one topic."""

    topic: str
    sub_string: str = msgspec.field(default="*", name="subString")
    class_filter_mode: bool = msgspec.field(default=False, name="classFilterMode")
    tags_set: tuple[str, ...] | None = msgspec.field(default=(), name="tagsSet")
    # Java's client sends numbers, the C++ client their text.
    code_set: tuple[int | str, ...] | None = msgspec.field(default=(), name="codeSet")
    sub_version: int | str = msgspec.field(default=0, name="subVersion")
    expression_type: str | None = msgspec.field(default="TAG", name="expressionType")


class ConsumerData(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer group, as a member describes it."""

    group: str = msgspec.field(name="groupName")
    consume_type: str | int = msgspec.field(default="CONSUME_PASSIVELY", name="consumeType")
    message_model: str | int = msgspec.field(default="CLUSTERING", name="messageModel")
    consume_from_where: str | int = msgspec.field(
        default="CONSUME_FROM_LAST_OFFSET", name="consumeFromWhere"
    )
    subscriptions: tuple[SubscriptionData, ...] = msgspec.field(
        default=(), name="subscriptionDataSet"
    )

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted(one.topic for one in self.subscriptions))


class ProducerData(msgspec.Struct, frozen=True, kw_only=True):
    """One producer group."""

    group: str = msgspec.field(name="groupName")


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The body of HEART_BEAT (34)."""

    client_id: str = msgspec.field(name="clientID")
    producers: tuple[ProducerData, ...] = msgspec.field(default=(), name="producerDataSet")
    consumers: tuple[ConsumerData, ...] = msgspec.field(default=(), name="consumerDataSet")


class MessageQueue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue, as clients name it."""

    topic: str
    broker_name: str = msgspec.field(default="", name="brokerName")
    queue_id: int = msgspec.field(name="queueId")


class LockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

    group: str = msgspec.field(name="consumerGroup")
    client_id: str = msgspec.field(name="clientId")
    queues: tuple[MessageQueue, ...] = msgspec.field(default=(), name="mqSet")


class Locked(msgspec.Struct, frozen=True, kw_only=True):
    """The body of the answer to LOCK_BATCH_MQ."""

    queues: tuple[MessageQueue, ...] = msgspec.field(name="lockOKMQSet")


def decode_json(body: bytes, shape: type[T]) -> T:
    """Raises BadRequest."""
    try:
        return decode_java_json(body, shape)
    except msgspec.DecodeError as error:  # a ValidationError is one
        raise BadRequest(f"the body can't be understood: {error}") from error


# -- queue locks -----------------------------------------------------------------------------------
# QueueLocks: which client of a group consumes a queue in order (upstream: RebalanceLockManager).
#
# A lock is its client's for 60 seconds after the last request for it, which clients repeat every
# 20. It is in this broker's memory only, as upstream's: a new master knows of none.


LOCK_EXPIRES_MS = 60_000  # rocketmq.broker.rebalance.lockMaxLiveTime

QueueKey = tuple[str, int]  # topic, queue id


@dataclass(slots=True)
class _Lock:
    client_id: str
    updated_ms: int


class QueueLocks:
    """Of one broker; time is the node's monotonic clock."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, QueueKey], _Lock] = {}

    def lock(self, group: str, client_id: str, queues: list[QueueKey], now_ms: int) -> list[int]:
        """Indexes of the queues that the client holds now."""
        return [
            index
            for index, queue in enumerate(queues)
            if self._lock_one(group, client_id, queue, now_ms)
        ]

    def unlock(self, group: str, client_id: str, queues: list[QueueKey]) -> None:
        """Give up those that the client holds; those of others stay."""
        for queue in queues:
            lock = self._locks.get((group, queue))
            if lock is not None and lock.client_id == client_id:
                del self._locks[group, queue]

    def _lock_one(self, group: str, client_id: str, queue: QueueKey, now_ms: int) -> bool:
        lock = self._locks.get((group, queue))
        if lock is None:
            self._locks[group, queue] = _Lock(client_id, now_ms)
            return True
        if lock.client_id != client_id and now_ms - lock.updated_ms <= LOCK_EXPIRES_MS:
            return False
        lock.client_id, lock.updated_ms = client_id, now_ms
        return True
