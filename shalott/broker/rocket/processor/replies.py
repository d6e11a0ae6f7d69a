"""Replies to requests (upstream: ReplyMessageProcessor): SEND_REPLY_MESSAGE and its second form.

Who asks sends a message with CORRELATION_ID and REPLY_TO_CLIENT, its own client id; who answers
sends to ``<cluster>_REPLY_TOPIC``, of the CLUSTER that the request's broker wrote into it. The
broker passes the answer on to the producer with that id, if it is connected here, and keeps it.
"""

from __future__ import annotations

from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.puts import NOTHING_STORED, not_master, put, send_answer
from shalott.broker.rocket.processor.send import messages_of, read_send_header, send_topic
from shalott.broker.rocket.processor.stored_messages import (
    REPLY_TO_CLIENT,
    properties_of,
    properties_text,
)
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller

PUSHED_AT = "PUSH_REPLY_TIME"


async def reply(broker: Broker, request: Command, caller: Caller) -> Command:
    """That it could not be kept does not matter to who answers, that it can't be passed on does."""
    is_v2 = request.code == RequestCode.SEND_REPLY_MESSAGE_V2
    header = read_send_header(request.ext, is_v2=is_v2, is_batch=False)
    if not broker.is_master:
        return not_master(broker)
    topic = send_topic(broker, header)
    if topic is None:
        remark = f"topic[{header.topic}] not exist, {NOTHING_STORED}"
        return response(ResponseCode.TOPIC_NOT_EXIST, remark)
    queue_id = header.queue_id
    if queue_id < 0:
        queue_id = broker.env.choose_index(topic.write_queue_nums)
    [message] = messages_of(broker, header, request.body, header.topic, queue_id, caller)
    properties = properties_of(message.properties)
    who = properties.get(REPLY_TO_CLIENT, "")
    asker = broker.clients.producer(who)
    if asker is not None:
        text = properties_text(properties | {PUSHED_AT: str(broker.wall_ms())})
        ext = {
            "producerGroup": header.producer_group,
            "topic": header.topic,
            "defaultTopic": header.default_topic,
            "defaultTopicQueueNums": str(header.default_topic_queues),
            "queueId": str(queue_id),
            "sysFlag": str(header.sys_flag),
            "bornTimestamp": str(header.born_ms),
            "flag": str(header.flag),
            "properties": text,
            "reconsumeTimes": str(header.reconsume_times),
            "unitMode": "false",
            "bornHost": caller.address,
            "storeHost": broker.address,
            "storeTimestamp": str(broker.wall_ms()),
        }
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        broker.tell(asker, Command(code=code, ext=ext, body=request.body))
    kept = send_answer(await put(broker, [message], counts=False), queue_id)
    if asker is None:
        remark = f"push reply message fail, channel of <{who}> not found."
        return response(ResponseCode.SYSTEM_ERROR, remark)
    return response(ResponseCode.SUCCESS, ext=kept.ext)
