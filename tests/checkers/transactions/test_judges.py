"""The judges of transactions find what is planted, accuse nothing else, and keep their limits."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.judge import Limits, find_judge, make_judge
from shalott.checkers.reading.entries import JSON, EntrySource
from shalott.checkers.reading.shape import Shape
from shalott.checkers.transactions import lattice
from shalott.core.errors import UsageError
from tests.checkers.transactions.histories import SEMANTICS, History, Semantics, edn
from tests.checkers.transactions.mutations import CASES, Case, disturbed, planted
from tests.checkers.transactions.oracle import LEVELS, levels_kept
from tests.checkers.transactions.sound import DATABASES, Clients, run

pytestmark = pytest.mark.unit

NO_LIMITS = Limits()
STRICT = ("strict-serializable", "serializable", "snapshot-isolation")


def judged(history: History | str, semantics: str, options: str = "") -> Result:
    text = history if isinstance(history, str) else edn(history)
    judge = make_judge(f"{semantics}:{options}" if options else semantics)
    return judge.judge(EntrySource.of_text(text.encode()), NO_LIMITS)


def options_of(case: Case) -> str:
    return f"{case.options}=true" if case.options else ""


# --- what is planted ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_planted_anomaly_is_found_and_its_sound_relative_is_not_accused(case: Case) -> None:
    alone = judged(case.transactions(), case.semantics, options_of(case))
    assert alone.valid is False
    assert case.kind in alone.detail["anomaly-types"]
    assert judged(case.transactions(sound=True), case.semantics, options_of(case)).valid is True


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_found_in_the_midst_of_other_traffic(case: Case) -> None:
    rng = random.Random(case.name)
    make, _ = DATABASES["locks"]
    traffic = run(make, case.semantics, rng, Clients(transactions=40, crash=0.02))
    assert judged(traffic, case.semantics, options_of(case)).valid is True
    bad = judged(planted(case, traffic, rng), case.semantics, options_of(case))
    assert case.kind in bad.detail["anomaly-types"]
    sound = planted(case, traffic, rng, sound=True)
    assert judged(sound, case.semantics, options_of(case)).valid is True


# --- what is drawn at random ----------------------------------------------------------------------


def drawn(seed: str, semantics: Semantics) -> History:
    rng = random.Random(seed)
    make, _ = DATABASES[rng.choice(list(DATABASES))]
    clients = Clients(
        transactions=rng.randint(2, 4),
        keys=rng.randint(1, 3),
        crash=rng.choice((0.0, 0.1)),
        read_all=rng.random() < 0.5,
    )
    history = run(make, semantics, rng, clients)
    return disturbed(history, semantics, rng) if rng.random() < 0.5 else history


def hold_to_the_oracle(count: int, seed: str) -> dict[str, int]:
    """Nothing is accused that holds. Returns how often a level does not hold, and how often that
    is missed."""
    tally = {"broken": 0, "missed": 0, "kept": 0}
    for at in range(count):
        semantics = SEMANTICS[at % 2]
        history = drawn(f"{seed} {at}", semantics)
        if len(history) > 6:
            continue
        kept = levels_kept(history, semantics)
        first = judged(history, semantics)
        violated = {*first.detail["violated"], *first.detail["also-violated"]}
        assert not violated & kept, f"{sorted(violated & kept)}\n{edn(history)}"
        for model in STRICT:
            verdict = judged(history, semantics, f"consistency={model}").valid
            assert not (model in kept and verdict is False), f"{model}\n{edn(history)}"
            tally["kept"] += model in kept
            tally["broken"] += model not in kept
            tally["missed"] += model not in kept and verdict is not False
    return tally


def test_small_histories_are_judged_as_by_trying_all_orders() -> None:
    tally = hold_to_the_oracle(100, "small")
    assert tally["broken"] > 15 and tally["kept"] > 150
    assert tally["missed"] <= 2  # versions of registers, and unseen appends, have several orders


@pytest.mark.nightly("20,000 histories take three minutes")
def test_many_small_histories_are_judged_as_by_trying_all_orders() -> None:
    tally = hold_to_the_oracle(20_000, "night")
    assert tally["missed"] <= tally["broken"] / 100


def test_what_all_saw_is_decided_exactly() -> None:
    """Lists that are all read at the end, nothing crashed: no level is missed."""
    for at in range(50):
        rng = random.Random(f"exact {at}")
        make, _ = DATABASES[rng.choice(list(DATABASES))]
        clients = Clients(transactions=3, keys=2, crash=0.0, read_all=True)
        history = disturbed(run(make, "list-append", rng, clients), "list-append", rng)
        if any(each.type == "info" for each in history):
            continue
        kept = levels_kept(history, "list-append")
        for model in STRICT:
            verdict = judged(history, "list-append", f"consistency={model}").valid
            assert (verdict is False) == (model not in kept), f"{model}\n{edn(history)}"


# --- what is asked for ----------------------------------------------------------------------------

SKEW = next(case for case in CASES if case.kind == "G2-item" and case.semantics == "list-append")


def test_what_a_model_allows_is_told_and_not_held_against_it() -> None:
    result = judged(SKEW.transactions(), "list-append", "consistency=snapshot-isolation")
    assert result.valid is True
    assert any("also seen" in note and "G2-item" in note for note in result.notes)
    several = judged(SKEW.transactions(), "list-append", "consistency=read-committed+PL-3")
    assert several.valid is False


def test_names_are_checked_before_anything_is_read() -> None:
    for options in ("consistency=stricct", "anomalies=G17", "consistency=serializable+nothing"):
        with pytest.raises(UsageError, match="no consistency model|no anomaly"):
            make_judge(f"list-append:{options}")
    with pytest.raises(UsageError, match="initial"):
        make_judge("rw-register:initial=1")


def test_a_value_that_none_wrote_is_noted_or_taken_for_the_first() -> None:
    stale = edn(CASES_BY_NAME["stale"])
    assert any("no transaction wrote the 7" in each for each in judged(stale, "rw-register").notes)
    assert judged(stale, "rw-register").valid is True
    assert judged(stale, "rw-register", "initial=unwritten").valid is False


CASES_BY_NAME = {
    "stale": Case("", "", "rw-register", "0 0-1 x=1 / 1 2-3 x~7", ("x~7", "x~1")).transactions()
}


def test_two_writers_of_one_value_make_it_unknown() -> None:
    twice = Case("", "", "list-append", "0 0? x+1 / 1 2-3 x+1 / 2 4-5 x[1]", ("[1]", "[1]"))
    result = judged(twice.transactions(), "list-append")
    assert result.valid == "unknown"
    assert "several transactions may have written" in result.notes[0]


# --- what is said ---------------------------------------------------------------------------------


def test_a_cycle_is_told_edge_by_edge_and_drawn() -> None:
    anomaly = judged(SKEW.transactions(), "list-append").anomalies[0]
    argument = anomaly.detail["argument"]
    assert argument[0].startswith("T1 is [[:r ")
    assert any(each.startswith("T1 comes before T2, because T1 read ") for each in argument)
    assert argument[-2].startswith("But T2 comes before T1, because ")
    picture = ElementTree.fromstring(anomaly.detail["drawing"])
    texts = [each.text or "" for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"T1: index 3, process 0", "T2: index 4, process 1"} <= {*texts}
    assert sum(text.startswith("rw ") for text in texts) == 2


def test_json_and_any_keys_and_values_are_told_as_they_are_written() -> None:
    entries = [
        {"type": "ok", "process": 0, "f": "txn", "value": [["append", {"a": 1}, "one"]]},
        {"type": "ok", "process": 1, "f": "txn", "value": [["append", {"a": 1}, [2, None]]]},
        {"type": "ok", "process": 2, "f": "txn", "value": [["r", {"a": 1}, ["one", [2, None]]]]},
        {"type": "ok", "process": 3, "f": "txn", "value": [["r", {"a": 1}, [[2, None]]]]},
    ]
    text = "\n".join(json.dumps(each) for each in entries)
    result = make_judge("list-append").judge(EntrySource.of_text(text.encode(), JSON), NO_LIMITS)
    assert result.valid is False
    told = result.anomalies[0].summary
    assert '["one", [2, null]]' in told and '"a": 1' in told, told


def test_entries_of_another_kind_are_left_out_with_a_note() -> None:
    text = edn(SKEW.transactions(sound=True)) + (
        "{:type :invoke, :process 9, :f :read, :value 3}\n"
        "{:type :ok, :process 9, :f :txn, :value [[:w 1 2]]}\n"
    )
    result = judged(text, "list-append")
    assert result.valid is True
    assert any("2 entries are no transactions of lists" in note for note in result.notes)
    assert judged("{:type :ok, :process 0, :f :read, :value 1}\n", "list-append").valid == "unknown"


def test_they_want_the_histories_that_are_theirs() -> None:
    def shape(*mops: str) -> Shape:
        return Shape(fs={"txn": 1}, mops={name: frozenset() for name in mops})

    wants = {name: find_judge(name).wants for name in ("list-append", "rw-register")}
    assert wants["list-append"](shape("r", "append")) and not wants["list-append"](shape("r", "w"))
    assert wants["rw-register"](shape("r", "w")) and not wants["rw-register"](shape("r"))
    assert not any(wants[name](shape("send", "poll")) for name in wants)


# --- limits ---------------------------------------------------------------------------------------


def test_a_limit_makes_it_unknown() -> None:
    make, _ = DATABASES["locks"]
    history = run(make, "list-append", random.Random(7), Clients(transactions=400, keys=5))
    source = EntrySource.of_text(edn(history).encode())
    for limits in (Limits(memory_limit_bytes=40_000), Limits(time_limit_s=1e-9)):
        result = make_judge("list-append").judge(source, limits)
        assert result.valid == "unknown" and result.notes[0].startswith("It was not decided")
    for kilobytes in range(20, 400, 7):
        limits = Limits(memory_limit_bytes=kilobytes * 1000)
        assert make_judge("list-append").judge(source, limits).valid in (True, "unknown")


# --- the lattice ----------------------------------------------------------------------------------


def test_the_lattice_is_one_of_known_names_without_circles() -> None:
    for model, weaker in lattice.MODELS.items():
        assert {*weaker} <= {*lattice.MODELS}, model
        assert model not in lattice.weakest(frozenset(lattice.MODELS)) or not weaker
    assert {*lattice.RULED_OUT} <= {*lattice.MODELS}
    assert {*LEVELS} <= {*lattice.MODELS}
    for kind in lattice.ANOMALIES:
        assert lattice.STRICT in lattice.violated_by([kind]), kind


@pytest.mark.parametrize(
    ("anomaly", "weakest"),
    [
        ("G0", "read-uncommitted"),
        ("G1a", "read-committed"),
        ("G-single", "consistent-view parallel-snapshot-isolation"),
        ("G-nonadjacent", "snapshot-isolation"),
        ("lost-update", "cursor-stability update-atomic"),
        ("internal", "read-atomic"),
        ("cyclic-versions", "read-uncommitted"),
        ("G-single-realtime", "strong-snapshot-isolation"),
        ("G-SI", "snapshot-isolation"),
    ],
)
def test_what_an_anomaly_rules_out(anomaly: str, weakest: str) -> None:
    assert lattice.weakest(lattice.violated_by([anomaly])) == tuple(weakest.split())
