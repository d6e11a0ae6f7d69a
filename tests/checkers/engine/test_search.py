"""The general search itself: each method alone and all together, against every order there is."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from shalott.checkers.engine import column, ffi, lib, new_budget
from tests.checkers.engine.tabled import (
    Asked,
    Op,
    Tabled,
    bag,
    cas_register,
    columns,
    is_linearizable,
    prefix,
    random_ops,
    search,
    semaphore,
    two_registers,
    widened,
)

pytestmark = pytest.mark.unit

HISTORIES = int(os.environ.get("SHALOTT_ORACLE_HISTORIES", "200"))
METHODS = {
    "all": int(lib.SHL_BY_ALL),
    "depth": int(lib.SHL_BY_DEPTH),
    "layers": int(lib.SHL_BY_LAYERS),
    "all, impatient": int(lib.SHL_BY_ALL | lib.SHL_IMPATIENT),
    "depth, impatient": int(lib.SHL_BY_DEPTH | lib.SHL_IMPATIENT),
    "windows": int(lib.SHL_BY_DEPTH | lib.SHL_BY_WINDOW | lib.SHL_IMPATIENT),
}


def some_history(rng: random.Random) -> tuple[Tabled, list[Op]]:
    model = rng.choice([cas_register(2), cas_register(3), bag(3)])
    ops = random_ops(
        rng,
        model,
        count=rng.randint(1, 8),
        processes=rng.randint(1, 5),
        crash=rng.choice([0, 0.2, 0.5]),
        wrong=0.6,
    )
    return model, ops


@pytest.mark.explore
@pytest.mark.parametrize("methods", METHODS)
def test_agrees_with_every_order(methods: str) -> None:
    rng = random.Random(f"orders {methods}")
    verdicts = {True: 0, False: 0}
    for _ in range(HISTORIES):
        model, ops = some_history(rng)
        expected = is_linearizable(ops, model)
        found = search(ops, model, METHODS[methods])
        assert found.verdict == expected, (ops, model.kinds)
        verdicts[expected] += 1
    assert min(verdicts.values()) > HISTORIES // 20  # both kinds were asked about


SMALL: dict[str, Callable[[], Tabled]] = {
    "cas-register of 2": lambda: cas_register(2),
    "cas-register of 3": lambda: cas_register(3),
    "cas-register of 5": lambda: cas_register(5),
    "bag": lambda: bag(3),
    "two registers": two_registers,
    "semaphore": lambda: semaphore(3),
}


@pytest.mark.explore
@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("name", SMALL)
def test_all_methods_agree_with_every_order_of_the_same_histories(name: str) -> None:
    """Wide ones, of few values: what is certain of the future (foresight.c) and leaps matter there.
    One table serves them all, so that this costs little: SHALOTT_ORACLE_HISTORIES=100000."""
    rng = random.Random(f"same {name} {os.environ.get('SHALOTT_ORACLE_SEED', '1')}")
    model = SMALL[name]()
    verdicts = {True: 0, False: 0}
    with Asked(model) as table:
        for number in range(HISTORIES // 8 if name == "bag" else HISTORIES):  # a bag's take long
            crash = rng.choice([0, 0, 0.1, 0.4])
            ops = random_ops(rng, model, count=9, processes=rng.randint(2, 7), crash=crash, wrong=0)
            if number % 3:
                ops = stretched(rng, ops, model)
            expected = is_linearizable(ops, model)
            verdicts[expected] += 1
            made, found = columns(ops), ffi.new("shl_found *")
            for method, bits in METHODS.items():
                lib.shl_search(made.operations, table, bits, new_budget(), found)
                assert found.verdict == expected, (ops, model.kinds, method)
    print(name, verdicts)  # noqa: T201 -- shown by pytest -s, for a long run's record
    assert min(verdicts.values()) > HISTORIES // 200, verdicts


def stretched(rng: random.Random, ops: list[Op], model: Tabled) -> list[Op]:
    """With other intervals, some very long, and one or two other kinds: mostly just wrong."""
    moments = rng.sample(range(100), 2 * len(ops))
    made = []
    for at, op in enumerate(ops):
        first = moments[2 * at] if rng.random() < 0.3 else 10 * at + rng.random()
        lasts = rng.choice([0.5, 5, 15, 40, 90]) * rng.random()
        made.append((first, None if op.ret is None else first + lasts + 1e-6, op.kind))
    for _ in range(rng.choice([0, 1, 1, 2])):
        changed = rng.randrange(len(made))
        made[changed] = (*made[changed][:2], rng.randrange(len(model.kinds)))
    times = sorted(t for first, last, _ in made for t in (first, last) if t is not None)
    rank = {time: place for place, time in enumerate(times)}
    return sorted(Op(rank[a], None if b is None else rank[b], kind) for a, b, kind in made)


def kind(model: Tabled, f: str, a: int, b: int = 0) -> int:
    return model.kinds.index((f, a, b))


@pytest.mark.parametrize("methods", METHODS)
def test_a_crashed_operation_is_kept_for_where_no_weaker_one_will_do(methods: str) -> None:
    """From 2 to 1 it takes the crashed write, so from 0 to 1 it was the compare-and-set."""
    model = cas_register(3)
    crashed = [kind(model, "write", 1), kind(model, "cas", 0, 1)]
    done = [kind(model, "read", 1), kind(model, "write", 2), kind(model, "read", 1)]
    for first, second in (crashed, crashed[::-1]):
        ops = [Op(0, None, first), Op(1, None, second)]
        ops += [Op(2 * i + 2, 2 * i + 3, each) for i, each in enumerate(done)]
        assert is_linearizable(ops, model)
        assert search(ops, model, METHODS[methods]).verdict == lib.SHL_VALID
        ops += [Op(8, 9, kind(model, "write", 2)), Op(10, 11, kind(model, "read", 1))]
        assert not is_linearizable(ops, model)
        assert search(ops, model, METHODS[methods]).verdict == lib.SHL_INVALID


TOOLS = 40


def _tool_step(state: int, kind: tuple[str, int]) -> int | None:
    f, number = kind
    if f == "tool":
        return 0 if state < 0 else state + 1 if state == 2 * number else None
    if f == "gate":
        return state + 1 if state == 2 * number + 1 else None
    return state if state >= 0 else None  # started


@pytest.mark.parametrize("spare", [0, TOOLS - 1])
def test_a_long_chain_of_dead_ends_rules_out_nothing_else(spare: int) -> None:
    """Any tool will do to start, but each gate needs its own: only the spare one can be had."""
    gates = [number for number in range(TOOLS) if number != spare]
    kinds = [(f, number) for f in ("tool", "gate", "started") for number in range(TOOLS)]
    needed = {number: place for place, number in enumerate(gates)}
    model = Tabled(
        kinds,
        lambda state, kind: _tool_step(state, (kind[0], needed.get(kind[1], -1))),
        -1,
        lambda kind: kind[0] == "started",
    )
    done = [kinds.index(("started", 0)), *(kinds.index(("gate", number)) for number in gates)]
    for order in (range(TOOLS), range(TOOLS)[::-1]):
        ops = [Op(at, None, number) for at, number in enumerate(order)]
        ops += [Op(TOOLS + 2 * i, TOOLS + 2 * i + 1, each) for i, each in enumerate(done)]
        assert search(ops, model, METHODS["depth"]).verdict == lib.SHL_VALID


def test_the_methods_agree_where_many_operations_crashed() -> None:
    """Too long for every order, and with long chains of dead ends: each checks the other."""
    rng = random.Random("crashed")
    verdicts = {True: 0, False: 0}
    for _ in range(HISTORIES // 2):
        model = cas_register(3)
        ops = random_ops(rng, model, count=70, processes=5, crash=0.3, wrong=0.9)
        reads = [at for at, op in enumerate(ops) if op.ret and model.kinds[op.kind][0] == "read"]
        for at in rng.sample(reads, len(reads) // 2):
            ops[at] = ops[at]._replace(kind=kind(model, "read", rng.randrange(3)))
        found = {search(ops, model, METHODS[each]).verdict for each in ("depth", "layers")}
        assert len(found) == 1, (ops, found)
        verdicts[bool(found.pop())] += 1
    assert min(verdicts.values()) > HISTORIES // 20


@pytest.mark.explore
@pytest.mark.parametrize("extra", [62, 500])
def test_the_wide_searches_answer_the_same(extra: int) -> None:
    rng = random.Random(f"wide {extra}")
    for _ in range(HISTORIES // 10):
        model, ops = some_history(rng)
        expected = is_linearizable(ops, model)
        for methods in METHODS.values():
            assert search(widened(ops, model, extra), model, methods).verdict == expected


def test_too_many_pending_operations_are_refused() -> None:
    model = cas_register(2)
    found = search(widened([Op(0, 1, 0)], model, 5000), model, METHODS["all"])
    assert (found.verdict, found.cause) == (lib.SHL_UNKNOWN, lib.SHL_NOT_THIS_MONITOR)


@pytest.mark.explore
@pytest.mark.parametrize("methods", METHODS)
def test_first_means_the_shortest_prefix(methods: str) -> None:
    rng = random.Random(f"first {methods}")
    exact = 0
    for _ in range(HISTORIES):
        model, ops = some_history(rng)
        found = search(ops, model, METHODS[methods])
        if found.verdict != lib.SHL_INVALID:
            continue
        last = ops[found.stuck].ret
        assert last is not None
        assert not is_linearizable(prefix(ops, last), model)
        exact += found.first
        if found.first:
            assert is_linearizable(prefix(ops, last - 1), model)
    assert exact > 0


def hard_history() -> tuple[Tabled, list[Op]]:
    """Many writes at once, over and over, and at last a read of what they can't leave behind."""
    model = cas_register(40)
    rng, at, ops = random.Random(5), 0, list[Op]()
    for _ in range(30):
        kinds = rng.sample(range(1, 39), 20)
        ops += [Op(at + i, at + 40 + i, kind) for i, kind in enumerate(kinds)]
        at += 60
    ops.append(Op(at, at + 1, 40 + 39))
    ops.append(Op(at + 2, at + 3, 40))
    ranks = {
        rank: place
        for place, rank in enumerate(sorted(rank for op in ops for rank in (op.call, op.ret or 0)))
    }
    return model, [Op(ranks[op.call], ranks[op.ret or 0], op.kind) for op in ops]


