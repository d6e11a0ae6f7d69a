"""RaftRunner on simulated hosts: real journals, the real wire, virtual time."""

from __future__ import annotations

import asyncio

import pytest

from shalott.broker.raft.api import RaftSettings, Snapshot
from shalott.broker.raft.group import NotLeader, ProposalLost, ProposalTimeout
from shalott.broker.rocket.config import RaftConfig
from shalott.broker.rocket.remoting.raft_transport import settings_of
from shalott.cluster.nodes import DiskFaults
from tests.world.raft.runner import NAMES, SETTINGS, RunnerWorld

pytestmark = pytest.mark.unit


def others(name: str) -> list[str]:
    return [other for other in NAMES if other != name]


def test_what_is_proposed_is_applied_everywhere_in_order() -> None:
    world = RunnerWorld()

    async def main() -> None:
        world.start()
        leader = await world.leader()
        indexes = [await world.propose(leader, b"value %d" % n) for n in range(20)]
        assert indexes == sorted(indexes)
        await world.all_applied([b"value %d" % n for n in range(20)])
        node = world.nodes[leader]
        assert node.roles[-1][0] == "leader" and node.ready == [node.roles[-1][1]]
        for other in others(leader):
            assert world.nodes[other].roles[-1] == ("follower", node.ready[0], leader)

    world.run(main())


def test_a_follower_refuses_and_says_who_leads() -> None:
    world = RunnerWorld()

    async def main() -> None:
        world.start()
        leader = await world.leader()
        follower = others(leader)[0]
        await world.until(lambda: world.nodes[follower].runner.leader == leader)  # type: ignore[union-attr]
        with pytest.raises(NotLeader) as refused:
            await world.propose(follower, b"value")
        assert refused.value.leader == leader
        with pytest.raises(NotLeader):
            await world.on(follower, lambda runner: runner.read_index(1000))

    world.run(main())


@pytest.mark.explore
@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_acknowledged_is_lost_when_the_leader_dies(seed: int, power_loss: bool) -> None:
    world = RunnerWorld(seed)

    async def main() -> None:
        world.start()
        acknowledged: list[bytes] = []
        for turn in range(4):
            leader = await world.leader()
            for n in range(5):
                value = b"value %d.%d" % (turn, n)
                await world.propose(leader, value)
                acknowledged.append(value)
            world.kill(leader, power_loss=power_loss)
            await world.leader(but=leader)
            world.start(leader)
        await world.all_applied(acknowledged)

    world.run(main())


def test_all_lose_power_at_once() -> None:
    world = RunnerWorld()

    async def main() -> None:
        world.start()
        leader = await world.leader()
        await asyncio.gather(*(world.propose(leader, b"%d" % n) for n in range(50)))
        for name in NAMES:
            world.kill(name, power_loss=True)
        world.start()
        await world.leader()
        await world.all_applied([b"%d" % n for n in range(50)])

    world.run(main())


def test_an_isolated_leader_steps_down_and_its_proposals_are_undecided_then_lost() -> None:
    world = RunnerWorld()

    async def main() -> None:
        world.start()
        old = await world.leader()
        await world.propose(old, b"before")
        world.isolate(old)
        lost = await world.submit(old, b"lost")
        with pytest.raises(ProposalTimeout):
            await world.propose(old, b"undecided", timeout_ms=100)
        new = await world.leader(but=old)
        await world.propose(new, b"after")
        await world.until(lambda: world.nodes[old].runner.role == "candidate")  # type: ignore[union-attr]
        assert not lost.committed.done()
        with pytest.raises(NotLeader):
            await world.propose(old, b"too late")
        world.network.heal()
        with pytest.raises(ProposalLost):
            await lost.committed
        await world.all_applied([b"before", b"after"])
        assert world.nodes[old].truncations

    world.run(main())


def test_a_read_of_an_isolated_leader_is_not_answered() -> None:
    world = RunnerWorld()

    async def main() -> None:
        world.start()
        leader = await world.leader()
        index = await world.propose(leader, b"value")
        assert await world.on(leader, lambda runner: runner.read_index(1000)) >= index
        world.isolate(leader)
        with pytest.raises(ProposalTimeout):
            await world.on(leader, lambda runner: runner.read_index(100))
        with pytest.raises(NotLeader):
            await world.on(leader, lambda runner: runner.read_index(10_000))

    world.run(main())


