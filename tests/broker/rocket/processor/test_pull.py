"""Pulls over the wire: codes, offsets, waiting, and who may be read from."""

from __future__ import annotations

import asyncio

import pytest

from shalott.broker.rocket.config import BrokerConfig
from shalott.broker.rocket.remoting.command import RequestCode, ResponseCode
from tests.world.clock.turns import passes
from tests.world.rocket.broker import World, in_world, messages_of

pytestmark = pytest.mark.unit

COMMIT_OFFSET, SUSPEND = 1, 2
READ_SLAVES = BrokerConfig(slave_read_enable=True)


def test_a_pull_says_where_to_go_on() -> None:
    async def test(world: World) -> None:
        for number in range(5):
            await world.send(b"%d" % number)
        await world.settle()
        answer = await world.pull(1, maxMsgNums=2)
        assert answer.code == ResponseCode.SUCCESS
        assert [one.message.body for one in messages_of(answer.body)] == [b"1", b"2"]
        assert answer.ext["nextBeginOffset"] == "3"
        assert (answer.ext["minOffset"], answer.ext["maxOffset"]) == ("0", "5")
        assert answer.ext["suggestWhichBrokerId"] == "0"

    in_world(test)


def test_each_way_of_finding_nothing_has_its_code() -> None:
    async def test(world: World) -> None:
        assert (await world.pull()).code == ResponseCode.TOPIC_NOT_EXIST
        retry = await world.pull(topic="%RETRY%g")
        assert retry.code == ResponseCode.PULL_NOT_FOUND
        await world.send()
        await world.settle()
        end = await world.pull(1)
        assert (end.code, end.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "1")
        beyond = await world.pull(7)
        assert beyond.code == ResponseCode.PULL_OFFSET_MOVED
        assert int(beyond.ext["nextBeginOffset"]) <= 1
        empty = await world.pull(0, queue=1)
        assert empty.code == ResponseCode.PULL_NOT_FOUND
        moved = await world.pull(3, queue=1)
        assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
        assert (await world.pull(0, queue=9)).code == ResponseCode.SYSTEM_ERROR

    in_world(test)


def test_a_pull_waits_for_a_message_and_no_longer() -> None:
    async def test(world: World) -> None:
        await world.send(b"0")
        await world.settle()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        waiting = asyncio.create_task(world.pull(1, sysFlag=SUSPEND, suspendTimeoutMillis=20_000))
        await passes(5)
        assert not waiting.done()
        await world.send(b"1")
        answer = await waiting
        assert [one.message.body for one in messages_of(answer.body)] == [b"1"]
        assert 5 <= loop.time() - begun < 5.5

    in_world(test)


def test_a_pull_waits_for_the_first_message_of_a_queue_too() -> None:
    async def test(world: World) -> None:
        await world.send()
        first = world.pull(0, queue=1, sysFlag=SUSPEND, suspendTimeoutMillis=20_000)
        waiting = asyncio.create_task(first)
        await passes(5)
        await world.send(b"first", queue=1)
        pulled = await asyncio.wait_for(waiting, 0.5)
        assert [one.message.body for one in messages_of(pulled.body)] == [b"first"]

    in_world(test)


def test_a_pull_that_waited_in_vain_says_so_in_time() -> None:
    async def test(world: World) -> None:
        await world.send()
        await world.settle()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        answer = await world.pull(1, sysFlag=SUSPEND, suspendTimeoutMillis=20_000)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert 3 <= loop.time() - begun < 3.5  # the broker's own limit
        begun = loop.time()
        await world.pull(1, sysFlag=SUSPEND, suspendTimeoutMillis=500)
        assert 0.5 <= loop.time() - begun < 0.7
        begun = loop.time()
        await world.pull(1, sysFlag=0, suspendTimeoutMillis=20_000)
        assert loop.time() - begun < 0.2

    in_world(test, config=BrokerConfig(long_poll_max_ms=3000))


def test_a_broker_that_may_not_be_read_says_so_also_after_waiting() -> None:
    async def test(world: World) -> None:
        await world.send()
        await world.settle()
        waiting = asyncio.create_task(world.pull(1, sysFlag=SUSPEND, suspendTimeoutMillis=1000))
        await passes(0.5)
        world.replica.may_read = False
        assert (await waiting).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await world.pull()).code == ResponseCode.SERVICE_NOT_AVAILABLE
        asked = {"topic": "t", "queueId": 0}
        end = await world.ask(RequestCode.GET_MAX_OFFSET, asked)
        assert end.code == ResponseCode.SERVICE_NOT_AVAILABLE

    in_world(test)


