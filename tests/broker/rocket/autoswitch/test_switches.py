"""Each historical bug of epoch-aware replication shows its symptom when it is switched on, and only
then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shalott.broker.rocket.autoswitch.packets import SlaveHandshake
from shalott.cluster.nodes import LinkShape
from shalott.cluster.sim.disk.disk import DiskKnobs
from shalott.cluster.sim.network.network import NetworkKnobs
from tests.world.clock.turns import passes
from tests.world.rocket.autoswitch import SAFE, Broker, Group
from tests.world.rocket.machine import changed

pytestmark = pytest.mark.unit

ALONE_TOO = changed(SAFE, in_sync_replicas=1, min_in_sync_replicas=1)
UPSTREAM = changed(ALONE_TOO, all_ack_in_sync_state_set=False)

Scenario = Callable[[Group], Coroutine[Any, Any, bool]]


def body(number: int, size: int = 100) -> bytes:
    return (b"%08d" % number) * (size // 8)


def shows(scenario: Scenario, *bugs: str, **settings: Any) -> bool:
    """Whether the symptom, which the scenario looks for, is there with these bugs."""
    seen: list[bool] = []

    async def whole(group: Group) -> None:
        seen.append(await scenario(group))

    Group(bugs=bugs, **settings).run(whole)
    return seen[0]


def only_with(bug: str, scenario: Scenario, *, seeds: int = 1, **settings: Any) -> None:
    """In no seed without the bug, and in some with it."""
    for seed in range(1, seeds + 1):
        assert not shows(scenario, seed=seed, **settings), f"seed {seed}: without the bug, too"
    found = [shows(scenario, bug, seed=seed, **settings) for seed in range(1, seeds + 1)]
    assert any(found), f"{bug} is not seen"


async def pair(group: Group) -> tuple[Broker, Broker]:
    await group.start("a", "b")
    await group["a"].lead(1)
    await group["b"].follow("a", 1)
    await group["a"].admit("b")
    return group["a"], group["b"]


async def triple(group: Group) -> tuple[Broker, Broker, Broker]:
    a, b = await pair(group)
    await group.start("c")
    await group["c"].follow("a", 1)
    await a.admit("b", "c")
    return a, b, group["c"]


async def differ(group: Group, *names: str) -> bool:
    logs = [await group[name].log() for name in names]
    return any(log != logs[0] for log in logs)


def test_kb_rkt_a_divergent_bytes_survive_truncation() -> None:
    """The sequence of finding (a), step by step."""

    async def scenario(group: Group) -> bool:
        a, b = await pair(group)
        assert await a.put(body(1))
        await group.caught_up("a", "b")
        x = a.end
        await a.lead(2)  # epoch 2 begins at X; b hears of it in a heartbeat only
        await b.follow("a", 2)
        await passes(2)
        group.isolate("a")
        assert await a.put(body(1001))  # acknowledged by a alone
        await b.lead(3)  # X is still the end of its log
        assert b.end == x
        assert await b.put(body(1002))
        assert await b.put(body(1003))
        group.heal()
        await a.follow("b", 3)
        await group.caught_up("b", "a")
        return await differ(group, "a", "b")

    only_with("KB-RKT-A", scenario, ha=UPSTREAM)


def test_epochs_that_begin_at_one_offset_never_leave_different_bytes() -> None:
    """Masters take turns at one offset; each but the last writes there alone."""

    async def scenario(group: Group) -> bool:
        await triple(group)
        turns = ("b", "c", "a", "c", "b", "a")
        for epoch, name in enumerate(turns, start=2):
            await group[name].lead(epoch)
            for other in group.names:
                if other != name:
                    await group[other].follow(name, epoch)
            await passes(1.5)  # heartbeats
            group.isolate(name)
            assert await group[name].put(body(epoch))
            group[name].service.step_down()
            group.heal()
        await group["c"].lead(100)
        assert await group["c"].put(body(100))
        for other in ("a", "b"):
            await group[other].follow("c", 100)
        await group.caught_up("c", "a", "b")
        return await differ(group, "a", "b", "c")

    assert not shows(scenario, ha=UPSTREAM)
    assert shows(scenario, "KB-RKT-A", ha=UPSTREAM)


def test_kb_rkt_10_a_message_counts_without_a_member_that_the_controllers_know() -> None:
    async def scenario(group: Group) -> bool:
        await group.start("a", "b")
        a, b = group["a"], group["b"]
        tenure = await a.lead(1)
        await b.follow("a", 1)
        # The controllers carry it out, and the answer is lost.
        await group.until(lambda: tenure.propose(is_check=False) is not None)
        group.isolate("b")
        counted = await a.put(body(1), timeout_ms=500)
        await b.lead(2)  # for it is in the set
        return counted and body(1) not in await b.log()

    only_with("KB-RKT-10", scenario, ha=ALONE_TOO)


def test_kb_rkt_f_what_waits_is_acknowledged_when_the_slaves_connections_end() -> None:
    async def scenario(group: Group) -> bool:
        a, _, _ = await triple(group)
        group.isolate("a")
        return await a.put(body(1), timeout_ms=60_000)

    only_with("KB-RKT-F", scenario)


def test_kb_rkt_f_what_waits_is_acknowledged_when_the_master_becomes_a_slave() -> None:
    async def scenario(group: Group) -> bool:
        a, b, _ = await triple(group)
        group.isolate("a")
        waits = asyncio.create_task(a.put(body(1), timeout_ms=60_000))
        await group.until(lambda: a.tenure.transfer.waiting == 1)
        await b.lead(2)
        await a.follow("b", 2)
        return await waits and body(1) not in await b.log()

    only_with("KB-RKT-F", scenario)


def test_kb_rkt_12_the_confirm_offset_moves_without_a_member_that_is_gone() -> None:
    async def scenario(group: Group) -> bool:
        a, _, _ = await triple(group)
        assert await a.put(body(1))
        confirmed = a.store.confirm_offset
        group.isolate("c")
        await group.until(lambda: 3 not in a.tenure.connections)
        assert not await a.put(body(2), timeout_ms=500)
        return a.store.confirm_offset > confirmed

    only_with("KB-RKT-12", scenario)


def test_kb_rkt_13_the_confirm_offset_drops_when_a_member_connects_again() -> None:
    async def scenario(group: Group) -> bool:
        a, b = await pair(group)
        assert await a.put(body(1))
        seen = [a.store.confirm_offset]
        original = a.store.set_confirm_offset

        def record(offset: int | None) -> None:
            original(offset)
            seen.append(a.store.confirm_offset)

        a.store.set_confirm_offset = record  # type: ignore[method-assign]
        b.kill()
        await b.start()
        await b.follow("a", 1)
        await group.caught_up("a", "b")
        return min(seen) < seen[0] and bool(group.seen("confirm_lowered"))

    only_with("KB-RKT-13", scenario)


def test_kb_rkt_14_an_incomplete_message_stays_in_a_new_masters_log() -> None:
    async def scenario(group: Group) -> bool:
        a, b = await pair(group)
        assert await a.put(body(1))
        whole = b.end
        group.world.network.shape("a", "b", LinkShape(rate_bytes_s=10_000))
        end = a.append(body(2, size=3000)).end
        await group.until(lambda: b.end > whole, step_s=0.001)
        group.isolate("a")
        assert whole < b.end < end
        await b.lead(2)
        return b.end != whole

    only_with("KB-RKT-14", scenario)


def test_kb_rkt_19_a_new_master_counts_by_its_old_set() -> None:
    async def scenario(group: Group) -> bool:
        a, b = await pair(group)
        await a.lead(2, "a", "b", set_epoch=5)
        await b.lead(3)
        await a.follow("b", 3)
        await b.admit("a")
        tenure = await a.lead(4, "a", set_epoch=9)
        return tenure.set.members != (1,)

    only_with("KB-RKT-19", scenario)


@pytest.mark.explore
def test_kb_rkt_20_a_master_that_is_elected_again_gives_queue_offsets_twice() -> None:
    async def scenario(group: Group) -> bool:
        await group.start("a")
        a = group["a"]
        await a.lead(1)
        ends: list[int] = []

        async def produce() -> None:
            for number in range(400):
                ends.append(a.append(body(number)).end)
                await passes(0.00005)

        producing = asyncio.create_task(produce())
        for epoch in range(2, 12):
            await passes(0.0001)
            await a.lead(epoch)
        await producing
        await a.here(a.store.dispatched(ends[-1]))
        stored = await a.bodies()
        missing = [n for n in range(len(ends)) if not any(body(n) in data for data in stored)]
        return bool(missing) or a.store.reader.queue_range("t", 0) != (0, len(ends))

    only_with("KB-RKT-20", scenario, seeds=8, ha=UPSTREAM)


def test_kb_rkt_21_an_epoch_without_data_stops_replication() -> None:
    async def scenario(group: Group) -> bool:
        a, b = await pair(group)
        assert await a.put(body(1))
        await a.lead(2, "a", "b", set_epoch=5)
        await a.lead(3, "a", "b", set_epoch=6)
        return not await a.put(body(2))

    only_with("KB-RKT-21", scenario)


def test_kb_rkt_22_nothing_in_common_is_never_truncated() -> None:
    async def scenario(group: Group) -> bool:
        await group.start("a", "b")
        a, b = group["a"], group["b"]
        await a.lead(1)
        assert await a.put(body(1))
        await b.lead(2)
        assert await b.put(body(2))
        await a.follow("b", 2)
        await passes(10)
        return await differ(group, "a", "b")

    only_with("KB-RKT-22", scenario, ha=UPSTREAM)


def test_kb_rkt_24_a_handshake_in_pieces_is_never_understood() -> None:
    async def scenario(group: Group) -> bool:
        await group.start("a", "b")
        a, b = group["a"], group["b"]
        for epoch in range(1, 60):
            await a.lead(epoch)
            assert await a.put(body(epoch))
        await b.follow("a", 59)
        await passes(10)
        return b.end == 0

    knobs = NetworkKnobs(window_bytes=200)  # 20 + 59 * 12 bytes don't come at once
    only_with("KB-RKT-24", scenario, ha=UPSTREAM, knobs=knobs)


def test_kb_rkt_25_a_slave_that_truncates_is_thrown_out() -> None:
    async def scenario(group: Group) -> bool:
        a, b = await pair(group)
        group.isolate("a")
        assert not await a.put(body(1), timeout_ms=100)
        await b.lead(2)
        group.heal()
        connections: list[int] = []
        identify = b.tenure.identify

        def count(handshake: SlaveHandshake) -> int:
            connections.append(identify(handshake))
            return connections[-1]

        b.tenure.identify = count  # type: ignore[method-assign]
        await a.follow("b", 2)
        await group.caught_up("b", "a")
        return len(connections) > 1

    only_with("KB-RKT-25", scenario)


def test_kb_rkt_c_a_slave_cuts_what_counted_when_its_master_restarts() -> None:
    async def scenario(group: Group) -> bool:
        a, b = await pair(group)
        assert await a.put(body(0))
        await a.lead(2, "a", "b", set_epoch=3)
        for number in range(5):
            assert await a.put(body(number))
        counted = b.end
        a.kill()
        await a.start()
        await a.lead(2, "a", "b", set_epoch=3)
        lowest = [b.end]
        truncate = b.store.truncate

        async def record(offset: int) -> None:
            await truncate(offset)
            lowest.append(b.end)

        b.store.truncate = record  # type: ignore[method-assign]
        await group.caught_up("a", "b")
        return min(lowest) < counted

    only_with("KB-RKT-C", scenario)


def test_kb_rkt_d_a_master_that_lost_its_tail_writes_other_bytes_in_its_epoch() -> None:
    async def scenario(group: Group) -> bool:
        a, b = await pair(group)
        assert await a.put(body(1))
        end = a.append(body(2)).end
        await group.until(lambda: b.end == end, step_s=0.0005)
        a.lose_power()
        group.isolate("b")
        await a.start()
        await a.lead(1)
        if a.end < end:
            assert await a.put(body(1002))
        group.heal()
        await b.follow("a", 1)
        await group.caught_up("a", "b")
        return await differ(group, "a", "b")

    drop = DiskKnobs(power_loss="drop")
    only_with("KB-RKT-D", scenario, seeds=8, ha=UPSTREAM, flush="async", disk=drop)
