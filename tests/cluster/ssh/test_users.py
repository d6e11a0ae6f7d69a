"""Who logs in need not be root: with sudo the agent is, and the nodes run as the user; without it
there are no cuts, and everything else works."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from shalott.cluster.ssh.backend import SshCluster, SshOptions
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import HostPlan, SshPlan
from tests.world.cluster.backends import READY_MS, fresh_run_id
from tests.world.cluster.fake_system import NODES, FakeSystem, answers, echoes
from tests.world.cluster.ssh_hosts import Hosts, require_faketime, ssh_hosts

pytestmark = pytest.mark.local

# A user of the host's own, who may use sudo where there is one.
USER = (
    "cp /etc/passwd /run/passwd && echo 'tester:x:4242:100::/run/tester:/bin/sh' >>/run/passwd"
    " && mount --bind /run/passwd /etc/passwd"
    " && cp /etc/shadow /run/shadow && echo 'tester:*:19000:0:99999:7:::' >>/run/shadow"
    " && mount --bind /run/shadow /etc/shadow && mkdir -p /run/tester /run/sudoers"
    " && chown 4242:100 /run/tester"
    " && if [ -d /etc/sudoers.d ]; then echo 'tester ALL=(root) NOPASSWD: ALL'"
    " >/run/sudoers/tester && chmod 440 /run/sudoers/tester"
    " && mount --bind /run/sudoers /etc/sudoers.d; fi"
)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        for name in made.names:
            made.reboot(name, USER)
        yield made


def logging_in(hosts: Hosts, name: str, *, sudo: bool) -> HostPlan:
    return replace(hosts.host(name), user="tester", sudo=sudo)


def owner_of_node(hosts: Hosts, pid: int | None) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def test_with_sudo_links_are_cut_and_nodes_run_as_the_user(hosts: Hosts) -> None:
    if shutil.which("sudo") is None:
        pytest.skip("no sudo: apt-get install -y sudo")
    plan = SshPlan(
        hosts=tuple(logging_in(hosts, name, sudo=True) for name in hosts.names), lease_s=5
    )

    async def live() -> None:
        cluster, system = SshCluster(NODES, fresh_run_id(), plan), FakeSystem()
        assert "cut" in cluster.capabilities
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, NODES, READY_MS)
            assert owner_of_node(hosts, (await cluster.processes.status("n1")).pid) == 4242
            await cluster.links.cut([("n1", "n2")])
            assert not await cluster.links.reach("n1", "n2", 200)
            hosts.end(hosts.sessions("b"))
            await cluster.processes.kill("n2")
            await cluster.files.wipe("n2")
            await cluster.processes.start("n2")
            await cluster.heal()
            assert await cluster.links.reach("n1", "n2")
        finally:
            await cluster.teardown()

    asyncio.run(live())
    assert hosts.leftovers() == []
    assert hosts.run("b", "ls /run/tester/.cache/shalott/runs") == ""


def test_without_it_nodes_are_killed_and_paused_and_links_stay(hosts: Hosts) -> None:
    plan = SshPlan(
        hosts=tuple(logging_in(hosts, name, sudo=False) for name in hosts.names), lease_s=5
    )

    async def live() -> None:
        cluster, system = SshCluster(NODES, fresh_run_id(), plan), FakeSystem()
        files = {"wipe", "trigger-event", "change-files"}  # of the user's own nodes
        assert cluster.capabilities == {"kill", "stop", "pause", *files}
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, NODES, READY_MS)
            assert owner_of_node(hosts, (await cluster.processes.status("n1")).pid) == 4242
            await cluster.processes.pause("n1")
            assert not await answers(cluster, "n1")
            await cluster.heal()
            await cluster.processes.kill("n1")
            assert (await cluster.processes.status("n1")).state == "exited"
            with pytest.raises(HarnessError, match="n1: nft: .*Operation not permitted"):
                await cluster.links.cut([("n2", "n1")])
        finally:
            await cluster.teardown()

    asyncio.run(live())
    assert hosts.leftovers() == []
    assert hosts.run("a", "ls /dev/shm/shalott-4242 /run/tester/.cache/shalott/runs") == (
        "/dev/shm/shalott-4242:\n\n/run/tester/.cache/shalott/runs:\n"
    )


@pytest.mark.parametrize("sudo", [False, True])
def test_a_users_node_has_a_clock_of_its_own(hosts: Hosts, sudo: bool) -> None:
    """The agent may be root, and the node's process is not."""
    require_faketime()
    if sudo and shutil.which("sudo") is None:
        pytest.skip("no sudo: apt-get install -y sudo")
    host = logging_in(hosts, "a", sudo=sudo)

    async def live() -> None:
        nodes = ("n1",)
        cluster = SshCluster(
            nodes, fresh_run_id(), SshPlan(hosts=(host,), lease_s=5), SshOptions(clocks=True)
        )
        system = FakeSystem()
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, nodes, READY_MS)
            assert owner_of_node(hosts, (await cluster.processes.status("n1")).pid) == 4242
            await cluster.clocks.set("n1", offset_ms=-5000)
            assert abs(await cluster.clocks.offset_ms("n1") + 5000) < cluster.clocks.error_ms
            await cluster.heal()
            assert abs(await cluster.clocks.offset_ms("n1")) < cluster.clocks.error_ms
        finally:
            await cluster.teardown()

    asyncio.run(live())
    assert hosts.leftovers() == []


def test_sudo_that_is_refused_is_told(hosts: Hosts) -> None:
    hosts.run("a", "umount /etc/sudoers.d")
    with pytest.raises(UsageError, match="^tester may not become root by `sudo -n` on "):
        SshCluster(["n1"], fresh_run_id(), SshPlan(hosts=(logging_in(hosts, "a", sudo=True),)))


def test_a_host_behind_another_is_reached_through_it(hosts: Hosts) -> None:
    jump = f"root@{hosts.address('c')}"
    plans = tuple(replace(hosts.host(name), jump=jump) for name in ("a", "b"))
    nodes = ("n1", "n2")

    async def live() -> None:
        cluster = SshCluster(nodes, fresh_run_id(), SshPlan(hosts=plans, lease_s=5))
        system = FakeSystem()
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, nodes, READY_MS)
            assert {cluster.endpoint(node, "management").host for node in nodes} == {"127.0.0.1"}
            assert await echoes(cluster, "n1", "n2")
            await cluster.links.cut([("n1", "n2")])
            assert not await echoes(cluster, "n1", "n2")
            hosts.end(hosts.sessions("c"))  # the way to both
            assert (await cluster.processes.status("n1")).state == "running"
            await cluster.heal()
            await cluster.processes.kill("n1")
            assert not await answers(cluster, "n1")
            await cluster.processes.start("n1")
            await system.await_ready(cluster, nodes, READY_MS)
        finally:
            await cluster.teardown()

    asyncio.run(live())
    assert hosts.leftovers() == []
