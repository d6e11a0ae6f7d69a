"""Groups of RocketMQ's own brokers and ours: each as the other's slave, with logs that are equal in
bytes and tables that are carried over, under controllers and without."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.broker.rocket.config import HaConfig, RocketConfig, RocketPeer, parse_address
from shalott.broker.rocket.controller.messages import BrokerReplicasInfo, from_body, to_body
from shalott.broker.rocket.processor.topics import DelayTable, OffsetTable
from shalott.broker.rocket.remoting.command import RequestCode
from shalott.broker.rocket.remoting.java_json import decode_java_json
from shalott.broker.rocket.remoting.route_data import TopicConfigs
from shalott.clients.rocketmq.rocket_client import Queue, RocketClient, RocketError
from shalott.cluster.local.backend import HOST, port_of, reserve_port
from shalott.core.errors import ClientError
from tests.world.clock.turns import answered
from tests.world.processes.rocket import RocketProcess, rocket_nodes
from tests.world.rocket import original
from tests.world.rocket.original import JAVA, OURS, Both

pytestmark = pytest.mark.local

BUSY_S = 60.0  # an original tells slaves now and then of what others tell at once
ASK_AGAIN_S = 0.2


class NoFields(msgspec.Struct):
    """A header without fields."""


class Talk:
    """Waits in one place for what is answered in the end."""

    def __init__(self, client: RocketClient) -> None:
        self.client = client

    async def table(self, address: str, code: RequestCode, shape: Any) -> Any:
        return decode_java_json((await self.client.ask(address, code, NoFields())).body, shape)

    async def topics(self, address: str) -> list[str]:
        found = await self.table(address, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigs)
        return sorted(found.topic_config_table)

    async def offsets(self, address: str) -> Any:
        found = await self.table(address, RequestCode.GET_ALL_CONSUMER_OFFSET, OffsetTable)
        return found.offset_table

    async def until(self, look: Callable[[], Any], what: str, within_s: float = BUSY_S) -> Any:
        """What ``look`` gives as soon as that is something; refusals and silence are nothing."""
        said: list[object] = [None]

        async def ask() -> Any:
            try:
                return await look()
            except (RocketError, ClientError) as error:
                said[0] = error
                return None

        try:
            return await answered(ask, what, ASK_AGAIN_S, within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; {said[0]}") from None

    async def send(self, address: str, group: str, *bodies: bytes) -> None:
        for body in bodies:
            await self.client.send(address, Queue("mixed", group, 0), body, unique_key=body.hex())

    async def bodies(self, address: str, group: str) -> list[bytes]:
        """From the beginning of the topic's queue, as that broker has it."""
        found: list[bytes] = []
        while True:
            pulled = await self.client.pull(address, Queue("mixed", group, 0), len(found))
            if not pulled.messages:
                return found
            found += [one.body for one in pulled.messages]


def talking(body: Callable[[Talk], Any]) -> None:
    async def talk() -> None:
        client = RocketClient([], dial=parse_address, group="g", timeout_ms=10_000)
        try:
            await body(Talk(client))
        finally:
            await client.close()

    asyncio.run(talk())


