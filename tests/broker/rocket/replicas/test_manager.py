"""Brokers under a controller: roles, elections, the set, fencing."""

from __future__ import annotations

import json

import msgspec
import pytest

from shalott.broker.rocket.commitlog.replica import PutStatus
from tests.world.clock.turns import passes
from tests.world.rocket.replicas import SAFE, Group

pytestmark = pytest.mark.unit


def body(number: int, size: int = 100) -> bytes:
    return (b"%08d" % number) * (size // 8)


def test_the_first_broker_is_the_master_and_the_others_join_its_set() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.settled()
        for number in range(20):
            await master.put_ok(body(number))
        assert sorted(one.id for one in group.brokers.values()) == [1, 2, 3]
        assert sorted(one.replica.broker_id for one in group.brokers.values())[0] == 0
        logs = [await one.log() for one in group.brokers.values()]
        assert logs[0] == logs[1] == logs[2] != b""

    Group().run(scenario)


def test_a_group_that_introduces_itself_by_address_works_alike() -> None:
    """As 5.0.0 did: the master learns from the controllers whose address it is."""

    async def scenario(group: Group) -> None:
        await group.start()
        old = await group.settled()
        await old.put_ok(body(1))
        old.kill()
        others = [one.name for one in group.brokers.values() if one is not old]
        new = await group.settled(*others)
        await new.put_ok(body(2))
        await old.start()
        master = await group.settled()
        assert len({await one.log() for one in group.brokers.values()}) == 1
        assert master.replica.epoch == 2

    Group(ha=msgspec.structs.replace(SAFE, handshake_by_address=True)).run(scenario)


def test_a_broker_without_a_role_takes_nothing() -> None:
    async def scenario(group: Group) -> None:
        await group["a"].start()
        result = await group["a"].put(body(1))
        assert result is not None
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert group["a"].replica.broker_id == -1
        await group.controller.start()
        await group.until(lambda: group["a"].role == "master")
        result = await group["a"].put(body(1))
        assert result is not None
        assert (result.status, result.stage) == (PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, None)

    Group().run(scenario)


@pytest.mark.parametrize("way", ["kill", "power", "isolate"])
def test_another_member_takes_over_with_all_that_counted(way: str) -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        old = await group.settled()
        for number in range(20):
            await old.put_ok(body(number))
        epoch = old.replica.epoch
        if way == "kill":
            old.kill()
        elif way == "power":
            old.lose_power()
        else:
            group.isolate(old.name)
        others = [name for name in group.names if name != old.name]
        await group.until(lambda: any(group[name].role == "master" for name in others))
        new = await group.settled(*others)
        assert new.replica.epoch > epoch
        await new.put_ok(body(20))
        if way == "isolate":
            lonely = await old.put(body(99))
            assert lonely is not None
            assert lonely.status is not PutStatus.PUT_OK
        else:
            await old.start()
        group.heal()
        master = await group.settled()
        logs = [await one.log() for one in group.brokers.values()]
        assert logs[0] == logs[1] == logs[2]
        for number in range(21):
            assert logs[0].count(body(number)) == 1
        assert body(99) not in logs[0]
        assert master.replica.epoch > epoch
        masters = [(e.epoch, e.node) for e in group.seen("role") if e.role == "master"]
        assert len({each for each, _ in masters}) == len(masters)  # I4

    Group().run(scenario)


def test_a_master_that_comes_back_in_time_keeps_its_epoch() -> None:
    """Within the heartbeat timeout after a power loss: findings (c) and (d)."""

    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.settled()
        for number in range(20):
            await master.put_ok(body(number))
        epoch = master.replica.epoch
        group.world.network.cut([("ctl", master.name)])  # no reset reaches the controller's end
        master.lose_power()
        await master.start()
        group.heal()
        again = await group.settled()
        for number in range(20, 40):
            await again.put_ok(body(number))
        logs = [await one.log() for one in group.brokers.values()]
        assert logs[0] == logs[1] == logs[2]
        assert all(logs[0].count(body(number)) == 1 for number in range(40))
        if again is master:
            assert again.replica.epoch >= epoch

    Group().run(scenario)


def test_a_new_controller_leader_is_followed_and_writes_go_on_without_one() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.settled()
        group.controller.kill()
        await passes(5)
        for number in range(5):
            await master.put_ok(body(number))
        await group.controller.start()
        await passes(5)
        assert (await group.settled()) is master
        master.kill()
        others = [name for name in group.names if name != master.name]
        new = await group.settled(*others)
        await new.put_ok(body(9))

    Group().run(scenario)


def test_status_epochs_and_claims() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.settled()
        await master.put_ok(body(1))
        await group.until(lambda: len(master.replica.manager.addresses_of) == 3)
        slaves = sorted(name for name in group.names if name != master.name)
        claim = master.replica.claim()
        assert (claim["role"], claim["master"]) == ("master", master.name)
        assert sorted(claim["synchronised"]) == sorted(claim["mirrors"]) == slaves
        status = master.replica.ha_status()
        assert status["master"] is True
        assert status["inSyncSlaveNums"] == 2
        links = status["haConnectionInfo"]
        assert sorted(each["addr"] for each in links) == slaves
        assert all(each["inSync"] and each["diff"] == 0 for each in links)
        cache = json.loads(master.replica.epoch_cache())
        assert cache["maxOffset"] == master.end
        assert cache["epochList"][-1]["endOffset"] == master.end
        assert cache["epochList"][-1]["epoch"] == master.replica.epoch
        slave = group[slaves[0]].replica
        assert slave.claim()["master"] == master.name
        assert slave.ha_status()["haClientRuntimeInfo"]["isActivated"] is True

    Group().run(scenario)


def test_upstreams_defaults_lose_what_an_isolated_master_acknowledged() -> None:
    """KB-RKT-17: no switch, these are the defaults."""

    async def scenario(group: Group) -> None:
        await group.start()
        old = await group.settled()
        group.isolate(old.name)
        await passes(0.1)
        await old.put_ok(body(77))
        others = [name for name in group.names if name != old.name]
        new = await group.settled(*others)
        await new.put_ok(body(78))
        group.heal()
        await group.settled()
        assert body(77) not in await group["a"].log()
        assert body(78) in await old.log()

    loses = msgspec.structs.replace(
        SAFE, all_ack_in_sync_state_set=False, in_sync_replicas=1, min_in_sync_replicas=1
    )
    Group(ha=loses).run(scenario)
