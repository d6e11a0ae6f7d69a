"""Explanations: each window really proves it, and says it in words that a person understands.

Random small histories of every model, bad ones by mutation; the brute-force oracle is the judge.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from shalott.checkers.checker import Result
from shalott.checkers.history.concurrent import (
    FAILED,
    NEVER,
    UNKNOWN,
    ConcurrentHistory,
    Operation,
    Row,
    from_rows,
)
from shalott.checkers.linearizability.checking import check
from shalott.checkers.linearizability.explain import Sought, choose_window, explain, explain_verdict
from shalott.checkers.linearizability.explanation import (
    CONTEXT,
    Explanation,
    from_detail,
    operation_text,
    to_detail,
)
from shalott.checkers.linearizability.order_search import Order, Part, search, step_of
from shalott.checkers.linearizability.window import Window, parts_of
from shalott.checkers.models import Model, OneOf, make_model, meanings_of
from shalott.checkers.monitors.monitor import cut
from tests.checkers.linearizability.timelines import register_history
from tests.checkers.oracle import is_linearizable
from tests.checkers.random_histories import MODELS, mutated, random_history

pytestmark = pytest.mark.unit

HISTORIES = 90  # drawn for each model; a third of them are bad


@dataclass(frozen=True)
class Begun:
    """A model that begins in another state."""

    model: Model
    init: Hashable

    @property
    def meanings(self) -> Any:
        return meanings_of(self.model)

    def step(self, state: Hashable, op: Operation) -> Hashable | OneOf | None:
        return self.model.step(state, op)


def rows_of(history: ConcurrentHistory, rows: Sequence[int]) -> list[Row]:
    types = ("ok", "fail", "info")
    return [
        Row(
            int(history.process[row]),
            history.f.names[history.f.codes[row]],
            history.argument.get(row),
            history.result.get(row),
            int(history.call[row]),
            None if history.ret[row] == NEVER else int(history.ret[row]),
            types[history.type[row]],
        )
        for row in rows
    ]


def bad_histories(name: str, count: int = HISTORIES) -> Iterator[tuple[ConcurrentHistory, int]]:
    """(a history that is not linearizable, the row at whose return a search was stuck)."""
    rng, model = random.Random(f"explain {name}"), make_model(name)
    for _ in range(count):
        rows = mutated(random_history(name, rng), rng)
        if is_linearizable(rows, model):
            continue
        history = from_rows(rows)
        parts = parts_of(history, model)
        found = search(parts, [model.init], step_of(model), 100_000)
        assert found.stuck is not None
        yield history, parts[found.stuck].row


def shortest_prefix(history: ConcurrentHistory, model: Model) -> int:
    """The rank of the return up to which the history is not linearizable, by the oracle."""
    for rank in sorted(history.ret[history.ret != NEVER].tolist()):
        prefix = cut(history, rank)
        if not is_linearizable(rows_of(prefix, range(len(prefix))), model):
            return rank
    raise AssertionError("it is linearizable")


def windows(name: str, count: int = HISTORIES) -> Iterator[tuple[ConcurrentHistory, Window]]:
    """Bad histories, each with its window: of the shortest prefix, and of where a search stuck."""
    model = make_model(name)
    for history, stuck in bad_histories(name, count):
        prefix = shortest_prefix(history, model)
        last = int(np.flatnonzero(history.ret == prefix)[0])
        for row in {stuck, last}:
            sought = Sought(model, row, int(history.ret[row]), (), lambda: False)
            choice = choose_window(history, sought)
            assert choice.window is not None
            assert row in {choice.original[part.row] for part in choice.window.parts}
            yield history, choice.window


def row_of(history: ConcurrentHistory, part: Part) -> Row:
    """As the oracle takes it. What had not returned, and is known nevertheless, returns later."""
    at = int(np.searchsorted(history.call, part.call))
    f, argument, result, _ = part.operation
    late = int(history.ret[at])
    crashed = result is UNKNOWN or late == NEVER
    kind = "fail" if result is FAILED else "ok"
    process = int(history.process[at])
    return Row(process, f, argument, result, part.call, None if crashed else late, kind)


@pytest.mark.explore
@pytest.mark.parametrize("name", MODELS)
def test_no_order_explains_the_window_says_the_oracle(name: str) -> None:
    seen = 0
    for history, window in windows(name):
        open_parts = [part for part in window.parts if part.is_open and part.ret != NEVER]
        for start in window.starts:
            judge = Begun(window.model, start)
            for size in range(len(open_parts) + 1):
                for skipped in itertools.combinations(open_parts, size):
                    kept = [part for part in window.parts if part not in skipped]
                    assert not is_linearizable([row_of(history, part) for part in kept], judge)
        seen += 1
    assert seen > 8


@pytest.mark.explore
@pytest.mark.parametrize("name", MODELS)
def test_without_the_stuck_return_the_prefix_is_linearizable(name: str) -> None:
    model = make_model(name)
    for history, _ in bad_histories(name):
        explanation = explain(history, model, prefix=shortest_prefix(history, model))
        assert explanation.is_proof
        assert explanation.prefix is not None
        before = cut(history, explanation.prefix - 1)
        assert is_linearizable(rows_of(before, range(len(before))), model)


@pytest.mark.explore
@pytest.mark.parametrize("name", MODELS)
def test_partial_linearizations_are_legal_and_keep_the_order_of_time(name: str) -> None:
    for _, window in windows(name):
        assert 1 <= len(window.found.orders) <= 10
        for order in window.found.orders:
            assert order.begin in window.starts
            check_order(window, order)


def check_order(window: Window, order: Order) -> None:
    state = order.begin
    step = step_of(window.model)
    for part, after in order.steps:
        assert after in step(state, window.parts[part].operation)
        state = after
    taken = [part for part, _ in order.steps]
    for earlier, later in itertools.combinations(taken, 2):
        assert window.parts[later].ret > window.parts[earlier].call
    # Whatever returned before the end is in it; the stuck one is not, and can't be next.
    stuck = window.found.stuck
    assert stuck is not None
    end = window.parts[stuck].ret
    returned = {at for at, part in enumerate(window.parts) if part.ret < end}
    assert returned <= {*taken, *order.skipped}
    assert stuck in order.blocked
    for part in order.blocked:
        assert part not in taken
        assert not step(state, window.parts[part].operation)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_shown_is_what_was_found(name: str) -> None:
    model = make_model(name)
    for history, stuck in bad_histories(name, 40):
        shown = explain(history, model, stuck=stuck)
        assert shown.is_proof
        assert shown.linearizations
        at = shown.stuck
        assert at is not None
        assert shown.operations[at].ret is not None
        assert shown.operations[at].ret <= (shown.prefix or 0)
        assert [each.role for each in shown.operations].count("stuck") == 1
        assert list(shown.operations) == sorted(shown.operations, key=lambda each: each.call)
        for each in shown.linearizations:
            used = [step.operation for step in each.steps]
            assert len(set(used)) == len(used)
            assert all(shown.operations[op].role != CONTEXT for op in used)
            assert any(stop.operation == at and stop.why for stop in each.blocked)
        assert "could only" in shown.reason
        assert from_detail(to_detail([shown])) == [shown]


@dataclass(frozen=True)
class Case:
    model: str
    rows: list[Row]
    reason: str
    operations: list[str]


CASES = (
    Case(
        "register",
        [
            Row(0, "write", 1, None, 0, 1),
            Row(1, "write", 2, None, 2, 3),
            Row(2, "read", None, 2, 4, 5),
            Row(7, "read", None, 1, 6, 7),
        ],
        "read → 1 of process 7 returned when the register could only hold 2: "
        "1 had been overwritten",
        ["write 1", "write 2", "read → 1"],
    ),
    Case(
        "fifo-queue",
        [
            Row(0, "enqueue", 16, None, 0, 1),
            Row(0, "enqueue", 17, None, 2, 3),
            Row(1, "enqueue", 18, None, 4, 5),
            Row(2, "dequeue", None, 17, 6, 7),
        ],
        "dequeue → 17 of process 2 returned when the queue could only hold 16, 17: "
        "16 was ahead of 17",
        ["enqueue 16", "enqueue 17", "dequeue → 17"],
    ),
    Case(
        "mutex",
        [
            Row(0, "acquire", None, None, 0, 1),
            Row(0, "release", None, None, 2, 3),
            Row(1, "acquire", None, None, 4, 5),
            Row(2, "acquire", None, None, 6, 7),
        ],
        "acquire of process 2 returned when the lock could only be held: "
        "process 1 had acquired it and no process had released it",
        ["acquire", "acquire"],
    ),
    Case(
        "log",
        [
            Row(0, "append", "a", 0, 0, 1),
            Row(0, "append", "b", 1, 2, 3),
            Row(1, "append", "c", 2, 4, 5),
            Row(2, "read", 1, "c", 6, 7),
        ],
        'read 1 → "c" of process 2 returned when the log could only hold "b" at 1',
        ['append "b" → 1', 'read 1 → "c"'],
    ),
    Case(
        "cas-register",
        [
            Row(0, "write", 1, None, 0, 1),
            Row(1, "write", 3, None, 2, 3),
            Row(2, "cas", (1, 2), None, 4, 5),
        ],
        "cas 1 → 2 of process 2 returned when the register could only hold 3",
        ["write 1", "write 3", "cas 1 → 2"],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=[case.model for case in CASES])
def test_a_sentence_says_what_was_seen_and_what_could_have_been(case: Case) -> None:
    shown = explain(from_rows(case.rows), make_model(case.model))
    assert shown.reason == case.reason
    needed = [each.text for each in shown.operations if each.role != CONTEXT]
    assert set(needed) <= set(case.operations)
    assert needed[-1] == case.operations[-1]
    assert shown.is_minimal


def spoiled(history: ConcurrentHistory, row: int, wrong: int) -> ConcurrentHistory:
    """The history with another result of ``row``."""
    numbers = history.result.number.copy()
    numbers[row] = wrong
    column = replace(history.result, number=numbers)
    return replace(history, argument=column, result=column)


@pytest.mark.explore
def test_a_stale_read_in_a_long_history_has_a_window_of_few_operations() -> None:
    history = register_history(30_000, 20)
    reads = np.flatnonzero((history.f.codes == 1) & (history.ret != NEVER))
    late = int(reads[np.searchsorted(reads, 28_000)])
    long_ago = int(history.result.number[reads[np.searchsorted(reads, 27_000)]])
    bad = spoiled(history, late, long_ago)
    shown = explain(bad, make_model("register"), stuck=late, witness=(), time_limit_s=5)
    assert shown.is_proof
    needed = [each for each in shown.operations if each.role != CONTEXT]
    assert len(needed) <= 6
    assert f"read → {long_ago} of process" in shown.reason


def test_a_window_of_an_object_with_few_states_begins_shortly_before() -> None:
    """Compare-and-sets over three values, 2,000 of them, and then one that can't be."""
    rows = []
    for number in range(2_000):
        value = number % 3
        rows.append(
            Row(number % 5, "cas", (value, (value + 1) % 3), None, 2 * number, 2 * number + 1)
        )
    rows.append(Row(9, "read", None, 0, 4_000, 4_001))
    shown = explain(from_rows(rows), make_model("cas-register:initial=0"))
    assert shown.is_proof
    assert [each.text for each in shown.operations if each.role != CONTEXT] == [
        "cas 1 → 2",
        "read → 0",
    ]
    assert shown.prefix_count == 2_001


