"""Clients are cut off from one port of a node, and everything else goes on; and files of nodes are
read while they run. Fake nodes, real faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shalott.cluster.nodes import CLIENTS
from shalott.cluster.parts import CutsClients, ReadsDataFiles
from shalott.cluster.sim.backend import SimCluster
from shalott.nemesis.clients import is_answered
from tests.world.cluster.backends import World, booted_world
from tests.world.cluster.fake_system import answers, echoes

REQUESTS, ANSWERS = (CLIENTS, "n1"), ("n1", CLIENTS)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("sim", marks=pytest.mark.sim),
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("ssh", marks=pytest.mark.local),
    ],
)
def booted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with booted_world(request.param, tmp_path_factory.mktemp("work")) as world:
        if isinstance(world.cluster, SimCluster):
            world.cluster.separate_clients([world.system.ports["management"]])
        yield world


@pytest.fixture
def world(booted: World) -> World:
    booted.run(booted.make_whole())
    return booted


async def reached(world: World, node: str, port: str) -> bool:
    at = world.cluster.endpoint(node, port)
    return await is_answered(at.host, at.port)


@pytest.mark.parametrize("links", [(REQUESTS,), (ANSWERS,), (REQUESTS, ANSWERS)])
def test_clients_do_not_reach_one_port_and_everything_else_goes_on(
    world: World, links: tuple[tuple[str, str], ...]
) -> None:
    links_of_world = world.cluster.links
    assert isinstance(links_of_world, CutsClients)
    assert "cut-clients" in world.cluster.capabilities

    async def check() -> None:
        assert await reached(world, "n1", "management")
        await links_of_world.set_client_cuts(links, ["management"])
        assert list(await links_of_world.client_cuts()) == sorted(links)
        assert not await reached(world, "n1", "management")
        assert await reached(world, "n1", "cluster"), "its other port"
        assert await reached(world, "n2", "management"), "another node"
        for pair in (("n1", "n2"), ("n2", "n1")):
            assert await world.cluster.links.reach(*pair), "the nodes reach each other"
        await links_of_world.set_client_cuts((), ["management"])
        assert list(await links_of_world.client_cuts()) == []
        assert await answers(world.cluster, "n1")
        assert await echoes(world.cluster, "n1", "n2", held=False)

    world.run(check())


def test_cuts_of_clients_and_of_nodes_stand_beside_each_other(world: World) -> None:
    links_of_world = world.cluster.links
    assert isinstance(links_of_world, CutsClients)

    async def check() -> None:
        await links_of_world.set_client_cuts([REQUESTS], ["management"])
        await world.cluster.links.cut([("n2", "n3")])
        assert not await reached(world, "n1", "management")
        assert not await world.cluster.links.reach("n2", "n3", 200)
        await world.cluster.links.mend([("n2", "n3")])
        assert await world.cluster.links.reach("n2", "n3")
        assert not await reached(world, "n1", "management"), "a mend of nodes' links is none of it"
        await world.cluster.heal()
        assert list(await links_of_world.client_cuts()) == []
        assert await answers(world.cluster, "n1")

    world.run(check())


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("local", marks=pytest.mark.local),
        pytest.param("ssh", marks=pytest.mark.local),
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("docker-exec", marks=pytest.mark.docker),
    ],
)
def test_a_file_is_read_while_its_node_runs(
    backend: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with booted_world(backend, tmp_path_factory.mktemp("work")) as world:
        cluster = world.cluster
        files = cluster.files
        assert isinstance(files, ReadsDataFiles) and "trigger-event" in cluster.capabilities

        async def check() -> None:
            await world.make_whole()
            whole = await files.read("n1", "events.jsonl", 0)
            assert whole.startswith(b"{")
            assert await files.read("n1", "events.jsonl", 3) == whole[3:]
            assert await files.read("n1", "events.jsonl", len(whole)) == b""
            assert await files.read("n1", "nothing.jsonl", 0) == b""

        world.run(check())
