"""Disks that are full, slow, short or broken under a slave or a master."""

from __future__ import annotations

import pytest

from shalott.broker.base.errors import DiskFull
from shalott.broker.rocket.autoswitch.packets import EpochStart
from shalott.cluster.nodes import DiskFaults
from tests.broker.rocket.autoswitch.test_replication import body, pair, same
from tests.world.rocket.autoswitch import Group

pytestmark = pytest.mark.unit


def test_a_slave_with_a_full_disk_acknowledges_nothing_and_catches_up_later() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        a, b = group["a"], group["b"]
        assert await a.put(body(1))
        flushed = b.store.log.flushed_offset
        b.disk.set_faults(DiskFaults(full=True))
        results = [await a.put(body(n, size=3000), timeout_ms=200) for n in range(2, 6)]
        assert not results[-1]
        assert a.tenure.connections.get(b.id) is None or (
            a.tenure.connections[b.id].ack_offset == b.store.log.flushed_offset < a.end
        )
        assert b.store.log.flushed_offset >= flushed
        b.disk.set_faults(None)
        await group.caught_up("a", "b")
        await same(group, "a", "b")

    Group().run(scenario)


@pytest.mark.parametrize("faults", [DiskFaults(slow_ms=30), DiskFaults(short=True)])
def test_slow_and_short_disks_only_cost_time(faults: DiskFaults) -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        for name in ("a", "b"):
            group[name].disk.set_faults(faults)
        for number in range(10):
            assert await group["a"].put(body(number))
        await group["b"].lead(2)
        await group["a"].follow("b", 2)
        await group["b"].admit("a")
        assert await group["b"].put(body(10))
        await same(group, "a", "b")

    Group().run(scenario)


def test_a_disk_that_fails_ends_the_node_and_is_never_acknowledged() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        a, b = group["a"], group["b"]
        assert await a.put(body(1))
        end = a.end
        b.disk.set_faults(DiskFaults(fail_sync=True))
        assert not await a.put(body(2), timeout_ms=500)
        assert b.failures != []
        b.failures.clear()
        assert max((one.ack_offset for one in a.tenure.connections.values()), default=0) <= end

    Group().run(scenario)


def test_a_full_disk_keeps_a_broker_from_becoming_the_master_until_there_is_room() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        assert await group["a"].put(body(1))
        b = group["b"]
        # Just enough is taken that the file of epochs can't be replaced.
        b.disk.set_faults(DiskFaults(full=True))
        filler = await b.here(b.disk.open("filler", create=True))
        with pytest.raises(OSError):
            while True:
                await b.here(filler.pwrite(bytes(4096), await b.here(filler.size())))
        with pytest.raises(DiskFull):
            await b.here(b.service.change_to_master(2, [2], 2))
        assert b.service.tenure is None
        b.disk.set_faults(None)
        await b.lead(2)
        assert b.service.cache.last == EpochStart(2, b.end)

    Group().run(scenario)


def test_a_change_of_role_in_the_midst_of_a_truncation_waits_for_it() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        a, b = group["a"], group["b"]
        group.isolate("a")
        for number in range(40):
            await a.put(body(number, size=1000), timeout_ms=10)
        await b.lead(2)
        group.heal()
        a.disk.set_faults(DiskFaults(slow_ms=50))
        await a.follow("b", 2)
        await group.until(lambda: a.store.log._segments.writer.is_halted)  # type: ignore[attr-defined]
        await a.lead(3)
        a.disk.set_faults(None)
        assert a.end == 0
        await b.follow("a", 3)
        await a.admit("b")
        assert await a.put(body(1))
        await same(group, "a", "b")

    Group().run(scenario)
