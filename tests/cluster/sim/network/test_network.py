"""The simulated network when links break: what is held, what is late, and that nothing is lost."""

from __future__ import annotations

import asyncio
import errno

import pytest

from shalott.cluster.nodes import LinkShape
from shalott.cluster.sim.loop.fences import SimDeadlock
from shalott.cluster.sim.network.network import NetworkKnobs
from tests.world.clock.turns import passes, until
from tests.world.network.hosts import World

pytestmark = pytest.mark.unit

PLAIN = NetworkKnobs(latency_us=1000)
ONE_WAY_MS = 1


def test_a_segment_takes_the_links_latency() -> None:
    async def main() -> None:
        joined = await world.join()
        began = world.now_ms
        joined.write(b"x")
        await joined.far.has(1)
        assert world.now_ms - began == ONE_WAY_MS

    world = World(PLAIN)
    world.run(main())


def test_bytes_written_at_one_instant_are_one_segment() -> None:
    async def main() -> None:
        joined = await world.join()
        before = world.network.segments
        for _ in range(100):
            joined.write(b"ten bytes.")
        await joined.far.has(1000)
        assert world.network.segments - before == 1
        joined.write(b"x")
        await joined.far.has(1001)
        assert world.network.segments - before == 2

    world = World(PLAIN)
    world.run(main())


def test_directions_have_permanent_latencies_and_jitter_of_their_own() -> None:
    async def trips(world: World) -> list[tuple[int, int]]:
        joined = await world.join()
        seen = []
        for number in range(1, 31):
            began = world.loop.now_ns
            joined.write(b"x")
            await joined.far.has(number)
            there = world.loop.now_ns
            joined.answer(b"x")
            await joined.near.has(number)
            seen.append((there - began, world.loop.now_ns - there))
        return seen

    def measure(seed: int, knobs: NetworkKnobs) -> list[tuple[int, int]]:
        world = World(knobs, seed=seed)
        found: list[tuple[int, int]] = world.run(trips(world))
        return found

    spread = NetworkKnobs(latency_us=100, spread_us=1000)
    assert len(set(measure(1, spread))) == 1
    there, back = measure(1, spread)[0]
    assert there != back
    assert measure(1, spread) != measure(2, spread)
    jittery = NetworkKnobs(latency_us=100, jitter_us=1000)
    times = measure(1, jittery)
    assert len(set(times)) == 30
    assert all(100_000 <= one < 1_100_000 for pair in times for one in pair)
    assert times == measure(1, jittery)


def test_a_cut_holds_what_is_sent_until_the_next_timeout_after_the_mend() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.cut([("a", "b")])
        assert not world.network.reachable("a", "b")
        assert world.network.reachable("b", "a")
        began = world.now_ms
        for number in range(5):
            joined.write(b"%d" % number)
            await passes(0.1)
        assert joined.far.received == b""
        await passes(0.6)  # 1.1 s after the first
        world.network.mend([("a", "b")])
        joined.write(b"5")  # behind what is held
        await joined.far.has(6)
        assert joined.far.received == b"012345"
        # Timeouts are 0.2, 0.6, 1.4, 3.0 s after the first transmission.
        assert world.now_ms - began == pytest.approx(1400 + ONE_WAY_MS)

    world = World(PLAIN)
    world.run(main())


def test_what_is_under_way_at_the_cut_is_held_as_well() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.write(b"first")
        await passes(0.0005)
        joined.write(b"second")
        world.network.cut([("a", "b")])
        await passes(10)
        assert joined.far.received == b""
        world.network.mend([("a", "b")])
        joined.write(b"third")
        await joined.far.has(16)
        assert joined.far.received == b"firstsecondthird"

    world = World(PLAIN)
    world.run(main())


def test_overlapping_cuts_are_counted() -> None:
    async def main() -> None:
        joined = await world.join()
        link = [("a", "b")]
        world.network.cut(link)
        world.network.cut(link)
        joined.write(b"x")
        world.network.mend(link)
        await passes(5)
        assert not world.network.reachable("a", "b")
        assert joined.far.received == b""
        world.network.mend(link)
        world.network.mend(link)  # too many: nothing
        assert world.network.reachable("a", "b")
        await joined.far.has(1)
        world.network.cut(link)
        assert not world.network.reachable("a", "b")

    world = World(PLAIN)
    world.run(main())


def test_a_second_cut_before_the_release_goes_on_holding() -> None:
    async def main() -> None:
        joined = await world.join()
        link = [("a", "b")]
        world.network.cut(link)
        joined.write(b"held")
        await passes(0.7)
        world.network.mend(link)  # to be released 1.4 s after the write
        await passes(0.5)
        world.network.cut(link)
        await passes(5)
        assert joined.far.received == b""
        world.network.heal()
        await joined.far.has(4)
        assert joined.far.received == b"held"

    world = World(PLAIN)
    world.run(main())


