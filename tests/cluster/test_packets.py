"""What the packet engine does to real packets between containers, and what is left of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shalott.cluster.docker.backend import DockerCluster
from shalott.cluster.docker.links import ContainerLinks
from shalott.cluster.docker.packet_engine import open_queue
from shalott.cluster.docker.packets import list_engines, sweep_engines
from shalott.cluster.nodes import LinkShape, PacketsSeen
from shalott.cluster.owner import this_process
from shalott.cluster.packets.engine import Engine
from shalott.cluster.waiting import wait_until
from shalott.core.errors import HarnessError
from shalott.nemesis.links import packets_agree, packets_for
from shalott.nemesis.proofs import shape_data
from tests.world.cluster.backends import World, booted_world
from tests.world.cluster.fake_system import echoes

pytestmark = pytest.mark.docker

SPOILT = [
    LinkShape(delay_ms=60),
    LinkShape(jitter_ms=80),
    LinkShape(jitter_ms=80, correlation=0.5),
    LinkShape(loss=0.2),
    LinkShape(duplicate=0.2),
    LinkShape(reorder=0.2),
    LinkShape(corrupt=0.2),
    LinkShape(delay_ms=30, loss=0.1, duplicate=0.1, reorder=0.1),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with booted_world("docker", tmp_path_factory.mktemp("work")) as booted:
        if "duplicate" not in booted.cluster.capabilities:
            pytest.skip("this host has neither netem nor packet queues")
        yield booted


def docker(world: World) -> DockerCluster:
    assert isinstance(world.cluster, DockerCluster)
    return world.cluster


def links_of(cluster: DockerCluster) -> ContainerLinks:
    assert isinstance(cluster.links, ContainerLinks)
    return cluster.links


async def measured(world: World, source: str, destination: str, shape: LinkShape) -> PacketsSeen:
    return await links_of(docker(world)).measure(source, destination, packets_for(shape))


def data(seen: PacketsSeen) -> dict[str, float | None]:
    return {name: getattr(seen, name) for name in PacketsSeen.__struct_fields__}


@pytest.mark.parametrize("shape", SPOILT, ids=str)
def test_a_shape_is_measured_on_its_link_and_on_no_other(world: World, shape: LinkShape) -> None:
    async def check() -> None:
        cluster = docker(world)
        await cluster.links.shape("n1", "n2", shape)
        assert await cluster.links.shape_of("n1", "n2") == shape
        seen = await measured(world, "n1", "n2", shape)
        assert packets_agree(data(seen), shape_data(shape)), seen
        for link in (("n2", "n1"), ("n3", "n2")):
            other = await measured(world, *link, LinkShape())
            assert packets_agree(data(other), shape_data(LinkShape())), (link, other)
        await cluster.links.shape("n1", "n2", LinkShape())
        assert await cluster.links.shape_of("n1", "n2") == LinkShape()
        seen = await measured(world, "n1", "n2", LinkShape())
        assert packets_agree(data(seen), shape_data(LinkShape())), seen

    world.run(check())
    world.run(world.make_whole())


def test_a_connection_survives_all_that_happens_to_its_packets(world: World) -> None:
    async def check() -> None:
        shape = LinkShape(delay_ms=5, loss=0.1, duplicate=0.2, reorder=0.2, corrupt=0.1)
        await docker(world).links.shape("n1", "n2", shape)
        heard = [await echoes(world.cluster, "n1", "n2", held=True) for _ in range(10)]
        assert any(heard), "late ones time out, but nothing is lost for good"
        counts = (await links_of(docker(world))._packets.state(("n1", "n2"))).counts
        if counts:  # the engine's
            assert counts["seen"] >= counts["delayed"] > 0

    world.run(check())
    world.run(world.make_whole())


def test_a_shape_outlives_a_restart_and_probes_of_cuts_pass_it(world: World) -> None:
    async def check() -> None:
        shape = LinkShape(delay_ms=700)
        await docker(world).links.shape("n1", "n2", shape)
        await world.cluster.processes.kill("n2")
        await world.cluster.processes.start("n2")
        assert await world.cluster.links.shape_of("n1", "n2") == shape
        seen = await measured(world, "n1", "n2", shape)
        assert packets_agree(data(seen), shape_data(shape)), seen
        assert await world.cluster.links.reach("n1", "n2", 400), "only a cut is a cut"

    world.run(check())
    world.run(world.make_whole())


def test_an_engine_that_ends_leaves_a_whole_network_and_a_sentence(world: World) -> None:
    async def check() -> None:
        cluster = docker(world)
        await cluster.links.shape("n1", "n2", LinkShape(delay_ms=200, loss=0.5))
        pid = links_of(cluster)._packets.engine.pid
        if pid is None:
            pytest.skip("this host's kernel has netem")
        os.kill(pid, signal.SIGKILL)
        plain = LinkShape()

        async def whole() -> bool:
            seen = await asyncio.to_thread(_measure_plainly, cluster)
            return packets_agree(data(seen), shape_data(plain))

        def _measure_plainly(one: DockerCluster) -> PacketsSeen:
            from shalott.cluster.docker.probes import measure

            run = links_of(one)._run
            return measure(run.pids["n1"], run.pids["n2"], run.addresses["n2"], 20, plain)

        assert any([await whole() for _ in range(4)]), "it was dying when it was measured"
        with pytest.raises(HarnessError, match=r"the packet engine ended \(exit code -9\)"):
            await cluster.links.shape_of("n1", "n2")
        await links_of(cluster)._packets.close()

    world.run(check())
    world.run(world.make_whole())


def test_no_engine_is_left_by_a_killed_harness(tmp_path: Path) -> None:
    """By the end of its input. One that does not see that is swept."""
    run_id = f"engine-{os.getpid()}"
    words = ("docker", run_id, str(tmp_path / "work"), "shape")
    command = (sys.executable, "-m", "tests.world.cluster.doomed_harness", *words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline().startswith("ready")
        engines = [
            pid for pid, owner, _ in list_engines() if owner.split(":")[0] == str(harness.pid)
        ]
        assert len(engines) <= 1
        harness.send_signal(signal.SIGKILL)
        harness.wait()

    def gone() -> bool:
        return not [pid for pid, _, _ in list_engines() if pid in engines]

    assert asyncio.run(wait_until(gone, 5, 0.01))
    from shalott.harness.run import backends as select

    assert any(run_id in sentence for sentence in select.sweep_all())


def test_the_engine_of_a_dead_harness_is_swept_and_that_of_a_live_one_is_not() -> None:
    dead = ":".join(["999999", "1", *str(this_process()).split(":")[2:]])
    engines = []
    for owner in (dead, str(this_process())):
        words = ("-m", "shalott.cluster.docker.packet_engine", owner, "atoken", "1")
        engines.append(subprocess.Popen((sys.executable, *words), stdin=subprocess.PIPE))
    try:
        doomed, alive = engines
        said = sweep_engines()
        assert doomed.wait(5) == -signal.SIGKILL
        # Said by who was first: another harness on this machine may sweep as well.
        assert not [s for s in said if f"engine {alive.pid} " in s]
        assert alive.poll() is None
    finally:
        for engine in engines:
            engine.kill()
            engine.communicate()


def test_an_engine_that_drops_nothing_is_found_out() -> None:
    """The planted failure: what it says is in force, and what packets meet, are two things."""
    assert Engine(1, 1, open_queue).release() > 0  # it serves, and nothing comes
    whole = PacketsSeen(
        sent=40, arrived=40, duplicated=0, overtaken=0, corrupted=0, least_ms=0.1, most_ms=0.9
    )
    for shape in SPOILT:
        assert not packets_agree(data(whole), shape_data(shape)), shape
    assert packets_agree(data(whole), shape_data(LinkShape()))
