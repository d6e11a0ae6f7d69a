"""The same requests at RocketMQ itself and at our broker: what both answer and store.

Both register at an original's name server, which is where the clients find them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

from shalott.broker.rocket.config import parse_address
from shalott.broker.rocket.remoting.command import RequestCode, ResponseCode
from shalott.broker.rocket.remoting.headers import CreateTopic, SendMessageV2
from shalott.broker.rocket.remoting.java_json import decode_java_json
from shalott.broker.rocket.remoting.route_data import ClusterInfo
from shalott.clients.rocketmq.rocket_client import Pulled, Queue, Refused, RocketClient
from shalott.clients.rocketmq.stored_messages import encode_properties
from tests.world.clock.turns import answered
from tests.world.rocket.original import JAVA, OURS, Both, NoFields

pytestmark = pytest.mark.local

PATIENCE_S = 30.0
# Of every message that an original stores, and of ours none.
EVERYWHERE = ("MSG_REGION", "CLUSTER", "TRACE_ON")


@contextlib.asynccontextmanager
async def client_of(both: Both) -> Any:
    client = RocketClient([both.name_server], dial=parse_address, group="g", timeout_ms=10_000)
    try:
        yield client
    finally:
        await client.close()


async def eventually(look: Any) -> Any:
    """What it gives as soon as that is something."""
    return await answered(look, step_s=0.1, within_s=PATIENCE_S)


async def route_of(client: RocketClient, topic: str, group: str) -> Any:
    async def look() -> Any:
        with contextlib.suppress(Refused):
            route = await client.route(topic)
            if route.master(group):
                return route
        return None

    return await eventually(look)


async def bodies(client: RocketClient, address: str, queue: Queue, count: int) -> Pulled:
    """The first ``count`` messages, as soon as they are there."""

    async def look() -> Pulled | None:
        with contextlib.suppress(Refused):
            pulled = await client.pull(address, queue, 0, wait_ms=200)
            return pulled if len(pulled.messages) >= count else None
        return None

    found: Pulled = await eventually(look)
    return found


def test_an_originals_name_server_takes_our_fresh_broker(both: Both) -> None:
    async def body() -> None:
        async with client_of(both) as client:
            wanted = {name: {0: address} for name, address in both.brokers.items()}

            async def are_known() -> bool:
                answer = await client.ask(
                    both.name_server, RequestCode.GET_BROKER_CLUSTER_INFO, NoFields()
                )
                table = decode_java_json(answer.body, ClusterInfo).broker_addr_table
                return {name: data.broker_addrs for name, data in table.items()} == wanted

            await eventually(are_known)

    asyncio.run(body())
    tables = {
        name: {
            topic.replace(name, "GROUP"): (each.read_queue_nums, each.perm)
            for topic, each in topics.items()
            if topic != name
        }
        for name, topics in both.fresh.items()
    }
    assert tables[OURS] == tables[JAVA]


def test_topics_are_made_and_refused_alike(both: Both) -> None:
    names = {
        **{name: name for name in ("made", "%RETRY%x", "bad topic", "TBW102", "rmq_sys_foo")},
        **{name: name for name in ("SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC")},
        "its own": "{}",
        "its replies": "{}_REPLY_TOPIC",
    }

    async def body() -> None:
        async with client_of(both) as client:
            said = {}
            for group, address in both.brokers.items():
                said[group] = {
                    key: (
                        await client.ask(
                            address,
                            RequestCode.UPDATE_AND_CREATE_TOPIC,
                            CreateTopic(
                                topic=name.format(group), read_queue_nums=2, write_queue_nums=2
                            ),
                        )
                    ).code
                    for key, name in names.items()
                }
            assert said[OURS] == said[JAVA]
            assert said[JAVA]["made"] == ResponseCode.SUCCESS
            assert said[JAVA]["its own"] == ResponseCode.INVALID_PARAMETER
            for group, address in both.brokers.items():
                await client.create_topic(address, f"of-{group}", 3)
                route = await route_of(client, f"of-{group}", group)
                assert [data.write_queue_nums for data in route.queue_datas] == [3]
                queue = Queue(f"of-{group}", group, 2)
                sent = await client.send(address, queue, b"hello", unique_key="K")
                pulled = await bodies(client, address, queue, 1)
                assert [one.body for one in pulled.messages] == [b"hello"]
                # An original looks at who waits every five seconds: that is no silence.
                late = await client.pull(address, queue, sent.queue_offset + 1, wait_ms=100)
                assert late.code == ResponseCode.PULL_NOT_FOUND

    asyncio.run(body())


def test_messages_wait_for_their_time_alike(both: Both) -> None:
    async def body() -> None:
        async with client_of(both) as client:
            stored, said, waited = {}, {}, {}
            for group, address in both.brokers.items():
                said[group] = await _send_timers(client, address, f"timed-{group}", group)
                pulled = await bodies(client, address, Queue(f"timed-{group}", group, 0), 7)
                stored[group] = {
                    one.properties["UNIQ_KEY"]: frozenset(set(one.properties) - set(EVERYWHERE))
                    for one in pulled.messages
                }
                waited[group] = {
                    (key := one.properties["UNIQ_KEY"]): one.stored_ms - said[group][key][2]
                    for one in pulled.messages
                }
            assert _answers(said[OURS]) == _answers(said[JAVA])
            # Of one with a level ours keeps less.
            assert stored[OURS].pop("both") < stored[JAVA].pop("both")
            assert stored[OURS] == stored[JAVA]
            for group in both.brokers:
                for key in ("delay-ms", "delay-sec", "deliver-ms"):
                    assert -20 <= waited[group][key] < 2500, (group, key, waited)

    asyncio.run(body())


def _answers(said: dict[str, tuple[int, bool, int]]) -> dict[str, tuple[int, bool]]:
    return {key: (code, recallable) for key, (code, recallable, _) in said.items()}


async def _send_timers(
    client: RocketClient, address: str, topic: str, group: str
) -> dict[str, tuple[int, bool, int]]:
    """By key: code, whether there is a recall handle, and when it is due."""
    await client.create_topic(address, topic, 1)
    now = int(time.time() * 1000)
    wanted = {
        "delay-ms": ({"TIMER_DELAY_MS": "1500"}, 1500),
        "delay-sec": ({"TIMER_DELAY_SEC": "2"}, 2000),
        "deliver-ms": ({"TIMER_DELIVER_MS": str(now + 1700)}, 1700),
        "past": ({"TIMER_DELIVER_MS": str(now - 1000)}, 0),
        "negative": ({"TIMER_DELAY_SEC": "-3"}, 0),
        "both": ({"TIMER_DELAY_SEC": "1000", "DELAY": "1"}, 1000),
        "first": ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "999999"}, 1000),
        "none": ({"TIMER_DELIVER_MS": "x"}, 0),
        "far": ({"TIMER_DELAY_SEC": str(3 * 86400 + 5)}, 0),
        "revokes-past": ({"TIMER_DELIVER_MS": str(now - 1), "TIMER_DEL_UNIQKEY": "t+k"}, 0),
    }
    said: dict[str, tuple[int, bool, int]] = {}
    for key, (properties, due) in wanted.items():
        header = SendMessageV2(
            producer_group="p",
            topic=topic,
            queue_id=0,
            born_timestamp=now,
            properties=encode_properties({"UNIQ_KEY": key, **properties}),
        )
        begins_ms = now if "TIMER_DELIVER_MS" in properties else int(time.time() * 1000)
        answer = await client.ask(address, RequestCode.SEND_MESSAGE_V2, header, body=b"m")
        handle = answer.ext.get("recallHandle", "")
        said[key] = (answer.code, bool(handle), begins_ms + due)
    return said


def test_dead_letters_of_orderly_consumers_are_there_at_once_alike(both: Both) -> None:
    async def body() -> None:
        async with client_of(both) as client:
            found = {}
            for group, address in both.brokers.items():
                retry, dead = (
                    Queue(f"%RETRY%{group}-c", group, 0),
                    Queue(f"%DLQ%{group}-c", group, 0),
                )
                for key, times in (("dead", 4), ("alive", 3)):
                    await client.send(
                        address,
                        retry,
                        b"m",
                        unique_key=key,
                        properties={"DELAY": "1", "RETRY_TOPIC": "t"},
                        reconsumed=(times, 3),
                    )
                [letter] = (await bodies(client, address, dead, 1)).messages
                [retried] = (await bodies(client, address, retry, 1)).messages
                assert letter.stored_ms <= retried.stored_ms - 900
                found[group] = [
                    (one.properties["UNIQ_KEY"], one.reconsumed) for one in (letter, retried)
                ]
                properties = {k: v for k, v in letter.properties.items() if k not in EVERYWHERE}
                found[group].append(properties)
            assert found[OURS] == found[JAVA]
            assert found[JAVA][2]["DELAY"] == "-1"

    asyncio.run(body())
