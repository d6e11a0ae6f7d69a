"""Master and slaves over the simulated network: what arrives, what is promised, what reconnects."""

from __future__ import annotations

import asyncio

import pytest

from shalott.broker.rocket.commitlog.replica import PutStatus
from tests.world.clock.turns import passes
from tests.world.rocket.ha import HA, Group
from tests.world.rocket.machine import changed

pytestmark = pytest.mark.unit


def body(number: int, size: int = 100) -> bytes:
    return (b"%08d" % number) * (size // 8)


def test_a_slave_has_what_its_synchronous_master_acknowledged() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        for number in range(100):
            end = await group["a"].put_ok(body(number))
            assert group["b"].store.log.written_offset >= end
        assert await group["a"].log() == await group["b"].log()
        assert group["b"].end > 2 * 4096

    Group().run(scenario)


def test_an_asynchronous_master_does_not_wait() -> None:
    async def scenario(group: Group) -> None:
        await group["a"].start()
        end = await group["a"].put_ok(body(1))
        await group["b"].start()
        await group.until(lambda: group["b"].end == end)
        assert await group["a"].log() == await group["b"].log()

    Group(role="ASYNC_MASTER", flush="async").run(scenario)


def test_a_synchronous_master_without_a_slave_says_so_at_once() -> None:
    async def scenario(group: Group) -> None:
        await group["a"].start()
        begun = asyncio.get_running_loop().time()
        result = await group["a"].put(body(1))
        assert result.status is PutStatus.SLAVE_NOT_AVAILABLE
        assert result.stage is not None
        assert asyncio.get_running_loop().time() - begun < 1

    Group().run(scenario)


def test_a_slave_that_is_too_far_behind_is_not_available() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        await group["a"].put_ok(body(1))
        group.world.network.cut([("a", "b"), ("b", "a")])
        statuses = [(await group["a"].put(body(number, 500))).status for number in range(5)]
        assert statuses[0] is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert statuses[-1] is PutStatus.SLAVE_NOT_AVAILABLE

    Group(ha=changed(HA, max_gap_not_in_sync_bytes=1500)).run(scenario)


def test_a_slave_that_does_not_answer_is_waited_for_until_the_deadline() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        group.world.network.cut([("b", "a")])
        begun = asyncio.get_running_loop().time()
        assert (await group["a"].put(body(1))).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert asyncio.get_running_loop().time() - begun == pytest.approx(3, abs=0.1)

    Group().run(scenario)


def test_a_slave_takes_no_messages() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        result = await group["b"].put(body(1))
        assert (result.status, result.stage) == (PutStatus.SERVICE_NOT_AVAILABLE, None)
        assert [group[name].replica.broker_id for name in "ab"] == [0, 1]

    Group().run(scenario)


def test_in_sync_replicas_of_3_needs_both_slaves() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        await group.connected("c", "a")
        await group["a"].put_ok(body(1))
        group["c"].kill()
        result = await group["a"].put(body(2))
        assert result.status is PutStatus.FLUSH_SLAVE_TIMEOUT
        await group["c"].start()
        await group.connected("c", "a")
        await group["a"].put_ok(body(3))

    Group("a", "b", "c", ha=changed(HA, in_sync_replicas=3)).run(scenario)


def test_a_half_open_connection_and_its_successor_count_once() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        await group["a"].put_ok(body(1))
        # The master never hears that this life of the slave has ended: its host lost power.
        group["b"].lose_power()
        await group["b"].start()
        await group.until(lambda: len(list(group["a"].replica.server.acks())) == 2)
        await group.until(lambda: group.slave_at("a", "b") == group["b"].end)
        assert not group["a"].replica.transfers.is_replicated(1, 3)

    Group().run(scenario)


def test_an_idle_connection_lives_on_by_heartbeats() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        [before] = group["a"].replica.server.connections
        await passes(300)
        assert group["a"].replica.server.connections == [before]

    Group().run(scenario)


def test_kb_rkt_02_an_idle_connection_is_dropped_every_housekeeping_interval() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        [before] = group["a"].replica.server.connections
        await group.until(lambda: before not in group["a"].replica.server.connections)
        assert group["b"].replica.ha_status()["haClientRuntimeInfo"]["reason"] == (
            "the master is silent"
        )

    Group(bugs=("KB-RKT-02",)).run(scenario)


def test_both_ends_give_a_cut_connection_up_and_make_a_new_one() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        group.world.network.cut([("a", "b"), ("b", "a")])
        await group.until(lambda: not group["a"].replica.server.connections)
        assert group["b"].replica.claim()["state"] != "following"
        group.world.network.mend([("a", "b"), ("b", "a")])
        await group.connected("b", "a")
        await group["a"].put_ok(body(1))

    Group().run(scenario)


def test_a_slave_that_was_killed_goes_on_where_it_was() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        for number in range(20):
            await group["a"].put_ok(body(number))
            if number % 5 == 4:
                group["b"].kill()
                await group["a"].put(body(1000 + number))
                await group["b"].start()
                await group.connected("b", "a")
        assert await group["a"].log() == await group["b"].log()

    Group().run(scenario)


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(8))
def test_a_master_that_lost_its_power_is_never_behind_its_slave(seed: int) -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        for round_number in range(5):
            burst = [
                asyncio.ensure_future(group["a"].put(body(number, 800))) for number in range(30)
            ]
            await passes(0.0005 * (seed + 1) * (round_number + 1))
            group["a"].lose_power()
            slave_end = group["b"].end
            await group["a"].start()
            assert group["a"].end >= slave_end
            await group.connected("b", "a")
            for each in burst:
                each.cancel()
        await group["a"].put_ok(body(1))
        assert await group["a"].log() == await group["b"].log()
        assert not group["a"].replica.server.refusals

    Group(seed=seed).run(scenario)


