"""What jepsen.checker's and jepsen.tests' own tests say of these checkers, as histories of ours."""

from __future__ import annotations

from itertools import product

import pytest

from tests.checkers.judges.written import (
    Step,
    done,
    fail,
    info,
    invoke,
    judged,
    kinds_of,
    ok,
    steps,
)

pytestmark = pytest.mark.unit


# -- queue --


@pytest.mark.parametrize(
    ("history", "valid"),
    [
        ([], True),
        ([invoke(1, "enqueue", 1)], True),
        ([ok(1, "enqueue", 1)], True),
        ([invoke(2, "dequeue"), invoke(1, "enqueue", 1), ok(2, "dequeue", 1)], True),
        ([ok(1, "dequeue", 1)], False),
    ],
)
def test_queue(history: list[Step], valid: bool) -> None:
    assert judged("queue", *history).valid is valid


# -- total-queue --


def test_total_queue_of_nothing() -> None:
    assert judged("total-queue").valid is True


def test_sane_total_queue() -> None:
    found = judged(
        "total-queue",
        invoke(1, "enqueue", 1),
        done(2, "enqueue", 2),
        done(3, "dequeue", 1),
        done(3, "dequeue", 2),
    )
    assert found.valid is True
    assert found.counts["recovered-count"] == 1
    assert found.counts["attempt-count"] == 2
    assert found.counts["acknowledged-count"] == 1
    assert found.counts["ok-count"] == 2


def test_pathological_total_queue() -> None:
    found = judged(
        "total-queue",
        invoke(1, "enqueue", ":hung"),
        done(2, "enqueue", ":enqueued"),
        done(3, "enqueue", ":dup"),
        invoke(4, "dequeue"),
        done(5, "dequeue", ":wtf"),
        done(6, "dequeue", ":dup"),
        done(7, "dequeue", ":dup"),
    )
    assert found.valid is False
    assert [anomaly.summary.split()[0] for anomaly in found.anomalies] == [
        ":enqueued",
        ":wtf",
        ":dup",
    ]
    assert found.counts["lost-count"] == 1
    assert found.counts["unexpected-count"] == 1
    assert found.counts["duplicated-count"] == 1
    assert found.counts["recovered-count"] == 0
    assert found.counts["attempt-count"] == 3
    assert found.counts["acknowledged-count"] == 2
    assert found.counts["ok-count"] == 1


# -- set, set-full --


def test_set_with_every_outcome() -> None:
    found = judged(
        "final-set",
        done(0, "add", 0),
        done(0, "add", 1),
        [invoke(1, "add", 10), info(1, "add", 10)],
        [invoke(1, "add", 11), info(1, "add", 11)],
        [invoke(2, "add", 20), fail(2, "add", 20)],
        [invoke(2, "add", 21), fail(2, "add", 21)],
        done(4, "read", {0, 10, 20, 30}),
    )
    assert found.valid is False
    expected = {"ok": 3, "lost": 1, "acknowledged": 2, "recovered": 2, "attempt": 6}
    assert {name: found.counts[f"{name}-count"] for name in expected} == expected
    assert kinds_of(found) == {"lost", "unexpected", "revived"}


POINTS = ("0", "0.5", "0.95", "0.99", "1")
A, A_OK = invoke(0, "add", 0), ok(0, "add", 0)
R, SEEN, UNSEEN = invoke(1, "read"), ok(1, "read", {0}), ok(1, "read", set[int]())


def test_set_full_never_read() -> None:
    for history in ([A, A_OK], [A, R, UNSEEN]):
        found = judged("set-full", *history)
        assert found.valid == "unknown"
        assert found.counts["never-read-count"] == found.counts["attempt-count"] == 1


