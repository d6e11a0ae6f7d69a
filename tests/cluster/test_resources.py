"""Containers that run short of something: what their processes meet, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tenacity import wait_fixed

from shalott.cluster import forking
from shalott.cluster.cgroups import Hierarchy, groups_of, read_hierarchies
from shalott.cluster.docker.backend import DockerCluster, DockerOptions
from shalott.cluster.kernel_limits import FileLimits
from shalott.cluster.nodes import PLENTY, NodeExit, NodeSpec, Shortage, Topology
from shalott.cluster.waiting import ask_until, wait_until
from shalott.core.errors import ClientError, HarnessError
from tests.cluster.test_clocks import run_faults
from tests.nemesis.test_settings import of_kind
from tests.world.clock.turns import answered
from tests.world.cluster.backends import READY_MS, fresh_run_id
from tests.world.cluster.fake_system import NODES, FakeSystem, answers, management, starts
from tests.world.harness.nemesis import MemoryRecorder

KINDS = [
    *(("cpu-starve", 20), ("memory-limit", 64), ("fd-exhaust", 8), ("fork-bomb", 8)),
    *(("tmp-full", 0), ("pause-process", 0)),
]

Scene = Callable[[DockerCluster], Awaitable[None]]


def in_a_container(scene: Scene, system: FakeSystem | None = None) -> None:
    """One node, with a /tmp that can be filled."""

    async def play() -> None:
        cluster = DockerCluster(NODES[:1], fresh_run_id(), DockerOptions(small_tmp=True))
        booted = system or FakeSystem()
        try:
            await cluster.boot(booted)
            await booted.await_ready(cluster, NODES[:1], READY_MS)
            await scene(cluster)
        finally:
            await cluster.teardown()

    asyncio.run(play())


async def use(cluster: DockerCluster, what: str) -> tuple[int, Any]:
    response = await management(cluster, "n1").request("GET", f"/use/{what}")
    return response.status, response.json()


async def await_shortage(cluster: DockerCluster, shortage: Shortage) -> None:
    async def is_seen() -> bool:
        return await cluster.resources.seen("n1") == shortage

    await answered(is_seen, f"{shortage} is seen", within_s=10)


@pytest.mark.docker
def test_every_shortage_is_proved_and_healed() -> None:
    recorder = MemoryRecorder()
    cluster = DockerCluster(NODES, fresh_run_id(), DockerOptions(small_tmp=True))
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


@pytest.mark.docker
def test_a_process_gets_the_share_of_a_cpu_that_is_left_to_it() -> None:
    async def scene(cluster: DockerCluster) -> None:
        await cluster.resources.set("n1", Shortage(cpu_percent=10))
        assert await cluster.resources.seen("n1") == Shortage(cpu_percent=10)
        _, took_s = await use(cluster, "cpu")
        assert took_s > 0.5, "0.1 s of CPU at a tenth of one"
        await cluster.resources.set("n1", PLENTY)
        assert await cluster.resources.seen("n1") == PLENTY

    in_a_container(scene)


@pytest.mark.docker
@pytest.mark.parametrize(
    ("shortage", "what", "said"),
    [
        (Shortage(files_left=3), "file", "Too many open files"),
        (Shortage(processes_left=4), "thread", "can't start new thread"),
        (Shortage(is_tmp_full=True), "tmp", "No space left on device"),
    ],
)
def test_calls_that_ask_for_more_fail_until_it_is_healed(
    shortage: Shortage, what: str, said: str
) -> None:
    async def scene(cluster: DockerCluster) -> None:
        await cluster.resources.set("n1", shortage)
        await await_shortage(cluster, shortage)
        found = [await use(cluster, what) for _ in range(3)]
        assert found[-1][0] == 507 and said in found[-1][1], found
        # A new life of the node's lacks the same, and no other one after the heal.
        await cluster.processes.kill("n1")
        await cluster.processes.start("n1")
        await FakeSystem().await_ready(cluster, ["n1"], READY_MS)
        await await_shortage(cluster, shortage)
        await cluster.heal()
        assert await cluster.resources.seen("n1") == PLENTY
        assert (await use(cluster, what))[0] == 200
        said_by_ps = await cluster.processes.run_command(
            "n1", ["sh", "-c", "ls -d /proc/[0-9]* | wc -l"]
        )
        assert int(said_by_ps.output) < 8, "what forked has ended and was buried"

    in_a_container(scene)


@pytest.mark.docker
def test_the_kernel_ends_a_node_that_takes_more_memory_than_is_left_to_it() -> None:
    async def scene(cluster: DockerCluster) -> None:
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

    in_a_container(scene)


@pytest.mark.docker
def test_a_node_that_the_kernel_ended_is_started_when_the_fault_ends() -> None:
    recorder = MemoryRecorder()
    cluster = DockerCluster(NODES, fresh_run_id())

    async def run() -> None:
        eating = asyncio.create_task(eat())
        await run_faults(cluster, recorder, of_kind("memory-limit", 4, duration_ms=2500))
        await eating

    async def eat() -> None:
        assert await wait_until(lambda: bool(recorder.of("probe")), 20, 0.01)
        with pytest.raises(ClientError):
            await management(cluster, "n2").request("GET", "/use/memory")

    asyncio.run(run())
    (row,) = recorder.faults()
    assert row["exited"] == {"n2": [137]}
    assert row["proved_effective"] and row["proved_healed"]


class Restarting(FakeSystem):
    """Its nodes are started again by the engine."""

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        specs = super().node_specs(topology)
        return [msgspec.structs.replace(spec, restart_if_exits=True) for spec in specs]


@pytest.mark.docker
def test_a_node_that_the_engine_starts_again_lacks_the_same() -> None:
    async def scene(cluster: DockerCluster) -> None:
        await cluster.resources.set("n1", Shortage(memory_left_mib=16))
        with pytest.raises(ClientError):
            await use(cluster, "memory")
        await await_shortage(cluster, Shortage(memory_left_mib=16))
        await cluster.heal()
        assert await cluster.resources.seen("n1") == PLENTY

    in_a_container(scene, Restarting())


@pytest.mark.docker
def test_a_process_that_stands_still_leaves_the_others_running() -> None:
    async def scene(cluster: DockerCluster) -> None:
        async def is_stopped() -> bool:
            """A signal takes hold when its process is next due."""
            return await cluster.resources.seen("n1") == Shortage(is_stopped=True)

        await cluster.resources.set("n1", Shortage(is_stopped=True))
        assert await ask_until(is_stopped, 10, wait_fixed(0.05))
        assert not await answers(cluster, "n1")
        assert (await cluster.processes.run_command("n1", ["true"])).exit_code == 0
        # It can be stopped in order all the same, and its next life does not run either.
        await cluster.processes.stop("n1")
        await cluster.processes.start("n1")
        assert not await answers(cluster, "n1")
        await cluster.heal()
        await FakeSystem().await_ready(cluster, ["n1"], READY_MS)
        assert await starts(cluster, "n1") == 2

    in_a_container(scene)


@pytest.mark.docker
def test_a_tmp_on_the_hosts_disk_is_not_filled() -> None:
    async def scene() -> None:
        cluster = DockerCluster(NODES[:1], fresh_run_id())
        try:
            await cluster.boot(FakeSystem())
            assert "fill-tmp" not in cluster.capabilities
            with pytest.raises(HarnessError, match="the host's is not filled"):
                await cluster.resources.set("n1", Shortage(is_tmp_full=True))
        finally:
            await cluster.teardown()

    asyncio.run(scene())


IDLE = "import sys; print('forking', flush=True); sys.stdin.read()"


@pytest.mark.docker
@pytest.mark.parametrize("kind", ["fd-exhaust", "fork-bomb"])
def test_a_shortage_that_is_none_is_found_out(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The planted failure: no limit is set, nothing forks."""
    idle = tmp_path / "idle.py"
    idle.write_text(IDLE)
    monkeypatch.setattr(forking, "__file__", str(idle))
    monkeypatch.setattr(FileLimits, "leave", lambda *arguments: None)
    recorder = MemoryRecorder()
    cluster = DockerCluster(NODES, fresh_run_id())
    asyncio.run(run_faults(cluster, recorder, of_kind(kind, 8, duration_ms=500)))
    (row,) = recorder.faults()
    assert row["proved_effective"] is False


