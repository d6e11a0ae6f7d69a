"""The stored message: the layout in the commit log, which is also the body of a pull's answer.

Sources: store/MessageExtEncoder.java, common/message/MessageDecoder.java, store/CommitLog.java
(checkMessageAndReturnSize); docs/protocols.md 6.3. Big-endian:

    total4 magic4 bodyCrc4 queueId4 flag4 queueOffset8 physicalOffset8 sysFlag4 bornMs8
    bornHost(4+4 | 16+4) storeMs8 storeHost(4+4 | 16+4) reconsumeTimes4 preparedOffset8
    bodyLength4 body topicLength(1 | 2) topic propertiesLength2 properties

A file's rest that is too small for the next message is filled: total4, the blank magic, zeros. A
total or a filler that could not be there means that the log ends.

The CRC covers the body only. What a power loss may leave of a message are some of its sectors, the
others zero (files are never written over): a lost sector with header fields breaks the lengths,
one with topic or properties leaves a zero byte where text has none, so both are looked for.
"""

from __future__ import annotations

import codecs
import ipaddress
import struct
from dataclasses import dataclass
from zlib import crc32

from shalott.broker.base.errors import MessageIllegal
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.due_times import SCHEDULE_TOPIC, due_ms

MAGIC_V1 = -626843481  # 0xDAA320A7
MAGIC_V2 = -626843477  # topics longer than 127 bytes
MAGIC_BLANK = -875286124
MAGIC_V1_BYTES = MAGIC_V1.to_bytes(4, "big", signed=True)
FILLER_MIN_BYTES = 8  # what a message must leave in its file

BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20

TOPIC_BYTES_MAX = 255
TOPIC_V1_BYTES_MAX = 127
PROPERTIES_BYTES_MAX = 32767
HOSTS_REMEMBERED_MAX = 10_000

TOPIC_ILLEGAL = "a topic is 1 to 255 letters, digits and characters of %|-_"

START = struct.Struct(">ii")
HEAD = struct.Struct(">iiIiiqqiq")  # up to the time a message was born at: both kinds of hosts
TAIL = struct.Struct(">iqi")  # reconsume times, prepared offset, body length
HEAD_V4 = struct.Struct(">iiIiiqqiq8sq8siqi")  # all of it, with hosts of four bytes
CHECKED_V4 = struct.Struct(">4xiIiiqqi44xi")  # of that: magic, CRC ... flags, body length
QUEUE_V4 = struct.Struct(">12xi4xq56xi")  # of that: queue id, queue offset, body length
HEAD_V4_BYTES = HEAD_V4.size  # 88

TAGS_REMEMBERED_MAX = 10_000
TAGS_KEY = b"TAGS\x01"
DELAY_KEY = b"DELAY\x01"
SEPARATOR = 2

_TOPIC_CHARACTERS = "%|-_" + "0123456789" + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TOPIC_BYTES = _TOPIC_CHARACTERS.encode()

