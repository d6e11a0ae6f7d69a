"""Group commit, atomic replacement, crashes at every step, full and failing disks."""

from __future__ import annotations

import asyncio
import errno
import itertools
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.broker.base import journal as journal_module
from shalott.broker.base.disk import OsDisk
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.journal import Journal
from tests.world.clock.turns import turns
from tests.world.disk.memory_disk import MemoryDisk

pytestmark = pytest.mark.unit

PATH = "metadata/journal"


async def recovered(disk: MemoryDisk) -> list[bytes]:
    journal = await Journal.open(disk, PATH)
    records = journal.replay()
    await journal.close()
    return records


async def flushed(disk: MemoryDisk, records: list[bytes]) -> Journal:
    journal = await Journal.open(disk, PATH)
    for record in records:
        journal.append(record)
    await journal.flush()
    return journal


def fail_on(operation: str, code: int) -> Callable[[str, str], None]:
    def fault(current: str, path: str) -> None:
        if current == operation:
            raise OSError(code, "injected")

    return fault


# -- plain use -------------------------------------------------------------------------------------


def test_records_come_back_in_order(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        journal = await Journal.open(disk, PATH)
        assert journal.replay() == []
        assert [journal.append(b"a"), journal.append(b""), journal.append(b"c" * 9999)] == [1, 2, 3]
        assert (journal.mark, journal.durable_mark) == (3, 0)
        await journal.flush()
        assert journal.durable_mark == 3
        journal.append(b"d")
        await journal.close()
        again = await Journal.open(disk, PATH)
        assert again.replay() == [b"a", b"", b"c" * 9999, b"d"]
        assert again.replay() == []
        assert again.mark == 0
        await again.close()
        await disk.close()

    asyncio.run(body())


def test_what_is_appended_during_a_flush_shares_the_next_sync() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        journal = await Journal.open(disk, PATH)
        syncs: list[str] = []
        syncing = asyncio.Event()

        def count_syncs(operation: str, path: str) -> None:
            if operation == "sync":
                syncs.append(path)
                syncing.set()

        disk.fault = count_syncs
        journal.append(b"first")
        first = asyncio.create_task(journal.flush())
        await syncing.wait()
        for number in range(50):
            journal.append(b"%d" % number)
        await asyncio.gather(first, *(journal.flush() for _ in range(50)))
        assert len(syncs) == 2
        assert journal.durable_mark == 51
        await journal.close()

    asyncio.run(body())


def test_a_large_backlog_is_split_and_each_batch_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_module, "MAX_BATCH_BYTES", 1000)

    async def body() -> None:
        disk = MemoryDisk()
        syncs: list[str] = []
        records = [bytes([number]) * 300 for number in range(10)]
        journal = await Journal.open(disk, PATH)
        disk.fault = lambda operation, path: syncs.append(path) if operation == "sync" else None
        for record in records:
            journal.append(record)
        await journal.flush()
        assert len(syncs) == 3
        await journal.rewrite(iter(records))
        await journal.close()
        assert await recovered(disk) == records

    asyncio.run(body())


def test_a_closed_journal_takes_nothing() -> None:
    async def body() -> None:
        journal = await Journal.open(MemoryDisk(), PATH)
        await journal.close()
        await journal.close()
        with pytest.raises(StorageError, match="closed"):
            journal.append(b"x")
        with pytest.raises(StorageError, match="closed"):
            await journal.flush()

    asyncio.run(body())


def test_abandon_writes_nothing_more_and_refuses_those_who_wait() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        journal = await flushed(disk, [b"kept"])
        journal.append(b"never asked to be flushed")
        await journal.abandon()
        assert await recovered(disk) == [b"kept"]

        journal = await Journal.open(disk, PATH)
        journal.append(b"in flight")
        flush = asyncio.create_task(journal.flush())
        await turns(2)
        journal.append(b"behind it")
        late = asyncio.create_task(journal.flush())
        await turns()
        await journal.abandon()
        await flush
        with pytest.raises(StorageError):
            await late
        operations = disk.operations
        await turns(20)
        assert disk.operations == operations

    asyncio.run(body())


# -- rewrite ---------------------------------------------------------------------------------------


def test_rewrite_replaces_what_was_before_it_and_keeps_what_comes_after() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        journal = await flushed(disk, [b"old"] * 5)
        journal.append(b"superseded")
        rewriting = asyncio.create_task(journal.rewrite([b"state"]))
        await turns()
        mark = journal.append(b"after")
        await rewriting
        await journal.flush()
        assert journal.durable_mark == mark == 7
        await journal.close()
        assert await recovered(disk) == [b"state", b"after"]
        assert await disk.listdir("metadata") == ["journal"]

    asyncio.run(body())


