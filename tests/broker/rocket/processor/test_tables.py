"""The tables' files: what a broker knows of them after rubbish, kills and power losses."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from shalott.broker.base.env import Env, SystemClock, seeded_rng
from shalott.broker.base.files import replace_file
from shalott.broker.rocket.config import BrokerConfig
from shalott.broker.rocket.processor.table_files import DELAYS, GROUPS, OFFSETS, TOPICS
from shalott.broker.rocket.processor.tables import Tables
from shalott.broker.rocket.processor.topics import GroupTable, system_topics
from shalott.broker.rocket.remoting.route_data import TopicConfig
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import SimDisk
from tests.world.clock.stock_loop import StockLoop
from tests.world.clock.turns import turns
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import Events

pytestmark = pytest.mark.unit

NO_TEXT = (
    b'{"offsetTable":{"\xff":{}},"topicConfigTable":{"\xff":{}},'
    b'"subscriptionGroupTable":{"\xff":{}}}'
)
RUBBISH = (b"", b"\0" * 40, b'{"offsetTable":', b"[]", NO_TEXT)


def env_of(disk: MemoryDisk | SimDisk) -> Env:
    return Env("n1", 1, SystemClock(), seeded_rng(1, 1), disk, Events("n1", []))


async def tables_of(disk: MemoryDisk | SimDisk) -> Tables:
    return await Tables.open(env_of(disk), own=system_topics(BrokerConfig()))


async def put(tables: Tables, number: int) -> None:
    """Change every table, and write them."""
    tables.put_offset("g", "t", 0, number)
    tables.delayed.put_delay(1, number)
    tables.group(f"g{number}")
    tables.put_topic(TopicConfig(topic_name=f"t{number}", read_queue_nums=1, write_queue_nums=1))
    await tables.save()


def seen(tables: Tables) -> tuple[int | None, int | None, list[str], list[str]]:
    topics = [name for name in sorted(tables.topics) if name.startswith("t")]
    return tables.offset("g", "t", 0), tables.delayed.delays.get(1), sorted(tables.groups), topics


@pytest.mark.parametrize("rubbish", RUBBISH, ids=["empty", "zeros", "torn", "other", "no text"])
def test_the_former_content_stands_in_for_rubbish_and_it_is_logged(
    rubbish: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        disk = MemoryDisk()
        tables = await tables_of(disk)
        await put(tables, 1)
        await put(tables, 2)
        assert caplog.text == ""
        for path in (TOPICS, GROUPS, OFFSETS, DELAYS):
            await replace_file(disk, path, rubbish)
        assert seen(await tables_of(disk)) == (1, 1, ["g1"], ["t1"])

    with caplog.at_level(logging.WARNING):
        asyncio.run(body())
    for path in (TOPICS, GROUPS, OFFSETS, DELAYS):
        assert f"{path} can't be understood" in caplog.text
        assert f"{path}.bak is read instead" in caplog.text


def test_rubbish_never_becomes_the_former_content() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        tables = await tables_of(disk)
        await put(tables, 1)
        await put(tables, 2)
        await replace_file(disk, OFFSETS, b"rubbish")
        await put(await tables_of(disk), 3)  # with 1 in the .bak
        await replace_file(disk, OFFSETS, b"rubbish again")
        assert (await tables_of(disk)).offset("g", "t", 0) == 1
        tables = await tables_of(disk)
        await put(tables, 4)
        await put(tables, 5)  # the file makes sense again: its content is kept
        await replace_file(disk, OFFSETS, b"and again")
        assert (await tables_of(disk)).offset("g", "t", 0) == 4

    asyncio.run(body())


def test_rubbish_in_both_is_an_empty_table() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        await replace_file(disk, OFFSETS, b"rubbish")
        await replace_file(disk, OFFSETS + ".bak", b"rubbish")
        tables = await tables_of(disk)
        assert tables.offsets == {}
        await put(tables, 1)
        assert (await tables_of(disk)).offset("g", "t", 0) == 1

    asyncio.run(body())


@pytest.mark.explore
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_a_crash_at_any_moment_leaves_the_old_offset_or_the_new_one(power: bool) -> None:
    async def body() -> tuple[dict[int | None, None], int]:
        found: dict[int | None, None] = {}
        from_former = 0
        for seed in range(300):
            disk = SimDisk(StockLoop(), seed, "n1")
            disk.set_faults(DiskFaults(short=seed % 2 == 0))
            tables = await tables_of(disk)
            for number in (1, 2):
                tables.put_offset("g", "t", 0, number)
                await tables.save()
            tables.put_offset("g", "t", 0, 3)
            saving = asyncio.create_task(tables.save())
            await turns(seed % 60)
            promised = saving.done()
            if power:
                disk.power_loss()
            else:
                disk.kill()
            saving.cancel()
            from_former += "consumerOffset.json" not in await disk.listdir("config")
            offset = (await tables_of(disk)).offset("g", "t", 0)
            assert offset == 3 or (offset == 2 and not promised), seed
            disk.power_loss()  # what was read is what is there
            assert (await tables_of(disk)).offset("g", "t", 0) == offset, seed
            found[offset] = None
        return found, from_former

    found, from_former = asyncio.run(body())
    assert sorted(found, key=str) == [2, 3]
    assert from_former > 0, "no crash came between the two renames"


def test_who_pops_is_known_to_the_next_life_and_to_slaves() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        tables = await tables_of(disk)
        assert b"requestModes" not in msgspec.json.encode(tables.group_table())  # as an original's
        tables.request_modes["t@g"] = "POP"
        tables.put_group(tables.group("g"))
        await tables.save()
        tables = await tables_of(disk)
        assert tables.request_modes == {"t@g": "POP"}
        slave = await tables_of(MemoryDisk())
        told = msgspec.json.encode(tables.group_table())
        slave.replace_groups(msgspec.json.decode(told, type=GroupTable))
        assert slave.request_modes == {"t@g": "POP"}

    asyncio.run(body())
