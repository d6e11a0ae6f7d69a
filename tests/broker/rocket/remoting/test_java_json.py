"""JSON with bare integer keys is read as if they were quoted; anything else as JSON's rules have
it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.broker.rocket.controller.messages import ElectMasterBody, from_body
from shalott.broker.rocket.processor.topics import DelayTable, OffsetTable
from shalott.broker.rocket.remoting.java_json import decode_java_json, with_quoted_keys
from shalott.broker.rocket.remoting.route_data import ClusterInfo, decode_body

pytestmark = pytest.mark.unit

# Strings that look like keys, braces and quotation marks, and their escapes.
TRICKY = st.text(st.sampled_from('{}[],:"\\0123456789- \n\té\u2028ab'), max_size=12) | st.text()
KEYS = st.integers(-(10**20), 10**20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TRICKY,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TRICKY, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=25,
)
SPACES = st.sampled_from(("", " ", "\n", "\t \r"))


def as_java(value: object, space: str, *, bare: bool) -> str:
    """JSON with integer keys bare, or quoted: the reference."""
    match value:
        case dict():
            pairs = (
                f"{space}{_key(key, bare=bare)}{space}:{space}{as_java(each, space, bare=bare)}"
                for key, each in value.items()
            )
            return "{" + f"{space},".join(pairs) + space + "}"
        case list():
            return "[" + ",".join(as_java(each, space, bare=bare) for each in value) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _key(key: object, *, bare: bool) -> str:
    is_number = isinstance(key, int)
    return str(key) if is_number and bare else json.dumps(str(key), ensure_ascii=False)


@given(VALUES, SPACES)
def test_bare_keys_are_read_as_quoted_ones(value: object, space: str) -> None:
    bare = as_java(value, space, bare=True).encode("utf-8", "surrogatepass")
    quoted = as_java(value, space, bare=False).encode("utf-8", "surrogatepass")
    assert with_quoted_keys(bare) == quoted
    try:
        expected = msgspec.json.decode(quoted)
    except ValueError:  # a surrogate alone is no text
        with pytest.raises(msgspec.DecodeError):
            decode_java_json(bare, Any)  # type: ignore[arg-type]
    else:
        assert decode_java_json(bare, Any) == expected  # type: ignore[arg-type]


@given(st.text(st.sampled_from('{}[],:"\\019-. \nae'), max_size=30))
def test_nothing_else_is_let_through(text: str) -> None:
    """What is read has an equivalent that a strict reader takes; and what a strict reader takes is
    read as that reads it."""
    data = text.encode()
    try:
        strict = msgspec.json.decode(data)
    except msgspec.DecodeError:
        try:
            tolerant = decode_java_json(data, Any)  # type: ignore[arg-type]
        except msgspec.DecodeError:
            return
        assert json.loads(with_quoted_keys(data)) == tolerant
        assert ":" in text and "{" in text
    else:
        assert decode_java_json(data, Any) == strict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        *("{a:1}", "{01:1}", "{1.5:1}", "{+1:1}", "{-:1}", "{1:1,}", "{1 2:3}", "{:1}", "[1:2]"),
        *(
            "{'1':2}",
            "{1:2",
            '{"a":1 2:3}',
            "{1:2}{3:4}",
            '{"1:2}',
            '{"a\\',
            "{{1:2}:3}",
            "[1,2:3]",
        ),
        *("{1:NaN}", "{1:.5}", "{0x1:2}"),
    ],
)
def test_it_is_strict_otherwise(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_java_json(text.encode(), Any)  # type: ignore[arg-type]


def test_text_that_is_none_is_malformed() -> None:
    for data in (b'{"a":"\xff"}', b'{1:"\xff"}'):
        with pytest.raises(msgspec.DecodeError):
            decode_java_json(data, Any)  # type: ignore[arg-type]


def test_the_wrong_content_is_told_as_such() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`"):
        decode_java_json(b'{"offsetTable":{1:"a"}}', DelayTable)


def test_a_long_string_without_an_end_is_looked_at_once() -> None:
    """Or this takes minutes."""
    with pytest.raises(msgspec.DecodeError):
        decode_java_json(b'{1:"' + b'\\"' * 200_000, Any)  # type: ignore[arg-type]


def test_tables_and_answers_of_originals_are_read() -> None:
    """As they were seen on the wire and in files."""
    offsets = b'{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":7},"groupTopicMap":{},'
    offsets += b'"offsetTable":{"t@{1:g}":{0:3,1:0}}}'
    assert decode_java_json(offsets, OffsetTable).offset_table == {"t@{1:g}": {0: 3, 1: 0}}
    elected = b'{"brokerMemberGroup":{"brokerAddrs":{1:"a:1",2:"b:2"},"brokerName":"b","cluster":'
    elected += b'"c"},"syncStateSet":[1]}'
    group = from_body(elected, ElectMasterBody).broker_member_group
    assert group is not None and group.broker_addrs == {1: "a:1", 2: "b:2"}
    cluster = b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c",'
    cluster += b'"enableActingMaster":false}},"clusterAddrTable":{"c":["b"]}}'
    assert decode_body(cluster, ClusterInfo).broker_addr_table["b"].broker_addrs == {0: "a:1"}
