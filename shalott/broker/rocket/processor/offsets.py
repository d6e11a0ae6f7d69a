"""Offsets: what a group has consumed (14, 15), and where queues begin, end and were at a time (29
to 32). Upstream: ConsumerManageProcessor and AdminBrokerProcessor.
"""

from __future__ import annotations

from shalott.broker.rocket.commitlog.api import GetStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.fields import Fields
from shalott.broker.rocket.processor.pulling import not_readable
from shalott.broker.rocket.processor.stored import read_stored
from shalott.broker.rocket.remoting.codes import ResponseCode
from shalott.broker.rocket.remoting.command import Command, response
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
    first, end = broker.store.queue_range(topic, queue_id)
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
    return _offset(broker.store.queue_range(fields.text("topic"), fields.number("queueId"))[1])


async def min_offset(broker: Broker, request: Command, caller: Caller) -> Command:
    fields = Fields(request.ext)
    return _offset(broker.store.queue_range(fields.text("topic"), fields.number("queueId"))[0])


async def earliest_store_time(broker: Broker, request: Command, caller: Caller) -> Command:
    """-1 for an empty queue."""
    fields = Fields(request.ext)
    topic, queue_id = fields.text("topic"), fields.number("queueId")
    first, _ = broker.store.queue_range(topic, queue_id)
    got = await broker.store.get(
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
    return _offset(await broker.store.queue_offset_at_ms(topic, queue_id, at_ms))
