"""What a store makes of what a former life left: torn tails, lost queues, the historical bugs."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from shalott.broker.base.errors import StorageError
from shalott.broker.base.files import replace_file
from shalott.broker.rocket.commitlog.checkpoint import read_checkpoint
from shalott.broker.rocket.commitlog.codec import store_ms_at
from shalott.broker.rocket.commitlog.foreign_store import last_file_before
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.clock.turns import passes, until
from tests.world.disk.disk_runs import simulate
from tests.world.rocket.stores import bodies, message, opened, put

pytestmark = pytest.mark.unit

FIRST_FILE = f"commitlog/{0:020d}"


async def checkpointed(store: MessageStore, end: int) -> None:
    """A checkpoint knows all that is flushed, up to ``end``, and all that is dispatched."""

    def is_written() -> bool:
        known = store._checkpoints.current
        return (known.flushed, known.dispatched) == (end, store.dispatched_offset)

    await until(is_written)


async def lived(
    loop: SimLoop,
    disk: SimDisk,
    *queued: str,
    bugs: tuple[str, ...] = (),
    confirmed: int | None = None,
    cut_to: int | None = None,
) -> int:
    """A life that put messages, had them flushed and in a checkpoint, cut some, and was killed;
    returns the log's end. ``confirmed`` and ``cut_to`` count messages.
    """
    process = SimProcess("n1", 0)
    loop.add_process(process)

    async def life() -> int:
        store = await opened(loop, disk, *bugs, confirm_from_checkpoint=confirmed is not None)
        ends = [put(store, body) for body in queued]
        if confirmed is not None:
            store.set_confirm_offset(ends[confirmed - 1])
        await store.log.flushed(ends[-1])
        await checkpointed(store, ends[-1])
        if cut_to is not None:
            await store.truncate(ends[cut_to - 1])
        return ends[-1]

    end = await loop.create_task(life(), context=process.context)
    process.freeze()
    disk.kill()
    return end


async def damage(disk: SimDisk, path: str, offset: int, data: bytes) -> None:
    file = await disk.open(path, create=False)
    await file.pwrite(data, offset)
    await file.close()


def test_an_orderly_stop_leaves_no_mark() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        assert "abort" in disk.files()
        put(store, "a")
        await store.close()
        assert "abort" not in disk.files()
        await lived(loop, disk, "b")
        assert "abort" in disk.files()

    simulate(body)


def test_a_torn_message_at_the_end_is_cut_off() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        end = await lived(loop, disk, "a", "b")
        await damage(disk, FIRST_FILE, end, b"\0\0\0\x60\xda\xa3\x20\xa7torn")
        store = await opened(loop, disk)
        assert (store.log.max_offset, await bodies(store)) == (end, ["a", "b"])
        assert len(disk.read_all(FIRST_FILE)) == end
        await store.close()

    simulate(body)


@pytest.mark.parametrize("missing", [1, 50, 90, 100])
def test_a_slave_that_flushed_a_part_of_a_message_drops_it(missing: int) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        master = await opened(loop, SimDisk(loop, 2, "n2"))
        first, end = put(master, "a"), put(master, "b" * 20)
        process = SimProcess("n1", 0)
        loop.add_process(process)

        async def life() -> None:
            store = await opened(loop, disk)
            store.append_raw(0, await master.log.read(0, end - missing))
            await store.log.flushed(end - missing)
            await checkpointed(store, end - missing)

        await loop.create_task(life(), context=process.context)
        process.freeze()
        disk.power_loss()
        slave = await opened(loop, disk)
        assert (slave.log.max_offset, await bodies(slave)) == (first, ["a"])
        slave.append_raw(first, await master.log.read(first, end - first))
        await slave.dispatched(end)
        assert await bodies(slave) == ["a", "b" * 20]
        await slave.close()
        await master.close()

    simulate(body)


def test_next_queue_offsets_are_found_while_messages_come() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        await lived(loop, disk, *(f"m{number}" for number in range(50)), confirmed=1)
        store = await opened(loop, disk, confirm_from_checkpoint=True)
        finding = asyncio.create_task(store.recover_queue_offsets())  # it reads the disk
        number = 50
        while not finding.done():
            assert store.append([message("x")]).messages[0].queue_offset == number
            number += 1
            await passes(0.00001)
        assert number > 60
        assert store.append([message("x")]).messages[0].queue_offset == number
        await store.close()

    simulate(body)


def test_what_was_flushed_and_is_damaged_stops_the_store() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        store.set_confirm_offset(0)  # the checkpoint's dispatched end stays at 0
        end = put(store, "abc", "def")
        await store.log.flushed(end)
        await checkpointed(store, end)
        await store.close()
        await damage(disk, FIRST_FILE, 88, b"X")
        with pytest.raises(StorageError, match="damaged at 0"):
            await opened(loop, disk)

    simulate(body)


def test_a_log_that_lost_what_was_flushed_does_not_open() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        end = await lived(loop, disk, "a", "b")
        file = await disk.open(FIRST_FILE, create=False)
        await file.truncate(end - 1)
        await file.close()
        with pytest.raises(StorageError, match="were flushed"):
            await opened(loop, disk)

    simulate(body)


def test_a_damaged_checkpoint_does_not_open() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        await lived(loop, disk, "a")
        await damage(disk, "checkpoint", 10, b"\xff")
        with pytest.raises(StorageError, match="checkpoint"):
            await opened(loop, disk)

    simulate(body)


@pytest.mark.parametrize("clean", [True, False])
def test_an_originals_checkpoint_is_read(clean: bool) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        sent = [f"m{number}" for number in range(300)]
        await lived(loop, disk, *sent)
        ours = await read_checkpoint(disk)
        assert ours is not None and ours.store_ms > 0 and not ours.is_foreign
        await damage(disk, "checkpoint", 0, (ours.store_ms + 1).to_bytes(8, "big") * 3)
        if clean:
            await disk.remove("abort")
        found = await read_checkpoint(disk)
        assert found is not None and found.is_foreign and found.store_ms == ours.store_ms + 1
        store = await opened(loop, disk)
        assert await bodies(store) == sent
        assert store.append([message("next")]).messages[0].queue_offset == 300
        await store.close()
        again = await read_checkpoint(disk)
        assert again is not None and not again.is_foreign

    simulate(body)


def test_a_file_that_begins_before_an_originals_checkpoint_is_trusted() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        await lived(loop, disk, *[f"m{number}" for number in range(300)])
        starts = [int(path[-20:]) for path in disk.files() if path.startswith("commitlog/")]
        size = sorted(starts)[1]
        file = await disk.open(f"commitlog/{size:020d}", create=False)
        first_ms = store_ms_at(await file.pread(128, 0), 0)
        await file.close()
        assert await last_file_before(disk, size, first_ms + 2999) < size
        assert await last_file_before(disk, size, first_ms + 3000) >= size
        assert await last_file_before(disk, size, 0) == 0

    simulate(body)


def test_a_topic_that_an_original_deleted_stays_away() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        await lived(loop, disk, "a")
        for path in [path for path in disk.files() if path.startswith("consumequeue/")]:
            await disk.remove(path)
        unit = bytes(8) + (95).to_bytes(4, "big") + bytes(8)
        await replace_file(disk, "consumequeue/other/0/" + "0" * 20, unit)
        await damage(disk, "checkpoint", 0, bytes(16))
        topics = {"topicConfigTable": {"other": {"topicName": "other"}}}
        await replace_file(disk, "config/topics.json", msgspec.json.encode(topics))
        for _ in range(2):
            store = await opened(loop, disk)
            assert store.reader.queue_range("t", 0) == (0, 0)
            await store.close()
            await disk.remove("checkpoint")

    simulate(body)


@pytest.mark.parametrize("lost", ["consumequeue", "checkpoint", "consumequeue/t/0/" + "0" * 20])
def test_lost_queues_are_built_again(lost: str) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        sent = [f"m{number}" for number in range(60)]
        await lived(loop, disk, *sent)
        for path in [path for path in disk.files() if path.startswith(lost)]:
            await disk.remove(path)
        if lost.startswith("consumequeue/"):
            await disk.remove("checkpoint")
        store = await opened(loop, disk)
        assert await bodies(store) == sent
        assert store.append([message("next")]).messages[0].queue_offset == 60
        await store.close()

    simulate(body)


def test_queues_that_are_ahead_of_the_log_are_cut() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        end = await lived(loop, disk, "a", "b")
        unit = (end + 5).to_bytes(8, "big") + (95).to_bytes(4, "big") + bytes(8)
        await damage(disk, "consumequeue/t/0/" + "0" * 20, 40, unit)
        store = await opened(loop, disk)
        assert await bodies(store) == ["a", "b"]
        await store.dispatched(put(store, "c"))
        assert await bodies(store) == ["a", "b", "c"]
        await store.close()

    simulate(body)


def test_a_torn_unit_that_looks_like_an_earlier_one_is_built_again() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        await lived(loop, disk, "a", "b", "c")
        torn = (1).to_bytes(8, "big") + (93).to_bytes(4, "big") + bytes(8)
        await damage(disk, "consumequeue/t/0/" + "0" * 20, 40, torn)
        store = await opened(loop, disk)
        assert await bodies(store) == ["a", "b", "c"]
        await store.close()

    simulate(body)


async def next_queue_offset(store: MessageStore) -> int:
    return store.append([message("next")]).messages[0].queue_offset


@pytest.mark.parametrize(("bugs", "offset"), [((), 3), (("KB-RKT-15",), 1)])
def test_kb_rkt_15_queue_offsets_beyond_the_confirmed_end(
    bugs: tuple[str, ...], offset: int
) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        end = await lived(loop, disk, "a", "b", "c", confirmed=1)
        store = await opened(loop, disk, *bugs, confirm_from_checkpoint=True)
        assert store.log.max_offset == end
        assert await next_queue_offset(store) == offset
        store.set_confirm_offset(1 << 40)
        await store.dispatched(store.log.max_offset)
        seen = await bodies(store)
        assert seen == (["a", "b", "c"] if bugs else ["a", "b", "c", "next"])  # one is lost
        await store.close()

    simulate(body)


@pytest.mark.parametrize(("bugs", "seen"), [((), ["a"]), (("KB-RKT-16",), ["a", "b", "c"])])
def test_kb_rkt_16_what_recovery_shows_consumers(bugs: tuple[str, ...], seen: list[str]) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        await lived(loop, disk, "a", "b", "c", confirmed=1)
        store = await opened(loop, disk, *bugs, confirm_from_checkpoint=True)
        assert await bodies(store) == seen
        await store.close()

    simulate(body)


@pytest.mark.parametrize(("bugs", "seen"), [((), ["a"]), (("KB-RKT-23",), ["a", "b", "c"])])
def test_kb_rkt_23_what_was_cut_and_a_crash(bugs: tuple[str, ...], seen: list[str]) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        await lived(loop, disk, "a", "b", "c", bugs=bugs, cut_to=1)
        store = await opened(loop, disk, *bugs)
        assert await bodies(store) == seen
        await store.close()

    simulate(body)


@pytest.mark.parametrize(("bugs", "seen"), [((), ["a", "b", "c"]), (("KB-DL-16",), ["a"])])
def test_kb_dl_16_the_queues_tail_after_a_kill(bugs: tuple[str, ...], seen: list[str]) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        await lived(loop, disk, "a", "b", "c", confirmed=1)
        store = await opened(loop, disk, *bugs)
        store.set_confirm_offset(None)
        await passes(1)
        assert await bodies(store) == seen
        await store.close()

    simulate(body)
