"""Sends: SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (upstream: SendMessageProcessor).

Only a master stores; who is none says so with SERVICE_NOT_AVAILABLE before anything else is looked
at, and clients look for another broker then.
"""

from __future__ import annotations

from dataclasses import replace

from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.processor.batch import BatchItem, decode_batch
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.delays import delay_level_of, delayed
from shalott.broker.rocket.processor.hosts import stored_host
from shalott.broker.rocket.processor.outcomes import NOTHING_STORED, send_answer
from shalott.broker.rocket.processor.properties import (
    DELAY,
    UNIQ_KEY,
    properties_of,
    properties_text,
)
from shalott.broker.rocket.processor.send_header import SendHeader, read_send_header
from shalott.broker.rocket.processor.storing import ensure_topic, find_topic, not_master, put
from shalott.broker.rocket.processor.system_topics import NOT_FOR_CLIENTS, PERM_INHERIT
from shalott.broker.rocket.processor.timers import IllegalTimer, recall_handle, timed
from shalott.broker.rocket.processor.topics import (
    DEAD_LETTER_QUEUES,
    DLQ_PREFIX,
    RETRY_PREFIX,
    dead_letter_topic,
    is_valid_topic,
    queues_of,
)
from shalott.broker.rocket.remoting.codes import RequestCode, ResponseCode
from shalott.broker.rocket.remoting.command import Command, response
from shalott.broker.rocket.remoting.route_data import DEFAULT_TOPIC, PERM_WRITE, TopicConfig
from shalott.broker.rocket.remoting.server import Caller

SYS_TRANSACTION_MASK = 0x4 | 0x8
NO_LEVEL = "-1"  # the DELAY of a dead letter that had one


async def send(broker: Broker, request: Command, caller: Caller) -> Command:
    """One message, or a batch of one queue."""
    header = read_send_header(
        request.ext,
        is_v2=request.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE),
        is_batch=request.code == RequestCode.SEND_BATCH_MESSAGE,
    )
    if not broker.is_master:
        return not_master(broker)
    refusal = _refusal(header)
    if refusal is not None:
        return refusal
    topic = send_topic(broker, header)
    if topic is None:
        remark = f"topic[{header.topic}] not exist, {NOTHING_STORED}"
        return response(ResponseCode.TOPIC_NOT_EXIST, remark)
    if not topic.perm & PERM_WRITE:
        remark = f"the broker's sending message to topic[{topic.topic_name}] is forbidden"
        return response(ResponseCode.NO_PERMISSION, f"{remark}: {NOTHING_STORED}")
    is_dead = topic.topic_name != header.topic
    if header.queue_id >= queues_of(topic) and not is_dead:
        remark = f"request queueId[{header.queue_id}] is illegal, {topic}: {NOTHING_STORED}"
        return response(ResponseCode.SYSTEM_ERROR, remark)
    queue_id = header.queue_id
    if queue_id < 0 or is_dead:  # the queue was one of the retry topic's
        queue_id = broker.env.choose_index(topic.write_queue_nums)
    messages = _messages(broker, header, request.body, topic.topic_name, queue_id, caller)
    # A batch is of one queue, and a delay would spread it over several.
    if not header.batch:
        try:
            messages = [_waiting(broker, one, is_dead=is_dead) for one in messages]
        except IllegalTimer as error:
            return response(ResponseCode.MESSAGE_ILLEGAL, f"{error}: {NOTHING_STORED}")
    result = await put(broker, messages)
    handle = "" if header.batch else recall_handle(broker.config.broker_name, messages[0])
    return send_answer(result, queue_id, _transaction_id(header), handle)


def _waiting(broker: Broker, message: Message, *, is_dead: bool) -> Message:
    """The message as it waits, if it is to come later. A dead letter waits for no level."""
    if is_dead:
        properties = properties_of(message.properties) | {DELAY: NO_LEVEL}
        return timed(broker, replace(message, properties=properties_text(properties)))
    level = delay_level_of(message.properties)
    return delayed(broker, message, level) if level > 0 else timed(broker, message)


def _refusal(header: SendHeader) -> Command | None:
    if header.sys_flag & SYS_TRANSACTION_MASK:
        remark = f"transactions are not supported: {NOTHING_STORED}"
        return response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
    if header.topic in NOT_FOR_CLIENTS:
        remark = f"Sending message to topic[{header.topic}] is forbidden: {NOTHING_STORED}"
        return response(ResponseCode.NO_PERMISSION, remark)
    if not is_valid_topic(header.topic):
        remark = f"the topic {header.topic!r} is illegal: {NOTHING_STORED}"
        return response(ResponseCode.MESSAGE_ILLEGAL, remark)
    if header.topic == DEFAULT_TOPIC:
        remark = f"the topic[{header.topic}] is conflict with system reserved words"
        return response(ResponseCode.SYSTEM_ERROR, f"{remark}: {NOTHING_STORED}")
    if header.batch and header.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        remark = f"batch request does not support retry group {header.topic}: {NOTHING_STORED}"
        return response(ResponseCode.MESSAGE_ILLEGAL, remark)
    return None


def send_topic(broker: Broker, header: SendHeader) -> TopicConfig | None:
    """The topic that a message goes to, made by itself where that is allowed.

    A message that was retried too often goes to its group's dead letters.
    """
    name = header.topic
    if name.startswith(RETRY_PREFIX):
        group = name.removeprefix(RETRY_PREFIX)
        limit = header.max_reconsume_times
        if limit < 0:
            limit = broker.tables.group(group).retry_max_times
        if header.reconsume_times > limit:
            return ensure_topic(broker, dead_letter_topic(group), queues=DEAD_LETTER_QUEUES)
        return ensure_topic(broker, name, queues=1)
    known = find_topic(broker, name)
    if known is not None or not broker.config.auto_create_topics:
        return known
    template = broker.tables.topics.get(header.default_topic or DEFAULT_TOPIC)
    if template is None or not template.perm & PERM_INHERIT:
        return None
    queues = min(header.default_topic_queues or queues_of(template), queues_of(template))
    return ensure_topic(broker, name, queues=max(1, queues))


def _messages(
    broker: Broker, header: SendHeader, body: bytes, topic: str, queue_id: int, caller: Caller
) -> list[Message]:
    if header.batch:
        items = decode_batch(body)
    else:
        items = [BatchItem(body, header.properties, header.flag)]
    born_host, store_host = stored_host(caller.address), broker.host
    return [
        Message(
            topic=topic,
            queue_id=queue_id,
            body=item.body,
            properties=item.properties,
            flag=item.flag,
            sys_flag=header.sys_flag,
            born_ms=header.born_ms,
            born_host=born_host,
            store_host=store_host,
            reconsume_times=header.reconsume_times,
        )
        for item in items
    ]


def _transaction_id(header: SendHeader) -> str:
    """Clients expect the message's own key back under this name."""
    return properties_of(header.properties).get(UNIQ_KEY, "")
