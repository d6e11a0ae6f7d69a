"""What a killed harness leaves is removed, and nothing else; a teardown works at any moment."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shalott.cluster.cluster import Cluster
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.firewall import list_tables
from shalott.cluster.docker.names import LABEL_RUN, run_token
from shalott.cluster.docker.sweep import find_remains, sweep_docker
from shalott.cluster.local.sweep import StartedProcess, end_processes, state_directory
from shalott.cluster.nodes import NodeSpec, Topology
from shalott.cluster.owner import process_state, start_ticks
from shalott.cluster.waiting import wait_until
from shalott.core.errors import HarnessError
from shalott.harness.run import backends as select
from tests.world.cluster.backends import READY_MS, fresh_run_id, make
from tests.world.cluster.fake_system import NODES, FakeSystem, answers

ROOT = Path(__file__).parents[2]
BACKENDS = [
    pytest.param("local", marks=pytest.mark.local),
    pytest.param("docker", marks=pytest.mark.docker),
]


def leftovers(backend: str, run_id: str, work_dir: Path) -> list[str]:
    """Whatever there still is of a run."""
    if backend == "local":
        states = [path for path in state_directory().glob("*.json") if run_id in path.read_text()]
        return [str(path) for path in [*states, *work_dir.rglob("*")]]
    return asyncio.run(_docker_leftovers(run_id))


async def _docker_leftovers(run_id: str) -> list[str]:
    engine = Engine()
    try:
        remains = await engine.call(lambda api: find_remains(api, f"{LABEL_RUN}={run_id}"))
    finally:
        engine.close()
    tables = [table for table in await list_tables() if run_token(run_id) in table]
    return [str(found) for found in remains.values()] + tables


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_killed_harness_leaves_is_swept(backend: str, tmp_path: Path) -> None:
    run_id, work_dir = fresh_run_id(), tmp_path / "work"
    command = (
        sys.executable,
        "-m",
        "tests.world.cluster.doomed_harness",
        backend,
        run_id,
        str(work_dir),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as harness:
        assert harness.stdout is not None
        word, *pids = harness.stdout.readline().split()
        assert word == "ready"
        try:
            assert not any(run_id in sentence for sentence in select.sweep_all()), "it lives"
            assert all(process_state(int(pid)) for pid in pids)
        finally:
            harness.send_signal(signal.SIGKILL)
            harness.wait()
    assert leftovers(backend, run_id, work_dir)
    sentences = select.sweep_all()
    assert [s for s in sentences if run_id in s and s.startswith("removed")]
    assert leftovers(backend, run_id, work_dir) == []
    gone = wait_until(lambda: not any(process_state(int(pid)) for pid in pids), 5, 0.01)
    assert asyncio.run(gone)
    assert not any(run_id in sentence for sentence in select.sweep_all())


@pytest.mark.docker
def test_two_sweepers_that_meet_do_not_fail_each_other(tmp_path: Path) -> None:
    run_id = fresh_run_id()
    arguments = ("docker", run_id, str(tmp_path / "work"))
    command = (sys.executable, "-m", "tests.world.cluster.doomed_harness", *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline().startswith("ready")
        harness.send_signal(signal.SIGKILL)
        harness.wait()

    async def sweep() -> list[str]:
        engine = Engine()
        try:
            return await sweep_docker(engine, kept=True)
        finally:
            engine.close()

    async def meet() -> list[list[str]]:
        return await asyncio.gather(*(sweep() for _ in range(4)))

    swept = asyncio.run(meet())
    assert any(run_id in sentence for sentences in swept for sentence in sentences)
    assert leftovers("docker", run_id, tmp_path / "work") == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_teardown_leaves_nothing_and_may_be_repeated(backend: str, tmp_path: Path) -> None:
    run_id = fresh_run_id()
    cluster = make(backend, run_id, tmp_path / "work")

    async def live() -> None:
        system = FakeSystem()
        await cluster.boot(system)
        await system.await_ready(cluster, NODES, READY_MS)
        await cluster.processes.pause("n1")
        await cluster.links.cut([("n1", "n2")])
        await cluster.processes.kill("n3")
        await cluster.teardown()
        await cluster.teardown()
        assert (await cluster.processes.status("n1")).state == "absent"

    asyncio.run(live())
    assert leftovers(backend, run_id, tmp_path / "work") == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cluster_can_be_booted_again_after_its_teardown(backend: str, tmp_path: Path) -> None:
    cluster = make(backend, fresh_run_id(), tmp_path / "work")

    async def live() -> None:
        system = FakeSystem()
        for _ in range(2):
            await cluster.boot(system)
            await system.await_ready(cluster, NODES, READY_MS)
            await cluster.teardown()

    asyncio.run(live())


class Unstartable(FakeSystem):
    """One node's program isn't there."""

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        good = list(super().node_specs(topology))
        bad = NodeSpec(name="n3", image=self.image, command=("{config}/no-such-program",))
        return [*good[:2], bad]


class Unspeakable(FakeSystem):
    """Fails before any node is made."""

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        raise HarnessError("no specifications today")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("system", [Unstartable(), Unspeakable()], ids=lambda s: type(s).__name__)
def test_teardown_cleans_up_after_a_failed_boot(
    backend: str, system: FakeSystem, tmp_path: Path
) -> None:
    run_id = fresh_run_id()
    cluster = make(backend, run_id, tmp_path / "work")

    async def live() -> None:
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, NODES, 2000)
        except HarnessError:
            return
        else:
            pytest.fail("it booted")
        finally:
            await cluster.teardown()

    asyncio.run(live())
    assert leftovers(backend, run_id, tmp_path / "work") == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_teardown_cleans_up_after_an_interrupted_boot(backend: str, tmp_path: Path) -> None:
    async def interrupt(after_s: float) -> str:
        run_id = fresh_run_id()
        cluster = make(backend, run_id, tmp_path / "work")
        booting = asyncio.create_task(cluster.boot(FakeSystem()))
        await asyncio.wait([booting], timeout=after_s)
        booting.cancel()
        await asyncio.gather(booting, return_exceptions=True)
        await cluster.teardown()
        return run_id

    for after_s in (0.0, 0.01, 0.15, 0.4):
        run_id = asyncio.run(interrupt(after_s))
        assert leftovers(backend, run_id, tmp_path / "work") == [], f"after {after_s} s"


@pytest.mark.docker
def test_two_runs_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    async def live() -> None:
        system = FakeSystem()
        first: Cluster = make("docker", fresh_run_id(), tmp_path)
        second: Cluster = make("docker", fresh_run_id(), tmp_path)
        try:
            await asyncio.gather(first.boot(system), second.boot(system))
            await system.await_ready(second, NODES, READY_MS)
            await first.links.cut([("n1", "n2")])
            assert await second.links.reach("n1", "n2")
            await first.teardown()
            assert all([await answers(second, node, 3000) for node in NODES])
            assert await second.links.reach("n1", "n2")
        finally:
            await first.teardown()
            await second.teardown()

    asyncio.run(live())


@pytest.mark.local
def test_only_the_very_process_that_was_written_down_is_ended() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            ticks = start_ticks(process.pid)
            assert ticks is not None
            other = StartedProcess("n1", process.pid, ticks - 1)
            assert asyncio.run(end_processes((other,))) == 0
            assert process.poll() is None
            assert asyncio.run(end_processes((StartedProcess("n1", process.pid, ticks),))) == 1
        finally:
            process.kill()
            process.wait()


@pytest.mark.local
def test_a_state_file_that_is_none_is_left_alone() -> None:
    path = state_directory() / "contract-nonsense.json"
    path.write_text(json.dumps({"nothing": 1}))
    try:
        assert any(str(path) in sentence for sentence in select.sweep_all())
        assert path.exists()
    finally:
        path.unlink()
