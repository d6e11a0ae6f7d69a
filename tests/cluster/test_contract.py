"""The contract of cluster/cluster.py, held by every backend alike. The nodes are fake
(tests/world/cluster/fake_node.py); the faults are real."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shalott.cluster.cluster import Cluster, ignore_exit
from shalott.cluster.nodes import DiskFaults, LinkShape, NodeExit
from shalott.cluster.sim.backend import SimCluster
from tests.world.cluster.backends import READY_MS, World, booted_world
from tests.world.cluster.fake_system import (
    NODES,
    FakeSystem,
    answers,
    bulk_seconds,
    echoes,
    management,
    starts,
)

CUT_PROBE_MS = 200  # how long a probe over a cut link is given; it never arrives
KILLED = 128 + signal.SIGKILL
BACK_AFTER_S = 20  # TCP's own retransmission backs off while a link is cut


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("sim", marks=pytest.mark.sim),
        pytest.param("local", marks=pytest.mark.local),
        pytest.param("local-disks", marks=pytest.mark.local),
        pytest.param("ssh", marks=pytest.mark.local),
        pytest.param("ssh-disks", marks=pytest.mark.local),
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("docker-exec", marks=pytest.mark.docker),
        pytest.param("docker-disks", marks=pytest.mark.docker),
    ],
)
def booted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """One cluster for all tests of a backend."""
    with booted_world(request.param, tmp_path_factory.mktemp("work")) as world:
        yield world


@pytest.fixture
def world(booted: World, request: pytest.FixtureRequest) -> World:
    if booted.backend.endswith("-disks") and request.function not in NEAR_DISKS:
        pytest.skip("it has nothing to do with disks")
    booted.run(booted.make_whole())
    return booted


async def eventually_echoes(world: World, source: str, destination: str, *, held: bool) -> bool:
    """Whether a round trip works again before the deadline."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + BACK_AFTER_S
    while loop.time() < deadline:
        if await echoes(world.cluster, source, destination, held=held):
            return True
    return False


def test_every_node_answers_after_boot(world: World) -> None:
    async def check() -> None:
        for node in NODES:
            assert (await world.cluster.processes.status(node)).state == "running"
            assert await answers(world.cluster, node)

    world.run(check())


def test_a_node_listens_at_the_ports_that_its_system_names(world: World) -> None:
    found = {port: world.cluster.endpoint("n1", port).port for port in world.system.ports}
    if world.cluster.backend == "local":  # all nodes share one address
        assert len({world.cluster.endpoint(n, p) for n in NODES for p in found}) == 6
    else:
        assert found == {"management": 8501, "cluster": 7301}


def test_data_and_address_outlive_a_kill(world: World) -> None:
    async def check() -> None:
        endpoint = world.cluster.endpoint("n1", "cluster")
        before = await starts(world.cluster, "n1")
        await world.cluster.processes.kill("n1")
        await world.cluster.processes.start("n1")
        await world.system.await_ready(world.cluster, ["n1"], READY_MS)
        assert await starts(world.cluster, "n1") == before + 1
        assert world.cluster.endpoint("n1", "cluster") == endpoint

    world.run(check())


def test_kill_returns_when_the_process_is_gone(world: World) -> None:
    async def check() -> None:
        await world.cluster.processes.kill("n2")
        status = await world.cluster.processes.status("n2")
        assert (status.state, status.exit_code, status.pid) == ("exited", 137, None)
        assert not await answers(world.cluster, "n2")
        assert not await world.cluster.links.reach("n1", "n2", CUT_PROBE_MS)
        assert not await world.cluster.links.reach("n2", "n1", CUT_PROBE_MS)

    world.run(check())


def test_killing_a_dead_node_and_starting_a_running_one_change_nothing(world: World) -> None:
    async def check() -> None:
        before = await starts(world.cluster, "n1")
        await world.cluster.processes.start("n1")
        assert await starts(world.cluster, "n1") == before
        await world.cluster.processes.kill("n1")
        await world.cluster.processes.kill("n1")
        assert (await world.cluster.processes.status("n1")).state == "exited"

    world.run(check())


def test_stop_is_sigterm(world: World) -> None:
    async def check() -> None:
        await world.cluster.processes.stop("n3")
        assert (await world.cluster.processes.status("n3")).exit_code == 128 + 15

    world.run(check())


def test_stop_kills_a_node_that_ignores_it(world: World) -> None:
    async def check() -> None:
        await management(world.cluster, "n3").get("/deaf")
        await world.cluster.processes.stop("n3", timeout_ms=1000)
        assert (await world.cluster.processes.status("n3")).exit_code == 137

    world.run(check())


