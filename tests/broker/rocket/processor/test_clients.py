"""Clients, offsets, locks, messages sent back, single messages, and what slaves copy."""

from __future__ import annotations

import asyncio
import zlib
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from shalott.broker.rocket.processor.client_requests import heart_beat
from shalott.broker.rocket.processor.clients import LOCK_EXPIRES_MS, QueueLocks, SubscriptionData
from shalott.broker.rocket.processor.delays import Arrivals, deliver_delayed
from shalott.broker.rocket.processor.tables import Tables
from shalott.broker.rocket.processor.topics import SubscriptionGroup, system_topics
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from tests.world.clock.turns import passes, until
from tests.world.rocket.broker import World, in_world, messages_of

pytestmark = pytest.mark.unit

QUEUE = {"topic": "t", "queueId": 0}


def heartbeat(client_id: str, *, enums: bool = True) -> bytes:
    """Java writes names of enumerations, C++ their numbers."""
    consumer: dict[str, Any] = {
        "groupName": "g",
        "consumeType": "CONSUME_PASSIVELY" if enums else 1,
        "messageModel": "CLUSTERING" if enums else 1,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET" if enums else 4,
        "subscriptionDataSet": [{"topic": "t", "subString": "*", "subVersion": 1}],
        "unitMode": False,
    }
    body = {"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer]}
    return msgspec.json.encode(body)


async def consumers(world: World) -> list[str]:
    answer = await world.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    return [] if answer.code else list(msgspec.json.decode(answer.body)["consumerIdList"])


def test_members_of_a_group_are_told_when_it_changes() -> None:
    async def test(world: World) -> None:
        await world.ask(RequestCode.HEART_BEAT, body=heartbeat("c1"))
        assert await consumers(world) == ["c1"]
        assert "%RETRY%g" in world.broker.tables.topics
        second = world.new_client()
        beat = Command(code=RequestCode.HEART_BEAT, body=heartbeat("c2", enums=False))
        await second.invoke(world.address, beat, 1000)
        assert await consumers(world) == ["c1", "c2"]
        await until(lambda: [push for push in world.pushed if push.code == 40])
        told = [push for push in world.pushed if push.code == 40]
        assert len(told) == 1 and told[0].ext == {"consumerGroup": "g"} and told[0].is_oneway
        await world.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "g"})
        assert await consumers(world) == ["c2"]
        await until(lambda: len(world.pushed) == 2)
        await second.close()
        await until(lambda: world.broker.clients.client_ids("g") == [])
        assert await consumers(world) == []
        assert world.broker.clients.consumer("g") is None

    in_world(test)


def test_offsets_of_groups_and_ends_of_queues() -> None:
    async def test(world: World) -> None:
        ours = {**QUEUE, "consumerGroup": "g"}
        unknown = await world.ask(RequestCode.QUERY_CONSUMER_OFFSET, ours)
        assert unknown.code == ResponseCode.QUERY_NOT_FOUND
        earliest = await world.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, QUEUE)
        assert earliest.ext["timestamp"] == "-1"
        for _ in range(4):
            await world.send()
            await passes(1)
        first = await world.ask(RequestCode.QUERY_CONSUMER_OFFSET, ours)
        assert first.ext["offset"] == "0"  # it begins with the first message
        strict = {**ours, "setZeroIfNotFound": "false"}
        none = await world.ask(RequestCode.QUERY_CONSUMER_OFFSET, strict)
        assert none.code == ResponseCode.QUERY_NOT_FOUND
        await world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ours | {"commitOffset": 3})
        assert (await world.ask(RequestCode.QUERY_CONSUMER_OFFSET, ours)).ext["offset"] == "3"
        assert (await world.ask(RequestCode.GET_MAX_OFFSET, QUEUE)).ext["offset"] == "4"
        assert (await world.ask(RequestCode.GET_MIN_OFFSET, QUEUE)).ext["offset"] == "0"
        earliest = await world.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, QUEUE)
        start_ms = int(earliest.ext["timestamp"])
        found = [
            (
                await world.ask(
                    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, QUEUE | {"timestamp": start_ms + ms}
                )
            ).ext["offset"]
            for ms in (-5, 0, 500, 1500, 60_000)
        ]
        assert found == ["0", "0", "1", "2", "4"]

    in_world(test)


def test_a_queue_is_locked_by_one_client_until_it_is_silent_for_a_minute() -> None:
    locks = QueueLocks()
    queues = [("t", 0), ("t", 1)]
    assert locks.lock("g", "c1", queues[:1], 0) == [0]
    assert locks.lock("g", "c2", queues, 10) == [1]
    assert locks.lock("other", "c2", queues, 10) == [0, 1]
    assert locks.lock("g", "c1", queues[:1], 50_000) == [0]
    assert locks.lock("g", "c2", queues[:1], 50_000 + LOCK_EXPIRES_MS) == []
    assert locks.lock("g", "c2", queues[:1], 50_001 + LOCK_EXPIRES_MS) == [0]
    locks.unlock("g", "c1", queues)
    assert locks.lock("g", "c1", queues[:1], 50_002 + LOCK_EXPIRES_MS) == []
    locks.unlock("g", "c2", queues)
    assert locks.lock("g", "c1", queues, 50_002 + LOCK_EXPIRES_MS) == [0, 1]


