"""Sends (SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE) and sending back, as upstream's
SendMessageProcessor has them.

Only a master stores; who is none says so with SERVICE_NOT_AVAILABLE before anything else is looked
at, and clients look for another broker then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import Stored
from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.delays import delay_level_of, delayed
from shalott.broker.rocket.processor.fields import BadRequest, Fields
from shalott.broker.rocket.processor.pull import read_message
from shalott.broker.rocket.processor.puts import (
    NOTHING_STORED,
    ensure_topic,
    find_topic,
    not_master,
    put,
    remark_of,
    send_answer,
)
from shalott.broker.rocket.processor.stored_messages import (
    CLUSTER,
    DELAY,
    ORIGIN_MESSAGE_ID,
    REPLY_TO_CLIENT,
    RETRY_TOPIC,
    UNIQ_KEY,
    WAIT,
    flags_to_store_again,
    properties_of,
    properties_text,
    read_stored,
    stored_host,
)
from shalott.broker.rocket.processor.timers import IllegalTimer, recall_handle, timed
from shalott.broker.rocket.processor.topics import (
    DEAD_LETTER_QUEUES,
    DLQ_PREFIX,
    NOT_FOR_CLIENTS,
    PERM_INHERIT,
    RETRY_PREFIX,
    dead_letter_topic,
    is_valid_topic,
    queues_of,
    retry_topic,
)
from shalott.broker.rocket.processor.transactions import COMMIT, PREPARED, half, is_half
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.route_data import DEFAULT_TOPIC, PERM_WRITE, TopicConfig
from shalott.broker.rocket.remoting.send_batch import BatchItem, decode_batch
from shalott.broker.rocket.remoting.server import Caller

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
    messages = messages_of(broker, header, request.body, topic.topic_name, queue_id, caller)
    # A batch is of one queue, and a delay would spread it over several.
    if not header.batch and is_half(messages[0]):
        group = Fields(request.ext).text("a" if "a" in request.ext else "producerGroup", "")
        messages = [half(broker, messages[0], group)]
    elif not header.batch:
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
    if header.sys_flag & COMMIT or (header.batch and header.sys_flag & PREPARED):
        remark = f"a message is no transaction's end, and a batch no transaction: {NOTHING_STORED}"
        return response(ResponseCode.MESSAGE_ILLEGAL, remark)
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


def messages_of(
    broker: Broker, header: SendHeader, body: bytes, topic: str, queue_id: int, caller: Caller
) -> list[Message]:
    """As they are stored under a topic. A request has the cluster in it, for who answers it."""
    if header.batch:
        try:
            items = decode_batch(body)
        except ValueError as error:
            raise BadRequest(str(error)) from None
    else:
        properties = header.properties
        if REPLY_TO_CLIENT in properties:
            cluster = {CLUSTER: broker.config.cluster_name}
            properties = properties_text(properties_of(properties) | cluster)
        items = [BatchItem(body, properties, header.flag)]
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


# -- the header ------------------------------------------------------------------------------------
# SendHeader: what a send request says of its message, from any of the three forms.
#
# SEND_MESSAGE has full names, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE the same fields under one
# letter each, in the order of the names of code 10. Letter -> name. "n" (brokerName) is for
# proxies only.


LETTERS: Mapping[str, str] = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",  # upstream calls it consumeRetryTimes here
    "m": "batch",
}


@dataclass(frozen=True, slots=True)
class SendHeader:
    """``queue_id`` -1: any. ``max_reconsume_times`` -1: not said."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queues: int
    queue_id: int
    sys_flag: int
    born_ms: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int
    batch: bool


def read_send_header(ext: Mapping[str, str], *, is_v2: bool, is_batch: bool) -> SendHeader:
    """Raises BadRequest."""
    if is_v2:
        ext = {LETTERS[letter]: value for letter, value in ext.items() if letter in LETTERS}
    fields = Fields(ext)
    return SendHeader(
        producer_group=fields.text("producerGroup", ""),
        topic=fields.text("topic"),
        default_topic=fields.text("defaultTopic", ""),
        default_topic_queues=fields.number("defaultTopicQueueNums", 0),
        queue_id=fields.number("queueId"),
        sys_flag=fields.number("sysFlag", 0),
        born_ms=fields.number("bornTimestamp", 0),
        flag=fields.number("flag", 0),
        properties=fields.text("properties", ""),
        reconsume_times=fields.number("reconsumeTimes", 0),
        max_reconsume_times=fields.number("maxReconsumeTimes", -1),
        batch=is_batch or fields.flag("batch"),
    )


# -- sending back ----------------------------------------------------------------------------------
# CONSUMER_SEND_MSG_BACK (36): a consumer could not do with a message and wants it again later
# (upstream: AbstractSendMessageProcessor.consumerSendMsgBack). The message is stored again in the
# group's retry topic, with one more reconsumption, after a delay that grows from time to time
# (delays.py); after too many it goes to the group's dead letters.

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
