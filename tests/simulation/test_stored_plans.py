"""Plans that were found in simulation and are kept: each fails there still, and on containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shalott.harness.cli.commands import make_app
from shalott.harness.core.plan import load_plan
from shalott.harness.run.simulate import simulate
from tests.tidy.sources import ROOT

PLANS = ROOT / "docs" / "plans"
TWO_MASTERS = PLANS / "two-masters.json"


@pytest.mark.sim
def test_two_masters_lose_messages_in_simulation() -> None:
    outcome = simulate(load_plan(TWO_MASTERS))
    assert outcome.error is None
    assert {"lost", "dual-master-effective"} <= dict.fromkeys(outcome.anomalies).keys()


@pytest.mark.docker
def test_two_masters_lose_messages_in_containers(tmp_path: Path) -> None:
    arguments = ["replay", str(TWO_MASTERS), "--cluster", "docker", "--store", str(tmp_path)]
    done = CliRunner().invoke(make_app(), arguments)
    assert done.exit_code == 1, done.output
    assert "acknowledged messages were lost" in done.output
    assert "two nodes acknowledged writes of one queue" in done.output
