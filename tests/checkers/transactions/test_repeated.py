"""Values that are written twice: who wrote one can't be told, and so nothing is concluded from its
key. What is proved without that key is proved; what only seems wrong is unknown."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping
from dataclasses import replace

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.judge import Limits, make_judge
from shalott.checkers.reading.entries import EntrySource
from tests.checkers.transactions.histories import SEMANTICS, History, Mop, Transaction, edn
from tests.checkers.transactions.histories import in_order as one_by_one
from tests.checkers.transactions.mutations import CASES, Case, disturbed, planted
from tests.checkers.transactions.oracle import STATE_LEVELS, kept_by_states
from tests.checkers.transactions.sound import DATABASES, Clients, run

pytestmark = pytest.mark.unit

# Serializable in this order, and accused of something if values were taken for unique.
REPEATED: Mapping[str, list[Transaction]] = {
    "list-append": one_by_one(
        (("append", "7", 1),), (("append", "7", 1),), (("r", "7", (1, 1)),)
    ),
    "rw-register": one_by_one(
        (("r", "7", None), ("w", "7", 1)),
        (("r", "7", 1), ("w", "7", 2)),
        (("r", "7", 2), ("w", "7", 1)),
        (("r", "7", 1), ("w", "7", 3)),
    ),
}  # fmt: skip


def judged(history: History, semantics: str, options: str = "") -> Result:
    judge = make_judge(f"{semantics}:{options}" if options else semantics)
    return judge.judge(EntrySource.of_text(edn(history).encode()), Limits())


@pytest.mark.parametrize("semantics", SEMANTICS)
def test_what_only_seems_wrong_is_unknown_and_the_keys_are_named(semantics: str) -> None:
    result = judged(REPEATED[semantics], semantics)
    assert result.valid == "unknown" and not result.anomalies
    assert any("Undecided is what concerns key 7, to which" in note for note in result.notes)
    assert result.detail["violated"] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_anomaly_of_other_keys_is_found_beside_it(case: Case) -> None:
    options = f"{case.options}=true" if case.options else ""
    rng = random.Random(case.name)
    traffic = REPEATED[case.semantics]
    result = judged(planted(case, traffic, rng), case.semantics, options)
    assert result.valid is False
    assert case.kind in result.detail["anomaly-types"]
    assert "key 7, to which a value was written more than once" in " ".join(result.notes)
    assert not any("key 7" in each.summary for each in result.anomalies)
    sound = planted(case, traffic, rng, sound=True)
    assert judged(sound, case.semantics, options).valid == "unknown"


@pytest.mark.parametrize("semantics", SEMANTICS)
def test_many_keys_are_counted_and_the_first_named(semantics: str) -> None:
    many = []
    for at in range(11):
        moved = [
            (f, f"{70 + at}", value) for each in REPEATED[semantics] for f, _, value in each.mops
        ]
        many += [(mop,) for mop in moved] if semantics == "list-append" else [
            tuple(moved[i : i + 2]) for i in range(0, len(moved), 2)
        ]  # fmt: skip
    result = judged(one_by_one(*many), semantics)
    assert result.valid == "unknown"
    told = " ".join(result.notes)
    assert "keys 70, 71, 72, 73, 74, 75, 76, 77 and 3 more, to which" in told, told


# --- beside trying all orders ---------------------------------------------------------------------


def repeated(history: History, rng: random.Random) -> list[Transaction]:
    """One value of a key becomes another one that was written to it, wherever it stands."""
    writes = [mop for each in history for mop in each.mops if mop[0] != "r"]
    _, key, old = rng.choice(writes)
    new = rng.choice([mop[2] for mop in writes if mop[1] == key])

    def renamed(mop: Mop) -> Mop:
        f, at, value = mop
        if at != key:
            return mop
        if isinstance(value, tuple):
            return f, at, tuple(_other(each, old, new) for each in value)
        return f, at, _other(value, old, new)

    return [replace(each, mops=tuple(map(renamed, each.mops))) for each in history]


def _other(value: Hashable, old: Hashable, new: Hashable) -> Hashable:
    return new if value == old else value


def hold_to_the_oracle(count: int, seed: str) -> dict[str, int]:
    """No level of states is accused that holds. Values that repeat are no riddle to the oracle."""
    tally = {"contested": 0, "invalid": 0, "unknown": 0}
    for at in range(count):
        semantics = SEMANTICS[at % 2]
        rng = random.Random(f"{seed} {at}")
        make, _ = DATABASES[rng.choice(list(DATABASES))]
        clients = Clients(
            transactions=rng.randint(3, 5), keys=rng.randint(2, 3), crash=rng.choice((0.0, 0.1)),
            read_all=rng.random() < 0.5,
        )  # fmt: skip
        history = run(make, semantics, rng, clients)
        if len(history) > 6 or not any(mop[0] != "r" for each in history for mop in each.mops):
            continue
        history = repeated(disturbed(history, semantics, rng), rng)
        kept = kept_by_states(history, semantics)
        for model in STATE_LEVELS:
            result = judged(history, semantics, f"consistency={model}")
            assert not (model in kept and result.valid is False), f"{model}\n{edn(history)}"
            if "written more than once" in " ".join(result.notes):
                tally["contested"] += 1
                tally["invalid"] += result.valid is False
                tally["unknown"] += result.valid == "unknown"
        violated = {*result.detail["violated"], *result.detail["also-violated"]}
        assert not violated & kept, f"{sorted(violated & kept)}\n{edn(history)}"
    return tally


def test_small_histories_with_repeated_values_are_never_accused_wrongly() -> None:
    tally = hold_to_the_oracle(50, "day")
    assert tally["invalid"] > 5 and tally["unknown"] > 5, tally


@pytest.mark.nightly("20,000 histories take some minutes")
def test_many_histories_with_repeated_values_are_never_accused_wrongly() -> None:
    hold_to_the_oracle(20_000, "night")
