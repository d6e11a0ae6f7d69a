"""Sync replication counts distinct slaves, or all of the SyncStateSet, until its deadline."""

from __future__ import annotations

import asyncio

import pytest

from shalott.broker.rocket.ha.group_transfer import (
    ALL_ACK_IN_SYNC_STATE_SET,
    NOTHING_ACKNOWLEDGED,
    Ack,
    GroupTransferService,
)
from tests.world.clock.turns import turns
from tests.world.rabbit.queues import run

pytestmark = pytest.mark.unit


class Slaves:
    def __init__(self) -> None:
        self.connections: list[Ack] = []
        self.members: list[Ack] = []
        self.service = GroupTransferService(lambda: self.connections, members=lambda: self.members)

    async def wait(self, next_offset: int, ack_nums: int, timeout_ms: float = 3000) -> bool:
        return await self.service.replicated(next_offset, ack_nums=ack_nums, timeout_ms=timeout_ms)


def test_one_copy_is_the_masters_own() -> None:
    slaves = Slaves()
    assert slaves.service.is_replicated(100, 1)
    assert not slaves.service.is_replicated(100, 2)


def test_a_request_is_answered_by_the_acknowledgement_that_reaches_its_end() -> None:
    async def scenario() -> None:
        slaves = Slaves()
        waiting = asyncio.ensure_future(slaves.wait(100, 2))
        await turns()
        slaves.connections = [Ack("b", 99)]
        slaves.service.notify()
        await turns()
        assert not waiting.done()
        slaves.connections = [Ack("b", 100)]
        slaves.service.notify()
        assert await waiting
        assert slaves.service.waiting == 0

    run(scenario())


def test_two_connections_of_one_slave_count_once() -> None:
    slaves = Slaves()
    slaves.connections = [Ack("b", 100), Ack("b", 100)]
    assert slaves.service.is_replicated(100, 2)
    assert not slaves.service.is_replicated(100, 3)
    slaves.connections.append(Ack("c", 100))
    assert slaves.service.is_replicated(100, 3)


def test_a_request_ends_at_its_deadline_and_is_forgotten() -> None:
    async def scenario() -> None:
        slaves = Slaves()
        begun = asyncio.get_running_loop().time()
        assert not await slaves.wait(100, 2, timeout_ms=3000)
        assert asyncio.get_running_loop().time() - begun == pytest.approx(3, abs=0.01)
        assert slaves.service.waiting == 0

    run(scenario())


def test_all_of_the_set_must_acknowledge_and_a_member_without_a_connection_has_not() -> None:
    slaves = Slaves()
    every = ALL_ACK_IN_SYNC_STATE_SET
    assert slaves.service.is_replicated(100, every)  # the master alone is the set
    slaves.members = [Ack("b", 100), Ack("c", NOTHING_ACKNOWLEDGED)]
    assert not slaves.service.is_replicated(100, every)
    slaves.members = [Ack("b", 100), Ack("c", 120)]
    assert slaves.service.is_replicated(100, every)


def test_a_set_that_shrinks_lets_those_go_who_wait_for_the_lost_member() -> None:
    async def scenario() -> None:
        slaves = Slaves()
        slaves.members = [Ack("b", 100), Ack("c", 50)]
        waiting = asyncio.ensure_future(slaves.wait(100, ALL_ACK_IN_SYNC_STATE_SET))
        await turns(3)
        assert not waiting.done()
        slaves.members = [Ack("b", 100)]
        slaves.service.notify()
        assert await waiting

    run(scenario())


def test_who_is_no_master_any_more_promises_nothing() -> None:
    async def scenario() -> None:
        slaves = Slaves()
        waiting = asyncio.ensure_future(slaves.wait(100, 2))
        await turns()
        slaves.service.give_up()
        slaves.connections = [Ack("b", 100)]
        slaves.service.notify()
        assert not await waiting

    run(scenario())


def test_a_caller_that_goes_away_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        slaves = Slaves()
        waiting = asyncio.ensure_future(slaves.wait(100, 2))
        await turns()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert slaves.service.waiting == 0
        slaves.service.notify()

    run(scenario())