def test_kb_rkt_06_a_master_behind_its_slave_acknowledges_what_the_slave_has_otherwise() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        await group["a"].put_ok(body(1))
        # Unflushed bytes reach the slave; then the master loses its power, and them.
        pending = [asyncio.ensure_future(group["a"].put(body(n, 3000))) for n in range(5)]
        end = group["b"].end
        await group.until(lambda: group["b"].end > end, step_s=0.0001)
        group["a"].lose_power()
        await group["a"].start()
        for each in pending:
            each.cancel()
        if group["a"].end >= group["b"].end:
            raise AssertionError("the master was not behind its slave")
        await group.connected("b", "a")
        other = await group["a"].put(body(7, 64))
        assert other.status is PutStatus.PUT_OK
        mine, theirs = await group["a"].log(), await group["b"].log()
        assert mine != theirs[: len(mine)]

    Group(bugs=("KB-RKT-06",)).run(scenario)


def test_kb_rkt_01_stray_bytes_on_the_ha_port_acknowledge_everything() -> None:
    async def stray(group: Group) -> None:
        reader, writer = await asyncio.open_connection("a", 10912)
        writer.write(b"GET / HTTP/1.0\r\n")
        await writer.drain()
        await passes(1)
        writer.transport.abort()

    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        group.world.network.cut([("b", "a")])
        await stray(group)
        result = await group["a"].put(body(1))
        wanted = PutStatus.PUT_OK if group.bugs else PutStatus.FLUSH_SLAVE_TIMEOUT
        assert result.status is wanted
        assert bool(group["a"].replica.server.refusals) is not bool(group.bugs)

    Group(bugs=("KB-RKT-01",)).run(scenario)
    Group().run(scenario)


def test_a_new_slave_begins_where_its_master_s_log_does() -> None:
    """Files of the master went: they were too old."""

    async def scenario(group: Group) -> None:
        await group["a"].start()
        for number in range(100):
            await group["a"].put(body(number))
        master = group["a"].store
        await group["a"].here(master.log.flushed(master.log.max_offset))
        await group["a"].here(master.remove_before(2 * 4096))
        assert master.log.min_offset == 2 * 4096
        await group["b"].start()
        await group.until(lambda: group["b"].end == group["a"].end)
        assert group["b"].store.log.min_offset == 2 * 4096
        assert await group["b"].log() == await group["a"].log()
        end = await group["a"].put_ok(body(100))
        await group["b"].here(group["b"].store.dispatched(end))
        assert group["b"].store.reader.queue_range("t", 0) == master.reader.queue_range("t", 0)

    Group().run(scenario)


@pytest.mark.parametrize("bug", ["", "KB-RKT-04"])
def test_kb_rkt_04_a_new_slave_has_the_newest_file_only(bug: str) -> None:
    async def scenario(group: Group) -> None:
        await group["a"].start()
        for number in range(100):
            await group["a"].put(body(number))
        await group["b"].start()
        await group.until(lambda: group["b"].end == group["a"].end)
        whole = await group["a"].log()
        begin = len(whole) - len(whole) % 4096 if bug else 0
        assert group["b"].store.log.min_offset == begin
        assert await group["b"].log() == whole[begin:]

    Group(bugs=(bug,) if bug else ()).run(scenario)