@pytest.mark.parametrize(
    "history",
    [
        [R, A, SEEN, A_OK],
        [R, A, A_OK, SEEN],
        [A, R, SEEN, A_OK],
        [A, R, A_OK, SEEN],
        [A, A_OK, R, SEEN],
    ],
)
def test_set_full_seen_during_the_add_or_later(history: list[Step]) -> None:
    found = judged("set-full", *history)
    assert found.valid is True
    assert found.counts["stable-count"] == 1
    assert found.counts["stale-count"] == 0 if "stale-count" in found.counts else True
    assert found.detail["stable-latencies-ms"] == dict.fromkeys(
        ("0", "0.5", "0.95", "0.99", "1"), 0
    )


def test_set_full_missing_later() -> None:
    found = judged("set-full", A, A_OK, R, UNSEEN)
    assert found.valid is False
    assert found.counts["lost-count"] == 1
    assert found.detail["lost-latencies-ms"] == dict.fromkeys(POINTS, 0)


@pytest.mark.parametrize(
    "history",
    [[R, A, UNSEEN, A_OK], [R, A, A_OK, UNSEEN], [A, R, UNSEEN, A_OK], [A, R, A_OK, UNSEEN]],
)
def test_set_full_missing_during_the_add(history: list[Step]) -> None:
    found = judged("set-full", *history)
    assert found.valid == "unknown"
    assert found.counts["never-read-count"] == 1


def test_set_full_written_present_missing() -> None:
    read = invoke(2, "read")
    found = judged(
        "set-full",
        [invoke(0, "add", 0), invoke(1, "add", 1)],
        [read, ok(2, "read", {1}), ok(0, "add", 0), ok(1, "add", 1)],
        [read, ok(2, "read", {0, 1}), read, ok(2, "read", {0}), read, ok(2, "read", set[int]())],
    )
    assert found.valid is False
    assert found.counts["lost-count"] == 2
    latencies = {"0": 3, "0.5": 4, "0.95": 4, "0.99": 4, "1": 4}
    assert found.detail["lost-latencies-ms"] == latencies


def test_set_full_flutter() -> None:
    """1 is found again by a read that began behind one that missed it; 0 is lost by that."""
    found = judged(
        "set-full",
        done(0, "add", 0),
        [invoke(1, "add", 1), invoke(2, "read"), ok(2, "read", {1}), ok(1, "add", 1)],
        [invoke(2, "read"), invoke(3, "read"), ok(3, "read", {1}), ok(2, "read", {0})],
    )
    assert found.valid is False
    assert (found.counts["lost-count"], found.counts["stale-count"]) == (1, 1)
    assert found.counts["stable-count"] == 1
    (worst,) = found.detail["worst-stale"]
    assert (worst["element"], worst["known"], worst["stable-latency-ms"]) == ("1", 4, 2)
    assert set(found.detail["lost-latencies-ms"].values()) == {5}
    assert set(found.detail["stable-latencies-ms"].values()) == {2}


# -- unique ids --


def test_unique_ids() -> None:
    assert judged("unique-ids").valid == "unknown"  # Jepsen says valid of nothing
    found = judged(
        "unique-ids",
        done(0, "generate", 0),
        done(1, "generate", 1),
        done(2, "generate", 0),
        done(3, "generate", 0),
        [invoke(4, "generate"), info(4, "generate")],
    )
    assert found.valid is False
    assert found.counts == {"attempt-count": 5, "acknowledged-count": 4, "duplicated-count": 1}
    assert found.anomalies[0].detail["times"] == 3


# -- counter --