MOUNTS = """\
30 24 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
35 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
"""


@pytest.mark.unit
def test_mounted_groups_of_both_versions_are_read() -> None:
    base = Path("/sys/fs/cgroup")
    assert read_hierarchies(MOUNTS) == [
        Hierarchy(base / "cpu,cpuacct", "/", ("cpu", "cpuacct")),
        Hierarchy(base / "memory", "/docker/x", ("memory",)),
        Hierarchy(base / "unified", "/", ()),
    ]


TREES = """\
31 24 0:21 / /g/cpu rw - cgroup cgroup rw,cpu
32 24 0:22 / /g/memory rw - cgroup cgroup rw,memory
33 24 0:23 / /g/pids rw - cgroup cgroup rw,pids
34 24 0:24 / /g/cpuacct rw - cgroup cgroup rw,cpuacct
"""


@pytest.mark.unit
def test_the_groups_of_a_whole_machine_are_never_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not entered a group of its own is in one with everything else."""
    own = "5:cpuacct:/own\n4:memory:/own\n3:cpu:/own\n2:pids:/own\n"
    texts = {"mountinfo": TREES, "cgroup": own, "cgroup.procs": "70\n71\n"}
    monkeypatch.setattr(Path, "read_text", lambda self: texts[self.name])
    found = [str(path) for path in groups_of(70).directories.values()]
    assert sorted(found) == ["/g/cpu/own", "/g/cpuacct/own", "/g/memory/own", "/g/pids/own"]
    texts["cgroup.procs"] = "1\n70\n71\n"
    with pytest.raises(HarnessError, match="process 70 shares its control group with 1"):
        groups_of(70)


@pytest.mark.unit
def test_a_process_that_is_not_on_this_host_is_refused() -> None:
    with pytest.raises(HarnessError, match="is not seen on this host"):
        groups_of(1 << 30)
