"""A ledger on simulated disks: what is durable, what recovery keeps, cuts and full disks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.base.errors import StorageError
from shalott.broker.raft.api import Entry, HardState
from shalott.broker.rocket.dledger.entry import HEADER_BYTES, NO_OP, decode_header
from shalott.broker.rocket.dledger.ledger import Ledger
from shalott.broker.rocket.dledger.ledger_files import CHECKPOINT, DATA, INDEX
from shalott.broker.rocket.dledger.ledger_places import LedgerPlaces
from shalott.broker.rocket.dledger.log import DLedgerLog
from shalott.broker.rocket.remoting.raft_frames import PlacedEntry
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from tests.world.clock.turns import passes, until
from tests.world.disk.disk_runs import simulate
from tests.world.env import Events, LoopClock

pytestmark = pytest.mark.unit

SEGMENT_BYTES = 1000


def env_of(disk: SimDisk, *bugs: str) -> Env:
    return Env("n1", 1, LoopClock(), seeded_rng(1, 1), disk, Events("n1", []), bugs=bugs)


async def opened(disk: SimDisk, *bugs: str, flush_interval_ms: int = 0) -> Ledger:
    return await Ledger.open(env_of(disk, *bugs), SEGMENT_BYTES, flush_interval_ms)


def entry(index: int, term: int = 1, size: int | None = None) -> Entry:
    body = b"%d/%d;" % (index, term)
    return Entry(index, term, body * (size if size is not None else index % 40))


async def leave(ledger: Ledger) -> None:
    """Let a former life's tasks rest: a kill leaves nothing that runs."""
    for task in ledger._tasks:
        task.cancel()
    await asyncio.gather(*ledger._tasks, return_exceptions=True)


async def content(ledger: Ledger) -> list[Entry]:
    found: list[Entry] = []
    while len(found) < ledger.last_index:
        found += await ledger.load(len(found) + 1, 500)
    return found


