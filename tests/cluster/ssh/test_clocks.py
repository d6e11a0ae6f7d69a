"""Clocks of hosts: made wrong and proved from the node's own environment, refused where they can't
be had, and right again when the harness is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.cluster.faketime import environment
from shalott.cluster.nodes import NodeSpec
from shalott.cluster.ssh import clocks
from shalott.cluster.ssh.backend import SshCluster, SshOptions
from shalott.core.errors import MissingCapability, UsageError
from shalott.nemesis.clocks import JUMP, SKEW, STROBE
from shalott.nemesis.runner import NemesisRunner
from tests.nemesis.test_settings import of_kind
from tests.world.cluster.backends import HOSTS, READY_MS, fresh_run_id
from tests.world.cluster.fake_system import NODES, FakeSystem
from tests.world.cluster.ssh_hosts import Hosts, require_faketime, ssh_hosts
from tests.world.harness.nemesis import MemoryRecorder, make_plan

pytestmark = pytest.mark.local

ROOT = Path(__file__).parents[3]
LIBRARIES = "/usr/lib/*/faketime"
WITHOUT = f"for path in {LIBRARIES}; do mount -t tmpfs tmpfs $path; done"
LEASE_S = 3.0
LATE_S = 6.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    require_faketime()
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        yield made


async def run_faults(hosts: Hosts, recorder: MemoryRecorder, *actions: Any) -> None:
    cluster = SshCluster(NODES, fresh_run_id(), hosts.plan(), SshOptions(clocks=True))
    system = FakeSystem()
    try:
        await cluster.boot(system)
        await system.await_ready(cluster, NODES, READY_MS)
        runner = NemesisRunner(cluster, system, make_plan(*actions), recorder)
        await runner.run()
        await runner.heal()
        for node in NODES:
            assert abs(await cluster.clocks.offset_ms(node)) < cluster.clocks.error_ms
    finally:
        await cluster.teardown()


def test_clock_faults_are_proved_inside_the_nodes_environment(hosts: Hosts) -> None:
    recorder = MemoryRecorder()
    amounts = {"clock-skew": 20_000, "clock-jump": -5000, "clock-strobe": 5000}
    actions = [
        of_kind(record.name, amounts[record.name], number=n, at_ms=100, duration_ms=3000, node=node)
        for n, (record, node) in enumerate(zip((SKEW, JUMP, STROBE), NODES, strict=True), start=1)
    ]
    asyncio.run(run_faults(hosts, recorder, *actions))
    probes = [row["extra"] for row in recorder.of("probe")]
    assert len(recorder.faults()) == 3
    for row in recorder.faults():
        assert row["error"] is None, row
        assert row["proved_effective"] and row["proved_healed"], (row["kind"], probes)
    assert hosts.leftovers() == []


def test_a_clock_file_that_is_not_read_is_found_out(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted failure: the node reads another file than the agent writes."""

    def elsewhere(config_dir: str) -> dict[str, str]:
        return {**environment(config_dir), "FAKETIME_TIMESTAMP_FILE": f"{config_dir}/another"}

    monkeypatch.setattr(clocks, "environment", elsewhere)
    recorder = MemoryRecorder()
    asyncio.run(run_faults(hosts, recorder, of_kind("clock-jump", 5000, duration_ms=500)))
    (row,) = recorder.faults()
    assert row["proved_effective"] is False