@pytest.mark.explore
@pytest.mark.parametrize("methods", ["depth", "layers"])
def test_limits_are_obeyed(methods: str) -> None:
    model, ops = hard_history()
    limited = new_budget(memory_limit_bytes=20_000_000)
    found = search(ops, model, METHODS[methods], limited)
    assert (found.verdict, found.cause) == (lib.SHL_UNKNOWN, lib.SHL_MEMORY)
    assert 10_000_000 < limited.bytes_peak <= 20_000_000

    begin = time.monotonic()
    found = search(ops, model, METHODS[methods], new_budget(time_limit_s=0.4))
    assert (found.verdict, found.cause) == (lib.SHL_UNKNOWN, lib.SHL_TIME)
    assert time.monotonic() - begin >= 0.4


def test_another_thread_cancels_it() -> None:
    model, ops = hard_history()
    budget = new_budget(time_limit_s=60)
    made, found = columns(ops), ffi.new("shl_found *")
    with Asked(model) as table:
        running = threading.Thread(
            target=lib.shl_search,
            args=(made.operations, table, METHODS["depth"], budget, found),
        )
        running.start()
        while budget.steps == 0:  # it has begun
            time.sleep(0)
        budget.cancel = 1
        running.join(timeout=30)
        assert not running.is_alive()
    assert (found.verdict, found.cause) == (lib.SHL_UNKNOWN, lib.SHL_CANCELLED)
    assert budget.bytes == 0


