"""Half messages: seen when they are committed, never when they are rolled back, and asked for until
one or the other is said, also by a broker's next life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.replica import PutResult, PutStatus
from shalott.broker.rocket.processor.delays import deliver_delayed
from shalott.broker.rocket.processor.stored_messages import properties_of
from shalott.broker.rocket.processor.topics import LAID_ASIDE_TOPIC
from shalott.broker.rocket.processor.transactions import COMMIT, PREPARED, ROLLBACK
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from tests.world.clock.turns import passes
from tests.world.clock.virtual import run
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.rocket.broker import World, in_world, messages_of, world

pytestmark = pytest.mark.unit

UNKNOWN = 0


async def prepare(world: World, key: str, *, group: str = "p", **more: str) -> dict[str, str]:
    """Send one; returns what ends it."""
    wanted = {"TRAN_MSG": "true", "UNIQ_KEY": key, "PGROUP": group, **more}
    text = "".join(f"{name}\x01{value}\x02" for name, value in wanted.items())
    answer = await world.send(key.encode(), properties=text, sysFlag=PREPARED)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    offset = int(answer.ext["msgId"][16:], 16)
    where = {"commitLogOffset": str(offset), "tranStateTableOffset": answer.ext["queueOffset"]}
    return where | {"producerGroup": group, "msgId": key, "transactionId": key}


async def end(world: World, half: dict[str, str], outcome: int) -> Command:
    ext = half | {"commitOrRollback": str(outcome)}
    return await world.ask(RequestCode.END_TRANSACTION, ext)


@asynccontextmanager
async def checking(world: World) -> AsyncIterator[None]:
    task = asyncio.create_task(deliver_delayed(world.broker))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def producer(world: World, group: str = "p") -> RemotingClient:
    beat = {"clientID": "c", "producerDataSet": [{"groupName": group}]}
    client = world.new_client()
    command = Command(code=RequestCode.HEART_BEAT, body=msgspec.json.encode(beat))
    await client.invoke(world.address, command, 1000)
    return client


def questions(world: World) -> list[Command]:
    return [one for one in world.pushed if one.code == RequestCode.CHECK_TRANSACTION_STATE]


def test_only_what_is_committed_is_seen() -> None:
    async def body(world: World) -> None:
        committed, rolled_back = await prepare(world, "c"), await prepare(world, "r")
        await prepare(world, "open")
        await world.send(b"plain")
        assert await world.bodies() == [b"plain"]
        assert (await end(world, committed, COMMIT)).code == ResponseCode.SUCCESS
        assert (await end(world, rolled_back, ROLLBACK)).code == ResponseCode.SUCCESS
        assert await world.bodies() == [b"plain", b"c"]
        [_, message] = messages_of((await world.pull()).body)
        kept = properties_of(message.message.properties)
        assert kept == {"UNIQ_KEY": "c", "PGROUP": "p"}
        assert message.message.sys_flag & ROLLBACK == COMMIT
        place = int(committed["commitLogOffset"])
        assert message.message.prepared_transaction_offset == place

    in_world(body)


def test_what_is_decided_is_not_decided_again() -> None:
    async def body(world: World) -> None:
        half = await prepare(world, "r")
        async with checking(world):
            await end(world, half, ROLLBACK)
            for _ in range(2):  # as it was just decided, and when both queues are worked off
                assert (await end(world, half, COMMIT)).code == ResponseCode.SYSTEM_ERROR
                await passes(3)
        assert await world.bodies() == []
        offsets = world.broker.tables.offsets  # as an original goes on by them
        assert {key: queues for key, queues in offsets.items() if "TRANS" in key} == {
            "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 1},
            "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 1},
        }

    in_world(body)


@pytest.mark.parametrize("wrong", ["producerGroup", "tranStateTableOffset", "commitLogOffset"])
def test_the_end_of_another_is_refused(wrong: str) -> None:
    async def body(world: World) -> None:
        half = await prepare(world, "c")
        answer = await end(world, half | {wrong: "7"}, COMMIT)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert await world.bodies() == []
        assert (await end(world, half, COMMIT)).code == ResponseCode.SUCCESS

    in_world(body)


def test_a_commit_that_could_not_be_stored_is_still_open() -> None:
    async def body(world: World) -> None:
        half = await prepare(world, "c")
        world.replica.stores, world.replica.outcome = False, PutStatus.SERVICE_NOT_AVAILABLE
        assert (await end(world, half, COMMIT)).code == ResponseCode.SYSTEM_ERROR
        world.replica.stores, world.replica.outcome = True, PutStatus.PUT_OK
        assert (await end(world, half, COMMIT)).code == ResponseCode.SUCCESS
        assert await world.bodies() == [b"c"]

    in_world(body)


def test_one_whose_end_fails_while_the_broker_looks_is_asked_for() -> None:
    async def body(world: World) -> None:
        half, whole, looked = await prepare(world, "c"), world.replica.put, asyncio.Event()
        client = await producer(world)

        async def put(messages: list[Message]) -> PutResult:
            await looked.wait()
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, None)

        world.replica.put = put  # type: ignore[method-assign]
        ending = asyncio.create_task(end(world, half, COMMIT))
        async with checking(world):
            await passes(3)
            looked.set()
            assert (await ending).code == ResponseCode.SYSTEM_ERROR
            world.replica.put = whole  # type: ignore[method-assign]
            await passes(40)
            assert questions(world)
        assert (await end(world, half, COMMIT)).code == ResponseCode.SUCCESS
        await client.close()

    in_world(body)


def test_an_open_one_is_asked_for_until_it_is_decided() -> None:
    async def body(world: World) -> None:
        half = await prepare(world, "open")
        await prepare(world, "patient", CHECK_IMMUNITY_TIME_IN_SECONDS="1000")
        async with checking(world):
            await passes(20)  # none of the group is there: that is no answer
            client = await producer(world)
            await passes(40)
            [question] = questions(world)
            assert (
                half.items()
                >= {
                    name: question.ext[name]
                    for name in ("commitLogOffset", "tranStateTableOffset", "msgId")
                }.items()
            )
            [asked] = messages_of(question.body)
            assert (asked.message.topic, asked.message.body) == ("t", b"open")
            assert (await end(world, half, UNKNOWN)).code == ResponseCode.SUCCESS
            await passes(31)
            assert len(questions(world)) == 2
            await end(world, half, COMMIT)
            await passes(100)
            assert len(questions(world)) == 2
            assert await world.bodies() == [b"open"]
        await client.close()

    in_world(body)


def test_one_that_is_never_decided_is_laid_aside() -> None:
    async def body(world: World) -> None:
        await prepare(world, "open")
        async with checking(world):
            client = await producer(world)
            for _ in range(60):  # a client is forgotten that beats too seldom
                await passes(10)
                await client.close()
                client = await producer(world)
            assert len(questions(world)) == 15
            assert await world.bodies() == []
            assert await world.bodies(LAID_ASIDE_TOPIC) == [b"open"]
        await client.close()

    in_world(body)


def test_the_next_life_knows_what_is_open_and_what_is_decided() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        async with world(disk=disk) as made:
            halves = [await prepare(made, key) for key in ("c", "r", "open")]
            await end(made, halves[0], COMMIT)
            await end(made, halves[1], ROLLBACK)
        async with world(disk=disk) as made:  # what was worked off is forgotten: all is read again
            client = await producer(made)
            async with checking(made):
                await passes(20)
                [question] = questions(made)
                assert question.ext["msgId"] == "open"
                assert (await end(made, halves[1], COMMIT)).code == ResponseCode.SYSTEM_ERROR
                await end(made, halves[2], COMMIT)
                assert await made.bodies() == [b"c", b"open"]
            await client.close()

    run(body())


def test_a_new_master_decides_nothing_while_notes_of_its_log_can_not_be_read() -> None:
    async def body(world: World) -> None:
        half = await prepare(world, "h")
        await world.settle()
        store = world.broker.store
        store.set_confirm_offset(store.log.max_offset)  # the slaves are not there
        assert (await end(world, half, COMMIT)).code == ResponseCode.SUCCESS
        world.replica.epoch = 2
        world.broker.take_over()
        assert (await end(world, half, COMMIT)).code == ResponseCode.SYSTEM_ERROR
        async with checking(world):
            await passes(3)
        store.set_confirm_offset(None)
        assert await world.bodies() == [b"h"]
        assert (await end(world, half, COMMIT)).code == ResponseCode.SYSTEM_ERROR

    in_world(body)
