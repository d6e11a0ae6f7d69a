"""AutoSwitchHATest's cases as ours: real stores on simulated disks, the test as the controllers."""

from __future__ import annotations

import asyncio

import pytest

from shalott.broker.rocket.autoswitch import packets
from shalott.cluster.nodes import LinkShape
from shalott.cluster.sim.network.network import NetworkKnobs
from tests.world.clock.turns import passes
from tests.world.rocket.autoswitch import (
    PORT,
    SAFE,
    SEGMENT_BYTES,
    Group,
)
from tests.world.rocket.machine import changed

pytestmark = pytest.mark.unit

ALONE_TOO = changed(SAFE, in_sync_replicas=1, min_in_sync_replicas=1)
UPSTREAM = changed(ALONE_TOO, all_ack_in_sync_state_set=False)


def body(number: int, size: int = 100) -> bytes:
    return (b"%08d" % number) * (size // 8)


async def pair(group: Group, epoch: int = 1) -> None:
    """a is the master, b is in its set."""
    await group.start("a", "b")
    await group["a"].lead(epoch)
    await group["b"].follow("a", epoch)
    await group["a"].admit("b")


async def same(group: Group, *names: str) -> None:
    """The logs of these are equal, byte for byte."""
    first = await group[names[0]].log()
    for name in names[1:]:
        assert await group[name].log() == first, f"{name} differs from {names[0]}"


def test_what_counts_is_on_both_disks() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        for number in range(100):
            assert await group["a"].put(body(number))
            assert group["b"].store.log.flushed_offset == group["a"].end
        await same(group, "a", "b")
        assert group["b"].end > 2 * SEGMENT_BYTES
        assert group["b"].entries == group["a"].entries == [(1, 0)]

    Group().run(scenario)


def test_a_lost_connection_leaves_the_client_uncancelled() -> None:
    """A task that once was cancelled by its TaskGroup ends, silently, at its next timeout: until
    Python 3.11.3 (CPython gh-102780). The slave of a master that was killed never came back."""

    async def scenario(group: Group) -> None:
        await pair(group)
        client = group["b"].service._client_task
        assert client is not None
        group["a"].kill()
        await passes(1)
        assert not client.done() and client.cancelling() == 0

    Group().run(scenario)


def test_a_client_that_nobody_asked_to_end_ends_the_node() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        client = group["b"].service._client_task
        assert client is not None
        client.cancel()
        await passes(1)
        assert group["b"].failures == ["the HA client crashed: cancelled"]
        group["b"].failures.clear()

    Group().run(scenario)


def test_a_client_that_is_told_to_end_ends_though_its_session_fails_at_that_moment() -> None:
    """A TaskGroup of which a task failed tells of that, and of no cancellation: the slave went on
    with the old master for ever, and with it the task that waited for its end."""

    async def scenario(group: Group) -> None:
        await pair(group)
        client = group["b"].service.client
        assert client is not None

        async def failing_session() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise OSError("while it was cancelled")

        client._session = failing_session  # type: ignore[method-assign]
        group["a"].kill()
        await group.until(lambda: not client.is_connected)
        await passes(2 * SAFE.reconnect_interval_ms / 1000)
        await group.start("c")
        await group["c"].lead(2)
        async with asyncio.timeout(5):
            await group["b"].follow("c", 2)
        assert (group["b"].service.role, group["b"].service.epoch) == ("slave", 2)

    Group().run(scenario)


@pytest.mark.parametrize("by_address", [False, True])
def test_both_forms_of_the_handshake_work(by_address: bool) -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        assert await group["a"].put(body(1))
        assert list(group["a"].tenure.connections) == [2]

    Group(ha=changed(SAFE, handshake_by_address=by_address)).run(scenario)


def test_all_of_the_set_must_have_a_message() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        await group.start("c")
        await group["c"].follow("a", 1)
        await group["a"].admit("b", "c")
        assert await group["a"].put(body(1))
        group.isolate("c")
        assert not await group["a"].put(body(2))
        assert group["b"].end == group["a"].end > group["c"].end
        group["a"].tenure.learn([1, 2], 9)  # the controllers dropped c
        assert await group["a"].put(body(3))

    Group().run(scenario)


def test_a_set_that_shrinks_while_a_message_waits_leaves_too_few_copies() -> None:
    """Upstream counts minInSyncReplicas before it appends only."""

    async def scenario(group: Group) -> None:
        await pair(group)
        group.isolate("b")
        waiting = asyncio.create_task(group["a"].put(body(1)))
        await passes(0.5)
        group["a"].tenure.learn([1], 9)
        assert not await waiting

    Group().run(scenario)


def test_the_confirm_offset_is_what_all_of_the_set_have() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        a, b = group["a"], group["b"]
        for number in range(20):
            assert await a.put(body(number))
            assert a.store.confirm_offset == a.end
        group.isolate("b")
        before = a.end
        assert not await a.put(body(99), timeout_ms=100)
        assert a.store.confirm_offset == before < a.end
        group.heal()
        await group.caught_up("a", "b")
        assert a.store.confirm_offset == a.end
        # A slave learns it with the next frame: what it confirms is never more than that.
        await group.until(lambda: b.store.confirm_offset == b.end)

    Group().run(scenario)


def test_no_consume_queue_goes_beyond_the_confirm_offset() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        a = group["a"]
        assert await a.put(body(1))
        await group.until(lambda: a.store.reader.queue_range("t", 0) == (0, 1))
        group.isolate("b")
        assert not await a.put(body(2), timeout_ms=1000)
        assert a.store.reader.queue_range("t", 0) == (0, 1)
        group.heal()
        await group.until(lambda: a.store.reader.queue_range("t", 0) == (0, 2))
        assert len(await a.bodies()) == 2

    Group().run(scenario)


def test_an_async_learner_gets_everything_and_counts_for_nothing() -> None:
    async def scenario(group: Group) -> None:
        group["c"].ha = changed(SAFE, async_learner=True)
        await pair(group)
        await group.start("c")
        await group["c"].follow("a", 1)
        assert await group["a"].put(body(1))
        await group.caught_up("a", "c")
        assert group["a"].tenure.propose(is_check=True) is None
        group.isolate("c")
        assert await group["a"].put(body(2))

    Group().run(scenario)


def test_roles_change_many_times() -> None:
    async def scenario(group: Group) -> None:
        await group.start("a", "b")
        sent = 0
        for epoch in range(1, 16):
            master, slave = ("a", "b") if epoch % 2 else ("b", "a")
            await group[master].lead(epoch)
            await group[slave].follow(master, epoch)
            await group[master].admit(slave)
            for _ in range(3):
                assert await group[master].put(body(sent))
                sent += 1
        await same(group, "a", "b")
        await group.until(lambda: group["a"].store.reader.queue_range("t", 0) == (0, sent))
        stored = await group["a"].bodies()
        assert [body(number) in data for number, data in enumerate(stored)] == [True] * sent
        assert [epoch for epoch, _ in group["b"].entries] == list(range(1, 16))
        assert group["a"].entries == group["b"].entries

    Group("a", "b").run(scenario)


def test_a_broker_that_is_added_gets_all_epochs() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        assert await group["a"].put(body(1))
        await group["b"].lead(2)
        await group["a"].follow("b", 2)
        await group["b"].admit("a")
        for number in range(100):
            assert await group["b"].put(body(number))
        await group.start("c")
        await group["c"].follow("b", 2)
        await group["b"].admit("a", "c")
        await same(group, "a", "b", "c")
        assert group["c"].entries == group["b"].entries
        assert [epoch for epoch, _ in group["c"].entries] == [1, 2]

    Group().run(scenario)


def test_an_added_broker_may_begin_with_the_last_file() -> None:
    async def scenario(group: Group) -> None:
        group["c"].ha = changed(SAFE, sync_from_last_file=True)
        await pair(group)
        for number in range(100):
            assert await group["a"].put(body(number))
        await group.start("c")
        await group["c"].follow("a", 1)
        await group["a"].admit("b", "c")
        end = group["a"].end
        start = end - end % SEGMENT_BYTES
        assert group["c"].store.log.min_offset == start > 0
        assert await group["c"].log() == (await group["a"].log())[start:]
        assert await group["a"].put(body(100))

    Group().run(scenario)


def test_an_added_broker_begins_where_its_master_s_log_does() -> None:
    """Files of the master went, and an epoch with them."""

    async def scenario(group: Group) -> None:
        await pair(group)
        for number in range(100):
            assert await group["a"].put(body(number))
        await group["b"].lead(2)
        await group["a"].follow("b", 2)
        await group["b"].admit("a")
        for number in range(100):
            assert await group["b"].put(body(number))
        master = group["b"].store
        begin = master.log.max_offset - SEGMENT_BYTES
        begin -= begin % SEGMENT_BYTES
        await group["b"].here(master.dispatched(master.log.max_offset))
        await group["b"].here(master.remove_before(begin))
        assert master.log.min_offset == begin > 0
        await group.start("c")
        await group["c"].follow("b", 2)
        await group["b"].admit("a", "c")
        assert await group["c"].log() == await group["b"].log()
        assert group["c"].store.log.min_offset == begin
        assert await group["b"].put(body(100))

    Group().run(scenario)


def test_what_a_lonely_master_wrote_is_truncated_when_it_follows() -> None:
    """testTruncateEpochLogAndChangeMaster."""

    async def scenario(group: Group) -> None:
        await pair(group)
        await group.start("c")
        await group["c"].follow("a", 1)
        await group["a"].admit("b", "c")
        for number in range(10):
            assert await group["a"].put(body(number))
        counted = group["a"].end
        group.isolate("a")
        assert not await group["a"].put(body(77), timeout_ms=100)
        await group["b"].lead(2)
        await group["c"].follow("b", 2)
        await group["b"].admit("c")
        for number in range(10, 20):
            assert await group["b"].put(body(number))
        group.heal()
        await group["a"].follow("b", 2)
        await group["b"].admit("a", "c")
        await same(group, "a", "b", "c")
        assert group["a"].entries == group["b"].entries == [(1, 0), (2, counted)]
        cut = [event.detail for event in group.seen("truncated") if event.node == "a"]
        assert [each["to"] for each in cut] == [counted]
        assert body(77) not in await group["a"].log()

    Group().run(scenario)


def test_a_slave_that_catches_up_is_marked_before_the_controllers_know() -> None:
    """testCheckSynchronizingSyncStateSetFlag: while a report is under way both sets count."""

    async def scenario(group: Group) -> None:
        await group.start("a", "b")
        await group["a"].lead(1)
        await group["b"].follow("a", 1)
        tenure = group["a"].tenure
        await group.until(lambda: tenure.propose(is_check=False) is not None)
        assert tenure.set.is_synchronizing
        assert (tenure.set.members, tenure.set.judged) == ((1,), (1, 2))
        tenure.refused((1, 2))
        assert not tenure.set.is_synchronizing
        assert tenure.set.judged == (1,)

    Group(ha=ALONE_TOO).run(scenario)


@pytest.mark.explore
def test_a_slave_joins_under_constant_load_and_stays() -> None:
    """There is always a newer frame under way when an acknowledgement comes."""

    async def scenario(group: Group) -> None:
        await pair(group)
        a = group["a"]
        a.tenure.proposals.config = changed(SAFE, max_time_slave_not_catchup_ms=1000)
        running = True

        async def produce() -> None:
            number = 0
            while running:
                number += 1
                a.append(body(number))
                await passes(0.0002)

        producing = asyncio.create_task(produce())
        await group.start("c")
        await group["c"].follow("a", 1)
        await a.admit("b", "c")
        for _ in range(20):
            await passes(0.1)
            assert a.tenure.propose(is_check=True) is None
        running = False
        await producing

    Group().run(scenario)


def test_a_slave_that_is_far_behind_does_not_join() -> None:
    """Also where a message counts without anybody else."""

    async def scenario(group: Group) -> None:
        await group.start("a", "b")
        a = group["a"]
        await a.lead(1)
        for number in range(100):
            assert await a.put(body(number))
        group.world.network.shape("a", "b", LinkShape(rate_bytes_s=4000))
        await group["b"].follow("a", 1)
        await group.until(lambda: 2 in a.tenure.connections)
        assert a.tenure.propose(is_check=True) is None
        await a.admit("b")
        assert group["b"].end == a.end

    Group(ha=UPSTREAM).run(scenario)


def test_members_that_fall_behind_or_are_gone_are_dropped() -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        tenure = group["a"].tenure
        group.isolate("b")
        assert not await group["a"].put(body(1), timeout_ms=100)
        assert tenure.propose(is_check=True) is None
        # Its connection is half open and says nothing: it is late before it is lost.
        tenure.proposals.config = changed(SAFE, max_time_slave_not_catchup_ms=2000)
        await passes(2)
        proposal = tenure.propose(is_check=False)
        assert proposal is not None
        assert proposal.members == (1,)
        tenure.refused(proposal.members)
        await group.until(lambda: not tenure.connections)
        proposal = tenure.propose(is_check=False)
        assert proposal is not None
        assert proposal.members == (1,)

    Group().run(scenario)


def test_a_member_that_never_connects_is_dropped_at_a_check_only() -> None:
    async def scenario(group: Group) -> None:
        await group.start("a")
        tenure = await group["a"].lead(1, "a", "b")
        assert tenure.propose(is_check=False) is None
        proposal = tenure.propose(is_check=True)
        assert proposal is not None
        assert proposal.members == (1,)

    Group().run(scenario)


def test_a_new_connection_of_a_slave_replaces_the_old_one() -> None:
    """KB-RKT-33: the end of the old one says nothing of the slave."""

    async def scenario(group: Group) -> None:
        await pair(group)
        tenure, b = group["a"].tenure, group["b"]
        old = tenure.connections[2]
        # Both ends of the old connection are silent; b's next life connects before a notices.
        b.lose_power()
        await b.start()
        await b.follow("a", 1)
        await group.until(lambda: tenure.connections.get(2) not in (None, old))
        assert tenure.propose(is_check=True) is None
        assert await group["a"].put(body(1))

    Group(ha=changed(SAFE, housekeeping_interval_ms=60_000)).run(scenario)


def test_an_older_epoch_is_refused() -> None:
    async def scenario(group: Group) -> None:
        await pair(group, epoch=5)
        assert await group["a"].put(body(1))
        a, b = group["a"], group["b"]
        assert not await b.here(b.service.change_to_master(4, [2], 1))
        assert not await a.here(a.service.change_to_slave(f"b:{PORT}", 4))
        assert a.service.role == "master"

    Group().run(scenario)


def test_a_master_of_an_older_epoch_is_not_followed() -> None:
    """A deposed controller may still name it (finding g); truncating to it would lose data."""

    async def scenario(group: Group) -> None:
        await pair(group, epoch=1)
        assert await group["a"].put(body(1))
        await group["b"].lead(2)
        await group.start("c")
        await group["c"].follow("b", 2)
        await group["b"].admit("c")
        assert await group["b"].put(body(2))
        c = group["c"]
        before = c.end
        c.lose_power()
        await c.start()
        assert not await c.here(c.service.change_to_slave(f"a:{PORT}", 1))
        # Nor does it when the address is right and the master behind it is not of that epoch yet.
        await c.follow("a", 2)
        await passes(5)
        assert group["a"].service.role == "master"
        assert c.end == before
        assert group["a"].tenure.connections.keys() == dict.fromkeys([]).keys()

    Group().run(scenario)


def test_an_acknowledgement_of_what_is_not_there_ends_the_connection() -> None:
    """Finding (i): 5.x believes every number."""

    async def scenario(group: Group) -> None:
        await group.start("a")
        tenure = await group["a"].lead(1)
        reader, writer = await asyncio.open_connection("a", PORT)
        handshake = packets.SlaveHandshake(broker_id=2)
        writer.write(packets.encode_slave_handshake(handshake))
        header = packets.decode_master_handshake(await reader.readexactly(20))
        await reader.readexactly(header.entries_bytes)
        writer.write(packets.encode_ack(1 << 40))
        assert await reader.read() == b""
        assert not tenure.connections
        writer.close()

    Group(ha=ALONE_TOO).run(scenario)


def test_nobody_serves_who_is_no_master() -> None:
    async def scenario(group: Group) -> None:
        await group.start("a")
        reader, writer = await asyncio.open_connection("a", PORT)
        try:
            assert await reader.read() == b""
        except ConnectionError:
            pass
        writer.close()

    Group().run(scenario)


@pytest.mark.parametrize("window_bytes", [64, 1000])
def test_packets_may_come_in_pieces(window_bytes: int) -> None:
    async def scenario(group: Group) -> None:
        await pair(group)
        for number in range(30):
            assert await group["a"].put(body(number))
        await same(group, "a", "b")

    Group(knobs=NetworkKnobs(window_bytes=window_bytes)).run(scenario)


def test_upstreams_defaults_count_the_masters_copy_alone() -> None:
    """KB-RKT-17 is no switch: these settings lose what an isolated master acknowledged."""

    async def scenario(group: Group) -> None:
        await group.start("a", "b")
        await group["a"].lead(1)
        await group["b"].follow("a", 1)
        await group["a"].admit("b")
        assert await group["a"].put(body(1))
        await group.caught_up("a", "b")
        group.isolate("a")
        assert await group["a"].put(body(2))
        await group["b"].lead(2)
        group.heal()
        await group["a"].follow("b", 2)
        await group["b"].admit("a")
        await same(group, "a", "b")
        assert body(2) not in await group["a"].log()

    Group("a", "b", ha=UPSTREAM).run(scenario)
