"""What administrators make, delete and are told: topics with their attributes, groups, lags and
clients; and that a deleted topic stays away, whatever is built again from the log.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.processor.tables import Tables
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from tests.world.clock.virtual import run
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import Events, LoopClock
from tests.world.rocket.broker import STORE, World, in_world, messages_of, world

pytestmark = pytest.mark.unit


async def make(world: World, topic: str = "t", queues: int = 1, **more: Any) -> Command:
    wanted = {"topic": topic, "readQueueNums": queues, "writeQueueNums": queues}
    return await world.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted | more)


async def attributes_of(world: World, topic: str = "t") -> dict[str, str]:
    answer = await world.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic, "lo": "true"})
    return dict(msgspec.json.decode(answer.body)["attributes"])


async def told(world: World, code: RequestCode, **fields: Any) -> Any:
    answer = await world.ask(code, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.body


# -- attributes ------------------------------------------------------------------------------------


def test_attributes_of_a_topic_are_kept_and_changed() -> None:
    async def body(world: World) -> None:
        await make(world, attributes="+message.type=FIFO,+cleanup.policy=DELETE")
        assert await attributes_of(world) == {"message.type": "FIFO", "cleanup.policy": "DELETE"}
        await make(world, queues=2)
        assert len(await attributes_of(world)) == 2  # a change of queues is none of them
        await make(world, attributes="+message.type=DELAY")
        assert (await attributes_of(world))["message.type"] == "DELAY"
        await make(world, attributes="-message.type")
        assert await attributes_of(world) == {"cleanup.policy": "DELETE"}
        await world.broker.tables.save()
        again = await Tables.open(world.env, own=())
        assert again.topics["t"].attributes == {"cleanup.policy": "DELETE"}

    in_world(body)


# The original's words, as 5.3.3 says them.
REFUSED = {
    "+bogus=1": "unsupported key: bogus",
    "+message.type=X": "value is not in set: "
    "[UNSPECIFIED, TRANSACTION, FIFO, MIXED, DELAY, NORMAL]",
    "+cleanup.policy=DELETE": "attempt to update an unchangeable attribute. key: cleanup.policy",
    "message.type=FIFO": "add/alter attribute format is wrong: message.type",
    "+message.type": "delete attribute format is wrong: +message.type",
    "+reserve.time=-3": "value is not in range(-1, 9223372036854775807)",
    "+message.type=FIFO,+message.type=NORMAL": "key duplication: +message.type",
}


@pytest.mark.parametrize("attributes", REFUSED)
def test_what_is_no_change_of_attributes_is_refused(attributes: str) -> None:
    async def body(world: World) -> None:
        await make(world)
        answer = await make(world, attributes=attributes)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, REFUSED[attributes])
        assert await attributes_of(world) == {}

    in_world(body)


def test_a_topic_is_not_made_with_an_attribute_to_remove() -> None:
    async def body(world: World) -> None:
        answer = await make(world, attributes="-message.type")
        assert "only add attribute is supported while creating topic" in answer.remark
        answer = await world.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST

    in_world(body)


# -- deletion --------------------------------------------------------------------------------------


async def delete(world: World, topic: str = "t") -> Command:
    return await world.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})


async def restarted(disk: MemoryDisk) -> MessageStore:
    env = Env("n1", 2, LoopClock(), seeded_rng(1, 1), disk, Events("n1", []))
    return await MessageStore.open(env, STORE)


def test_a_deleted_topic_does_not_come_back() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        async with world(disk=disk) as made:
            await make(made)
            for number in range(3):
                await made.send(b"old %d" % number)
            await made.send(b"kept", topic="other")
            await made.settle()
            made.broker.tables.put_offset("g", "t", 0, 2)
            assert (await delete(made)).code == ResponseCode.SUCCESS
            assert "t" not in made.broker.tables.topics and not made.broker.tables.offsets
            made.broker.learn_topics()
            assert "t" not in made.broker.tables.topics
            assert await delete(made) and (await delete(made, "TBW102")).code == 29
        for lost in ((), ("checkpoint",), ("checkpoint", "consumequeue/other/0/" + "0" * 20)):
            for name in lost:
                await disk.remove(name)
            store = await restarted(disk)
            assert {topic for topic, _ in store.reader.queues()} == {"other"}
            assert store.reader.queue_range("other", 0) == (0, 1)
            await store.close()

    run(body())


def test_a_topic_that_is_made_again_begins_anew() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        async with world(disk=disk) as made:
            await make(made)
            for _ in range(3):
                await made.send(b"old")
            await delete(made)  # not all of it need be dispatched
            await make(made)
            answer = await made.send(b"new")
            assert answer.ext["queueOffset"] == "0"
            assert await made.bodies() == [b"new"]
        await disk.remove("checkpoint")
        store = await restarted(disk)
        assert store.reader.queue_range("t", 0) == (0, 1)
        await store.close()

    run(body())


def test_a_slave_that_hears_late_has_what_came_since() -> None:
    async def body(world: World) -> None:
        await make(world)
        for _ in range(3):
            await world.send(b"old")
        end = world.broker.store.log.max_offset
        await delete(world)
        await make(world)
        await world.send(b"new")
        await world.settle()
        log = world.broker.store.log
        slave = await restarted(MemoryDisk())
        slave.append_raw(0, await log.read(0, log.max_offset))
        await slave.dispatched(log.max_offset)
        assert slave.reader.queue_range("t", 0) == (0, 3)  # the new one has the old one's place
        copied = await told(world, RequestCode.GET_ALL_TOPIC_CONFIG)
        assert msgspec.json.decode(copied)["deletedTopics"] == {"t": end}
        await slave.deleted.add({"t": end})
        await slave.dispatched(log.max_offset)
        got = await slave.reader.get("t", 0, 0, max_messages=9, max_bytes=1 << 20)
        assert [one.message.body for one in messages_of(b"".join(got.messages))] == [b"new"]
        await slave.close()

    in_world(body)


def test_what_another_master_writes_is_not_deleted() -> None:
    async def body(world: World) -> None:
        await make(world)
        await world.send(b"old")
        await world.settle()
        await world.broker.store.deleted.add({"t": 1 << 40})  # of a longer log than this one
        await world.broker.store.deleted.limit(world.broker.store.log.max_offset)
        await world.send(b"new")
        assert [one async for one in _all(world)] == [b"new"]

    async def _all(world: World) -> Any:
        await world.settle()
        first, _ = world.broker.store.reader.queue_range("t", 0)
        for one in messages_of((await world.pull(first)).body):
            yield one.message.body

    in_world(body)


# -- groups ----------------------------------------------------------------------------------------


def test_groups_are_made_whole_and_deleted_with_their_offsets() -> None:
    async def body(world: World) -> None:
        wanted = {"groupName": "g", "retryMaxTimes": 5, "consumeTimeoutMinute": 3}
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await world.ask(code, body=msgspec.json.encode(wanted))).code == 0
        found = await told(world, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")
        assert wanted.items() <= msgspec.json.decode(found).items()
        world.broker.tables.put_offset("g", "t", 0, 2)
        world.broker.tables.put_offset("other", "t", 0, 2)
        await told(world, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", removeOffset="true")
        assert "g" not in world.broker.tables.groups
        assert list(world.broker.tables.offsets) == ["t@other"]

    in_world(body)


def test_a_slave_refuses_changes() -> None:
    async def body(world: World) -> None:
        world.replica.role = "slave"
        assert (await make(world)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await delete(world)).code == ResponseCode.SERVICE_NOT_AVAILABLE

    in_world(body)


# -- what is told ----------------------------------------------------------------------------------


def rows(body: bytes) -> list[dict[str, int]]:
    """Of an offsetTable, whose keys are objects."""
    text = body.replace(b'"topic":"t"}:', b'"topic":"t"},')
    inner = text[text.index(b"{{") + 1 : text.index(b"}}") + 1]
    return [row for row in msgspec.json.decode(b"[" + inner + b"]") if "topic" not in row]


def test_a_group_is_told_how_far_it_is_behind() -> None:
    async def body(world: World) -> None:
        await make(world)
        for _ in range(3):
            await world.send()
        await world.settle()
        world.broker.tables.put_offset("g", "t", 0, 1)
        for topic in ("", "t"):
            found = await told(world, RequestCode.GET_CONSUME_STATS, consumerGroup="g", topic=topic)
            [row] = rows(found)
            assert (row["brokerOffset"], row["consumerOffset"]) == (3, 1)
            assert row["lastTimestamp"] > 0
        assert b'"totalDiff":0' in await told(world, RequestCode.GET_BROKER_CONSUME_STATS)
        world.broker.tables.group("g")
        assert b'"totalDiff":2' in await told(world, RequestCode.GET_BROKER_CONSUME_STATS)
        [row] = rows(await told(world, RequestCode.GET_TOPIC_STATS_INFO, topic="t"))
        assert (row["minOffset"], row["maxOffset"]) == (0, 3)
        found = await told(world, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="t")
        assert found == b'{"groupList":["g"]}'

    in_world(body)


def test_units_of_a_queue_are_told_and_a_delayed_one_has_its_due_time() -> None:
    async def body(world: World) -> None:
        await world.send(properties="DELAY\x013\x02")
        await world.settle()
        where = {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": 2, "index": 0, "count": 5}
        [unit] = msgspec.json.decode(await told(world, RequestCode.QUERY_CONSUME_QUEUE, **where))[
            "queueData"
        ]
        stored = (await world.pull(0, "SCHEDULE_TOPIC_XXXX", 2)).body
        assert unit["physicSize"] == len(stored)
        assert unit["tagsCode"] == messages_of(stored)[0].store_ms + 10_000

    in_world(body)


def test_clients_of_groups_are_told() -> None:
    async def body(world: World) -> None:
        answer = await world.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        consumer = {
            "groupName": "g",
            "messageModel": 1,
            "subscriptionDataSet": [{"topic": "t", "subString": "a || b"}],
        }
        beat = {"clientID": "c1", "consumerDataSet": [consumer]}
        beat["producerDataSet"] = [{"groupName": "p"}]
        await world.ask(RequestCode.HEART_BEAT, body=msgspec.json.encode(beat))
        found = msgspec.json.decode(
            await told(world, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
        )
        assert found["messageModel"] == "CLUSTERING"
        assert found["subscriptionTable"]["t"]["subString"] == "a || b"
        [client] = found["connectionSet"]
        assert client["clientId"] == "c1" and client["clientAddr"].startswith("127.")
        found = await told(world, RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="p")
        assert msgspec.json.decode(found)["connectionSet"] == [client]
        data = msgspec.json.decode(await told(world, RequestCode.GET_ALL_PRODUCER_INFO))["data"]
        assert [one["clientId"] for one in data["p"]] == ["c1"]

    in_world(body)
