"""Which backend, and why; obstacles are one sentence with the command that removes them."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from shalott.cluster.docker.engine import connect, explain
from shalott.core.errors import UsageError
from shalott.core.plan import ClusterPlan, GatePlan, Plan, SystemPlan, WorkloadPlan
from shalott.harness.run import backends

pytestmark = pytest.mark.unit


def make_plan(backend: str, *, system: str = "mirrored", leave_running: bool = False) -> Plan:
    return Plan(
        name="test",
        seed=1,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend=backend, nodes=("n1",), leave_running=leave_running),
        system=SystemPlan(name=system, profile="safe"),
        workload=WorkloadPlan(name="queue", rate_hz=1, concurrency=1),
        gates=GatePlan(),
        faults=(),
    )


@pytest.fixture
def no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "docker_obstacle", lambda: "no Docker engine on this machine")


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "docker_obstacle", lambda: None)


@pytest.mark.usefixtures("docker")
def test_auto_takes_docker_if_it_answers() -> None:
    choice = backends.choose_backend("auto", "mirrored")
    assert choice.backend == "docker"
    assert "since the Docker engine answers" in choice.reason


@pytest.mark.usefixtures("no_docker")
def test_auto_falls_back_to_local_and_says_why() -> None:
    choice = backends.choose_backend("auto", "mirrored")
    assert choice.backend == "local"
    assert "since no Docker engine on this machine" in choice.reason


@pytest.mark.usefixtures("no_docker")
@pytest.mark.parametrize(
    ("wanted", "system", "words"),
    [
        ("docker", "mirrored", "cluster docker can't be used: no Docker engine"),
        ("auto", "rabbitmq", "rabbitmq runs in containers or on hosts over SSH"),
        ("local", "rabbitmq", "rabbitmq does not run there: use --cluster docker or ssh"),
        ("cloud", "mirrored", "unknown cluster cloud"),
    ],
)
def test_what_cannot_be_had_is_refused(wanted: str, system: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        backends.choose_backend(wanted, system)


def test_an_unknown_system_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown system kafka"):
        backends.make_system(make_plan("local", system="kafka"))


def test_local_nodes_cannot_be_left_running(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="end with the harness"):
        backends.make_cluster(make_plan("local", leave_running=True), "run", tmp_path)


def test_the_missing_permission_is_named_with_its_command() -> None:
    error = Exception("('Connection aborted.', PermissionError(13, 'Permission denied'))")
    assert "usermod -aG docker" in explain(error)
    missing = Exception("('Connection aborted.', FileNotFoundError(2, 'No such file'))")
    assert "apt-get install -y docker.io" in explain(missing)
    refused = Exception("('Connection aborted.', ConnectionRefusedError(111, 'refused'))")
    assert "systemctl start docker" in explain(refused)


@pytest.mark.parametrize("left", [False, True], ids=["no-socket", "nobody-listens"])
def test_an_engine_that_is_not_there_leaves_no_socket_open(
    left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engine.sock"
    if left:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.bind(str(path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with pytest.raises(UsageError, match="not running" if left else "no Docker engine"):
            connect()
        gc.collect()
    assert [str(each.message) for each in heard] == []


PROBE = """
from shalott.harness.run.backends import choose_backend
from shalott.core.errors import UsageError
try:
    choose_backend("docker", "mirrored")
except UsageError as error:
    print(error)
"""


def test_a_socket_that_is_not_there_is_met_for_real(tmp_path: Path) -> None:
    environment = {"DOCKER_HOST": f"unix://{tmp_path}/absent.sock", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert "no Docker engine on this machine" in done.stdout
    assert done.stderr == ""


def test_a_backend_whose_package_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    for wanted in ("docker", "ssh"):
        with pytest.raises(UsageError, match=rf"pip install 'shalott\[{wanted}\]'"):
            backends.choose_backend(wanted, "mirrored")
    assert backends.choose_backend("auto", "mirrored").backend == "local"
