"""Frames and fields: everything that pamqp writes is read, nothing that is cut short is."""

from __future__ import annotations

import asyncio
import datetime
import decimal
from typing import Any

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, encode, header

from shalott.broker.rabbit.amqp import wire
from shalott.broker.rabbit.amqp.errors import NAMES, AmqpError
from shalott.broker.rabbit.amqp.properties import Properties, join_properties, read_properties
from shalott.broker.rabbit.amqp.tables import join_table, read_table
from shalott.broker.rabbit.amqp.wire import Assembler
from shalott.broker.rabbit.management.messages import view_properties

pytestmark = pytest.mark.unit


def payload(method: wire.Method) -> bytes:
    return pamqp.frame.marshal(method, 1)[7:-1]


METHODS = [
    commands.Queue.Declare(queue="q", durable=True, arguments={"x": 1, "y": {"z": [True, None]}}),
    commands.Exchange.Declare(exchange="x", exchange_type="topic", internal=True, arguments={}),
    commands.Basic.Publish(exchange="x", routing_key="k", mandatory=True),
    commands.Basic.Consume(
        queue="q", consumer_tag="t", exclusive=True, arguments={"x-priority": 3}
    ),
    commands.Basic.Nack(delivery_tag=7, multiple=True, requeue=False),
    commands.Connection.StartOk({"a": "b"}, "PLAIN", "\0guest\0guest"),
    commands.Connection.TuneOk(1, 2, 3),
    commands.Channel.Open(),
    commands.Confirm.Select(),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_methods_are_read_as_written(method: wire.Method) -> None:
    decoded = wire.decode_method(payload(method))
    assert type(decoded) is type(method)
    assert dict(decoded) == dict(method)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_methods_cut_short_are_refused(method: wire.Method) -> None:
    whole = payload(method)
    for length in range(len(whole)):
        with pytest.raises(AmqpError) as caught:
            wire.decode_method(whole[:length])
        assert caught.value.code == (501 if length < 4 else 502)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_method_or_an_amqp_error(data: bytes) -> None:
    for start in (b"", payload(METHODS[0])[:4], payload(METHODS[3])[:4]):
        try:
            wire.decode_method(start + data)
        except AmqpError as error:
            assert error.code in NAMES


@given(st.binary(max_size=200))
def test_any_bytes_are_properties_or_an_amqp_error(data: bytes) -> None:
    try:
        read_properties(data)
    except AmqpError as error:
        assert error.code in (406, 502)


def test_own_encodings_are_what_pamqp_reads() -> None:
    def decoded(data: bytes) -> Any:
        _, _, frame = pamqp.frame.unmarshal(wire.encode_frame(wire.METHOD, 1, data))
        return frame

    assert dict(decoded(wire.encode_declare_ok("q", 2, 3))) == {
        "queue": "q",
        "message_count": 2,
        "consumer_count": 3,
    }
    assert dict(decoded(wire.encode_deliver("t", 1 << 40, True, "x", "k"))) == {
        "consumer_tag": "t",
        "delivery_tag": 1 << 40,
        "redelivered": True,
        "exchange": "x",
        "routing_key": "k",
    }
    assert dict(decoded(wire.encode_get_ok(5, False, "x", "k", 9))) == {
        "delivery_tag": 5,
        "redelivered": False,
        "exchange": "x",
        "routing_key": "k",
        "message_count": 9,
    }
    assert dict(decoded(wire.encode_return(312, "NO_ROUTE", "x", "k"))) == {
        "reply_code": 312,
        "reply_text": "NO_ROUTE",
        "exchange": "x",
        "routing_key": "k",
    }


def test_names_may_hold_any_text() -> None:
    data = wire.encode_declare_ok("blanks & ümlauts!", 0, 0)
    assert dict(wire.decode_method(data))["queue"] == "blanks & ümlauts!"


def read(data: bytes, frame_max: int = 4096) -> wire.Frame:
    async def run() -> wire.Frame:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await wire.FrameReader(reader, frame_max).next()

    return asyncio.run(run())


def test_a_client_need_not_count_the_whole_frame() -> None:
    assert len(read(wire.encode_frame(wire.BODY, 1, bytes(4096))).payload) == 4096
    with pytest.raises(AmqpError, match="more than frame_max"):
        read(wire.encode_frame(wire.BODY, 1, bytes(4097)))


def test_end_of_stream_is_no_frame() -> None:
    for data in (b"", b"\x01\0", wire.encode_frame(wire.BODY, 1, b"x")[:-1]):
        with pytest.raises(asyncio.IncompleteReadError):
            read(data)


@given(st.binary(max_size=300), st.integers(9, 64))
def test_content_survives_being_cut_into_frames(body: bytes, frame_max: int) -> None:
    properties = commands.Basic.Properties(delivery_mode=2).marshal()
    assembler = Assembler()
    publish = wire.Frame(wire.METHOD, 1, payload(commands.Basic.Publish()))
    command = assembler.feed(publish)
    for data in wire.content_frames(1, properties, body, frame_max):
        assert command is None
        assert data[0] == wire.HEADER or len(data) <= frame_max
        command = assembler.feed(wire.Frame(data[0], 1, data[7:-1]))
    assert command is not None
    assert (command.properties, command.body) == (properties, body)


# -- properties ------------------------------------------------------------------------------------


def encoded(**values: Any) -> bytes:
    return pamqp.frame.marshal(
        header.ContentHeader(properties=commands.Basic.Properties(**values)), 1
    )[7 + 12 : -1]


def test_the_properties_that_matter() -> None:
    data = encoded(
        content_type="text/plain",
        content_encoding="x",
        headers={"a": 1},
        delivery_mode=2,
        priority=5,
        correlation_id="c",
        reply_to="r",
        expiration="1500",
        message_id="m",
        timestamp=datetime.datetime.fromtimestamp(1700000000, tz=datetime.UTC),
        user_id="guest",
        app_id="a",
    )
    assert read_properties(data) == Properties(
        persistent=True,
        priority=5,
        expiration_ms=1500,
        headers={"a": 1},
        user_id="guest",
        reply_to="r",
    )
    assert read_properties(encoded()) == Properties()
    assert read_properties(encoded(delivery_mode=1)).persistent is False


@pytest.mark.parametrize("text", ["-1", "abc", "1.5", "", " 1", "9" * 40])
def test_expiration_that_is_no_number_is_406(text: str) -> None:
    data = b"\x01\x00" + bytes([len(text)]) + text.encode()
    with pytest.raises(AmqpError, match="406 .*invalid expiration"):
        read_properties(data)


def test_properties_cut_short_are_502() -> None:
    data = encoded(content_type="text/plain", headers={"a": "b"}, priority=1, app_id="x")
    for length in range(len(data)):
        with pytest.raises(AmqpError, match="502"):
            read_properties(data[:length])


# -- plain values ----------------------------------------------------------------------------------


def test_tables_are_reduced_to_plain_values() -> None:
    when = datetime.datetime.fromtimestamp(1700000000, tz=datetime.UTC)
    table = {
        "d": decimal.Decimal("1.5"),
        "t": when,
        "b": bytearray(b"x"),
        "n": {"l": [when, None, True]},
    }
    assert read_table(encode.field_table(table)) == {
        "d": "1.5",
        "t": 1700000000,
        "b": b"x",
        "n": {"l": [1700000000, None, True]},
    }


def test_moments_may_be_beyond_any_calendar() -> None:
    far = b"T" + b"\xff" * 8
    table = join_table([(b"t", far)])
    assert read_table(table) == {"t": 2**64 - 1}
    listed = join_properties({"headers": table, "timestamp": far[1:]})
    assert read_properties(listed).headers == {"t": 2**64 - 1}
    assert view_properties(listed) == {"headers": {"t": 2**64 - 1}, "timestamp": 2**64 - 1}


def test_a_message_with_binary_properties_can_be_shown() -> None:
    listed = join_properties({"correlation_id": b"\x02\xfda", "priority": b"\7"})
    assert view_properties(listed) == {"correlation_id": "\ufffda", "priority": 7}