def test_a_model_that_raises_stops_the_search() -> None:
    model = cas_register(2)
    model.step = lambda state, kind: 1 // 0
    made, found, budget = columns([Op(0, 1, 0)]), ffi.new("shl_found *"), new_budget()
    asked = Asked(model)
    with asked as table:
        lib.shl_search(made.operations, table, METHODS["all"], budget, found)
    assert (found.verdict, found.cause) == (lib.SHL_UNKNOWN, lib.SHL_MODEL_FAILED)
    assert isinstance(asked.error, ZeroDivisionError)


def test_a_kind_that_lies_about_being_pure_is_caught() -> None:
    model = cas_register(2)
    made, found, budget = columns([Op(0, 1, 1)]), ffi.new("shl_found *"), new_budget()
    with Asked(model, pure=[1] * len(model.kinds)) as table:
        lib.shl_search(made.operations, table, METHODS["all"], budget, found)
    assert (found.verdict, found.cause) == (lib.SHL_UNKNOWN, lib.SHL_MODEL_FAILED)


def test_each_question_is_asked_once() -> None:
    asked: list[tuple[object, object]] = []
    model = cas_register(3)
    answer = model.step

    def noted(state: object, kind: object) -> object:
        asked.append((state, kind))
        return answer(state, kind)

    model.step = noted
    rng = random.Random("once")
    made = [
        columns(random_ops(rng, model, count=60, processes=6, crash=0.1, wrong=0.5))
        for _ in range(20)
    ]
    asked.clear()
    with Asked(model) as table:
        for each in made:
            lib.shl_search(
                each.operations, table, METHODS["all"], new_budget(), ffi.new("shl_found *")
            )
        assert lib.shl_table_asked(table) == len(asked) == len(set(asked))


