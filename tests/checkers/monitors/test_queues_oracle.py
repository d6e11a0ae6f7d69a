"""The queue monitors against the definition: every order of small histories, and true properties.

SHALOTT_ORACLE_HISTORIES says how many random histories of each kind of queue are compared.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.checkers.engine import new_budget
from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.models import Model, make_model
from shalott.checkers.monitors.monitor import MonitorAnswer, cut
from shalott.checkers.monitors.queue_monitor import BAG, FIFO, QueueMonitor
from tests.checkers.monitors.queue_rows import about, prefix, queue_history, ranked
from tests.checkers.oracle import is_linearizable

pytestmark = pytest.mark.explore

HISTORIES = int(os.environ.get("SHALOTT_ORACLE_HISTORIES", "2500"))
MONITORS = {"fifo-queue": FIFO, "unordered-queue": BAG}
VIOLATIONS = {
    "fifo-queue": {"fresh", "repeated", "order", "lost", "empty"},
    "unordered-queue": {"fresh", "repeated", "empty"},
}


def decide(monitor: QueueMonitor, rows: list[Row]) -> MonitorAnswer:
    return monitor(from_rows(rows), new_budget())


@pytest.mark.timeout(0 if HISTORIES > 10_000 else 300)
@pytest.mark.parametrize("name", MONITORS)
def test_a_monitor_agrees_with_every_order_of_small_histories(name: str) -> None:
    monitor, model, rng = MONITORS[name], make_model(name), random.Random(17)
    seen: Counter[str] = Counter()
    while seen.total() < HISTORIES:
        rows = queue_history(name, rng)
        answer = decide(monitor, rows)
        if answer.valid == "unknown":
            assert answer.why.endswith("enqueued twice"), (answer, rows)
            continue
        assert answer.valid is is_linearizable(rows, model), (answer, rows)
        seen[answer.violation or "none"] += 1
        if not answer.valid:
            check_proof(answer, rows, model)
            check_prefix(monitor, answer, rows, model)
    assert seen.keys() == VIOLATIONS[name] | {"none"}
    # What the comparison is worth: no violation is rare among the histories, nor is there none.
    assert all(count >= HISTORIES // 200 for count in seen.values()), seen
    print(name, dict(seen))  # noqa: T201 -- shown by pytest -s, for the record of a long run


def check_proof(answer: MonitorAnswer, rows: list[Row], model: Model) -> None:
    """The operations that are named are wrong by themselves.

    Crashed dequeues may have taken one message, not all: with them, no few operations are a proof.
    """
    assert answer.reason
    named = [rows[at] for at in answer.operations]
    if any(row.f == "dequeue" and row.type == "info" for row in rows):
        assert len(set(answer.operations)) == len(named)
        return
    values = [row.argument for row in named if row.f == "enqueue"]
    proof = named
    if answer.violation == "empty":
        proof = [named[0], *about(rows, values)]
    assert not is_linearizable(ranked(proof), model), (answer, rows)


def check_prefix(
    monitor: QueueMonitor, answer: MonitorAnswer, rows: list[Row], model: Model
) -> None:
    """Up to that event it is wrong, and up to the event before it is not."""
    history = from_rows(rows)
    rank = monitor.shortest_prefix(history, answer, new_budget())
    assert not is_linearizable(prefix(rows, rank), model), (rank, answer, rows)
    assert is_linearizable(prefix(rows, rank - 1), model), (rank, answer, rows)
    again = monitor(cut(history, rank), new_budget())
    assert again.valid is False
    assert monitor(cut(history, rank - 1), new_budget()).valid is True


seeds = st.integers(0, 2**32 - 1)


def a_history(name: str, seed: int, operations: int = 30) -> list[Row]:
    """Larger than the oracle could take."""
    return queue_history(name, random.Random(seed), operations=operations)


@pytest.mark.parametrize("name", MONITORS)
@given(seed=seeds, cut_at=st.integers(0, 60))
def test_every_prefix_of_a_linearizable_history_is_linearizable(
    name: str, seed: int, cut_at: int
) -> None:
    rows = a_history(name, seed)
    if decide(MONITORS[name], rows).valid is True:
        assert decide(MONITORS[name], prefix(rows, cut_at)).valid is True


@pytest.mark.parametrize("name", MONITORS)
@given(seed=seeds, draw=st.randoms(use_true_random=False))
def test_names_of_values_do_not_matter(name: str, seed: int, draw: random.Random) -> None:
    rows = a_history(name, seed)
    names = {row.argument for row in rows} | {row.result for row in rows}
    strange = [-(2**63), 2**63 - 1, 0, "0", 1.5, True, (1, 2), *range(10**12, 10**12 + 70)]
    draw.shuffle(strange)
    renamed = dict(zip((n for n in names if n is not None), strange, strict=False))
    renamed_rows = [
        row._replace(argument=renamed.get(row.argument), result=renamed.get(row.result))
        for row in rows
    ]
    before, after = decide(MONITORS[name], rows), decide(MONITORS[name], renamed_rows)
    assert (before.valid, before.violation) == (after.valid, after.violation)
    assert before.operations == after.operations


@pytest.mark.parametrize("name", MONITORS)
@given(seed=seeds, gap=st.integers(1, 1000))
def test_only_the_order_of_events_matters(name: str, seed: int, gap: int) -> None:
    rows = a_history(name, seed)
    history = from_rows(rows)
    spread = history.take(history.call >= 0)
    spread.call[:] *= gap
    spread.ret[spread.ret < 2**31 - 1] *= gap
    before, after = MONITORS[name](history, new_budget()), MONITORS[name](spread, new_budget())
    assert before == after
    if before.valid is False:
        expected = MONITORS[name].shortest_prefix(history, before, new_budget())
        assert MONITORS[name].shortest_prefix(spread, after, new_budget()) == expected * gap


@pytest.mark.parametrize("name", MONITORS)
@given(seed=seeds, draw=st.randoms(use_true_random=False))
def test_without_crashed_dequeues_any_choice_of_values_stays_linearizable(
    name: str, seed: int, draw: random.Random
) -> None:
    """A crashed dequeue may have removed a value that is left out: it would remove another."""
    rows = [row for row in a_history(name, seed) if row.f == "enqueue" or row.ret is not None]
    values = [row.argument for row in rows if row.f == "enqueue" and draw.random() < 0.5]
    empty = [row for row in rows if row.f == "dequeue" and row.type == "ok" and row.result is None]
    if decide(MONITORS[name], rows).valid is True:
        chosen = ranked([*about(rows, values), *empty])
        assert decide(MONITORS[name], chosen).valid is True


@pytest.mark.parametrize("name", MONITORS)
@given(seed=seeds, draw=st.randoms(use_true_random=False))
def test_more_freedom_keeps_a_history_linearizable(
    name: str, seed: int, draw: random.Random
) -> None:
    """An operation that returns later, or is not known to have, explains at least as much."""
    rows = a_history(name, seed)
    if not rows or decide(MONITORS[name], rows).valid is not True:
        return
    at = draw.randrange(len(rows))
    last = max(row.ret or row.call for row in rows) + 1
    crashed = rows[at]._replace(ret=None, type="info")
    if rows[at].type == "ok":
        assert decide(MONITORS[name], [*rows[:at], crashed, *rows[at + 1 :]]).valid is True
        later = rows[at]._replace(ret=last)
        assert decide(MONITORS[name], [*rows[:at], later, *rows[at + 1 :]]).valid is True
    if crashed.f == "enqueue" and crashed.type == "info" and rows[at].type == "info":
        seen = any(row.result == crashed.argument and row.type == "ok" for row in rows)
        without = [*rows[:at], *rows[at + 1 :]]
        assert seen or decide(MONITORS[name], without).valid is True


@given(seed=seeds)
def test_a_queue_in_order_is_a_queue(seed: int) -> None:
    rows = a_history("fifo-queue", seed)
    if decide(FIFO, rows).valid is True:
        assert decide(BAG, rows).valid is True
