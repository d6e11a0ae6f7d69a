"""Hosts' nodes that run short of something: what their processes meet, whose limits they are, and
what is left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest

from shalott.cluster import forking
from shalott.cluster import kernel_limits as file_limits
from shalott.cluster.filling import FILLER
from shalott.cluster.kernel_limits import ENOUGH, Lack
from shalott.cluster.nodes import PLENTY, NodeExit, NodeSpec, Shortage, Topology
from shalott.cluster.ssh import upload
from shalott.cluster.ssh.backend import SshCluster, SshOptions
from shalott.cluster.ssh.facts import why_no_resources
from shalott.cluster.ssh.sweep import sweep_hosts
from shalott.cluster.waiting import wait_until
from shalott.core.errors import ClientError, HarnessError
from tests.cluster.ssh.test_host_clocks import facts
from tests.cluster.ssh.test_lost import LATE_S, LEASE_S, agents, is_clean
from tests.cluster.test_clocks import run_faults
from tests.cluster.test_resources import KINDS
from tests.nemesis.test_settings import of_kind
from tests.world.clock.turns import answered
from tests.world.cluster.backends import HOSTS, READY_MS, fresh_run_id
from tests.world.cluster.fake_system import NODES, FakeSystem, answers, management, starts
from tests.world.cluster.ssh_hosts import Hosts, ssh_hosts
from tests.world.harness.nemesis import MemoryRecorder

ROOT = Path(__file__).parents[3]
Scene = Callable[[SshCluster], Awaitable[None]]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        yield made


def cluster_of(hosts: Hosts, nodes: Sequence[str] = NODES, lease_s: float = 20) -> SshCluster:
    made = SshCluster(
        nodes, fresh_run_id(), hosts.plan(lease_s), SshOptions(resources=True, small_tmp=True)
    )
    if "limit-cpu" not in made.capabilities:
        pytest.skip("no control groups can be made here")
    return made


def on_a_host(
    hosts: Hosts, scene: Scene, system: FakeSystem | None = None, lease_s: float = 20
) -> None:
    """One node, with a /tmp that can be filled."""

    async def play() -> None:
        cluster = cluster_of(hosts, NODES[:1], lease_s)
        booted = system or FakeSystem()
        try:
            await cluster.boot(booted)
            await booted.await_ready(cluster, NODES[:1], READY_MS)
            await scene(cluster)
        finally:
            await cluster.teardown()

    asyncio.run(play())
    assert hosts.leftovers() == []


async def use(cluster: SshCluster, what: str) -> tuple[int, object]:
    response = await management(cluster, "n1").request("GET", f"/use/{what}")
    return response.status, response.json()


async def await_shortage(cluster: SshCluster, shortage: Shortage) -> None:
    async def is_seen() -> bool:
        return await cluster.resources.seen("n1") == shortage

    await answered(is_seen, f"{shortage} is seen", within_s=10)


@pytest.mark.local
def test_every_shortage_is_proved_and_healed(hosts: Hosts) -> None:
    recorder = MemoryRecorder()
    cluster = cluster_of(hosts)
    actions = [
        of_kind(kind, amount, number=n, at_ms=100, duration_ms=1500, node=NODES[n % 3])
        for n, (kind, amount) in enumerate(KINDS, start=1)
    ]
    asyncio.run(run_faults(cluster, recorder, *actions))
    probes = [row["extra"] for row in recorder.of("probe")]
    assert len(recorder.faults()) == len(KINDS)
    for row in recorder.faults():
        assert row["error"] is None, row
        of_it = [probe for probe in probes if probe["fault"] == row["fault"]]
        assert row["proved_effective"] and row["proved_healed"], (row["kind"], of_it)
    assert hosts.leftovers() == []


@pytest.mark.local
def test_a_process_gets_the_share_of_a_cpu_that_is_left_to_it(hosts: Hosts) -> None:
    async def scene(cluster: SshCluster) -> None:
        await cluster.resources.set("n1", Shortage(cpu_percent=10))
        assert await cluster.resources.seen("n1") == Shortage(cpu_percent=10)
        response = await management(cluster, "n1").request("GET", "/use/cpu")
        assert response.json() > 0.5, "0.1 s of CPU at a tenth of one"
        await cluster.resources.set("n1", PLENTY)
        assert await cluster.resources.seen("n1") == PLENTY

    on_a_host(hosts, scene)


@pytest.mark.local
@pytest.mark.parametrize(
    ("shortage", "what", "said"),
    [
        (Shortage(files_left=3), "file", "Too many open files"),
        (Shortage(processes_left=4), "thread", "can't start new thread"),
        (Shortage(is_tmp_full=True), "tmp", "No space left on device"),
    ],
)
def test_calls_that_ask_for_more_fail_until_it_is_healed(
    hosts: Hosts, shortage: Shortage, what: str, said: str
) -> None:
    async def scene(cluster: SshCluster) -> None:
        await cluster.resources.set("n1", shortage)
        await await_shortage(cluster, shortage)
        found = [await use(cluster, what) for _ in range(3)]
        assert found[-1][0] == 507 and said in str(found[-1][1]), found
        # A new life of the node's lacks the same, and no other one after the heal.
        await cluster.processes.kill("n1")
        await cluster.processes.start("n1")
        await FakeSystem().await_ready(cluster, ["n1"], READY_MS)
        await await_shortage(cluster, shortage)
        filled = hosts.run("a", f"cd /tmp; ls {FILLER} 2>/dev/null")
        assert not filled, "the host's is not filled"
        await cluster.heal()
        assert await cluster.resources.seen("n1") == PLENTY
        assert (await use(cluster, what))[0] == 200

    on_a_host(hosts, scene)


@pytest.mark.local
def test_the_kernel_ends_a_node_that_takes_more_memory_than_is_left_to_it(hosts: Hosts) -> None:
    async def scene(cluster: SshCluster) -> None:
        ended: list[NodeExit] = []
        cluster.on_exit = ended.append
        await cluster.resources.set("n1", Shortage(memory_left_mib=16))
        assert await cluster.resources.seen("n1") == Shortage(memory_left_mib=16)
        with pytest.raises(ClientError):
            await use(cluster, "memory")
        assert await wait_until(lambda: bool(ended), 10, 0.01)
        assert ended[0].out_of_memory and ended[0].exit_code == 137
        assert await cluster.resources.seen("n1") == PLENTY, "nobody runs short where nobody runs"
        await cluster.resources.set("n1", PLENTY)
        await cluster.processes.start("n1")
        await FakeSystem().await_ready(cluster, ["n1"], READY_MS)
        assert (await use(cluster, "memory"))[0] == 200

    on_a_host(hosts, scene)


class Restarting(FakeSystem):
    """Its nodes are started again by the agent."""

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        specs = super().node_specs(topology)
        return [msgspec.structs.replace(spec, restart_if_exits=True) for spec in specs]


@pytest.mark.local
def test_a_node_that_the_agent_starts_again_lacks_the_same(hosts: Hosts) -> None:
    async def scene(cluster: SshCluster) -> None:
        await cluster.resources.set("n1", Shortage(memory_left_mib=16))
        with pytest.raises(ClientError):
            await use(cluster, "memory")
        await await_shortage(cluster, Shortage(memory_left_mib=16))
        await cluster.heal()
        assert await cluster.resources.seen("n1") == PLENTY

    on_a_host(hosts, scene, Restarting())


@pytest.mark.local
def test_a_process_that_stands_still_does_so_after_a_pause_too(hosts: Hosts) -> None:
    async def scene(cluster: SshCluster) -> None:
        await cluster.resources.set("n1", Shortage(is_stopped=True))
        assert not await answers(cluster, "n1")
        assert (await cluster.processes.run_command("n1", ["true"])).exit_code == 0
        await cluster.processes.pause("n1")
        await cluster.processes.resume("n1")
        await await_shortage(cluster, Shortage(is_stopped=True))
        # It can be stopped in order all the same, and its next life does not run either.
        await cluster.processes.stop("n1")
        await cluster.processes.start("n1")
        assert not await answers(cluster, "n1")
        await cluster.heal()
        await FakeSystem().await_ready(cluster, ["n1"], READY_MS)
        assert await starts(cluster, "n1") == 2

    on_a_host(hosts, scene)


async def all_short(cluster: SshCluster) -> None:
    shortage = Shortage(cpu_percent=50, processes_left=8, files_left=8, is_tmp_full=True)
    await cluster.resources.set("n1", shortage)
    await await_shortage(cluster, shortage)


@pytest.mark.local
@pytest.mark.parametrize("killed", ["agent", "both", "connection"])
def test_nothing_is_left_of_a_shortage(hosts: Hosts, killed: str) -> None:
    """By the keeper at once, by a sweep, and by the agent when the harness is silent."""

    async def scene(cluster: SshCluster) -> None:
        await all_short(cluster)
        left = hosts.leftovers(["a"])
        assert any(": group" in each for each in left) and any(": tmp" in each for each in left)
        if killed == "agent":
            hosts.end(agents(hosts, "a")[:1])
            await is_clean(hosts, "a", LATE_S)
        elif killed == "both":
            hosts.end(agents(hosts, "a"))
            assert await asyncio.to_thread(sweep_hosts, [hosts.host("a")])
            assert hosts.leftovers(["a"]) == []
        else:
            hosts.end(hosts.sessions("a"))
            assert (await cluster.resources.seen("n1")).is_tmp_full, (
                "a lost connection undoes nothing"
            )

    on_a_host(hosts, scene, lease_s=LEASE_S)


@pytest.mark.local
def test_a_killed_harness_leaves_no_shortage_after_the_lease(hosts: Hosts, tmp_path: Path) -> None:
    cluster_of(hosts)
    plan = msgspec.json.encode(hosts.plan(LEASE_S)).decode()
    words = ("ssh-resources", fresh_run_id(), str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.world.cluster.doomed_harness", *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, HOSTS: plan},
    ) as harness:
        assert harness.stdout is not None
        try:
            assert harness.stdout.readline().startswith("ready")
            assert any(": group" in each for each in hosts.leftovers())
        finally:
            harness.kill()
            harness.wait()
    assert asyncio.run(is_clean(hosts, "abc", LEASE_S + LATE_S)) > LEASE_S / 2


@pytest.mark.local
def test_a_node_that_was_not_started_for_it_is_refused(hosts: Hosts) -> None:
    async def scene() -> None:
        cluster = SshCluster(NODES[:1], fresh_run_id(), hosts.plan())
        try:
            assert not cluster.capabilities & {"limit-cpu", "fill-tmp"}
            await cluster.boot(FakeSystem())
            with pytest.raises(HarnessError, match="was not started to be short of anything"):
                await cluster.resources.set("n1", Shortage(is_tmp_full=True))
        finally:
            await cluster.teardown()

    asyncio.run(scene())


@pytest.mark.local
@pytest.mark.parametrize("kind", ["fd-exhaust", "fork-bomb"])
def test_a_shortage_that_is_none_is_found_out(
    hosts: Hosts, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted failure: no limit is set, nothing forks."""
    idle = "\n\ndef main(arguments: list[str]) -> None:\n    os.write(1, b'forking\\n')\n"
    none = "\n\nFileLimits.leave = lambda *arguments: None\n"
    changed = {
        "shalott/cluster/forking.py": Path(forking.__file__).read_text() + idle,
        "shalott/cluster/kernel_limits.py": Path(file_limits.__file__).read_text() + none,
    }
    sources = {**upload.agent_sources(), **{k: v.encode() for k, v in changed.items()}}
    monkeypatch.setattr(upload, "agent_sources", lambda: sources)
    recorder = MemoryRecorder()
    asyncio.run(run_faults(cluster_of(hosts), recorder, of_kind(kind, 8, duration_ms=500)))
    (row,) = recorder.faults()
    assert row["proved_effective"] is False


@pytest.mark.unit
def test_what_a_host_lacks_for_it_is_said() -> None:
    assert why_no_resources(facts(is_root=False)) == "only root limits nodes there"
    lacking = "no control groups for cpu, memory, pids can be made there: mount them"
    assert why_no_resources(facts()) == lacking


@pytest.mark.unit
def test_a_shortage_is_the_same_where_there_is_no_msgspec() -> None:
    assert [each.name for each in fields(Lack)] == [*Shortage.__struct_fields__]
    assert msgspec.structs.asdict(PLENTY) == vars(ENOUGH)
