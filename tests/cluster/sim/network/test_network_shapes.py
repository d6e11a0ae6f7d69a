"""The simulated network when links are slow, lossy, narrow or clogged: late, in order, not lost."""

from __future__ import annotations

import pytest

from shalott.cluster.nodes import LinkShape
from shalott.cluster.sim.network.links import Link, is_held_back
from shalott.cluster.sim.network.network import NetworkKnobs
from tests.world.clock.turns import passes
from tests.world.network.hosts import World

pytestmark = pytest.mark.unit

PLAIN = NetworkKnobs(latency_us=1000)
ONE_WAY_MS = 1


def test_delay_is_added_in_one_direction() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.shape("a", "b", LinkShape(delay_ms=250))
        began = world.now_ms
        joined.write(b"x")
        await joined.far.has(1)
        assert world.now_ms - began == 250 + ONE_WAY_MS
        joined.answer(b"x")
        await joined.near.has(1)
        assert world.now_ms - began == 250 + 2 * ONE_WAY_MS

    world = World(PLAIN)
    world.run(main())


def test_a_shorter_delay_lets_nothing_overtake() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.shape("a", "b", LinkShape(delay_ms=250))
        joined.write(b"slow ")
        await passes(0.01)
        world.network.shape("a", "b", LinkShape(delay_ms=0))
        joined.write(b"fast")
        await joined.far.has(9)
        assert joined.far.received == b"slow fast"

    world = World(PLAIN)
    world.run(main())


def test_what_is_under_way_when_its_connection_is_held_back_comes_when_it_is_let_go() -> None:
    async def main() -> None:
        joined = await world.join()
        link = world.network.between("a", "b")
        joined.write(b"x")
        seeds = range(20)  # of half of them the connection is one that is held
        link.hold_back(next(n for n in seeds if all(_is_held(link, n, one) for one in link.lanes)))
        await passes(3)
        assert joined.far.received == b""
        link.hold_back(None)
        await joined.far.has(1)

    world = World(PLAIN)
    world.run(main())


def _is_held(link: Link, seed: int, number: int) -> bool:
    link.held_back = seed
    return is_held_back(link, number)


def test_loss_is_lateness_of_one_timeout_or_more() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.shape("a", "b", LinkShape(loss=0.5))
        lateness = []
        for number in range(1, 101):
            began = world.now_ms
            joined.write(b"x")
            await joined.far.has(number)
            lateness.append(round(world.now_ms - began - ONE_WAY_MS))
        assert set(lateness) <= {0, 200, 600, 1400, 3000, 6200, 12_600, 25_400}
        assert 35 <= sum(late == 0 for late in lateness) <= 65
        assert 10 <= sum(late == 200 for late in lateness) <= 40
        assert sum(late > 200 for late in lateness) >= 5

    world = World(PLAIN)
    world.run(main())


def test_what_was_lost_is_sent_soon_after_the_loss_ends() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.shape("a", "b", LinkShape(loss=1))
        joined.write(b"x")
        await passes(10)
        assert joined.far.received == b""
        world.network.shape("a", "b", LinkShape())
        began = world.now_ms
        await joined.far.has(1)
        assert world.now_ms - began == pytest.approx(2600 + ONE_WAY_MS)  # at 12.6 s

    world = World(PLAIN)
    world.run(main())


def test_a_cut_also_holds_what_waits_for_a_retransmission() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.shape("a", "b", LinkShape(loss=1))
        joined.write(b"lost")
        world.network.cut([("a", "b")])
        world.network.shape("a", "b", LinkShape())
        await passes(20)
        assert joined.far.received == b""
        world.network.mend([("a", "b")])
        await joined.far.has(4)

    world = World(PLAIN)
    world.run(main())


def test_a_cut_takes_what_is_under_way_back_before_what_is_held_already() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.shape("a", "b", LinkShape(delay_ms=100))
        joined.write(b"under way ")
        await passes(0.01)
        world.network.shape("a", "b", LinkShape(delay_ms=100, loss=1))
        joined.write(b"lost ")
        await passes(0.01)
        world.network.shape(
            "a", "b", LinkShape()
        )  # what was lost is held, and due at the next timeout
        joined.write(b"behind")
        world.network.cut([("a", "b")])
        await passes(5)
        assert joined.far.received == b""
        world.network.mend([("a", "b")])
        await joined.far.has(21)
        assert joined.far.received == b"under way lost behind"

    world = World(PLAIN)
    world.run(main())


def test_a_throttled_link_passes_so_many_bytes_a_second() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.shape("a", "b", LinkShape(rate_bytes_s=100_000))
        began = world.now_ms
        joined.write(bytes(range(250)) * 800)
        await joined.far.has(100_000)
        assert world.now_ms - began == pytest.approx(1000, abs=60)  # it does not come all at once
        await joined.far.has(200_000)
        assert world.now_ms - began == pytest.approx(2000 + ONE_WAY_MS)
        assert joined.far.received == bytes(range(250)) * 800

    world = World(PLAIN)
    world.run(main())


def test_what_waits_in_a_throttled_link_is_freed_with_it() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.shape("a", "b", LinkShape(rate_bytes_s=1000))
        joined.write(b"x" * 100_000)
        await passes(5)
        assert 2_000 < len(joined.far.received) < 6_000
        world.network.heal()
        began = world.now_ms
        await joined.far.has(100_000)
        assert world.now_ms - began == pytest.approx(200 + ONE_WAY_MS)

    world = World(PLAIN)
    world.run(main())


def test_connections_share_a_throttled_link() -> None:
    async def main() -> None:
        first = await world.join()
        second = await world.join("a", "c")
        world.network.shape("a", "b", LinkShape(rate_bytes_s=10_000))
        began = world.now_ms
        second.write(b"x" * 10_000)
        await second.far.has(10_000)
        assert world.now_ms - began == ONE_WAY_MS  # another link
        first.write(b"x" * 10_000)
        await first.far.has(10_000)
        assert world.now_ms - began == pytest.approx(1000 + 2 * ONE_WAY_MS)

    world = World(PLAIN)
    world.run(main())


def test_a_clogged_link_is_very_slow_for_a_while() -> None:
    async def main() -> None:
        joined = await world.join()
        world.network.clog("a", "b", duration_ms=5000)
        began = world.now_ms
        joined.write(b"x")
        await joined.far.has(1)
        assert world.now_ms - began == 5000 + ONE_WAY_MS
        began = world.now_ms
        joined.write(b"x")
        await joined.far.has(2)
        assert world.now_ms - began == ONE_WAY_MS

    world = World(PLAIN)
    world.run(main())


def test_links_clog_by_themselves_if_asked_to() -> None:
    async def main() -> None:
        joined = await world.join()
        late = 0
        for number in range(1, 401):
            began = world.now_ms
            joined.write(b"x")
            await joined.far.has(number)
            late += world.now_ms - began > 2
        assert 20 < late < 80

    world = World(NetworkKnobs(latency_us=1000, clog=0.1, clog_ms_max=1000))
    world.run(main())