def test_a_clock_that_is_not_set_right_is_found_out(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted failure: a heal that does nothing."""
    real = clocks.HostClocks.set

    async def forgetful(
        self: Any, node: str, *, offset_ms: float = 0, drift_ppm: float = 0
    ) -> None:
        if offset_ms or drift_ppm:
            await real(self, node, offset_ms=offset_ms, drift_ppm=drift_ppm)

    monkeypatch.setattr(clocks.HostClocks, "set", forgetful)
    recorder = MemoryRecorder()
    with pytest.raises(AssertionError):
        asyncio.run(run_faults(hosts, recorder, of_kind("clock-jump", 5000, duration_ms=500)))
    (row,) = recorder.faults()
    assert row["proved_effective"] and row["proved_healed"] is False


def test_a_wrong_clock_outlives_a_kill_and_a_paused_nodes_clock_is_read(hosts: Hosts) -> None:
    async def scene() -> None:
        cluster = SshCluster(NODES, fresh_run_id(), hosts.plan(), SshOptions(clocks=True))
        system = FakeSystem()
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, NODES, READY_MS)
            await cluster.clocks.set("n1", offset_ms=60_000)
            await cluster.processes.kill("n1")
            await cluster.processes.start("n1")
            await cluster.processes.pause("n1")
            assert abs(await cluster.clocks.offset_ms("n1") - 60_000) < cluster.clocks.error_ms
            assert abs(await cluster.clocks.offset_ms("n2")) < cluster.clocks.error_ms
            await cluster.heal()
            assert abs(await cluster.clocks.offset_ms("n1")) < cluster.clocks.error_ms
        finally:
            await cluster.teardown()

    asyncio.run(scene())


def test_nodes_of_other_plans_have_the_hosts_clock_and_pay_nothing(hosts: Hosts) -> None:
    async def scene() -> None:
        cluster = SshCluster(NODES[:1], fresh_run_id(), hosts.plan())
        assert "clock" not in cluster.capabilities
        try:
            await cluster.boot(FakeSystem())
            said = await cluster.processes.run_command("n1", ["env"])
            assert "LD_PRELOAD" not in said.output and "FAKETIME" not in said.output
            with pytest.raises(MissingCapability, match="hosts whose nodes were started for it"):
                await cluster.clocks.set("n1", offset_ms=5)
        finally:
            await cluster.teardown()

    asyncio.run(scene())


class Running(FakeSystem):
    """A system that runs one program."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def node_specs(self, topology: Any) -> Any:
        return [NodeSpec(name=n, image="x", command=(self._program,)) for n in topology.listen]


def refused(hosts: Hosts, program: str, *, set_time: bool = False) -> str:
    async def scene() -> None:
        plan = msgspec.structs.replace(hosts.plan(), set_time=set_time)
        cluster = SshCluster(NODES, fresh_run_id(), plan, SshOptions(clocks=True))
        try:
            await cluster.boot(Running(program))
        finally:
            assert (await cluster.processes.status("n1")).state == "absent"
            await cluster.teardown()

    with pytest.raises(UsageError) as met:
        asyncio.run(scene())
    assert "\n" not in str(met.value)
    return str(met.value)


def go_program(directory: Path) -> str:
    """A program as Go makes one, as far as its file shows: a dynamically linked one with Go's
    mark."""
    path = directory / "broker"
    path.write_bytes(Path("/bin/true").read_bytes() + b"\xff Go buildinf:")
    path.chmod(0o755)
    return str(path)


def test_a_go_program_is_refused_and_the_flag_is_named(hosts: Hosts, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    program = go_program(tmp_path)
    said = refused(hosts, program)
    assert said.partition(" ")[0] in NODES
    assert f" can't have a clock of its own: {program} is a Go program, which reads" in said
    assert said.endswith("choose another --nemesis, or allow --ssh-set-time, which sets the host's"
                         " own clock")  # fmt: skip
    assert hosts.leftovers() == []


def test_the_harnesss_own_clock_is_never_set(hosts: Hosts, tmp_path: Path) -> None:
    """Hosts in network namespaces have this machine's clock."""
    said = refused(hosts, go_program(tmp_path), set_time=True)
    assert said.endswith("has the harness's own clock, which is never set")
    assert hosts.leftovers() == []


def test_hosts_without_the_library_are_refused_before_anything_is_booted(hosts: Hosts) -> None:
    hosts.reboot("b", WITHOUT)
    try:
        with pytest.raises(UsageError) as met:
            SshCluster(NODES, fresh_run_id(), hosts.plan(), SshOptions(clocks=True))
        assert str(met.value) == (
            f"no node can have a clock of its own there: {hosts.address('b')} lacks libfaketime"
            " (install it: sudo apt-get install -y libfaketime); choose another --nemesis, or allow"
            " --ssh-set-time, which sets the host's own clock"
        )
        assert "clock" not in SshCluster(NODES, fresh_run_id(), hosts.plan()).capabilities
    finally:
        hosts.reboot("b")


def test_a_harness_that_is_gone_leaves_no_wrong_clock(hosts: Hosts, tmp_path: Path) -> None:
    """Nodes end and the files that they read go; this machine's clock was never touched."""
    plan = msgspec.json.encode(hosts.plan(LEASE_S)).decode()
    command = [sys.executable, "-m", "tests.world.cluster.doomed_harness", "ssh-clocks"]
    apart_ns = time.time_ns() - time.monotonic_ns()
    with subprocess.Popen(
        [*command, fresh_run_id(), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, HOSTS: plan},
    ) as harness:
        assert harness.stdout is not None
        try:
            assert harness.stdout.readline().startswith("ready")
            (text,) = hosts.run("a", "cat ~/.cache/shalott/runs/*/config/clock").splitlines()
            assert float(text) == 3600
        finally:
            harness.send_signal(signal.SIGKILL)
            harness.wait()
    deadline = time.monotonic() + LEASE_S + LATE_S
    while left := hosts.leftovers():
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    assert abs(time.time_ns() - time.monotonic_ns() - apart_ns) < 1_000_000_000
