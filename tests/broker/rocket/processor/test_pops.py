"""Popped messages: given to one at a time, gone when acknowledged, back when not, also by a
broker's next life."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import Stored
from shalott.broker.rocket.commitlog.replica import PutResult, PutStatus
from shalott.broker.rocket.processor.delays import deliver_delayed
from shalott.broker.rocket.processor.stored_messages import properties_of
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from tests.world.clock.turns import passes
from tests.world.clock.virtual import run
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.rocket.broker import World, in_world, messages_of, world

pytestmark = pytest.mark.unit

INVISIBLE_MS = 5000
RETRIES = "%RETRY%g_t"


async def pop(world: World, **more: Any) -> Command:
    wanted = {"consumerGroup": "g", "topic": "t", "queueId": -1, "maxMsgNums": 32}
    wanted |= {"invisibleTime": INVISIBLE_MS, "pollTime": 0, "bornTime": 0, "initMode": 0}
    return await world.ask(RequestCode.POP_MESSAGE, wanted | more)


def handles(answer: Command) -> list[tuple[bytes, dict[str, str]]]:
    """Each message and what names it, made as Java's client does it."""
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), answer.remark
    return [(each.message.body, _handle(answer, each)) for each in messages_of(answer.body)]


def _handle(answer: Command, stored: Stored) -> dict[str, str]:
    ext, message = answer.ext, stored.message
    info = properties_of(message.properties).get("POP_CK")
    if info is None:
        starts = dict(each.rsplit(" ", 1) for each in ext["startOffsetInfo"].split(";"))
        start = starts[f"0 {message.queue_id}"]
        info = f"{start} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0 shalott"
        info += f" {message.queue_id} {stored.queue_offset}"
    topic = RETRIES if info.split(" ")[4] == "1" else "t"
    where = {"queueId": info.split(" ")[6], "offset": info.split(" ")[7]}
    return {"consumerGroup": "g", "topic": topic, "extraInfo": info, **where}


async def ack(world: World, handle: dict[str, str]) -> int:
    return (await world.ask(RequestCode.ACK_MESSAGE, handle)).code


@asynccontextmanager
async def reviving(world: World) -> AsyncIterator[None]:
    task = asyncio.create_task(deliver_delayed(world.broker))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_each_is_given_once_and_not_again_when_it_is_acknowledged() -> None:
    async def body(world: World) -> None:
        for number in range(4):
            await world.send(b"%d" % number, queue=number % 2)
        await world.settle()
        async with reviving(world):
            first, rest = handles(await pop(world, maxMsgNums=3)), handles(await pop(world))
            assert sorted(body for body, _ in [*first, *rest]) == [b"0", b"1", b"2", b"3"]
            assert [await ack(world, one) for _, one in [*first, *rest]] == [0] * 4
            await passes(20)
            assert handles(await pop(world)) == []

    in_world(body)


def test_what_is_not_acknowledged_comes_again_and_counts() -> None:
    async def body(world: World) -> None:
        await world.send(b"kept")
        await world.send(b"lost")
        await world.settle()
        async with reviving(world):
            [kept, lost] = handles(await pop(world))
            assert await ack(world, kept[1]) == ResponseCode.SUCCESS
            await passes(4)
            assert handles(await pop(world)) == []
            await passes(3)
            assert await ack(world, lost[1]) == ResponseCode.NO_MESSAGE  # it is on its way back
            answer = await pop(world)
            [(again, handle)] = handles(answer)
            [stored] = messages_of(answer.body)
            assert (again, stored.message.topic, stored.message.reconsume_times) == (
                b"lost",
                "t",
                1,
            )
            assert await ack(world, handle) == ResponseCode.SUCCESS
            await passes(20)
            assert handles(await pop(world)) == []

    in_world(body)


def test_another_time_is_counted_from_then_on_and_ends_the_older_handle() -> None:
    async def body(world: World) -> None:
        await world.send(b"m")
        await world.settle()
        async with reviving(world):
            [(_, handle)] = handles(await pop(world))
            await passes(4)
            ext = handle | {"invisibleTime": "10000"}
            answer = await world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext)
            assert answer.code == ResponseCode.SUCCESS
            await passes(9)
            assert handles(await pop(world)) == []
            assert await ack(world, handle) == ResponseCode.NO_MESSAGE
            parts = handle["extraInfo"].split(" ")
            parts[1] = answer.ext["popTime"]
            assert await ack(world, handle | {"extraInfo": " ".join(parts)}) == 0

    in_world(body)


def test_a_batch_acknowledges_those_whose_bits_are_set() -> None:
    async def body(world: World) -> None:
        for number in range(3):
            await world.send(b"%d" % number)
        await world.settle()
        async with reviving(world):
            answer = await pop(world)
            acks = {"c": "g", "t": "t", "r": "0", "so": 0, "q": 0, "rq": 0, "it": INVISIBLE_MS}
            acks |= {"pt": int(answer.ext["popTime"]), "b": base64.b64encode(b"\x05").decode()}
            told = msgspec.json.encode({"brokerName": "shalott", "acks": [acks]})
            assert (await world.ask(RequestCode.BATCH_ACK_MESSAGE, {}, told)).code == 0
            await passes(7)
            assert [body for body, _ in handles(await pop(world))] == [b"1"]

    in_world(body)


