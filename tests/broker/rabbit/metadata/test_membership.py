"""A node that the cluster has forgotten is refused, until it is let in again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shalott.broker.rabbit.metadata import membership
from tests.world.rabbit.metadata import World

pytestmark = pytest.mark.unit

SENTENCE = "Node n3 thinks it's clustered with node n1, but n1 disagrees"


def run(mode: str, body: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(mode)
        try:
            await world.boot()
            await body(world)
        finally:
            await world.close()

    asyncio.run(main())


async def forget_n3(world: World) -> None:
    await world.kill("n3")
    await world.until(lambda: len(world.servers["n1"].members) == 2)
    await world.metadata["n1"].transact(lambda tx: membership.forget(tx, "n3"), confirmed=True)


@pytest.mark.parametrize("mode", ["ignore", "pause_minority"])
def test_a_forgotten_node_is_refused_with_rabbitmqs_sentence(mode: str) -> None:
    async def body(world: World) -> None:
        await forget_n3(world)
        assert world.servers["n1"].belonging() == ("n1", "n2") == world.servers["n2"].belonging()
        world.make("n3", incarnation=2)
        refused: list[str] = []
        world.servers["n3"].on_refused = refused.append
        booting = asyncio.create_task(world.servers["n3"].boot())
        world.board.link_all()
        await world.until(lambda: bool(refused))
        assert refused[0].replace("n2", "n1") == SENTENCE
        assert len(world.servers["n1"].members) == 2 and not booting.done()
        booting.cancel()
        await asyncio.gather(booting, return_exceptions=True)

    run(mode, body)


@pytest.mark.parametrize("mode", ["ignore", "pause_minority"])
def test_who_is_let_in_joins(mode: str) -> None:
    async def body(world: World) -> None:
        await forget_n3(world)
        assert await world.metadata["n2"].transact(lambda tx: membership.admit(tx, "n3"))
        assert not await world.metadata["n2"].transact(lambda tx: membership.admit(tx, "n3"))
        world.make("n3", incarnation=2)
        world.board.link_all()
        async with asyncio.timeout(5):
            await world.servers["n3"].boot()
        await world.until(lambda: all(len(s.members) == 3 for s in world.servers.values()))
        assert world.servers["n3"].belonging() == ("n1", "n2", "n3")

    run(mode, body)


def test_after_a_stop_of_all_nobody_waits_for_a_forgotten_node() -> None:
    """Mnesia's rule asks for every node that may have fresher tables: it may not be one of them."""

    async def body(world: World) -> None:
        await forget_n3(world)
        for node in ("n1", "n2"):
            await world.kill(node)
        # Neither saw the other go down, and both must be there: n3 is not.
        for node in ("n1", "n2"):
            world.journals[node].saw_down.clear()
            world.make(node)
        world.board.link("n1", "n2")
        async with asyncio.timeout(5):
            await asyncio.gather(*(world.servers[node].boot() for node in ("n1", "n2")))
        assert world.servers["n1"].belonging() == ("n1", "n2")

    run("ignore", body)
