"""Pulls: PULL_MESSAGE and LITE_PULL_MESSAGE, with long polling (upstream: PullMessageProcessor and
PullRequestHoldService).

Slaves serve them too if ``slave_read_enable`` says so. A pull that finds nothing new waits, if its
client asked for that, until something comes, its time is up or its connection is gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from shalott.broker.rocket.commitlog.api import GetStatus, Got
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.clients import SubscriptionData, decode_json
from shalott.broker.rocket.processor.fields import Fields
from shalott.broker.rocket.processor.puts import find_topic
from shalott.broker.rocket.processor.sql_filter import BadExpression, Term, parse
from shalott.broker.rocket.processor.stored_messages import (
    TAGS,
    properties_of,
    property_of,
    read_stored,
)
from shalott.broker.rocket.processor.topics import RETRY_PREFIX, queues_of
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response
from shalott.broker.rocket.remoting.headers import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
)
from shalott.broker.rocket.remoting.route_data import PERM_READ
from shalott.broker.rocket.remoting.server import Caller

T = TypeVar("T")

MESSAGES_MAX = 32  # maxTransferCountOnMessageInMemory
BYTES_MAX = 256 << 10  # maxTransferBytesOnMessageInMemory
MASTER_ID = 0
SQL92 = "SQL92"


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of CHECK_CLIENT_CONFIG (46)."""

    subscription_data: SubscriptionData | None = None


@dataclass(frozen=True, slots=True)
class PullHeader:
    """What a pull asks for."""

    group: str
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int
    subscription: str
    expression_type: str


def read_pull_header(ext: dict[str, str]) -> PullHeader:
    """Raises BadRequest."""
    fields = Fields(ext)
    return PullHeader(
        group=fields.text("consumerGroup"),
        topic=fields.text("topic"),
        queue_id=fields.number("queueId"),
        offset=fields.number("queueOffset"),
        max_messages=fields.number("maxMsgNums", MESSAGES_MAX),
        sys_flag=fields.number("sysFlag", 0),
        commit_offset=fields.number("commitOffset", 0),
        suspend_ms=fields.number("suspendTimeoutMillis", 0),
        subscription=fields.text("subscription", "*"),
        expression_type=fields.text("expressionType", "TAG"),
    )


async def pull(broker: Broker, request: Command, caller: Caller) -> Command:
    header = read_pull_header(request.ext)
    if broker.replica.role == "slave" and not broker.config.slave_read_enable:
        remark = "[REJECTREQUEST]system busy, start flow control for a while"
        return response(ResponseCode.SYSTEM_BUSY, remark)
    refusal = refusal_of(broker, header)
    if refusal is not None:
        return refusal
    if header.sys_flag & PULL_COMMIT_OFFSET and broker.replica.role != "slave":
        broker.tables.put_offset(header.group, header.topic, header.queue_id, header.commit_offset)
    if not await broker.replica.readable():
        return not_readable()
    got = await _get(broker, header)
    if (
        _is_nothing_new(broker, got, header)
        and header.sys_flag & PULL_SUSPEND
        and header.suspend_ms > 0
    ):
        await _wait_for_more(broker, header, caller)
        if not await broker.replica.readable():
            return not_readable()
        got = await _get(broker, header)
    return _answer(broker, header, got)


def not_readable() -> Command:
    remark = "this broker may not answer reads now"
    return response(ResponseCode.SERVICE_NOT_AVAILABLE, remark)


def refusal_of(broker: Broker, header: PullHeader) -> Command | None:
    if not broker.tables.group(header.group).consume_enable:
        remark = f"subscription group no permission, {header.group}"
        return response(ResponseCode.NO_PERMISSION, remark)
    topic = find_topic(broker, header.topic)
    if topic is None:
        if header.topic.startswith(RETRY_PREFIX):
            return None  # nothing was ever sent back to this group: its queue is empty
        return response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
    if not topic.perm & PERM_READ:
        remark = f"the topic[{header.topic}] pulling message is forbidden"
        return response(ResponseCode.NO_PERMISSION, remark)
    if not 0 <= header.queue_id < queues_of(topic):
        remark = f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
        return response(ResponseCode.SYSTEM_ERROR, remark)
    if header.expression_type not in ("TAG", SQL92, ""):
        remark = f"filters by {header.expression_type} are not supported"
        return response(ResponseCode.SYSTEM_ERROR, remark)
    if header.expression_type == SQL92:
        try:
            parse(_expression(broker, header))
        except BadExpression as error:
            return response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
    return None


def _expression(broker: Broker, header: PullHeader) -> str:
    """A pull that brings none goes by what its group's heartbeats say."""
    if header.sys_flag & PULL_SUBSCRIPTION:
        return header.subscription
    consumer = broker.clients.consumer(header.group)
    for one in () if consumer is None else consumer.subscriptions:
        if one.topic == header.topic:
            return one.sub_string
    return ""


