"""Keys take turns: a hard one does not keep another from being decided, on a single thread.

Porcupine's log test_data/kv/c50-bad.txt was unknown after a minute: ten keys, four of them too
hard, the largest among them, and one that is refuted in a twentieth of a second.
"""

from __future__ import annotations

import pytest

from shalott.checkers.engine import lib
from shalott.checkers.history.concurrent import ConcurrentHistory, Row, from_rows
from shalott.checkers.linearizability.checking import check
from shalott.checkers.linearizability.general_search import _Search
from tests.checkers.linearizability.test_linearizable_limits import endless

pytestmark = pytest.mark.explore

MIB = 1024**2
HARD = 5


def hard_ones_and(easy: list[Row]) -> ConcurrentHistory:
    """Queues that no search can finish, all of them larger than the queue ``easy``."""
    one = endless()
    rows = [
        Row(
            int(one.process[at]),
            one.operation(at).f,
            one.operation(at).argument,
            one.operation(at).result,
            int(one.call[at]) * (HARD + 1) + number,
            int(one.ret[at]) * (HARD + 1) + number,
            key=f"hard {number}",
        )
        for number in range(HARD)
        for at in range(len(one))
    ]
    easy = [
        row._replace(
            call=row.call * (HARD + 1) + HARD, ret=(row.ret or 0) * (HARD + 1) + HARD, key="easy"
        )
        for row in easy
    ]
    return from_rows(sorted(rows + easy, key=lambda row: row.call))


def queue(taken: list[int]) -> list[Row]:
    """Six values enqueued at once, then dequeued one after the other."""
    rows = [Row(at, "enqueue", at, None, at, 6 + at) for at in range(6)]
    return rows + [
        Row(0, "dequeue", None, value, 12 + 2 * at, 13 + 2 * at) for at, value in enumerate(taken)
    ]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_invalid_key_beside_hard_ones_is_found_soon(threads: int) -> None:
    history = hard_ones_and(queue([*range(5), 0]))
    verdict = check(history, "fifo-queue", by="general", threads=threads, time_limit_s=60)
    assert verdict.valid is False and verdict.violation is not None
    assert verdict.violation.key == "easy"
    # One of them alone would take the minute. A machine with much else to do counts 3 s for 1.
    assert verdict.cpu_s < 20, verdict


def test_a_valid_key_beside_hard_ones_is_decided_within_the_limit() -> None:
    history = hard_ones_and(queue([*range(6)]))
    verdict = check(history, "fifo-queue", by="general", threads=1, time_limit_s=1)
    assert (verdict.valid, verdict.cause, verdict.keys_decided) == ("unknown", "time", 1)


def test_a_key_that_lacks_memory_is_searched_again_when_the_others_are_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [row._replace(call=row.call * 2, ret=(row.ret or 0) * 2) for row in queue([*range(6)])]
    rows += [row._replace(call=row.call + 1, ret=(row.ret or 0) + 1, key="b") for row in rows]
    history = from_rows(sorted(rows, key=lambda row: row.call))
    ended = _Search.has_ended
    asked: list[int] = []

    def refuse_once(search: _Search, turn_ns: int) -> bool:
        asked.append(turn_ns)
        if len(asked) > 1:
            return ended(search, turn_ns)
        search.found.cause = lib.SHL_MEMORY
        return True

    monkeypatch.setattr(_Search, "has_ended", refuse_once)
    verdict = check(
        history, "fifo-queue", by="general", threads=1, memory_limit_bytes=32 * MIB
    )  # under such a limit no small history is searched where it stands
    assert (verdict.valid, verdict.keys_decided, len(asked)) == (True, 2, 3)
    assert asked[0] > 0 and asked[-1] == 0, "the last one has all the time that there is"


def test_memory_that_is_too_little_for_any_of_them_is_the_cause() -> None:
    history = hard_ones_and([])
    verdict = check(
        history, "fifo-queue", by="general", threads=2, time_limit_s=60, memory_limit_bytes=8 * MIB
    )
    assert (verdict.valid, verdict.cause, verdict.keys_decided) == ("unknown", "memory", 0)
    assert verdict.memory_peak_bytes <= 8 * MIB
