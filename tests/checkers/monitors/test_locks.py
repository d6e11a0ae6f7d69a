"""What the monitors of locks and semaphores find, cannot decide, and say about it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.checkers.history.concurrent import Row
from shalott.checkers.monitors.lock_monitor import (
    FENCED_LOCK,
    OWNER_LOCK,
    MutexMonitor,
    SemaphoreMonitor,
    reentrant_lock,
)
from shalott.checkers.monitors.monitor import Monitor
from tests.checkers.monitors.comparison import (
    TIMEOUT_S,
    Subject,
    agrees_with_every_order,
    decide,
    more_freedom_keeps_it_linearizable,
    only_the_order_of_events_matters,
    prefixes_stay_linearizable,
)
from tests.checkers.random_histories import ALock, ASemaphore

pytestmark = pytest.mark.unit


def acquire(process: int, call: int, ret: int | None, token: int | None = None) -> Row:
    return Row(process, "acquire", None, token, call, ret)


def release(process: int, call: int, ret: int | None) -> Row:
    return Row(process, "release", None, None, call, ret)


INVALID: dict[str, tuple[Monitor, list[Row], tuple[int, ...], str]] = {
    "held": (
        MutexMonitor(),
        [acquire(1, 0, 1), acquire(2, 2, 3)],
        (1, 0),
        "process 2 acquired although nothing was free: process 1 had acquired last, and no release"
        " that was called by then is left to have come between",
    ),
    "held, no permits": (
        SemaphoreMonitor(0),
        [acquire(1, 0, 1)],
        (0,),
        "process 1 acquired although there was nothing to acquire",
    ),
    "free": (
        MutexMonitor(),
        [acquire(1, 0, 1), release(1, 2, 3), release(2, 4, 5)],
        (2, 1),
        "process 2 released although nothing was held: process 1 had released last, and no acquire"
        " that was called by then is left to have come between",
    ),
    "free, at first": (
        MutexMonitor(),
        [release(2, 0, 1)],
        (0,),
        "process 2 released although no acquire that was called by then is left to have come"
        " before",
    ),
    "overlap": (
        OWNER_LOCK,
        [acquire(1, 0, 1), acquire(2, 2, 3), release(1, 4, 5)],
        (0, 1, 2),
        "process 1 and process 2 held the lock at once: process 2's acquire returned when process"
        " 1's had and process 1 had not called release yet",
    ),
    "overlap, for ever": (
        OWNER_LOCK,
        [acquire(1, 0, 1), acquire(2, 2, 3)],
        (0, 1),
        "process 1 and process 2 held the lock at once: process 2's acquire returned when process"
        " 1's had and process 1 never called release",
    ),
    "token": (
        FENCED_LOCK,
        [acquire(1, 0, 1, 5), release(1, 2, 3), acquire(2, 4, 5, 5)],
        (0, 2),
        "process 2 acquired the lock with token 5 after process 1 had held it with token 5",
    ),
    "reentered": (
        OWNER_LOCK,
        [acquire(1, 0, 1), acquire(1, 2, 3)],
        (1, 0),
        "process 1 acquired the lock although it held it already",
    ),
    "not-owned": (
        OWNER_LOCK,
        [acquire(1, 0, 1), release(2, 2, 3)],
        (1,),
        "process 2 released the lock although it did not hold it",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_violation_is_named_proved_and_put_in_words(name: str) -> None:
    monitor, rows, operations, reason = INVALID[name]
    answer = decide(monitor, rows)
    assert answer.valid is False
    assert answer.violation == name.partition(",")[0]
    assert answer.operations == operations
    assert answer.reason == reason


VALID: dict[str, tuple[Monitor, list[Row]]] = {
    "anyone may release a mutex": (
        MutexMonitor(),
        [acquire(1, 0, 1), release(2, 2, 3), acquire(3, 4, 5)],
    ),
    "a crashed release may have happened": (
        MutexMonitor(),
        [acquire(1, 0, 1), release(1, 2, None), acquire(2, 3, 4)],
    ),
    "or not": (MutexMonitor(), [acquire(1, 0, 1), release(1, 2, None), release(2, 3, 4)]),
    "two permits": (SemaphoreMonitor(2), [acquire(1, 0, 1), acquire(2, 2, 3)]),
    "two permits at a time": (
        SemaphoreMonitor(5),
        [acquire(1, 0, 1)._replace(argument=2), acquire(2, 2, 3)._replace(argument=2)],
    ),
    "a crashed acquire holds nothing up": (OWNER_LOCK, [acquire(1, 0, None), acquire(2, 1, 2)]),
    "a release counts from its call": (
        OWNER_LOCK,
        [acquire(1, 0, 1), release(1, 2, 5), acquire(2, 3, 4)],
    ),
    "it is held as often as it was acquired": (
        reentrant_lock(2),
        [acquire(1, 0, 1), acquire(1, 2, 3), release(1, 4, 5), release(1, 6, 9), acquire(2, 7, 8)],
    ),
    "a token that nobody knows constrains nothing": (
        FENCED_LOCK,
        [acquire(1, 0, 1, 5), release(1, 2, 3), acquire(2, 4, 5), release(2, 6, 7),
         acquire(3, 8, 9, 6)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VALID)
def test_what_is_linearizable(name: str) -> None:
    monitor, rows = VALID[name]
    assert decide(monitor, rows).valid is True


UNKNOWN: dict[str, tuple[Monitor, list[Row]]] = {
    "process 1 had two operations open, or went on after one crashed": (
        OWNER_LOCK,
        [acquire(1, 0, None), release(1, 2, 3)],
    ),
    "operations ask for different numbers of permits": (
        SemaphoreMonitor(2),
        [acquire(1, 0, 1), acquire(2, 2, 3)._replace(argument=2)],
    ),
    "an acquire returned a token that is not an integer": (
        FENCED_LOCK,
        [acquire(1, 0, 1)._replace(result="five")],
    ),
    "'renew' is not an operation of this object": (
        MutexMonitor(),
        [acquire(1, 0, 1)._replace(f="renew")],
    ),
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_what_it_can_not_decide_it_says(why: str) -> None:
    monitor, rows = UNKNOWN[why]
    answer = decide(monitor, rows)
    assert (answer.valid, answer.violation, answer.why) == ("unknown", "", why)


# --- against the definition -----------------------------------------------------------------------


def of_one_size(rows: list[Row], rng: random.Random) -> list[Row]:
    """All operations ask for the same number of permits, mostly."""
    count = rng.choice([None, 1, 2])
    return rows if rng.random() < 0.1 else [row._replace(argument=count) for row in rows]


SUBJECTS = {
    "mutex": (
        Subject(MutexMonitor(), "mutex", "mutex", lambda rng: ALock(owned=rng.random() < 0.5)),
        {"held", "free"},
    ),
    "semaphore": (
        Subject(
            SemaphoreMonitor(2),
            "semaphore:permits=2",
            "semaphore:permits=2",
            lambda rng: ASemaphore(rng.choice([2, 3]), 2),
            of_one_size,
        ),
        {"held", "free"},
    ),
    "owner-lock": (
        Subject(OWNER_LOCK, "owner-lock", "owner-lock", lambda rng: ALock(rng.random() < 0.9)),
        {"overlap", "reentered", "not-owned"},
    ),
    "reentrant-lock": (
        Subject(
            reentrant_lock(0),
            "reentrant-lock",
            "reentrant-lock",
            lambda rng: ALock(rng.random() < 0.9, again=True),
        ),
        {"overlap", "not-owned"},
    ),
    "reentrant-lock, twice": (
        Subject(
            reentrant_lock(2),
            "reentrant-lock:limit=2",
            "reentrant-lock",
            lambda rng: ALock(rng.random() < 0.9, again=True),
        ),
        {"overlap", "not-owned"},
    ),
    "fenced-lock": (
        Subject(
            FENCED_LOCK,
            "fenced-lock",
            "fenced-lock",
            lambda rng: ALock(rng.random() < 0.9, tokens=True),
        ),
        {"overlap", "token", "reentered", "not-owned"},
    ),
}
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.explore
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_monitors_agree_with_every_order_of_small_histories(name: str) -> None:
    subject, violations = SUBJECTS[name]
    agrees_with_every_order(subject, violations, unknown=0.0 if name == "mutex" else 0.15)


@pytest.mark.explore
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds, cut_at=st.integers(0, 60))
def test_every_prefix_of_a_linearizable_history_is_linearizable(
    name: str, seed: int, cut_at: int
) -> None:
    prefixes_stay_linearizable(SUBJECTS[name][0], seed, cut_at)


@pytest.mark.explore
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds, gap=st.integers(1, 1000))
def test_only_the_order_of_events_matters(name: str, seed: int, gap: int) -> None:
    only_the_order_of_events_matters(SUBJECTS[name][0], seed, gap)


@pytest.mark.explore
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds)
def test_more_freedom_keeps_a_history_linearizable(name: str, seed: int) -> None:
    more_freedom_keeps_it_linearizable(SUBJECTS[name][0], seed)


@settings(max_examples=40)
@given(seed=seeds)
def test_a_lock_with_owners_is_a_mutex(seed: int) -> None:
    rows = SUBJECTS["owner-lock"][0].rows(random.Random(seed), operations=30)
    if decide(OWNER_LOCK, rows).valid is True:
        assert decide(MutexMonitor(), rows).valid is True
        assert decide(reentrant_lock(0), rows).valid is True
        assert decide(SemaphoreMonitor(2), rows).valid is True
