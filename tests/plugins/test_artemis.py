"""What the outcomes of AMQP mean to the client of Artemis, and how its pairs are set up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from proton import Connection, Delivery, Event, Message, Sender
from proton.handlers import MessagingHandler
from proton.reactor import Container

import shalott.api as api
from shalott.core.plan import (
    ClusterPlan,
    GatePlan,
    Plan,
    SystemPlan,
    WorkloadPlan,
    nodes_hosting,
)
from shalott.harness.run.planning import lay_out
from shalott_artemis.client import PEERS, ArtemisClient
from shalott_artemis.system import HERE, QUICK, SYSTEM, ArtemisSystem, check, hosted

pytestmark = pytest.mark.unit

SILENT, CLOSES = -1, -2
TIMEOUT_MS = 3000  # of which a machine that is busy may take some to open a link


class Broker(MessagingHandler):
    """A peer that gives each message one outcome, and has what it is told to have."""

    def __init__(self, outcome: int, held: tuple[bytes, ...], port: int) -> None:
        super().__init__(auto_accept=False)
        self._outcome, self._held, self._port = outcome, list(held), port
        self.delivering, self.ready = 0, threading.Event()
        self.ended = threading.Event()
        self._connections: list[Connection] = []
        self._answers: dict[Connection, Sender] = {}

    def on_start(self, event: Event) -> None:
        self._acceptor = event.container.listen(f"127.0.0.1:{self._port}")
        event.container.schedule(0.05, self)
        self.ready.set()

    def on_timer_task(self, event: Event) -> None:
        """It wakes now and then, to see whether it is to end."""
        if not self.ended.is_set():
            event.container.schedule(0.05, self)
            return
        self._acceptor.close()
        for connection in self._connections:
            connection.close()

    def on_connection_opening(self, event: Event) -> None:
        self._connections.append(event.connection)

    def on_link_opening(self, event: Event) -> None:
        link = event.link
        if link.is_sender and link.remote_source.dynamic:
            link.source.address = "answers"
            self._answers[event.connection] = link
        else:
            link.source.address = link.remote_source.address
            link.target.address = link.remote_target.address

    def on_sendable(self, event: Event) -> None:
        if event.link.source.address == "answers":
            return
        if self._held:
            event.link.send(Message(body=self._held.pop(0)))
            self.delivering += 1
        elif event.link.drain_mode:
            event.link.drained()

    def on_message(self, event: Event) -> None:
        if event.link.remote_target.address == "activemq.management":
            told = Message(
                properties={"_AMQ_OperationSucceeded": True}, body=f"[{self.delivering}]"
            )
            event.delivery.update(Delivery.ACCEPTED)
            event.delivery.settle()
            self._answers[event.connection].send(told)
        elif self._outcome == CLOSES:
            event.connection.transport.close_tail()
            event.connection.close()
        elif self._outcome != SILENT:
            event.delivery.update(self._outcome)
            event.delivery.settle()

    def on_settled(self, event: Event) -> None:
        if event.link.source.address != "answers":
            self.delivering -= 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def broker(outcome: int = Delivery.ACCEPTED, held: tuple[bytes, ...] = ()) -> Iterator[int]:
    port = free_port()
    peer = Broker(outcome, held, port)
    thread = threading.Thread(target=Container(peer).run, daemon=True)
    thread.start()
    assert peer.ready.wait(5)
    try:
        yield port
    finally:
        peer.ended.set()
        thread.join(5)
        assert not thread.is_alive()


def client_of(port: int, host: str = "127.0.0.1") -> ArtemisClient:
    return ArtemisClient(host, port, timeout_ms=TIMEOUT_MS)


async def send(port: int) -> None:
    client = client_of(port)
    await client.open()
    try:
        await client.send("q", b"body")
    finally:
        await client.close()


def test_a_message_that_was_accepted_is_sent() -> None:
    with broker() as port:
        asyncio.run(send(port))


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Delivery.REJECTED, api.Definite),
        (Delivery.RELEASED, api.Definite),
        (Delivery.MODIFIED, api.Indefinite),
        (SILENT, api.Indefinite),
        (CLOSES, api.Indefinite),
    ],
)
def test_a_message_that_was_not_accepted(outcome: int, error: type[api.ClientError]) -> None:
    with broker(outcome) as port, pytest.raises(error):
        asyncio.run(send(port))


def test_a_queue_is_empty_when_nothing_is_with_a_client_either() -> None:
    async def scenario(port: int) -> None:
        client, other = client_of(port), client_of(port)
        await client.open()
        await other.open()
        try:
            received = await client.receive("q")
            assert received is not None and received.body == b"one"
            assert received.redelivered is None
            with pytest.raises(api.Definite, match="1 were delivered and are not settled"):
                await other.receive("q")
            await client.settle(received)
            assert await other.receive("q") is None
        finally:
            await client.close()
            await other.close()

    with broker(held=(b"one",)) as port:
        asyncio.run(scenario(port))


def test_a_client_of_a_passive_broker_goes_to_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(port: int) -> None:
        client = client_of(port, host="127.0.0.2")  # where nothing listens
        await client.open()
        await client.send("q", b"body")
        await client.close()

    with broker() as port:
        with pytest.raises(api.Unreachable):
            asyncio.run(scenario(port))
        monkeypatch.setitem(PEERS, "127.0.0.2", ("127.0.0.1",))
        asyncio.run(scenario(port))


def test_a_client_of_a_node_that_does_not_answer_goes_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PEERS, "127.0.0.2", ("127.0.0.1",))
    monkeypatch.setattr(f"{__name__}.TIMEOUT_MS", 500)
    with broker() as port, socket.socket() as silent:
        silent.bind(("127.0.0.2", port))
        silent.listen()
        with pytest.raises(api.Unreachable, match="127.0.0.2"):
            asyncio.run(client_of(port, host="127.0.0.2").open())


def test_an_answer_that_is_not_awaited_is_not_the_next_one_s() -> None:
    async def scenario(port: int) -> None:
        client = client_of(port)
        await client.open()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.send("q", b"body")
        with pytest.raises(api.Unreachable, match="no connection"):
            await client.receive("q")

    with broker(SILENT) as port:
        asyncio.run(scenario(port))


JAVA = """#!/bin/sh
echo "$*" | grep -q QuorumPeerMain && { echo keeper >>$STARTS; exec sleep 60; }
echo broker >>$STARTS
exit 1
"""


def test_a_broker_that_ends_is_started_again_beside_its_keeper(tmp_path: Path) -> None:
    (tmp_path / "java").write_text(JAVA)
    (tmp_path / "java").chmod(0o755)
    starts = tmp_path / "starts"
    node = subprocess.Popen(
        ["bash", HERE / "artemis" / "node.sh", tmp_path, tmp_path, "broker", "keeper"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "STARTS": str(starts)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not starts.exists() or starts.read_text().count("broker") < 3:
            assert node.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        assert starts.read_text().count("keeper") == 1
        os.killpg(node.pid, signal.SIGTERM)  # as tini does
        assert node.wait(10) == 0
    finally:
        if node.poll() is None:
            os.killpg(node.pid, signal.SIGKILL)


def plan_of(nodes: int = 3, layout: str = "together", **parameters: object) -> Plan:
    names = tuple(f"n{at}" for at in range(1, nodes + 1))
    services = lay_out(SYSTEM, layout, names, parameters)
    return Plan(
        name="artemis",
        seed=1,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend="docker", nodes=names),
        system=SystemPlan(
            name="artemis", profile="default", parameters=parameters, services=dict(services)
        ),
        workload=WorkloadPlan(name="queue", rate_hz=50, concurrency=6),
        gates=GatePlan(),
        faults=(),
    )


def test_what_guards_a_pair_needs_nodes() -> None:
    check(plan_of(2))
    check(plan_of(3, guard="lock"))
    check(plan_of(4, "voting", guard="voting"))
    for count, guard in ((1, "none"), (2, "lock"), (3, "voting")):
        with pytest.raises(api.UsageError, match=f"--guard {guard} needs"):
            check(plan_of(count, guard=guard))


def test_nodes_that_only_vote_serve_no_clients() -> None:
    for layout, guard in (("together", "voting"), ("voting", "lock")):
        with pytest.raises(api.UsageError, match="go together"):
            check(plan_of(4, layout, guard=guard))
    assert nodes_hosting(plan_of(4, "voting", guard="voting"), SYSTEM.serves) == ("n1", "n2")


def test_a_primary_misses_its_lock_before_its_backup() -> None:
    assert QUICK["session_ms"] < QUICK["ttl_ms"]
    shipped = ArtemisSystem(plan_of(guard="lock"))._asked
    assert shipped.session_ms < shipped.ttl_ms


def test_each_node_is_told_what_it_is() -> None:
    nodes = ("n1", "n2", "n3", "n4")
    assert hosted(nodes, "none")["n4"] == ("broker",)
    assert hosted(nodes, "voting")["n3"] == ("voter",)
    assert [hosted(nodes, "lock")[each] for each in ("n3", "n4")] == [
        ("broker", "keeper"),
        ("broker",),
    ]
    voting = ArtemisSystem(plan_of(4, "voting", guard="voting"))
    assert "<primary><group-name>pair</group-name>" in voting._broker_xml("n1")
    assert "<backup><group-name>pair</group-name>" in voting._broker_xml("n2")
    assert "<primary><group-name>n3</group-name>" in voting._broker_xml("n3")
    locked = ArtemisSystem(plan_of(3, guard="lock"))._broker_xml("n3")
    assert 'key="connect-string" value="n1:2181,n2:2181,n3:2181"' in locked
    assert "check-for-active-server" not in locked


def test_a_pair_settles_when_one_is_active_and_another_has_all() -> None:
    system = ArtemisSystem(plan_of(2))

    def seen(role: str, synchronised: tuple[str, ...] = ()) -> Mapping[str, object]:
        return {"claims": [{"role": role, "synchronised": synchronised}]}

    def why(first: Mapping[str, object] | None, second: Mapping[str, object] | None) -> str:
        return system.why_unsettled({"n1": first, "n2": second}, ())

    assert why(seen("master", ("n2",)), seen("mirror")) == ""
    assert why(seen("mirror"), seen("master", ("n1",))) == ""
    assert "no backup has all of n1" in why(seen("master"), seen("mirror"))
    assert "n1 and n2 of the pair active" in why(seen("master"), seen("master"))
    assert "no broker of the pair active" in why(seen("mirror"), seen("mirror"))
    assert "n2 did not answer" in why(seen("master"), None)