async def _get(broker: Broker, header: PullHeader) -> Got:
    return await broker.store.reader.get(
        header.topic,
        header.queue_id,
        header.offset,
        max_messages=max(1, min(header.max_messages, MESSAGES_MAX)),
        max_bytes=BYTES_MAX,
    )


def _is_nothing_new(broker: Broker, got: Got, header: PullHeader) -> bool:
    """A queue that was never written to is empty for who begins at its beginning. A master that
    has just started may have to wait before it lets anybody read what its log has.
    """
    if got.status is GetStatus.NO_NEW:
        return True
    if got.status not in (GetStatus.NO_QUEUE, GetStatus.TOO_FAR):
        return False
    end = broker.store.reader.queue_end(header.topic, header.queue_id) if broker.is_master else 0
    return header.offset <= end


async def _wait_for_more(broker: Broker, header: PullHeader, caller: Caller) -> None:
    """Until the queue is longer, time is up, or the puller is gone."""
    timeout_ms = min(header.suspend_ms, broker.config.long_poll_max_ms)
    arrived = asyncio.ensure_future(
        broker.store.reader.arrived(header.topic, header.queue_id, header.offset)
    )
    closed = asyncio.ensure_future(caller.closed.wait())
    try:
        await asyncio.wait(
            (arrived, closed), timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        arrived.cancel()
        closed.cancel()
        await asyncio.gather(arrived, closed, return_exceptions=True)


def _answer(broker: Broker, header: PullHeader, got: Got) -> Command:
    messages = got.messages
    if _is_nothing_new(broker, got, header):
        code, remark = ResponseCode.PULL_NOT_FOUND, got.status.value
    elif got.status is GetStatus.FOUND:
        code, remark = ResponseCode.SUCCESS, ""
        messages = wanted_by(broker, header, messages)
        if not messages:
            code, remark = ResponseCode.PULL_RETRY_IMMEDIATELY, "no message that is wanted"
    elif got.status is GetStatus.RETRY or not (
        broker.is_master or got.status is GetStatus.TOO_SMALL
    ):
        # A slave may be behind its reader: only a master knows that there is no such offset
        # (upstream: offsetCheckInSlave, which is off).
        code, remark = ResponseCode.PULL_RETRY_IMMEDIATELY, got.status.value
    else:
        code, remark = ResponseCode.PULL_OFFSET_MOVED, got.status.value
    next_offset = got.next_offset
    if code == ResponseCode.PULL_NOT_FOUND or (
        code == ResponseCode.PULL_RETRY_IMMEDIATELY
        and got.status in (GetStatus.TOO_FAR, GetStatus.NO_QUEUE)
    ):
        next_offset = header.offset
    ext = {
        "suggestWhichBrokerId": str(MASTER_ID),
        "nextBeginOffset": str(next_offset),
        "minOffset": str(got.min_offset),
        "maxOffset": str(got.max_offset),
    }
    if messages and broker.is_master:
        log = broker.store.log
        broker.env.witness("reads", log.directory, log.segment_bytes, messages[-1])
    body = b"".join(messages) if code == ResponseCode.SUCCESS else b""
    return response(code, remark, ext, body)


def wanted_by(broker: Broker, header: PullHeader, messages: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Those with one of the tags of "a || b"; all of them for "*". Clients look again."""
    if header.expression_type == SQL92:
        return _selected(parse(_expression(broker, header)), messages)
    tags = [tag.strip() for tag in header.subscription.split("||") if tag.strip()]
    if not tags or "*" in tags:
        return messages
    return tuple(message for message in messages if property_of(read_stored(message), TAGS) in tags)


def _selected(expression: Term, messages: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple(
        message
        for message in messages
        if expression(properties_of(read_stored(message).message.properties)) is True
    )


async def check_client_config(broker: Broker, request: Command, caller: Caller) -> Command:
    """CHECK_CLIENT_CONFIG: whether a subscription's filter can be understood."""
    wanted = decode_json(request.body, ClientConfig).subscription_data
    if wanted is None or wanted.expression_type != SQL92:
        return response(ResponseCode.SUCCESS)
    try:
        parse(wanted.sub_string)
    except BadExpression as error:
        return response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
    return response(ResponseCode.SUCCESS)


# -- single messages -------------------------------------------------------------------------------
# Single messages: VIEW_MESSAGE_BY_ID (33) and QUERY_MESSAGE (12, by key).
#
# After broker/processor/QueryMessageProcessor.java.


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
    return await broker.store.reader.message_at(offset)


async def query_message(broker: Broker, request: Command, caller: Caller) -> Command:
    """Messages with a key, the newest first, at most ``maxNum``: as far as the index has got."""
    if not await broker.replica.readable():
        return not_readable()
    fields = Fields(request.ext)
    topic, key = fields.text("topic"), fields.text("key")
    wanted = fields.number("maxNum", MESSAGES_MAX)
    begin_ms = fields.number("beginTimestamp", 0)
    end_ms = fields.number("endTimestamp", 1 << 62)
    found = await broker.store.reader.find_by_key(
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
