"""SplitMix64 streams: the published sequence, independence, and the range of draws."""

from __future__ import annotations

import pytest

from shalott.core.draws import draw_many
from shalott.core.rng import MASK, Stream, draw_below, draw_float, draw_u64, mix64, stream_key

pytestmark = pytest.mark.unit


def test_matches_the_published_splitmix64_sequence() -> None:
    """The reference C generator seeded with 1234567 gives these first numbers."""
    state = 1234567
    seen = []
    for _ in range(3):
        state = (state + 0x9E3779B97F4A7C15) & ((1 << 64) - 1)
        seen.append(mix64(state))
    assert seen == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_streams_are_independent_and_repeatable() -> None:
    one, again, other = Stream(7, "queue"), Stream(7, "queue"), Stream(7, "nemesis")
    first = [one.next_u64() for _ in range(8)]
    assert first == [again.next_u64() for _ in range(8)]
    assert first != [other.next_u64() for _ in range(8)]


@pytest.mark.parametrize("key", [0, 1, stream_key(5, "link", "n1->n2", "loss"), MASK])
@pytest.mark.parametrize("positions", [range(128), range(128, 130), range(16 * 128, 16 * 256, 16)])
def test_many_at_once_are_the_same_numbers(key: int, positions: range) -> None:
    assert draw_many(key, positions) == [draw_u64(key, position) for position in positions]


def test_draws_stay_in_range_and_are_spread() -> None:
    key = stream_key(3, "spread")
    floats = [draw_float(key, n) for n in range(4000)]
    assert min(floats) >= 0 and max(floats) < 1
    assert 0.48 < sum(floats) / len(floats) < 0.52
    counts = [0] * 5
    for n in range(5000):
        counts[draw_below(key, n, 5)] += 1
    assert min(counts) > 850


def test_shuffle_permutes_and_sample_is_distinct() -> None:
    stream = Stream(1, "shuffle")
    items = list(range(20))
    assert sorted(stream.shuffled(items)) == items
    assert len(set(stream.sample(items, 7))) == 7


def test_getrandbits_has_the_asked_width() -> None:
    stream = Stream(1, "bits")
    assert all(stream.getrandbits(63) < 1 << 63 for _ in range(200))
    assert any(stream.getrandbits(130) >> 128 for _ in range(50))
