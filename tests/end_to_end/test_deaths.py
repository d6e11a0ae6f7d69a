"""A node that somebody else kills makes the run invalid, and its last words are shown."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.names import LABEL_NODE, LABEL_OWNER
from shalott.cluster.owner import parse_owner
from tests.end_to_end.runs import Running

BACKENDS = [
    pytest.param("local", marks=pytest.mark.local),
    pytest.param("docker", marks=pytest.mark.docker),
]
SERVED = 100


def pid_of(cluster: str, running: Running, node: str) -> int:
    """Of the node's first process, as the host sees it."""
    found = local_pids(running, node) if cluster == "local" else docker_pids(running, node)
    (pid,) = found
    return pid


def local_pids(running: Running, node: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{running.cwd}" in command and f"/{node}/config" in command:
            found.append(int(process.name))
    return found


def docker_pids(running: Running, node: str) -> list[int]:
    async def find() -> list[int]:
        engine = Engine()
        try:
            there = await engine.call(
                lambda api: api.containers(filters={"label": f"{LABEL_NODE}={node}"})
            )
            own = [
                each["Id"]
                for each in there
                if (owner := parse_owner(each["Labels"].get(LABEL_OWNER, ""))) is not None
                and owner.pid == running.pid
            ]
            states = [
                await engine.call(lambda api, id=each: api.inspect_container(id)) for each in own
            ]
            return [state["State"]["Pid"] for state in states]
        finally:
            engine.close()

    return asyncio.run(find())


@pytest.mark.parametrize("cluster", BACKENDS)
def test_a_node_that_somebody_kills_makes_the_run_invalid(cluster: str, tmp_path: Path) -> None:
    arguments = [
        *("test", "--cluster", cluster, "--profile", "safe", "--nemesis", "none"),
        *("--time-limit", "8", "--rate", "50", "--seed", "5"),
    ]
    with Running(arguments, tmp_path) as running:
        running.await_recorded(
            lambda rows: sum(row["type"] == "ok" for row in rows) > SERVED, "clients were served"
        )
        os.kill(pid_of(cluster, running, "n2"), signal.SIGKILL)
        done = running.wait()
    assert done.exit_code == 1, done
    assert "n2 died at " in done.stdout and "signal 9 (SIGKILL)" in done.stdout
    (row,) = done.rows("died")
    assert row["node"] == "n2" and row["extra"]["exit_code"] == 128 + signal.SIGKILL
    assert row["extra"]["output"], "the node's last words"
    assert done.counts("deaths")["died-count"] == 1
    (died,) = [a for r in done.results.results for a in r.anomalies if a.kind == "died"]
    assert died.detail["output"] == row["extra"]["output"]
    report = (done.directory.path / "report.html").read_text()
    assert "n2 died at " in report
