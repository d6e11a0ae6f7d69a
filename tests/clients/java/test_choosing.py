"""Which clients a plan may ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shalott.clients.java.build import obstacle
from shalott.core.rng import Draw
from shalott.harness.cli.commands import make_app
from shalott.workloads.group import draw_parameters as draw_group
from shalott.workloads.log import draw_parameters as draw_log

pytestmark = pytest.mark.unit


def refusal(store: Path, *words: str) -> str:
    """What a run is refused with before anything is booted."""
    command = ["test", "--system", "controller", "--store", str(store), *words]
    done: Any = CliRunner().invoke(make_app(), command, standalone_mode=False)
    assert done.exception is not None, done.output
    assert list(store.iterdir()) == []
    return str(done.exception)


@pytest.mark.parametrize("client", ["java", "mixed"])
@pytest.mark.parametrize("workload", ["log", "elections", "group"])
def test_a_simulation_has_no_place_for_java(workload: str, client: str, tmp_path: Path) -> None:
    words = ("--workload", workload, "--client", client, "--cluster", "sim")
    assert f"--client {client} runs on real clusters only" in refusal(tmp_path, *words)


def test_a_library_must_be_done_before_its_operation(tmp_path: Path) -> None:
    words = ("--workload", "log", "--client", "java", "--cluster", "local")
    said = refusal(tmp_path, *words, "--java-timeout", "5s", "--op-timeout", "5s")
    assert "--java-timeout 5000ms" in said and "must be done before" in said


@pytest.mark.skipif(bool(obstacle()), reason="asks Maven's programs first")
def test_what_is_no_release_is_refused(tmp_path: Path) -> None:
    words = ("--workload", "log", "--client", "java", "--cluster", "local")
    assert "no release" in refusal(tmp_path, *words, "--java-version", "newest")


@pytest.mark.parametrize("draw", [draw_log, draw_group])
def test_a_search_draws_our_own_unless_it_is_told_otherwise(draw: Any) -> None:
    """Its worlds are simulated; one with real time names others."""
    assert {draw(Draw(seed))["client"] for seed in range(50)} == {"own"}
    told = {draw(Draw(seed, {"client": ("own", "java")}))["client"] for seed in range(50)}
    assert told == {"own", "java"}


def test_each_client_has_transactions_of_its_own_name(tmp_path: Path) -> None:
    words = ("--workload", "log", "--cluster", "local")
    told = refusal(tmp_path, *words, "--java-transactions", "0.5")
    assert "--java-transactions: of --client java or mixed, not of own" in told
    told = refusal(
        tmp_path, *words, "--workload", "log", "--client", "java", "--transactional", "1"
    )
    assert "--transactional: of --client own" in told


@pytest.mark.parametrize("workload", ["elections", "group"])
def test_transactions_are_refused_where_nobody_judges_them(workload: str, tmp_path: Path) -> None:
    words = ("--system", "rocketmq", "--replication", "controller", "--client", "java")
    told = refusal(tmp_path, *words, "--workload", workload, "--java-transactions", "0.5")
    assert f"the workload {workload} does not judge transactions" in told
