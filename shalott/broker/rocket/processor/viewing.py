"""Single messages: VIEW_MESSAGE_BY_ID (33) and QUERY_MESSAGE (12, by key).

After broker/processor/QueryMessageProcessor.java.
"""

from __future__ import annotations

from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.fields import Fields
from shalott.broker.rocket.processor.pulling import MESSAGES_MAX, not_readable
from shalott.broker.rocket.remoting.codes import ResponseCode
from shalott.broker.rocket.remoting.command import Command, response
from shalott.broker.rocket.remoting.server import Caller

FOUND_MAX = 64  # maxMsgsNumBatch


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
    """Messages with a key, the newest first, at most ``maxNum``: as far as the index has got."""
    if not await broker.replica.readable():
        return not_readable()
    fields = Fields(request.ext)
    topic, key = fields.text("topic"), fields.text("key")
    wanted = fields.number("maxNum", MESSAGES_MAX)
    begin_ms = fields.number("beginTimestamp", 0)
    end_ms = fields.number("endTimestamp", 1 << 62)
    found = await broker.store.find_by_key(
        topic, key, begin_ms=begin_ms, end_ms=end_ms, max_messages=min(wanted, FOUND_MAX)
    )
    if not found.messages:
        remark = "can not find message, maybe time range not correct"
        return response(ResponseCode.QUERY_NOT_FOUND, remark)
    ext = {
        "indexLastUpdateTimestamp": str(found.last_ms),
        "indexLastUpdatePhyoffset": str(found.last_offset),
    }
    return response(ResponseCode.SUCCESS, ext=ext, body=b"".join(found.messages))