def test_a_paused_node_is_silent_and_goes_on_where_it_was(world: World) -> None:
    async def check() -> None:
        before = await starts(world.cluster, "n2")
        await world.cluster.processes.pause("n2")
        assert (await world.cluster.processes.status("n2")).state == "paused"
        assert not await answers(world.cluster, "n2")
        await world.cluster.processes.resume("n2")
        assert (await world.cluster.processes.status("n2")).state == "running"
        assert await starts(world.cluster, "n2") == before

    world.run(check())


def test_a_paused_node_can_be_killed_and_stopped(world: World) -> None:
    async def check() -> None:
        await world.cluster.processes.pause("n2")
        await world.cluster.processes.kill("n2")
        assert (await world.cluster.processes.status("n2")).state == "exited"
        await world.make_whole()
        await world.cluster.processes.pause("n2")
        await world.cluster.processes.stop("n2", timeout_ms=5000)
        assert (await world.cluster.processes.status("n2")).exit_code == 128 + 15
        await world.make_whole()
        assert (await world.cluster.processes.status("n2")).state == "running"

    world.run(check())


def test_a_cut_hangs_connections_and_a_mend_lets_them_go_on(world: World) -> None:
    async def check() -> None:
        both = [("n1", "n2"), ("n2", "n1")]
        assert await echoes(world.cluster, "n1", "n2", held=True)
        await world.cluster.links.cut(both)
        assert not await echoes(world.cluster, "n1", "n2", held=True), "established"
        assert not await echoes(world.cluster, "n1", "n2"), "new"
        assert await echoes(world.cluster, "n1", "n3"), "others are not hit"
        assert await answers(world.cluster, "n2"), "clients are not hit"
        await world.cluster.links.mend(both)
        # The node keeps its connection only while it is neither reset nor closed.
        assert await eventually_echoes(world, "n1", "n2", held=True)
        assert await eventually_echoes(world, "n1", "n2", held=False)

    world.run(check())


def test_reach_proves_each_direction_by_itself(world: World) -> None:
    async def check() -> None:
        assert await world.cluster.links.reach("n1", "n2")
        await world.cluster.links.cut([("n1", "n2")])
        assert not await world.cluster.links.reach("n1", "n2", CUT_PROBE_MS)
        assert await world.cluster.links.reach("n2", "n1")
        assert not await echoes(world.cluster, "n1", "n2"), "a round trip needs both ways"
        assert not await echoes(world.cluster, "n2", "n1"), "also from the other side"
        await world.cluster.links.mend([("n1", "n2")])
        assert await world.cluster.links.reach("n1", "n2")

    world.run(check())


def test_cuts_are_counted_and_late_mends_do_nothing(world: World) -> None:
    async def check() -> None:
        await world.cluster.links.cut([("n1", "n2"), ("n1", "n3")])
        await world.cluster.links.cut([("n1", "n2")])
        await world.cluster.links.mend([("n1", "n2"), ("n1", "n3")])
        assert not await world.cluster.links.reach("n1", "n2", CUT_PROBE_MS)
        assert await world.cluster.links.reach("n1", "n3")
        await world.cluster.links.mend([("n1", "n2")])
        assert await world.cluster.links.reach("n1", "n2")
        await world.cluster.links.mend([("n1", "n2")])
        await world.cluster.links.cut([("n1", "n2")])
        assert not await world.cluster.links.reach("n1", "n2", CUT_PROBE_MS)

    world.run(check())


def test_a_cut_outlives_a_restart(world: World) -> None:
    async def check() -> None:
        await world.cluster.links.cut([("n1", "n2")])
        await world.cluster.processes.kill("n2")
        await world.cluster.processes.start("n2")
        await world.system.await_ready(world.cluster, ["n2"], READY_MS)
        assert not await world.cluster.links.reach("n1", "n2", CUT_PROBE_MS)
        assert await world.cluster.links.reach("n2", "n1")

    world.run(check())


def test_a_link_can_be_cut_and_mended_while_its_end_is_paused(world: World) -> None:
    async def check() -> None:
        await world.cluster.processes.pause("n2")
        assert await world.cluster.links.reach("n1", "n2"), "a paused node's kernel still receives"
        await world.cluster.links.cut([("n1", "n2")])
        assert not await world.cluster.links.reach("n1", "n2", CUT_PROBE_MS)
        await world.cluster.links.mend([("n1", "n2")])
        assert await world.cluster.links.reach("n1", "n2")

    world.run(check())


