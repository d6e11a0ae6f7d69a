"""RocketMQ's three systems: whole simulated runs under faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shalott.checkers.runs.convergence import Convergence
from shalott.core.history import History
from shalott.core.plan import GatePlan, nodes_hosting
from shalott.core.rng import Range
from shalott.harness.cli.commands import make_app
from shalott.harness.run.simulate import simulate
from shalott.harness.run.store import Store
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan

LOG_SYSTEMS = ("master-slave", "dledger", "controller")
pytestmark = pytest.mark.sim

SMALL = USUAL.but(
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
    return CliRunner().invoke(make_app(), [*words, "--rate", "40", *arguments])


def history_of(store: Path) -> History:
    return Store(store).find(None).load_history()


def rows_of(history: History, f: str) -> list[dict[str, Any]]:
    """The faults of a kind, their ``extra`` decoded."""
    rows = [row for row in history.ops.to_pylist() if row["f"] == f]
    return [{**row, "extra": json.loads(row["extra"])} for row in rows]


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
    assert replicas.counts["synchronised-count"] == 9  # log, queues, tables on three nodes


LAID_OUT = [
    ("controller", "separate", "6", "one"),
    ("controller", "standalone", "7", "controller"),
    ("controller", "standalone", "7", "majority"),
    ("master-slave", "separate", "5", "master"),
    ("dledger", "separate", "5", "one"),
]


@pytest.mark.parametrize(("system", "layout", "nodes", "targets"), LAID_OUT)
def test_services_on_nodes_of_their_own_lose_nothing_under_safe(
    system: str, layout: str, nodes: str, targets: str, tmp_path: Path
) -> None:
    done = run(
        tmp_path,
        *("--system", system, "--layout", layout, "--nodes", nodes, "--profile", "safe"),
        *("--nemesis", "kill,partition", "--targets", targets, "--seed", "3"),
        *("--nemesis-interval", "6", "--nemesis-duration", "3"),
    )
    assert done.exit_code == 0, done.output
    assert "nothing was lost of" in done.output
    history = history_of(tmp_path)
    replicas = Convergence().check(history)
    assert replicas.valid is True
    assert replicas.counts["synchronised-count"] == 9  # log, queues, tables on three brokers
    hit = {
        (row["extra"]["target"], node)
        for row in rows_of(history, "kill")
        for node in row["extra"]["nodes"]
    }
    plan = Store(tmp_path).find(None).load_plan()
    hosts = {"master": "broker", "controller": "controller"}.get(targets)
    assert hit
    if hosts is not None:
        assert {node for _, node in hit} <= set(nodes_hosting(plan, hosts))
    report = next(tmp_path.rglob("report.html")).read_text()
    assert "nameserver" in report and "broker on n1, n2, n3" in report


LAID_OUT_BY_HAND = ("--system", "master-slave", "--layout", "separate", "--nodes", "5")


def test_a_failover_concerns_brokers_alone(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *(*LAID_OUT_BY_HAND, "--profile", "safe", "--policy", "ha.in_sync_replicas=3"),
        *("--nemesis", "failover", "--targets", "master", "--seed", "5"),
        *("--nemesis-interval", "7", "--nemesis-duration", "3"),
    )
    assert done.exit_code == 0, done.output
    made = [row["extra"] for row in rows_of(history_of(tmp_path), "failover")]
    assert any("skipped" not in one for one in made)
    assert not any("refused" in one for one in made)


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        ("wipe", ""),
        ("failover", "no node took the place of n4: n4 hosts no broker"),
        ("stray-report", "n4 takes no reports: n4 hosts no broker"),
    ],
)
def test_faults_of_a_name_servers_node(kind: str, refusal: str, tmp_path: Path) -> None:
    """It may forget everything: brokers register anew. As a broker it can't be treated, and a run
    whose faults were all refused says nothing."""
    done = run(
        tmp_path,
        *(*LAID_OUT_BY_HAND, "--profile", "safe", "--nemesis", kind, "--targets", "n4"),
        *("--seed", "1", "--nemesis-interval", "6", "--nemesis-duration", "2"),
    )
    assert done.exit_code == (2 if refusal else 0), done.output
    made = [row["extra"] for row in rows_of(history_of(tmp_path), kind)]
    assert any(one["proved_effective"] for one in made) == (not refusal)
    assert {one.get("refused", "") for one in made if "skipped" not in one} == {refusal}


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
