"""The library's face: verdicts, what they carry, and what is refused with which sentence."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pytest

from shalott.checkers.history.concurrent import ConcurrentHistory, Operation, Row, from_rows
from shalott.checkers.linearizability import running_check
from shalott.checkers.linearizability.checking import (
    canonical,
    check,
    explain,
    make_model,
    memory_left,
)
from shalott.checkers.linearizability.running_check import Prefixes
from shalott.checkers.models import Model, OneOf
from shalott.core.errors import UsageError
from tests.checkers.random_histories import random_history

pytestmark = pytest.mark.unit

BELOW_THE_KEPT = (
    32 * 1024**2
)  # a memory limit under which tables are not kept, and threads are used


def sequential(*steps: tuple[Any, ...], key: str = "") -> list[Row]:
    """(f, argument, result) one after the other, by process 0."""
    return [
        Row(0, f, argument, result, 2 * at, 2 * at + 1, key=key)
        for at, (f, argument, result) in enumerate(steps)
    ]


def test_a_verdict_says_who_decided_it() -> None:
    history = from_rows(sequential(("write", 1, None), ("read", None, 1)))
    by_monitor, by_search = check(history, "register"), check(history, "register", by="general")
    assert (by_monitor.valid, by_monitor.how) == (True, "register monitor")
    assert by_search.valid is True
    assert by_search.how.startswith("general search (")
    assert by_monitor.operations == 2
    assert by_monitor.keys == by_monitor.keys_decided == 1


def test_what_a_monitor_passes_over_is_said() -> None:
    steps = ("write", 1, None), ("write", 1, None), ("read", None, 2)
    verdict = check(from_rows(sequential(*steps)), "register")
    assert verdict.valid is False
    assert verdict.passed_over == ("register monitor: the same write occurs twice",)
    alone = check(from_rows(sequential(*steps[:2], ("read", None, 1))), "register", by="monitor")
    assert alone.valid == "unknown"
    assert alone.cause == "no monitor decided it"
    assert "register monitor" in alone.passed_over[0]


@pytest.mark.parametrize("by", ["auto", "general"])
@pytest.mark.parametrize("memory_limit_bytes", [None, BELOW_THE_KEPT])
def test_a_violation_names_the_operation_at_which_no_order_was_left(
    by: Any, memory_limit_bytes: int | None
) -> None:
    steps = [("write", 1, None), ("read", None, 1), ("write", 2, None), ("read", None, 1)]
    rows = sequential(*steps, ("write", 3, None))
    history = from_rows(rows)
    verdict = check(
        history, "register", by=by, memory_limit_bytes=memory_limit_bytes, find_prefix=True
    )
    found = verdict.violation
    assert found is not None
    assert (verdict.valid, found.stuck, found.prefix) == (False, 3, 7)
    assert 3 in found.operations
    assert "read" in explain(history, verdict, "register").reason


@pytest.mark.parametrize("by", ["auto", "general"])
@pytest.mark.parametrize(
    ("claimed", "told"), [(5, (4, 9, False)), (7, (3, 7, True)), (9, (4, 9, False))]
)
def test_a_prefix_that_was_found_is_proved_again(
    monkeypatch: pytest.MonkeyPatch, by: Any, claimed: int, told: tuple[int, int, bool]
) -> None:
    """A prefix that is valid after all, one that is the shortest, one that is not."""
    steps = [("write", 1, None), ("read", None, 1), ("write", 2, None), ("read", None, 1)]
    history = from_rows(sequential(*steps, ("write", 3, None)))
    monkeypatch.setattr(running_check, "shortest_prefix", lambda *found: claimed)
    monkeypatch.setattr(running_check, "without_hindsight", lambda *found: claimed)
    monkeypatch.setattr(Prefixes, "shorter", lambda *found: (claimed, True))
    found = check(history, "register", by=by, find_prefix=True).violation
    assert found is not None
    assert (found.stuck, found.prefix, found.prefix_is_shortest) == told


@pytest.mark.parametrize("memory_limit_bytes", [None, BELOW_THE_KEPT])
def test_the_key_that_is_wrong_is_named(memory_limit_bytes: int | None) -> None:
    rows = []
    for number in range(40):
        read = 1 if number != 23 else 7
        part = sequential(
            ("write", 1, None), ("write", 1, None), ("read", None, read), key=f"k{number}"
        )
        rows += [row._replace(call=row.call * 100 + number, ret=0) for row in part]
    rows = [row._replace(ret=row.call + 50) for row in rows]
    verdict = check(
        from_rows(rows), "register", memory_limit_bytes=memory_limit_bytes, find_prefix=True
    )
    assert verdict.valid is False
    assert verdict.keys == 40
    assert verdict.violation is not None
    assert verdict.violation.key == "k23"
    stuck = verdict.violation.stuck
    assert stuck is not None
    assert from_rows(rows).operation(stuck).result == 7


def test_some_keys_by_monitor_and_some_by_search() -> None:
    rows = [
        row._replace(call=10 * row.call + number, ret=10 * row.call + number + 5)
        for number, again in enumerate([1, 2, 2])
        for row in sequential(
            ("add", 1, True), ("contains", again, again == 1), ("read", None, (1,)), key=f"{number}"
        )
    ]
    verdict = check(from_rows(rows), "set")
    assert verdict.valid is True
    assert verdict.keys_decided == 3


def test_aliases_mean_the_same() -> None:
    rows = sequential(("add", 1, None), ("enqueue", 2, None), ("poll", None, 1))
    rows.append(Row(0, "remove", None, 2, 100, 101))
    history = canonical(from_rows(rows), make_model("fifo-queue"))
    assert history.f.names == ("enqueue", "dequeue")
    for by in ("auto", "general"):
        assert check(from_rows(rows), "fifo-queue", by=by).valid is True


def test_an_empty_history_is_linearizable() -> None:
    for model in ("register", "counter", "fifo-queue"):
        for limit in (None, BELOW_THE_KEPT):
            assert check(from_rows([]), model, memory_limit_bytes=limit).valid is True


def test_a_history_of_crashes_and_failures_is_linearizable() -> None:
    rows = [
        Row(0, "read", None, None, 0, None, "info"),
        Row(1, "write", 3, None, 1, 2, "fail"),
        Row(2, "write", 4, None, 3, None, "info"),
    ]
    for limit in (None, BELOW_THE_KEPT):
        verdict = check(from_rows(rows), "register", by="general", memory_limit_bytes=limit)
        assert verdict.valid is True


def test_failed_compare_and_sets() -> None:
    rows = [*sequential(("write", 1, None)), Row(0, "cas", (1, 2), None, 10, 11, "fail")]
    for by in ("auto", "general"):
        checked = check(from_rows(rows), "cas-register", by=by)
        ignored = check(
            from_rows(rows),
            "cas-register:failed_cas=ignored",
            by=by,
        )
        assert (checked.valid, ignored.valid) == (False, True)


# --- what is refused ------------------------------------------------------------------------------


def test_an_f_that_the_model_does_not_know() -> None:
    rows = sequential(*[("enqueue", at, None) for at in range(17)], ("push", 1, None))
    with pytest.raises(UsageError) as raised:
        check(from_rows(rows), "fifo-queue")
    said = 'model fifo-queue knows enqueue and dequeue, index 17 has "push"'
    assert str(raised.value) == said


@pytest.mark.parametrize("memory_limit_bytes", [None, BELOW_THE_KEPT])
def test_a_value_that_the_model_can_not_read(memory_limit_bytes: int | None) -> None:
    rows = sequential(("write", 1, None), ("write", 1, None), ("cas", 3, None))
    with pytest.raises(UsageError, match=r"read cas, index 2: .* a pair \[from to\], not 3"):
        check(from_rows(rows), "cas-register", by="general", memory_limit_bytes=memory_limit_bytes)
    good = from_rows(sequential(("write", 1, None), ("cas", (1, 3), None)))
    assert check(good, "cas-register", by="general").valid is True, "the failure must not last"


@dataclass(frozen=True)
class Stack:
    """A model of somebody else's, with nothing but init and step."""

    init: Hashable = ()
    broken: str = ""

    def step(self, state: Any, op: Operation) -> Any:
        if self.broken == "raises" and len(state) > 1:
            raise KeyError("one too many")
        if self.broken == "unhashable":
            return [*state]
        if op.f == "push":
            return (*state, op.argument)
        if op.f == "crash":
            return OneOf((state, (*state, 0), (*state, 1)))
        return state[:-1] if state and state[-1] == op.result else None


