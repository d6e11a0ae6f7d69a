"""Messages that ask for a time of their own, in virtual time: when they come, and what a restart or
another master makes of those that wait."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import Stored
from shalott.broker.rocket.processor.delay_tables import (
    FILE_BYTES,
    TimerCheckpoint,
    decode_timer_checkpoint,
)
from shalott.broker.rocket.processor.delays import deliver_delayed
from shalott.broker.rocket.processor.stored_messages import properties_of
from shalott.broker.rocket.processor.topics import TIMER_TOPIC, system_topics
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.route_data import DataVersion
from tests.world.clock.turns import passes
from tests.world.clock.virtual import run
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.rocket.broker import World, in_world, messages_of, world

pytestmark = pytest.mark.unit


async def send(world: World, key: str, **properties: object) -> Command:
    wanted = {"UNIQ_KEY": key, **properties}
    text = "".join(f"{name}\x01{value}\x02" for name, value in wanted.items())
    return await world.send(key.encode(), properties=text)


@asynccontextmanager
async def delivering(world: World) -> AsyncIterator[None]:
    task = asyncio.create_task(deliver_delayed(world.broker))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def arrived(world: World, seconds: float) -> list[Stored]:
    """What the topic holds when so long has passed."""
    await passes(seconds)
    await world.settle()
    return messages_of((await world.pull()).body)


def keys(messages: list[Stored]) -> list[str]:
    return [one.message.body.decode() for one in messages]


@pytest.mark.parametrize("at", ["TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"])
def test_a_message_comes_at_its_time_and_never_early(at: str) -> None:
    async def test(world: World) -> None:
        async with delivering(world):
            for delay_ms in (2000, 3000, 1000):
                value = {
                    "TIMER_DELAY_MS": delay_ms + 123,
                    "TIMER_DELAY_SEC": delay_ms // 1000,
                    "TIMER_DELIVER_MS": world.broker.wall_ms() + delay_ms,
                }[at]
                sent_ms = world.broker.wall_ms()
                answer = await send(world, f"{delay_ms}:{sent_ms}", **{at: value})
                assert answer.code == ResponseCode.SUCCESS
            await world.settle()
            assert world.broker.store.reader.queue_range(TIMER_TOPIC, 0) == (0, 3)
            found = await arrived(world, 8)
            assert [key.split(":")[0] for key in keys(found)] == ["1000", "2000", "3000"]
            for one in found:
                delay_ms, sent_ms = map(int, one.message.body.decode().split(":"))
                wanted_ms = delay_ms + (123 if at == "TIMER_DELAY_MS" else 0)
                assert 0 <= one.store_ms - sent_ms - wanted_ms <= 2200
                properties = properties_of(one.message.properties)
                assert properties["TIMER_DEQUEUE_MS"] == str(one.store_ms)
                assert properties["REAL_TOPIC"] == one.message.topic == "t"

    in_world(test)


def test_what_is_over_comes_at_once_and_what_is_no_time_is_refused() -> None:
    async def test(world: World) -> None:
        now = world.broker.wall_ms()
        over = {"TIMER_DELAY_SEC": "-3", "TIMER_DELAY_MS": "0", "TIMER_DELIVER_MS": str(now)}
        for name, value in over.items():
            assert (await send(world, name, **{name: value})).code == ResponseCode.SUCCESS
        await send(world, "delivered before", TIMER_DELAY_SEC=9, TIMER_OUT_MS=5)
        assert keys(await arrived(world, 0)) == [*over, "delivered before"]
        end = world.broker.store.log.max_offset
        for name, value in (
            *(("TIMER_DELIVER_MS", text) for text in ("", "x", "1e3", " 5", "5_0", "9" * 30)),
            *(("TIMER_DELAY_SEC", 3 * 86_400 + 1), ("TIMER_DELAY_MS", 3 * 86_400_000 + 1)),
        ):
            answer = await send(world, "no", **{name: value})
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "timer message illegal" in answer.remark
            assert "nothing was stored" in answer.remark
        revokes = await send(world, "no", TIMER_DELAY_SEC=-1, TIMER_DEL_UNIQKEY="t+k")
        assert revokes.code == ResponseCode.MESSAGE_ILLEGAL
        assert world.broker.store.log.max_offset == end

    in_world(test)


def test_a_level_counts_before_a_time() -> None:
    async def test(world: World) -> None:
        async with delivering(world):
            await send(world, "level", TIMER_DELAY_SEC=1000, DELAY=1)
            [one] = await arrived(world, 3)
            assert "TIMER" not in one.message.properties

    in_world(test)


def test_the_answer_has_a_recall_handle_and_recalls_are_refused_as_upstream_does() -> None:
    async def test(world: World) -> None:
        answer = await send(world, "K", TIMER_DELAY_SEC=5)
        version, topic, group, due, key = (
            urlsafe_b64decode(answer.ext["recallHandle"]).decode().split(" ")
        )
        assert (version, topic, group, key) == ("v1", "t", "shalott", "K")
        assert int(due) % 1000 == 1 and 3000 < int(due) - world.broker.wall_ms() <= 5001
        assert "recallHandle" not in (await send(world, "now")).ext
        header = {"producerGroup": "p", "topic": "t", "recallHandle": answer.ext["recallHandle"]}
        recalled = await world.ask(RequestCode.RECALL_MESSAGE, header)
        assert recalled.code == ResponseCode.NO_PERMISSION

    in_world(test)


def test_a_message_is_revoked_by_another_of_its_second() -> None:
    async def test(world: World) -> None:
        async with delivering(world):
            due = world.broker.wall_ms() + 4000
            for key in ("kept", "revoked"):
                await send(world, key, TIMER_DELIVER_MS=due)
            await send(world, "r", TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY="t+revoked")
            await send(world, "late", TIMER_DELIVER_MS=due + 2000, TIMER_DEL_UNIQKEY="t+kept")
            assert keys(await arrived(world, 9)) == ["kept"]

    in_world(test)


def test_what_is_no_timer_stops_nothing() -> None:
    """An original lets clients write there, and delivers nothing that lies behind it."""

    async def test(world: World) -> None:
        assert (await world.send(topic=TIMER_TOPIC)).code == ResponseCode.NO_PERMISSION
        for properties in ("", "TIMER_OUT_MS\x01x\x02REAL_TOPIC\x01t\x02", "TIMER_OUT_MS\x017\x02"):
            world.replica.store.append(
                [Message(topic=TIMER_TOPIC, queue_id=0, body=b"no", properties=properties)]
            )
        async with delivering(world):
            await send(world, "yes", TIMER_DELAY_SEC=1)
            assert keys(await arrived(world, 5)) == ["yes"]

    in_world(test)


def test_what_waits_outlives_a_restart_and_what_came_does_not_come_again() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        async with world(disk=disk) as first, delivering(first):
            await send(first, "soon", TIMER_DELAY_SEC=1)
            await send(first, "later", TIMER_DELAY_SEC=6)
            assert keys(await arrived(first, 3)) == ["soon"]
            await first.broker.tables.save()
        async with world(disk=disk) as second, delivering(second):
            assert keys(await arrived(second, 1)) == ["soon"]
            assert keys(await arrived(second, 7)) == ["soon", "later"]
            # Nothing more was noted: a crash.
        async with world(disk=disk) as third, delivering(third):
            assert keys(await arrived(third, 3)) == ["soon", "later", "later"]

    run(body())


def test_another_master_delivers_what_waits_by_what_it_copied() -> None:
    async def test(world: World) -> None:
        async with delivering(world):
            for number in (1, 2, 6):
                await send(world, str(number), TIMER_DELAY_SEC=number)
            assert keys(await arrived(world, 4.5)) == ["1", "2"]
            copied = decode_timer_checkpoint(
                (await world.ask(RequestCode.GET_TIMER_CHECK_POINT)).body
            )
            world.replica.role = "slave"
            assert keys(messages_of((await world.pull()).body)) == []
            await passes(9)
            world.broker.tables.delayed.timers = TimerCheckpoint()
            world.broker.tables.delayed.replace_timers(copied)
            world.replica.role, world.replica.epoch = "master", 2
            world.broker.take_over()
            assert keys(await arrived(world, 2)) == ["1", "2", "6"]

    in_world(test)


def test_a_master_whose_log_is_shorter_waits_for_none_of_what_it_lacks() -> None:
    """What comes next at those places is new, and is due whenever it is."""

    async def test(world: World) -> None:
        now = world.broker.wall_ms()
        world.broker.tables.delayed.replace_timers(TimerCheckpoint(now + 60_000, 0, 5))
        world.broker.take_over()
        assert world.broker.tables.delayed.timers.queue_offset == 0
        async with delivering(world):
            await send(world, "new", TIMER_DELAY_SEC=1)
            assert keys(await arrived(world, 4)) == ["new"]

    in_world(test)


def test_a_checkpoint_is_laid_out_as_upstreams() -> None:
    version = DataVersion(state_version=3, timestamp=4, counter=5)
    checkpoint = TimerCheckpoint(1_795_636_361_000, 0, 7, 8, version)
    data = checkpoint.encode()
    assert data.hex() == (
        "000001a214447728" + "0" * 16 + f"{7:016x}{8:016x}{3:016x}{4:016x}{5:016x}"
    )
    assert (
        decode_timer_checkpoint(data) == checkpoint == decode_timer_checkpoint(checkpoint.as_file())
    )
    assert len(checkpoint.as_file()) == FILE_BYTES
    assert decode_timer_checkpoint(data[:32]) == TimerCheckpoint(checkpoint.read_ms, 0, 7, 8)
    # One of an original's, which had delivered nothing.
    seen = bytes.fromhex("000001a21444a9f0" + "00" * 32 + "000001a21444ada50000000000000005")
    assert decode_timer_checkpoint(seen).version.counter == 5
    for none in (b"", data[:31], b"\xff" * 56):
        with pytest.raises(ValueError, match="checkpoint"):
            decode_timer_checkpoint(none)


def test_a_dead_letter_has_no_level() -> None:
    async def test(world: World) -> None:
        retry = {"maxReconsumeTimes": 3, "reconsumeTimes": 4, "properties": "DELAY\x013\x02"}
        await world.send(b"dead", topic="%RETRY%g", **retry)
        await world.settle()
        [dead] = messages_of((await world.pull(topic="%DLQ%g")).body)
        assert properties_of(dead.message.properties) == {"DELAY": "-1"}

    in_world(test)


def test_names_of_system_topics_are_taken() -> None:
    async def test(world: World) -> None:
        before = world.broker.tables.topic_table()
        own = [topic.topic_name for topic in system_topics(world.broker.config)]
        for name in (*own, "rmq_sys_anything", "RMQ_SYS_TRACE_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"):
            answer = await world.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": name})
            assert answer.code == ResponseCode.INVALID_PARAMETER, name
        assert world.broker.tables.topic_table() == before
        for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "OFFSET_MOVED_EVENT"):
            assert (await world.send(topic=name)).code == ResponseCode.NO_PERMISSION
        made = await world.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "rmq_sy"})
        assert made.code == ResponseCode.SUCCESS

    in_world(test)


def test_an_original_would_go_on_at_the_oldest_that_waits() -> None:
    async def body(world: World) -> None:
        async with delivering(world):
            await send(world, "first", TIMER_DELAY_SEC=1)
            await send(world, "waits", TIMER_DELAY_SEC=500)
            await send(world, "last", TIMER_DELAY_SEC=2)
            assert keys(await arrived(world, 4)) == ["first", "last"]
            told = await world.ask(RequestCode.GET_TIMER_CHECK_POINT)
            checkpoint = decode_timer_checkpoint(told.body)
            now_ms = world.broker.wall_ms()
            assert now_ms - 1000 < checkpoint.read_ms <= now_ms  # its wheel is turned up to here
            assert (checkpoint.queue_offset, checkpoint.master_queue_offset) == (1, 1)
            assert checkpoint.known_end == 3  # ours delivers "last" no second time
            longs = told.body[:56]
            assert decode_timer_checkpoint(longs).known_end == 1
            turned = (1).to_bytes(8, "big") + told.body[8:]  # an original wrote it since
            assert decode_timer_checkpoint(turned).ours is None
            await passes(600)
            told = await world.ask(RequestCode.GET_TIMER_CHECK_POINT)
            assert decode_timer_checkpoint(told.body).queue_offset == 3

    in_world(body)


def test_a_slave_tells_what_its_master_told() -> None:
    async def body(world: World) -> None:
        of_master = TimerCheckpoint(5000, 0, 1, 1, DataVersion(counter=1), ours=(4000, 3))
        world.broker.tables.delayed.replace_timers(of_master)
        told = await world.ask(RequestCode.GET_TIMER_CHECK_POINT)
        assert decode_timer_checkpoint(told.body) == of_master

    in_world(body)
