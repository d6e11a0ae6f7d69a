"""Names and addresses of the simulated network: who is reached by which."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from tests.world.clock.turns import passes, turns
from tests.world.network.hosts import PORT, World

pytestmark = pytest.mark.unit


def test_unknown_names_and_foreign_addresses_are_refused() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(socket.gaierror):
            await asyncio.open_connection("nowhere", PORT)
        with pytest.raises(OSError, match="cannot assign requested address") as caught:
            await loop.create_server(asyncio.Protocol, "b", PORT)
        assert caught.value.errno == errno.EADDRNOTAVAIL

    world = World()
    world.run(main())


@pytest.mark.parametrize("bound", [None, "", "0.0.0.0", "b"])
def test_a_server_is_reached_by_its_hosts_name(bound: str | None) -> None:
    async def serve() -> None:
        def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello")
            writer.close()

        await asyncio.start_server(greet, bound, PORT)

    async def main() -> None:
        world.spawn("b", serve())
        await turns()
        reader, writer = await asyncio.open_connection("b", PORT)
        assert await reader.read() == b"hello"
        writer.close()

    world = World()
    world.run(main())


def test_a_server_on_loopback_is_reached_from_its_own_host_only() -> None:
    async def serve() -> None:
        await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", PORT)

    async def dial() -> str:
        _, writer = await asyncio.open_connection("localhost", PORT)
        writer.close()
        return "connected"

    async def main() -> None:
        world.spawn("b", serve())
        await passes(0.1)
        _, dialled = world.spawn("b", dial())
        assert await dialled == "connected"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("b", PORT)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", PORT)  # the harness's own

    world = World()
    world.run(main())


def test_loopback_is_never_cut() -> None:
    async def main() -> None:
        with pytest.raises(AssertionError, match="a can't be cut from itself"):
            world.network.cut([("a", "a")])

    world = World()
    world.run(main())