def test_crashed_operations_that_help_nobody_are_counted_not_shown() -> None:
    rows = [Row(100 + at, "write", 7, None, at, None) for at in range(30)]
    rows += [
        Row(0, "write", 1, None, 40, 41),
        Row(1, "write", 2, None, 42, 43),
        Row(2, "read", None, 2, 44, 45),
        Row(3, "read", None, 1, 46, 47),
    ]
    shown = explain(from_rows(rows), make_model("register"))
    assert shown.is_proof
    assert len([each for each in shown.operations if each.role != CONTEXT]) <= 4


def test_a_model_written_by_the_user_is_explained_too() -> None:
    @dataclass(frozen=True)
    class Toggle:
        init: bool = False

        def step(self, state: Hashable, op: Operation) -> Hashable | None:
            return None if state == (op.f == "on") else op.f == "on"

    rows = [Row(0, "on", None, None, 0, 1), Row(1, "on", None, None, 2, 3)]
    shown = explain(from_rows(rows), Toggle())
    assert shown.is_proof
    assert shown.reason == "on of process 1 returned when the object could only be True"


@pytest.mark.parametrize("name", MODELS)
def test_what_the_checker_found_is_explained(name: str) -> None:
    """Two objects, the second one bad: its own history is explained."""
    model, rng = make_model(name), random.Random(f"verdict {name}")
    for history, _ in itertools.islice(bad_histories(name), 6):
        bad = [row._replace(key="b") for row in rows_of(history, range(len(history)))]
        good = [
            row._replace(key="a", call=row.call + 1000, ret=row.ret and row.ret + 1000)
            for row in random_history(name, rng)
        ]
        both = from_rows([*bad, *good])
        verdict = check(both, model, find_prefix=True)
        explanation, mine = explain_verdict(both, verdict, model)
        later, _ = explain_verdict(both, check(both, model), model)
        assert later.prefix == explanation.prefix, "the prefix is found if the check did not"
        assert explanation.key.split()[0] == "b"  # and which of several registers
        assert explanation.is_proof
        assert explanation.by
        assert {mine.key.names[code] for code in mine.key.codes} == {explanation.key}
        assert explanation.operation_count == len(mine) <= len(bad)
        assert name == "multi-register" or (explanation.key == "b" and len(mine) == len(bad))


