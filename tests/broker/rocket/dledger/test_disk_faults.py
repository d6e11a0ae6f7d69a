"""Members of a DLedger group whose disks are full, or fail: the majority goes on without them."""

from __future__ import annotations

import pytest

from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.cluster.nodes import DiskFaults
from tests.world.clock.turns import passes
from tests.world.rocket.dledger import Group

pytestmark = pytest.mark.unit


def test_a_follower_whose_disk_fails_gives_itself_up_and_the_others_go_on() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        follower = group.others(master)[0]
        follower.disk.set_faults(DiskFaults(fail_sync=True))
        for number in range(5):
            assert (await master.put(b"%d" % number)).status is PutStatus.PUT_OK
        await group.until(lambda: bool(follower.failures))
        follower.kill()
        follower.disk.set_faults(None)
        await follower.start()
        await group.settled()
        assert len(await follower.queue()) == 5

    Group().run(scenario)


def test_a_full_follower_catches_up_when_there_is_room() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        follower = group.others(master)[0]
        follower.disk.set_faults(DiskFaults(full=True))
        for number in range(8):
            assert (await master.put(b"%d" % number * 2000)).status is PutStatus.PUT_OK
        await passes(3)
        follower.disk.set_faults(None)
        await group.settled()
        assert len(await follower.queue()) == 8
        assert not follower.failures

    Group().run(scenario)


def test_a_full_master_refuses_what_it_cannot_append() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        master.disk.set_faults(DiskFaults(full=True))
        for number in range(8):
            result = await master.put(b"%d" % number * 2000)
            if result.status is PutStatus.SERVICE_NOT_AVAILABLE:
                break
        assert result.stage is None
        assert result.reason == "DISK_FULL"
        master.disk.set_faults(None)
        await group.settled()
        master = await group.master()
        assert (await master.put(b"more")).status is PutStatus.PUT_OK

    Group().run(scenario)
