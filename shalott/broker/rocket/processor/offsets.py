"""Offsets: what a group has consumed (14, 15), and where queues begin, end and were at a time (29
to 32). Upstream: ConsumerManageProcessor and AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.broker.rocket.commitlog.api import GetStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.fields import Fields
from shalott.broker.rocket.processor.pull import not_readable
from shalott.broker.rocket.processor.puts import find_topic, not_master
from shalott.broker.rocket.processor.stored_messages import read_stored
from shalott.broker.rocket.remoting.command import (
    Command,
    Language,
    RequestCode,
    ResponseCode,
    response,
)
from shalott.broker.rocket.remoting.server import Caller

ONE_MESSAGE_BYTES = 4 << 20


def _offset(offset: int) -> Command:
    return response(ResponseCode.SUCCESS, ext={"offset": str(offset)})


async def query_consumer_offset(broker: Broker, request: Command, caller: Caller) -> Command:
    """A group that never said anything begins with the first message, if the queue still has it;
    otherwise QUERY_NOT_FOUND, and the client goes by its own setting.
    """
    fields = Fields(request.ext)
    group, topic = fields.text("consumerGroup"), fields.text("topic")
    queue_id = fields.number("queueId")
    offset = broker.tables.offset(group, topic, queue_id)
    if offset is not None:
        return _offset(offset)
    first, end = broker.store.reader.queue_range(topic, queue_id)
    if first == 0 and end > 0 and fields.flag("setZeroIfNotFound", default=True):
        return _offset(0)
    remark = f"Not found, {group} has no offset for {topic} {queue_id}"
    return response(ResponseCode.QUERY_NOT_FOUND, remark)


async def update_consumer_offset(broker: Broker, request: Command, caller: Caller) -> Command:
    fields = Fields(request.ext)
    broker.tables.put_offset(
        fields.text("consumerGroup"),
        fields.text("topic"),
        fields.number("queueId"),
        fields.number("commitOffset"),
    )
    return response(ResponseCode.SUCCESS)


async def max_offset(broker: Broker, request: Command, caller: Caller) -> Command:
    if not await broker.replica.readable():
        return not_readable()
    fields = Fields(request.ext)
    return _offset(
        broker.store.reader.queue_range(fields.text("topic"), fields.number("queueId"))[1]
    )


async def min_offset(broker: Broker, request: Command, caller: Caller) -> Command:
    fields = Fields(request.ext)
    return _offset(
        broker.store.reader.queue_range(fields.text("topic"), fields.number("queueId"))[0]
    )


async def earliest_store_time(broker: Broker, request: Command, caller: Caller) -> Command:
    """-1 for an empty queue."""
    fields = Fields(request.ext)
    topic, queue_id = fields.text("topic"), fields.number("queueId")
    first, _ = broker.store.reader.queue_range(topic, queue_id)
    got = await broker.store.reader.get(
        topic, queue_id, first, max_messages=1, max_bytes=ONE_MESSAGE_BYTES
    )
    found = got.status is GetStatus.FOUND and got.messages
    at_ms = read_stored(got.messages[0]).store_ms if found else -1
    return response(ResponseCode.SUCCESS, ext={"timestamp": str(at_ms)})


async def search_offset_by_timestamp(broker: Broker, request: Command, caller: Caller) -> Command:
    """The first message that was stored at that time or later; the queue's end if there is none."""
    if not await broker.replica.readable():
        return not_readable()
    fields = Fields(request.ext)
    topic, queue_id = fields.text("topic"), fields.number("queueId")
    at_ms = fields.number("timestamp")
    return _offset(await broker.store.reader.queue_offset_at_ms(topic, queue_id, at_ms))


# -- resetting -------------------------------------------------------------------------------------
# INVOKE_BROKER_TO_RESET_OFFSET (222): an operator sets a group's offsets in a topic to a time,
# and the members are told (220, upstream: Broker2Client.resetOffset).
#
# The broker itself writes nothing down: members go there and commit what they were told. So
# nothing is reset of a group that has no members now, and the answer says so.


TO_THE_END = -1  # as a time


async def reset_offset(broker: Broker, request: Command, caller: Caller) -> Command:
    """Forward only with ``isForce``; back always."""
    fields = Fields(request.ext)
    topic, group = fields.text("topic"), fields.text("group")
    if not broker.is_master:
        return not_master(broker)
    config = find_topic(broker, topic)
    if config is None:
        remark = f"[reset-offset] no topic in this broker, {topic}"
        return response(ResponseCode.SYSTEM_ERROR, remark)
    offsets = {}
    for queue_id in range(config.write_queue_nums):
        committed = broker.tables.offset(group, topic, queue_id)
        if committed is None:
            remark = f"the consumer group {group} has no offset for {topic} {queue_id}"
            return response(ResponseCode.SYSTEM_ERROR, remark)
        wanted = await _offset_at(broker, topic, queue_id, fields.number("timestamp"))
        forced = fields.flag("isForce")
        offsets[queue_id] = wanted if forced else min(wanted, committed)
    members = broker.clients.connections(group)
    if not members:
        remark = f"Consumer not online, so can not reset its offset. Group: {group} Topic: {topic}"
        return response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    is_cpp = request.language == Language.CPP
    body = _body(broker.config.broker_name, topic, offsets, is_cpp=is_cpp)
    ext = {"topic": topic, "group": group, "timestamp": fields.text("timestamp")}
    for member in members:
        command = Command(code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext=dict(ext), body=body)
        broker.tell(member, command)
    return response(ResponseCode.SUCCESS, body=body)


async def _offset_at(broker: Broker, topic: str, queue_id: int, at_ms: int) -> int:
    if at_ms == TO_THE_END:
        return broker.store.reader.queue_range(topic, queue_id)[1]
    return max(0, await broker.store.reader.queue_offset_at_ms(topic, queue_id, at_ms))


def _body(broker_name: str, topic: str, offsets: Mapping[int, int], *, is_cpp: bool) -> bytes:
    """Java's clients want an object whose keys are objects, which is no JSON; C++'s a list."""
    places = [
        {"brokerName": broker_name, "queueId": queue_id, "topic": topic} for queue_id in offsets
    ]
    if is_cpp:
        table = [
            place | {"offset": offset}
            for place, offset in zip(places, offsets.values(), strict=True)
        ]
        return msgspec.json.encode({"offsetTable": table})
    pairs = [
        msgspec.json.encode(place) + b":%d" % offset
        for place, offset in zip(places, offsets.values(), strict=True)
    ]
    return b'{"offsetTable":{' + b",".join(pairs) + b"}}"
