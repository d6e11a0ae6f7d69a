"""Every mutant on real processes and in containers, at night: half a minute each.

A submission shows them in the simulation (test_mutants_sim.py), where the same sources run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted.mutants import Mutant, World, assert_found, cases, command
from tests.world.mutants import Edit, run_mutant

NIGHTLY = pytest.mark.nightly("broken brokers on real nodes take half an hour")


@NIGHTLY
@pytest.mark.parametrize(("world", "mutant"), cases("local", "docker"))
def test_it_is_found(world: World, mutant: Mutant, tmp_path: Path) -> None:
    assert_found(mutant, run_mutant(mutant.edits, command(mutant.scenario, world), tmp_path), world)


SAYS_SO = Edit(
    "shalott/broker/__main__.py",
    "    arguments = parser.parse_args()\n",
    "    sys.stderr.write('planted: this is the copy\\n')\n    arguments = parser.parse_args()\n",
)


@NIGHTLY
@pytest.mark.parametrize(
    "world",
    [
        pytest.param("local", marks=pytest.mark.local),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def test_nodes_run_the_copy(world: World, tmp_path: Path) -> None:
    words = [*command("calm", world), "--time-limit", "3", "--min-acked", "1"]
    run = run_mutant((SAYS_SO,), words, tmp_path)
    assert run.exit_code == 0, run
    for node in run.plan.cluster.nodes:
        output = (run.directory.path / "nodes" / node / "output.log").read_text()
        assert "planted: this is the copy" in output
