"""CONSUMER_SEND_MSG_BACK (36): a consumer could not do with a message and wants it again later
(upstream: AbstractSendMessageProcessor.consumerSendMsgBack).

The message is stored again in the group's retry topic, with one more reconsumption, after a delay
that grows from time to time (delays.py); after too many it goes to the group's dead letters.
"""

from __future__ import annotations

from dataclasses import replace

from shalott.broker.rocket.commitlog.codec import Stored
from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.delays import delayed
from shalott.broker.rocket.processor.fields import Fields
from shalott.broker.rocket.processor.pull import read_message
from shalott.broker.rocket.processor.puts import (
    NOTHING_STORED,
    ensure_topic,
    not_master,
    put,
    remark_of,
)
from shalott.broker.rocket.processor.stored_messages import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
    flags_to_store_again,
    properties_of,
    properties_text,
    read_stored,
)
from shalott.broker.rocket.processor.topics import (
    DEAD_LETTER_QUEUES,
    dead_letter_topic,
    retry_topic,
)
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller

FIRST_RETRY_LEVEL = 3  # 10 s


async def send_back(broker: Broker, request: Command, caller: Caller) -> Command:
    fields = Fields(request.ext)
    group = fields.text("group")
    level = fields.number("delayLevel", 0)
    if not broker.is_master:
        return not_master(broker)
    data = await read_message(broker, fields.number("offset"))
    if data is None:
        remark = f"look message by offset failed, {fields.number('offset')}"
        return response(ResponseCode.SYSTEM_ERROR, f"{remark}: {NOTHING_STORED}")
    original = read_stored(data)
    settings = broker.tables.group(group)
    limit = fields.number("maxReconsumeTimes", settings.retry_max_times)
    times = original.message.reconsume_times
    if times >= limit or level < 0:
        topic, level = dead_letter_topic(group), 0
    else:
        topic, level = retry_topic(group), level or FIRST_RETRY_LEVEL + times
    queues = DEAD_LETTER_QUEUES if level <= 0 else max(1, settings.retry_queue_nums)
    config = ensure_topic(broker, topic, queues=queues)
    message = replace(
        original.message,
        topic=topic,
        queue_id=broker.env.choose_index(config.write_queue_nums),
        properties=_properties(original, fields.text("originMsgId", "")),
        sys_flag=flags_to_store_again(original),
        store_host=broker.host,
        reconsume_times=times + 1,
    )
    result = await put(broker, [delayed(broker, message, level)])
    if result.status is PutStatus.PUT_OK:
        return response(ResponseCode.SUCCESS)
    return response(ResponseCode.SYSTEM_ERROR, remark_of(result))


def _properties(original: Stored, origin_id: str) -> str:
    """Those of the original, and where it comes from, however often it returns."""
    properties = properties_of(original.message.properties)
    properties.setdefault(RETRY_TOPIC, original.message.topic)
    if origin_id:
        properties.setdefault(ORIGIN_MESSAGE_ID, origin_id)
    properties.pop(DELAY, None)
    properties[WAIT] = "false"
    return properties_text(properties)
