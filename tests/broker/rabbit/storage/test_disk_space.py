"""When a node's disk counts as full, and how soon that is noticed."""

from __future__ import annotations

from typing import cast

import pytest

from shalott.broker.base.disk import Disk
from shalott.broker.rabbit.storage.disk_space import LONGEST_MS, SHORTEST_MS, DiskMonitor
from tests.world.clock.turns import passes
from tests.world.clock.virtual import run

pytestmark = pytest.mark.unit

LIMIT = 50_000_000
PLENTY = 10**12


class Room:
    """A disk that only knows how much is free."""

    def __init__(self) -> None:
        self.free = PLENTY
        self.asked = 0
        self.fails = False

    async def free_bytes(self) -> int:
        self.asked += 1
        if self.fails:
            raise OSError("no answer")
        return self.free


class Watched:
    def __init__(self, limit_bytes: int = LIMIT) -> None:
        self.disk = Room()
        self.told: list[bool] = []
        self.monitor = DiskMonitor(cast(Disk, self.disk), limit_bytes, self.told.append)
        self.monitor.start()


def test_the_alarm_goes_on_below_the_limit_and_off_above() -> None:
    async def scenario() -> None:
        watched = Watched()
        await passes(1)
        assert watched.told == []
        watched.disk.free = LIMIT - 1
        await passes(LONGEST_MS / 1000)
        assert watched.told == [True]
        watched.disk.free = LIMIT
        await passes(2 * SHORTEST_MS / 1000)
        assert watched.told == [True, False]
        watched.monitor.stop()

    run(scenario())


def test_a_full_disk_is_asked_often_and_an_empty_one_seldom() -> None:
    async def scenario() -> None:
        watched = Watched()
        await passes(60)
        assert watched.disk.asked in (6, 7)
        watched.disk.free = LIMIT + 1
        await passes(LONGEST_MS / 1000)
        watched.disk.asked = 0
        await passes(1)
        assert watched.disk.asked in (9, 10, 11)
        watched.monitor.stop()

    run(scenario())


def test_another_limit_holds_at_once_and_none_ends_the_alarm() -> None:
    async def scenario() -> None:
        watched = Watched(0)
        await passes(60)
        assert (watched.disk.asked, watched.told) == (0, [])
        watched.monitor.set_limit(2 * PLENTY)
        await passes(0.01)
        assert watched.told == [True]
        watched.monitor.set_limit(0)
        await passes(0.01)
        assert watched.told == [True, False]
        watched.monitor.stop()

    run(scenario())


def test_a_disk_that_does_not_answer_changes_nothing() -> None:
    async def scenario() -> None:
        watched = Watched()
        watched.disk.free = 0
        await passes(1)
        watched.disk.fails = True
        await passes(60)
        assert watched.told == [True]
        watched.disk.fails, watched.disk.free = False, PLENTY
        await passes(LONGEST_MS / 1000)
        assert watched.told == [True, False]
        watched.monitor.stop()

    run(scenario())
