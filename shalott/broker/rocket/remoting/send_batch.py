"""The body of SEND_BATCH_MESSAGE: small messages one after the other, big-endian (docs/protocols.md
6.2).

    total 4 | magic 4 | body CRC 4 | flag 4 | body length 4 | body | properties length 2 |
    properties

Magic and CRC are zero from every client that was seen: neither is checked.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One message of a batch; what is not here is the same for all and stands in the header."""

    body: bytes
    properties: str
    flag: int


def encode_batch(items: list[BatchItem]) -> bytes:
    """As a client does it."""
    parts = []
    for item in items:
        properties = item.properties.encode()
        total = _HEAD.size + len(item.body) + _SHORT.size + len(properties)
        head = _HEAD.pack(total, 0, 0, item.flag, len(item.body))
        parts += [head, item.body, _SHORT.pack(len(properties)), properties]
    return b"".join(parts)


def decode_batch(data: bytes) -> list[BatchItem]:
    """Raises ValueError if the lengths do not agree or there is nothing."""
    items = []
    start = 0
    while start < len(data):
        item, end = _decode_item(data, start)
        items.append(item)
        start = end
    if not items:
        raise ValueError("the batch is empty")
    return items


def _decode_item(data: bytes, start: int) -> tuple[BatchItem, int]:
    try:
        total, _, _, flag, length = _HEAD.unpack_from(data, start)
        body_end = start + _HEAD.size + length
        (properties_length,) = _SHORT.unpack_from(data, body_end)
    except struct.error:
        raise ValueError("a message of the batch is cut short") from None
    end = body_end + _SHORT.size + properties_length
    if length < 0 or end - start != total or end > len(data):
        raise ValueError("the lengths of a message of the batch do not agree")
    try:
        properties = data[body_end + _SHORT.size : end].decode()
    except UnicodeDecodeError:
        raise ValueError("the properties of a message of the batch are no text") from None
    return BatchItem(data[start + _HEAD.size : body_end], properties, flag), end