def test_locks_over_the_wire() -> None:
    async def test(world: World) -> None:
        queue = {"topic": "t", "brokerName": "shalott", "queueId": 0}

        def wanted(client: str) -> bytes:
            body = {"consumerGroup": "g", "clientId": client, "mqSet": [queue]}
            return msgspec.json.encode(body)

        first = await world.ask(RequestCode.LOCK_BATCH_MQ, body=wanted("c1"))
        assert msgspec.json.decode(first.body) == {"lockOKMQSet": [queue]}
        second = await world.ask(RequestCode.LOCK_BATCH_MQ, body=wanted("c2"))
        assert msgspec.json.decode(second.body) == {"lockOKMQSet": []}
        await world.ask(RequestCode.UNLOCK_BATCH_MQ, body=wanted("c1"))
        third = await world.ask(RequestCode.LOCK_BATCH_MQ, body=wanted("c2"))
        assert msgspec.json.decode(third.body) == {"lockOKMQSet": [queue]}

    in_world(test)


def test_a_slave_locks_no_queue() -> None:
    """A client with an old route asks a former master: its lock would be a second one."""

    async def test(world: World) -> None:
        world.replica.role = "slave"
        queue = {"topic": "t", "brokerName": "shalott", "queueId": 0}
        body = msgspec.json.encode({"consumerGroup": "g", "clientId": "c", "mqSet": [queue]})
        answer = await world.ask(RequestCode.LOCK_BATCH_MQ, body=body)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        world.replica.role = "master"
        answer = await world.ask(RequestCode.LOCK_BATCH_MQ, body=body)
        assert msgspec.json.decode(answer.body) == {"lockOKMQSet": [queue]}

    in_world(test)


def test_a_message_is_found_by_its_place_and_by_its_key() -> None:
    async def test(world: World) -> None:
        sent = await world.send(b"x", properties="KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02")
        await world.send(b"y")
        await world.settle()
        offset = int(sent.ext["msgId"][16:], 16)
        seen = await world.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
        (stored,) = messages_of(seen.body)
        assert stored.message.body == b"x" and stored.body_crc == zlib.crc32(b"x") & 0x7FFFFFFF
        for nowhere in (offset + 1, 1 << 30, -1):
            answer = await world.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": nowhere})
            assert answer.code == ResponseCode.SYSTEM_ERROR
        await world.replica.store.reader.indexed(world.broker.store.dispatched_offset)
        for key in ("k2", "u"):
            found = await world.ask(RequestCode.QUERY_MESSAGE, {"topic": "t", "key": key})
            assert [one.message.body for one in messages_of(found.body)] == [b"x"]
        missing = await world.ask(RequestCode.QUERY_MESSAGE, {"topic": "t", "key": "k"})
        assert missing.code == ResponseCode.QUERY_NOT_FOUND

    in_world(test)


def test_a_message_sent_back_comes_again_later_and_ends_among_the_dead_letters() -> None:
    async def test(world: World) -> None:
        delivering = asyncio.create_task(deliver_delayed(world.broker))
        sent = await world.send(b"x", properties="TAGS\x01a\x02")
        await world.settle()
        back = {"offset": int(sent.ext["msgId"][16:], 16), "group": "g", "delayLevel": 0}
        answer = await world.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert answer.code == ResponseCode.SUCCESS
        await passes(8)
        assert await world.bodies("%RETRY%g") == []
        await passes(4)
        pulled = await world.pull(topic="%RETRY%g")
        (again,) = messages_of(pulled.body)
        assert again.message.body == b"x" and again.message.reconsume_times == 1
        assert "RETRY_TOPIC\x01t\x02" in again.message.properties
        assert "TAGS\x01a\x02" in again.message.properties
        last = {**back, "offset": again.physical_offset, "maxReconsumeTimes": 1}
        await world.ask(RequestCode.CONSUMER_SEND_MSG_BACK, last)
        assert await world.bodies("%DLQ%g") == [b"x"]
        delivering.cancel()
        await asyncio.gather(delivering, return_exceptions=True)

    in_world(test)


def test_a_heartbeat_that_comes_after_its_connections_end_makes_nobody_a_member() -> None:
    async def test(world: World) -> None:
        caller = SimpleNamespace(closed=asyncio.Event())
        caller.closed.set()
        beat = Command(code=RequestCode.HEART_BEAT, body=heartbeat("ghost"))
        await heart_beat(world.broker, beat, caller)  # type: ignore[arg-type]
        assert await consumers(world) == []

    in_world(test)


