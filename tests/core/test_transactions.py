"""What the generators of transactions draw, and that every key is read at the end."""

from __future__ import annotations

from collections import Counter

import pytest

from shalott.core.generator import Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import OpType
from shalott.core.transactions import (
    RETRY_PAUSE_NS,
    Mop,
    TransactionMix,
    mops_of,
    read_all,
    transaction_mix,
)

pytestmark = pytest.mark.unit


def mix(
    *, keys: int = 4, longest: int = 4, writes_a_key: int = 5, uniform: bool = False, seed: int = 1
) -> TransactionMix:
    return transaction_mix(
        "append",
        keys=keys,
        shortest=2,
        longest=longest,
        writes_a_key=writes_a_key,
        uniform=uniform,
        seed=seed,
    )


def drawn(generator: Generator, count: int) -> list[tuple[Mop, ...]]:
    found = []
    for number in range(count):
        answer, generator = generator.next(Context(number, 0, "n1"))
        assert isinstance(answer, Scheduled) and answer.at_ns == number
        found.append(mops_of(answer.invocation))
    return found


def test_no_value_is_written_twice_and_a_key_makes_room_when_it_was_written_so_often() -> None:
    mops = [mop for each in drawn(mix(), 500) for mop in each]
    written = [(key, value) for f, key, value in mops if f == "append"]
    assert len(set(written)) == len(written)
    assert {value for _, value in written} == {1, 2, 3, 4, 5}
    often = Counter(key for key, _ in written)
    assert sum(count < 5 for count in often.values()) <= 4  # those in use now
    assert sorted({key for _, key, _ in mops}) == list(range(1 + max(often)))


def test_lengths_are_between_the_limits_and_half_of_it_reads() -> None:
    transactions = drawn(mix(longest=6), 600)
    assert {len(each) for each in transactions} == {2, 3, 4, 5, 6}
    reads = [f for each in transactions for f, _, _ in each if f == "r"]
    assert len(reads) / sum(map(len, transactions)) == pytest.approx(0.5, abs=0.05)


def test_the_last_key_in_use_is_twice_as_likely_as_the_one_before() -> None:
    keys = Counter(key for each in drawn(mix(writes_a_key=10_000), 2000) for _, key, _ in each)
    for key in range(3):
        assert keys[key + 1] / keys[key] == pytest.approx(2, rel=0.2)
    even = Counter(
        key for each in drawn(mix(writes_a_key=10_000, uniform=True), 2000) for _, key, _ in each
    )
    assert max(even.values()) / min(even.values()) < 1.2


def test_a_seed_is_one_sequence_and_another_is_another() -> None:
    assert drawn(mix(), 50) == drawn(mix(), 50)
    assert drawn(mix(), 50) != drawn(mix(seed=2), 50)


def test_every_key_is_read_at_every_node_and_again_where_that_failed() -> None:
    generator: Generator = read_all(("n1", "n2"), 7, 3)
    read: dict[str, list[int]] = {"n1": [], "n2": []}
    for number, node in enumerate(("n1", "n1", "n1", "n2", "n2", "n2")):
        answer, generator = generator.next(Context(number, 0, node))
        assert isinstance(answer, Scheduled)
        kind: OpType = "fail" if number == 2 else "ok"
        if kind == "ok":
            read[node] += [key for _, key, _ in mops_of(answer.invocation)]
        generator = generator.update(Completed(number, 0, node, answer.invocation, kind))
    assert read == {"n1": list(range(6)), "n2": list(range(7))}
    waits, _ = generator.next(Context(10, 0, "n1"))
    assert waits == Pending(2 + RETRY_PAUSE_NS)
    assert generator.next(Context(10, 0, "n2"))[0] is None
    assert generator.next(Context(10, 0, "n2", in_flight=1))[0] == Pending()
    again, generator = generator.next(Context(2 + RETRY_PAUSE_NS, 0, "n1"))
    assert isinstance(again, Scheduled)
    assert [key for _, key, _ in mops_of(again.invocation)] == [6]
    assert generator.next(Context(2 * RETRY_PAUSE_NS, 0, "n1"))[0] is None
