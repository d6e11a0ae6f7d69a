"""Every mutant that the simulation can show, and the sound broker in the same runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted.mutants import SCENARIOS, Mutant, World, assert_found, cases, command
from tests.world.mutants import run_mutant

pytestmark = pytest.mark.sim  # as each of the cases is


@pytest.mark.parametrize(("world", "mutant"), cases("sim"))
def test_it_is_found(world: World, mutant: Mutant, tmp_path: Path) -> None:
    assert_found(mutant, run_mutant(mutant.edits, command(mutant.scenario, world), tmp_path), world)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_sound_broker_is_valid_in_the_same_run(scenario: str, tmp_path: Path) -> None:
    run = run_mutant((), command(scenario, "sim"), tmp_path)
    assert run.exit_code == 0, run
