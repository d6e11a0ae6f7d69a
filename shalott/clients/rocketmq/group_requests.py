"""What consumers ask of brokers besides pulling: membership, locks, messages sent back, resets.

Headers and bodies are the Java client's (remoting/protocol/header/**, remoting/protocol/body/**).
Errors are those of rocketmq.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.checkers.groups.group_rules import Group
from shalott.clients.rocketmq.rocket_client import Queue, RocketClient, Unknown, success
from shalott.clients.rocketmq.stored_messages import PulledMessage

RETRY_PREFIX, DEAD_PREFIX = "%RETRY%", "%DLQ%"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
ORIGIN, ORIGIN_ID, TAGS, DELAY = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "TAGS", "DELAY"
EVERYTHING = "*"
_PAIRS = re.compile(rb'"?(\d+)"?\s*:\s*(-?\d+)')
_PLACES = re.compile(rb"\{[^{}]*\}(?:\s*:\s*-?\d+)?")
_QUEUE_ID, _OFFSET = re.compile(rb'"queueId"\s*:\s*(\d+)'), re.compile(rb'"offset"\s*:\s*(-?\d+)')
_AFTER = re.compile(rb"\}\s*:\s*(-?\d+)$")

Body = TypeVar("Body", bound=msgspec.Struct)


class _Ids(msgspec.Struct):
    ids: list[str] = msgspec.field(name="consumerIdList")


class _Queue(msgspec.Struct, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int


class _Locked(msgspec.Struct):
    queues: list[_Queue] = msgspec.field(name="lockOKMQSet")


class _Empty(msgspec.Struct):
    """A header without fields."""


class _GroupOnly(msgspec.Struct, rename="camel"):
    consumer_group: str


class _Unregister(msgspec.Struct):
    client_id: str = msgspec.field(name="clientID")
    group: str = msgspec.field(name="consumerGroup")


class _SendBack(msgspec.Struct, rename="camel"):
    offset: int
    group: str
    delay_level: int
    origin_msg_id: str
    origin_topic: str
    unit_mode: bool
    max_reconsume_times: int


class _Reset(msgspec.Struct, rename="camel"):
    topic: str
    group: str
    timestamp: int
    is_force: bool


def retry_topic(group: str) -> str:
    return f"{RETRY_PREFIX}{group}"


def subscription_of(group: Group, topic: str) -> str:
    """Tags as a pull has them; everything of the group's retry topic."""
    if not group.tags or topic.startswith(RETRY_PREFIX):
        return EVERYTHING
    return " || ".join(group.tags)


def topics_of(group: Group) -> tuple[str, ...]:
    """What its members subscribe to: a broadcast has no retries."""
    return group.topics if group.broadcast else (*group.topics, retry_topic(group.name))


async def heartbeat(client: RocketClient, address: str, member: str, group: Group) -> None:
    """Raises RocketError."""
    body = msgspec.json.encode(
        {
            "clientID": member,
            "producerDataSet": [],
            "consumerDataSet": [
                {
                    "groupName": group.name,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "BROADCASTING" if group.broadcast else "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [_subscribed(group, one) for one in topics_of(group)],
                    "unitMode": False,
                }
            ],
        }
    )
    success(await client.ask(address, RequestCode.HEART_BEAT, _Empty(), body=body))


def _subscribed(group: Group, topic: str) -> Mapping[str, object]:
    text = subscription_of(group, topic)
    tags = () if text == EVERYTHING else group.tags
    return {
        "topic": topic,
        "subString": text,
        "tagsSet": list(tags),
        "codeSet": [_java_hash(tag) for tag in tags],
        "subVersion": 0,
        "classFilterMode": False,
        "expressionType": "TAG",
    }


def _java_hash(text: str) -> int:
    """String.hashCode."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


async def unregister(client: RocketClient, address: str, member: str, group: str) -> None:
    """Raises RocketError."""
    header = _Unregister(client_id=member, group=group)
    success(await client.ask(address, RequestCode.UNREGISTER_CLIENT, header))


async def consumer_ids(client: RocketClient, address: str, group: str) -> list[str]:
    """The members that a broker knows. Raises RocketError."""
    header = _GroupOnly(consumer_group=group)
    answer = success(await client.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))
    return _decoded(answer.body, _Ids).ids


async def lock(
    client: RocketClient, address: str, member: str, group: str, queues: Sequence[Queue]
) -> list[Queue]:
    """Those that are the member's now. Raises RocketError."""
    body = _lock_body(member, group, queues)
    answer = success(await client.ask(address, RequestCode.LOCK_BATCH_MQ, _Empty(), body=body))
    held = _decoded(answer.body, _Locked).queues
    return [Queue(one.topic, one.broker_name, one.queue_id) for one in held]


