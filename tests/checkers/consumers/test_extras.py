"""Where a message of a queue was published: the look-up against a plain search."""

from __future__ import annotations

import numpy as np
import pytest

from shalott.checkers.consumers.extras import places
from shalott.core.rng import Stream

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("number", range(60))
def test_each_pair_is_found_where_it_came_first(number: int) -> None:
    rng = Stream(15, f"places-{number}")
    count, queues = rng.below(12), 1 + rng.below(4)
    spread = rng.choice([3, 20, 10**12])
    pairs = [(rng.below(queues), rng.below(spread)) for _ in range(count)]
    if rng.below(2):
        pairs.sort(key=lambda pair: pair[1])
    queue = np.array([pair[0] for pair in pairs], dtype=np.int64)
    value = np.array([pair[1] for pair in pairs], dtype=np.int64)
    wanted = [(rng.below(queues + 2) - 1, rng.below(spread)) for _ in range(10)]
    wanted += [pair for pair in pairs if rng.below(2)]
    look_up = places(queue, value, queues)
    found = look_up(
        np.array([pair[0] for pair in wanted], dtype=np.int64),
        np.array([pair[1] for pair in wanted], dtype=np.int64),
    )
    assert found.tolist() == [pairs.index(pair) if pair in pairs else -1 for pair in wanted]
