"""Measuring mutants: what is found, what is not, what proves nothing, and what goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from shalott.harness.cli.main import run_command
from shalott.harness.cli.mutants import INTERRUPTED, measure_all
from shalott.harness.mutants import measuring
from shalott.harness.mutants.catalogue import find_mutants
from shalott.harness.mutants.measuring import Measurement, measure, measure_control
from shalott.harness.mutants.outcomes import PLACE, RESULTS, Outcome, Outcomes, sentence
from shalott.harness.run.simulate import simulate
from shalott.harness.search.run_search import Tally
from tests.world.harness.toy_simulation import simulate_epochs

KEPT = "controller/rocket.autoswitch.epochs/without_suffix/by-hand/empty-epoch-kept"
ELSEWHERE = "controller/rocket.autoswitch.epochs/consistent_point/by-hand/cut-at-longer-log"


def toy(store: Path, budget_s: float = 0.1) -> Measurement:
    """A run takes 0.01 s of CPU time."""
    return Measurement(store=store, simulate=simulate_epochs, budget_s=budget_s, seeds="1-50")


def outcome_of(name: str, asked: Measurement) -> Outcome:
    (mutant,) = find_mutants("", name, "")
    outcome = measure(asked, mutant)
    assert outcome is not None
    return outcome


@pytest.mark.explore
def test_it_is_found_by_a_run_that_is_sound_without_it(tmp_path: Path) -> None:
    outcome = outcome_of(KEPT, toy(tmp_path))
    assert outcome.seed == 4
    assert (outcome.classes, outcome.checkers) == (("lost",), ("toy-queue",))
    assert outcome.workload == "elections"
    assert outcome.void == (3,)
    assert outcome.failed == 1
    assert "KeyError: 'no such thing'" in outcome.failure
    assert (outcome.ran, outcome.entered) == (3, 2)  # without the void one
    assert outcome.counts


@pytest.mark.explore
def test_one_that_no_run_comes_to_survives_until_its_time_is_over(tmp_path: Path) -> None:
    outcome = outcome_of(ELSEWHERE, toy(tmp_path))
    assert not outcome.is_found
    assert 10 <= outcome.ran < 20
    assert outcome.void == (3,)
    assert outcome.entered == 0
    assert "a workload is missing" in sentence(outcome)
    control = measure_control(toy(tmp_path), "controller")
    assert control is not None
    assert control.void == (3,)
    assert not control.counts


@pytest.mark.explore
def test_the_command_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [*find_mutants("", KEPT), *find_mutants("", ELSEWHERE)]
    asked = toy(tmp_path, 1)

    class Interrupts(measuring.Quiet):
        """In the midst of the second mutant."""

        def show(self, tally: Tally) -> None:
            if tally.wanted > 46 and tally.done >= 5:
                os.kill(os.getpid(), signal.SIGINT)

    def run(console: Console) -> int:
        return measure_all(asked, chosen, Outcomes(tmp_path), console)

    console = Console(record=True, width=200)
    monkeypatch.setattr(measuring, "Quiet", Interrupts)
    assert run(console) == INTERRUPTED
    assert "the same command goes on" in console.export_text()
    assert list(Outcomes(tmp_path).by_name) == [KEPT]
    monkeypatch.undo()
    campaign = tmp_path / PLACE / "search" / ELSEWHERE / "campaign.jsonl"
    before = campaign.read_bytes()
    assert before.count(b'"line":"seed"') >= 5
    assert run(console) == 0
    assert campaign.read_bytes().startswith(before)
    lines = (tmp_path / PLACE / RESULTS).read_bytes()
    assert lines.count(b"\n") == 3  # each once, and the control
    assert Outcomes(tmp_path).by_name[ELSEWHERE].ran == 49
    assert run(console) == 0
    assert (tmp_path / PLACE / RESULTS).read_bytes() == lines


@pytest.mark.unit
def test_a_measurement_holds_for_its_code_text_seeds_and_budget() -> None:
    (mutant,) = find_mutants("", KEPT)
    kept = Outcome(
        name=KEPT, system="controller", operator="by-hand", breaks="", code="c", seeds="1-50",
        fingerprint=mutant.fingerprint(), budget_s=60, workloads=(),
    )  # fmt: skip
    assert kept.holds_for(mutant, "c", "1-50", 60)
    assert kept.holds_for(mutant, "c", "1-50", 30)
    assert not kept.holds_for(mutant, "c", "1-50", 300)
    assert not kept.holds_for(mutant, "d", "1-50", 60)
    assert not kept.holds_for(mutant, "c", "1-60", 60)
    found = msgspec.structs.replace(kept, seed=4)
    assert found.holds_for(mutant, "c", "1-50", 300)
    other = msgspec.structs.replace(found, fingerprint="of another text")
    assert not other.holds_for(mutant, "c", "1-50", 60)


@pytest.mark.unit
def test_a_torn_last_line_is_lost_and_the_others_are_not(tmp_path: Path) -> None:
    outcomes = Outcomes(tmp_path)
    outcomes.add(
        Outcome(
            name="a", system="dledger", operator="by-hand", breaks="", code="c", seeds="1",
            budget_s=1, workloads=(),
        )
    )  # fmt: skip
    with (tmp_path / PLACE / RESULTS).open("ab") as file:
        file.write(b'{"name":"b"')
    assert list(Outcomes(tmp_path).by_name) == ["a"]


@pytest.mark.unit
def test_the_command_lists_and_tells(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = ["--store", str(tmp_path)]
    assert run_command(["mutants", "--system", "dledger", *store]) == 0
    assert "vote-not-stored: a member gives its vote" in capsys.readouterr().out
    assert run_command(["mutants", "vote-not-stored", *store]) == 0
    assert "-        s.persist(request.term, request.candidate)" in capsys.readouterr().out
    assert run_command(["mutants", "nothing-such", *store]) == 254
    assert run_command(["mutants", "not-stored", *store]) == 254
    assert "mutants have that in their name" in capsys.readouterr().err


# -- the simulation --------------------------------------------------------------------------------


@pytest.mark.sim
def test_a_mutant_that_breaks_durability_is_found_within_few_seeds(tmp_path: Path) -> None:
    asked = Measurement(store=tmp_path, simulate=simulate, budget_s=120, seeds="1-40")
    outcome = outcome_of("master-slave/*/sync-skipped", asked)
    assert outcome.is_found, outcome
    assert outcome.entered == outcome.ran


@pytest.mark.sim
def test_an_equivalent_one_is_not_found(tmp_path: Path) -> None:
    asked = Measurement(store=tmp_path, simulate=simulate, budget_s=120, seeds="1-4")
    outcome = outcome_of("master-slave/*/end-read-after-sync", asked)
    assert not outcome.is_found, outcome
    assert outcome.ran == 4
    assert outcome.failed == 0
    assert outcome.entered == 4
