"""RocketMQ nodes as processes: what they keep over kill -9, failover by hand, and controllers."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.broker.base.events import EVENTS_FILE, Event
from shalott.broker.rocket.config import BrokerConfig, RocketConfig, parse_address
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.cluster.local.backend import HOST, port_of, reserve_port
from shalott.cluster.systems.rocket.config import to_toml
from tests.world.processes.child import ENDS_S, ROOT
from tests.world.processes.rocket import RocketProcess, rocket_nodes, running_rocket_nodes
from tests.world.rocket.broker import messages_of

pytestmark = pytest.mark.local

EXIT_CONFIG = 78
TIMEOUT_MS = 5000


def ask(node: RocketProcess, code: int, ext: dict[str, Any], body: bytes = b"") -> Command:
    async def asked() -> Command:
        client = RemotingClient(parse_address)
        try:
            fields = {key: str(value) for key, value in ext.items()}
            command = Command(code=code, ext=fields, body=body)
            return await client.invoke(node.address("remoting"), command, TIMEOUT_MS)
        finally:
            await client.close()

    return asyncio.run(asked())


def send(node: RocketProcess, body: bytes) -> Command:
    ext = {"producerGroup": "p", "topic": "t", "defaultTopic": "TBW102", "queueId": 0}
    return ask(node, RequestCode.SEND_MESSAGE, ext | {"defaultTopicQueueNums": 1}, body)


def bodies(node: RocketProcess, *, at_least: int = 0) -> list[bytes]:
    """What the queue holds; waits until it is ``at_least`` so long."""
    found: list[bytes] = []
    while True:
        ext = {"consumerGroup": "g", "topic": "t", "queueId": 0, "queueOffset": len(found)}
        waits = {"sysFlag": 2, "suspendTimeoutMillis": 3000} if len(found) < at_least else {}
        answer = ask(node, RequestCode.PULL_MESSAGE, ext | waits)
        if answer.code != ResponseCode.SUCCESS:
            assert len(found) >= at_least, answer
            return found
        found += [one.message.body for one in messages_of(answer.body)]


def post(node: RocketProcess, verb: str, body: dict[str, Any]) -> Any:
    answer = asyncio.run(node.management.request("POST", f"/api/shalott/{verb}", body))
    assert answer.status == 200, answer
    return answer.json()


def roles(node: RocketProcess) -> list[tuple[str, int]]:
    lines = (Path(node.config.data_dir) / EVENTS_FILE).read_bytes().splitlines()
    events = [msgspec.json.decode(line, type=Event) for line in lines]
    return [(event.role, event.epoch) for event in events if event.kind == "role" and event.group]


def test_a_killed_node_comes_back_with_what_it_acknowledged(tmp_path: Path) -> None:
    with running_rocket_nodes(tmp_path) as (node,):
        sent = [b"%d" % number for number in range(50)]
        for body in sent:
            assert send(node, body).code == ResponseCode.SUCCESS
        assert node.end(signal.SIGKILL) == -signal.SIGKILL
        node.start()
        node.await_running()
        assert bodies(node) == sent
        assert send(node, b"more").ext["queueOffset"] == "50"
        assert node.end(signal.SIGTERM) == 0


def test_a_slave_takes_over_by_hand_and_its_former_master_follows(tmp_path: Path) -> None:
    with running_rocket_nodes(tmp_path, ("n1", "n2")) as (first, second):
        first.await_claims(lambda seen: seen["claims"][0]["synchronised"] == ["n2"])
        sent = [b"%d" % number for number in range(20)]
        for body in sent:
            assert send(first, body).code == ResponseCode.SUCCESS
        refused = send(second, b"no")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "nothing was stored" in refused.remark
        assert bodies(second, at_least=20) == sent  # slaves serve reads
        first.end(signal.SIGKILL)
        claim = post(second, "promote", {})
        assert (claim["role"], claim["epoch"]) == ("master", 1)
        late = send(second, b"late")  # a synchronous master without a slave
        assert late.code == ResponseCode.SLAVE_NOT_AVAILABLE or late.code == 0
        first.start()
        first.await_claims(lambda seen: seen["status"] == "running")
        assert post(first, "follow", {"master": "n2", "epoch": 1})["role"] == "slave"
        # It is not read before it has cut what its master never had.
        first.await_claims(lambda seen: seen["claims"][0]["agreed"])
        assert bodies(first, at_least=21) == [*sent, b"late"]
        first.await_running(("n1", "n2"))
        route = second.await_claims(
            lambda seen: (
                seen["name_server"]["brokerAddrTable"]["shalott"]["brokerAddrs"].get("0")
                == second.address("remoting")
            )
        )
        assert route["claims"][0]["role"] == "master"
        assert roles(second)[-1] == ("master", 1)


def test_controllers_elect_another_master_when_one_is_killed(tmp_path: Path) -> None:
    names = ("n1", "n2", "n3")
    with running_rocket_nodes(tmp_path, names, system="controller") as nodes:

        def rules(seen: Any) -> bool:
            claim = seen["claims"][0]
            return claim["role"] == "master" and len(claim["synchronised"]) >= 2

        master_name = nodes[0].await_claims(lambda seen: seen["claims"][0]["master"])["claims"][0][
            "master"
        ]
        master = next(node for node in nodes if node.name == master_name)
        others = [node for node in nodes if node is not master]
        old = master.await_claims(rules)["claims"][0]["epoch"]
        assert send(master, b"1").code == ResponseCode.SUCCESS
        for node in others:
            node.await_claims(lambda seen: seen["claims"][0]["readable_offset"] > 0)
            assert bodies(node) == [b"1"]
        master.end(signal.SIGKILL)
        claim = others[0].await_claims(
            lambda seen: seen["claims"][0]["epoch"] > old and seen["claims"][0]["master"] != ""
        )["claims"][0]
        heir = next(node for node in others if node.name == claim["master"])
        heir.await_claims(lambda seen: seen["claims"][0]["role"] == "master")
        assert bodies(heir) == [b"1"]
        assert send(heir, b"2").ext["queueOffset"] == "1"


def test_brokers_find_controllers_by_the_string_of_their_addresses(tmp_path: Path) -> None:
    """Two brokers that know of each other alone, and of n1 that it is a name server."""

    def change(config: RocketConfig) -> RocketConfig:
        replace = msgspec.structs.replace
        brokers = tuple(
            replace(peer, services=("broker",)) for peer in config.peers if peer.name != "n1"
        )
        if config.name == "n1":
            return replace(config, services=("nameserver", "controller"), peers=brokers)
        (first,) = (peer for peer in config.peers if peer.name == "n1")
        nobody = f"{HOST}:{free_port}"
        addresses = f"{nobody}; {first.advertised['controller']};"
        known = {port: first.advertised[port] for port in ("nameserver", "management")}
        peers = (replace(first, services=("nameserver",), advertised=known, dial=known), *brokers)
        broker = replace(config.broker, controller_addr=addresses)
        return replace(config, services=("broker",), peers=peers, broker=broker)

    with contextlib.closing(reserve_port()) as silent:  # bound, and no server listens
        free_port = port_of(silent)
        with rocket_nodes(
            tmp_path, ("n1", "n2", "n3"), system="controller", change=change
        ) as nodes:
            for node in nodes:
                node.start()
            server, *brokers = nodes
            masters = [
                node.await_claims(lambda seen: seen["claims"] and seen["claims"][0]["master"])
                for node in brokers
            ]
            (name,) = {seen["claims"][0]["master"] for seen in masters}
            master = next(node for node in brokers if node.name == name)
            master.await_claims(lambda seen: len(seen["claims"][0]["sync_state_set"]) == 2)
            assert send(master, b"1").code == ResponseCode.SUCCESS
            # A node without a broker says what the controllers know, and that it has no broker.
            known = asyncio.run(server.management.get("/api/shalott/sync-state-set"))
            assert len(known["shalott"]["inSyncReplicas"]) == 2
            told = asyncio.run(server.management.get("/api/shalott/members"))
            assert told["members"] == told["running_nodes"] == ["n2", "n3"]
            other = next(node.name for node in brokers if node.name != name)
            member = f"/api/shalott/members/{other}"
            alive = asyncio.run(server.management.request("DELETE", member))
            assert alive.status == 400 and "is alive" in str(alive.json())
            stranger = asyncio.run(server.management.request("DELETE", "/api/shalott/members/n9"))
            assert stranger.status == 404
            refused = asyncio.run(server.management.request("GET", "/api/shalott/ha-status"))
            assert refused.status == 503
            assert "this node hosts no broker: nameserver, controller" in str(refused.json())


def test_a_node_that_can_not_begin_says_why(tmp_path: Path) -> None:
    with rocket_nodes(tmp_path) as (node,):
        for change, reason in (
            ({"services": ("controller",)}, "the service controller needs a port"),
            ({"bugs": ("KB-RKT-999",)}, "there is no known bug KB-RKT-999"),
            ({"ports": {**node.config.ports, "tea": 1}}, "there is no port 'tea'"),
            (
                {"broker": BrokerConfig(controller_addr="h:1")},
                "master-slave has no controllers: leave out controller_addr",
            ),
        ):
            config = msgspec.structs.replace(node.config, **change)  # type: ignore[arg-type]
            path = tmp_path / "bad.toml"
            path.write_text(to_toml(config))
            ended = subprocess.run(
                [sys.executable, "-m", "shalott.broker", "--config", str(path)],
                cwd=ROOT,
                capture_output=True,
                timeout=ENDS_S,
                check=False,
            )
            assert ended.returncode == EXIT_CONFIG
            assert reason in ended.stderr.decode()
