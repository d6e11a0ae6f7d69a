"""The stored message: the layout in the commit log, which is also the body of a pull's answer.

Sources: store/MessageExtEncoder.java, common/message/MessageDecoder.java, store/CommitLog.java
(checkMessageAndReturnSize); reference 3.3.3. Big-endian:

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

import ipaddress
import struct
from dataclasses import dataclass
from zlib import crc32

from broker.commitlog.api import Message
from broker.errors import MessageIllegal

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

TOPIC_ILLEGAL = "a topic is 1 to 255 letters, digits and characters of %|-_"

START = struct.Struct(">ii")
HEAD = struct.Struct(">iiIiiqqiq")  # up to the times a message was born at: both versions have it
TAIL = struct.Struct(">iqi")  # reconsume times, prepared offset, body length
HEAD_V4 = struct.Struct(">iiIiiqqiq4siq4siiqi")  # all of it, with hosts of four bytes
MESSAGE_ID_V4 = struct.Struct(">4siq")
HEAD_V4_BYTES = HEAD_V4.size  # 88
QUEUE_OFFSET_AT = 20

_TOPIC_CHARACTERS = "%|-_" + "0123456789" + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TOPIC_BYTES = _TOPIC_CHARACTERS.encode()


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it lies in the log. ``size`` is all of it; ``message.store_host`` too."""

    size: int
    queue_offset: int
    physical_offset: int
    store_ms: int
    body_crc: int
    message: Message


class Encoder:
    """Turns messages into bytes. Remembers hosts and topics it has seen, for they are few."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._topics: dict[str, bytes] = {}
        self._hosts: dict[str, bytes] = {}

    def size(self, message: Message) -> int:
        """Bytes in the log. Raises MessageIllegal if no store may take it."""
        topic = self._topic(message.topic)
        properties = len(message.properties.encode())
        if len(message.body) > self._max_message_bytes:
            raise MessageIllegal(f"a body of {len(message.body)} bytes is too long")
        if properties > PROPERTIES_BYTES_MAX or "\0" in message.properties:
            raise MessageIllegal("properties must have 32767 bytes at most, none of them zero")
        hosts = len(self._host(message.born_host[0])) + len(self._host(message.store_host[0]))
        lengths = 3 if len(topic) <= TOPIC_V1_BYTES_MAX else 4
        return HEAD_V4_BYTES - 8 + hosts + len(message.body) + len(topic) + properties + lengths

    def encode(self, message: Message, offset: int, queue_offset: int, store_ms: int) -> bytes:
        """The bytes of a message that ``size`` has accepted."""
        topic = self._topic(message.topic)
        properties = message.properties.encode()
        body = message.body
        born, stored = self._host(message.born_host[0]), self._host(message.store_host[0])
        short = len(topic) <= TOPIC_V1_BYTES_MAX
        lengths = 3 if short else 4
        total = HEAD_V4_BYTES - 8 + len(born) + len(stored) + len(body) + len(topic)
        total += len(properties) + lengths
        system = message.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
        system |= BORN_HOST_V6 if len(born) == 16 else 0
        system |= STORE_HOST_V6 if len(stored) == 16 else 0
        first = (
            total,
            MAGIC_V1 if short else MAGIC_V2,
            crc32(body) & 0x7FFFFFFF,  # as UtilAll.crc32
            message.queue_id,
            message.flag,
            queue_offset,
            offset,
            system,
            message.born_ms,
        )
        last = (message.reconsume_times, message.prepared_transaction_offset, len(body))
        born_port, store_port = message.born_host[1], message.store_host[1]
        if len(born) == 4 and len(stored) == 4:
            head = HEAD_V4.pack(*first, born, born_port, store_ms, stored, store_port, *last)
        else:
            head = HEAD.pack(*first) + born + born_port.to_bytes(4, "big")
            head += store_ms.to_bytes(8, "big") + stored + store_port.to_bytes(4, "big")
            head += TAIL.pack(*last)
        width = 1 if short else 2
        return b"".join(
            (
                head,
                body,
                len(topic).to_bytes(width, "big"),
                topic,
                len(properties).to_bytes(2, "big"),
                properties,
            )
        )

    def message_id(self, host: tuple[str, int], offset: int) -> str:
        """The offsetMsgId: where the message was stored, in capital hexadecimal digits."""
        return message_id(self._host(host[0]), host[1], offset)

    def _topic(self, topic: str) -> bytes:
        encoded = self._topics.get(topic)
        if encoded is None:
            if not is_topic(topic):
                raise MessageIllegal(f"{topic!r}: {TOPIC_ILLEGAL}")
            encoded = self._topics[topic] = topic.encode()
        return encoded

    def _host(self, host: str) -> bytes:
        packed = self._hosts.get(host)
        if packed is None:
            try:
                packed = ipaddress.ip_address(host).packed
            except ValueError as error:
                raise MessageIllegal(f"{host!r} is no IP address") from error
            self._hosts[host] = packed
        return packed


def is_topic(topic: str) -> bool:
    return 0 < len(topic) <= TOPIC_BYTES_MAX and not topic.strip(_TOPIC_CHARACTERS)


def message_id(host: bytes, port: int, offset: int) -> str:
    return (host + port.to_bytes(4, "big") + offset.to_bytes(8, "big")).hex().upper()


def filler(size: int) -> bytes:
    """The end of a file that holds no message. ``size`` is at least FILLER_MIN_BYTES."""
    return START.pack(size, MAGIC_BLANK) + bytes(size - START.size)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What a consume queue's unit is made of (DispatchRequest)."""

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int