def test_rewrites_in_a_row_leave_the_last() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        journal = await flushed(disk, [b"old"])
        await asyncio.gather(*(journal.rewrite([b"%d" % number]) for number in range(5)))
        await journal.close()
        assert await recovered(disk) == [b"4"]

    asyncio.run(body())


def test_a_rewrite_whose_records_raise_fails_everyone_instead_of_hanging() -> None:
    def broken() -> itertools.chain[bytes]:
        return itertools.chain([b"x"], (1 // number for number in range(1)))  # type: ignore

    async def body() -> None:
        disk = MemoryDisk()
        journal = await flushed(disk, [b"old"])
        with pytest.raises(StorageError, match="ZeroDivisionError"):
            await journal.rewrite(broken())
        with pytest.raises(StorageError):
            journal.append(b"x")
        await journal.abandon()
        assert await recovered(disk) == [b"old"]

    asyncio.run(body())


# -- crashes ---------------------------------------------------------------------------------------

Script = Callable[[Journal], Awaitable[None]]


async def append_and_rewrite(journal: Journal) -> None:
    for number in range(3):
        journal.append(b"a%d" % number * 30)
        await journal.flush()
    journal.append(b"b" * 200)
    rewriting = asyncio.create_task(journal.rewrite([b"state" * 30, b"state2"]))
    await turns()
    journal.append(b"c" * 100)
    await rewriting
    await journal.flush()


OUTCOMES = [
    [b"a0" * 30, b"a1" * 30, b"a2" * 30, b"b" * 200],
    [b"state" * 30, b"state2", b"c" * 100],
]


@pytest.mark.parametrize("crash", ["kill", "power loss"])
def test_a_crash_at_any_operation_leaves_what_was_durable(crash: str) -> None:
    """Each operation in turn is the last; then the disk as it was must hold a prefix of the old
    file or of the new one, with everything in it that a flush had promised."""

    async def images(seed: int) -> list[tuple[int, bool, MemoryDisk]]:
        disk, rng = MemoryDisk(), random.Random(seed)
        journal = await Journal.open(disk, PATH)
        taken: list[tuple[int, bool, MemoryDisk]] = []
        renamed = False

        def before(operation: str, path: str) -> None:
            image = (
                disk.after_kill()
                if crash == "kill"
                else disk.after_power_loss(lambda: rng.random() < 0.5)
            )
            taken.append((journal.durable_mark, renamed, image))

        disk.fault = before
        await append_and_rewrite(journal)
        renamed = True
        before("end", PATH)
        await journal.close()
        return taken

    async def body() -> None:
        for seed in range(1 if crash == "kill" else 30):
            for durable, done, image in await images(seed):
                records = await recovered(image)
                before, after = OUTCOMES
                if records[:1] == after[:1]:
                    assert records[:2] == after[:2], "a replacement is whole or absent"
                    assert records == after[: len(records)]
                else:
                    assert records == before[: len(records)]
                    assert len(records) >= min(durable, 3)
                if done:
                    assert records == after
                assert "journal.new" not in await image.listdir("metadata")

    asyncio.run(body())


@pytest.mark.explore
@settings(max_examples=30)
@given(st.data())
def test_recovery_after_truncation_at_any_byte_yields_a_prefix(data: st.DataObject) -> None:
    records = data.draw(st.lists(st.binary(max_size=40), min_size=1, max_size=8))
    flush_after = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))

    async def body() -> None:
        disk = MemoryDisk()
        journal = await Journal.open(disk, PATH)
        for record, flush in zip(records, flush_after, strict=True):
            journal.append(record)
            if flush:
                await journal.flush()
        await journal.close()
        content = bytes(disk.names[PATH].cached)
        lengths = []
        for size in range(len(content) + 1):
            cut = MemoryDisk()
            file = await cut.open(PATH, create=True)
            await file.pwrite(content[:size], 0)
            journal = await Journal.open(cut, PATH)
            found = journal.replay()
            await journal.close()
            assert found == records[: len(found)]
            assert len(cut.names[PATH].cached) == journal.size, "the torn tail is still there"
            lengths.append(len(found))
            # The tail is gone for good: appending goes on behind the prefix.
            again = await Journal.open(cut, PATH)
            again.append(b"next")
            await again.close()
            assert await recovered(cut) == [*found, b"next"]
        assert lengths == sorted(lengths)
        assert lengths[-1] == len(records)

    asyncio.run(body())


