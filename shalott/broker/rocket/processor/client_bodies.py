"""JSON bodies that clients send and get: heartbeats, consumer lists, queue locks.

Enumerations are names from Java and integers from C++ (docs/protocols.md 6.2), so both are taken;
fields that are not known are ignored, as every version has some of its own.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from shalott.broker.rocket.processor.fields import BadRequest
from shalott.broker.rocket.remoting.java_json import decode_java_json

T = TypeVar("T")


class SubscriptionData(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer wants of one topic."""

    topic: str
    sub_string: str = msgspec.field(default="*", name="subString")


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
