"""Pops and what is said of popped messages: POP_MESSAGE, ACK_MESSAGE, BATCH_ACK_MESSAGE,
CHANGE_MESSAGE_INVISIBLETIME, NOTIFICATION, POLLING_INFO (upstream: the processors of these names).

A pop names a queue, or -1 for any, and takes from the group's retry topic, too. Only a master
serves it. Orderly pops are refused.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from shalott.broker.rocket.commitlog.api import GetStatus
from shalott.broker.rocket.commitlog.codec import Encoder
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.clients import decode_json
from shalott.broker.rocket.processor.fields import BadRequest, Fields
from shalott.broker.rocket.processor.flights import (
    MESSAGE_BYTES,
    QUEUE,
    Flights,
    pop_retry_topic,
)
from shalott.broker.rocket.processor.popped import Place
from shalott.broker.rocket.processor.pull import (
    BYTES_MAX,
    MESSAGES_MAX,
    PullHeader,
    not_readable,
    refusal_of,
    wanted_by,
)
from shalott.broker.rocket.processor.puts import not_master
from shalott.broker.rocket.processor.stored_messages import (
    flags_to_store_again,
    properties_of,
    properties_text,
    read_stored,
)
from shalott.broker.rocket.processor.topics import RETRY_PREFIX, queues_of
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response
from shalott.broker.rocket.remoting.headers import PULL_SUBSCRIPTION
from shalott.broker.rocket.remoting.server import Caller

ANY_QUEUE, LAST = -1, 1  # queueId; initMode of who begins at the end
POP_CK = "POP_CK"
RETRY_FIRST = 5  # in one of so many pops
WAKE_S = 0.05  # after what came could not be given


@dataclass(frozen=True, slots=True)
class Popped:
    """Of one queue. ``body``: the messages; ``rest``: how many are left."""

    place: Place
    offsets: list[int]
    pop_ms: int
    body: bytes
    rest: int

    @property
    def start_info(self) -> str:
        return f"{_flag(self.place)} {self.place[2]} {self.offsets[0]}"

    @property
    def offset_info(self) -> str:
        return f"{_flag(self.place)} {self.place[2]} {','.join(map(str, self.offsets))}"


class BatchAck(msgspec.Struct, frozen=True):
    """One pop of BATCH_ACK_MESSAGE; ``b``: a bit for each offset from ``so`` on."""

    c: str
    t: str
    r: str
    so: int
    q: int
    pt: int
    b: str = ""


class BatchAcks(msgspec.Struct, frozen=True):
    """The body of BATCH_ACK_MESSAGE."""

    acks: list[BatchAck] = []


def _flag(place: Place) -> str:
    return "1" if place[1].startswith(RETRY_PREFIX) else "0"


async def pop(broker: Broker, request: Command, caller: Caller) -> Command:
    fields = Fields(request.ext)
    header = _header(fields)
    refusal = _refusal(broker, header, fields)
    if refusal is not None:
        return refusal
    if not await broker.replica.readable():
        return not_readable()
    until_s = _until_s(broker, fields)
    invisible_ms = fields.number("invisibleTime")
    while True:
        found = await _pop_some(broker, header, invisible_ms, fields.number("initMode", 0))
        if found:
            return _answer(found, invisible_ms)
        if not await _more_came(broker, header, caller, until_s):
            has_waited = fields.number("pollTime", 0) > 0
            code = ResponseCode.POLLING_TIMEOUT if has_waited else ResponseCode.PULL_NOT_FOUND
            return response(code, "no message")


def _header(fields: Fields) -> PullHeader:
    """As of a pull."""
    return PullHeader(
        group=fields.text("consumerGroup"),
        topic=fields.text("topic"),
        queue_id=fields.number("queueId", ANY_QUEUE),
        offset=0,
        max_messages=max(1, min(fields.number("maxMsgNums", MESSAGES_MAX), MESSAGES_MAX)),
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_ms=0,
        subscription=fields.text("exp", "*") or "*",
        expression_type=fields.text("expType", "TAG"),
    )


def _refusal(broker: Broker, header: PullHeader, fields: Fields) -> Command | None:
    if not broker.is_master:
        return not_master(broker)
    if fields.flag("order"):
        return response(ResponseCode.SYSTEM_ERROR, "orderly pops are not supported")
    return refusal_of(broker, replace(header, queue_id=max(0, header.queue_id)))


def _until_s(broker: Broker, fields: Fields) -> float:
    poll_ms = min(fields.number("pollTime", 0), broker.config.long_poll_max_ms)
    return asyncio.get_running_loop().time() + poll_ms / 1000


def _places(broker: Broker, header: PullHeader) -> list[Place]:
    """In the order in which they are looked at: another one first each time, and the retries first
    now and then."""
    queues = [header.queue_id]
    if header.queue_id == ANY_QUEUE:
        count = queues_of(broker.tables.topics[header.topic])
        first = broker.env.choose_index(count)
        queues = [(first + number) % count for number in range(count)]
    own: list[Place] = [(header.group, header.topic, queue_id) for queue_id in queues]
    retries: Place = (header.group, pop_retry_topic(header.group, header.topic), 0)
    if header.topic.startswith(RETRY_PREFIX):
        return own
    return [retries, *own] if broker.env.choose_index(RETRY_FIRST) == 0 else [*own, retries]


async def _pop_some(
    broker: Broker, header: PullHeader, invisible_ms: int, init_mode: int
) -> list[Popped]:
    found: list[Popped] = []
    left = header.max_messages
    for place in _places(broker, header):
        if left > 0:
            wanted = replace(header, max_messages=left)
            got = await _pop_queue(broker, place, wanted, invisible_ms, init_mode)
            if got is not None:
                found.append(got)
                left -= len(got.offsets)
    return found


async def _pop_queue(
    broker: Broker, place: Place, header: PullHeader, invisible_ms: int, init_mode: int
) -> Popped | None:
    group, topic, queue_id = place
    is_retry, flights, tables = topic != header.topic, Flights(broker), broker.tables
    async with flights.turn(place):
        offset = tables.offset(group, topic, queue_id)
        if offset is None:
            first, end = broker.store.reader.queue_range(topic, queue_id)
            offset = max(first, end - 1) if init_mode == LAST and not is_retry else first
        got = await broker.store.reader.get(
            topic, queue_id, offset, max_messages=header.max_messages, max_bytes=BYTES_MAX
        )
        if got.status is GetStatus.TOO_SMALL:
            tables.put_offset(group, topic, queue_id, got.next_offset)
        if got.status is not GetStatus.FOUND or not got.messages:
            return None
        messages = got.messages if is_retry else wanted_by(broker, header, got.messages)
        offsets = [read_stored(each).queue_offset for each in messages]
        if not offsets:
            tables.put_offset(group, topic, queue_id, got.next_offset)
            return None
        pop_ms = await flights.take(place, offsets, got.next_offset, invisible_ms)
    if pop_ms is None:
        return None
    if is_retry:
        handle = f"{offsets[0]} {pop_ms} {invisible_ms} {QUEUE} 1 {broker.config.broker_name}"
        messages = tuple(_as_first_sent(each, header.topic, handle) for each in messages)
    rest = max(0, got.max_offset - got.next_offset)
    return Popped(place, offsets, pop_ms, b"".join(messages), rest)


def _as_first_sent(data: bytes, topic: str, handle: str) -> bytes:
    """A retried message under the topic that was asked for, with its handle."""
    stored = read_stored(data)
    properties = properties_of(stored.message.properties)
    properties[POP_CK] = f"{handle} {stored.message.queue_id} {stored.queue_offset}"
    message = replace(
        stored.message,
        topic=topic,
        properties=properties_text(properties),
        sys_flag=flags_to_store_again(stored),
    )
    return Encoder(MESSAGE_BYTES).encode(
        message, stored.physical_offset, stored.queue_offset, stored.store_ms
    )


def _answer(found: list[Popped], invisible_ms: int) -> Command:
    ext = {
        "popTime": str(found[0].pop_ms),
        "invisibleTime": str(invisible_ms),
        "reviveQid": str(QUEUE),
        "restNum": str(sum(each.rest for each in found)),
        "startOffsetInfo": ";".join(each.start_info for each in found),
        "msgOffsetInfo": ";".join(each.offset_info for each in found),
    }
    return response(ResponseCode.SUCCESS, "FOUND", ext, b"".join(each.body for each in found))


async def _more_came(broker: Broker, header: PullHeader, caller: Caller, until_s: float) -> bool:
    """Wait for a message in one of the queues; False: time is up, or the popper is gone."""
    left_s = until_s - asyncio.get_running_loop().time()
    if left_s <= 0 or caller.is_closed:
        return False
    tables, reader = broker.tables, broker.store.reader
    closed = asyncio.ensure_future(caller.closed.wait())
    arrivals = [
        asyncio.ensure_future(
            reader.arrived(topic, queue_id, tables.offset(group, topic, queue_id) or 0)
        )
        for group, topic, queue_id in _places(broker, header)
    ]
    try:
        done, _ = await asyncio.wait(
            (closed, *arrivals), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for each in (closed, *arrivals):
            each.cancel()
        await asyncio.gather(closed, *arrivals, return_exceptions=True)
    if not done or closed in done:
        return False
    await asyncio.sleep(WAKE_S)
    return await broker.replica.readable()


# -- what consumers say of them --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Handle:
    """POP_CK: the first offset of its pop, when that was, for how long, the revive queue, whether
    it is a retry, the broker, the queue, the offset."""

    pop_ms: int
    place: Place
    offset: int


def _handle(fields: Fields) -> Handle:
    """Raises BadRequest."""
    parts = fields.text("extraInfo").split(" ")
    if len(parts) < 7 or not parts[1].isdecimal():
        raise BadRequest("the handle of a popped message can't be understood")
    place = (fields.text("consumerGroup"), fields.text("topic"), fields.number("queueId"))
    return Handle(int(parts[1]), place, fields.number("offset"))


def _unknown(handle: Handle) -> Command:
    group, topic, queue_id = handle.place
    remark = (
        f"offset {handle.offset} of {topic} {queue_id} is not {group}'s by this handle any more"
    )
    return response(ResponseCode.NO_MESSAGE, remark)


async def ack(broker: Broker, request: Command, caller: Caller) -> Command:
    handle = _handle(Fields(request.ext))
    if not broker.is_master:
        return not_master(broker)
    done = await Flights(broker).ack(handle.place, handle.pop_ms, [handle.offset])
    return response(ResponseCode.SUCCESS) if done else _unknown(handle)


async def batch_ack(broker: Broker, request: Command, caller: Caller) -> Command:
    """As upstream it says nothing of single ones: what is not acknowledged comes again."""
    wanted = decode_json(request.body, BatchAcks)
    if not broker.is_master:
        return not_master(broker)
    for each in wanted.acks:
        topic = pop_retry_topic(each.c, each.t) if each.r == "1" else each.t
        await Flights(broker).ack((each.c, topic, each.q), each.pt, list(_offsets_of(each)))
    return response(ResponseCode.SUCCESS)


def _offsets_of(acks: BatchAck) -> Iterator[int]:
    """Raises BadRequest."""
    try:
        bits = int.from_bytes(base64.b64decode(acks.b, validate=True), "little")
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"the acknowledgements can't be understood: {error}") from error
    return (acks.so + place for place in range(bits.bit_length()) if bits >> place & 1)


async def change_invisible_time(broker: Broker, request: Command, caller: Caller) -> Command:
    fields = Fields(request.ext)
    handle, invisible_ms = _handle(fields), fields.number("invisibleTime")
    if not broker.is_master:
        return not_master(broker)
    pop_ms = await Flights(broker).change(handle.place, handle.pop_ms, handle.offset, invisible_ms)
    if pop_ms is None:
        return _unknown(handle)
    ext = {"popTime": str(pop_ms), "invisibleTime": str(invisible_ms), "reviveQid": str(QUEUE)}
    return response(ResponseCode.SUCCESS, ext=ext)


async def notification(broker: Broker, request: Command, caller: Caller) -> Command:
    """Whether a pop would find something, at once or in ``pollTime``."""
    fields = Fields(request.ext)
    header = _header(fields)
    refusal = _refusal(broker, header, fields)
    if refusal is not None:
        return refusal
    has_message = _has_message(broker, header) or (
        await _more_came(broker, header, caller, _until_s(broker, fields))
        and _has_message(broker, header)
    )
    ext = {"hasMsg": "true" if has_message else "false", "pollingFull": "false"}
    return response(ResponseCode.SUCCESS, ext=ext)


def _has_message(broker: Broker, header: PullHeader) -> bool:
    reader, tables = broker.store.reader, broker.tables
    return any(
        reader.queue_range(topic, queue_id)[1] > (tables.offset(group, topic, queue_id) or 0)
        for group, topic, queue_id in _places(broker, header)
    )


async def polling_info(broker: Broker, request: Command, caller: Caller) -> Command:
    """A broker of ours turns no poll away, so it counts none."""
    return response(ResponseCode.SUCCESS, ext={"pollingNum": "0"})
