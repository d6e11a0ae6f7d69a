"""Bodies carry their value, and damage is seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.core.message_body import SMALLEST_BYTES, decode_body, encode_body

pytestmark = pytest.mark.unit

values = st.integers(min_value=0, max_value=2**63 - 1)
sizes = st.integers(min_value=SMALLEST_BYTES, max_value=300)


@given(values, sizes)
def test_what_goes_in_comes_out_in_the_asked_size(value: int, size_bytes: int) -> None:
    body = encode_body(value, size_bytes)
    assert len(body) == size_bytes
    assert decode_body(body) == value


@given(values, sizes, st.data())
def test_any_flipped_bit_is_seen(value: int, size_bytes: int, data: st.DataObject) -> None:
    body = bytearray(encode_body(value, size_bytes))
    position = data.draw(st.integers(0, size_bytes - 1))
    body[position] ^= 1 << data.draw(st.integers(0, 7))
    assert decode_body(bytes(body)) is None


@given(values, sizes, st.data())
def test_a_cut_body_is_seen(value: int, size_bytes: int, data: st.DataObject) -> None:
    body = encode_body(value, size_bytes)
    cut = body[: data.draw(st.integers(0, size_bytes - 1))]
    assert decode_body(cut) is None


def test_two_messages_spliced_are_seen() -> None:
    one, two = encode_body(1, 64), encode_body(2, 64)
    assert decode_body(one[:32] + two[32:]) is None
