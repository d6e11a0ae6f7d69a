"""Relays hold bytes as TCP would while a link is cut, in order, the ends of streams too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shalott.cluster.local.relay import HELD_BYTES_MAX, HOST, Relays
from shalott.cluster.nodes import Endpoint

pytestmark = pytest.mark.unit

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SILENCE_S = 0.1  # for how long nothing must come
SOON_S = 5


class Harness:
    """Node b listens; node a dials it through the relay. ``accepted`` are b's ends."""

    def __init__(self, relays: Relays) -> None:
        self.relays = relays
        self.accepted: asyncio.Queue[Streams] = asyncio.Queue()
        self._open: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        self.accepted.put_nowait((reader, writer))

    async def dial(self) -> Streams:
        at = self.relays.endpoint("a", "b", "cluster")
        reader, writer = await asyncio.open_connection(at.host, at.port)
        self._open.append(writer)
        return reader, writer

    async def connect(self) -> tuple[Streams, Streams]:
        near = await self.dial()
        return near, await asyncio.wait_for(self.accepted.get(), SOON_S)

    async def nobody_comes(self) -> bool:
        try:
            await asyncio.wait_for(self.accepted.get(), SILENCE_S)
        except TimeoutError:
            return True
        return False

    def cut(self, source: str, destination: str, is_cut: bool = True) -> None:
        self.relays.links[source, destination].set_cut(is_cut)

    async def close(self) -> None:
        for writer in self._open:
            writer.close()
        for writer in self._open:
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def with_relays(scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def main() -> None:
        relays = Relays(("a", "b"))
        harness = Harness(relays)
        server = await asyncio.start_server(harness.serve, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        nowhere = {"cluster": Endpoint(HOST, port)}
        await relays.open({"a": nowhere, "b": nowhere})
        try:
            await scenario(harness)
        finally:
            await relays.close()
            server.close()
            await server.wait_closed()
            # A connection that was just accepted is the harness's a few turns later.
            while left := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(left)
            await harness.close()

    asyncio.run(main())


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.read(1), SILENCE_S)
    except TimeoutError:
        return True
    return False


async def receive(reader: asyncio.StreamReader, size: int) -> bytes:
    return await asyncio.wait_for(reader.readexactly(size), SOON_S)


def test_bytes_go_both_ways() -> None:
    async def scenario(harness: Harness) -> None:
        (reader, writer), (far_reader, far_writer) = await harness.connect()
        writer.write(b"there")
        far_writer.write(b"and back")
        assert await receive(far_reader, 5) == b"there"
        assert await receive(reader, 8) == b"and back"

    with_relays(scenario)


def test_a_cut_holds_one_direction_and_a_mend_releases_it_in_order() -> None:
    async def scenario(harness: Harness) -> None:
        (reader, writer), (far_reader, far_writer) = await harness.connect()
        harness.cut("a", "b")
        for number in range(100):
            writer.write(bytes([number]))
        far_writer.write(b"x")
        assert await receive(reader, 1) == b"x"
        assert await is_silent(far_reader)
        harness.cut("a", "b", False)
        assert await receive(far_reader, 100) == bytes(range(100))

    with_relays(scenario)


def test_a_cut_sender_stalls_instead_of_filling_the_relay() -> None:
    async def scenario(harness: Harness) -> None:
        (_, writer), (far_reader, _) = await harness.connect()
        harness.cut("a", "b")
        payload = bytes(64 * HELD_BYTES_MAX)
        writer.write(payload)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), SILENCE_S)
        harness.cut("a", "b", False)
        assert await receive(far_reader, len(payload)) == payload

    with_relays(scenario)


def test_a_new_connection_needs_both_directions() -> None:
    async def scenario(harness: Harness) -> None:
        harness.cut("b", "a")
        _, writer = await harness.dial()
        writer.write(b"hello")
        assert await harness.nobody_comes()
        harness.cut("b", "a", False)
        far_reader, _ = await asyncio.wait_for(harness.accepted.get(), SOON_S)
        assert await receive(far_reader, 5) == b"hello"

    with_relays(scenario)


