"""Requests across a network that loses its links and a server that is killed: what a client says
became of a request is true, and said in time.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from shalott.broker.rocket.config import parse_address
from shalott.broker.rocket.remoting.client import (
    CONNECT_TIMEOUT_MS,
    RemotingClient,
    Unanswered,
    Unreachable,
)
from shalott.broker.rocket.remoting.command import Command, response
from shalott.broker.rocket.remoting.server import Caller, RemotingServer
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.clock.turns import passes
from tests.world.network.hosts import World

pytestmark = pytest.mark.unit

ADDRESS = "b:10911"
TIMEOUT_MS = 1000.0
LINK = [("a", "b"), ("b", "a")]


class Cluster:
    """Clients run on host a, the server on b."""

    def __init__(self, seed: int = 11) -> None:
        self.world = World(seed=seed)
        self.seen: dict[str, None] = {}
        self.closed = 0
        self.server_process: SimProcess | None = None

    async def serve(self) -> None:
        up = asyncio.Event()
        self.server_process, _ = self.world.spawn("b", self._serve(up))
        await up.wait()

    async def _serve(self, up: asyncio.Event) -> None:
        server = RemotingServer({1: self.echo}, host="b", port=10911, on_close=self.on_close)
        await server.start()
        up.set()
        await asyncio.Event().wait()

    def on_close(self, caller: Caller) -> None:
        self.closed += 1

    async def echo(self, request: Command, caller: Caller) -> Command:
        self.seen[request.ext["n"]] = None
        await passes(float(request.ext.get("after_s", "0")))
        return response(0, ext=request.ext)


async def outcome(client: RemotingClient, number: int, after_s: float = 0.0) -> str:
    request = Command(code=1, ext={"n": str(number), "after_s": str(after_s)})
    started_s = asyncio.get_running_loop().time()
    try:
        answer = await client.invoke(ADDRESS, request, TIMEOUT_MS)
        assert answer.ext["n"] == str(number)
        return "answered"
    except Unreachable:
        return "unreachable"
    except Unanswered:
        return "unanswered"
    finally:
        took_ms = (asyncio.get_running_loop().time() - started_s) * 1000
        assert took_ms <= TIMEOUT_MS + 1


def test_a_link_that_is_cut_and_mended() -> None:
    cluster = Cluster()

    async def client_program() -> list[str]:
        client = RemotingClient(parse_address)
        seen = [await outcome(client, 1)]
        cluster.world.network.cut(LINK)
        seen.append(await outcome(client, 2))  # over a connection that looks alive
        seen.append(await outcome(client, 3))  # which is not used again
        cluster.world.network.mend(LINK)
        await passes(CONNECT_TIMEOUT_MS / 1000)  # until then it waits for the old dialling
        seen.append(await outcome(client, 4))
        await client.close()
        return seen

    async def main() -> None:
        await cluster.serve()
        _, task = cluster.world.spawn("a", client_program())
        assert await task == ["answered", "unanswered", "unreachable", "answered"]
        assert "3" not in cluster.seen

    cluster.world.run(main())


def test_the_server_forgets_a_client_that_fell_silent() -> None:
    cluster = Cluster()

    async def client_program() -> None:
        client = RemotingClient(parse_address)
        await outcome(client, 1)
        cluster.world.network.cut(LINK)
        await client.close()  # the server never hears of it

    async def main() -> None:
        await cluster.serve()
        _, task = cluster.world.spawn("a", client_program())
        await task
        await passes(119)
        assert cluster.closed == 0
        await passes(2)
        assert cluster.closed == 1

    cluster.world.run(main())


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(12))
def test_what_a_client_says_became_of_a_request_is_true(seed: int) -> None:
    cluster = Cluster(seed)
    rng = random.Random(seed)
    network = cluster.world.network
    told: dict[int, str] = {}

    async def ask(client: RemotingClient, number: int) -> None:
        await passes(rng.random() * 60)
        told[number] = await outcome(client, number, rng.choice([0.0, 0.0, 0.3, 2.0]))

    async def client_program() -> None:
        client = RemotingClient(parse_address)
        await asyncio.gather(*(ask(client, number) for number in range(300)))
        await client.close()

    async def break_things() -> None:
        while True:
            await passes(rng.random() * 5)
            if rng.random() < 0.3:
                assert cluster.server_process is not None
                cluster.world.kill(cluster.server_process)
                await passes(rng.random())
                await cluster.serve()
            else:
                links = [rng.choice(LINK)] if rng.random() < 0.5 else LINK
                network.cut(links)
                await passes(rng.random() * 3)
                network.mend(links)

    async def main() -> None:
        await cluster.serve()
        breaking = asyncio.create_task(break_things())
        _, task = cluster.world.spawn("a", client_program())
        await task
        breaking.cancel()
        await asyncio.gather(breaking, return_exceptions=True)

    cluster.world.run(main())
    assert len(told) == 300
    for number, became in told.items():
        was_seen = str(number) in cluster.seen
        if became == "answered":
            assert was_seen
        if became == "unreachable":
            assert not was_seen, (
                f"{number} was carried out, and its client was told it was not sent"
            )
    assert len(dict.fromkeys(told.values())) == 3, "a run that shows nothing"
