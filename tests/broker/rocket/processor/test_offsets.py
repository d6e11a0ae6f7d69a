"""Resets of a group's offsets by an operator: who is told what, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, Language, RequestCode, ResponseCode
from tests.world.clock.turns import passes
from tests.world.rocket.broker import World, in_world

pytestmark = pytest.mark.unit

RESET: dict[str, Any] = {"topic": "t", "group": "g", "timestamp": 0, "isForce": "true"}


async def prepare(world: World, committed: int = 2) -> None:
    """Three messages in the only queue of the topic, and a group that stands somewhere."""
    await world.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1},
    )
    for _ in range(3):
        await world.send()
    await world.settle()
    ours = {"topic": "t", "queueId": 0, "consumerGroup": "g", "commitOffset": committed}
    await world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ours)


async def join(world: World) -> RemotingClient:
    consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": "t"}]}
    body = msgspec.json.encode({"clientID": "c1", "consumerDataSet": [consumer]})
    member = world.new_client()
    await member.invoke(world.address, Command(code=RequestCode.HEART_BEAT, body=body), 1000)
    return member


async def told(world: World) -> list[Command]:
    await passes(0.1)
    return [one for one in world.pushed if one.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]


async def ask(world: World, **more: Any) -> Command:
    return await world.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET | more)


def test_members_are_told_where_to_go_and_the_broker_writes_nothing_down() -> None:
    async def test(world: World) -> None:
        await prepare(world)
        member = await join(world)
        answer = await ask(world)
        table = b'{"offsetTable":{{"brokerName":"shalott","queueId":0,"topic":"t"}:0}}'
        assert answer.code == ResponseCode.SUCCESS and answer.body == table
        (push,) = await told(world)
        assert push.body == table and push.is_oneway
        assert push.ext == {"topic": "t", "group": "g", "timestamp": "0"}
        assert world.broker.tables.offset("g", "t", 0) == 2
        await member.close()

    in_world(test)


def test_a_cpp_client_gets_a_list() -> None:
    async def test(world: World) -> None:
        await prepare(world)
        member = await join(world)
        ext = {key: str(value) for key, value in RESET.items()}
        command = Command(
            code=RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext=ext, language=Language.CPP
        )
        answer = await world.client.invoke(world.address, command, 1000)
        place = {"brokerName": "shalott", "queueId": 0, "topic": "t", "offset": 0}
        assert msgspec.json.decode(answer.body) == {"offsetTable": [place]}
        await member.close()

    in_world(test)


def test_only_force_goes_forward() -> None:
    async def test(world: World) -> None:
        await prepare(world)
        member = await join(world)
        assert b":2}}" in (await ask(world, timestamp=-1, isForce="false")).body
        assert b":3}}" in (await ask(world, timestamp=-1)).body
        await member.close()

    in_world(test)


def test_nobody_online_is_an_answer_of_its_own() -> None:
    async def test(world: World) -> None:
        await prepare(world)
        answer = await ask(world)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert not await told(world)

    in_world(test)


def test_unknown_topics_groups_and_slaves_refuse() -> None:
    async def test(world: World) -> None:
        await prepare(world)
        member = await join(world)
        assert (await ask(world, topic="u")).code == ResponseCode.SYSTEM_ERROR
        assert (await ask(world, group="h")).code == ResponseCode.SYSTEM_ERROR
        world.replica.role = "slave"
        assert (await ask(world)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert not await told(world)
        await member.close()

    in_world(test)