def log_of(store: Path) -> bytes:
    """What a broker has in its log, without the room that is allocated ahead."""
    files = sorted((store / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


async def claim_of(node: RocketProcess) -> Any:
    return (await node.management.get("/api/shalott/claims"))["claims"][0]


def data_of(node: RocketProcess) -> Path:
    return Path(node.config.data_dir)


def test_our_slave_follows_an_originals_master_with_its_tables(both: Both, tmp_path: Path) -> None:
    master = both.brokers[JAVA]
    known = {"remoting": master, "ha": both.master_ha}
    peer = RocketPeer(name="java", services=("broker",), advertised=known, dial=known)

    def as_its_slave(config: RocketConfig) -> RocketConfig:
        mine = msgspec.structs.replace(
            config.broker, cluster_name=JAVA, broker_name=JAVA, broker_id=1, role="SLAVE"
        )
        peers = (both.name_server_peer, peer)
        return msgspec.structs.replace(config, services=("broker",), peers=peers, broker=mine)

    async def body(talk: Talk) -> None:
        await talk.client.create_topic(master, "mixed", 1)
        await talk.send(master, JAVA, *(b"%d" % number for number in range(50)))
        await talk.bodies(master, JAVA)  # which makes the group there
        await talk.client.commit_offset(master, Queue("mixed", JAVA, 0), 7)
        await talk.client.send(
            master, Queue("mixed", JAVA, 0), b"d", unique_key="D", properties={"DELAY": "1"}
        )
        [node] = nodes
        slave = node.address("remoting")

        async def has_all() -> bool:
            topics, wanted = await talk.topics(slave), await talk.topics(master)
            offsets = await talk.offsets(slave)
            delays = await talk.table(slave, RequestCode.GET_ALL_DELAY_OFFSET, DelayTable)
            of_group = offsets.get("mixed@g")
            return topics == wanted and of_group == {0: 7} and delays.offset_table.get(1, 0) > 0

        await talk.until(has_all, "topics and offsets of the original")
        wanted = [*(b"%d" % number for number in range(50)), b"d"]

        async def has_messages() -> bool:
            return await talk.bodies(slave, JAVA) == wanted == await talk.bodies(master, JAVA)

        await talk.until(has_messages, "messages of the original")
        assert log_of(data_of(node)) == log_of(both.master.store)

        async def are_known() -> bool:
            answer = await talk.client.ask(both.name_server, *route_of("mixed"))
            return all(f'"{address}"'.encode() in answer.body for address in (master, slave))

        await talk.until(are_known, "the original's name server tells of both")

    with rocket_nodes(tmp_path, change=as_its_slave) as nodes:
        nodes[0].start()
        nodes[0].await_running()
        talking(body)


def route_of(topic: str) -> tuple[RequestCode, Any]:
    class Topic(msgspec.Struct):
        topic: str

    return RequestCode.GET_ROUTEINFO_BY_TOPIC, Topic(topic)


@pytest.mark.nightly("an original's slave asks for tables a minute after its start")
def test_an_originals_slave_follows_our_master_with_its_tables(both: Both, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(original.held_broker_ports())
        mine = stack.enter_context(original.held_broker_ports())
        ha = port_of(stack.enter_context(contextlib.closing(reserve_port())))

        def with_vip_port(config: RocketConfig) -> RocketConfig:
            broker = msgspec.structs.replace(
                config.broker, broker_name="vip", role="ASYNC_MASTER", broker_id=0
            )
            return msgspec.structs.replace(
                config,
                services=("broker",),
                peers=(both.name_server_peer,),
                broker=broker,
                ports=config.ports | {"remoting": mine, "vip": mine - 2},
                advertised=config.advertised | {"remoting": f"{HOST}:{mine}"},
            )

        [node] = stack.enter_context(rocket_nodes(tmp_path, change=with_vip_port))
        node.start()
        node.await_running()
        slave = original.broker(
            tmp_path / "slave",
            port,
            ha,
            both.name_server,
            brokerClusterName=OURS,
            brokerName="vip",
            brokerId=1,
            brokerRole="SLAVE",
            slaveReadEnable="true",
        )
        stack.enter_context(original.originals(slave))
        master, copy = node.address("remoting"), f"{HOST}:{port}"

        async def body(talk: Talk) -> None:
            await talk.client.create_topic(master, "mixed", 1)
            await talk.send(master, "vip", *(b"%d" % number for number in range(50)))
            await talk.client.commit_offset(master, Queue("mixed", "vip", 0), 7)

            async def has_all() -> bool:
                topics = set(await talk.topics(copy)) >= set(await talk.topics(master))
                return topics and (await talk.offsets(copy)).get("mixed@g") == {0: 7}

            await talk.until(has_all, "topics and offsets of ours", within_s=150.0)

            async def has_messages() -> bool:
                return len(await talk.bodies(copy, "vip")) == 50

            await talk.until(has_messages, "messages of ours")
            assert log_of(slave.store) == log_of(data_of(node))

        talking(body)


def test_a_mixed_group_under_an_originals_controller_changes_masters(
    both: Both, tmp_path: Path
) -> None:
    """Ours knows the original's broker from the controller only, and the original ours."""
    with contextlib.ExitStack() as stack:
        ruler, ha = (
            port_of(stack.enter_context(contextlib.closing(reserve_port()))) for _ in range(2)
        )
        port, mine = (stack.enter_context(original.held_broker_ports()) for _ in range(2))
        theirs, group = f"{HOST}:{port}", "both-sorts"
        java = original.broker(
            tmp_path / "java",
            port,
            ha,
            both.name_server,
            brokerClusterName=OURS,
            brokerName=group,
            enableControllerMode="true",
            controllerAddr=f"{HOST}:{ruler}",
            slaveReadEnable="true",
            checkSyncStateSetPeriodMs=500,
            haSendHeartbeatInterval=1000,  # as often it says where it stands
        )
        stack.enter_context(
            original.originals(original.controller(tmp_path / "controller", ruler), java)
        )

        def under_it(config: RocketConfig) -> RocketConfig:
            broker = msgspec.structs.replace(
                config.broker, broker_name=group, controller_addr=f"{HOST}:{ruler}"
            )
            return msgspec.structs.replace(
                config,
                services=("broker",),
                peers=(both.name_server_peer,),
                broker=broker,
                ports=config.ports | {"remoting": mine, "vip": mine - 2},
                advertised=config.advertised | {"remoting": f"{HOST}:{mine}"},
                ha=HaConfig(),
            )

        [node] = stack.enter_context(rocket_nodes(tmp_path, system="controller", change=under_it))
        ours = node.address("remoting")

        async def as_slave(talk: Talk) -> None:
            async def made() -> bool:
                await talk.client.create_topic(theirs, "mixed", 1)
                return True

            await talk.until(made, "the original is a master")
            await talk.send(theirs, group, *(b"%d" % number for number in range(20)))
            node.start()

            async def has_messages() -> bool:
                return len(await talk.bodies(ours, group)) == 20

            await talk.until(has_messages, "our slave has the messages")

            async def is_in_sync() -> bool:
                asked = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
                answer = await talk.client.ask(
                    f"{HOST}:{ruler}", asked, NoFields(), body=to_body([group])
                )
                known = from_body(answer.body, BrokerReplicasInfo).replicas_info_table
                return len(known[group].in_sync_replicas) == 2

            await talk.until(is_in_sync, "ours is a member of the set")
            claim = await claim_of(node)
            assert (claim["role"], claim["master"]) == ("slave", theirs)
            assert log_of(data_of(node)) == log_of(java.store)

        async def as_master(talk: Talk) -> None:
            async def rules() -> bool:
                return bool((await claim_of(node))["role"] == "master")

            java.end(signal.SIGKILL)
            await talk.until(rules, "our broker rules")
            await talk.send(ours, group, *(b"%d" % number for number in range(20, 30)))

        async def followed(talk: Talk) -> None:
            async def has_messages() -> bool:
                return len(await talk.bodies(theirs, group)) == 30

            await talk.until(has_messages, "the original's slave has the messages")
            assert await talk.bodies(theirs, group) == [b"%d" % number for number in range(30)]
            assert log_of(java.store) == log_of(data_of(node))

        talking(as_slave)
        talking(as_master)
        java.start()
        java.await_booted()
        talking(followed)
