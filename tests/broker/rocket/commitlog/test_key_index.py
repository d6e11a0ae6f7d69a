"""The index of keys: what a query finds, and what is left of it after faults of every kind."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from shalott.broker.base.errors import StorageError
from shalott.broker.base.files import read_file
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.index_file import (
    ENTRY,
    HEADER,
    GrowingIndex,
    decode_header,
    find_offsets,
)
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import StoreConfig
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from shalott.cluster.sim.disk.page_cache import PowerLoss
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.core.rng import Stream
from tests.world.clock.turns import passes
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.rocket.stores import (
    body_of,
    env_of,
    in_sim,
    message,
    opened,
    this_loop,
)

pytestmark = pytest.mark.unit

TINY = StoreConfig(
    segment_bytes=1024,
    queue_segment_units=16,
    checkpoint_interval_ms=20,
    index_slots=3,
    index_entries=6,
)
EVER = 1 << 62
KEYS = [f"k{number}" for number in range(5)]


def keyed(body: str, keys: str = "", unique: str = "", topic: str = "t") -> Message:
    properties = "TAGS\x01k1\x02XKEYS\x01k2\x02"  # no keys
    properties += f"KEYS\x01{keys}\x02" if keys else ""
    properties += f"UNIQ_KEY\x01{unique}\x02" if unique else ""
    return message(body, 0, topic, properties)


async def found(
    store: MessageStore,
    key: str,
    topic: str = "t",
    *,
    begin_ms: int = 0,
    end_ms: int = EVER,
    count: int = 1000,
) -> list[str]:
    await store.reader.indexed(store.dispatched_offset)
    answer = await store.reader.find_by_key(
        topic, key, begin_ms=begin_ms, end_ms=end_ms, max_messages=count
    )
    return [body_of(data) for data in answer.messages]


async def put(store: MessageStore, *messages: Message) -> None:
    for one in messages:
        end = store.append([one]).end
        await store.log.written(end)
    await store.dispatched(end)


def index_files(disk: MemoryDisk | SimDisk) -> Coroutine[Any, Any, list[str]]:
    return disk.listdir("keyindex")


def test_messages_are_found_by_each_key_the_newest_first() -> None:
    async def body() -> None:
        store = await opened(this_loop(), MemoryDisk(), config=TINY)
        await put(store, keyed("a", "k1 k2", "u1"), keyed("b", "k2 k2  k2", "u2"), keyed("c"))
        await put(store, keyed("d", "k2", "k2"), keyed("e", "k2", "u1", topic="other"))
        assert await found(store, "k1") == ["a"]
        assert await found(store, "k2") == ["d", "b", "a"]
        assert await found(store, "k2", count=2) == ["d", "b"]
        assert await found(store, "k2", count=0) == []
        assert await found(store, "u1") == ["a"]
        assert await found(store, "k2", "other") == ["e"]
        for absent in ("", "k", "k1 k2", "k3", "\udc00"):
            assert await found(store, absent) == []
        assert await found(store, "k2", "nowhere") == []
        await store.close()

    in_sim(body())


def test_only_messages_of_the_time_are_found() -> None:
    async def body() -> None:
        store = await opened(this_loop(), MemoryDisk(), config=TINY)
        times: list[int] = []
        for number in range(12):
            times.append(store.append([keyed(str(number), "k")]).messages[0].store_ms)
            await passes(0.7)
        await store.dispatched(store.log.max_offset)
        for first in range(12):
            for last in range(first, 12):
                seen = await found(store, "k", begin_ms=times[first], end_ms=times[last])
                assert seen == [str(number) for number in range(last, first - 1, -1)]
        assert await found(store, "k", begin_ms=times[3] + 1, end_ms=times[4] - 1) == []
        await store.close()

    in_sim(body())


def test_the_answer_tells_how_far_the_index_has_got() -> None:
    async def body() -> None:
        store = await opened(this_loop(), MemoryDisk(), config=TINY)
        nothing = await store.reader.find_by_key("t", "k", begin_ms=0, end_ms=EVER, max_messages=1)
        assert (nothing.last_ms, nothing.last_offset) == (0, 0)
        for number in range(20):
            sent = store.append([keyed(str(number), "k")]).messages[0]
            await store.dispatched(sent.end)
            await store.reader.indexed(sent.end)
            answer = await store.reader.find_by_key(
                "t", "k", begin_ms=0, end_ms=EVER, max_messages=1
            )
            assert (answer.last_ms, answer.last_offset) == (sent.store_ms, sent.offset)
        await store.close()

    in_sim(body())


def test_a_restart_goes_on_where_it_was_and_reads_nothing_again() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store = await opened(this_loop(), disk, config=TINY)
        await put(store, *(keyed(str(number), "k") for number in range(20)))
        assert len(await found(store, "k")) == 20
        await store.close()
        names = await index_files(disk)
        assert len(names) == 4  # 6 + 6 + 6 + 2
        store = await opened(this_loop(), disk, config=TINY)
        assert store._index.position == store.log.max_offset
        await put(store, keyed("20", "k"))
        assert await found(store, "k") == [str(number) for number in range(20, -1, -1)]
        await store.close()

    in_sim(body())


async def _rubbish(disk: MemoryDisk, name: str) -> None:
    file = await disk.open(f"keyindex/{name}", create=False)
    await file.pwrite(b"\xff" * 80, 0)


async def _short(disk: MemoryDisk, name: str) -> None:
    file = await disk.open(f"keyindex/{name}", create=False)
    await file.truncate(await file.size() - 1)


async def _gone(disk: MemoryDisk, name: str) -> None:
    await disk.remove(f"keyindex/{name}")


async def _elsewhere(disk: MemoryDisk, name: str) -> None:
    await disk.rename(f"keyindex/{name}", f"keyindex/{int(name) + 1:020d}")


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("harm", [_rubbish, _short, _gone, _elsewhere])
def test_what_a_damaged_file_knew_is_read_from_the_log_again(harm: Any, number: int) -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store = await opened(this_loop(), disk, config=TINY)
        await put(store, *(keyed(str(each), "k") for each in range(20)))
        await store.close()
        names = await index_files(disk)
        await harm(disk, names[number])
        store = await opened(this_loop(), disk, config=TINY)
        assert await found(store, "k") == [str(each) for each in range(19, -1, -1)]
        await store.close()

    in_sim(body())


def test_damaged_entries_cost_answers_and_never_make_wrong_ones() -> None:
    async def body() -> None:
        index = GrowingIndex(0, 3)
        for number in range(6):
            index.add(number % 3, number * 100, 1000)
        index.end = 700
        sound = index.encode()
        header = decode_header(sound)
        assert header is not None and header.file_bytes == len(sound)
        draws = Stream(1, "damage")
        for _ in range(300):
            data = bytearray(sound)
            data[HEADER.size + draws.below(len(data) - HEADER.size)] = draws.below(256)

            async def read(size: int, offset: int, data: bytes = bytes(data)) -> bytes:
                return data[offset : offset + size]

            for key_hash in range(3):
                assert len(await find_offsets(read, header, key_hash, 0, EVER)) <= 6

    in_sim(body())


def test_a_loop_among_the_entries_ends() -> None:
    async def body() -> None:
        index = GrowingIndex(0, 1)
        index.add(7, 100, 1000)
        index.add(7, 200, 1000)
        index.end = 300
        data = bytearray(index.encode())
        ENTRY.pack_into(data, len(data) - 2 * ENTRY.size, 7, 100, 0, 2)  # the first leads back

        async def read(size: int, offset: int) -> bytes:
            return bytes(data[offset : offset + size])

        assert await find_offsets(read, index.header(), 7, 0, EVER) == [200, 100]

    in_sim(body())


def test_a_truncation_takes_keys_away_and_what_follows_is_found() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store = await opened(this_loop(), disk, config=TINY)
        ends = []
        for number in range(20):
            ends.append(store.append([keyed(f"{number:02}", "k")]).end)
        await store.dispatched(ends[-1])
        await store.reader.indexed(ends[-1])
        for kept in (20, 17, 9, 6, 1, 0):
            await store.truncate(ends[kept - 1] if kept else 0)
            assert await found(store, "k") == [f"{each:02}" for each in range(kept - 1, -1, -1)]
            await put(store, keyed("of", "z"))
            assert await found(store, "k") == [f"{each:02}" for each in range(kept - 1, -1, -1)]
            assert await found(store, "z") == ["of"]
            await store.truncate(ends[kept - 1] if kept else 0)
            assert await found(store, "z") == []
        await store.close()

    in_sim(body())


def test_a_full_disk_holds_the_index_up_and_nothing_else() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store = await opened(this_loop(), disk, config=TINY)

        def full(operation: str, path: str) -> None:
            if path.startswith("keyindex/"):
                raise OSError(errno.ENOSPC, "full")

        disk.fault = full
        await put(store, *(keyed(str(number), "k") for number in range(60)))
        assert await index_files(disk) == []
        assert store._index.position < store.dispatched_offset
        disk.fault = lambda operation, path: None
        assert await found(store, "k") == [str(number) for number in range(59, -1, -1)]
        await store.close()

    in_sim(body())


def test_a_broken_disk_ends_the_store() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store = await opened(this_loop(), disk, config=TINY)
        told: list[StorageError] = []
        store.failure_listener = told.append

        def broken(operation: str, path: str) -> None:
            if path.startswith("keyindex"):
                raise OSError(errno.EIO, "broken")

        disk.fault = broken
        await put(store, *(keyed(str(number), "k") for number in range(7)))
        with pytest.raises(StorageError):
            await store.reader.indexed(1 << 30)
        assert len(told) == 1
        await store.abandon()

    in_sim(body())


def test_an_index_that_was_lost_is_built_again() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store = await opened(this_loop(), disk, config=TINY)
        await put(store, *(keyed(str(number), "k") for number in range(40)))
        await store.close()
        for name in await index_files(disk):
            await disk.remove(f"keyindex/{name}")
        store = await opened(this_loop(), disk, config=TINY)
        assert await found(store, "k") == [str(number) for number in range(39, -1, -1)]
        assert await read_file(disk, f"keyindex/{0:020d}") is not None
        await store.close()

    in_sim(body())


async def wait_for_files(disk: SimDisk, count: int) -> None:
    for _ in range(10_000):
        if len([name for name in await index_files(disk) if name.isdigit()]) >= count:
            return
        await passes(0.001)
    raise AssertionError("the index writes no files")


def test_files_that_know_more_than_a_power_loss_has_left_are_removed() -> None:
    async def body() -> None:
        disk = SimDisk(this_loop(), 1, "n1", DiskKnobs(power_loss="drop"))
        store = await opened(this_loop(), disk, config=TINY)
        await put(store, *(keyed(str(number), "k") for number in range(8)))
        await store.log.flushed(store.log.max_offset)
        await put(store, *(keyed(str(number), "k") for number in range(8, 20)))
        await wait_for_files(disk, 3)
        disk.power_loss()
        assert len(await index_files(disk)) == 3  # they are durable, and what they know is gone
        again = await opened(this_loop(), disk, config=TINY)
        kept = again.reader.queue_range("t", 0)[1]
        assert 8 <= kept < 18
        await put(again, *(keyed("new", "z") for _ in range(12)))
        assert await found(again, "z") == ["new"] * 12
        assert await found(again, "k") == [str(number) for number in range(kept - 1, -1, -1)]
        await again.close()
        await store.abandon()

    in_sim(body())


def test_nothing_beyond_the_confirmed_end_is_found() -> None:
    """A start may dispatch less than the index knows."""

    async def body() -> None:
        disk = SimDisk(this_loop(), 1, "n1")
        config = msgspec.structs.replace(TINY, checkpoint_interval_ms=1_000_000)
        store = await opened(this_loop(), disk, config=config, confirm_from_checkpoint=True)
        end = 0
        for number in range(12):
            end = store.append([keyed(str(number), "k")]).end
        assert await found(store, "k") == []
        store.set_confirm_offset(end)
        await store.dispatched(end)
        await wait_for_files(disk, 2)
        disk.kill()
        again = await opened(this_loop(), disk, config=config, confirm_from_checkpoint=True)
        assert again.dispatched_offset == 0
        assert await found(again, "k") == []
        again.set_confirm_offset(end)
        await again.dispatched(end)
        assert len(await found(again, "k")) == 12
        await again.close()
        await store.abandon()

    in_sim(body())


# -- lives that end in kills and power losses ------------------------------------------------------


async def life(store: MessageStore, seed: int, number: int) -> None:
    """Sends and cuts until the end; looks at the index now and then."""
    draws = Stream(seed, "index life", number)
    await check(store)
    count = 0
    while True:
        step = draws.below(12)
        if step < 7:
            for _ in range(1 + draws.below(4)):
                count += 1
                keys = " ".join(draws.choice(KEYS) for _ in range(draws.below(3)))
                store.append([keyed(f"{number}/{count}", keys, draws.choice(KEYS))])
        elif step < 9:
            await store.log.flushed(store.log.max_offset)
        elif step == 9 and draws.below(4) == 0:
            await store.dispatched(store.log.written_offset)
            ends = await message_ends(store)
            await store.truncate(draws.choice([0, *ends[-12:]]))
            await check(store)
        elif step == 10:
            await check(store)
        else:
            await passes(draws.below(20) / 1000)


async def message_ends(store: MessageStore) -> list[int]:
    scanned_to, ends = store.log.min_offset, []
    while scanned_to < store.log.written_offset:
        scanned = await store.log.scan(scanned_to, store.log.written_offset, 1 << 20)
        ends += [scanned.base + start + size for start, size in scanned.spans]
        if scanned.next == scanned_to:
            break
        scanned_to = scanned.next
    return ends


async def check(store: MessageStore) -> None:
    """Every key finds what a reader of the whole log finds."""
    await store.log.written(store.log.max_offset)
    await store.dispatched(store.log.written_offset)
    first, end = store.reader.queue_range("t", 0)
    wanted: dict[str, list[str]] = {key: [] for key in KEYS}
    while first < end:
        got = await store.reader.get("t", 0, first, max_messages=32, max_bytes=1 << 20)
        for data in got.messages:
            properties = data.partition(b"XKEYS\x01k2\x02")[2].decode()
            names = properties.replace("\x01", " ").replace("\x02", " ").split(" ")
            for key in dict.fromkeys(names):
                if key in wanted:
                    wanted[key].append(body_of(data))
        first = got.next_offset
    for key in KEYS:
        assert await found(store, key) == wanted[key][::-1], key


@pytest.mark.explore
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("loss", ["torn", "drop"])
def test_the_index_agrees_with_the_log_after_every_crash(power: bool, loss: PowerLoss) -> None:
    loop = SimLoop()
    files = 0

    async def one(seed: int) -> None:
        nonlocal files
        disk = SimDisk(loop, seed, f"n{seed}", DiskKnobs(sync_us=(200, 6000), power_loss=loss))
        disk.set_faults(DiskFaults(short=seed % 2 == 0))
        draws = Stream(seed, "index crashes")
        for number in range(5):
            process = SimProcess("n1", number)
            loop.add_process(process)

            async def live(number: int = number) -> None:
                store = await MessageStore.open(env_of(loop, disk), TINY)
                await life(store, seed, number)

            task = loop.create_task(live(), context=process.context)
            await asyncio.wait([task], timeout=draws.between(0.005, 0.25))
            process.freeze()
            if task.done():
                await task
            if power:
                disk.power_loss()
            else:
                disk.kill()
        files += len(await index_files(disk))

    async def main() -> None:
        for seed in range(6):
            await one(seed)

    loop.run(main(), SimProcess("harness"))
    assert files > 6, "the index was hardly used"


def test_the_layout_of_a_file() -> None:
    """The layout, as another program would read it."""
    index = GrowingIndex(500, 4)
    index.add(6, 1000, 5_000)
    index.add(2, 2000, 7_500)
    index.end = 3000
    data = index.encode()
    assert data[:40] == b"".join(
        number.to_bytes(size, "big")
        for number, size in [(5000, 8), (7500, 8), (1000, 8), (2000, 8), (4, 4), (2, 4)]
    )
    assert [int.from_bytes(data[56 + 4 * slot : 60 + 4 * slot], "big") for slot in range(4)] == [
        0,
        0,
        2,
        0,
    ]
    assert data[72:] == ENTRY.pack(6, 1000, 0, 0) + ENTRY.pack(2, 2000, 2, 1)