def test_a_valid_verdict_has_nothing_to_explain() -> None:
    history = from_rows(CASES[0].rows[:2])
    with pytest.raises(ValueError, match="needs no explanation"):
        explain_verdict(history, check(history, "register"), "register")


def test_when_nothing_small_proves_it_the_place_is_shown_and_it_is_said() -> None:
    rows = [Row(at % 7, "inc", None, None, 2 * at, 2 * at + 1) for at in range(4_000)]
    rows.append(Row(9, "read", None, 1, 9_000, 9_001))
    shown = explain(from_rows(rows), make_model("counter"), reason="1 came too late")
    assert not shown.is_proof
    assert shown.reason == "1 came too late"
    assert shown.notes
    at = shown.stuck
    assert at is not None
    assert shown.operations[at].text == "read → 1"
    assert len(shown.operations) > 10


def test_the_result_keeps_explanations_as_data() -> None:
    shown = explain(from_rows(CASES[0].rows), make_model("register"))
    result = Result(checker="linearizable", valid=False, detail=to_detail([shown]))
    assert from_detail(result.detail) == [shown]
    assert from_detail({}) == []
    assert from_detail({"linearizability": "no"}) == []


def test_texts_of_operations() -> None:
    register, log = meanings_of(make_model("cas-register")), meanings_of(make_model("log"))
    assert register is not None
    assert log is not None
    assert operation_text(Operation("read", 3, 3), 0, register["read"]) == "read → 3"
    assert operation_text(Operation("cas", (1, 2), None), 1, register["cas"]) == "cas 1 → 2 failed"
    assert operation_text(Operation("append", 1, 1), 0, log["append"]) == "append 1 → 1"
    assert operation_text(Operation("read", 1, None), 0, log["read"]) == "read 1 → nil"
    assert operation_text(Operation("write", "x" * 500, None), 0) == f'write "{"x" * 500}"'
    assert isinstance(explain(from_rows(CASES[0].rows), make_model("register")), Explanation)
