"""JournalLog: what it shows, what a restart finds, and what crashes leave."""

from __future__ import annotations

import random

import pytest

from shalott.broker.base.errors import StorageError
from shalott.broker.raft.api import Entry, HardState, Snapshot
from shalott.broker.raft.journal_log import JournalLog
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from tests.world.disk.disk_runs import outcomes, simulate

pytestmark = pytest.mark.unit

PATH = "raft/log"


def entry(index: int, term: int = 1) -> Entry:
    return Entry(index, term, b"data %d.%d" % (index, term))


def contents(log: JournalLog) -> tuple[HardState, Snapshot | None, list[Entry]]:
    return log.hard_state, log.snapshot, list(log.entries(log.first_index, 1 << 30))


def test_a_restart_finds_what_was_flushed() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await JournalLog.open(disk, PATH)
        assert (log.first_index, log.last_index, log.term_at(0)) == (1, 0, 0)
        log.set_hard_state(HardState(3, "b"))
        log.append([entry(1), entry(2), entry(3)])
        log.truncate(2)
        log.append([entry(2, 3)])
        await log.flush()
        log.append([entry(3, 3)])
        disk.power_loss()
        log = await JournalLog.open(disk, PATH)
        hard, snapshot, entries = contents(log)
        assert (hard, snapshot, entries[:2]) == (HardState(3, "b"), None, [entry(1), entry(2, 3)])
        await log.close()

    simulate(body)


def test_entries_come_in_pieces_and_at_least_one() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await JournalLog.open(disk, PATH)
        log.append([entry(index) for index in range(1, 8)])
        assert list(log.entries(3, 16)) == [entry(3), entry(4)]
        assert list(log.entries(3, 1)) == [entry(3)]
        assert list(log.entries(8, 100)) == []
        await log.close()

    simulate(body)


def test_a_compacted_log_begins_after_its_snapshot() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await JournalLog.open(disk, PATH)
        log.set_hard_state(HardState(2, "a"))
        log.append([entry(index) for index in range(1, 1001)])
        await log.flush()
        size = len(disk.read_all(PATH))
        log.compact(Snapshot(990, 1, b"state"))
        log.append([entry(1001)])
        await log.close()
        assert len(disk.read_all(PATH)) < size / 10
        log = await JournalLog.open(disk, PATH)
        assert (log.first_index, log.last_index, log.term_at(990)) == (991, 1001, 1)
        assert log.committed_index == 990 and log.snapshot == Snapshot(990, 1, b"state")
        assert log.hard_state == HardState(2, "a")
        assert list(log.entries(5, 100)) == []
        await log.close()

    simulate(body)


def test_crashes_leave_a_state_that_was_there_and_nothing_older_than_the_last_flush() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> int:
        draw = random.Random(disk._seed)
        log = await JournalLog.open(disk, PATH)
        states = [contents(log)]
        term = 1
        for _ in range(draw.randrange(5, 40)):
            match draw.randrange(6):
                case 0:
                    term += 1
                    log.set_hard_state(HardState(term, draw.choice("abc")))
                case 1 | 2:
                    end = log.last_index
                    count = draw.randrange(1, 4)
                    log.append([entry(end + 1 + n, term) for n in range(count)])
                case 3:
                    if log.last_index > log.first_index:
                        log.truncate(draw.randrange(log.first_index + 1, log.last_index + 1))
                case 4:
                    await log.flush()
                    states.clear()
                case 5:
                    log.install(Snapshot(log.last_index + 2, term, b"installed"))
            states.append(contents(log))
        disk.power_loss()
        found = await JournalLog.open(disk, PATH)
        assert contents(found) in states
        await found.close()
        return len(states)

    assert max(outcomes(body)) > 5


def test_what_is_no_log_is_refused() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await JournalLog.open(disk, PATH)
        log.append([entry(1)])
        log._entries.clear()
        log.append([entry(1)])  # twice: no writer does that
        await log.close()
        with pytest.raises(StorageError, match="a gap"):
            await JournalLog.open(disk, PATH)

    simulate(body)


@pytest.mark.parametrize("bugs", [(), ("KB-DL-21",)], ids=["sound", "vote_not_durable"])
def test_a_vote_is_durable_when_it_was_flushed(bugs: tuple[str, ...]) -> None:
    """KB-DL-21: with it, whom this member voted for is forgotten by a power loss."""

    async def body(loop: SimLoop, disk: SimDisk) -> HardState:
        log = await JournalLog.open(disk, PATH, bugs=bugs)
        log.set_hard_state(HardState(7, "a"))
        await log.flush()
        disk.power_loss()
        log = await JournalLog.open(disk, PATH, bugs=bugs)
        hard = log.hard_state
        await log.close()
        return hard

    assert simulate(body) == (HardState() if bugs else HardState(7, "a"))