def test_a_pop_waits_for_what_comes_and_tells_when_nothing_did() -> None:
    async def body(world: World) -> None:
        await world.send(b"first")
        await world.settle()
        await pop(world)
        waiting = asyncio.create_task(pop(world, pollTime=10_000))
        notified = {"consumerGroup": "g", "topic": "t", "queueId": -1, "pollTime": 10_000}
        notice = asyncio.create_task(world.ask(RequestCode.NOTIFICATION, notified))
        await passes(1)
        await world.send(b"second")
        assert [body for body, _ in handles(await waiting)] == [b"second"]
        assert (await notice).code == ResponseCode.SUCCESS
        assert (await pop(world, pollTime=1000)).code == ResponseCode.POLLING_TIMEOUT

    in_world(body)


def test_only_tags_that_are_wanted_are_given() -> None:
    async def body(world: World) -> None:
        for tag in ("a", "b", "a"):
            await world.send(tag.encode(), properties=f"TAGS\x01{tag}\x02")
        await world.settle()
        assert [body for body, _ in handles(await pop(world, exp="b"))] == [b"b"]
        assert handles(await pop(world, exp="b")) == []

    in_world(body)


def test_orderly_pops_and_damaged_handles_are_refused() -> None:
    async def body(world: World) -> None:
        await world.send(b"m")
        assert (await pop(world, order="true")).code == ResponseCode.SYSTEM_ERROR
        wrong = {"consumerGroup": "g", "topic": "t", "queueId": 0, "offset": 0, "extraInfo": "x"}
        assert (await world.ask(RequestCode.ACK_MESSAGE, wrong)).code == ResponseCode.SYSTEM_ERROR

    in_world(body)


def test_what_could_not_be_stored_is_neither_given_nor_acknowledged() -> None:
    async def body(world: World) -> None:
        await world.send(b"m")
        await world.settle()
        world.replica.stores, world.replica.outcome = False, PutStatus.SERVICE_NOT_AVAILABLE
        assert handles(await pop(world)) == []
        world.replica.stores, world.replica.outcome = True, PutStatus.PUT_OK
        [(_, handle)] = handles(await pop(world))
        world.replica.stores, world.replica.outcome = False, PutStatus.SERVICE_NOT_AVAILABLE
        assert await ack(world, handle) == ResponseCode.SYSTEM_ERROR
        world.replica.stores, world.replica.outcome = True, PutStatus.PUT_OK
        assert await ack(world, handle) == ResponseCode.SUCCESS

    in_world(body)


def test_what_is_refused_of_many_does_not_store_the_others_again_and_again() -> None:
    """A leader that is behind takes the first of a put and refuses the rest."""

    async def body(world: World) -> None:
        for number in range(6):
            await world.send(b"%d" % number)
        await world.settle()
        assert len(handles(await pop(world))) == 6
        whole = world.replica.put

        async def first_of_put(messages: list[Message]) -> PutResult:
            result = await whole(messages[:1])
            return result if len(messages) == 1 else replace(result, status=PutStatus.UNKNOWN_ERROR)

        world.replica.put = first_of_put  # type: ignore[method-assign]
        async with reviving(world):
            await passes(30)
        assert world.broker.store.reader.queue_range(RETRIES, 0) == (0, 6)

    in_world(body)


def test_the_next_life_knows_what_is_out_and_how_far_the_group_came() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        async with world(disk=disk) as made:
            for number in range(3):
                await made.send(b"%d" % number)
            await made.settle()
            [_, (_, acked), _] = handles(await pop(made))
            assert await ack(made, acked) == ResponseCode.SUCCESS
        async with world(disk=disk) as made:  # its tables were not written
            assert handles(await pop(made)) == []
            async with reviving(made):
                await passes(8)
                assert [body for body, _ in handles(await pop(made))] == [b"0", b"2"]

    run(body())


def test_a_new_master_gives_nothing_while_acknowledgements_of_its_log_can_not_be_read() -> None:
    async def body(world: World) -> None:
        await world.send(b"m")
        await world.settle()
        [(_, handle)] = handles(await pop(world))
        store = world.broker.store
        store.set_confirm_offset(store.log.max_offset)  # the slaves are not there
        said = asyncio.create_task(ack(world, handle))
        await passes(1)
        world.replica.epoch = 2
        world.broker.take_over()
        world.broker.tables.put_offset("g", "t", 0, 0)  # copied before that pop
        assert (await pop(world)).code == ResponseCode.SYSTEM_ERROR
        store.set_confirm_offset(None)
        await world.settle()
        assert handles(await pop(world)) == []
        await said

    in_world(body)
