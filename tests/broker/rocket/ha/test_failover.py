"""Failover by hand: promote, follow, and logs that have parted."""

from __future__ import annotations

import asyncio

import pytest

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.broker.rocket.ha.packets import encode_frame
from tests.world.clock.turns import passes
from tests.world.rocket.ha import PORT, Group

pytestmark = pytest.mark.unit


def body(number: int, size: int = 100) -> bytes:
    return (b"%08d" % number) * (size // 8)


async def follow(group: Group, slave: str, master: str) -> None:
    await group[slave].here(group[slave].replica.follow(master))


async def promote(group: Group, name: str) -> None:
    await group[name].here(group[name].replica.promote())


async def part(group: Group) -> None:
    """b is promoted while a, alone, goes on as a master; then both have what the other lacks."""
    await group.start()
    await group.connected("b", "a")
    for number in range(10):
        await group["a"].put_ok(body(number))
    group["b"].kill()
    for number in range(3):
        status = (await group["a"].put(body(100 + number))).status
        assert status is not PutStatus.PUT_OK
    await group["b"].start()
    group.world.network.cut([("a", "b"), ("b", "a")])


@pytest.mark.parametrize("size", [8, 100, 3000])
def test_a_former_master_cuts_what_its_successor_never_had(size: int) -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        for number in range(50):
            await group["a"].put_ok(body(number))
        group.world.network.cut([("a", "b"), ("b", "a")])
        for number in range(3):
            assert (await group["a"].put(body(100 + number, size))).status is not PutStatus.PUT_OK
        await promote(group, "b")
        await group["b"].put(body(200))
        group.world.network.mend([("a", "b"), ("b", "a")])
        await follow(group, "a", "b")
        await group.connected("a", "b")
        await group["b"].put_ok(body(201))
        assert await group["a"].log() == await group["b"].log()
        [cut] = group.seen("truncated")
        assert (cut.node, cut.role) == ("a", "slave")

    Group().run(scenario)


def test_the_former_master_has_nothing_that_differs_and_its_log_is_longer() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        end = await group["a"].put_ok(body(1))
        group.world.network.cut([("a", "b"), ("b", "a")])
        assert (await group["a"].put(body(2))).status is not PutStatus.PUT_OK
        await promote(group, "b")
        group.world.network.mend([("a", "b"), ("b", "a")])
        await follow(group, "a", "b")
        await group.connected("a", "b")
        assert group["a"].end == group["b"].end == end
        await group["b"].put_ok(body(3))
        assert await group["a"].log() == await group["b"].log()

    Group().run(scenario)


def test_logs_that_share_no_message_are_cut_to_nothing() -> None:
    async def scenario(group: Group) -> None:
        await group["a"].start()
        for number in range(80):
            await group["a"].put(body(number))
        group["a"].kill()
        await group["b"].start()
        await promote(group, "b")
        for number in range(70):
            await group["b"].put(body(1000 + number))
        await group["a"].start()
        await follow(group, "a", "b")
        await group.connected("a", "b")
        await group.until(lambda: group["a"].end == group["b"].end)
        assert await group["a"].log() == await group["b"].log()
        assert [event.detail["to"] for event in group.seen("truncated")] == [0]

    Group().run(scenario)


def test_roles_given_by_hand_outlive_a_restart() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        await group["a"].put_ok(body(1))
        group["a"].kill()
        await promote(group, "b")
        await group["a"].start()
        await follow(group, "a", "b")
        await group.connected("a", "b")
        for name in "ab":
            group[name].lose_power()
            await group[name].start()
        await group.connected("a", "b")
        await group["b"].put_ok(body(2))
        assert [group[name].replica.role for name in "ab"] == ["slave", "master"]
        assert [group[name].replica.broker_id for name in "ab"] == [2, 0]
        assert group["b"].replica.epoch == 1

    Group().run(scenario)


def test_a_cut_that_a_kill_interrupts_is_made_after_the_restart() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        for number in range(20):
            await group["a"].put_ok(body(number))
        group.world.network.cut([("a", "b"), ("b", "a")])
        await group["a"].put(body(100))
        await promote(group, "b")
        await group["b"].put(body(200))
        await follow(group, "a", "b")  # which it can't reach yet
        group["a"].kill()
        group.world.network.mend([("a", "b"), ("b", "a")])
        await group["a"].start()
        await group.connected("a", "b")
        await group["b"].put_ok(body(201))
        assert await group["a"].log() == await group["b"].log()

    Group().run(scenario)


def test_a_third_broker_that_was_ahead_of_the_new_master_follows_it() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        await group.connected("c", "a")
        await group["a"].put_ok(body(1))
        group.world.network.cut([("a", "b"), ("b", "a")])
        await group["a"].put_ok(body(2))  # c has it, b has not
        assert group["c"].end > group["b"].end
        group["a"].kill()
        await promote(group, "b")  # the operator's mistake: what only c had is lost
        await group["b"].put(body(3))
        await follow(group, "c", "b")
        await group.connected("c", "b")
        await group["b"].put_ok(body(4))
        assert await group["c"].log() == await group["b"].log()

    Group("a", "b", "c").run(scenario)


def test_a_new_master_cuts_a_message_that_came_in_part() -> None:
    async def half_a_message(offset: int, part: bytes) -> None:
        """A master that dies in the middle of a message."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert decode(await reader.readexactly(8)) == offset
            frame = encode_frame(offset, part)
            writer.write(frame[:50])
            await writer.drain()
            writer.write(frame[50:] + frame[:11])
            await reader.read()
            writer.close()

        await asyncio.start_server(accepted, "a", PORT)

    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        end = await group["a"].put_ok(body(1))
        part = (await group["a"].log())[:100]
        group["a"].kill()
        process, _ = group.world.spawn("a", half_a_message(end, part))
        await group.until(lambda: group["b"].end > end)
        group.world.kill(process)
        assert group["b"].end == end + 100
        await promote(group, "b")
        assert group["b"].end == end
        assert [event.detail for event in group.seen("truncated")] == [
            {"from": end + 100, "to": end}
        ]

    Group().run(scenario)


def decode(report: bytes) -> int:
    return int.from_bytes(report, "big", signed=True)


def test_who_has_not_agreed_yet_is_not_promoted() -> None:
    async def scenario(group: Group) -> None:
        await part(group)
        await follow(group, "a", "b")
        with pytest.raises(BrokerError, match="does not know yet"):
            await promote(group, "a")
        with pytest.raises(BrokerError, match="no other broker"):
            await follow(group, "a", "a")

    Group().run(scenario)


def test_a_waiting_send_is_not_told_that_it_was_replicated_when_its_master_steps_down() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        group.world.network.cut([("b", "a")])
        waiting = asyncio.ensure_future(group["a"].put(body(1)))
        await passes(0.5)
        await promote(group, "b")
        await follow(group, "a", "b")
        assert (await waiting).status is PutStatus.FLUSH_SLAVE_TIMEOUT

    Group().run(scenario)


def test_readers_of_a_synchronous_master_see_what_a_slave_has() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        end = await group["a"].put_ok(body(1))
        assert group["a"].store.confirm_offset == end
        group.world.network.cut([("a", "b")])
        await group["a"].put(body(2))
        assert group["a"].store.confirm_offset == end < group["a"].end
        await promote(group, "b")
        assert group["b"].store.confirm_offset == end

    Group(read_flushed_only=True).run(scenario)


def test_a_master_that_restarts_is_read_when_a_slave_has_what_it_had() -> None:
    """It does not know what of it a slave had, and may have been replaced meanwhile."""

    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        await group["a"].put_ok(body(1))
        assert await group["a"].replica.readable()
        group.world.network.cut([("a", "b"), ("b", "a")])
        await group["a"].put(body(2))
        group["a"].kill()
        await group["a"].start()
        assert group["a"].replica.role == "master" and not await group["a"].replica.readable()
        group.world.network.mend([("a", "b"), ("b", "a")])
        await group.connected("b", "a")
        await group.until(lambda: group["b"].end == group["a"].end)
        assert await group["a"].replica.readable()

    Group(read_flushed_only=True).run(scenario)


def test_a_slave_that_has_not_agreed_yet_is_not_read() -> None:
    """It is about to cut what its new master does not have."""

    async def scenario(group: Group) -> None:
        await part(group)
        await promote(group, "b")
        await follow(group, "a", "b")
        assert group["a"].replica.role == "slave" and not await group["a"].replica.readable()
        group.world.network.mend([("a", "b"), ("b", "a")])
        await group.connected("a", "b")
        assert await group["a"].replica.readable()

    Group().run(scenario)


@pytest.mark.parametrize("bug", ["", "KB-RKT-03"])
def test_kb_rkt_03_a_slave_that_is_ahead_is_told_nothing(bug: str) -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        await group.connected("b", "a")
        await group["a"].put_ok(body(1))
        for name in "ab":
            group[name].kill()
        group["a"].disk.wipe()
        for name in "ab":
            await group[name].start()
        await passes(60)
        refused = group["a"].replica.ha_status()["refused"]
        assert bool(refused) is not bool(bug)
        assert bool(group["a"].replica.server.connections) is bool(bug)
        assert (await group["a"].put(body(2, 64))).status is (
            PutStatus.FLUSH_SLAVE_TIMEOUT if bug else PutStatus.SLAVE_NOT_AVAILABLE
        )
        if not bug:
            assert "reports 188; this log is from 0 to 0" in refused[0]["reason"]

    Group(bugs=(bug,) if bug else ()).run(scenario)


def test_a_role_change_is_told_and_an_epoch_counts_failovers() -> None:
    async def scenario(group: Group) -> None:
        await group.start()
        changes: list[str] = []
        group["b"].replica.on_change = lambda: changes.append(group["b"].replica.role)
        await promote(group, "b")
        assert changes == ["none", "master"]
        assert group["b"].replica.epoch == 1
        await group["b"].here(group["b"].replica.promote(epoch=7))
        assert group["b"].replica.epoch == 7
        roles = [(event.node, event.role, event.epoch) for event in group.seen("role")]
        assert roles[:2] == [("a", "master", 0), ("b", "slave", 0)]
        assert ("b", "master", 7) in roles

    Group().run(scenario)