async def unlock(
    client: RocketClient, address: str, member: str, group: str, queues: Sequence[Queue]
) -> None:
    """Raises RocketError."""
    body = _lock_body(member, group, queues)
    success(await client.ask(address, RequestCode.UNLOCK_BATCH_MQ, _Empty(), body=body))


def _lock_body(member: str, group: str, queues: Sequence[Queue]) -> bytes:
    places = [_Queue(one.topic, one.broker_name, one.queue_id) for one in queues]
    return msgspec.json.encode({"consumerGroup": group, "clientId": member, "mqSet": places})


async def send_back(
    client: RocketClient, address: str, group: Group, message: PulledMessage, level: int
) -> None:
    """The broker stores it again in the retry topic, or with the dead letters. Raises RocketError.

    ``level``: 0 leaves the delay to the broker; -1 asks for the dead letters.
    """
    header = _SendBack(
        offset=message.offset,
        group=group.name,
        delay_level=level,
        origin_msg_id=message.properties.get("UNIQ_KEY", ""),
        origin_topic=message.topic,
        unit_mode=False,
        max_reconsume_times=group.max_reconsume,
    )
    success(await client.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header))


async def send_to_retry(
    client: RocketClient,
    address: str,
    group: Group,
    message: PulledMessage,
    *,
    broker_name: str,
    level: int,
    times: int,
) -> None:
    """What an orderly consumer does with a message that it could not consume ``times`` times: it
    sends it anew to the retry topic, where the broker makes a dead letter of it. Raises
    RocketError.
    """
    properties = dict(message.properties)
    properties.setdefault(ORIGIN, message.topic)
    properties.setdefault(ORIGIN_ID, properties.get("UNIQ_KEY", ""))
    properties[DELAY] = str(level)
    key = properties.pop("UNIQ_KEY", "")
    sent = await client.send(
        address,
        Queue(retry_topic(group.name), broker_name, 0),
        message.body,
        unique_key=key,
        properties=properties,
        reconsumed=(times, group.max_reconsume),
    )
    if sent.code != ResponseCode.SUCCESS:
        raise Unknown(f"it was stored, and may not stay: {sent.code.name}")


async def reset(
    client: RocketClient, address: str, group: str, topic: str, timestamp_ms: int
) -> dict[int, int]:
    """Set the group back, or forward, to what was stored at that time: offsets by queue. The broker
    tells the members. Raises RocketError, Refused with CONSUMER_NOT_ONLINE if there are none.

    Asked as C++ clients do it: what Java writes for its own is no JSON.
    """
    header = _Reset(topic=topic, group=group, timestamp=timestamp_ms, is_force=True)
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    answer = success(await client.ask(address, code, header, as_cpp=True))
    return reset_offsets(answer)


async def set_group(client: RocketClient, address: str, group: str, *, retries: int) -> None:
    """Raises RocketError."""
    body = msgspec.json.encode({"groupName": group, "retryMaxTimes": retries})
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    success(await client.ask(address, code, _Empty(), body=body))


def reset_offsets(command: Command) -> dict[int, int]:
    """Offset by queue id, of a body as for Java (an object with objects as keys) or for C++."""
    found = {}
    for place in _PLACES.findall(command.body):
        queue_id = _QUEUE_ID.search(place)
        offset = _OFFSET.search(place) or _AFTER.search(place)
        if queue_id is not None and offset is not None:
            found[int(queue_id[1])] = int(offset[1])
    return found


async def delay_offsets(client: RocketClient, address: str) -> dict[int, int]:
    """Level -> how far its queue was delivered. Raises RocketError."""
    answer = success(await client.ask(address, RequestCode.GET_ALL_DELAY_OFFSET, _Empty()))
    table = answer.body.partition(b"offsetTable")[2]  # Java's keys are numbers without quotes
    return {int(level): int(offset) for level, offset in _PAIRS.findall(table)}


def _decoded(body: bytes, shape: type[Body]) -> Body:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.DecodeError as error:
        raise Unknown(f"the body can't be understood: {error}") from error