def test_heal_undoes_every_cut_and_shape() -> None:
    async def main() -> None:
        joined = await world.join()
        for _ in range(3):
            world.network.cut([("a", "b"), ("b", "a")])
        world.network.shape("a", "b", LinkShape(delay_ms=500, rate_bytes_s=1000, loss=0.5))
        assert world.network.shape_of("a", "b") == LinkShape(
            delay_ms=500, rate_bytes_s=1000, loss=0.5
        )
        joined.write(b"x")
        world.network.heal()
        assert world.network.shape_of("a", "b") == LinkShape()
        began = world.now_ms
        await joined.far.has(1)
        assert world.now_ms - began == pytest.approx(200 + ONE_WAY_MS)
        world.network.mend([("a", "b")])  # late: nothing
        assert world.network.reachable("a", "b")

    world = World(PLAIN)
    world.run(main())


def test_a_one_way_cut_lets_the_other_direction_through() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.cut([("a", "b")])
        joined.answer(b"from b")
        joined.write(b"from a")
        await joined.near.has(6)
        await passes(1)
        assert joined.near.received == b"from b"
        assert joined.far.received == b""

    world = World(PLAIN)
    world.run(main())


def test_when_only_the_acks_are_cut_data_arrives_until_the_window_is_full() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.near.transport.set_write_buffer_limits(high=0)
        world.network.cut([("b", "a")])
        for _ in range(5):
            joined.write(b"x" * 300)
            await passes(0.01)
        assert len(joined.far.received) == 1000
        assert joined.near.paused
        await passes(2)
        world.network.mend([("b", "a")])
        await joined.far.has(1500)
        await until(lambda: not joined.near.paused, within_s=0.01)

    world = World(NetworkKnobs(window_bytes=1000))
    world.run(main())


def test_a_cut_backs_up_to_the_writer() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.near.transport.set_write_buffer_limits(high=500, low=100)
        world.network.cut([("a", "b")])
        joined.write(b"x" * 1400)
        assert not joined.near.paused
        joined.write(b"y" * 200)
        assert joined.near.paused
        assert joined.near.transport.get_write_buffer_size() == 600
        await passes(1)
        assert joined.near.paused
        world.network.mend([("a", "b")])
        await joined.far.has(1600)
        await until(lambda: not joined.near.paused, within_s=0.01)
        assert joined.far.received == b"x" * 1400 + b"y" * 200

    world = World(NetworkKnobs(window_bytes=1000))
    world.run(main())


def test_the_window_is_whole_again_after_a_cut() -> None:
    async def main() -> None:
        joined = await world.join()
        for number in range(10):
            world.network.cut([("a", "b")])
            for _ in range(10):
                joined.write(b"x" * 100)
                await passes(0.01)
            assert joined.near.transport.get_write_buffer_size() == 0
            world.network.mend([("a", "b")])
            await joined.far.has(1000 * (number + 1))

    world = World(NetworkKnobs(window_bytes=1000))
    world.run(main())


def test_an_end_of_file_waits_behind_what_is_held() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.cut([("a", "b")])
        joined.write(b"last words")
        joined.near.transport.close()
        await joined.near.lost.wait()
        await passes(30)
        assert not joined.far.ended
        world.network.mend([("a", "b")])
        await passes(60)
        assert joined.far.received == b"last words"
        assert joined.far.ended

    world = World(PLAIN)
    world.run(main())


def test_a_kernel_gives_a_dead_way_up_after_a_quarter_of_an_hour() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.cut([("a", "b")])
        began = world.now_ms
        joined.write(b"x")
        await joined.near.lost.wait()
        assert isinstance(joined.near.error, TimeoutError)
        assert joined.near.error.errno == errno.ETIMEDOUT
        assert 900 < (world.now_ms - began) / 1000 < 930
        assert not joined.far.lost.is_set()  # nobody told it
        world.network.mend([("a", "b")])
        await passes(300)
        assert joined.far.received == b""

    world = World(PLAIN)
    world.run(main())


def test_the_network_itself_keeps_no_timers() -> None:
    async def main() -> None:
        joined = await world.join()
        joined.write(b"x")
        await joined.far.has(1)
        await asyncio.get_running_loop().create_future()

    world = World()
    with pytest.raises(SimDeadlock):
        world.run(main())


def test_what_ends_a_connection_waits_for_a_segment_that_a_watch_stops() -> None:
    """Both come in the same instant: the end overtook the segment, which ended the run."""

    async def main() -> None:
        joined = await world.join()
        stopped: list[str] = []

        def stop(end: object, data: bytes, moment: str) -> bool:
            if moment == "before":
                stopped.append(data.decode())
            return moment == "before"

        world.network.watches.setdefault(("a", "b"), []).append(stop)
        joined.write(b"last words")
        joined.near.transport.write_eof()
        await joined.far.has(10)
        await until(lambda: joined.far.ended)
        assert (stopped, bytes(joined.far.received)) == (["last words"], b"last words")

    world = World(PLAIN)
    world.run(main())