def test_a_dialler_that_gives_up_during_a_cut_is_never_seen() -> None:
    async def scenario(harness: Harness) -> None:
        harness.cut("a", "b")
        _, writer = await harness.dial()
        writer.close()
        await writer.wait_closed()
        assert await harness.nobody_comes()
        harness.cut("a", "b", False)
        (_, _), (far_reader, _) = await harness.connect()
        assert await is_silent(far_reader), "the only connection is the new one"
        assert harness.accepted.empty()

    with_relays(scenario)


def test_the_end_of_a_stream_is_held_like_its_bytes() -> None:
    async def scenario(harness: Harness) -> None:
        (_, writer), (far_reader, _) = await harness.connect()
        harness.cut("a", "b")
        writer.write(b"last words")
        writer.close()
        assert await is_silent(far_reader)
        harness.cut("a", "b", False)
        assert await receive(far_reader, 10) == b"last words"
        assert await asyncio.wait_for(far_reader.read(1), SOON_S) == b""

    with_relays(scenario)


def test_a_reset_is_passed_on_and_held() -> None:
    async def scenario(harness: Harness) -> None:
        (_, writer), (far_reader, far_writer) = await harness.connect()
        harness.cut("a", "b")
        writer.transport.abort()
        far_writer.write(b"into the void")
        assert await is_silent(far_reader)
        harness.cut("a", "b", False)
        try:
            assert await asyncio.wait_for(far_reader.read(1), SOON_S) == b""
        except ConnectionResetError:
            pass

    with_relays(scenario)


def test_half_closed_connections_still_carry_the_other_direction() -> None:
    async def scenario(harness: Harness) -> None:
        (reader, writer), (far_reader, far_writer) = await harness.connect()
        writer.write_eof()
        assert await asyncio.wait_for(far_reader.read(1), SOON_S) == b""
        far_writer.write(b"answer")
        assert await receive(reader, 6) == b"answer"

    with_relays(scenario)


def test_nobody_behind_the_relay_looks_like_a_broken_connection() -> None:
    async def scenario(harness: Harness) -> None:
        relays = Relays(("a", "b"))
        unused = await asyncio.start_server(harness.serve, HOST, 0)
        port = unused.sockets[0].getsockname()[1]
        unused.close()
        await unused.wait_closed()
        await relays.open({node: {"cluster": Endpoint(HOST, port)} for node in ("a", "b")})
        at = relays.endpoint("a", "b", "cluster")
        reader, writer = await asyncio.open_connection(at.host, at.port)
        try:
            assert await asyncio.wait_for(reader.read(1), SOON_S) == b""
        except ConnectionResetError:
            pass
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
            await relays.close()

    with_relays(scenario)


def test_a_probe_feels_its_direction_only_and_the_node_never_sees_it() -> None:
    async def scenario(harness: Harness) -> None:
        harness.cut("b", "a")
        assert await harness.relays.probe("a", "b", SOON_S * 1000)
        assert not await harness.relays.probe("b", "a", 50)
        assert harness.accepted.empty()
        harness.cut("b", "a", False)
        assert await harness.relays.probe("b", "a", SOON_S * 1000)
        assert harness.accepted.empty()

    with_relays(scenario)


def test_delayed_bytes_keep_their_order() -> None:
    async def scenario(harness: Harness) -> None:
        (_, writer), (far_reader, _) = await harness.connect()
        link = harness.relays.links["a", "b"]
        loop = asyncio.get_running_loop()
        link.set_shape(3 * SILENCE_S, 0)
        sent_at = loop.time()
        writer.write(b"slow")
        assert await is_silent(far_reader), "the relay has it, and keeps it"
        link.set_shape(0, 0)
        writer.write(b"fast")
        assert await receive(far_reader, 8) == b"slowfast"
        assert loop.time() - sent_at >= 3 * SILENCE_S

    with_relays(scenario)


def test_a_rate_holds_for_all_connections_of_a_link_together() -> None:
    async def scenario(harness: Harness) -> None:
        pairs = [await harness.connect() for _ in range(2)]
        harness.relays.links["a", "b"].set_shape(0, 100_000)
        loop = asyncio.get_running_loop()
        started = loop.time()
        for (_, writer), _ in pairs:
            writer.write(bytes(10_000))
        for _, (far_reader, _) in pairs:
            await receive(far_reader, 10_000)
        assert loop.time() - started >= 0.17  # 20 kB at 100 kB/s, less the last slice

    with_relays(scenario)
