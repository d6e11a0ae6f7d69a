"""Transactions over sets that grow: beside trying all orders, and what is planted."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.judge import Limits, make_judge
from shalott.checkers.reading.entries import EntrySource
from tests.checkers.transactions.histories import Transaction, edn
from tests.checkers.transactions.mutations import LIST_CASES, Case, disturbed
from tests.checkers.transactions.sound import DATABASES, Clients, run

pytestmark = pytest.mark.unit

# Adds have no order: no edge of ww.
KINDS = (
    "G1c-process", "G1c-realtime", "G-single-item", "G-single-item-process",
    "G-single-item-realtime", "G-nonadjacent-item", "G-nonadjacent-item-process",
    "G-nonadjacent-item-realtime", "G2-item", "G2-item-process", "G2-item-realtime", "internal",
    "future-read", "G1a",
)  # fmt: skip
PLANTED = [case for case in LIST_CASES if case.kind in KINDS and "second" not in case.name]


def judged(history: Sequence[Transaction], consistency: str = "strict-serializable") -> Result:
    text = edn(history).replace(":append", ":add")
    judge = make_judge(f"add-read:consistency={consistency}")
    return judge.judge(EntrySource.of_text(text.encode()), Limits())


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.name)
def test_what_is_planted_is_found_and_its_relative_is_sound(case: Case) -> None:
    assert case.kind in judged(case.transactions()).detail["anomaly-types"]
    assert judged(case.transactions(sound=True)).valid is True


def is_serial(history: Sequence[Transaction]) -> bool:
    """Whether some order of the transactions explains what each read, its own adds included."""

    def explains(order: Sequence[Transaction]) -> bool:
        sets: dict[str, set[object]] = {}
        for f, key, value in (mop for each in order for mop in each.mops):
            there = sets.setdefault(key, set())
            if f == "append":
                there.add(value)
            elif set(value if isinstance(value, tuple) else ()) != there:
                return False
        return True

    happened = [each for each in history if each.type == "ok"]
    return any(explains(order) for order in itertools.permutations(happened))


def test_small_histories_are_judged_as_by_trying_all_orders() -> None:
    seen = set()
    for at in range(400):
        rng = random.Random(f"sets {at}")
        make, _ = DATABASES[rng.choice(list(DATABASES))]
        clients = Clients(transactions=rng.randint(2, 5), keys=2, crash=0.0)
        history = disturbed(run(make, "list-append", rng, clients), "list-append", rng)
        if any(each.type == "info" for each in history):
            continue
        wanted = is_serial(history)
        result = judged(history, "serializable")
        assert (result.valid is False) == (not wanted), f"{result}\n{edn(history)}"
        seen.add(wanted)
    assert seen == {True, False}


def test_reads_that_are_no_chain_are_told_apart() -> None:
    forks = "0 0-9 x+1 / 1 0-9 x+2 / 2 0-9 x[1] / 3 0-9 x[2] / 4 0-9 x[1,2]"
    case = Case("", "", "list-append", forks, ("x[2]", "x[1,2]"))
    result = judged(case.transactions(), "parallel-snapshot-isolation")
    assert result.detail["seen"] == ["G-nonadjacent-item"] and result.valid is True
    assert judged(case.transactions(), "snapshot-isolation").valid is False
    assert judged(case.transactions(sound=True)).valid is True


def test_a_large_set_is_read_in_parts_of_what_came_at_once() -> None:
    """The chain is divided where a later read has only a part of what an earlier one added."""
    adds = " / ".join(f"{at} 0-9 x+{at}" for at in range(1, 9))
    reads = ("1,2,3,4,5,6,7,8", "7,3", "3", "3,7,1,2,8", "7,3,1,8")
    told = " / ".join(f"{20 + at} 0-9 x[{read}]" for at, read in enumerate(reads))
    case = Case("", "", "list-append", f"{adds} / {told}", ("x[3] ", "x[7] "))
    assert judged(case.transactions()).valid is True
    crossed = f"{adds} / {told} / 30 0-9 x[7,3,1,2]"
    bad = judged(Case("", "", "list-append", crossed, ("x[3] ", "x[7] ")).transactions())
    assert bad.detail["anomaly-types"] == ["G-nonadjacent-item"]
