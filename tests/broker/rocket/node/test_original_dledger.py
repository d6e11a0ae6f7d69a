"""DLedger groups of RocketMQ's own brokers and ours: they elect each other, replicate to each other
and fail over, and their ledgers end equal in bytes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from shalott.broker.rocket.config import RocketConfig, RocketPeer, parse_address
from shalott.broker.rocket.remoting.command import ResponseCode
from shalott.checkers.logs.replicated_log import ReplicatedLog
from shalott.clients.rocketmq.rocket_client import Queue, RocketClient, RocketError
from shalott.cluster.local.backend import HOST, port_of, reserve_port
from tests.checkers.histories import Story
from tests.world.clock.turns import answered
from tests.world.processes.rocket import RocketProcess, rocket_nodes
from tests.world.rocket import original
from tests.world.rocket.original import OURS, Original

pytestmark = pytest.mark.local

GROUP, TOPIC = "both", "mixed"
MEMBERS = ("n0", "n1", "n2")
LOADED_S = 60.0  # when the load has ended, by the story's clock
BUSY_S = 90.0
STEP_S = 0.2
ROUNDS_MAX = 12
LOAD = 20


class MixedGroup:
    """Its members by name, and what its client did, as a history."""

    def __init__(
        self, members: Mapping[str, Original | RocketProcess], addresses: Mapping[str, str]
    ) -> None:
        self.members = members
        self.addresses = addresses
        self.story = Story(queue=f"{GROUP}/0").phases(load=1000, heal=1001, drain=1002)
        self.client = RocketClient([], dial=parse_address, group="g", timeout_ms=10_000)
        self.raft: Mapping[str, str] = {}
        self.led: list[str] = []
        self.sent = 0
        self._begun = time.monotonic()

    def kind(self, name: str) -> str:
        return "java" if isinstance(self.members[name], Original) else "ours"

    def start(self, name: str) -> None:
        self.members[name].start()

    async def booted(self, name: str) -> None:
        member = self.members[name]
        serves = member.await_booted if isinstance(member, Original) else member.await_running
        await asyncio.to_thread(serves)

    def kill(self, name: str) -> None:
        self.members[name].end(signal.SIGKILL)

    def ledger(self, name: str) -> bytes:
        member = self.members[name]
        if isinstance(member, Original):
            files = sorted((member.store / f"dledger-{name}" / "data").iterdir())
        else:
            files = sorted((Path(member.config.data_dir) / "dledger" / "data").iterdir())
        return b"".join(path.read_bytes() for path in files).rstrip(b"\0")

    async def leader(self, *among: str) -> str:
        """Who takes a message, and has all that the topic needs."""

        async def look() -> str | None:
            for name in among:
                if await self.send(name):
                    return name
            return None

        name = str(await answered(look, f"one of {among} leads", STEP_S, BUSY_S))
        self.led.append(name)
        return name

    async def send(self, name: str) -> bool:
        """One message; whether it was acknowledged."""
        value, at = self.sent, time.monotonic()
        self.sent += 1
        body, queue = f"{value}".encode(), Queue(TOPIC, GROUP, 0)
        offset, kind = None, "info"
        try:
            sent = await self.client.send(
                self.addresses[name], queue, body, unique_key=f"K{value}", timeout_ms=3000
            )
        except RocketError:
            pass  # it may have been carried out
        else:
            if sent.code == ResponseCode.SUCCESS:
                offset, kind = sent.queue_offset, "ok"
        took = time.monotonic() - at
        self.story.row(
            "send", at - self._begun, kind=kind, value=value, offset=offset, took=took, node=name
        )
        return kind == "ok"

    async def load(self, name: str) -> None:
        acknowledged = [await self.send(name) for _ in range(LOAD)]
        assert all(acknowledged), f"{name} leads and refused"

    async def make_topic(self) -> None:
        """At every member: an original's slave asks its master once a minute only."""

        async def is_made(name: str) -> bool:
            try:
                await self.client.create_topic(self.addresses[name], TOPIC, 1)
            except RocketError:
                # Ours as a slave takes topics from its master.
                return self.kind(name) == "ours"
            return True

        for name in MEMBERS:
            await answered(lambda name=name: is_made(name), "a topic", STEP_S, BUSY_S)

    async def read_all(self, name: str, process: int) -> list[int]:
        """The queue at that member, as a final read that the history has."""
        found: list[tuple[int, int]] = []
        at = LOADED_S * 1000 / 60 + 2.1
        while True:
            start = found[-1][0] + 1 if found else 0
            pulled = await self.client.pull(self.addresses[name], Queue(TOPIC, GROUP, 0), start)
            records = [(one.queue_offset, int(one.body)) for one in pulled.messages]
            kind, error = ("ok", None) if records else ("fail", "empty")
            self.story.row(
                "poll",
                at + len(found) / 1000,
                kind=kind,
                error=error,
                value=0 if start == 0 else None,
                extra={"from": start, "records": [list(each) for each in records]},
                node=name,
                process=process,
                took=0.0005,
            )
            if not records:
                return [value for _, value in found]
            found += records

    async def are_read(self) -> None:
        """Every member, whoever leads, shows what was acknowledged last."""
        rows = [row for row in self.story.rows if row["f"] == "send" and row["type"] == "ok"]
        last = rows[-1]["offset"]

        async def shows(name: str) -> bool:
            try:
                pulled = await self.client.pull(
                    self.addresses[name], Queue(TOPIC, GROUP, 0), last, timeout_ms=8000
                )
            except RocketError:
                return False
            return [int(one.body) for one in pulled.messages][:1] == [rows[-1]["value"]]

        for name in MEMBERS:
            await answered(lambda name=name: shows(name), "it is read", STEP_S, BUSY_S)

    async def are_equal(self) -> None:
        async def same() -> bool:
            ledgers = [self.ledger(name) for name in MEMBERS]
            return len(ledgers[0]) > 0 and all(each == ledgers[0] for each in ledgers)

        await answered(same, "ledgers that are equal in bytes", STEP_S, BUSY_S)

    async def judge(self) -> None:
        """All that was acknowledged is at every member, in one order."""
        await self.are_equal()

        async def whole(name: str) -> bool:
            pulled = await self.client.pull(self.addresses[name], Queue(TOPIC, GROUP, 0), 0)
            wanted = sum(row["type"] == "ok" for row in self.story.rows if row["f"] == "send")
            return pulled.max_offset >= wanted

        reads = []
        for process, name in enumerate(MEMBERS, 10):
            await answered(lambda name=name: whole(name), "it has all", STEP_S, BUSY_S)
            reads.append(await self.read_all(name, process))
        assert reads[0] == reads[1] == reads[2]
        result = ReplicatedLog().check(self.story.history())
        assert result.valid is True, result
        assert result.counts["acknowledged-count"] >= LOAD * 2


