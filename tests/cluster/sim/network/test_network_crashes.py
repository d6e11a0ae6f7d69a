"""The simulated network when programs, kernels and hosts come and go: who refuses, resets, and who
hears nothing."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from shalott.cluster.sim.network.network import NetworkKnobs
from tests.world.clock.turns import passes
from tests.world.network.hosts import PORT, World

pytestmark = pytest.mark.unit

PLAIN = NetworkKnobs(latency_us=1000)
ROUND_TRIP_MS = 2


async def listen(port: int = PORT) -> asyncio.Server:
    """A server that greets."""

    def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    return await asyncio.start_server(greet, None, port)


async def fetch(host: str = "b", port: int = PORT) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return await reader.read()
    finally:
        writer.close()


async def outcome(dial: asyncio.Task[Any]) -> str:
    await asyncio.wait([dial])
    error = dial.exception()
    return "connected" if error is None else type(error).__name__


# -- connecting ------------------------------------------------------------------------------------


def test_a_live_kernel_refuses_at_once() -> None:
    async def main() -> None:
        began = world.now_ms
        with pytest.raises(ConnectionRefusedError):
            await fetch()
        assert world.now_ms - began == ROUND_TRIP_MS

    world = World(PLAIN)
    world.run(main())


@pytest.mark.parametrize("cut", [("harness", "b"), ("b", "harness")])
def test_a_dial_over_a_cut_link_is_repeated_after_1_2_and_4_seconds(cut: tuple[str, str]) -> None:
    async def main() -> None:
        world.spawn("b", listen())
        await passes(0.1)
        world.network.cut([cut])
        began = world.now_ms
        dial = asyncio.create_task(fetch())
        await passes(4)
        assert not dial.done()
        world.network.mend([cut])
        assert await dial == b"hello"
        assert world.now_ms - began == pytest.approx(7000 + 2 * ROUND_TRIP_MS)

    world = World(PLAIN)
    world.run(main())


def test_a_dial_to_a_host_without_power_times_out_after_127_seconds() -> None:
    async def main() -> None:
        world.network.host_down("b")
        began = world.now_ms
        with pytest.raises(TimeoutError) as caught:
            await fetch()
        assert caught.value.errno == errno.ETIMEDOUT
        assert world.now_ms - began == 127_000

    world = World(PLAIN)
    world.run(main())


def test_the_caller_may_give_a_dial_up_first() -> None:
    async def main() -> None:
        world.network.host_down("b")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await fetch()
        world.network.host_up("b")
        world.spawn("b", listen())
        await passes(60)
        assert world.network.segments == 0

    world = World(PLAIN)
    world.run(main())


def test_a_lost_syn_costs_a_second() -> None:
    async def main() -> None:
        world.spawn("b", listen())
        await passes(0.1)
        took = []
        for _ in range(40):
            began = world.now_ms
            await fetch()
            took.append(world.now_ms - began)
        assert any(one >= 1000 for one in took)
        assert any(one < 50 for one in took)

    world = World(NetworkKnobs(loss=0.2))
    world.run(main())


def test_a_dead_process_dials_no_more() -> None:
    async def main() -> None:
        world.network.cut([("a", "b")])
        process, _ = world.spawn("a", fetch())
        await passes(2)
        world.kill(process)
        world.network.heal()
        world.spawn("b", listen())
        await passes(60)
        assert world.network.segments == 0

    world = World(PLAIN)
    world.run(main())


def test_a_paused_program_is_connected_by_its_kernel_and_accepts_later() -> None:
    async def main() -> None:
        server, _ = world.spawn("b", listen())
        await passes(0.1)
        server.state = "paused"
        reader, writer = await asyncio.open_connection("b", PORT)
        writer.write(b"anybody there?")
        await passes(30)
        assert reader._buffer == b""  # type: ignore[attr-defined]
        world.loop.resume(server)
        assert await reader.read(5) == b"hello"
        writer.close()

    world = World(PLAIN)
    world.run(main())


def test_a_full_backlog_answers_no_more() -> None:
    async def crowded() -> None:
        await asyncio.start_server(lambda reader, writer: writer.close(), None, PORT, backlog=2)

    async def main() -> None:
        server, _ = world.spawn("b", crowded())
        await passes(0.1)
        server.state = "paused"
        dials = [asyncio.create_task(fetch()) for _ in range(5)]
        await passes(10)
        connected = world.network.sockets.of(world.loop.process)
        assert len(connected) == 3  # backlog + 1, as Linux
        world.loop.resume(server)
        assert await asyncio.gather(*dials) == [b""] * 5

    world = World(PLAIN)
    world.run(main())


def test_a_handshake_that_nobody_ends_keeps_no_place_in_the_backlog() -> None:
    async def narrow() -> None:
        await asyncio.start_server(lambda reader, writer: writer.close(), None, PORT, backlog=1)

    async def main() -> None:
        world.spawn("b", narrow())
        await passes(0.1)
        for _ in range(5):
            process, _ = world.spawn("a", fetch())
            await passes(0.0025)  # the SYN-ACK has come, the last ACK is under way
            world.power_off(process)
            await passes(0.1)
            world.network.host_up("a")
        began = world.now_ms
        assert await fetch() == b""
        assert world.now_ms - began == pytest.approx(2 * ROUND_TRIP_MS)

    world = World(PLAIN)
    world.run(main())


def test_free_ports_are_picked_alike_in_every_run() -> None:
    async def main() -> list[int]:
        servers = [await listen(0) for _ in range(3)]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        assert len(set(ports)) == 3
        for port in ports:
            assert await fetch("127.0.0.1", port) == b"hello"
        for server in servers:
            server.close()
        return ports

    assert World().run(main()) == World().run(main())


# -- kill, power, pause ----------------------------------------------------------------------------


def test_the_peer_of_a_killed_process_gets_what_its_kernel_had_and_then_a_reset() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.answer(b"last words")
        world.kill(joined.server)
        await joined.near.lost.wait()
        assert joined.near.received == b"last words"
        assert isinstance(joined.near.error, ConnectionResetError)
        assert joined.near.error.errno == errno.ECONNRESET
        assert not joined.far.lost.is_set()  # the dead are not called
        with pytest.raises(ConnectionRefusedError):
            await fetch()

    world = World(PLAIN)
    world.run(main())


def test_a_killed_process_may_also_end_its_connections_in_order() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.answer(b"last words")
        world.kill(joined.server)
        await passes(1)
        assert joined.near.received == b"last words"
        assert joined.near.ended
        assert not joined.near.lost.is_set()
        joined.write(b"anybody there?")
        await passes(0.1)
        joined.write(b"hello?")
        await joined.near.lost.wait()
        assert isinstance(joined.near.error, BrokenPipeError)

    world = World(NetworkKnobs(kill_resets=0))
    world.run(main())


def test_what_was_under_way_to_a_program_that_closed_and_ended_meets_its_kernel() -> None:
    """Nothing of it may stay on the wire, before what is sent later."""

    async def main() -> None:
        joined = await world.join()
        joined.write(b"too late")
        joined.far.transport.close()
        await joined.far.lost.wait()
        world.kill(joined.server)
        await passes(0.1)
        joined.write(b"and later")
        await passes(0.1)
        joined.write(b"hello?")
        await joined.near.lost.wait()

    world = World(PLAIN)
    world.run(main())


def test_unread_bytes_make_a_reset_of_every_kill() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.far.transport.pause_reading()
        joined.write(b"never read")
        await passes(0.1)
        world.kill(joined.server)
        await joined.near.lost.wait()
        assert isinstance(joined.near.error, ConnectionResetError)

    world = World(NetworkKnobs(kill_resets=0))
    world.run(main())


def test_a_reset_behind_a_cut_arrives_after_the_mend() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.cut([("b", "a")])
        world.kill(joined.server)
        joined.write(b"into the void")
        await passes(10)
        assert not joined.near.lost.is_set()
        world.network.mend([("b", "a")])
        await joined.near.lost.wait()
        assert isinstance(joined.near.error, ConnectionResetError)

    world = World(PLAIN)
    world.run(main())


def test_a_host_without_power_is_silent_and_resets_old_connections_when_it_is_back() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.answer(b"never leaves")
        world.power_off(joined.server)
        assert not world.network.reachable("a", "b")
        await passes(5)
        assert joined.near.received == b""
        joined.write(b"anybody there?")
        await passes(5)
        assert not joined.near.lost.is_set()
        world.network.host_up("b")
        await joined.near.lost.wait()
        assert isinstance(joined.near.error, ConnectionResetError)
        assert joined.far.received == b""

    world = World(PLAIN)
    world.run(main())


def test_a_peer_that_has_nothing_to_say_never_hears_of_a_power_loss() -> None:
    async def main() -> None:
        joined = await world.join()
        world.power_off(joined.server)
        await passes(5)
        world.network.host_up("b")
        await passes(500)
        assert not joined.near.lost.is_set()
        joined.write(b"anybody there?")
        began = world.now_ms
        await joined.near.lost.wait()
        assert world.now_ms - began == ROUND_TRIP_MS

    world = World(PLAIN)
    world.run(main())


def test_a_writer_that_waits_for_room_hears_of_a_power_loss() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.far.transport.pause_reading()
        joined.write(b"x" * 5000)
        await passes(1)
        assert joined.near.transport.get_write_buffer_size() == 4000
        world.power_off(joined.server)
        await passes(5)
        world.network.host_up("b")
        await joined.near.lost.wait()
        assert isinstance(joined.near.error, ConnectionResetError)

    world = World(NetworkKnobs(window_bytes=1000))
    world.run(main())


def test_power_loss_takes_what_a_killed_process_had_left_to_its_kernel() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.cut([("b", "a")])
        joined.answer(b"held by the kernel")
        world.kill(joined.server)
        await passes(1)
        world.network.host_down("b")
        await passes(1)
        world.network.host_up("b")
        world.network.heal()
        await passes(200)
        assert joined.near.received == b""
        assert not joined.near.lost.is_set()

    world = World(PLAIN)
    world.run(main())


def test_a_cut_outlasts_a_power_loss() -> None:
    async def main() -> None:
        world.network.cut([("a", "b")])
        world.network.host_down("b")
        world.network.host_down("b")  # it is down already
        world.network.mend([("a", "b")])
        assert not world.network.reachable("a", "b")
        world.network.cut([("a", "b")])
        world.network.host_up("b")
        world.network.host_up("b")
        assert not world.network.reachable("a", "b")
        assert world.network.reachable("b", "a")
        world.network.mend([("a", "b")])
        assert world.network.reachable("a", "b")

    world = World(PLAIN)
    world.run(main())


def test_bytes_for_a_paused_process_wait_in_order_and_fill_the_window() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.server.state = "paused"
        for number in range(40):
            joined.write(b"%02d" % number * 50)
            await passes(0.01)
        assert joined.far.received == b""
        assert joined.near.transport.get_write_buffer_size() == 3000
        world.loop.resume(joined.server)
        await joined.far.has(4000)
        assert joined.far.received == b"".join(b"%02d" % number * 50 for number in range(40))

    world = World(NetworkKnobs(window_bytes=1000))
    world.run(main())


def test_what_reached_a_paused_processes_kernel_is_not_touched_by_a_cut() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.server.state = "paused"
        joined.write(b"in time")
        await passes(0.1)
        world.network.cut([("a", "b"), ("b", "a")])
        joined.write(b" too late")
        world.loop.resume(joined.server)
        await passes(1)
        assert joined.far.received == b"in time"
        world.network.heal()
        await joined.far.has(16)
        assert joined.far.received == b"in time too late"

    world = World(PLAIN)
    world.run(main())


def test_a_paused_process_that_is_killed_resets_its_peers() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.server.state = "paused"
        joined.write(b"parked")
        await passes(0.1)
        world.kill(joined.server)
        await joined.near.lost.wait()
        assert isinstance(joined.near.error, ConnectionResetError)
        assert joined.far.received == b""

    world = World(PLAIN)
    world.run(main())


def test_the_next_life_of_a_program_may_listen_where_the_last_did() -> None:
    async def main() -> None:
        first, _ = world.spawn("b", listen())
        await passes(0.1)
        assert await fetch() == b"hello"
        world.kill(first)
        second, listening = world.spawn("b", listen())
        await listening
        assert await fetch() == b"hello"
        world.power_off(second)
        world.network.host_up("b")
        with pytest.raises(ConnectionRefusedError):
            await fetch()

    world = World(PLAIN)
    world.run(main())


def test_a_process_that_dies_in_silence_is_found_out_by_the_next_bytes() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.server.freeze()
        world.network.process_died(joined.server, reset=False)
        await passes(10)
        assert not joined.near.lost.is_set()
        joined.write(b"anybody there?")
        await joined.near.lost.wait()
        assert isinstance(joined.near.error, ConnectionResetError)

    world = World(PLAIN)
    world.run(main())


def test_the_end_of_the_simulation_calls_nobody() -> None:
    """Unclosed streams of frozen programs would warn, and their protocols would run."""

    kept: list[Any] = []

    async def main() -> None:
        joined = await world.join()
        world.kill(joined.client)
        kept.append(await asyncio.open_connection("b", PORT))
        kept.extend([joined.near, await world.join("a", "c")])

    world = World(PLAIN)
    world.run(main())
    (_, writer), killed, open_to_the_end = kept
    assert writer.is_closing()
    for end in (killed, open_to_the_end.near, open_to_the_end.far):
        assert not end.lost.is_set()
