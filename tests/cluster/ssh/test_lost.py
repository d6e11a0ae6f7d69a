"""A connection that breaks, an agent or a harness that is killed, a host that starts anew: each
with a link cut, a bad disk mounted and a node paused. Nothing stays in force, nothing is left, and
one sentence tells why."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from shalott.cluster.nodes import DiskFaults, HelperEnd, NodeExit
from shalott.cluster.ssh.backend import SshCluster, SshOptions
from shalott.cluster.ssh.sweep import sweep_hosts
from shalott.core.errors import HarnessError
from tests.world.clock.turns import answered, turns, until
from tests.world.cluster.backends import HOSTS, READY_MS, fresh_run_id
from tests.world.cluster.fake_system import NODES, FakeSystem
from tests.world.cluster.ssh_hosts import Hosts, ssh_hosts

pytestmark = pytest.mark.local

ROOT = Path(__file__).parents[3]
LEASE_S = 3.0
LATE_S = 6.0  # of what undoes, on a busy machine


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        yield made


def with_faults(
    hosts: Hosts, then: Callable[[SshCluster], Awaitable[None]], lease_s: float = LEASE_S
) -> None:
    """A booted cluster with a cut link, a bad disk and a paused node, until ``then`` is done."""

    async def live() -> None:
        cluster = SshCluster(NODES, fresh_run_id(), hosts.plan(lease_s), SshOptions(disk_seed=1))
        system = FakeSystem()
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, NODES, READY_MS)
            await cluster.links.cut([("n1", "n2"), ("n3", "n2")])
            await cluster.disks.set("n2", DiskFaults(fail_sync=True))
            await cluster.processes.pause("n2")
            assert len(hosts.leftovers(["b"])) > 3, "what isn't seen there isn't missed"
            assert any(": mount " in line for line in hosts.leftovers(["b"]))
            await then(cluster)
        finally:
            await cluster.teardown()

    asyncio.run(live())


async def is_clean(hosts: Hosts, names: str, within_s: float) -> float:
    """Wait until nothing of a run is left on the hosts; how many seconds that took."""
    began = time.monotonic()

    async def are_clean() -> bool:
        return not await asyncio.to_thread(hosts.leftovers, list(names))

    await answered(are_clean, f"the hosts {names} are clean", step_s=0.05, within_s=within_s)
    return time.monotonic() - began


def agents(hosts: Hosts, name: str) -> list[int]:
    """The agent's process, and its keeper's."""
    (path,) = hosts.run(name, "ls /run/shalott/*/state.json").split()
    return [pid for pid, _ in json.loads(hosts.run(name, f"cat {path}"))["agent"]]


def test_hosts_between_which_no_datagram_passes_are_refused(hosts: Hosts) -> None:
    hosts.run("a", "nft add table inet own")
    hosts.run("a", "nft 'add chain inet own in { type filter hook input priority 0; }'")
    hosts.run("a", "nft add rule inet own in ip protocol udp drop")
    try:
        with pytest.raises(HarnessError, match="datagrams don't pass from n2 to n1, n3 to n1: "):
            with_faults(hosts, lambda cluster: turns())
    finally:
        hosts.run("a", "nft delete table inet own")
    assert hosts.leftovers() == []


def test_a_broken_connection_comes_back_and_nothing_changes(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        for _ in range(2):
            hosts.end(hosts.sessions("b"))
            assert (await cluster.processes.status("n2")).state == "paused"
        assert not await cluster.links.reach("n1", "n2", 200)
        await cluster.heal()
        assert await cluster.links.reach("n1", "n2")

    with_faults(hosts, check)
    assert hosts.leftovers() == []


def test_a_lost_answer_is_asked_for_again_and_nothing_is_done_twice(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        for node in ("n1", "n3"):
            script = "echo once >>counted; sleep 0.5; wc -l <counted"
            asking = asyncio.ensure_future(
                cluster.processes.run_command(node, ["sh", "-c", script])
            )
            await asyncio.sleep(0.25)
            hosts.end(hosts.sessions("a" if node == "n1" else "c"))
            said = await asking
            assert (said.exit_code, said.output.strip()) == (0, "1")

    with_faults(hosts, check)


def test_an_end_that_nobody_heard_is_told_when_the_connection_is_back(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        told = asyncio.Queue[NodeExit]()
        cluster.on_exit = told.put_nowait
        pid = (await cluster.processes.status("n1")).pid
        assert pid is not None
        hosts.end(hosts.sessions("a"))
        os.kill(pid, signal.SIGKILL)
        ended = await asyncio.wait_for(told.get(), READY_MS / 1000)
        assert (ended.node, ended.exit_code) == ("n1", 137)
        assert (await cluster.processes.status("n1")).state == "exited"
        assert told.empty()

    with_faults(hosts, check)


def test_the_ends_of_an_agent_and_of_its_own_processes_are_told(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        told = asyncio.Queue[HelperEnd]()
        cluster.on_helper_end = told.put_nowait
        (path,) = hosts.run("b", "ls /run/shalott/*/state.json").split()
        ((server, _),) = json.loads(hosts.run("b", f"cat {path}"))["servers"]
        os.kill(server, signal.SIGKILL)
        ended = await asyncio.wait_for(told.get(), READY_MS / 1000)
        assert (ended.node, ended.helper) == ("n2", "file system")
        os.kill(agents(hosts, "a")[0], signal.SIGKILL)
        ended = await asyncio.wait_for(told.get(), READY_MS / 1000)
        assert (ended.node, ended.helper) == ("n1", "agent")
        assert "n1" in ended.reason and "lost to the harness" in ended.reason

    with_faults(hosts, check)


def test_a_host_that_can_not_be_reached_undoes_everything_by_itself(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        listener = int((hosts.directory / "b.pid").read_text())
        hosts.end([listener, *hosts.sessions("b")])
        try:
            with pytest.raises(HarnessError) as refused:
                await asyncio.wait_for(cluster.processes.resume("n2"), 2 * LEASE_S + LATE_S)
            sentence = str(refused.value)
            assert sentence.startswith(f"n2 ({hosts.address('b')}) is lost to the harness: ")
            assert "; its agent undoes every fault there and ends the node" in sentence
            await is_clean_without_sshd(hosts)
            with pytest.raises(HarnessError, match="is lost to the harness"):
                await cluster.processes.status("n2")
            assert (await cluster.processes.status("n1")).state == "running"
        finally:
            hosts.reboot("b")

    async def is_clean_without_sshd(hosts: Hosts) -> None:
        await until(lambda: not hosts.processes("b"), "no process", step_s=0.05, within_s=LATE_S)
        assert "shalott" not in hosts.run("b", "nft list tables")

    with_faults(hosts, check)
    assert hosts.leftovers() == []


def test_the_keeper_undoes_what_a_killed_agent_left(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        hosts.end(agents(hosts, "b")[:1])
        assert await is_clean(hosts, "b", LATE_S) < LATE_S, "at once, not after the lease"
        with pytest.raises(HarnessError, match="n2 .* is lost to the harness: there is no agent"):
            await cluster.processes.status("n2")

    with_faults(hosts, check, lease_s=10 * LATE_S)


def test_the_agent_undoes_everything_when_its_keeper_is_killed(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        hosts.end(agents(hosts, "b")[1:])
        await is_clean(hosts, "b", LATE_S)
        with pytest.raises(HarnessError, match="is lost to the harness: its keeper was ended"):
            await cluster.processes.status("n2")

    with_faults(hosts, check)


def test_a_sweep_undoes_what_is_left_when_both_are_killed(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        hosts.end(agents(hosts, "b"))
        await asyncio.sleep(0.2)
        assert any("table" in left for left in hosts.leftovers(["b"]))
        (sentence,) = await asyncio.to_thread(sweep_hosts, [hosts.host("b")])
        assert sentence.startswith("removed the node and the faults of run contract-")
        assert hosts.leftovers(["b"]) == []

    with_faults(hosts, check)


def test_after_a_reboot_nothing_is_in_force_and_files_are_swept(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        await asyncio.to_thread(hosts.reboot, "b")
        assert "shalott" not in hosts.run("b", "nft list tables")
        with pytest.raises(HarnessError, match="there is no agent of this run: the host was start"):
            await asyncio.wait_for(cluster.processes.resume("n2"), 2 * LEASE_S + LATE_S)
        # The bridge that found no agent may not have ended yet.
        left = [each for each in hosts.leftovers(["b"]) if "process" not in each]
        assert len(left) == 1 and left[0].startswith("b: files ")
        (sentence,) = await asyncio.to_thread(sweep_hosts, [hosts.host("b")])
        assert sentence.startswith("removed the node and the faults of an earlier run")

    with_faults(hosts, check)
    assert hosts.leftovers() == []


def test_a_killed_harness_leaves_nothing_after_the_lease(hosts: Hosts, tmp_path: Path) -> None:
    plan = msgspec.json.encode(hosts.plan(LEASE_S)).decode()
    command = [
        sys.executable,
        "-m",
        "tests.world.cluster.doomed_harness",
        "ssh-disks",
        fresh_run_id(),
    ]
    with subprocess.Popen(
        [*command, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, HOSTS: plan},
    ) as harness:
        assert harness.stdout is not None
        try:
            assert harness.stdout.readline().startswith("ready")
            assert not [s for s in sweep_hosts(hosts.plan().hosts) if "removed" in s], "it lives"
            assert len(hosts.leftovers()) > 9
        finally:
            harness.send_signal(signal.SIGKILL)
            harness.wait()
    assert asyncio.run(is_clean(hosts, "abc", LEASE_S + LATE_S)) > LEASE_S / 2


def test_clean_does_not_wait_for_the_lease_and_takes_what_was_uploaded(
    hosts: Hosts, tmp_path: Path
) -> None:
    run_id, plan = fresh_run_id(), msgspec.json.encode(hosts.plan(60)).decode()
    command = [sys.executable, "-m", "tests.world.cluster.doomed_harness", "ssh-disks", run_id]
    with subprocess.Popen(
        [*command, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, HOSTS: plan},
    ) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline().startswith("ready")
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    sentences = sweep_hosts(hosts.plan().hosts)
    assert len([s for s in sentences if f"of run {run_id} from" in s]) == 3, sentences
    assert hosts.leftovers() == []
    assert hosts.run("a", "ls -A ~/.cache") == ""