def as_member(members: Mapping[str, Mapping[str, str]], config: RocketConfig) -> RocketConfig:
    """Of ours, with all others as its peers. It gives its leader up sooner than an original and
    stands later, so that it votes for one first, and each kind comes to lead."""
    peers = tuple(
        RocketPeer(name=name, services=("broker",), advertised=dict(known), dial=dict(known))
        for name, known in members.items()
        if name != config.name
    )
    raft = msgspec.structs.replace(
        config.raft, max_heartbeat_leak=2, vote_min_ms=4000, vote_max_ms=5000, read_index=True
    )
    broker = msgspec.structs.replace(config.broker, broker_name=GROUP)
    return msgspec.structs.replace(config, peers=peers, raft=raft, broker=broker)


@contextlib.contextmanager
def mixed(tmp_path: Path, ours: tuple[str, ...]):  # type: ignore[no-untyped-def]
    theirs = [name for name in MEMBERS if name not in ours]
    with contextlib.ExitStack() as stack:
        known: dict[str, dict[str, str]] = {}
        ports: dict[str, int] = {}
        for name in theirs:
            raft = port_of(stack.enter_context(contextlib.closing(reserve_port())))
            ports[name] = stack.enter_context(original.held_broker_ports())
            known[name] = {"raft": f"{HOST}:{raft}", "remoting": f"{HOST}:{ports[name]}"}

        def change(config: RocketConfig) -> RocketConfig:
            known[config.name] = {
                port: address
                for port, address in config.advertised.items()
                if port in ("raft", "remoting")
            }
            return config

        nodes = stack.enter_context(rocket_nodes(tmp_path, ours, system="dledger", change=change))
        for node in nodes:
            node.config = as_member(known, node.config)
        peers = ";".join(f"{name}-{known[name]['raft']}" for name in MEMBERS)
        members: dict[str, Original | RocketProcess] = {node.name: node for node in nodes}
        for name in theirs:
            ha = port_of(stack.enter_context(contextlib.closing(reserve_port())))
            members[name] = original.broker(
                tmp_path / name,
                ports[name],
                ha,
                "",
                brokerClusterName=OURS,
                brokerName=GROUP,
                enableDLegerCommitLog="true",
                dLegerGroup=GROUP,
                dLegerPeers=peers,
                dLegerSelfId=name,
                slaveReadEnable="true",
                # After a kill it counts its messages without their entries' headers, cuts its
                # queues where they would end then, and dispatches what it cut only with this.
                recheckReputOffsetFromCq="true",
            )
            stack.callback(members[name].end, signal.SIGKILL)
        group = MixedGroup(members, {name: known[name]["remoting"] for name in MEMBERS})
        group.raft = {name: known[name]["raft"] for name in MEMBERS}
        yield group


async def play(group: MixedGroup) -> None:
    """Kill the leader, and again, until one of each kind has led with one of each kind behind."""
    try:
        for name in MEMBERS:
            group.start(name)
        for name in MEMBERS:
            await group.booted(name)
        await group.make_topic()
        leader = await group.leader(*MEMBERS)
        for _ in range(ROUNDS_MAX):
            await group.load(leader)
            await group.are_equal()
            await group.are_read()
            if len(dict.fromkeys(map(group.kind, group.led))) == 2 and len(group.led) > 2:
                break
            group.kill(leader)
            killed, leader = leader, await group.leader(*(n for n in MEMBERS if n != leader))
            await group.load(leader)
            group.start(killed)
            await group.booted(killed)
        assert sorted(dict.fromkeys(map(group.kind, group.led))) == ["java", "ours"], group.led
        await group.judge()
    finally:
        await group.client.close()


def test_ours_and_an_original_lead_each_other_in_one_group(tmp_path: Path) -> None:
    with mixed(tmp_path, ("n0", "n1")) as group:
        asyncio.run(play(group))


@pytest.mark.nightly("two more JVMs, and more rounds until each kind has led")
def test_ours_among_originals_leads_and_is_led(tmp_path: Path) -> None:
    with mixed(tmp_path, ("n0",)) as group:
        asyncio.run(play(group))
