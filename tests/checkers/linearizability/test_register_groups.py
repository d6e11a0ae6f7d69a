"""Registers that no operation touches together are objects of their own, and judged as all at
once would be."""

from __future__ import annotations

import random
import time
from collections.abc import Hashable, Sequence

import pytest

from shalott.checkers.history.concurrent import ConcurrentHistory, Row, from_rows
from shalott.checkers.linearizability.checking import check, explain
from shalott.checkers.linearizability.register_groups import by_group
from shalott.checkers.models import make_model
from tests.checkers.oracle import is_linearizable
from tests.checkers.random_histories import mutated, random_history

pytestmark = pytest.mark.unit


def sequential(*operations: tuple[str, Hashable, Hashable]) -> ConcurrentHistory:
    return from_rows(
        Row(0, f, argument, result, 2 * at, 2 * at + 1)
        for at, (f, argument, result) in enumerate(operations)
    )


def groups_of(history: ConcurrentHistory) -> list[str]:
    found = by_group(history)
    return [found.key.names[code] for code in found.key.codes]


def test_each_register_that_is_touched_alone_is_an_object() -> None:
    history = sequential(
        ("write", (("x", 1),), None),
        ("txn", (("r", "y", None), ("w", "y", 2)), (("r", "y", None), ("w", "y", 2))),
        ("read", None, (("x", 1),)),
        ("read", None, ()),
    )
    assert groups_of(history) == ["x", "y", "x", "x"]
    assert check(history, "multi-register").valid is True


def test_what_one_operation_joins_stays_together_also_by_way_of_others() -> None:
    joined = sequential(
        ("write", (("x", 1), ("y", 1)), None),
        ("read", None, (("y", 1), ("z", None))),
        ("write", (("w", 1),), None),
    )
    assert groups_of(joined) == ["x, y, z", "x, y, z", "w"]
    one = sequential(("write", (("x", 1), ("y", 1)), None), ("read", None, (("y", 1),)))
    assert by_group(one) is one


def test_an_operation_that_certainly_did_not_happen_joins_nothing() -> None:
    rows = [
        Row(0, "write", (("x", 1), ("y", 1)), None, 0, 1, "fail"),
        Row(0, "write", (("x", 2),), None, 2, 3),
        Row(0, "write", (("y", 2),), None, 4, 5),
    ]
    assert groups_of(from_rows(rows))[1:] == ["x", "y"]


def test_keys_of_the_history_are_told_apart_before_names() -> None:
    rows = [
        Row(0, "write", (("x", 1),), None, 0, 1, key="a"),
        Row(0, "write", (("x", 2),), None, 2, 3, key="b"),
        Row(0, "write", (("y", 2),), None, 4, 5, key="b"),
    ]
    assert groups_of(from_rows(rows)) == ["a", "b x", "b y"]


def test_values_that_are_none_of_registers_are_left_to_the_model() -> None:
    odd = sequential(("write", 7, None), ("write", (("x", 1),), None))
    assert by_group(odd) is odd


def test_a_violation_names_the_register_and_is_explained() -> None:
    history = sequential(
        ("write", (("x", 1),), None), ("write", (("y", 1),), None), ("read", None, (("x", 2),))
    )
    verdict = check(history, "multi-register")
    assert verdict.valid is False and verdict.judged is not None
    assert verdict.violation is not None
    assert verdict.violation.key == "x"
    assert explain(history, verdict, "multi-register").reason


# --- beside every order ---------------------------------------------------------------------------


def alone(row: Row, rng: random.Random) -> Row:
    """Of what it touches, one register only."""
    words = [value for value in (row.argument, row.result) if isinstance(value, tuple)]
    place = 1 if row.f == "txn" else 0
    name = rng.choice([each[place] for value in words for each in value])

    def only(value: Hashable) -> Hashable:
        if not isinstance(value, tuple):
            return value
        return tuple(each for each in value if each[place] == name)

    return row._replace(argument=only(row.argument), result=only(row.result))


def hold_to_every_order(count: int, seed: str) -> tuple[int, int]:
    """How many were invalid, and how many were told apart."""
    model, invalid, split = make_model("multi-register"), 0, 0
    for at in range(count):
        rng = random.Random(f"{seed} {at}")
        rows: Sequence[Row] = random_history("multi-register", rng, operations=rng.randint(4, 8))
        part = rng.choice((0.0, 0.5, 1.0))
        rows = [row if rng.random() < part else alone(row, rng) for row in rows]
        rows = mutated(rows, rng) if at % 2 else rows
        history = from_rows(rows)
        expected = is_linearizable(rows, model)
        assert check(history, model).valid == expected, rows
        invalid += not expected
        split += by_group(history) is not history
    return invalid, split


def test_it_agrees_with_every_order() -> None:
    invalid, split = hold_to_every_order(200, "day")
    assert invalid > 20 and split > 50


@pytest.mark.nightly("100,000 histories take minutes")
def test_it_agrees_with_every_order_of_many() -> None:
    hold_to_every_order(100_000, "night")


# --- many clients ---------------------------------------------------------------------------------


def busy(operations: int, clients: int) -> list[Row]:
    """All clients are always in an operation on one of three registers, some for very long."""
    rng = random.Random("busy")
    spans = []
    for client in range(clients):
        at = rng.random()
        for _ in range(operations // clients):
            ret = at + rng.expovariate(1.0)
            spans.append((at + rng.random() * (ret - at), at, ret, client))
            at = ret + 1e-9
    ranks = {at: rank for rank, at in enumerate(sorted(t for s in spans for t in s[1:3]))}
    held: dict[str, int] = {}
    rows = []
    for _, call, ret, client in sorted(spans):
        name, word = rng.choice("xyz"), rng.choice("rw")
        if word == "w":
            held[name] = rng.randrange(3)
        asked = (word, name, held[name] if word == "w" else None)
        seen = (word, name, held.get(name))
        rows.append(Row(client, "txn", (asked,), (seen,), ranks[call], ranks[ret]))
    return sorted(rows, key=lambda row: row.call)


def test_fifty_clients_on_three_registers_are_decided() -> None:
    """Taken together it is unknown after a minute."""
    history = from_rows(busy(10_000, 50))
    began = time.process_time()
    assert check(history, "multi-register", time_limit_s=30).valid is True
    assert time.process_time() - began < 5
