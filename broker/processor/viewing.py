"""Single messages: VIEW_MESSAGE_BY_ID (33) and QUERY_MESSAGE (12, by key).

There is no index of keys: a query looks through its topic's queues from their ends backward, and at
so many messages at most. That is for people who look for one message, not for programs.
"""

from __future__ import annotations

from broker.commitlog.api import GetStatus
from broker.commitlog.codec import Stored
from broker.processor.broker import Broker
from broker.processor.fields import Fields
from broker.processor.properties import KEYS, UNIQ_KEY
from broker.processor.pulling import BYTES_MAX, MESSAGES_MAX, not_readable
from broker.processor.stored import property_of, read_stored
from broker.processor.topics import queues_of
from broker.remoting.codes import ResponseCode
from broker.remoting.command import Command, response
from broker.remoting.server import Caller

LOOKED_AT_MAX = 100_000


async def view_message_by_id(broker: Broker, request: Command, caller: Caller) -> Command:
    """``offset`` is the message's place in the log, as its id has it."""
    if not await broker.replica.readable():
        return not_readable()
    message = await read_message(broker, Fields(request.ext).number("offset"))
    if message is None:
        remark = "can not find message by the offset"
        return response(ResponseCode.SYSTEM_ERROR, remark)
    return response(ResponseCode.SUCCESS, body=message)


async def read_message(broker: Broker, offset: int) -> bytes | None:
    """The message that lies there, if readers may see it."""
    if not 0 <= offset < broker.store.dispatched_offset:
        return None
    return await broker.store.message_at(offset)


async def query_message(broker: Broker, request: Command, caller: Caller) -> Command:
    """Messages with a key, the newest of every queue first, at most ``maxNum``."""
    if not await broker.replica.readable():
        return not_readable()
    fields = Fields(request.ext)
    topic, key = fields.text("topic"), fields.text("key")
    wanted = fields.number("maxNum", MESSAGES_MAX)
    begin_ms = fields.number("beginTimestamp", 0)
    end_ms = fields.number("endTimestamp", 1 << 62)
    config = broker.tables.topics.get(topic)
    found: list[bytes] = []
    budget = LOOKED_AT_MAX
    for queue_id in range(0 if config is None else queues_of(config)):
        first, end = broker.store.queue_range(topic, queue_id)
        while first < end and len(found) < wanted and budget > 0:
            start = max(first, end - MESSAGES_MAX)
            messages = await _messages(broker, topic, queue_id, start, end)
            found += [
                data
                for data in reversed(messages)
                if _has_key(stored := read_stored(data), key)
                and begin_ms <= stored.store_ms <= end_ms
            ]
            budget -= end - start
            end = start
    found = found[:wanted]
    if not found:
        remark = "can not find message, maybe time range not correct"
        return response(ResponseCode.QUERY_NOT_FOUND, remark)
    ext = {
        "indexLastUpdateTimestamp": str(max(read_stored(data).store_ms for data in found)),
        "indexLastUpdatePhyoffset": str(broker.store.dispatched_offset),
    }
    return response(ResponseCode.SUCCESS, ext=ext, body=b"".join(found))


async def _messages(broker: Broker, topic: str, queue_id: int, start: int, end: int) -> list[bytes]:
    """Those of [start, end) of a queue that are still there."""
    messages: list[bytes] = []
    while start < end:
        got = await broker.store.get(
            topic, queue_id, start, max_messages=end - start, max_bytes=BYTES_MAX
        )
        if got.status is not GetStatus.FOUND or not got.messages:
            break
        messages += got.messages
        start = got.next_offset
    return messages


def _has_key(stored: Stored, key: str) -> bool:
    if property_of(stored, UNIQ_KEY) == key:
        return True
    return key in property_of(stored, KEYS).split(" ")