def test_slaves_serve_reads_and_leave_offsets_to_the_master() -> None:
    async def test(world: World) -> None:
        await world.send(b"0")
        await world.settle()
        world.replica.role = "slave"
        answer = await world.pull(sysFlag=COMMIT_OFFSET, commitOffset=1)
        assert answer.code == ResponseCode.SUCCESS
        assert world.broker.tables.offset("g", "t", 0) is None
        world.replica.role = "master"
        await world.pull(sysFlag=COMMIT_OFFSET, commitOffset=1)
        assert world.broker.tables.offset("g", "t", 0) == 1

    in_world(test, config=READ_SLAVES)


def test_slaves_answer_no_pulls_unless_they_are_told_to() -> None:
    async def test(world: World) -> None:
        await world.send(b"0")
        await world.settle()
        world.replica.role = "slave"
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            asked = {"consumerGroup": "g", "topic": "t", "queueId": 0, "queueOffset": 0}
            answer = await world.ask(code, asked)
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert answer.remark == "[REJECTREQUEST]system busy, start flow control for a while"
        asked = {"topic": "t", "queueId": 0}
        assert (await world.ask(RequestCode.GET_MAX_OFFSET, asked)).ext == {"offset": "1"}

    in_world(test)


def test_a_slave_that_is_behind_its_reader_takes_no_offset_back() -> None:
    """Who heeds it would skip what it holds, or read again what it has."""

    async def test(world: World) -> None:
        await world.send()
        await world.settle()
        world.replica.role = "slave"
        for offset, queue in ((7, 0), (3, 1)):
            answer = await world.pull(offset, queue=queue)
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert answer.ext["nextBeginOffset"] == str(offset) and not answer.body
        assert (await world.pull(1)).code == ResponseCode.PULL_NOT_FOUND
        world.replica.role = "master"
        assert (await world.pull(7)).code == ResponseCode.PULL_OFFSET_MOVED

    in_world(test, config=READ_SLAVES)


def test_a_master_takes_no_offset_back_that_its_log_has() -> None:
    """After a restart it may have to wait before it lets anybody read to its end."""

    async def test(world: World) -> None:
        store = world.replica.store
        store.set_confirm_offset(0)
        for number in range(3):
            await world.send(b"%d" % number)
        world.broker.tables.put_offset("g", "t", 0, 2)
        world.broker.take_over()
        assert world.broker.tables.offset("g", "t", 0) == 2
        for offset in (0, 2, 3):
            waits = await world.pull(offset)
            assert waits.code == ResponseCode.PULL_NOT_FOUND
            assert waits.ext["nextBeginOffset"] == str(offset)
        assert (await world.pull(4)).code == ResponseCode.PULL_OFFSET_MOVED
        store.set_confirm_offset(store.log.max_offset)
        await world.settle()
        assert (await world.pull(2)).code == ResponseCode.SUCCESS
        world.broker.tables.put_offset("g", "t", 0, 9)
        world.broker.take_over()
        assert world.broker.tables.offset("g", "t", 0) == 3

    in_world(test)


def test_a_pull_of_what_has_gone_is_told_where_the_queue_begins() -> None:
    async def test(world: World) -> None:
        for _ in range(3):
            await world.send(bytes(600_000))  # each in a file of its own
        await world.settle()
        store = world.replica.store
        await store.log.flushed(store.log.max_offset)
        await store.remove_before(store.log.max_offset)
        moved = await world.pull(0)
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        assert (moved.ext["nextBeginOffset"], moved.ext["minOffset"]) == ("2", "2")
        assert (await world.pull(2)).code == ResponseCode.SUCCESS
        least = await world.ask(RequestCode.GET_MIN_OFFSET, {"topic": "t", "queueId": 0})
        assert least.ext["offset"] == "2"

    in_world(test)


def test_only_wanted_tags_are_sent() -> None:
    async def test(world: World) -> None:
        for tag in ("a", "b", "c"):
            await world.send(tag.encode(), properties=f"TAGS\x01{tag}\x02")
        await world.settle()
        answer = await world.pull(subscription="a || c")
        assert [one.message.body for one in messages_of(answer.body)] == [b"a", b"c"]
        nothing = await world.pull(subscription="d")
        assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert nothing.ext["nextBeginOffset"] == "3" and not nothing.body

    in_world(test)


def test_a_new_master_knows_the_topics_that_its_log_has() -> None:
    async def test(world: World) -> None:
        await world.send(b"0", topic="young")
        await world.settle()
        del world.broker.tables.topics["young"]  # the copy came before it was made
        world.broker.tables.put_offset("g", "young", 0, 5)  # and its tail was cut
        world.broker.take_over()
        assert (await world.pull(topic="young")).code == expected
        assert world.broker.tables.offset("g", "young", 0) == offset

    expected, offset = ResponseCode.SUCCESS, 1
    in_world(test)
    expected, offset = ResponseCode.TOPIC_NOT_EXIST, 5
    in_world(test, "KB-RKT-36", "KB-RKT-35")
