"""Random small queues with drains, by `check` and by all orders in which each drain takes its
messages in turn."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.linearizability.checking import check
from shalott.checkers.models import make_model
from tests.checkers.oracle import is_linearizable
from tests.checkers.public.test_public_histories import InOrder, taken_apart

pytestmark = pytest.mark.unit

MODELS = ("fifo-queue", "unordered-queue", "stack")


def drained(rng: random.Random, gives: str) -> list[Row]:
    """A few enqueues and drains of two or three processes, which overlap as they like."""
    values = list(range(1, rng.randint(2, 5)))
    times = iter(rng.sample(range(1000), 40))
    out = values[:]
    rng.shuffle(out)
    if rng.random() < 0.5:
        out.sort()
    if rng.random() < 0.3:
        out.insert(rng.randrange(len(out) + 1), rng.choice([*values, 99]))  # twice, or from nowhere
    rows = []
    for value in values:
        begin, end = sorted((next(times) // 2, next(times) // 2))
        rows.append(Row(value, gives, value, None, 2 * begin, 2 * end + 1))
    for process in range(10, 10 + rng.randint(1, 3)):
        begin, end = sorted((300 + next(times) // 2, 300 + next(times) // 2))
        taken = tuple(out.pop(0) for _ in range(min(len(out), rng.randint(0, 3))))
        kind, result = "ok", taken
        if rng.random() < 0.15:
            kind, result = "info", None
        ret = None if kind == "info" else 2 * end + 1
        rows.append(Row(process, "drain", None, result, 2 * begin, ret, kind))
    calls = [row.call for row in rows] + [row.ret for row in rows if row.ret is not None]
    return rows if len(set(calls)) == len(calls) else drained(rng, gives)


def compared(seed: int, model_name: str) -> tuple[bool | str, bool]:
    rng = random.Random(seed)
    model = make_model(model_name)
    rows = drained(rng, "push" if model_name == "stack" else "enqueue")
    return check(from_rows(rows), model).valid, is_linearizable(
        list(taken_apart(rows)), InOrder(model)
    )


@pytest.mark.parametrize("model_name", MODELS)
def test_drains_are_decided_as_by_all_orders(model_name: str) -> None:
    seen = Counter(compared(seed, model_name) for seed in range(250))
    assert {key for key in seen if key[0] != "unknown" and key[0] != key[1]} == set()
    assert seen[True, True] > 20 and seen[False, False] > 20
    assert sum(count for (said, _), count in seen.items() if said == "unknown") < 3
