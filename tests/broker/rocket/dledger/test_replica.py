"""A broker on DLedger's log: who is the master, what a send ends with, what readers see."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from shalott.broker.base.errors import BrokerError, DiskFull, StorageError
from shalott.broker.raft.group import Busy, NotLeader, ProposalLost, ProposalTimeout
from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.broker.rocket.config import RaftConfig
from shalott.broker.rocket.dledger.entry import HEADER_BYTES, NO_OP
from shalott.broker.rocket.dledger.replica import RaftCode, code_of, status_of
from tests.world.clock.turns import passes
from tests.world.rocket.dledger import SAFE, Broker, Group

pytestmark = pytest.mark.unit


def test_a_majority_has_what_is_acknowledged_and_queues_are_the_same() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        for number in range(60):
            result = await master.put(b"<%d>" % number * 20)
            assert result.status is PutStatus.PUT_OK
            assert result.stage is not None
            [appended] = result.stage.messages
            assert appended.queue_offset == number
            stored = await master.here(master.up.store.reader.message_at(appended.offset))
            assert len(stored) == appended.end - appended.offset
        await group.settled()
        queues = [await broker.queue() for broker in group.brokers.values()]
        assert queues[0] == queues[1] == queues[2]
        assert [b"<%d>" % number in message for number, message in enumerate(queues[0])] == (
            [True] * 60
        )

    Group().run(scenario)


def test_a_message_lies_48_bytes_behind_its_entry() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        result = await master.put(b"first", b"second")
        assert result.status is PutStatus.PUT_OK
        assert result.stage is not None
        first, second = result.stage.messages
        assert first.offset == 2 * HEADER_BYTES + len(NO_OP)  # behind the leader's no-op
        assert second.offset == first.end + HEADER_BYTES
        assert [first.queue_offset, second.queue_offset] == [0, 1]
        assert int(first.message_id[-16:], 16) == first.offset

    Group().run(scenario)


def test_brokers_register_by_role() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        assert [broker.up.broker_id for broker in group.brokers.values()] == [-1, -1, -1]
        master = await group.master()
        assert master.up.broker_id == 0
        await group.until(lambda: all(each.role == "slave" for each in group.others(master)))
        for number, broker in enumerate(group.brokers.values()):
            if broker is not master:
                assert broker.up.broker_id == number + 1
                result = await broker.put(b"no")
                assert (result.status, result.stage) == (PutStatus.SERVICE_NOT_AVAILABLE, None)
            assert broker.up.epoch == master.up.epoch
            assert broker.up.claim()["master"] == master.name
        others = sorted(each.name for each in group.others(master))
        await group.until(lambda: sorted(master.up.claim()["synchronised"]) == others)

    Group().run(scenario)


def test_a_send_without_a_majority_is_undecided_and_may_be_committed_later() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        one, other = group.others(master)
        one.kill()
        other.kill()
        result = await master.put(b"undecided")
        assert result.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert result.stage is not None
        assert await master.queue() == []
        await one.start()
        await group.until(
            lambda: other.is_up or master.up.store.reader.queue_range("t", 0) == (0, 1)
        )
        assert len(await master.queue()) == 1

    Group().run(scenario)


def test_a_batch_that_fits_in_part_leaves_no_queue_offset_for_the_next() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        parts = await master.put(b"1", b"2", b"3", b"4")
        assert parts.status is PutStatus.UNKNOWN_ERROR
        next_offsets = await master.here(offsets(master))
        assert list(next_offsets.values()) == [2]

    async def offsets(master: Broker) -> dict[tuple[str, int], int]:
        return dict(master.up.store._queues.next_offsets)

    Group(msgspec.structs.replace(SAFE, max_pending_requests=2)).run(scenario)


def test_what_a_deposed_leader_appended_alone_is_gone() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        old = await group.master()
        for number in range(10):
            assert (await old.put(b"before %d" % number)).status is PutStatus.PUT_OK
        links = group.isolate(old)
        lost = asyncio.ensure_future(old.put(b"lost"))
        new = await group.master(*(each.name for each in group.others(old)))
        assert (await lost).status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert (await new.put(b"after")).status is PutStatus.PUT_OK
        group.world.network.mend(links)
        await group.settled()
        queues = [await broker.queue() for broker in group.brokers.values()]
        assert queues[0] == queues[1] == queues[2]
        assert len(queues[0]) == 11
        assert b"after" in queues[0][10]
        [cut] = group.seen("truncated")
        assert cut.node == old.name
        assert cut.detail["from"] > cut.detail["to"]

    Group().run(scenario)


@pytest.mark.parametrize("bug", ["", "KB-DL-22"])
def test_kb_dl_22_a_deposed_leader_answers_reads(bug: str) -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        old = await group.master()
        assert await old.here(old.up.readable())
        group.isolate(old)
        reading = asyncio.ensure_future(old.here(old.up.readable()))
        new = await group.master(*(each.name for each in group.others(old)))
        assert (await new.put(b"newer")).status is PutStatus.PUT_OK
        assert await new.here(new.up.readable())
        assert await reading is bool(bug)
        assert await old.queue() == []

    Group(bugs=(bug,) if bug else ()).run(scenario)


def test_without_read_index_slaves_answer_reads_of_what_is_committed() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        assert (await master.put(b"x")).status is PutStatus.PUT_OK
        await group.settled()
        for broker in group.brokers.values():
            assert await broker.here(broker.up.readable())
            assert len(await broker.queue()) == 1

    Group(msgspec.structs.replace(SAFE, read_index=False)).run(scenario)


def test_a_read_sees_what_was_committed_before_it_at_followers_too() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        for number in range(9):
            assert (await master.put(b"%d" % number)).status is PutStatus.PUT_OK
            reader = [master, *group.others(master)][number % 3]
            assert await reader.here(reader.up.readable())
            assert reader.up.store.reader.queue_range("t", 0) == (0, number + 1)

    Group().run(scenario)


def test_a_follower_that_is_cut_off_answers_no_reads() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        [follower, _] = group.others(master)
        links = group.isolate(follower)
        assert not await follower.here(follower.up.readable())
        assert (await master.put(b"newer")).status is PutStatus.PUT_OK
        group.world.network.mend(links)
        await group.settled()
        assert await follower.here(follower.up.readable())
        assert follower.up.store.reader.queue_range("t", 0) == (0, 1)

    Group().run(scenario)


@pytest.mark.explore
@pytest.mark.parametrize("ends", ["kill", "lose_power", "stop"])
def test_all_restart_and_go_on(ends: str) -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        for life in range(3):
            master = await group.master()
            for number in range(30):
                assert (await master.put(b"<%d.%d>" % (life, number))).status is PutStatus.PUT_OK
            await passes(0.2 * life)
            for broker in group.brokers.values():
                if ends == "stop":
                    await broker.stop()
                else:
                    getattr(broker, ends)()
            await group.start()
        await group.master()
        await group.settled()
        for broker in group.brokers.values():
            queue = await broker.queue()
            assert len(queue) == 90
            for number, message in enumerate(queue):
                assert b"<%d.%d>" % divmod(number, 30) in message
            assert not broker.failures

    Group().run(scenario)


@pytest.mark.parametrize("bug", ["", "KB-DL-16"])
def test_kb_dl_16_a_killed_member_lacks_the_last_messages_in_its_queues(bug: str) -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        for number in range(20):
            assert (await master.put(b"%d" % number)).status is PutStatus.PUT_OK
        for broker in group.brokers.values():
            broker.lose_power()
        await group.start()
        await group.master()
        await passes(3)
        counts = [len(await broker.queue()) for broker in group.brokers.values()]
        assert (counts == [20, 20, 20]) is not bool(bug)

    Group(bugs=(bug,) if bug else ()).run(scenario)


def test_upstreams_settings_elect_a_master_after_a_restart_of_all() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        master = await group.master()
        assert (await master.put(b"x")).status is PutStatus.PUT_OK
        for broker in group.brokers.values():
            broker.kill()
        await group.start()
        master = await group.master()
        assert (await master.put(b"y")).status is PutStatus.PUT_OK
        await group.settled()
        assert len(await master.queue()) == 2

    Group(RaftConfig()).run(scenario)


def test_every_error_of_the_group_has_its_code() -> None:
    errors: list[tuple[BrokerError, RaftCode, PutStatus]] = [
        (NotLeader("b"), RaftCode.NOT_LEADER, PutStatus.SERVICE_NOT_AVAILABLE),
        (ProposalLost("x"), RaftCode.NOT_LEADER, PutStatus.SERVICE_NOT_AVAILABLE),
        (
            Busy("LEADER_PENDING_FULL"),
            RaftCode.LEADER_PENDING_FULL,
            PutStatus.OS_PAGE_CACHE_BUSY,
        ),
        (
            Busy("LEADER_TRANSFERRING"),
            RaftCode.LEADER_TRANSFERRING,
            PutStatus.SERVICE_NOT_AVAILABLE,
        ),
        (
            ProposalTimeout("x"),
            RaftCode.WAIT_QUORUM_ACK_TIMEOUT,
            PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
        ),
        (DiskFull("x"), RaftCode.DISK_FULL, PutStatus.SERVICE_NOT_AVAILABLE),
        (StorageError("x"), RaftCode.DISK_ERROR, PutStatus.UNKNOWN_ERROR),
    ]
    for error, code, status in errors:
        assert code_of(error) is code
        assert status_of(code) is status
    assert [int(code) for code in (RaftCode.SUCCESS, RaftCode.LEADER_NOT_READY)] == [200, 505]
