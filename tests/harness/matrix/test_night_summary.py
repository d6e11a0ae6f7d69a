"""A night's summary as text: a cell is one block, its cause first; what is expected is told."""

from __future__ import annotations

import msgspec
import pytest

from shalott.checkers.checker import Result
from shalott.harness.matrix.cell_names import split_key
from shalott.harness.matrix.cells import Cell
from shalott.harness.matrix.night_summary import NightSummary, summarise, summary_lines
from shalott.harness.matrix.run_outcomes import CellNight, EarlierNights, Outcome
from shalott.harness.report.results import MAY_CHANGE_NOTHING, notes_that_apply
from shalott.harness.run.request import Request

pytestmark = pytest.mark.unit

KINDS = ("reordered", "lost-write", "shared-offset", "inconsistent-offsets", "stale-read")


def cell(key: str, **said: object) -> Cell:
    return Cell(**{"key": key, "request": Request(), "seeds": (1, 2), **said})  # type: ignore[arg-type]


def red(key: str, seed: int, turn: str = "first", kinds: tuple[str, ...] = KINDS) -> Outcome:
    return Outcome(
        cell=key, seed=seed, turn=turn, verdict="invalid", kinds=kinds, run=f"{key}/{seed}{turn}",
        headline="Invalid: 180 acknowledged messages were lost.", command="shalott test --seed 1",
    )  # fmt: skip


def told(cells: list[Cell], outcomes: list[Outcome], *nights: CellNight) -> NightSummary:
    facts = summarise(
        cells, outcomes, EarlierNights({"a/kill": list(nights)}, {}), repeat=1,
        due=[(each.key, seed) for each in cells for seed in each.seeds],
        fail_on=("new", "known", "flaky"),
    )  # fmt: skip
    common = {
        "matrix": "m", "night": "n", "digest": "", "shards": (1,), "of_shards": 1,
        "started_wall_ns": 0, "spent_s": 0.0, "over": True, "why": "", "commit": "",
    }  # fmt: skip
    return msgspec.convert({**common, **facts}, NightSummary, from_attributes=True)


def test_one_run_with_five_kinds_is_one_block() -> None:
    outcomes = [red("a/kill", 1), Outcome(cell="a/kill", seed=2, verdict="valid")]
    outcomes += [red("a/kill", 1, f"again {n}") for n in (1, 2, 3)]
    summary = told([cell("a/kill")], outcomes)
    assert len(summary.findings) == 5  # as before: summary.json has each kind
    lines = list(summary_lines(summary))
    assert [line for line in lines if "Invalid: 180" in line] == [
        "    Invalid: 180 acknowledged messages were lost."
    ]
    (head,) = [line for line in lines if line.startswith("  a/kill")]
    assert head.startswith("  a/kill: 1 of 2 runs (") and "run again, 3 of 3 (" in head
    assert "seed 1" in head
    (kinds,) = [line for line in lines if line.startswith("    new: ")]
    assert kinds.startswith("    new: lost-write, ") and all(kind in kinds for kind in KINDS)
    assert sum("shalott test" in line for line in lines) == 1


def test_a_cell_with_new_and_known_kinds_is_among_the_new() -> None:
    before = CellNight("n0", 0, {1: [("lost-write",)]}, {"invalid": 1})
    outcomes = [red("a/kill", 1, kinds=("lost-write", "reordered"))]
    lines = list(summary_lines(told([cell("a/kill", seeds=(1,))], outcomes, before)))
    assert "New (1):" in lines and "Known (1):" not in lines
    assert "    new: reordered" in lines and "    known: lost-write (seen in n0)" in lines


def test_what_may_be_invalid_is_told_as_expected() -> None:
    cells = [cell("a/upstream", seeds=(1,), expect=("valid", "invalid"))]
    summary = told(cells, [red("a/upstream", 1)])
    lines = list(summary_lines(summary))
    assert summary.exit_code == 0 and "All of it is as expected." in lines
    assert "Expected: 1 run that is not valid, as the file says of a/upstream." in lines


@pytest.mark.parametrize(
    ("key", "what", "faults"),
    [
        ("m/safe/sim/queue/kill+pause", ("m", "safe", "sim", "queue"), "kill+pause"),
        ("m/safe/sim/queue/none@a/b", ("m", "safe", "sim", "queue", "a/b"), "none"),
        ("a/kill", ("a",), "kill"),
        ("alone", ("alone",), ""),
    ],
)  # fmt: skip
def test_a_key_says_what_ran_and_what_broke_it(
    key: str, what: tuple[str, ...], faults: str
) -> None:
    assert split_key(key) == (what, faults)


def test_a_doubt_about_faults_is_not_told_where_they_did_something() -> None:
    notes = (f"Too short: {MAY_CHANGE_NOTHING}.", "another")
    lost = Result(checker="total-queue", valid=False)
    seen = Result(checker="noticed", valid=True, counts={"noticed-fault-count": 3})
    unseen = Result(checker="noticed", valid=True, counts={"noticed-fault-count": 0})
    assert notes_that_apply(notes, [lost, unseen]) == ("another",)
    assert notes_that_apply(notes, [seen]) == ("another",)
    assert notes_that_apply(notes, [unseen]) == notes