@pytest.mark.parametrize(
    ("history", "errors"),
    [
        (done(0, "read", 0), 0),
        ([invoke(0, "add", 1), fail(0, "add", 1), *done(0, "read", 0)], 0),
        ([invoke(0, "add", 1), *done(1, "read", 0), *done(1, "read", 1)], 0),
        (done(0, "read", 1), 1),
        (
            [
                *(invoke(0, "read"), invoke(1, "add", 1), invoke(2, "read"), invoke(3, "add", 2)),
                *(invoke(4, "read"), invoke(5, "add", 4), invoke(6, "read"), invoke(7, "add", 8)),
                *(invoke(8, "read"), ok(0, "read", 6), ok(1, "add", 1), ok(2, "read", 0)),
                *(ok(3, "add", 2), ok(4, "read", 3), ok(5, "add", 4), ok(6, "read", 100)),
                *(ok(7, "add", 8), ok(8, "read", 15)),
            ],
            1,
        ),
        (
            [
                *(invoke(0, "read"), invoke(1, "add", 1), ok(0, "read", 0), invoke(0, "read")),
                *(ok(1, "add", 1), invoke(1, "add", 2), ok(0, "read", 3), invoke(0, "read")),
                *(ok(1, "add", 2), ok(0, "read", 5)),
            ],
            1,
        ),
    ],
)
def test_counter(history: list[Step], errors: int) -> None:
    found = judged("counter-bounds", *history)
    assert len(found.anomalies) == errors
    assert found.valid is (errors == 0)


def test_bounds_of_a_read_are_told() -> None:
    found = judged("counter-bounds", done(0, "add", 1), invoke(0, "add", 2), done(1, "read", 5))
    assert found.anomalies[0].detail == {"lower": 1, "upper": 3}


# -- causal-reverse, long-fork --


@pytest.mark.parametrize(
    ("read", "valid"), [([1, 2], True), ([1], True), ([2], False), ([1, 2, 3, 4, 5], True)]
)
def test_causal_reverse_one_after_the_other(read: list[int], valid: bool) -> None:
    writes = [done(0, "write", value) for value in (1, 2, *range(3, max(read) + 1))]
    for judge in ("causal-reverse", "comments"):
        assert judged(judge, *writes, done(0, "read", read)).valid is valid


def test_causal_reverse_of_concurrent_writes() -> None:
    for first, second in ((2, 1), (1, 2)):
        found = judged(
            "causal-reverse",
            invoke(0, "write", first),
            invoke(1, "write", second),
            [ok(1, "write", second), invoke(2, "read"), ok(0, "write", first)],
            ok(2, "read", [second, first]),
        )
        assert found.valid is True


def test_long_fork_of_three_keys() -> None:
    one = [[":r", 0, 1], [":r", 1, 1], [":r", 2, None]]
    other = [[":r", 2, 1], [":r", 0, 1], [":r", 1, None]]
    found = judged(
        "long-fork:n=3",
        invoke(0, "read"),
        invoke(1, "read"),
        ok(0, "read", one),
        ok(1, "read", other),
    )
    assert found.valid is False
    assert found.counts["reads-count"] == 2
    assert (found.counts["early-read-count"], found.counts["late-read-count"]) == (0, 0)
    assert [anomaly.operations for anomaly in found.anomalies] == [(2, 3)]


# -- monotonic cycles --


def _states(*states: dict[str, int]) -> list[Step]:
    return steps(*(done(0, "read", state) for state in states))


def test_monotonic_states() -> None:
    sound = _states({":x": 0, ":y": 0}, {":x": 1, ":y": 1})
    assert judged("monotonic:order=none", *sound).valid is True
    found = judged(
        "monotonic:order=none",
        *_states({":x": 0, ":y": 0}, {":x": 1, ":y": 0}, {":x": 1, ":y": 1}, {":x": 0, ":y": 1}),
    )
    assert found.valid is False
    assert [anomaly.operations for anomaly in found.anomalies] == [(3, 7)]


def test_monotonic_states_against_the_order_of_a_process() -> None:
    backwards = _states({":x": 1}, {":x": 0})
    assert judged("monotonic:order=none", *backwards).valid is True
    for order in ("process", "realtime"):
        assert judged(f"monotonic:order={order}", *backwards).valid is False


def test_many_monotonic_states_are_sound() -> None:
    keys = [{":x": value, ":y": value} for value in range(200)]
    reads = [ok(number % 100, "read", state) for number, state in enumerate(keys)]
    for order, history in product(("none", "process", "realtime"), (reads, reads[::-1])):
        is_backwards = history is not reads and order != "none"
        assert judged(f"monotonic:order={order}", *history).valid is (not is_backwards)