def test_what_another_master_stored_by_a_clock_ahead_counts_from_when_it_is_seen() -> None:
    """And what this one stores behind it has its whole delay."""
    arrivals = Arrivals(1000)
    arrivals.looked(2, 70_000)  # two messages of a master whose clock was three seconds ahead
    assert arrivals.stored_ms(0, 73_000, 70_000) == 70_000
    arrivals.looked(2, 70_800)
    arrivals.looked(3, 70_900)  # one of our own
    assert arrivals.stored_ms(0, 73_000, 70_900) == 70_000
    assert arrivals.stored_ms(1, 73_200, 71_000) == 70_000
    assert arrivals.stored_ms(2, 70_850, 71_000) == 70_850


def test_a_masters_own_clock_that_is_set_changes_no_delay() -> None:
    arrivals = Arrivals(1000)
    arrivals.looked(0, 1000)
    for end, now_ms in ((1, 1100), (2, 1200), (2, 1300)):
        arrivals.looked(end, now_ms)
    for wrong_ms in (-60_000, 0, 60_000):  # what the clock was set by since they were stored
        assert 1000 <= arrivals.stored_ms(0, 1050 + wrong_ms, 1300) <= 1100
    assert 1100 <= arrivals.stored_ms(1, 1150 - 60_000, 1300) <= 1200


def test_looks_are_remembered_as_far_apart_as_a_hundredth_of_the_delay() -> None:
    arrivals = Arrivals(60_000)
    for number in range(3000):
        arrivals.looked(number, number * 50)
    assert len(arrivals._looks) == 250
    assert arrivals.stored_ms(2500, 0, 150_000) == 2496 * 50
    assert len(arrivals._looks) < 50


@pytest.mark.parametrize("times", [2, 3])
def test_what_an_orderly_consumer_retried_too_often_is_a_dead_letter_at_once(times: int) -> None:
    """It sends to the retry topic, with the delay of a retry; dead letters are not delayed."""

    async def test(world: World) -> None:
        retry = {"reconsumeTimes": times, "maxReconsumeTimes": 2}
        answer = await world.send(b"x", "%RETRY%g", 0, properties="DELAY\x018\x02", **retry)
        assert answer.code == ResponseCode.SUCCESS
        assert await world.bodies("%RETRY%g") == []
        assert await world.bodies("%DLQ%g") == ([b"x"] if times > 2 else [])

    in_world(test)


def test_dead_letters_have_one_queue_however_many_the_retries_have() -> None:
    async def test(world: World) -> None:
        world.broker.tables.groups["g"] = SubscriptionGroup(group_name="g", retry_queue_nums=4)
        for number in range(8):
            sent = await world.send(b"%d" % number)
            await world.settle()
            offset = int(sent.ext["msgId"][16:], 16)
            back = {"offset": offset, "group": "g", "delayLevel": -1}
            await world.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert len(await world.bodies("%DLQ%g")) == 8

    in_world(test)


def test_a_slave_can_copy_all_tables_and_they_outlive_the_node() -> None:
    async def test(world: World) -> None:
        await world.send()
        await world.ask(RequestCode.HEART_BEAT, body=heartbeat("c1"))
        ours = {**QUEUE, "consumerGroup": "g", "commitOffset": 1}
        await world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ours)
        topics = await world.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        table = msgspec.json.decode(topics.body)
        ours = [topic.topic_name for topic in system_topics(world.broker.config)]
        assert sorted(table["topicConfigTable"]) == sorted({"%RETRY%g", "t", *ours})
        assert table["dataVersion"]["stateVersion"] == 1
        offsets = await world.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert msgspec.json.decode(offsets.body)["offsetTable"] == {"t@g": {"0": 1}}
        groups = await world.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert list(msgspec.json.decode(groups.body)["subscriptionGroupTable"]) == ["g"]
        await world.broker.tables.save()
        again = await Tables.open(world.env, own=[])
        assert again.topic_table() == world.broker.tables.topic_table()
        assert again.offset("g", "t", 0) == 1 and list(again.groups) == ["g"]

    in_world(test)


def test_operators_are_told_what_a_broker_is() -> None:
    async def test(world: World) -> None:
        await world.send()
        info = await world.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert int(msgspec.json.decode(info.body)["table"]["commitLogMaxOffset"]) > 0
        config = await world.ask(RequestCode.GET_BROKER_CONFIG)
        assert b"brokerName=shalott\n" in config.body
        refused = await world.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"a=b")
        assert refused.code == ResponseCode.NO_PERMISSION
        ha = await world.ask(RequestCode.GET_BROKER_HA_STATUS)
        assert msgspec.json.decode(ha.body) == {"master": True}

    in_world(test)


def test_numbers_may_be_text() -> None:
    """As the C++ client sends them."""
    said = b'{"topic": "t", "codeSet": ["-7"], "subVersion": "1700000000000"}'
    data = msgspec.json.decode(said, type=SubscriptionData)
    assert (data.code_set, data.sub_version) == (("-7",), "1700000000000")
