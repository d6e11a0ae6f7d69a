"""What a dead letter's headers tell, and that everything else in them passes untouched."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, decode, encode

from shalott.broker.rabbit.amqp.dead_letters import Death, is_cycle, record_death
from shalott.broker.rabbit.amqp.errors import SYNTAX_ERROR, AmqpError
from shalott.broker.rabbit.amqp.properties import join_properties, read_properties, split_properties
from shalott.broker.rabbit.amqp.tables import (
    join_array,
    join_table,
    long_string,
    split_array,
    split_table,
)

pytestmark = pytest.mark.unit

# One value of every type that a field may have, as its bytes.
VALUES = {
    b"boolean": b"t\x01",
    b"int8": b"b\xff",
    b"uint8": b"B\xff",
    b"int16": b"s\xff\xfe",
    b"uint16": b"u\xff\xfe",
    b"int32": b"I\xff\xff\xff\xfe",
    b"uint32": b"i\xff\xff\xff\xfe",
    b"int64": b"l" + struct.pack(">q", -2),
    b"other int64": b"L" + struct.pack(">q", 5),
    b"float": b"f" + struct.pack(">f", 1.5),
    b"double": b"d" + struct.pack(">d", 1.5),
    b"decimal": b"D\x02\x00\x00\x00\x07",
    b"time": b"T" + struct.pack(">Q", 1_700_000_000),
    b"nothing": b"V",
    b"text": long_string("caf\xe9"),
    b"not text": long_string(b"\xff\xfe"),
    b"bytes": b"x\x00\x00\x00\x02\x00\x01",
    b"array": b"A" + join_array([b"V", b"b\x01"]),
    b"table": b"F" + join_table([(b"inner", b"s\x00\x07")]),
}


def properties(**values: Any) -> bytes:
    encoded = commands.Basic.Properties(**values).marshal()
    assert isinstance(encoded, bytes)
    return encoded


def with_headers(fields: dict[bytes, bytes]) -> bytes:
    return join_properties({"headers": join_table(fields.items())})


def headers(encoded: bytes) -> dict[str, Any]:
    table = decode.by_type(split_properties(encoded)["headers"], "table")[1]
    assert isinstance(table, dict)
    return table


def death(queue: str = "q", reason: str = "rejected", *, at_s: int = 9) -> Death:
    return Death(queue, reason, at_s, exchange="x", routing_keys=("k",))


def deaths(encoded: bytes) -> list[tuple[str, str, int]]:
    return [(d["queue"], d["reason"], d["count"]) for d in headers(encoded)["x-death"]]


def died(*history: tuple[str, str]) -> bytes:
    """A message with that history, the oldest first."""
    encoded = properties()
    for queue, reason in history:
        encoded = record_death(encoded, death(queue, reason))
    return encoded


def test_the_first_death_is_told_in_full() -> None:
    told = headers(record_death(properties(delivery_mode=2), death()))
    (entry,) = told.pop("x-death")
    assert entry.pop("time").timestamp() == 9
    assert entry == {
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "exchange": "x",
        "routing-keys": ["k"],
    }
    assert told == {
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "q",
        "x-first-death-exchange": "x",
    }


def test_another_death_in_the_same_way_is_counted_and_the_latest_comes_first() -> None:
    told = died(("a", "expired"), ("b", "rejected"), ("a", "rejected"), ("a", "expired"))
    assert deaths(told) == [("a", "expired", 2), ("a", "rejected", 1), ("b", "rejected", 1)]
    assert headers(told)["x-first-death-queue"] == "a"
    assert headers(told)["x-first-death-reason"] == "expired"


def test_the_time_of_a_counted_death_is_that_of_the_first() -> None:
    once = record_death(properties(), death(at_s=5))
    twice = record_death(once, death(at_s=8))
    assert headers(twice)["x-death"][0]["time"].timestamp() == 5


def test_the_expiration_goes_and_is_remembered() -> None:
    told = record_death(properties(expiration="60", app_id="a"), death(reason="expired"))
    assert "expiration" not in split_properties(told)
    assert headers(told)["x-death"][0]["original-expiration"] == "60"
    assert read_properties(told).expiration_ms is None


def test_every_other_header_and_property_passes_byte_by_byte() -> None:
    before = {
        "content_type": b"\x02\xff\xfe",  # not even UTF-8
        "headers": join_table(VALUES.items()),
        "delivery_mode": b"\x02",
        "priority": b"\x07",
        "correlation_id": b"\x01c",
        "timestamp": struct.pack(">Q", 1_700_000_000),
        "cluster_id": b"\x00",
    }
    after = split_properties(record_death(join_properties(before), death()))
    fields = dict(split_table(after.pop("headers")))
    assert {name: fields.pop(name) for name in VALUES} == VALUES
    assert all(name.startswith((b"x-death", b"x-first-death")) for name in fields)
    del before["headers"]
    assert after == before


@pytest.mark.parametrize(
    "nonsense",
    [
        b"V",
        long_string("a queue"),
        b"A" + join_array([b"V", b"t\x01"]),
        b"A" + join_array([b"F" + join_table([])]),
        b"A" + join_array([b"F\x00\x00\x00\x02\x05a"]),
        b"A\x00\x00\x00\x01S",
    ],
)
def test_an_x_death_that_no_broker_wrote_does_no_harm(nonsense: bytes) -> None:
    encoded = with_headers({b"x-death": nonsense})
    assert not is_cycle(encoded, "q")
    told = record_death(encoded, death())
    entries = split_array(dict(split_table(split_properties(told)["headers"]))[b"x-death"][1:])
    latest = dict(split_table(entries[0][1:]))
    assert latest[b"queue"] == long_string("q")
    assert latest[b"count"] == b"l" + struct.pack(">q", 1)


@pytest.mark.parametrize(
    ("count", "becomes"),
    [
        (b"l" + struct.pack(">q", 2**63 - 1), 2**63 - 1),
        (b"s\x00\x07", 8),
        (long_string("7"), 1),
        (b"t\x01", 1),
    ],
)
def test_a_count_of_a_clients_own_making_is_no_trouble(count: bytes, becomes: int) -> None:
    entry = [(b"queue", long_string("q")), (b"reason", long_string("rejected")), (b"count", count)]
    history = b"A" + join_array([b"F" + join_table(entry)])
    told = record_death(with_headers({b"x-death": history}), death())
    assert deaths(told) == [("q", "rejected", becomes)]


def test_a_circle_is_a_return_without_a_rejection() -> None:
    assert is_cycle(died(("q", "expired")), "q")
    assert is_cycle(died(("q", "expired"), ("b", "maxlen")), "q")
    assert is_cycle(died(("b", "rejected"), ("q", "maxlen")), "q"), "rejected before the circle"
    assert not is_cycle(died(("q", "expired")), "other")
    assert not is_cycle(died(("q", "rejected")), "q")
    assert not is_cycle(died(("q", "expired"), ("b", "rejected")), "q")
    assert not is_cycle(properties(), "q")


@pytest.mark.explore
@given(st.dictionaries(st.binary(max_size=20), st.sampled_from([*VALUES.values()])))
def test_tables_come_apart_and_together(fields: dict[bytes, bytes]) -> None:
    assert dict(split_table(join_table(fields.items()))) == fields


@pytest.mark.explore
@given(st.data())
def test_what_is_accepted_of_a_publisher_can_be_a_dead_letter(data: st.DataObject) -> None:
    """A damaged property list is refused when it is published, or it does no harm when it dies."""
    table = join_table(VALUES.items())
    encoded = bytearray(join_properties({"headers": table, "expiration": b"\x0260"}))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(encoded) - 1))
        encoded[position] = data.draw(st.integers(0, 255))
    try:
        read_properties(bytes(encoded))
    except AmqpError:
        return
    letter = record_death(bytes(encoded), death())
    assert read_properties(letter).headers["x-death"][0]["queue"] == "q"
    assert is_cycle(letter, "q") is False


def test_a_table_whose_last_value_is_too_long_is_refused() -> None:
    table = bytearray(join_table([(b"a", long_string("bcd"))]))
    table[-4] += 1  # the length of the string
    encoded = join_properties({"headers": bytes(table), "expiration": b"\x0260"})
    with pytest.raises(AmqpError) as refused:
        read_properties(encoded)
    assert refused.value.code == SYNTAX_ERROR


def test_fields_of_clients_are_the_fields_of_their_library() -> None:
    table: dict[str, Any] = {"a": 1, "b": "two", "c": [1, {"d": None}], "e": 2.5}
    encoded = encode.field_table(table)
    assert [name for name, _ in split_table(encoded)] == [b"a", b"b", b"c", b"e"]
    assert join_table(split_table(encoded)) == encoded