# Looked up once, here: Python reads an encoding's module when it is first used, and a simulated
# node may not open files.
_UTF_16_BE = codecs.lookup("utf-16-be").encode


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it lies in the log. ``size`` is all of it; ``message.store_host`` too."""

    size: int
    queue_offset: int
    physical_offset: int
    store_ms: int
    body_crc: int
    message: Message


# What a message needs in the log: (size of all of it, topic, properties, born host, store host).
Parts = tuple[int, bytes, bytes, bytes, bytes]


class Encoder:
    """Turns messages into bytes. Remembers hosts and topics it has seen, for they are few."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._topics: dict[str, bytes] = {}
        self._hosts: dict[tuple[str, int], bytes] = {}

    def prepare(self, message: Message) -> Parts:
        """Raises MessageIllegal if no store may take it."""
        topic = self._topics.get(message.topic) or self._new_topic(message.topic)
        properties = message.properties.encode()
        if len(message.body) > self._max_message_bytes:
            raise MessageIllegal(f"a body of {len(message.body)} bytes is too long")
        if len(properties) > PROPERTIES_BYTES_MAX or b"\0" in properties:
            raise MessageIllegal("properties must have 32767 bytes at most, none of them zero")
        born = self._hosts.get(message.born_host) or self._new_host(message.born_host)
        stored = self._hosts.get(message.store_host) or self._new_host(message.store_host)
        size = HEAD_V4_BYTES - 16 + len(born) + len(stored)  # hosts with their ports
        size += len(message.body) + len(topic) + len(properties)
        return (
            size + (3 if len(topic) <= TOPIC_V1_BYTES_MAX else 4),
            topic,
            properties,
            born,
            stored,
        )

    def encode(self, message: Message, offset: int, queue_offset: int, store_ms: int) -> bytes:
        """The bytes of a message. Raises MessageIllegal."""
        return self.encode_prepared(message, self.prepare(message), offset, queue_offset, store_ms)

    def encode_prepared(
        self, message: Message, parts: Parts, offset: int, queue_offset: int, store_ms: int
    ) -> bytes:
        total, topic, properties, born, stored = parts
        body = message.body
        system = message.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
        short = len(topic) <= TOPIC_V1_BYTES_MAX
        first = (
            total,
            MAGIC_V1 if short else MAGIC_V2,
            crc32(body) & 0x7FFFFFFF,  # as UtilAll.crc32
            message.queue_id,
            message.flag,
            queue_offset,
            offset,
        )
        last = (message.reconsume_times, message.prepared_transaction_offset, len(body))
        if len(born) == len(stored) == 8:
            head = HEAD_V4.pack(*first, system, message.born_ms, born, store_ms, stored, *last)
        else:
            system |= BORN_HOST_V6 if len(born) > 8 else 0
            system |= STORE_HOST_V6 if len(stored) > 8 else 0
            head = HEAD.pack(*first, system, message.born_ms) + born
            head += store_ms.to_bytes(8, "big") + stored + TAIL.pack(*last)
        topic_length = len(topic).to_bytes(1 if short else 2, "big")
        return b"".join(
            (head, body, topic_length, topic, len(properties).to_bytes(2, "big"), properties)
        )

    def message_id(self, host: tuple[str, int], offset: int) -> str:
        """The offsetMsgId: where the message was stored, in capital hexadecimal digits."""
        packed = self._hosts.get(host) or self._new_host(host)
        return f"{packed.hex().upper()}{offset:016X}"

    def _new_topic(self, topic: str) -> bytes:
        if not is_topic(topic):
            raise MessageIllegal(f"{topic!r}: {TOPIC_ILLEGAL}")
        return self._topics.setdefault(topic, topic.encode())

    def _new_host(self, host: tuple[str, int]) -> bytes:
        try:
            packed = ipaddress.ip_address(host[0]).packed + host[1].to_bytes(4, "big")
        except (ValueError, OverflowError) as error:
            raise MessageIllegal(f"{host[0]!r} is no IP address") from error
        if len(self._hosts) > HOSTS_REMEMBERED_MAX:
            self._hosts.clear()  # ports of clients come and go
        return self._hosts.setdefault(host, packed)


def is_topic(topic: str) -> bool:
    return 0 < len(topic) <= TOPIC_BYTES_MAX and not topic.strip(_TOPIC_CHARACTERS)


def filler(size: int) -> bytes:
    """The end of a file that holds no message. ``size`` is at least FILLER_MIN_BYTES."""
    return START.pack(size, MAGIC_BLANK) + bytes(size - START.size)


# What a consume queue's unit is made of (DispatchRequest): (topic, queue id, queue offset, code of
# the tags).
Dispatch = tuple[str, int, int, int]


