"""What a dead letter's headers tell of its deaths. Pure.

After rabbit/rabbit_dead_letter.erl. The header x-death is an array with one table for each pair of
queue and reason, the latest first: how often (count), when first (time), and how the message had
been published then (exchange, routing-keys). The three x-first-death headers never change. The
expiration that the publisher gave goes, or the message would die again where it is sent to; the
table keeps it as original-expiration.

A message that comes back, by expiry or length alone, to a queue where it died before would circle
for ever, and is dropped. A rejection in the circle means that a client takes part in it: then it is
the client's business.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pamqp import decode

from shalott.broker.rabbit.amqp.field_table import (
    Field,
    join_array,
    join_table,
    long_string,
    split_array,
    split_table,
)
from shalott.broker.rabbit.amqp.properties import join_properties, split_properties

X_DEATH = b"x-death"
COUNT_MAX = 2**63 - 1
INTEGERS = (b"b", b"B", b"s", b"u", b"I", b"i", b"l", b"L")
REJECTED = long_string("rejected")


@dataclass(frozen=True, slots=True)
class Death:
    """How a message left ``queue``, to which it had come by ``exchange`` and ``routing_key``."""

    queue: str
    reason: str  # rejected, expired, maxlen
    at_s: int  # Unix time
    exchange: str
    routing_key: str


def record_death(properties: bytes, death: Death) -> bytes:
    """The encoded property list of the dead letter. Raises ValueError on a malformed one."""
    values = split_properties(properties)
    headers = split_table(values["headers"]) if "headers" in values else []
    expiration = values.pop("expiration", None)
    former = _deaths(headers)
    same = [each for each in former if _is_same(each, death)]
    latest = _again(same[0]) if same else _first(death, expiration)
    others = [each for each in former if each not in same]
    history = b"A" + join_array((latest, *others))
    added: list[Field] = [(X_DEATH, history)]
    if not former:
        added += [
            (b"x-first-death-reason", long_string(death.reason)),
            (b"x-first-death-queue", long_string(death.queue)),
            (b"x-first-death-exchange", long_string(death.exchange)),
        ]
    replaced = [name for name, _ in added]
    kept = [field for field in headers if field[0] not in replaced]
    values["headers"] = join_table((*kept, *added))
    return join_properties(values)


def is_cycle(properties: bytes, queue: str) -> bool:
    """Whether a dead letter that goes to ``queue`` has died there before, and no client since."""
    values = split_properties(properties)
    headers = split_table(values["headers"]) if "headers" in values else []
    for death in _deaths(headers):
        table = _table(death)
        if table.get(b"reason", REJECTED) == REJECTED:
            return False  # or a client wrote this entry
        if table.get(b"queue") == long_string(queue):
            return True
    return False


def _deaths(headers: list[Field]) -> list[bytes]:
    """The values in x-death; none if that isn't an array, which no broker wrote then."""
    history = dict(headers).get(X_DEATH, b"")
    try:
        return split_array(history[1:]) if history[:1] == b"A" else []
    except ValueError:
        return []


def _table(value: bytes) -> dict[bytes, bytes]:
    try:
        return dict(split_table(value[1:])) if value[:1] == b"F" else {}
    except ValueError:
        return {}


def _is_same(value: bytes, death: Death) -> bool:
    table = _table(value)
    reason, queue = long_string(death.reason), long_string(death.queue)
    return (table.get(b"reason"), table.get(b"queue")) == (reason, queue)


def _first(death: Death, expiration: bytes | None) -> bytes:
    fields: list[Field] = [
        (b"count", _integer(1)),
        (b"reason", long_string(death.reason)),
        (b"queue", long_string(death.queue)),
        (b"time", b"T" + struct.pack(">Q", death.at_s)),
        (b"exchange", long_string(death.exchange)),
        (b"routing-keys", b"A" + join_array([long_string(death.routing_key)])),
    ]
    if expiration is not None:
        fields.append((b"original-expiration", long_string(expiration[1:])))
    return b"F" + join_table(fields)


def _again(value: bytes) -> bytes:
    """The same table, with a count of one more."""
    table = _table(value)
    count = table.get(b"count", b"V")
    former = decode.embedded_value(count)[1] if count[:1] in INTEGERS else 0
    assert isinstance(former, int)
    table[b"count"] = _integer(min(former + 1, COUNT_MAX))
    return b"F" + join_table(table.items())


def _integer(number: int) -> bytes:
    return b"l" + struct.pack(">q", number)
