"""What controllers answer over the wire, and how their client takes it."""

from __future__ import annotations

import asyncio

import pytest

from shalott.broker.rocket.config import parse_address
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.controller.messages import (
    BrokerIdInvalid,
    ControllerError,
    Fenced,
    GroupUnknown,
    InvalidMaster,
    NeedToRegister,
    NoController,
    ReplicaNotUsable,
)
from shalott.broker.rocket.remoting.client import RemotingClient, Unreachable
from shalott.broker.rocket.remoting.command import Command, RequestCode, response
from tests.world.rocket.controllers import (
    CLUSTER,
    CONTROLLERS,
    GROUP,
    World,
    three_brokers,
)

pytestmark = pytest.mark.unit


def test_refusals_are_typed() -> None:
    world = World()

    async def main() -> None:
        client = world.client
        await world.served()
        with pytest.raises(GroupUnknown):
            await client.replica_info(GROUP)
        with pytest.raises(NeedToRegister):
            await client.register_broker(CLUSTER, GROUP, 1, "b1:10911")
        with pytest.raises(BrokerIdInvalid):
            await client.apply_broker_id(CLUSTER, GROUP, 3, "b1:10911;1")
        await three_brokers(world)
        with pytest.raises(Fenced) as fenced:
            await client.alter_sync_state_set(GROUP, 1, 0, (1,), 2)
        assert fenced.value.code == 2000
        with pytest.raises(Fenced) as fenced:
            await client.alter_sync_state_set(GROUP, 1, 1, (1,), 1)
        assert fenced.value.code == 2001
        with pytest.raises(InvalidMaster):
            await client.alter_sync_state_set(GROUP, 2, 1, (2,), 2)
        with pytest.raises(ReplicaNotUsable):
            await client.alter_sync_state_set(GROUP, 1, 1, (1, 9), 2)
        with pytest.raises(ControllerError) as cleaned:
            await client.clean_broker_data(CLUSTER, GROUP, [3])
        assert cleaned.value.code == 2009
        await client.clean_broker_data(CLUSTER, GROUP, [3], living=True)
        data = await client.sync_state_data([GROUP])
        assert [r.broker_id for r in data[GROUP].in_sync_replicas] == [1, 2]

    world.run(main)


def test_a_follower_names_the_leader() -> None:
    world = World()

    async def main() -> None:
        leader = await world.served()
        follower = next(name for name in CONTROLLERS if name != leader)
        await world.until(lambda: world.controllers[follower].group.leader == leader)
        request = Command(code=RequestCode.CONTROLLER_GET_REPLICA_INFO, ext={"brokerName": GROUP})
        answer = await world.remoting.invoke(f"{follower}:9877", request, 1000)
        assert answer.code == 2007
        assert answer.ext == {
            "controllerLeaderId": leader,
            "controllerLeaderAddress": f"{leader}:9877",
        }
        metadata = await world.client.metadata(f"{follower}:9877")
        assert metadata == cm.ControllerMetadata(
            group="shalott-controller",
            controller_leader_id=leader,
            controller_leader_address=f"{leader}:9877",
            is_leader=False,
            peers="n1:n1:9877;n2:n2:9877;n3:n3:9877;",
            controller_epoch=world.controllers[leader].group.term,
        )

    world.run(main)


def test_a_client_follows_the_leader() -> None:
    world = World()

    async def main() -> None:
        old = await world.served()
        await world.client.next_broker_id(CLUSTER, GROUP)
        assert world.client.leader == f"{old}:9877"
        world.kill(old)
        await world.until(lambda: world.leader not in ("", old))
        with pytest.raises(GroupUnknown):
            await world.master()
        assert world.client.leader == f"{world.leader}:9877"

    world.run(main)


def test_nobody_waits_for_a_controller_whose_host_is_gone() -> None:
    world = World()

    async def main() -> None:
        old = await world.served()
        await world.client.next_broker_id(CLUSTER, GROUP)
        world.kill(old)
        await world.until(lambda: not world.remoting.is_connected(f"{old}:9877"))
        world.network.cut([("harness", old), (old, "harness")])  # dialling it says nothing
        await world.until(lambda: world.leader not in ("", old))
        others = [name for name in CONTROLLERS if name != old]
        await world.until(
            lambda: all(world.controllers[name].group.leader == world.leader for name in others)
        )
        begun_s = world.loop.time()
        assert await world.client.next_broker_id(CLUSTER, GROUP) == 1
        assert await world.client.find_leader() == f"{world.leader}:9877"
        assert world.loop.time() - begun_s < 0.1

    world.run(main)


class Answers(RemotingClient):
    """Controllers that say of the leader what the test wants."""

    def __init__(self, said: dict[str, cm.ControllerMetadata]) -> None:
        super().__init__(parse_address)
        self._said = said

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        if address not in self._said:
            raise Unreachable(address)
        return response(0, "", cm.to_ext(self._said[address]))


def claim(leader: str, term: int, *, is_leader: bool = False) -> cm.ControllerMetadata:
    return cm.ControllerMetadata(
        group="r", controller_leader_address=leader, is_leader=is_leader, controller_epoch=term
    )


def test_the_newest_word_of_the_leader_counts() -> None:
    """One that was deposed, and doesn't know it, claims to lead too."""

    async def main() -> None:
        said = {"a:1": claim("a:1", 3, is_leader=True), "b:1": claim("c:1", 4)}
        client = ControllerClient(Answers(said), ["a:1", "b:1", "c:1"])
        assert await client.find_leader() == "c:1"
        said["b:1"] = claim("", 5)  # an election is under way
        assert await client.find_leader() == "a:1"
        said.clear()
        with pytest.raises(NoController):
            await client.find_leader()
        assert client.leader == ""

    asyncio.run(main())


@pytest.mark.parametrize("code", [c for c in range(1001, 1014) if c not in (1005, 1007, 1008)])
def test_a_request_that_is_none_is_refused(code: int) -> None:
    world = World()

    async def main() -> None:
        leader = await world.served()
        request = Command(code=code, body=b"electMasterMaxRetryCount=-1")
        answer = await world.remoting.invoke(f"{leader}:9877", request, 1000)
        assert answer.code == (0 if code == RequestCode.GET_CONTROLLER_CONFIG else 2005)

    world.run(main)


def test_operators_read_and_change_settings() -> None:
    world = World()

    async def main() -> None:
        leader = await world.served()

        async def ask(code: int, body: bytes = b"") -> bytes:
            request = Command(code=code, body=body)
            answer = await world.remoting.invoke(f"{leader}:9877", request, 1000)
            assert answer.code == 0
            return answer.body

        text = await ask(RequestCode.GET_CONTROLLER_CONFIG)
        assert text.splitlines() == [
            b"scanNotActiveBrokerInterval=5000",
            b"scanInactiveMasterInterval=5000",
            b"electMasterMaxRetryCount=3",
            b"enableElectUncleanMaster=false",
            b"isProcessReadEvent=false",
            b"notifyBrokerRoleChanged=true",
        ]
        change = b"enableElectUncleanMaster=true\nscanInactiveMasterInterval=70\nother=1\n"
        await ask(RequestCode.UPDATE_CONTROLLER_CONFIG, change)
        text = await ask(RequestCode.GET_CONTROLLER_CONFIG)
        assert b"enableElectUncleanMaster=true\n" in text
        assert b"scanInactiveMasterInterval=70\n" in text

    world.run(main)