class Dispatcher:
    """Reads of a message only what dispatch needs; remembers topics and tags, for they are few."""

    def __init__(self) -> None:
        self._topics: dict[bytes, str] = {}
        self._codes: dict[bytes, int] = {b"": 0}

    def dispatch(self, data: bytes, start: int) -> Dispatch:
        """Of the message that begins at ``start``, which is whole and valid. In place of the code,
        of one that waits for a level of delay: when it is due."""
        queue_id, queue_offset, body_length = QUEUE_V4.unpack_from(data, start)
        if data[start + 4 : start + 8] == MAGIC_V1_BYTES and not data[start + 39] & 0x30:
            topic_at = start + HEAD_V4_BYTES + body_length + 1
            topic_end = topic_at + data[topic_at - 1]
            properties_at = topic_end + 2
            end = properties_at + (data[topic_end] << 8 | data[topic_end + 1])
        else:
            topic_at, topic_end, properties_at, end = text_spans(data, start)
        encoded = data[topic_at:topic_end]
        topic = self._topics.get(encoded)
        if topic is None:
            topic = self._topics[encoded] = encoded.decode()
        tags = property_at(data, TAGS_KEY, properties_at, end)
        code = self._codes.get(tags)
        if topic == SCHEDULE_TOPIC:
            level = property_at(data, DELAY_KEY, properties_at, end)
            due = due_ms(level, store_ms_at(data, start))
            if due is not None:
                return topic, queue_id, queue_offset, due
        if code is None:
            if len(self._codes) > TAGS_REMEMBERED_MAX:
                self._codes = {b"": 0}
            code = self._codes[tags] = java_hash(tags.decode(errors="replace"))
        return topic, queue_id, queue_offset, code


def property_at(data: bytes, key: bytes, start: int, end: int) -> bytes:
    """The value of the first property ``key`` (with its 0x01); empty if there is none."""
    at = data.find(key, start, end)
    while at > start and data[at - 1] != SEPARATOR:  # the end of another key
        at = data.find(key, at + 1, end)
    if at < 0:
        return b""
    at += len(key)
    stop = data.find(b"\x02", at, end)
    return data[at : end if stop < 0 else stop]