def test_a_member_that_was_away_gets_a_snapshot() -> None:
    world = RunnerWorld(snapshot_threshold=10)

    async def main() -> None:
        world.start()
        leader = await world.leader()
        away = others(leader)[0]
        world.kill(away)
        values = [b"value %d" % n for n in range(45)]
        for value in values:
            await world.propose(leader, value)
        storage = world.nodes[leader].storage
        assert storage is not None and storage.first_index > 20
        world.start(away)
        await world.all_applied(values)
        assert world.nodes[away].restored == 1
        for name in NAMES:
            world.kill(name, power_loss=True)
        world.start()
        leader = await world.leader()
        await world.propose(leader, b"more")
        await world.all_applied([*values, b"more"])

    world.run(main())


def test_a_leader_whose_log_could_not_be_cut_leads_no_more() -> None:
    """The failure shows when the next entry is handed to the log, not in a flush."""
    world = RunnerWorld(snapshot_threshold=10)

    async def main() -> None:
        world.start()
        leader = await world.leader()
        node = world.nodes[leader]
        assert node.storage is not None
        compact = node.storage.compact

        def compact_on_a_failing_disk(snapshot: Snapshot) -> None:
            node.disk.set_faults(DiskFaults(fail_sync=True))
            compact(snapshot)

        node.storage.compact = compact_on_a_failing_disk  # type: ignore[method-assign]
        while node.storage.first_index == 1:
            await world.propose(leader, b"value")
        await asyncio.sleep(1)
        with pytest.raises(NotLeader):
            await world.propose(leader, b"more")
        assert node.failure
        new = await world.leader(but=leader)
        await world.propose(new, b"more")

    world.run(main())


def test_a_disk_that_fails_ends_the_member_and_the_others_go_on() -> None:
    world = RunnerWorld()

    async def main() -> None:
        world.start()
        leader = await world.leader()
        world.nodes[leader].disk.set_faults(DiskFaults(fail_sync=True))
        with pytest.raises(ProposalTimeout):
            await world.propose(leader, b"value")
        assert world.nodes[leader].failure
        new = await world.leader(but=leader)
        await world.propose(new, b"other")

    world.run(main())


def test_a_full_disk_is_survived() -> None:
    world = RunnerWorld()

    async def main() -> None:
        world.start()
        leader = await world.leader()
        follower = others(leader)[0]
        disk = world.nodes[follower].disk
        disk.set_faults(DiskFaults(full=True))
        values = [b"%d" % n + bytes(500) for n in range(30)]
        for value in values:
            await world.propose(leader, value)
        disk.set_faults(None)
        await world.all_applied(values)
        assert world.nodes[follower].failure == ""

    world.run(main())


def test_leadership_is_handed_over() -> None:
    world = RunnerWorld()

    async def main() -> None:
        world.start()
        leader = await world.leader()
        await world.propose(leader, b"value")
        to = others(leader)[1]

        async def hand_over(runner: object) -> None:
            world.nodes[leader].runner.transfer(to)  # type: ignore[union-attr]

        before = world.loop.time()
        await world.on(leader, hand_over)
        await world.until(lambda: world.leaders() == [to])
        assert world.loop.time() - before < SETTINGS.heartbeat_interval_ms / 1000

    world.run(main())


def test_a_member_stops_and_leaves_nothing_behind() -> None:
    world = RunnerWorld()

    async def main() -> None:
        world.start()
        leader = await world.leader()
        submitted = await world.submit(leader, b"value")

        async def stop(runner: object) -> None:
            node = world.nodes[leader]
            assert node.runner is not None and node.storage is not None
            await node.runner.stop()
            await node.storage.close()

        await world.on(leader, stop)
        with pytest.raises(ProposalTimeout):
            await submitted.committed
        await world.leader(but=leader)

    world.run(main())


def test_reads_that_wait_for_a_quorum_need_an_entry_of_the_term() -> None:
    assert settings_of(RaftConfig()) == RaftSettings()
    assert settings_of(RaftConfig(read_index=True)).no_op_on_election
    assert settings_of(RaftConfig(fast_advance_commit=True)).no_op_on_election
