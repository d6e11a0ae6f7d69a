"""The controllers among themselves: partitions, stale reads, tenures that follow each other."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.controller.messages import (
    ControllerError,
    NoController,
    NotLeader,
    OutcomeUnknown,
)
from tests.world.rocket.controllers import (
    CONTROLLERS,
    GROUP,
    RAFT,
    World,
    three_brokers,
)

pytestmark = pytest.mark.unit

# -- the controllers' own partitions ---------------------------------------------------------------


def test_a_leader_that_is_cut_off_decides_nothing_and_another_does() -> None:
    world = World()

    async def main() -> None:
        one, _, _ = await three_brokers(world)
        old = world.leader
        world.isolate(old, "b4")
        asker = ControllerClient(world.remoting, [f"{old}:9877"], timeout_ms=8000)
        with pytest.raises((NotLeader, OutcomeUnknown, NoController)):
            await asker.alter_sync_state_set(GROUP, 1, 1, (1, 2), 2)
        await world.until(lambda: world.leader not in ("", old))
        changed = await world.again(one.client.alter_sync_state_set, GROUP, 1, 1, (1, 3), 2)
        assert changed.sync_state_set_epoch == 3
        world.mend(old, "b4")
        await world.agreed()
        assert (await world.master()).sync_state_set == (1, 3)

    world.run(main)


@pytest.mark.parametrize("linearizable", [False, True])
def test_a_deposed_leader_reads_stale_things_only_if_it_may(linearizable: bool) -> None:
    world = World(is_process_read_event=linearizable)

    async def main() -> None:
        one, _, _ = await three_brokers(world)
        old = world.leader
        world.network.cut([link for n in CONTROLLERS if n != old for link in ((n, old), (old, n))])
        asker = ControllerClient(world.remoting, [f"{old}:9877"])
        stale = await asyncio.gather(asker.replica_info(GROUP), return_exceptions=True)
        if linearizable:
            assert isinstance(stale[0], ControllerError | NoController)
        else:
            assert not isinstance(stale[0], BaseException)
            assert stale[0].broker_id == 1
        world.network.heal()
        await world.agreed()

    world.run(main)


def test_a_controller_that_was_away_catches_up_by_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restored: list[cs.State] = []
    decode = cs.decode

    def noting(data: bytes) -> cs.State:
        restored.append(decode(data))
        return decode(data)

    monkeypatch.setattr(cs, "decode", noting)
    world = World(raft=msgspec.structs.replace(RAFT, snapshot_threshold=5))

    async def main() -> None:
        one, _, _ = await three_brokers(world)
        away = next(name for name in CONTROLLERS if name != world.leader)
        world.kill(away)
        members = {True: (1, 2), False: (1, 2, 3)}
        for epoch in range(2, 22):
            await one.client.alter_sync_state_set(GROUP, 1, 1, members[epoch % 2 == 0], epoch)
        assert restored == []
        await world.boot(away)
        await world.agreed()
        assert restored
        assert world.states_of(away).groups[GROUP].sync.set_epoch == 22
        for name in CONTROLLERS:
            world.kill(name, power=True)
        for name in CONTROLLERS:
            await world.boot(name)
        master = await world.master()
        assert (master.sync_state_set, master.sync_state_set_epoch) == ((1, 2, 3), 22)

    world.run(main)


# -- scheduling ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bugs", "watchers"), [((), 1), (("KB-RKT-39",), 2)])
def test_a_second_tenure_looks_for_masters_once(bugs: tuple[str, ...], watchers: int) -> None:
    world = World(*bugs)

    async def main() -> None:
        first = await world.served()
        for name in CONTROLLERS:
            if name != first:
                await world.stop(name)
        await world.until(lambda: not world.leader)  # it can't lead alone
        for name in CONTROLLERS:
            if name != first:
                await world.boot(name)
        await world.served()
        world.controllers[world.leader].group.transfer(first)
        await world.until(lambda: world.leader == first)
        tasks = [task.get_name() for task in world.lives[first].tasks if not task.done()]
        assert tasks.count("watch masters") == watchers

    world.run(main)


def test_roles_of_controllers_are_told() -> None:
    world = World()

    async def main() -> None:
        leader = await world.served()
        roles = [e for e in world.events_of("role") if e.role == "leader"]
        assert [(e.node, e.group) for e in roles] == [(leader, "controller")]
        assert roles[0].epoch == world.controllers[leader].group.term
        claim = world.controllers[leader].claim()
        assert (claim["role"], claim["leader"], claim["is_serving"]) == ("leader", leader, True)

    world.run(main)


def test_a_broken_invariant_ends_the_node(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    async def main() -> None:
        leader = world.controllers[await world.served()]
        await world.broker("b1")

        async def broken() -> None:
            raise AssertionError("two masters")

        leader.elections.watch_masters = broken  # type: ignore[method-assign]
        leader.leader_ready(leader.group.term)
        await world.until(lambda: world.failures)
        assert not leader.is_serving
        assert world.failures == ["watch masters: AssertionError('two masters')"]
        world.failures.clear()

    world.run(main)
    assert "watch masters ended" in caplog.text
