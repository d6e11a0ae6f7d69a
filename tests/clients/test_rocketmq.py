"""The RocketMQ client against a fake broker and a real name server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shalott.broker.rocket.config import parse_address
from shalott.broker.rocket.remoting.command import RequestCode, ResponseCode, response
from shalott.clients.rocketmq.rocket_client import NotSent, Queue, Refused, RocketClient, Unknown
from tests.world.clock.turns import passes
from tests.world.rocket.scripted_broker import BROKER, NAME_SERVER, World, in_world, pull_answer

pytestmark = pytest.mark.unit

NOBODY = "127.0.0.1:1"
QUEUE = Queue("T", "g", 2)


def with_client(test: Callable[[World, RocketClient], Awaitable[None]], *name_servers: str) -> None:
    async def main(world: World) -> None:
        client = RocketClient(name_servers or [NAME_SERVER], dial=parse_address, group="G")
        try:
            await test(world, client)
        finally:
            await client.close()

    in_world(main)


def test_the_route_comes_from_the_first_name_server_that_answers() -> None:
    async def test(world: World, client: RocketClient) -> None:
        route = await client.route("T")
        assert route.master("g") == BROKER
        with pytest.raises(Refused) as refusal:
            await client.route("U")
        assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST
        assert str(refusal.value).startswith("17 TOPIC_NOT_EXIST: ")

    with_client(test, NOBODY, NAME_SERVER)


def test_without_a_name_server_there_is_no_route() -> None:
    async def test(world: World, client: RocketClient) -> None:
        with pytest.raises(NotSent):
            await client.route("T")

    with_client(test, NOBODY)


def test_a_topic_that_is_not_there_yet_has_the_route_of_the_template() -> None:
    async def test(world: World, client: RocketClient) -> None:
        with pytest.raises(Refused):
            await client.send_route("U")
        await world.register(topic="TBW102", epoch=1)
        assert (await client.send_route("U")).master("g") == BROKER
        assert (await client.send_route("T")).queue_datas[0].broker_name == "g"

    with_client(test)


def test_queues_take_turns_and_only_those_that_may_be_written() -> None:
    async def test(world: World, client: RocketClient) -> None:
        route = await client.route("T")
        chosen = [client.next_queue("T", route).queue_id for _ in range(6)]
        assert chosen == [0, 1, 2, 3, 0, 1]
        world.name_server.routes.set_write_perm("g", allowed=False)
        with pytest.raises(NotSent):
            client.next_queue("T", await client.route("T"))

    with_client(test)


def test_what_is_sent_is_pulled_again() -> None:
    async def test(world: World, client: RocketClient) -> None:
        sent = await client.send(BROKER, QUEUE, b"one", unique_key="K1", properties={"TAGS": "a"})
        assert (sent.code, sent.message_id, sent.queue_offset) == (0, "id0", 0)
        await client.send(BROKER, QUEUE, b"two", unique_key="K2")
        pulled = await client.pull(BROKER, QUEUE, 0)
        assert (pulled.code, pulled.next_offset) == (ResponseCode.SUCCESS, 2)
        first, second = pulled.messages
        assert (first.topic, first.queue_id, first.queue_offset) == ("T", 2, 0)
        assert (first.body, first.is_sound, first.offset) == (b"one", True, 0)
        assert first.properties == {"UNIQ_KEY": "K1", "TAGS": "a"}
        assert (second.body, second.offset, second.stored_ms) == (b"two", 100, 1001)

    with_client(test)


def test_the_header_of_a_send_has_one_letter_a_field() -> None:
    async def test(world: World, client: RocketClient) -> None:
        await client.send(BROKER, QUEUE, b"one", unique_key="K1")
        [request] = world.broker.requests
        assert request.code == RequestCode.SEND_MESSAGE_V2
        born = request.ext.pop("g")
        assert born.isdecimal()
        assert request.ext == {
            "a": "G",
            "b": "T",
            "c": "TBW102",
            "d": "4",
            "e": "2",
            "f": "0",
            "h": "0",
            "i": "UNIQ_KEY\x01K1\x02",
            "j": "0",
            "k": "false",
            "m": "false",
            "n": "g",
        }

    with_client(test)


@pytest.mark.parametrize("code", [10, 11, 12])
def test_what_is_stored_and_no_more_is_told_as_such(code: int) -> None:
    async def test(world: World, client: RocketClient) -> None:
        world.broker.answers = [response(code, "slow")]
        sent = await client.send(BROKER, QUEUE, b"one", unique_key="K1")
        assert (sent.code, sent.queue_offset) == (code, 0)

    with_client(test)


def test_how_a_send_can_fail() -> None:
    async def test(world: World, client: RocketClient) -> None:
        world.broker.answers = [response(14, "not the master"), response(999), None]
        with pytest.raises(Refused, match="14 SERVICE_NOT_AVAILABLE: not the master"):
            await client.send(BROKER, QUEUE, b"one", unique_key="K1")
        with pytest.raises(Refused, match="999"):
            await client.send(BROKER, QUEUE, b"one", unique_key="K1")
        with pytest.raises(Unknown):
            await client.send(BROKER, QUEUE, b"one", unique_key="K1")
        with pytest.raises(NotSent):
            await client.send(NOBODY, QUEUE, b"one", unique_key="K1")
        with pytest.raises(NotSent):
            await client.send(BROKER, QUEUE, bytes(16 << 20), unique_key="K1")

    with_client(test)


def test_a_pull_waits_for_the_first_message() -> None:
    async def test(world: World, client: RocketClient) -> None:
        waiting = asyncio.create_task(client.pull(BROKER, QUEUE, 0, wait_ms=20_000))
        await passes(10)
        assert not waiting.done()
        await client.send(BROKER, QUEUE, b"one", unique_key="K1")
        assert [message.body for message in (await waiting).messages] == [b"one"]
        none = await client.pull(BROKER, QUEUE, 1, wait_ms=5000)
        assert (none.code, none.messages) == (ResponseCode.PULL_NOT_FOUND, ())

    with_client(test)


def test_a_pull_takes_no_more_than_it_wants() -> None:
    async def test(world: World, client: RocketClient) -> None:
        for number in range(5):
            await client.send(BROKER, QUEUE, b"x", unique_key=str(number))
        pulled = await client.pull(BROKER, QUEUE, 1, max_messages=3)
        assert [message.queue_offset for message in pulled.messages] == [1, 2, 3]

    with_client(test)


def test_a_pull_that_makes_no_sense_is_unknown() -> None:
    async def test(world: World, client: RocketClient) -> None:
        world.broker.pull_answers = [pull_answer(0, 1, b"rubbish"), response(0), response(24, "no")]
        for _ in range(2):
            with pytest.raises(Unknown):
                await client.pull(BROKER, QUEUE, 0)
        with pytest.raises(Refused):
            await client.pull(BROKER, QUEUE, 0)

    with_client(test)


def test_offsets() -> None:
    async def test(world: World, client: RocketClient) -> None:
        world.broker.first = 7
        await client.send(BROKER, QUEUE, b"x", unique_key="K")
        assert await client.min_offset(BROKER, QUEUE) == 7
        assert await client.max_offset(BROKER, QUEUE) == 8
        assert await client.offset_at(BROKER, QUEUE, 1007) == 7
        assert await client.consumer_offset(BROKER, QUEUE) is None
        await client.commit_offset(BROKER, QUEUE, 8)
        assert await client.consumer_offset(BROKER, QUEUE) == 8

    with_client(test)