def test_what_is_flushed_survives_a_power_loss() -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        entries = [entry(index, 1 + index // 30) for index in range(1, 101)]
        ledger.set_hard_state(HardState(4, "n2"))
        ledger.append(entries)
        await ledger.flush()
        await leave(ledger)
        disk.power_loss()
        ledger = await opened(disk)
        assert ledger.hard_state == HardState(4, "n2")
        assert await content(ledger) == entries
        assert [ledger.term_at(index) for index in (0, 29, 30, 100)] == [0, 1, 2, 4]
        await ledger.close()

    simulate(body)


@pytest.mark.parametrize("seed", range(12))
def test_a_torn_tail_is_cut_to_whole_entries(seed: int) -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        disk = SimDisk(loop, seed, "n1", DiskKnobs(power_loss="torn"))
        ledger = await opened(disk)
        entries = [entry(index) for index in range(1, 201)]
        ledger.append(entries[:60])
        await ledger.flush()
        ledger.append(entries[60:])
        await passes(0.0001 * seed)
        await leave(ledger)
        disk.power_loss()
        ledger = await opened(disk)
        kept = ledger.last_index
        assert kept >= 60
        assert await content(ledger) == entries[:kept]
        ledger.append([entry(kept + 1, 9)])  # and it goes on from there
        await ledger.flush()
        assert (await content(ledger))[-1].term == 9
        await ledger.close()

    simulate(body)


def test_the_index_is_built_again_from_the_data() -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        entries = [entry(index) for index in range(1, 51)]
        ledger.append(entries)
        await ledger.flush()
        await leave(ledger)
        disk.kill()
        for name in await disk.listdir(INDEX):
            await disk.remove(f"{INDEX}/{name}")
        ledger = await opened(disk)
        assert await content(ledger) == entries
        await ledger.close()
        units = disk.read_all(f"{INDEX}/{0:020d}")
        assert len(units) == 50 * 32
        ledger = await opened(disk)
        assert await content(ledger) == entries
        await ledger.close()

    simulate(body)


def test_behind_the_checkpoint_only_is_the_data_read() -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        entries = [entry(index) for index in range(1, 51)]
        ledger.append(entries)
        await ledger.flush()
        await until(lambda: not ledger.writer.is_checkpoint_due)
        ledger.append([entry(51)])
        await ledger.flush()
        await leave(ledger)
        disk.kill()
        assert disk.read_all(CHECKPOINT)[:8] == (50).to_bytes(8, "big")
        # Damage before the checkpoint is for its reader to see, damage behind it is a torn tail.
        data = await disk.open(f"{DATA}/{0:020d}", create=False)
        await data.pwrite(b"\xff", 100)
        await data.sync()
        ledger = await opened(disk)
        assert ledger.last_index == 51
        await ledger.close()

    simulate(body)


def test_a_ledger_that_lost_what_was_flushed_does_not_open() -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        ledger.append([entry(index) for index in range(1, 101)])
        await ledger.close()
        await disk.remove(last(disk))
        with pytest.raises(StorageError, match="were flushed"):
            await opened(disk)

    simulate(body)


def last(disk: SimDisk) -> str:
    return max(path for path in disk.files() if path.startswith(DATA))


@pytest.mark.parametrize("seed", range(10))
def test_a_cut_is_durable_with_what_follows_it(seed: int) -> None:
    """KB-RKT-23's kind: what was cut off must not come back behind what followed it."""

    async def body(loop: Any, disk: SimDisk) -> None:
        disk = SimDisk(loop, seed, "n1")
        ledger = await opened(disk)
        old = [entry(index, 1) for index in range(1, 101)]
        ledger.append(old)
        await ledger.flush()
        if seed % 2:
            # The checkpoint vouches for what is cut.
            await until(lambda: not ledger.writer.is_checkpoint_due)
        ledger.truncate(41)
        new = [entry(index, 2) for index in range(41, 61)]
        ledger.append(new)
        assert (ledger.last_index, ledger.term_at(41), ledger.term_at(40)) == (60, 2, 1)
        assert ledger.entries(41, 1 << 20) == new
        flushing = asyncio.ensure_future(ledger.flush())
        if seed % 3:
            await asyncio.wait([flushing], timeout=0.002 * seed)
        else:
            await flushing
        done = flushing.done()
        flushing.cancel()
        await leave(ledger)
        disk.power_loss()
        ledger = await opened(disk)
        found = await content(ledger)
        if done:
            assert found == old[:40] + new
        else:
            assert found[:40] == old[:40]
            rest = found[40:]
            assert rest in (old[40 : 40 + len(rest)], new[: len(rest)])
        await ledger.close()

    simulate(body)


def test_a_full_disk_is_tried_again() -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        ledger.append([entry(1)])
        await ledger.flush()
        disk.set_faults(DiskFaults(full=True))
        entries = [entry(index, size=100) for index in range(2, 40)]
        for each in entries:
            ledger.append([each])
        flushing = asyncio.ensure_future(ledger.flush())
        await asyncio.wait([flushing], timeout=2)
        for index in range(40, 50):
            ledger.append([entry(index)])
        disk.set_faults(None)
        await passes(2)
        await asyncio.gather(flushing, return_exceptions=True)
        await ledger.flush()
        assert ledger.last_index == 49
        await leave(ledger)
        disk.power_loss()
        ledger = await opened(disk)
        assert ledger.last_index == 49
        await ledger.close()

    simulate(body)


@pytest.mark.parametrize("interval_ms", [0, 10])
def test_with_a_flush_interval_a_power_loss_takes_what_was_acknowledged(interval_ms: int) -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        disk = SimDisk(loop, 3, "n1", DiskKnobs(power_loss="torn"))
        lost = 0
        for _ in range(20):
            ledger = await opened(disk, flush_interval_ms=interval_ms)
            first = ledger.last_index
            ledger.append([entry(first + number, size=20) for number in range(1, 9)])
            await ledger.flush()
            await leave(ledger)
            disk.power_loss()
            ledger = await opened(disk, flush_interval_ms=interval_ms)
            lost += first + 8 - ledger.last_index
            await ledger.close()
        assert bool(lost) is bool(interval_ms)

    simulate(body)


@pytest.mark.parametrize("bug", ["", "KB-DL-21"])
def test_kb_dl_21_a_vote_is_forgotten_in_a_power_loss(bug: str) -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        forgotten = 0
        for term in range(1, 21):
            ledger = await opened(disk, bug)
            ledger.set_hard_state(HardState(term, "n2"))
            await ledger.flush()  # the vote is answered now
            await leave(ledger)
            disk.power_loss()
            ledger = await opened(disk, bug)
            forgotten += ledger.hard_state != HardState(term, "n2")
            await leave(ledger)
            disk.kill()
        assert bool(forgotten) is bool(bug)

    simulate(body)


def test_a_damaged_entry_is_neither_sent_nor_dispatched() -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        ledger.append([entry(index, size=20) for index in range(1, 30)])
        await ledger.flush()
        await ledger.close()
        data = await disk.open(f"{DATA}/{0:020d}", create=False)
        await data.pwrite(b"\xff", HEADER_BYTES + 3)
        await data.close()
        ledger = await opened(disk)  # the checkpoint vouches for it
        with pytest.raises(StorageError, match="damaged at 0"):
            await ledger.load(1, 100)
        data = await disk.open(f"{DATA}/{0:020d}", create=False)
        await data.pwrite(b"\xff", 10)
        await data.close()
        with pytest.raises(StorageError, match="damaged at 0"):
            await DLedgerLog(ledger).scan(0, ledger.directory.end, 1 << 16)
        await ledger.close()

    simulate(body)


@pytest.mark.parametrize("max_bytes", [1, 60, 300, 1 << 20])
def test_a_scan_finds_every_message_whatever_it_may_read_at_once(max_bytes: int) -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        entries = [entry(index, size=index * 7 % 90) for index in range(1, 60)]
        entries[10] = Entry(11, 1, b"")  # a no-op
        ledger.append(entries)
        await ledger.flush()
        message_log = DLedgerLog(ledger)
        position, end = 0, ledger.directory.end
        found: list[bytes] = []
        while True:
            scanned = await message_log.scan(position, end, max_bytes)
            if scanned.next == position:
                break
            for start, size in scanned.spans:
                found.append(scanned.data[start : start + size])
                assert await message_log.read(scanned.base + start, size) == found[-1]
            position = scanned.next
        assert position == end
        assert found == [each.data for each in entries if each.data]
        await ledger.close()

    simulate(body)


def test_a_cut_where_a_file_begins_is_found_again() -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        ledger.append([entry(index, size=20) for index in range(1, 60)])
        await ledger.flush()
        # The checkpoint vouches for what is cut.
        await until(lambda: not ledger.writer.is_checkpoint_due)
        place_of = ledger.directory.position_of
        first_of_file = next(at for at in range(20, 60) if place_of(at) % SEGMENT_BYTES == 0)
        ledger.truncate(first_of_file)
        await ledger.flush()
        for _ in range(2):
            await leave(ledger)
            disk.power_loss()
            ledger = await opened(disk)
            assert ledger.last_index == first_of_file - 1
        ledger.append([entry(first_of_file, 2, size=20)])
        await ledger.flush()
        assert ledger.directory.position_of(first_of_file) % SEGMENT_BYTES == 0
        assert (await content(ledger))[-1] == entry(first_of_file, 2, size=20)
        await ledger.close()

    simulate(body)


def test_what_is_cut_off_is_not_dispatched_though_the_files_still_hold_it() -> None:
    """A follower's core may commit new entries while the cut before them is in line."""

    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        message_log = DLedgerLog(ledger)
        ledger.append([entry(index, 1, size=20) for index in range(1, 11)])
        await ledger.flush()
        kept = ledger.directory.end_of(4)
        ledger.truncate(5)
        new = [entry(index, 2, size=20) for index in range(5, 11)]
        ledger.append(new)
        message_log.set_committed(10)
        assert message_log.committed_offset == ledger.directory.end > kept
        assert message_log.written_offset == message_log.flushed_offset == kept
        assert list(await ledger.load(5, 1 << 16)) == []
        scanned = await message_log.scan(0, message_log.written_offset, 1 << 16)
        assert scanned.next <= kept
        await ledger.flush()
        assert message_log.written_offset == ledger.directory.end
        assert list(await ledger.load(5, 1 << 16)) == new
        await ledger.close()

    simulate(body)


def told(entry: Entry, position: int, crc: int = 0) -> PlacedEntry:
    return PlacedEntry(
        body=entry.data, index=entry.index - 1, term=entry.term, pos=position, chain_crc=crc
    )


def test_entries_of_a_leader_without_crcs_lie_as_they_lie_there() -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        places = LedgerPlaces(ledger)
        own, foreign = entry(1, 1), [entry(2, 2), entry(3, 2)]
        ledger.append([own])
        ends = [ledger.directory.end, ledger.directory.end + HEADER_BYTES + len(foreign[0].data)]
        assert places.would_place([told(*each) for each in zip(foreign, ends, strict=True)])
        ledger.append(foreign)
        await ledger.flush()
        data = await ledger.data.read(0, ledger.directory.end)
        headers = [decode_header(data, at) for at in (0, *ends)]
        crcs = [(each.chain_crc, each.body_crc) for each in headers if each is not None]
        assert crcs[0][0] != 0 and crcs[0][1] != 0 and crcs[1:] == [(0, 0)] * 2
        for _ in range(2):  # also when it says so itself, in a later life
            mine, theirs = places.placed(own), places.placed(foreign[1])
            assert (mine.chain_crc % (1 << 32), mine.body_crc % (1 << 32)) == crcs[0]
            assert -(1 << 31) <= mine.chain_crc < 1 << 31
            assert (theirs.pos, theirs.chain_crc, theirs.body_crc) == (ends[1], 0, 0)
            await ledger.close()
            ledger = await opened(disk)
            places = LedgerPlaces(ledger)
            ledger.append([entry(ledger.last_index + 1, 2)])
            await ledger.flush()
        assert places.placed(entry(4, 2)).chain_crc == 0
        await ledger.close()

    simulate(body)


def test_an_entry_that_would_lie_elsewhere_is_not_placed() -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        ledger.append([entry(1)])
        places, end = LedgerPlaces(ledger), ledger.directory.end
        assert places.would_place([told(entry(2), end, crc=1)])
        assert not places.would_place([told(entry(2), end + 8, crc=1)])
        assert not places.would_place([told(entry(1), 8, crc=1)])
        assert places.would_place([told(entry(9), 8, crc=1)])  # a gap, which the core refuses
        behind = told(entry(2, size=250), SEGMENT_BYTES, crc=1)
        assert places.would_place([behind])  # it does not fit in the first file
        await ledger.close()

    simulate(body)


def test_a_leaders_no_op_is_no_message_to_anybody() -> None:
    async def body(loop: Any, disk: SimDisk) -> None:
        ledger = await opened(disk)
        ledger.append([Entry(1, 1, NO_OP), Entry(2, 1, b""), entry(3), Entry(4, 1, NO_OP)])
        message_log = DLedgerLog(ledger)
        message_log.set_committed(4)
        await ledger.flush()
        scanned = await message_log.scan(0, message_log.written_offset, 1 << 20)
        found = [scanned.data[start : start + size] for start, size in scanned.spans]
        assert found == [entry(3).data]
        await ledger.close()

    simulate(body)
