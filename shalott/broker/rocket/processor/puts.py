"""What all requests that store have in common: the topic, the put, and the answer to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping

from shalott.broker.base.errors import DiskFull, MessageIllegal
from shalott.broker.rocket.commitlog.api import GetStatus, Message, PutStage
from shalott.broker.rocket.commitlog.codec import Stored
from shalott.broker.rocket.commitlog.replica import PutResult, PutStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.stored_messages import read_stored
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response
from shalott.broker.rocket.remoting.route_data import TopicConfig

BATCH, BATCH_BYTES = 32, 256 << 10


def not_master(broker: Broker) -> Command:
    role = broker.replica.role
    who = "a slave" if role == "slave" else "not a master now"
    remark = remark_of(PutResult(PutStatus.SERVICE_NOT_AVAILABLE, None, f"this broker is {who}"))
    return response(ResponseCode.SERVICE_NOT_AVAILABLE, remark)


async def answered(broker: Broker, handling: Awaitable[Command]) -> Command:
    """The answer. Who is told SUCCESS takes all that the request stored for done."""
    task = asyncio.current_task()
    assert task is not None
    stored = broker.uncertain[task] = []
    try:
        answer = await handling
    finally:
        del broker.uncertain[task]
    if answer.code == ResponseCode.SUCCESS:
        for testify in stored:
            testify()
    return answer


async def put(broker: Broker, messages: list[Message], *, counts: bool = True) -> PutResult:
    """Store through the replica; what counts as acknowledged is told to the event log. ``counts``
    False: who is answered does not rely on it."""
    epoch, taken_ns = broker.replica.epoch, broker.env.clock.monotonic_ns()
    try:
        result = await broker.replica.put(messages)
    except MessageIllegal as error:
        return PutResult(PutStatus.MESSAGE_ILLEGAL, None, str(error))
    except DiskFull as error:
        return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, None, str(error))
    is_done = result.status is PutStatus.PUT_OK
    end = result.stage.end if result.stage is not None and result.stage.messages else 0
    if result.stage is not None and end:  # of a batch nothing may have fitted
        log, begin = broker.store.log, result.stage.messages[0].offset

        def testify() -> None:
            age_ns = broker.env.clock.monotonic_ns() - taken_ns
            broker.env.witness("acked", log.directory, log.segment_bytes, begin, end, age_ns)

        if is_done:
            testify()
        elif counts and (task := asyncio.current_task()) in broker.uncertain:
            broker.uncertain[task].append(testify)
    if is_done:
        broker.acked.acked(epoch, taken_ns, len(messages), end=end, holders=result.holders)
    return result


def find_topic(broker: Broker, name: str) -> TopicConfig | None:
    """The topic if it is known, from the log if need be."""
    known = broker.tables.topics.get(name)
    if known is None and broker.learn_topics():
        known = broker.tables.topics.get(name)
    return known


def ensure_topic(broker: Broker, name: str, *, queues: int) -> TopicConfig:
    """The topic, made if it is not there; name servers hear of it at once."""
    known = find_topic(broker, name)
    if known is None:
        known = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        broker.tables.put_topic(known)
        broker.topics_changed()
    return known


async def stored_from(
    broker: Broker, topic: str, queue_id: int, offset: int
) -> AsyncIterator[Stored]:
    """What a queue of a broker's own has from ``offset`` on, as far as it can be read."""
    reader = broker.store.reader
    first, end = reader.queue_range(topic, queue_id)
    offset = max(first, offset)
    while offset < end:
        got = await reader.get(topic, queue_id, offset, max_messages=BATCH, max_bytes=BATCH_BYTES)
        if got.status is not GetStatus.FOUND or not got.messages:
            return
        for data in got.messages:
            yield read_stored(data)
        offset = got.next_offset


# -- answers ---------------------------------------------------------------------------------------
# From the outcome of a put to the answer to a send (docs/protocols.md 1.6).
#
# After broker/processor/SendMessageProcessor.java (handlePutMessageResult).
#
# Only SUCCESS is SEND_OK. FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE carry
# the message's place, as it is stored. Every other answer says in its remark whether something
# was stored (NOTHING_STORED), because upstream's codes do not: IN_SYNC_REPLICAS_NOT_ENOUGH is
# certain before the append and unknown after it, and both are code 1.


NOTHING_STORED = "nothing was stored"
STORED = "it was stored on this broker"

CODES: Mapping[PutStatus, ResponseCode] = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: ResponseCode.SYSTEM_ERROR,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_ERROR,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
}
_WORDS: Mapping[PutStatus, str] = {
    PutStatus.FLUSH_DISK_TIMEOUT: "the flush took too long",
    PutStatus.FLUSH_SLAVE_TIMEOUT: "the slave took too long",
    PutStatus.SLAVE_NOT_AVAILABLE: "no slave is near enough",
    PutStatus.SERVICE_NOT_AVAILABLE: "service not available now",
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "in-sync replicas not enough",
    PutStatus.OS_PAGE_CACHE_BUSY: "[PC_SYNCHRONIZED]broker busy",
    PutStatus.MESSAGE_ILLEGAL: "the message is illegal",
    PutStatus.UNKNOWN_ERROR: "UNKNOWN_ERROR",
}


def send_answer(
    result: PutResult, queue_id: int, transaction_id: str = "", recall_handle: str = ""
) -> Command:
    """The answer to a send whose put ended so."""
    stage = result.stage
    code = CODES[result.status]
    if stage is not None and result.status is PutStatus.PUT_OK:
        place = _place(stage, queue_id, transaction_id)
        return response(code, ext=place | _if_any("recallHandle", recall_handle))
    ext = None
    if stage is not None and code not in (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.MESSAGE_ILLEGAL,
    ):
        ext = _place(stage, queue_id, transaction_id)
    return response(code, remark_of(result), ext)


def remark_of(result: PutResult) -> str:
    """What happened, why, and whether something was stored."""
    words = _WORDS.get(result.status, result.status.value)
    if result.reason and result.reason != words:
        words = f"{words} ({result.reason})"
    return f"{words}: {NOTHING_STORED if result.stage is None else STORED}"


def _place(stage: PutStage, queue_id: int, transaction_id: str) -> dict[str, str]:
    return {
        "msgId": ",".join(message.message_id for message in stage.messages),
        "queueId": str(queue_id),
        "queueOffset": str(stage.messages[0].queue_offset),
        **_if_any("transactionId", transaction_id),
    }


def _if_any(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}