class Dispatcher:
    """Reads of a message only what dispatch needs; remembers topics and tags, for they are few."""

    def __init__(self) -> None:
        self._topics: dict[bytes, str] = {}
        self._codes: dict[bytes, int] = {b"": 0}

    def dispatch(self, data: bytes, start: int) -> Dispatch:
        """Of the message that begins at ``start``, which is whole and valid."""
        topic_at, topic_end, properties_at, end = _text_spans(data, start)
        encoded = data[topic_at:topic_end]
        topic = self._topics.get(encoded)
        if topic is None:
            topic = self._topics[encoded] = encoded.decode()
        queue_id, _, queue_offset = QUEUE_AT.unpack_from(data, start + 12)
        code = 0
        if properties_at < end:
            tags = tags_of(data[properties_at:end])
            found = self._codes.get(tags)
            if found is None:
                if len(self._codes) > TAGS_REMEMBERED_MAX:
                    self._codes = {b"": 0}
                found = self._codes[tags] = java_hash(tags.decode(errors="replace"))
            code = found
        return Dispatch(topic, queue_id, queue_offset, code)


QUEUE_AT = struct.Struct(">iiq")
TAGS_REMEMBERED_MAX = 10_000
TAGS_KEY = b"TAGS\x01"


def tags_of(properties: bytes) -> bytes:
    """The value of TAGS in a message's properties; empty if there is none."""
    if properties.startswith(TAGS_KEY):
        at = len(TAGS_KEY)
    else:
        at = properties.find(b"\x02" + TAGS_KEY)
        if at < 0:
            return b""
        at += 1 + len(TAGS_KEY)
    end = properties.find(b"\x02", at)
    return properties[at:] if end < 0 else properties[at:end]


def java_hash(text: str) -> int:
    """String.hashCode(): over UTF-16 code units, with the wrap of a signed 32-bit integer."""
    units = text.encode("utf-16-be", errors="surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def _text_spans(data: bytes, start: int) -> tuple[int, int, int, int]:
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


def is_valid(data: bytes, start: int, total: int, offset: int) -> bool:
    """Whether a whole message of ``total`` bytes lies at ``start``, made for ``offset``.

    All ``total`` bytes are in ``data``; the magic was looked at.
    """
    if total < HEAD_V4_BYTES + 4:
        return False
    head = HEAD.unpack_from(data, start)
    if head[6] != offset or head[3] < 0 or head[5] < 0:
        return False
    at = body_length_at(data, start)
    body_at = at + 4
    body_end = body_at + int.from_bytes(data[at:body_at], "big", signed=True)
    end = start + total
    if not body_at <= body_end < end - 3:
        return False
    topic_at, topic_end, properties_at, properties_end = _text_spans(data, start)
    if properties_end != end or topic_end <= topic_at:
        return False
    if data[topic_at:topic_end].translate(None, _TOPIC_BYTES):
        return False
    if b"\0" in data[properties_at:properties_end]:
        return False
    return bool(crc32(memoryview(data)[body_at:body_end]) & 0x7FFFFFFF == head[2])


def decode(data: bytes, offset: int) -> Stored:
    """One whole stored message. Raises MessageIllegal if it is damaged, or was made for another
    ``offset``.
    """
    if len(data) < FILLER_MIN_BYTES:
        raise MessageIllegal("a stored message is cut off")
    total, magic = START.unpack_from(data, 0)
    if total != len(data) or magic not in (MAGIC_V1, MAGIC_V2):
        raise MessageIllegal("no stored message is here")
    if not is_valid(data, 0, total, offset):
        raise MessageIllegal(f"the stored message at {offset} is damaged")
    _, _, crc, queue_id, flag, queue_offset, physical, system, born_ms = HEAD.unpack_from(data, 0)
    at = HEAD.size
    born, at = _host_at(data, at, 16 if system & BORN_HOST_V6 else 4)
    store_ms, at = int.from_bytes(data[at : at + 8], "big", signed=True), at + 8
    stored, at = _host_at(data, at, 16 if system & STORE_HOST_V6 else 4)
    reconsume_times, prepared, body_length = TAIL.unpack_from(data, at)
    body_at = at + TAIL.size
    topic_at, topic_end, properties_at, end = _text_spans(data, 0)
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
