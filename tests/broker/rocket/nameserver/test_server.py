"""A name server behind its port, in virtual time: what brokers and clients send and get."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from shalott.broker.rocket.config import RocketConfig, parse_address
from shalott.broker.rocket.nameserver.server import LAST_WRITER_WINS, NameServer
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import BINARY, Command, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.headers import UnregisterBroker, to_ext
from shalott.broker.rocket.remoting.route_data import DataVersion, body_crc, encode_body
from tests.world.clock.turns import passes
from tests.world.clock.virtual import HOST, env, run
from tests.world.rocket.registering import (
    CLUSTER,
    GROUP,
    body,
    header,
    register_command,
)

pytestmark = pytest.mark.unit

ADDRESS = f"{HOST}:9876"
CONFIG = RocketConfig(
    system="master-slave",
    name="n1",
    data_dir="data",
    services=("nameserver",),
    ports={"nameserver": 9876},
    advertised={"nameserver": ADDRESS},
    bind_host=HOST,
)


class Peer:
    """A broker or a client: a connection of its own."""

    def __init__(self) -> None:
        self.remoting = RemotingClient(parse_address)

    async def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.send(Command(code=code, ext=ext or {}, body=body))

    async def send(self, command: Command) -> Command:
        return await self.remoting.invoke(ADDRESS, command, 3000)

    async def register(self, address: str, broker_id: int = 0, *, epoch: int = 0) -> Command:
        return await self.send(register_command(header(address, broker_id), body("T", epoch=epoch)))

    async def route(self, topic: str = "T") -> Command:
        return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})

    async def masters(self) -> dict[str, str]:
        answer = await self.route()
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        [group] = json.loads(answer.body)["brokerDatas"]
        return dict(group["brokerAddrs"])


def serving(test: Callable[[Peer, Peer], Awaitable[None]], *bugs: str) -> None:
    async def main() -> None:
        server = NameServer(env(*bugs), CONFIG)
        await server.start()
        peers = [Peer(), Peer()]
        try:
            await test(*peers)
        finally:
            for peer in peers:
                await peer.remoting.close()
            await server.stop()

    run(main())


def test_a_route_is_standard_json() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        assert (await client.route()).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await broker.register("b:1")).code == ResponseCode.SUCCESS
        answer = await client.route()
        assert answer.code == ResponseCode.SUCCESS
        assert json.loads(answer.body) == {
            "orderTopicConf": None,
            "queueDatas": [
                {
                    "brokerName": GROUP,
                    "readQueueNums": 4,
                    "writeQueueNums": 4,
                    "perm": 6,
                    "topicSysFlag": 0,
                }
            ],
            "brokerDatas": [
                {
                    "cluster": CLUSTER,
                    "brokerName": GROUP,
                    "brokerAddrs": {"0": "b:1"},
                    "zoneName": None,
                    "enableActingMaster": False,
                }
            ],
            "filterServerTable": {},
        }
        assert b'"brokerAddrs":{"0":"b:1"}' in answer.body

    serving(test)


def test_a_slave_is_told_of_its_master() -> None:
    async def test(broker: Peer, slave: Peer) -> None:
        await broker.register("b:1")
        answer = await slave.register("s:1", 1)
        assert answer.ext == {"masterAddr": "b:1", "haServerAddr": "ha-of-b:1"}

    serving(test)


def test_the_end_of_the_connection_unregisters() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        await broker.register("b:1")
        assert await client.masters() == {"0": "b:1"}
        await broker.remoting.close()
        await passes(0.1)
        assert await client.masters() == {}

    serving(test)


def test_a_broker_that_falls_silent_is_gone_after_its_timeout_and_a_scan() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        quick = header("b:1", timeout_ms=8000)
        await broker.send(register_command(quick, body("T")))
        await passes(7.5)
        assert await client.masters() == {"0": "b:1"}
        await passes(3)  # the scan after 10 s
        assert await client.masters() == {}

    serving(test)


def test_the_default_timeout_is_two_minutes() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        await broker.register("b:1")
        for _ in range(4):  # no connection is left silent for long
            await passes(29)
            await broker.route()
        assert await client.masters() == {"0": "b:1"}
        await passes(10)
        assert await client.masters() == {}

    serving(test)


def test_two_masters_the_later_epoch_keeps_the_route() -> None:
    async def test(old: Peer, new: Peer) -> None:
        await old.register("a:1", epoch=1)
        await new.register("b:1", epoch=2)
        await old.register("a:1", epoch=1)
        assert await new.masters() == {"0": "b:1"}

    serving(test)


def test_two_masters_the_route_flaps_with_the_bug() -> None:
    async def test(old: Peer, new: Peer) -> None:
        await old.register("a:1", epoch=1)
        await new.register("b:1", epoch=2)
        await old.register("a:1", epoch=1)
        assert await new.masters() == {"0": "a:1"}

    serving(test, LAST_WRITER_WINS)


def test_goodbye() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        await broker.register("b:1")
        goodbye = UnregisterBroker(
            broker_name=GROUP, broker_addr="b:1", cluster_name=CLUSTER, broker_id=0
        )
        await broker.ask(RequestCode.UNREGISTER_BROKER, to_ext(goodbye))
        assert await client.masters() == {}

    serving(test)


def test_clusters_and_topics_are_listed() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        await broker.register("b:1")
        answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = json.loads(answer.body)
        assert info["clusterAddrTable"] == {CLUSTER: [GROUP]}
        assert info["brokerAddrTable"][GROUP]["brokerAddrs"] == {"0": "b:1"}
        answer = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert json.loads(answer.body) == {"topicList": ["T"]}

    serving(test)


def test_a_topic_is_deleted_until_a_broker_registers_it_again() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        await broker.register("b:1")
        await client.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})
        answer = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert json.loads(answer.body) == {"topicList": []}

    serving(test)


def test_settings_are_told_and_those_that_live_are_changed() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        async def change(text: bytes) -> int:
            return (await client.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text)).code

        assert await change(b"scanNotActiveBrokerInterval=7000\n") == ResponseCode.SUCCESS
        refused = (b"listenPort=1\n", b"scanNotActiveBrokerInterval=x\n")
        assert [await change(text) for text in refused] == [ResponseCode.SYSTEM_ERROR] * 2
        told = await client.ask(RequestCode.GET_NAMESRV_CONFIG)
        assert told.body == b"scanNotActiveBrokerInterval=7000\n"

    serving(test)


def test_a_broker_asks_whether_it_needs_to_register() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        fields = {"brokerName": GROUP, "brokerAddr": "b:1", "clusterName": CLUSTER}
        version = encode_body(DataVersion(state_version=3))
        code = RequestCode.QUERY_DATA_VERSION
        answer = await broker.ask(code, fields, version)
        assert (answer.ext, answer.body) == ({"changed": "true"}, b"")
        await broker.register("b:1", epoch=3)
        answer = await broker.ask(code, fields, version)
        assert answer.ext == {"changed": "false"}
        assert msgspec.json.decode(answer.body)["stateVersion"] == 3

    serving(test)


def test_configurations_are_kept() -> None:
    async def test(peer: Peer, _: Peer) -> None:
        key = {"namespace": "n", "key": "k"}
        missing = await peer.ask(RequestCode.GET_KV_CONFIG, key)
        assert missing.code == ResponseCode.QUERY_NOT_FOUND
        await peer.ask(RequestCode.PUT_KV_CONFIG, key | {"value": "v"})
        assert (await peer.ask(RequestCode.GET_KV_CONFIG, key)).ext == {"value": "v"}
        await peer.ask(RequestCode.DELETE_KV_CONFIG, key)
        missing = await peer.ask(RequestCode.GET_KV_CONFIG, key)
        assert missing.code == ResponseCode.QUERY_NOT_FOUND

    serving(test)


def test_permissions_to_write() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        await broker.register("b:1")
        wiped = await client.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": GROUP})
        assert wiped.ext == {"wipeTopicCount": "1"}
        assert json.loads((await client.route()).body)["queueDatas"][0]["perm"] == 4
        added = await client.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": GROUP})
        assert added.ext == {"addTopicCount": "1"}

    serving(test)


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"brokerId": "one"}, "header"),
        ({"brokerId": None}, "header"),
        ({"bodyCrc32": "1"}, "crc32"),
        ({"compressed": "true"}, "compressed"),
    ],
)
def test_a_registration_that_is_none_is_refused(change: dict[str, str], remark: str) -> None:
    async def test(broker: Peer, client: Peer) -> None:
        command = register_command(header("b:1"), body("T"))
        fields = command.ext | change
        command.ext = {name: value for name, value in fields.items() if value is not None}
        answer = await broker.send(command)
        assert answer.code == ResponseCode.SYSTEM_ERROR and remark in answer.remark
        assert await client.masters() == {}

    serving(test)


def test_a_registration_that_is_no_json_is_refused_and_one_with_a_crc_is_taken() -> None:
    async def test(broker: Peer, client: Peer) -> None:
        command = register_command(header("b:1"), body("T"))
        command.ext["bodyCrc32"] = str(body_crc(command.body))
        command.serialize = BINARY
        assert (await broker.send(command)).code == ResponseCode.SUCCESS
        command.ext["bodyCrc32"] = "0"
        command.body = b"{\xff"
        assert (await broker.send(command)).code == ResponseCode.SYSTEM_ERROR

    serving(test)
