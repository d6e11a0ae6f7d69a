"""The journal's file format: torn tails are cut off, corruption is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.broker.base.batches import HEADER, Scan, Scanner, encode_batch, read_batches, scan
from shalott.broker.base.errors import StorageError

pytestmark = pytest.mark.unit

BATCHES = [[b"one", b"two"], [b""], [b"three" * 50, b"four"]]


def file_of(batches: list[list[bytes]]) -> bytes:
    return b"".join(encode_batch(ordinal, records) for ordinal, records in enumerate(batches))


def test_an_empty_file_holds_nothing() -> None:
    assert scan(b"") == Scan([], 0, 0)


@pytest.mark.explore
@given(st.lists(st.lists(st.binary(max_size=200), min_size=1, max_size=5), max_size=6))
def test_what_was_encoded_is_scanned(batches: list[list[bytes]]) -> None:
    data = file_of(batches)
    assert scan(data) == Scan([r for batch in batches for r in batch], len(batches), len(data))


@given(st.lists(st.integers(1, 60), max_size=20))
def test_a_file_may_come_in_any_pieces(sizes: list[int]) -> None:
    whole = file_of(BATCHES)
    data, offset = whole + b"torn", 0
    found: list[tuple[list[bytes], list[bytes]]] = []
    scanner = Scanner(lambda records, start, end: found.append((records, read(start, end))))

    def read(start: int, end: int) -> list[bytes]:
        return read_batches(data[start:end])

    for size in [*sizes, len(data)]:
        scanner.feed(data[offset : offset + size])
        offset += size
    scanner.finish()
    assert found == [(batch, batch) for batch in BATCHES]
    assert (scanner.batches, scanner.size) == (len(BATCHES), len(whole))
    assert scanner.last == encode_batch(len(BATCHES) - 1, BATCHES[-1])


def test_truncation_at_every_byte_leaves_the_whole_batches_before_it() -> None:
    data = file_of(BATCHES)
    ends = [len(file_of(BATCHES[:count])) for count in range(len(BATCHES) + 1)]
    for size in range(len(data) + 1):
        whole = sum(end <= size for end in ends) - 1
        expected = [record for batch in BATCHES[:whole] for record in batch]
        assert scan(data[:size]) == Scan(expected, whole, ends[whole])


@given(st.data())
def test_damage_in_the_last_batch_cuts_it_off(data: st.DataObject) -> None:
    content = bytearray(file_of(BATCHES))
    start = len(file_of(BATCHES[:-1]))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(start, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    if bytes(content) != file_of(BATCHES):  # two flips of one byte may undo each other
        assert scan(bytes(content)) == Scan([b"one", b"two", b""], 2, start)


def test_damage_of_any_byte_before_the_last_batch_is_corruption() -> None:
    good = file_of(BATCHES)
    for offset in range(len(file_of(BATCHES[:-1]))):
        bad = bytearray(good)
        bad[offset] ^= 0x10
        with pytest.raises(StorageError, match="is intact"):
            scan(bytes(bad))


def test_a_lost_batch_in_the_middle_is_corruption() -> None:
    with pytest.raises(StorageError, match="batch 1 is unreadable"):
        scan(encode_batch(0, [b"a"]) + encode_batch(2, [b"c"]))


def test_a_tail_of_zeros_is_torn() -> None:
    data = file_of(BATCHES)
    assert scan(data + bytes(4096)).size == len(data)
    assert scan(bytes(4096)) == Scan([], 0, 0)


def test_a_torn_batch_that_carries_an_older_batch_in_its_body_is_torn() -> None:
    """A message may hold anything, also a piece of a journal: older ordinals prove nothing."""
    inner = encode_batch(0, [b"x"])
    data = encode_batch(0, [b"first"]) + encode_batch(1, [inner, bytes(1000)])
    torn = data[: len(data) - 500]
    assert scan(torn).records == [b"first"]


def test_a_header_that_promises_too_much_is_torn() -> None:
    data = bytearray(encode_batch(0, [b"x"]))
    data[HEADER.size - 8 : HEADER.size - 4] = b"\xff\xff\xff\xff"
    assert scan(bytes(data)) == Scan([], 0, 0)
