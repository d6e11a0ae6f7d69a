"""The records in a backing queue's journal: MessagePack, one tagged array each."""

from __future__ import annotations

import msgspec

from shalott.broker.rabbit.amqp.queue_protocol import Content


class Published(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A message came in. ``expires_wall_ns``: when its time to live is over by the node's clock."""

    serial: int
    redelivered: bool
    content: Content
    expires_wall_ns: int | None = None


class Removed(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """These are gone for good. A serial that isn't there is no error."""

    serials: list[int]


class Closed(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A clean end: of all messages only these may have been delivered.

    It counts only if it is the last record.
    """

    delivered: list[int]


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A new start after a clean end. The flags of the end no longer hold.

    The deliveries since the start are not known.
    """


class Purged(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Of all that came up to ``last_serial`` only these are left."""

    last_serial: int
    kept: list[int]


QueueRecord = Published | Removed | Closed | Opened | Purged

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[QueueRecord] = msgspec.msgpack.Decoder(QueueRecord)


def encode_record(record: QueueRecord) -> bytes:
    return _encoder.encode(record)


def decode_record(data: bytes) -> QueueRecord:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(data)