def test_heal_undoes_cuts_and_pauses_but_starts_nothing(world: World) -> None:
    async def check() -> None:
        await world.cluster.links.cut([("n1", "n2"), ("n2", "n1"), ("n1", "n2")])
        await world.cluster.processes.pause("n2")
        await world.cluster.processes.kill("n3")
        await world.cluster.heal()
        assert await world.cluster.links.reach("n1", "n2")
        assert await answers(world.cluster, "n2", timeout_ms=3000)
        assert (await world.cluster.processes.status("n3")).state == "exited"

    world.run(check())


def test_a_throttled_link_is_slow_and_heal_restores_it(world: World) -> None:
    if "throttle" not in world.cluster.capabilities:
        pytest.skip("this kernel can't throttle links between containers")

    async def check() -> None:
        quick = await bulk_seconds(world.cluster, "n1", "n2")
        await world.cluster.links.shape("n1", "n2", LinkShape(rate_bytes_s=64 * 1024))
        # 128 KiB, of which the line may take 32 at once.
        assert await bulk_seconds(world.cluster, "n1", "n2") >= 1.4
        await world.cluster.heal()
        assert await bulk_seconds(world.cluster, "n1", "n2") < 1.4, f"it was {quick} s"

    world.run(check())


def test_a_delayed_link_delays_what_it_carries(world: World) -> None:
    if "delay" not in world.cluster.capabilities:
        pytest.skip("this kernel can't delay packets")

    async def check() -> None:
        await world.cluster.links.shape("n1", "n2", LinkShape(delay_ms=150))
        loop = asyncio.get_running_loop()
        before = loop.time()
        assert await echoes(world.cluster, "n1", "n2")
        assert loop.time() - before >= 0.150
        await world.cluster.links.shape("n1", "n2", LinkShape())
        assert await echoes(world.cluster, "n1", "n2")

    world.run(check())


def test_wipe_removes_a_stopped_nodes_data(world: World) -> None:
    async def check() -> None:
        await world.cluster.processes.kill("n3")
        await world.cluster.files.wipe("n3")
        await world.cluster.processes.start("n3")
        await world.system.await_ready(world.cluster, ["n3"], READY_MS)
        assert await starts(world.cluster, "n3") == 1

    world.run(check())


def test_machines_that_are_kept_have_no_past(world: World, tmp_path: Path) -> None:
    cluster = world.cluster
    if not cluster.is_reusable:
        pytest.skip("its machines are made anew for each run")
    told: list[NodeExit] = []

    async def check() -> None:
        before = [cluster.endpoint(node, "management") for node in NODES]
        cluster.on_exit = told.append
        await cluster.links.cut([("n1", "n2"), ("n2", "n1")])
        await cluster.processes.pause("n2")
        await cluster.processes.kill("n3")
        await cluster.clear()
        assert [(await cluster.processes.status(node)).state for node in NODES] == ["exited"] * 3
        await cluster.boot_again(FakeSystem())
        await world.system.await_ready(cluster, NODES, READY_MS)
        assert [await starts(cluster, node) for node in NODES] == [1, 1, 1]
        assert [cluster.endpoint(node, "management") for node in NODES] == before
        assert await cluster.links.reach("n1", "n2") and await cluster.links.reach("n2", "n1")
        await cluster.files.collect(tmp_path)
        # Each said so once, however often it had been started before.
        printed = [(tmp_path / node / "output.log").read_text() for node in NODES]
        assert [text.count(" starts for the") for text in printed] == [1, 1, 1]
        cluster.on_exit = ignore_exit

    world.run(check())
    assert told == []


def test_commands_run_in_the_nodes_world_and_end_at_their_timeout(world: World) -> None:
    if world.cluster.backend == "sim":
        pytest.skip("a simulated node has no shell")

    async def check() -> None:
        said = await world.cluster.processes.run_command("n1", ["sh", "-c", "echo here; exit 3"])
        assert (said.exit_code, said.output.strip()) == (3, "here")
        hung = await world.cluster.processes.run_command("n1", ["sleep", "60"], timeout_ms=200)
        assert hung.exit_code == 124

    world.run(check())


def test_collect_brings_output_and_events_of_all_lives(world: World, tmp_path: Path) -> None:
    async def check() -> None:
        await world.cluster.processes.kill("n1")
        await world.cluster.processes.start("n1")
        await world.system.await_ready(world.cluster, ["n1"], READY_MS)
        assert "n1 starts" in await world.cluster.files.output("n1")
        await world.cluster.processes.kill("n2")
        await world.cluster.files.collect(tmp_path)

    world.run(check())
    for node in NODES:
        assert f"{node} starts for the" in (tmp_path / node / "output.log").read_text()
        assert (tmp_path / node / "events.jsonl").stat().st_size > 0
    assert (tmp_path / "n1" / "output.log").read_text().count("n1 starts") >= 2


