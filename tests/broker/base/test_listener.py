"""A server whose start is cancelled leaves the port free."""

from __future__ import annotations

import asyncio
import socket

import pytest

from shalott.broker.base.listener import listen
from tests.world.clock.turns import turns

pytestmark = pytest.mark.unit


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


@pytest.mark.parametrize("rounds", range(8))
def test_cancelled_after_any_round_of_the_loop_it_leaves_the_port_free(rounds: int) -> None:
    async def scenario() -> None:
        port = free_port()
        starting = asyncio.create_task(listen(accepted, "127.0.0.1", port))
        await turns(rounds)
        starting.cancel()
        done = (await asyncio.gather(starting, return_exceptions=True))[0]
        if isinstance(done, asyncio.Server):
            done.close()
        again = await listen(accepted, "127.0.0.1", port)
        again.close()
        await again.wait_closed()

    asyncio.run(scenario())


def test_a_taken_port_is_told() -> None:
    async def scenario() -> None:
        server = await listen(accepted, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            await listen(accepted, "127.0.0.1", port)
        server.close()

    asyncio.run(scenario())