def history_of_pushes() -> ConcurrentHistory:
    return from_rows(
        sequential(("push", 1, None), ("push", 2, None), ("pop", None, 2), ("pop", None, 1))
    )


@pytest.mark.parametrize("memory_limit_bytes", [None, BELOW_THE_KEPT])
class TestModelsOfOthers:
    def test_any_init_and_step_will_do(self, memory_limit_bytes: int | None) -> None:
        model: Model = Stack()
        good = check(history_of_pushes(), model, memory_limit_bytes=memory_limit_bytes)
        assert (good.valid, good.model) == (True, "Stack")
        rows = sequential(("push", 1, None), ("push", 2, None), ("pop", None, 1))
        bad = check(from_rows(rows), model, memory_limit_bytes=memory_limit_bytes)
        assert bad.valid is False
        assert bad.violation is not None
        assert bad.violation.stuck == 2

    def test_several_outcomes(self, memory_limit_bytes: int | None) -> None:
        for popped, expected in ((0, True), (1, True), (2, False)):
            rows = [Row(1, "crash", None, None, -1, None, "info")]
            rows += sequential(("pop", None, popped))
            verdict = check(from_rows(rows), Stack(), memory_limit_bytes=memory_limit_bytes)
            assert verdict.valid is expected

    def test_what_it_raises_is_said_with_its_place(self, memory_limit_bytes: int | None) -> None:
        with pytest.raises(UsageError, match=r"model Stack failed on \w+, index \d: KeyError"):
            check(
                history_of_pushes(),
                Stack(broken="raises"),
                memory_limit_bytes=memory_limit_bytes,
            )

    def test_states_must_be_hashable(self, memory_limit_bytes: int | None) -> None:
        unhashable: Any = []
        with pytest.raises(UsageError, match="unhashable type: 'list'"):
            check(
                history_of_pushes(),
                Stack(broken="unhashable"),
                memory_limit_bytes=memory_limit_bytes,
            )
        with pytest.raises(UsageError, match="model Stack: unhashable type"):
            check(
                history_of_pushes(), Stack(init=unhashable), memory_limit_bytes=memory_limit_bytes
            )
        with pytest.raises(UsageError, match="never None"):
            check(history_of_pushes(), Stack(init=None), memory_limit_bytes=memory_limit_bytes)