def test_ranks_put_an_invocation_before_a_completion_of_the_same_time() -> None:
    from shalott.checkers.engine import ranks

    never = np.iinfo(np.int64).max
    call, ret, count = ranks(
        np.array([0, 5, 5, 9], dtype=np.int64),
        np.array([5, never, 7, 9], dtype=np.int64),
        new_budget(),
    )
    assert (call.tolist(), ret.tolist(), count) == ([0, 1, 2, 5], [3, 2**31 - 1, 4, 6], 7)


def test_ranks_sort_completions_in_any_order() -> None:
    from shalott.checkers.engine import ranks

    rng = np.random.default_rng(3)
    for n in (0, 1, 31, 33, 1000, 5000):
        invoke = np.sort(rng.integers(0, n + 1, n))
        complete = invoke + rng.integers(0, n + 1, n)
        call, ret, count = ranks(invoke, complete, new_budget())
        assert count == 2 * n
        assert sorted([*call, *ret]) == list(range(2 * n))
        events = sorted(
            [(t, 0, r) for t, r in zip(invoke, call, strict=True)]
            + [(t, 1, r) for t, r in zip(complete, ret, strict=True)]
        )
        assert all(a[2] < b[2] for a, b in pairwise(events))


@pytest.mark.parametrize("spread", [10, 1 << 40])
def test_dense_ids_in_order_of_first_appearance(spread: int) -> None:
    rng = np.random.default_rng(spread)
    values = rng.integers(-spread, spread, 2000)
    present = (rng.random(2000) < 0.9).astype(np.uint8)
    ids, first = np.zeros(2000, dtype=np.int32), np.zeros(2000, dtype=np.int32)
    count = lib.shl_dense(
        2000, column(values), column(present), column(ids), column(first), new_budget()
    )
    seen: dict[int, int] = {}
    for value, there, number in zip(values.tolist(), present, ids, strict=True):
        assert number == (seen.setdefault(value, len(seen)) if there else -1)
    assert count == len(seen)
    assert [int(values[row]) for row in first[:count]] == list(seen)
