"""What administrators are told of queues and clients: 202, 203, 204, 208, 300, 317, 321, 328
(upstream: AdminBrokerProcessor).

Java writes maps whose keys are queues with the queue as an object in place of the key, which is no
JSON; so does this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shalott.broker.rocket.commitlog.api import GetStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.clients import Member
from shalott.broker.rocket.processor.fields import Fields
from shalott.broker.rocket.processor.puts import find_topic
from shalott.broker.rocket.processor.stored_messages import read_stored
from shalott.broker.rocket.processor.topics import RETRY_PREFIX, queues_of
from shalott.broker.rocket.remoting.command import Command, Language, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller

ONE_MESSAGE_BYTES = 4 << 20
_CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
_MODELS = ("BROADCASTING", "CLUSTERING")
_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)

Row = tuple[Mapping[str, object], Mapping[str, object]]  # a queue, and what is said of it


def _json(value: object) -> Command:
    return response(ResponseCode.SUCCESS, body=msgspec.json.encode(value))


def with_objects_as_keys(rows: Iterable[Row]) -> msgspec.Raw:
    """As fastjson writes a map."""
    pairs = (msgspec.json.encode(key) + b":" + msgspec.json.encode(value) for key, value in rows)
    return msgspec.Raw(b"{" + b",".join(pairs) + b"}")


def _queue(broker: Broker, topic: str, queue_id: int) -> Mapping[str, object]:
    return {"brokerName": broker.config.broker_name, "queueId": queue_id, "topic": topic}


async def _stored_ms(broker: Broker, topic: str, queue_id: int, offset: int) -> int:
    """When the message was stored that has this queue offset; 0 if there is none."""
    if offset < 0:
        return 0
    got = await broker.store.reader.get(
        topic, queue_id, offset, max_messages=1, max_bytes=ONE_MESSAGE_BYTES
    )
    found = got.status is GetStatus.FOUND and got.messages
    return read_stored(got.messages[0]).store_ms if found else 0


# -- topics ----------------------------------------------------------------------------------------


async def topic_stats(broker: Broker, request: Command, caller: Caller) -> Command:
    topic = Fields(request.ext).text("topic")
    config = find_topic(broker, topic)
    if config is None:
        return response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    rows: list[Row] = []
    for queue_id in range(queues_of(config)):
        first, end = broker.store.reader.queue_range(topic, queue_id)
        at_ms = await _stored_ms(broker, topic, queue_id, end - 1) if end > first else 0
        told = {"lastUpdateTimestamp": at_ms, "maxOffset": end, "minOffset": first}
        rows.append((_queue(broker, topic, queue_id), told))
    return _json({"offsetTable": with_objects_as_keys(rows), "topicPutTps": 0.0})


async def groups_of_topic(broker: Broker, request: Command, caller: Caller) -> Command:
    topic = Fields(request.ext).text("topic")
    kept = (key.partition("@") for key in broker.tables.offsets)
    groups = [group for name, _, group in kept if name == topic]
    return _json({"groupList": list(dict.fromkeys(broker.clients.groups_of(topic) + groups))})


async def queue_units(broker: Broker, request: Command, caller: Caller) -> Command:
    """QUERY_CONSUME_QUEUE: units of a consume queue as they are."""
    fields = Fields(request.ext)
    topic, queue_id = fields.text("topic"), fields.number("queueId")
    index, count = fields.number("index"), fields.number("count")
    first, end = broker.store.reader.queue_range(topic, queue_id)
    if end == first:
        remark = f"{queue_id}@{topic} is not exist!"
        return response(ResponseCode.SUCCESS, remark)
    start = max(first, index) if index >= 0 else max(first, end - count)
    if start >= end:
        remark = f"Index {start} of {queue_id}@{topic} is not exist!"
        return response(ResponseCode.SUCCESS, remark)
    units = await broker.store.reader.units(topic, queue_id, start, min(count, end - start))
    rows = [
        {"physicOffset": offset, "physicSize": size, "tagsCode": code, "eval": True}
        for offset, size, code in units
    ]
    return _json({"maxQueueIndex": end, "minQueueIndex": first, "queueData": rows})


# -- what groups consumed --------------------------------------------------------------------------


async def consume_stats(broker: Broker, request: Command, caller: Caller) -> Command:
    """Of one topic, or of all that the group has offsets of."""
    fields = Fields(request.ext)
    group, topic = fields.text("consumerGroup"), fields.text("topic", "")
    topics = [topic] if topic else _topics_of(broker, group)
    rows = [row for name in topics for row in await _consumed(broker, group, name)]
    return _json({"consumeTps": 0.0, "offsetTable": with_objects_as_keys(rows)})


def _topics_of(broker: Broker, group: str) -> list[str]:
    found = (key.partition("@") for key in broker.tables.offsets)
    return [topic for topic, _, name in found if name == group]


async def _consumed(broker: Broker, group: str, topic: str) -> list[Row]:
    config = find_topic(broker, topic)
    consumer = broker.clients.consumer(group)
    if config is None:
        return []
    if consumer is not None and consumer.topics and topic not in consumer.topics:
        return []  # it subscribes to others now
    rows: list[Row] = []
    for queue_id in range(config.read_queue_nums):
        _, end = broker.store.reader.queue_range(topic, queue_id)
        offset = max(0, broker.tables.offset(group, topic, queue_id) or 0)
        told = {
            "brokerOffset": end,
            "consumerOffset": offset,
            "lastTimestamp": await _stored_ms(broker, topic, queue_id, offset - 1),
            "pullOffset": offset,
        }
        rows.append((_queue(broker, topic, queue_id), told))
    return rows


async def all_consume_stats(broker: Broker, request: Command, caller: Caller) -> Command:
    """GET_BROKER_CONSUME_STATS: of every group, by topic; ordered groups on demand."""
    only_orderly = Fields(request.ext).flag("isOrder")
    told, total = [], 0
    for group, config in broker.tables.groups.items():
        if only_orderly and not config.consume_message_orderly:
            continue
        stats = []
        for topic in _topics_of(broker, group):
            if topic.startswith(RETRY_PREFIX):
                continue
            rows = await _consumed(broker, group, topic)
            total += sum(_behind(row) for _, row in rows)
            stats.append({"consumeTps": 0.0, "offsetTable": with_objects_as_keys(rows)})
        told.append({group: stats})
    return _json(
        {
            "brokerAddr": broker.address,
            "consumeStatsList": told,
            "totalDiff": total,
            "totalInflightDiff": 0,
        }
    )


def _behind(row: Mapping[str, object]) -> int:
    end, offset = row["brokerOffset"], row["consumerOffset"]
    assert isinstance(end, int) and isinstance(offset, int)
    return end - offset


# -- clients ---------------------------------------------------------------------------------------


def _language(number: int) -> str:
    return next((each.name for each in Language if each == number), Language.OTHER.name)


def _connection(member: Member[Caller]) -> Mapping[str, object]:
    return {
        "clientAddr": member.connection.address,
        "clientId": member.client_id,
        "language": _language(member.language),
        "version": member.version,
    }


def _named(value: str | int, names: tuple[str, ...]) -> str:
    """C++ sends numbers."""
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else str(value)


async def consumers_of_group(broker: Broker, request: Command, caller: Caller) -> Command:
    group = Fields(request.ext).text("consumerGroup")
    data = broker.clients.consumer(group)
    if data is None:
        remark = f"the consumer group[{group}] not online"
        return response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    return _json(
        {
            "connectionSet": [_connection(each) for each in broker.clients.members(group)],
            "consumeFromWhere": _named(data.consume_from_where, _FROM_WHERE),
            "consumeType": _named(data.consume_type, _CONSUME_TYPES),
            "messageModel": _named(data.message_model, _MODELS),
            "subscriptionTable": {each.topic: each for each in data.subscriptions},
        }
    )


async def producers_of_group(broker: Broker, request: Command, caller: Caller) -> Command:
    group = Fields(request.ext).text("producerGroup")
    members = broker.clients.producers().get(group)
    if not members:
        remark = f"the producer group[{group}] not exist"
        return response(ResponseCode.SYSTEM_ERROR, remark)
    return _json({"connectionSet": [_connection(each) for each in members]})


async def all_producers(broker: Broker, request: Command, caller: Caller) -> Command:
    behind_ms = broker.wall_ms() - broker.now_ms()
    data = {
        group: [
            {
                "clientId": member.client_id,
                "language": _language(member.language),
                "lastUpdateTimestamp": member.seen_ms + behind_ms,
                "remoteIP": member.connection.address.rpartition(":")[0],
                "version": member.version,
            }
            for member in members
        ]
        for group, members in broker.clients.producers().items()
    }
    return _json({"data": data})
