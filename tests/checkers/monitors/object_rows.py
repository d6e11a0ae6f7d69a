"""Random histories of any object, as somebody with a bad clock would record them.

``random_history`` (tests/checkers) starts from an object that works, so that most of what is wrong
with its mutants is a value from nowhere. Here the object works as well, but does things a little
before or after the interval in which they were asked for: stale reads, lost elements, two holders.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from shalott.checkers.history.concurrent import Row
from tests.checkers.monitors.queue_rows import ranked
from tests.checkers.random_histories import Blocked, Refused, Thing, mutated, random_history


def object_history(
    model: str, thing: Callable[[random.Random], Thing], rng: random.Random, *, operations: int = 8
) -> list[Row]:
    """Good, mutated or drawn, with crashed operations; times are ranks."""
    count, processes = rng.randrange(1, operations + 1), rng.randrange(1, 5)
    kind = rng.randrange(5)
    if kind < 3:
        return drawn(thing(rng), rng, count, processes)
    distinct = rng.random() < 0.8
    rows = random_history(model, rng, operations=count, processes=processes, distinct=distinct)
    return ranked(mutated(rows, rng) if kind == 3 else rows)


def drawn(thing: Thing, rng: random.Random, count: int, processes: int) -> list[Row]:
    """The object does things in the order of moments that may lie outside of the intervals."""
    asked = _intervals(rng, count, processes)
    wander = rng.choice([0.0, 1.0, 2.0, 5.0])
    moments = [
        row.call + rng.random() * ((row.ret or 2 * count) - row.call) + rng.gauss(0, wander)
        for row in asked
    ]
    rows = []
    for at in sorted(range(len(asked)), key=lambda at: moments[at]):
        f, argument = thing.draw(rng, asked[at].process)
        row = asked[at]._replace(f=f, argument=argument)
        try:
            if row.ret is not None or rng.random() < 0.6:
                result = thing.do(f, argument, row.process)
                row = row if row.ret is None else row._replace(result=result)
        except Blocked:
            continue
        except Refused:
            row = row if row.ret is None else row._replace(type="fail")
        rows.append(row)
    return ranked(rows)


def _intervals(rng: random.Random, count: int, processes: int) -> list[Row]:
    """Who calls and returns when. A process that crashed is another one afterwards."""
    clock, crash = itertools.count(), rng.choice([0.0, 0.1, 0.3])
    hurry = rng.random()
    rows: list[Row] = []
    open_rows: dict[int, int] = {}  # by process
    names = list(range(processes))
    while len(rows) < count or open_rows:
        in_hurry = open_rows and rng.random() < hurry
        process = rng.choice(list(open_rows)) if in_hurry else rng.choice(names)
        if process in open_rows:
            at = open_rows.pop(process)
            if rng.random() < crash:
                names[names.index(process)] = process + processes
            else:
                rows[at] = rows[at]._replace(ret=next(clock), type="ok")
        elif len(rows) < count:
            open_rows[process] = len(rows)
            rows.append(Row(process, "", None, None, next(clock), None, "info"))
    return rows
