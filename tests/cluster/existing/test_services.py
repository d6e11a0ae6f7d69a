"""Services that commands start, on hosts over SSH: what is done to them, and that they run again
in every case."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec
import pytest

from shalott.cluster.capabilities import Can
from shalott.cluster.cluster import Cluster
from shalott.cluster.existing.backend import make_existing
from shalott.cluster.nodes import DiskFaults, NodeExit, NodeSpec, Topology
from shalott.core.errors import HarnessError, MissingCapability, UsageError
from shalott.core.plan import ExistingNode, ExistingPlan
from tests.world.cluster.backends import fresh_run_id
from tests.world.cluster.ssh_hosts import Hosts, ssh_hosts

pytestmark = pytest.mark.local

NODES = ("n1", "n2")
PID = "/run/there.pid"
START = f"cd / && {{ python3 -m http.server 7000 >/dev/null 2>&1 & echo $! >{PID}; }}"
LEASE_S = 3.0
NEEDS: Can = frozenset({"kill", "stop", "pause", "cut", "disk-full"})


class Web:
    name = "web"
    image = "web"
    ports: Mapping[str, int] = MappingProxyType({"client": 7000})

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        raise AssertionError("nothing is booted")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), 2) as made:
        for name in made.names:
            made.run(name, f"mkdir /run/data && mount -t tmpfs -o size=4m tmpfs /run/data; {START}")
        yield made


def plan_of(hosts: Hosts, lease_s: float = 20.0) -> ExistingPlan:
    nodes = {
        node: ExistingNode(
            ssh=msgspec.structs.replace(hosts.host(name), directory=".shalott"),
            start=START,
            stop=f"kill $(cat {PID})",
            pids=f"cat {PID}",
            data="/run/data",
        )
        for node, name in zip(NODES, hosts.names, strict=True)
    }
    return ExistingPlan(nodes=nodes, lease_s=lease_s)


def made(hosts: Hosts, lease_s: float = 20.0) -> Cluster:
    return make_existing(NODES, fresh_run_id(), plan_of(hosts, lease_s), 1, NEEDS)


def runs(hosts: Hosts) -> list[str]:
    """The state of each host's service, as the kernel says."""
    script = f"cut -d ' ' -f 3 /proc/$(cat {PID})/stat 2>/dev/null"
    # A zombie is gone; on this machine there may be no process that reaps it.
    return [hosts.run(name, script).strip().replace("Z", "") for name in hosts.names]


def assert_as_found(hosts: Hosts) -> None:
    assert {*runs(hosts)} <= {"S", "R"}
    assert hosts.leftovers() == []
    for name in hosts.names:
        assert hosts.run(name, "ls -a ~ /run/data | grep shalott; ls -d /run/shalott") == ""


def test_it_is_stopped_killed_paused_cut_and_filled_and_is_as_it_was(hosts: Hosts) -> None:
    ended: list[NodeExit] = []

    async def break_it() -> None:
        cluster = made(hosts)
        cluster.on_exit = ended.append
        try:
            await cluster.boot(Web())
            for end in (cluster.processes.kill, cluster.processes.stop):
                await end("n1")
                assert (await cluster.processes.status("n1")).state == "exited"
                assert runs(hosts)[0] == ""
                await cluster.processes.start("n1")
                assert (await cluster.processes.status("n1")).state == "running"
            await cluster.processes.pause("n2")
            assert (await cluster.processes.status("n2")).state == "paused"
            assert runs(hosts)[1] == "T"
            await cluster.links.cut([("n1", "n2")])
            assert not await cluster.links.reach("n1", "n2", 500)
            assert await cluster.links.reach("n2", "n1", 5000)
            await cluster.disks.set("n1", DiskFaults(full=True))
            assert (await cluster.disks.faults("n1")).full
            with pytest.raises(MissingCapability, match="never wiped"):
                await cluster.files.wipe("n1")
        finally:
            await cluster.teardown()
        assert [note for note in cluster.notes if "Nothing of the run is left on n1, n2" in note]

    asyncio.run(break_it())
    assert ended == []
    assert_as_found(hosts)


def test_an_end_that_was_not_asked_for_is_told(hosts: Hosts) -> None:
    async def see() -> None:
        cluster = made(hosts)
        told: asyncio.Future[NodeExit] = asyncio.get_running_loop().create_future()
        try:
            await cluster.boot(Web())
            cluster.on_exit = told.set_result
            hosts.run("b", f"kill -9 $(cat {PID})")
            assert (await asyncio.wait_for(told, 10)).node == "n2"
            await cluster.processes.start("n2")
        finally:
            await cluster.teardown()

    asyncio.run(see())
    assert_as_found(hosts)


def test_what_is_down_before_is_refused_and_named_when_it_is_left(hosts: Hosts) -> None:
    async def refuse() -> None:
        hosts.run("a", f"kill -9 $(cat {PID})")
        cluster = made(hosts)
        with pytest.raises(UsageError, match="n1 is exited"):
            await cluster.boot(Web())
        with pytest.raises(HarnessError, match="n1: the node does not run"):
            await cluster.teardown()

    try:
        asyncio.run(refuse())
    finally:
        hosts.run("a", START)
    assert_as_found(hosts)


def test_a_harness_that_is_gone_leaves_nothing_after_the_lease(hosts: Hosts) -> None:
    pid = os.fork()
    if pid == 0:  # it dies of its own hand, as by kill -9, with everything in force
        asyncio.run(_break_and_die(hosts))
        os._exit(3)
    os.waitpid(pid, 0)
    assert runs(hosts) == ["T", ""]
    deadline = time.monotonic() + LEASE_S + 10
    while "T" in (states := runs(hosts)) or "" in states or hosts.leftovers():
        assert time.monotonic() < deadline, (states, hosts.leftovers())
        time.sleep(0.1)
    assert_as_found(hosts)


async def _break_and_die(hosts: Hosts) -> None:
    cluster = made(hosts, LEASE_S)
    await cluster.boot(Web())
    await cluster.links.cut([("n1", "n2")])
    await cluster.processes.kill("n2")
    await cluster.processes.pause("n1")
    os.kill(os.getpid(), 9)
