"""RocketMQ's three systems: whole simulated runs under faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from checkers.convergence import Convergence
from harness.cli import app
from harness.history import History
from harness.plan import GatePlan
from harness.profiles import LOG_SYSTEMS
from harness.simulate import simulate
from harness.store import Store
from harness.swarm import Range, Subject, Swarm, draw_plan

pytestmark = pytest.mark.sim

SMALL = Swarm(
    nodes=(3,),
    time_limit_ms=(15_000,),
    rate_hz=Range(30, 30),
    queues=(2,),
    clients_a_node=(2,),
    interval_ms=Range(4000, 4000),
    latency_us=(300,),
    gates=GatePlan(min_acked=20, must_settle=True, must_not_crash=True, must_converge=True),
)


def run(store: Path, *arguments: str) -> Result:
    words = ["test", "--cluster", "sim", "--store", str(store), "--time-limit", "15"]
    return CliRunner().invoke(app, [*words, "--rate", "40", *arguments])


def history_of(store: Path) -> History:
    return Store(store).find(None).load_history()


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_kills_and_partitions_lose_nothing_under_safe(system: str, tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *("--system", system, "--profile", "safe", "--nemesis", "kill,partition", "--seed", "3"),
        *("--nemesis-interval", "6", "--nemesis-duration", "3"),
    )
    assert done.exit_code == 0, done.output
    assert "nothing was lost of" in done.output
    replicas = Convergence().check(history_of(tmp_path))
    assert replicas.valid is True
    assert replicas.counts["synchronised-count"] == 6  # a log and its queues on three nodes


def test_a_master_that_lost_power_differs_from_its_slaves_under_upstream(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *("--system", "master-slave", "--nemesis", "power", "--targets", "master", "--seed", "2"),
        *("--nemesis-interval", "6", "--nemesis-duration", "3"),
    )
    assert done.exit_code == 1, done.output
    # What it had not flushed is at the slaves alone, and it puts other messages in their place.
    assert "are not on every node" in done.output
    assert "were acknowledged at one offset" in done.output
    assert Convergence().check(history_of(tmp_path)).valid is False


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_a_seed_is_one_run(system: str) -> None:
    plan = draw_plan(Subject(system=system, swarm=SMALL), 1)
    first, second = simulate(plan), simulate(plan)
    assert first.error is None and first.digest == second.digest
    assert first.valid is True, first.results
    assert first.sometimes["became_master"] and first.sometimes["became_slave"]


def test_elections_are_judged_alone(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *("--system", "dledger", "--profile", "safe", "--workload", "elections", "--seed", "4"),
        *("--nemesis", "kill", "--targets", "master", "--nemesis-interval", "6"),
        *("--nemesis-duration", "3"),
    )
    assert done.exit_code == 0, done.output
    roles = history_of(tmp_path).events.to_pylist()
    masters = {row["node"] for row in roles if row["kind"] == "role" and row["role"] == "master"}
    assert len(masters) > 1  # a killed master is followed by another one
