"""A monitor against the definition, and against properties that hold of any history."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from shalott.checkers.engine import new_budget
from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.models import make_model
from shalott.checkers.monitors.monitor import (
    Monitor,
    MonitorAnswer,
    cut,
    shortest_prefix,
)
from tests.checkers.monitors.object_rows import object_history
from tests.checkers.monitors.queue_rows import prefix, ranked
from tests.checkers.oracle import is_linearizable
from tests.checkers.random_histories import Thing, Values

HISTORIES: Final = int(os.environ.get("SHALOTT_ORACLE_HISTORIES", "300"))
PREFIXES: Final = 5000  # what is known of a monitor after so many is known
TIMEOUT_S: Final = 0 if HISTORIES > 10_000 else 300


@dataclass(frozen=True)
class Subject:
    """A monitor, the model that it decides, and an object that behaves like it."""

    monitor: Monitor
    model: str  # as make_model takes it
    history: str  # as random_history takes it
    thing: Callable[[random.Random], Thing]
    change: Callable[[list[Row], random.Random], list[Row]] = lambda rows, _: rows

    def rows(self, rng: random.Random, operations: int = 8) -> list[Row]:
        rows = object_history(self.history, self.thing, rng, operations=operations)
        return ranked(self.change(rows, rng))


def decide(monitor: Monitor, rows: Iterable[Row]) -> MonitorAnswer:
    return monitor(from_rows(list(rows)), new_budget())


def agrees_with_every_order(subject: Subject, violations: set[str], unknown: float) -> None:
    """On HISTORIES small histories; at most this part of them is not decided.

    ``violations`` are met often, or the comparison is worth little.
    """
    monitor, model, rng = subject.monitor, make_model(subject.model), random.Random(23)
    seen: Counter[str] = Counter()
    while seen.total() < HISTORIES:
        rows = subject.rows(rng)
        answer = decide(monitor, rows)
        if answer.valid == "unknown":
            assert answer.why, rows
            seen["unknown"] += 1
            continue
        assert answer.valid is is_linearizable(rows, model), (answer, rows)
        seen[answer.violation or "none"] += 1
        if not answer.valid and seen.total() < PREFIXES:
            _check_prefix(subject, answer, rows)
    print(subject.model, dict(seen))  # noqa: T201 -- shown by pytest -s, for a long run's record
    assert seen["unknown"] <= unknown * HISTORIES, seen
    assert seen["none"] >= HISTORIES // 20, seen
    assert all(seen[violation] >= HISTORIES // 400 for violation in violations), seen


def _check_prefix(subject: Subject, answer: MonitorAnswer, rows: list[Row]) -> None:
    """Up to that event it is wrong; and right up to the event before, if the monitor can tell."""
    model, history = make_model(subject.model), from_rows(rows)
    assert answer.reason and answer.operations
    assert all(0 <= row < len(rows) for row in answer.operations)
    rank = shortest_prefix(subject.monitor, history, answer, new_budget())
    assert not is_linearizable(prefix(rows, rank), model), (rank, answer, rows)
    before = subject.monitor(cut(history, rank - 1), new_budget())
    assert before.valid is not False, (rank, answer, rows)
    if before.valid is True:
        assert is_linearizable(prefix(rows, rank - 1), model), (rank, answer, rows)


# --- properties, of histories larger than the oracle could take -----------------------------------


def prefixes_stay_linearizable(subject: Subject, seed: int, cut_at: int) -> None:
    rows = subject.rows(random.Random(seed), operations=30)
    if decide(subject.monitor, rows).valid is True:
        assert decide(subject.monitor, prefix(rows, cut_at)).valid is not False


def only_the_order_of_events_matters(subject: Subject, seed: int, gap: int) -> None:
    history = from_rows(subject.rows(random.Random(seed), operations=30))
    spread = history.take(history.call >= 0)
    spread.call[:] *= gap
    spread.ret[spread.ret < 2**31 - 1] *= gap
    assert subject.monitor(history, new_budget()) == subject.monitor(spread, new_budget())


def names_of_values_do_not_matter(
    subject: Subject, seed: int, rename: Callable[[Row, dict[Hashable, Hashable]], Row]
) -> None:
    """``rename`` gives a row with each of its values replaced."""
    rng = random.Random(seed)
    rows = subject.rows(rng, operations=30)
    strange = [-(2**63), 2**63 - 1, 0, "0", 1.5, (1, 2), *range(10**12, 10**12 + 100)]
    rng.shuffle(strange)
    names: dict[Hashable, Hashable] = dict(zip(range(100), strange, strict=False))
    before = decide(subject.monitor, rows)
    after = decide(subject.monitor, [rename(row, names) for row in rows])
    assert before.valid == after.valid, (before, after)  # which of several proofs may differ


def more_freedom_keeps_it_linearizable(subject: Subject, seed: int) -> None:
    """An operation that returns later, or is not known to have, explains at least as much."""
    rng = random.Random(seed)
    rows = subject.rows(rng, operations=30)
    if not rows or decide(subject.monitor, rows).valid is not True:
        return
    at = rng.randrange(len(rows))
    last = max(row.ret or row.call for row in rows) + 1
    if rows[at].type == "ok":
        for freer in (rows[at]._replace(ret=None, type="info"), rows[at]._replace(ret=last)):
            assert decide(subject.monitor, [*rows[:at], freer, *rows[at + 1 :]]).valid is not False


def values(rng: random.Random, several: int = 3) -> Values:
    """Mostly distinct ones."""
    return Values(rng, distinct=rng.random() < 0.8, several=several)
