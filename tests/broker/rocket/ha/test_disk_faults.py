"""A slave whose disk is full waits for room; one whose disk fails gives itself up."""

from __future__ import annotations

import pytest

from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.cluster.nodes import DiskFaults
from tests.world.rocket.ha import Group

pytestmark = pytest.mark.unit


def test_a_slave_without_room_acknowledges_nothing_and_goes_on_when_there_is_some() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        group["b"].disk.set_faults(DiskFaults(full=True))
        statuses = [(await group["a"].put(b"x" * 3000)).status for _ in range(4)]
        assert statuses[-1] is not PutStatus.PUT_OK
        group["b"].disk.set_faults(None)
        await group.until(lambda: group.slave_at("a", "b") == group["a"].end)
        assert (await group["a"].put(b"y")).status is PutStatus.PUT_OK
        assert await group["a"].log() == await group["b"].log()
        assert not group["b"].failures

    Group().run(scenario)


def test_a_slave_whose_disk_fails_gives_itself_up() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        group["b"].disk.set_faults(DiskFaults(fail_sync=True))
        await group["a"].put(b"x")
        await group.until(lambda: bool(group["b"].failures))
        assert not group["a"].failures

    Group().run(scenario)


def test_a_master_without_room_says_that_nothing_was_stored() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        group["a"].disk.set_faults(DiskFaults(full=True))
        results = [await group["a"].put(b"x" * 3000) for _ in range(6)]
        assert results[-1].status is PutStatus.SERVICE_NOT_AVAILABLE
        assert results[-1].stage is None
        group["a"].disk.set_faults(None)
        await group.until(lambda: group["a"].end == group.slave_at("a", "b"))
        assert (await group["a"].put(b"y")).status is PutStatus.PUT_OK

    Group().run(scenario)
