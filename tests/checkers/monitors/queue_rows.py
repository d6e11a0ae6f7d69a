"""Random histories of queues with distinct values, and what tests do with their rows.

``random_history`` (tests/checkers) starts from a queue that works, so that most of what is wrong
with its mutants is a value from nowhere. Here the results are drawn with hardly a look at the
times, so that wrong order, loss and emptiness are as frequent as correct histories.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from shalott.checkers.history.concurrent import Row
from tests.checkers.random_histories import mutated, random_history


def queue_history(model: str, rng: random.Random, *, operations: int = 8) -> list[Row]:
    """Good, mutated or drawn, with crashed operations and empty dequeues; times are ranks."""
    count, processes = rng.randrange(1, operations + 1), rng.randrange(1, 5)
    kind = rng.randrange(5)
    if kind < 3:
        return ranked(drawn(rng, count, processes))
    rows = random_history(model, rng, operations=count, processes=processes, distinct=True)
    return ranked(mutated(rows, rng) if kind == 3 else rows)


def drawn(rng: random.Random, count: int, processes: int) -> list[Row]:
    """Calls and returns at random; what dequeues return is a nearly sorted choice of the values."""
    clock, crash = itertools.count(), rng.choice([0.0, 0.1, 0.3])
    early, hurry = rng.random(), rng.random()  # enqueues come first, intervals are short
    names = rng.sample(range(100), count)
    rows: list[Row] = []
    open_rows: dict[int, int] = {}  # by process
    while len(rows) < count or open_rows:
        in_hurry = open_rows and rng.random() < hurry
        process = rng.choice(list(open_rows)) if in_hurry else rng.randrange(processes)
        if process in open_rows:
            at = open_rows.pop(process)
            ret = None if rng.random() < crash else next(clock)
            rows[at] = rows[at]._replace(ret=ret, type="info" if ret is None else "ok")
        elif len(rows) < count:
            leaning = 0.5 + early * (0.5 - len(rows) / count)
            f = "enqueue" if rng.random() < leaning else "dequeue"
            argument = names[len(rows)] if f == "enqueue" else None
            open_rows[process] = len(rows)
            rows.append(Row(process, f, argument, None, next(clock), None))
    return _with_results(rows, rng)


def _with_results(rows: list[Row], rng: random.Random) -> list[Row]:
    values = [row.argument for row in rows if row.f == "enqueue"]
    disorder, empty = rng.choice([0.0, 1.5, 3.0]), rng.choice([0.0, 0.0, 0.2])
    values = [
        value
        for _, value in sorted((at + disorder * rng.random(), v) for at, v in enumerate(values))
        if rng.random() > 0.1
    ]
    for at, row in enumerate(rows):
        if row.f == "dequeue" and row.type == "ok" and values and rng.random() > empty:
            rows[at] = row._replace(result=values.pop(0))
    return rows


def ranked(rows: Sequence[Row]) -> list[Row]:
    """In the order of the calls, with ranks for times."""
    times = [row.call for row in rows] + [row.ret for row in rows if row.ret is not None]
    rank = {at: number for number, at in enumerate(sorted(times))}
    return sorted(
        (
            row._replace(call=rank[row.call], ret=None if row.ret is None else rank[row.ret])
            for row in rows
        ),
        key=lambda row: row.call,
    )


def prefix(rows: Sequence[Row], rank: int) -> list[Row]:
    """What is known after the event ``rank``. A failure that is not known yet did not happen."""
    return [
        row if row.ret is None or row.ret <= rank else row._replace(ret=None, type="info")
        for row in rows
        if row.call <= rank and not (row.type == "fail" and (row.ret or 0) > rank)
    ]


def about(rows: Sequence[Row], values: Sequence[object]) -> list[Row]:
    """The operations on some of the values."""
    return [
        row
        for row in rows
        if (row.f == "enqueue" and row.argument in values)
        or (row.f == "dequeue" and row.type == "ok" and row.result in values)
    ]