def test_corruption_in_the_middle_is_an_error_and_the_file_is_left_alone() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        journal = await flushed(disk, [b"first"])
        journal.append(b"second")
        await journal.close()
        disk.names[PATH].cached[25] ^= 1
        damaged = bytes(disk.names[PATH].cached)
        with pytest.raises(StorageError, match="metadata/journal: corrupted at byte 0"):
            await Journal.open(disk, PATH)
        assert disk.names[PATH].cached == damaged

    asyncio.run(body())


# -- faults ----------------------------------------------------------------------------------------


def test_short_writes_are_completed() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        disk.write_limit = 7
        records = [b"x" * 50, b"y" * 3]
        journal = await flushed(disk, records)
        await journal.rewrite(records * 2)
        await journal.close()
        assert await recovered(disk) == records * 2

    asyncio.run(body())


@pytest.mark.parametrize("room", [0, 1, 40, 119])
def test_a_full_disk_leaves_the_file_whole_and_a_later_flush_succeeds(room: int) -> None:
    async def body() -> None:
        disk = MemoryDisk()
        journal = await flushed(disk, [b"before"])
        whole = bytes(disk.names[PATH].cached)
        disk.room = room
        journal.append(b"x" * 100)
        with pytest.raises(DiskFull):
            await journal.flush()
        assert disk.names[PATH].cached == whole
        assert disk.room == room
        assert journal.durable_mark == 1
        journal.append(b"y")
        with pytest.raises(DiskFull):
            await journal.flush()
        disk.room = None
        await journal.flush()
        assert journal.durable_mark == 3
        await journal.close()
        assert await recovered(disk) == [b"before", b"x" * 100, b"y"]

    asyncio.run(body())


def test_a_rewrite_without_room_keeps_the_old_file_in_force() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        journal = await flushed(disk, [b"before"])
        disk.room = 60
        with pytest.raises(DiskFull):
            await journal.rewrite([b"x" * 100])
        disk.room = None
        journal.append(b"after")
        await journal.close()
        assert await recovered(disk) == [b"before", b"after"]
        assert await disk.listdir("metadata") == ["journal"]

    asyncio.run(body())


def test_a_failed_sync_is_final() -> None:
    """The kernel may have dropped the pages: a later sync that succeeds would prove nothing."""

    async def body() -> None:
        disk = MemoryDisk()
        journal = await flushed(disk, [b"before"])
        disk.fault = fail_on("sync", errno.EIO)
        journal.append(b"x")
        waiting = [asyncio.create_task(journal.flush()) for _ in range(3)]
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, StorageError)
            assert not isinstance(result, DiskFull)
        disk.fault = lambda operation, path: None
        with pytest.raises(StorageError, match="injected"):
            journal.append(b"y")
        with pytest.raises(StorageError, match="injected"):
            await journal.flush()
        assert journal.durable_mark == 1
        await journal.close()

    asyncio.run(body())


@pytest.mark.parametrize("operation", ["open", "pwrite", "sync", "rename", "sync_dir"])
def test_a_rewrite_on_a_failing_disk_is_final_and_loses_nothing(operation: str) -> None:
    async def body() -> None:
        disk = MemoryDisk()
        journal = await flushed(disk, [b"before"])
        disk.fault = fail_on(operation, errno.EIO)
        with pytest.raises(StorageError):
            await journal.rewrite([b"state"])
        with pytest.raises(StorageError):
            await journal.flush()
        await journal.abandon()
        expected = [b"state"] if operation == "sync_dir" else [b"before"]
        assert await recovered(disk.after_kill()) == expected

    asyncio.run(body())


def test_a_sync_without_room_is_final_too() -> None:
    """Delayed allocation may report a full disk at the sync: what was written is then not known."""

    async def body() -> None:
        disk = MemoryDisk()
        journal = await flushed(disk, [b"before"])
        disk.fault = fail_on("sync", errno.ENOSPC)
        journal.append(b"x")
        with pytest.raises(StorageError) as raised:
            await journal.flush()
        assert not isinstance(raised.value, DiskFull)
        await journal.abandon()

    asyncio.run(body())


def test_a_cancelled_flush_leaves_the_journal_usable() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        journal = await Journal.open(disk, PATH)
        journal.append(b"a")
        flush = asyncio.create_task(journal.flush())
        await turns()
        flush.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flush
        journal.append(b"b")
        await journal.flush()
        assert journal.durable_mark == 2
        await journal.close()
        assert await recovered(disk) == [b"a", b"b"]

    asyncio.run(body())
