"""The broker's rebalance, and what administrators ask besides tables."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shalott.broker.rocket.processor.running import AVERAGE, BY_CIRCLE, allocated
from shalott.broker.rocket.remoting.command import RequestCode, ResponseCode
from tests.world.rocket.broker import World, in_world

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("strategy", [AVERAGE, BY_CIRCLE])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_every_queue_is_one_clients(strategy: str, count: int) -> None:
    clients = [f"c{number}" for number in range(count)]
    shares = [allocated(list(range(5)), clients, client, strategy) for client in clients]
    assert sorted(queue for share in shares for queue in share) == list(range(5))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert allocated(list(range(5)), clients, "stranger", strategy) == []


async def assigned(world: World, client: str, **more: Any) -> list[int] | None:
    wanted = {"topic": "t", "consumerGroup": "g", "clientId": client, "strategyName": "AVG"}
    body = msgspec.json.encode(wanted | {"messageModel": "CLUSTERING"} | more)
    answer = await world.ask(RequestCode.QUERY_ASSIGNMENT, body=body)
    assert answer.code == ResponseCode.SUCCESS
    found = msgspec.json.decode(answer.body).get("messageQueueAssignments")
    return None if found is None else [each["messageQueue"]["queueId"] for each in found]


def test_the_broker_shares_queues_out() -> None:
    async def body(world: World) -> None:
        wanted = {"topic": "t", "readQueueNums": 5, "writeQueueNums": 5}
        await world.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted)
        assert await assigned(world, "c1") is None  # nobody of the group is known yet
        consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": "t"}]}
        beat = {"clientID": "c1", "consumerDataSet": [consumer]}
        await world.ask(RequestCode.HEART_BEAT, body=msgspec.json.encode(beat))
        assert await assigned(world, "c1") == [0, 1, 2, 3, 4]
        assert await assigned(world, "c2") == []
        assert await assigned(world, "c2", messageModel="BROADCASTING") == [0, 1, 2, 3, 4]
        assert await assigned(world, "c1", strategyName="X") is None
        assert await assigned(world, "c1", topic="no") is None

    in_world(body)


def test_a_group_that_pops_has_every_queue_together() -> None:
    async def body(world: World) -> None:
        await world.send(b"m")
        code, ask = RequestCode.SET_MESSAGE_REQUEST_MODE, RequestCode.QUERY_ASSIGNMENT
        wanted = {"topic": "t", "consumerGroup": "g", "mode": "POP"}
        refused = await world.ask(code, body=msgspec.json.encode(wanted | {"mode": "X"}))
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert (await world.ask(code, body=msgspec.json.encode(wanted))).code == 0
        consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": "t"}]}
        beat = {"clientID": "c1", "consumerDataSet": [consumer]}
        await world.ask(RequestCode.HEART_BEAT, body=msgspec.json.encode(beat))
        asks = {"topic": "t", "consumerGroup": "g", "clientId": "c1"}
        answer = await world.ask(ask, body=msgspec.json.encode(asks))
        [told] = msgspec.json.decode(answer.body)["messageQueueAssignments"]
        assert (told["mode"], told["messageQueue"]["queueId"]) == ("POP", -1)

    in_world(body)


def test_limits_of_cold_reads_are_kept() -> None:
    async def body(world: World) -> None:
        await world.ask(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"g=100\nh=7\n")
        await world.ask(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=b"h")
        told = await world.ask(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        assert msgspec.json.decode(told.body)["configTable"] == {"g": 100}

    in_world(body)