def test_there_is_no_monitor_for_every_model() -> None:
    with pytest.raises(UsageError, match="no monitor for the model multi-register"):
        check(from_rows(sequential(("read", None, None))), "multi-register", by="monitor")


def test_memory_left() -> None:
    assert memory_left(1) == 1
    assert 0 < memory_left(1 << 40) < 1 << 40


def test_many_small_keys_are_searched_before_a_monitor_is_asked() -> None:
    """And the one that takes long is left to the monitor."""
    rows = []
    for number in range(40):
        steps = [("enqueue", 1, None), ("dequeue", None, 1)]
        part = sequential(*steps, key=f"k{number}")
        if number == 7:
            part = [Row(at, "enqueue", at, None, at, 600 + at, key="k7") for at in range(300)]
            part += [
                Row(0, "dequeue", None, 299 - at, 2000 + 2 * at, 2001 + 2 * at, key="k7")
                for at in range(299)
            ]
            part.append(Row(0, "dequeue", None, None, 9000, 9001, key="k7"))
        rows += [
            row._replace(call=row.call * 40 + number, ret=(row.ret or 0) * 40 + number)
            for row in part
        ]
    verdict = check(from_rows(rows), "fifo-queue")
    assert verdict.valid is False
    assert verdict.violation is not None
    assert verdict.violation.key == "k7"
    assert verdict.violation.by == "FIFO queue monitor"


def test_threads_give_the_same_answers() -> None:
    rng = random.Random(4)
    rows = []
    for number in range(64):
        for row in random_history("counter", rng, operations=6):
            moved = row._replace(key=f"k{number}", call=row.call * 64 + number)
            rows.append(moved if row.ret is None else moved._replace(ret=row.ret * 64 + number))
    history = from_rows(rows)
    for threads in (1, 2, 5):
        verdict = check(history, "counter", threads=threads, memory_limit_bytes=BELOW_THE_KEPT)
        assert (verdict.valid, verdict.keys_decided, verdict.threads) == (True, 64, threads)