def test_faults_of_many_callers_compose(world: World) -> None:
    async def check() -> None:
        async def flap(link: tuple[str, str]) -> None:
            for _ in range(2):
                await world.cluster.links.cut([link])
                await world.cluster.links.mend([link])

        links = [(a, b) for a in NODES for b in NODES if a != b]
        await asyncio.gather(*map(flap, links))
        reached = await asyncio.gather(*(world.cluster.links.reach(*link) for link in links))
        assert all(reached)

    world.run(check())


def test_the_backend_says_how_it_works(world: World) -> None:
    words = world.cluster.describe()
    assert words["backend"].startswith(world.cluster.backend)
    assert {"links", "probe", "pause", "kill"} <= words.keys()


def test_an_end_that_nobody_asked_for_is_told_and_no_other(world: World) -> None:
    async def check() -> None:
        cluster, told = world.cluster, asyncio.Queue[NodeExit]()
        cluster.on_exit = told.put_nowait
        await cluster.processes.kill(NODES[0])
        await cluster.processes.start(NODES[0])
        await cluster.processes.stop(NODES[1])
        await end_from_outside(cluster, NODES[2])
        ended = await asyncio.wait_for(told.get(), BACK_AFTER_S)
        assert (ended.node, ended.exit_code) == (NODES[2], KILLED)
        await cluster.processes.start(NODES[2])
        await cluster.processes.kill(NODES[2])
        assert told.empty(), "what the harness does is no news"
        cluster.on_exit = ignore_exit

    world.run(check())


KEEP = "echo kept >{data}/kept && sync {data}/kept && sync {data}"


def test_a_power_loss_leaves_what_was_synced(world: World) -> None:
    data = data_directory(world)

    async def check() -> None:
        before = await starts(world.cluster, "n2")
        said = await world.cluster.processes.run_command("n2", ["sh", "-c", KEEP.format(data=data)])
        assert said.exit_code == 0, said
        await world.cluster.processes.power_off("n2")
        assert (await world.cluster.processes.status("n2")).state == "exited"
        await world.cluster.processes.start("n2")
        await world.system.await_ready(world.cluster, ["n2"], READY_MS)
        assert await starts(world.cluster, "n2") == before + 1
        kept = await world.cluster.processes.run_command("n2", ["cat", f"{data}/kept"])
        assert (kept.exit_code, kept.output.strip()) == (0, "kept")

    world.run(check())


def test_disk_faults_are_felt_by_the_nodes_programs_and_healed(world: World) -> None:
    data = data_directory(world)

    serial = itertools.count()

    async def write(node: str) -> int:
        """The exit code of a program that writes a new file and syncs it."""
        file = f"of={data}/filled-{next(serial)}"
        words = ["dd", "if=/dev/zero", file, "bs=4096", "count=1", "conv=fsync"]
        return (await world.cluster.processes.run_command(node, words)).exit_code

    async def check() -> None:
        assert await write("n3") == 0
        for faults in (DiskFaults(full=True), DiskFaults(fail_sync=True)):
            await world.cluster.disks.set("n3", faults)
            assert await world.cluster.disks.faults("n3") == faults
            assert await write("n3") != 0
            assert await write("n1") == 0, "others are not hit"
            await world.cluster.heal()
            assert await world.cluster.disks.faults("n3") == DiskFaults()
            assert await write("n3") == 0

    world.run(check())


def data_directory(world: World) -> str:
    """As a node's programs see it. Skips the test where they have no disk that can fail."""
    found = {"docker-disks": "/data", "ssh-disks": ".", "local-disks": "."}.get(world.backend)
    if found is not None:
        return found
    pytest.skip("its disks are this host's own, or simulated (tests/cluster/sim/disk)")


NEAR_DISKS = (
    test_every_node_answers_after_boot,
    test_data_and_address_outlive_a_kill,
    test_kill_returns_when_the_process_is_gone,
    test_wipe_removes_a_stopped_nodes_data,
    test_machines_that_are_kept_have_no_past,
    test_collect_brings_output_and_events_of_all_lives,
    test_a_power_loss_leaves_what_was_synced,
    test_disk_faults_are_felt_by_the_nodes_programs_and_healed,
    test_the_backend_says_how_it_works,
    test_an_end_that_nobody_asked_for_is_told_and_no_other,
)


async def end_from_outside(cluster: Cluster, node: str) -> None:
    """SIGKILL, by somebody else than the cluster."""
    if isinstance(cluster, SimCluster):
        cluster.machines[node].end(KILLED)
        cluster.machines[node].on_exit(cluster.machines[node])
        return
    pid = (await cluster.processes.status(node)).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