def java_hash(text: str) -> int:
    """String.hashCode(): over UTF-16 code units, with the wrap of a signed 32-bit integer."""
    units, _ = _UTF_16_BE(text, "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def text_spans(data: bytes, start: int) -> tuple[int, int, int, int]:
    """Of a message at ``start``: where topic and properties begin and end. Raises struct.error or
    IndexError if it leads out of the data.
    """
    at = body_length_at(data, start)
    topic_at = at + 4 + int.from_bytes(data[at : at + 4], "big", signed=True)
    if data[start + 4 : start + 8] == MAGIC_V1_BYTES:
        topic_at += 1
        topic_end = topic_at + data[topic_at - 1]
    else:
        topic_at += 2
        topic_end = topic_at + int.from_bytes(data[topic_at - 2 : topic_at], "big")
    properties_at = topic_end + 2
    length = int.from_bytes(data[topic_end:properties_at], "big")
    return topic_at, topic_end, properties_at, properties_at + length


def body_length_at(data: bytes, start: int) -> int:
    """Where the body's length is; hosts before it are of four or sixteen bytes."""
    at = start + HEAD_V4_BYTES - 4
    flags = data[start + 39]  # the low byte of sysFlag
    if flags & (BORN_HOST_V6 | STORE_HOST_V6):
        at += 12 * bool(flags & BORN_HOST_V6) + 12 * bool(flags & STORE_HOST_V6)
    return at


def store_ms_at(data: bytes, start: int) -> int:
    """When the message that begins at ``start`` was stored."""
    at = start + HEAD.size + (20 if data[start + 39] & BORN_HOST_V6 else 8)
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def first_invalid(data: bytes, base: int, spans: list[tuple[int, int]]) -> int:
    """The index of the first span that is not a whole message made for where it lies; their count
    if all are. Magics were looked at.
    """
    unpack, view, topics = CHECKED_V4.unpack_from, memoryview(data), dict.fromkeys((b"",))
    for index, (start, size) in enumerate(spans):
        if size < HEAD_V4_BYTES + 4:
            return index
        magic, crc, queue_id, _, queue_offset, offset, flags, body_length = unpack(data, start)
        if magic != MAGIC_V1 or flags & 0x30:
            if not _is_valid_slowly(data, start, size, base + start):
                return index
            continue
        end = start + size
        body_end = start + HEAD_V4_BYTES + body_length
        if offset != base + start or queue_id < 0 or queue_offset < 0 or body_length < 0:
            return index
        if body_end >= end - 3:
            return index
        topic_end = body_end + 1 + data[body_end]
        if topic_end + 2 > end:
            return index
        if topic_end + 2 + (data[topic_end] << 8 | data[topic_end + 1]) != end:
            return index
        topic = data[body_end + 1 : topic_end]
        if topic not in topics:
            if topic.translate(None, _TOPIC_BYTES):
                return index
            topics[topic] = None
        if not topic or data.find(0, topic_end + 2, end) >= 0:
            return index
        if crc32(view[start + HEAD_V4_BYTES : body_end]) & 0x7FFFFFFF != crc:
            return index
    return len(spans)


def _is_valid_slowly(data: bytes, start: int, total: int, offset: int) -> bool:
    """For both versions, and both kinds of hosts."""
    head = HEAD.unpack_from(data, start)
    if head[6] != offset or head[3] < 0 or head[5] < 0:
        return False
    at = body_length_at(data, start)
    body_at, end = at + 4, start + total
    body_end = body_at + int.from_bytes(data[at:body_at], "big", signed=True)
    if not body_at <= body_end < end - 3:
        return False
    topic_at, topic_end, properties_at, properties_end = text_spans(data, start)
    if properties_end != end or topic_end <= topic_at:
        return False
    if data[topic_at:topic_end].translate(None, _TOPIC_BYTES):
        return False
    if b"\0" in data[properties_at:properties_end]:
        return False
    return bool(crc32(data[body_at:body_end]) & 0x7FFFFFFF == head[2])


def is_message(data: bytes, offset: int) -> bool:
    """Whether ``data`` is one whole sound message that was made for ``offset``."""
    if len(data) < FILLER_MIN_BYTES:
        return False
    size, magic = START.unpack_from(data, 0)
    if size != len(data) or magic not in (MAGIC_V1, MAGIC_V2):
        return False
    return first_invalid(data, offset, [(0, size)]) == 1


def decode(data: bytes, offset: int) -> Stored:
    """One whole stored message. Raises MessageIllegal if it is damaged, or was made for another
    ``offset``.
    """
    if not is_message(data, offset):
        raise MessageIllegal(f"no sound message is at {offset}")
    total = len(data)
    _, _, crc, queue_id, flag, queue_offset, physical, system, born_ms = HEAD.unpack_from(data, 0)
    at = HEAD.size
    born, at = _host_at(data, at, 16 if system & BORN_HOST_V6 else 4)
    store_ms, at = int.from_bytes(data[at : at + 8], "big", signed=True), at + 8
    stored, at = _host_at(data, at, 16 if system & STORE_HOST_V6 else 4)
    reconsume_times, prepared, body_length = TAIL.unpack_from(data, at)
    body_at = at + TAIL.size
    topic_at, topic_end, properties_at, end = text_spans(data, 0)
    try:
        properties = data[properties_at:end].decode()
    except UnicodeDecodeError as error:
        raise MessageIllegal(f"the stored message at {offset} is damaged") from error
    message = Message(
        topic=data[topic_at:topic_end].decode(),
        queue_id=queue_id,
        body=data[body_at : body_at + body_length],
        properties=properties,
        flag=flag,
        sys_flag=system,
        born_ms=born_ms,
        born_host=born,
        store_host=stored,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
    )
    return Stored(total, queue_offset, physical, store_ms, crc, message)


def _host_at(data: bytes, at: int, width: int) -> tuple[tuple[str, int], int]:
    address = str(ipaddress.ip_address(data[at : at + width]))
    port_at = at + width
    return (address, int.from_bytes(data[port_at : port_at + 4], "big")), port_at + 4
