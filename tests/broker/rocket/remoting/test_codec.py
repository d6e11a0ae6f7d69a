"""Frames, byte for byte: both encodings, what real clients write, and what is no frame."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.broker.rocket.remoting.codec import FRAME_BYTES_MAX, FrameError, FrameReader, encode
from shalott.broker.rocket.remoting.command import (
    BINARY,
    JSON,
    Command,
    Language,
    RequestCode,
    answering,
    response,
)

pytestmark = pytest.mark.unit


def frame(serialize: int, header: bytes, body: bytes = b"") -> bytes:
    following = 4 + len(header) + len(body)
    return struct.pack(">iI", following, serialize << 24 | len(header)) + header + body


def decode(data: bytes) -> Command:
    [command] = FrameReader().feed(data)
    return command


# Written by hand, field by field, from the description of the format.
BINARY_BYTES = bytes.fromhex(
    "0000002a 01000024"  # 42 bytes follow; binary, 36 bytes of header
    "0069 03 0001 00000007 00000002"  # code 105, PYTHON, version 1, opaque 7, one-way
    "00000002 6869"  # remark "hi"
    "0000000d 0005 746f706963 00000002 5431"  # topic -> T1
    "6162"  # body "ab"
)
BINARY_COMMAND = Command(
    code=105,
    ext={"topic": "T1"},
    body=b"ab",
    remark="hi",
    opaque=7,
    flag=2,
    language=Language.PYTHON,
    version=1,
    serialize=BINARY,
)


def test_a_binary_frame_is_read_byte_for_byte() -> None:
    assert decode(BINARY_BYTES) == BINARY_COMMAND
    assert BINARY_COMMAND.is_oneway and not BINARY_COMMAND.is_response


def test_a_binary_frame_is_written_byte_for_byte() -> None:
    assert encode(BINARY_COMMAND) == BINARY_BYTES


def test_a_json_frame_is_written_byte_for_byte() -> None:
    command = Command(code=17, ext={"a": "1"}, body=b"xy", remark="no", opaque=5, version=9)
    header = (
        b'{"code":17,"language":"OTHER","version":9,"opaque":5,"flag":0,"remark":"no",'
        b'"extFields":{"a":"1"},"serializeTypeCurrentRPC":"JSON"}'
    )
    assert encode(command) == struct.pack(">iBBBB", len(header) + 6, 0, 0, 0, len(header)) + (
        header + b"xy"
    )


@pytest.mark.parametrize("remark", ["", "r\u00e9"])
@pytest.mark.parametrize("ext", [{}, {"b": "1", "a": '"'}])
def test_fields_of_a_json_header_have_their_order_and_empty_ones_are_left_out(
    remark: str, ext: dict[str, str]
) -> None:
    header: dict[str, object] = {
        "code": 10,
        "language": "OTHER",
        "version": 459,
        "opaque": 3,
        "flag": 1,
    }
    header |= {"remark": remark} if remark else {}
    header |= {"extFields": ext} if ext else {}
    header["serializeTypeCurrentRPC"] = "JSON"
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    command = Command(code=10, ext=ext, remark=remark, opaque=3, flag=1, body=b"x")
    assert encode(command) == frame(JSON, text, b"x")
    assert decode(encode(command)) == command


def test_what_the_cpp_client_writes_becomes_text() -> None:
    header = (
        b'{"code":10,"extFields":{"batch":"0","bornTimestamp":1546300800123,"flag":0,'
        b'"unitMode":false,"ratio":0.5,"gone":null,"topic":"T"},"flag":0,"language":"CPP",'
        b'"opaque":3,"serializeTypeCurrentRPC":"JSON","version":0}\n'
    )
    command = decode(frame(JSON, header, b"body"))
    assert command.language == Language.CPP
    assert command.body == b"body"
    assert command.ext == {
        "batch": "0",
        "bornTimestamp": "1546300800123",
        "flag": "0",
        "unitMode": "false",
        "ratio": "0.5",
        "topic": "T",
    }


def test_what_java_writes_is_read() -> None:
    fields = {"code": 105, "flag": 0, "language": "JAVA", "opaque": 1, "version": 401}
    command = decode(frame(JSON, json.dumps(fields | {"extFields": None, "remark": None}).encode()))
    assert (command.code, command.language, command.ext, command.remark) == (105, 0, {}, "")


def test_a_language_nobody_knew_is_another() -> None:
    command = decode(frame(JSON, b'{"code":1,"language":"COBOL"}'))
    assert command.language == Language.OTHER


def test_an_answer_is_encoded_as_its_request_was() -> None:
    answer = answering(BINARY_COMMAND, response(0, ext={"k": "v"}))
    assert answer.is_response and (answer.opaque, answer.serialize) == (7, BINARY)
    assert decode(encode(answer)) == answer


texts = st.text(max_size=20)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
commands = st.builds(
    Command,
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    ext=st.dictionaries(texts, texts, max_size=5),
    body=st.binary(max_size=100),
    remark=texts,
    opaque=int32,
    flag=int32,
    language=st.sampled_from([int(language) for language in Language]),
    version=st.integers(0, (1 << 15) - 1),
    serialize=st.sampled_from([JSON, BINARY]),
)


@pytest.mark.explore
@given(st.lists(commands, max_size=4), st.integers(1, 50))
def test_commands_survive_the_wire_in_pieces_of_any_size(sent: list[Command], step: int) -> None:
    data = b"".join(encode(command) for command in sent)
    reader = FrameReader()
    read = []
    for at in range(0, len(data), step):
        read += reader.feed(data[at : at + step])
    assert read == sent


@pytest.mark.explore
@given(commands, st.data())
def test_a_part_of_a_frame_is_no_command_yet(command: Command, data: st.DataObject) -> None:
    whole = encode(command)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert FrameReader().feed(whole[:cut]) == []


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waited_for_and_nothing_else_is_raised(data: bytes) -> None:
    try:
        FrameReader().feed(data)
    except FrameError:
        pass


@given(st.sampled_from([JSON, BINARY]), st.binary(max_size=100))
def test_a_header_of_garbage_is_refused(serialize: int, header: bytes) -> None:
    try:
        command = decode(frame(serialize, header))
    except FrameError:
        return
    assert decode(encode(command)) == command  # it was no garbage


@pytest.mark.explore
@given(commands, st.data())
def test_a_damaged_frame_raises_nothing_but_frame_errors(
    command: Command, data: st.DataObject
) -> None:
    damaged = bytearray(encode(command))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        FrameReader().feed(bytes(damaged))
    except FrameError:
        pass


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", 3), id="no room for the second length"),
        pytest.param(struct.pack(">i", -1), id="negative"),
        pytest.param(struct.pack(">i", FRAME_BYTES_MAX - 3), id="too long"),
        pytest.param(struct.pack(">iI", 4, 1), id="header beyond the frame"),
        pytest.param(frame(2, b"{}"), id="unknown encoding"),
        pytest.param(frame(JSON, b"[]"), id="no object"),
        pytest.param(frame(JSON, b'{"opaque":1}'), id="no code"),
        pytest.param(frame(JSON, b'{"code":"10"}'), id="code is text"),
        pytest.param(frame(JSON, b'{"code":true}'), id="code is a boolean"),
        pytest.param(frame(JSON, b'{"code":4294967296}'), id="code is no int32"),
        pytest.param(frame(JSON, b'{"code":1,"extFields":[1]}'), id="fields are a list"),
        pytest.param(frame(JSON, b'{"code":1,"remark":"\xff"}'), id="no UTF-8"),
        pytest.param(frame(JSON, b"[" * 100_000), id="deep"),
        pytest.param(frame(BINARY, BINARY_BYTES[8:-3]), id="binary, cut"),
        pytest.param(frame(BINARY, BINARY_BYTES[8:-2] + b"x"), id="binary, more than its fields"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader().feed(data)


def test_the_largest_frame_passes_and_the_next_does_not() -> None:
    command = Command(code=RequestCode.SEND_MESSAGE, serialize=BINARY)
    room = FRAME_BYTES_MAX - len(encode(command))
    command.body = bytes(room)
    assert len(decode(encode(command)).body) == room
    command.body = bytes(room + 1)
    with pytest.raises(FrameError):
        encode(command)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(Command(code=1 << 15, serialize=BINARY), id="code of a pop request"),
        pytest.param(Command(code=1, ext={"k" * (1 << 15): ""}, serialize=BINARY), id="long key"),
        pytest.param(Command(code=1, remark="\ud800", serialize=BINARY), id="lone surrogate"),
        pytest.param(Command(code=1, remark="\ud800"), id="lone surrogate in JSON"),
    ],
)
def test_what_fits_in_no_header_is_refused(command: Command) -> None:
    with pytest.raises(FrameError):
        encode(command)
