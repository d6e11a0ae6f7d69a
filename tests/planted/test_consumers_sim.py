"""Planted defects of consumers' code: each is found in its run by the checker that should find it,
and the sound broker is valid in the same runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.planted.consumers import MUTANTS
from tests.planted.consumers_runs import RUNS
from tests.planted.consumers_shape import ConsumerMutant
from tests.world.mutants import run_mutant

pytestmark = pytest.mark.sim

IS_NIGHT = os.environ.get("SHALOTT_NIGHTLY") == "1"
SHOWN = [mutant for mutant in MUTANTS if mutant.run and (mutant.in_ci or IS_NIGHT)]


@pytest.mark.parametrize("mutant", SHOWN, ids=lambda mutant: mutant.name)
def test_it_is_found(mutant: ConsumerMutant, tmp_path: Path) -> None:
    run = run_mutant(mutant.edits, RUNS[mutant.run], tmp_path)
    assert run.exit_code == 1, run
    broken = [each.checker for each in run.results.results if each.valid is False]
    assert [name for name in mutant.checkers if name in broken], (mutant.checkers, broken)


@pytest.mark.parametrize("name", dict.fromkeys(mutant.run for mutant in SHOWN))
def test_the_sound_broker_is_valid_in_the_same_run(name: str, tmp_path: Path) -> None:
    run = run_mutant((), RUNS[name], tmp_path)
    assert run.exit_code == 0, run
