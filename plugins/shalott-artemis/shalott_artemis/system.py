"""ArtemisSystem: ActiveMQ Artemis, a primary and what may take its place, by replication.

``guard`` says what keeps two of them from being active at once: ``none``; ``voting``, by other
primaries of the cluster, which serve no clients here (``--layout voting``); ``lock``, that of a
ZooKeeper on each of the first three nodes. A passive broker takes no connections: a node's claim is
whether its port does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Annotated, Literal

import msgspec

import shalott.api as api
from shalott.api import Cluster, NodeSpec
from shalott_artemis.client import PEERS, ArtemisClient
from shalott_artemis.losses import MANUAL, documented_losses

HERE = Path(__file__).parent
BROKER, VOTER, KEEPER = "broker", "voter", "keeper"
VOTING = "voting"
KEEPERS = 3
ASK_TIMEOUT_MS = 1500
LOCK = "org.apache.activemq.artemis.lockmanager.zookeeper.CuratorDistributedLockManager"
KEEPER_CONFIG = "tickTime=500\ninitLimit=20\nsyncLimit=6\nclientPort=2181\n"


class ArtemisParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Artemis' own settings, of its configuration."""

    version: Annotated[str, msgspec.Meta(pattern=r"^2\.\d+\.\d+$")] = "2.40.0"
    guard: Annotated[
        Literal["none", "voting", "lock"],
        msgspec.Meta(description="What lets no two brokers of a pair be active at once."),
    ] = "none"
    check_active: Annotated[
        bool, msgspec.Meta(description="A primary that starts looks first who took its place.")
    ] = False
    journal_sync: Annotated[
        bool, msgspec.Meta(description="Sync what is written before an answer.")
    ] = True
    ttl_ms: Annotated[
        int, msgspec.Meta(ge=100, description="A silent broker is taken for dead after it.")
    ] = 60_000
    session_ms: Annotated[
        int, msgspec.Meta(ge=1000, description="A lock's holder may be silent for so long.")
    ] = 18_000
    heap: Annotated[str, msgspec.Meta(pattern=r"^\d+[mg]$")] = "256m"


def parameters_of(plan: api.Plan) -> ArtemisParameters:
    return api.make_parameters(ArtemisParameters, plan.system.parameters)


def hosted(nodes: Sequence[str], guard: object) -> Mapping[str, tuple[str, ...]]:
    """The first is the primary. With voters there is one backup, else the others are backups."""
    if guard == VOTING:
        return {node: (BROKER if at < 2 else VOTER,) for at, node in enumerate(nodes)}
    if guard == "lock":
        return {
            node: (BROKER, KEEPER) if at < KEEPERS else (BROKER,) for at, node in enumerate(nodes)
        }
    return dict.fromkeys(nodes, (BROKER,))


class ArtemisSystem:
    """See ``cluster.system.System``."""

    name = "artemis"
    ports: Mapping[str, int] = {"client": 61616, "keeper": 2181}

    def __init__(self, plan: api.Plan) -> None:
        self._asked, self._nodes = parameters_of(plan), plan.cluster.nodes
        self._services = plan.system.services or hosted(self._nodes, self._asked.guard)
        self._brokers = [node for node in self._nodes if BROKER in self._services[node]]
        self.image = f"{HERE / 'artemis'}:{self._asked.version}"
        self._asking: dict[str, ArtemisClient] = {}
        self._queues: Sequence[str] = ()

    def hosted_ports(self, node: str) -> Sequence[str]:
        return ("client", "keeper") if KEEPER in self._services[node] else ("client",)

    def node_specs(self, topology: api.Topology) -> Sequence[NodeSpec]:
        at = {
            node: ports["client"].host
            for seen in topology.dial.values()
            for node, ports in seen.items()
        }
        for node in self._brokers:
            others = (at[each] for each in self._brokers if each != node and each in at)
            PEERS[at.get(node, "")] = tuple(others)
        return [self._spec(node) for node in topology.listen]

    def _spec(self, node: str) -> NodeSpec:
        files, services = {"broker.xml": self._broker_xml(node)}, [BROKER]
        if KEEPER in self._services[node]:
            keepers = [each for each in self._nodes if KEEPER in self._services[each]]
            servers = "".join(
                f"server.{at}={'0.0.0.0' if each == node else each}:2888:3888\n"
                for at, each in enumerate(keepers, 1)
            )
            files["keeper.cfg"] = f"{KEEPER_CONFIG}dataDir=/data/keeper\n{servers}"
            files["myid"] = f"{keepers.index(node) + 1}\n"
            services.append(KEEPER)
        return NodeSpec(
            name=node,
            image=self.image,
            command=("{config}", "{data}", *services),
            files=files,
            environment={"HEAP": self._asked.heap},
            ports={name: self.ports[name] for name in self.hosted_ports(node)},
            collect=(),
            restart_if_exits=True,  # as its service is meant to be run: a broker may give up
        )

    def _broker_xml(self, node: str) -> str:
        asked = self._asked
        return Template((HERE / "broker.xml").read_text()).substitute(
            node=node,
            data="/data/artemis",
            sync=str(asked.journal_sync).lower(),
            ttl_ms=asked.ttl_ms,
            check_ms=asked.ttl_ms // 2,
            connectors="\n".join(
                f'<connector name="{each}">tcp://{each}:61616</connector>' for each in self._nodes
            ),
            others="\n".join(
                f"<connector-ref>{each}</connector-ref>" for each in self._nodes if each != node
            ),
            policy=self._policy(node),
        )

    def _policy(self, node: str) -> str:
        """https://activemq.apache.org/components/artemis/documentation/latest/ha.html"""
        asked, group = self._asked, node if VOTER in self._services[node] else "pair"
        kind = "backup" if node in self._brokers[1:] else "primary"
        words = [f"<group-name>{group}</group-name>"]
        if kind == "primary" and asked.guard != "lock":
            active = str(asked.check_active or asked.guard == VOTING).lower()
            words.append(f"<check-for-active-server>{active}</check-for-active-server>")
        if kind == "backup":
            words.append("<allow-failback>true</allow-failback>")
        if asked.guard == VOTING:
            words.append("<vote-on-replication-failure>true</vote-on-replication-failure>")
            words.append("<quorum-vote-wait>5</quorum-vote-wait>")
        if asked.guard == "lock":
            keepers = [each for each in self._nodes if KEEPER in self._services[each]]
            at = ",".join(f"{each}:2181" for each in keepers)
            words.append(
                f"<manager><class-name>{LOCK}</class-name><properties>"
                f'<property key="connect-string" value="{at}"/>'
                f'<property key="session-ms" value="{asked.session_ms}"/>'
                f'<property key="connection-ms" value="{asked.session_ms // 2}"/>'
                "</properties></manager>"
            )
        return f"<{kind}>{''.join(words)}</{kind}>"

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            seen = await self._look(cluster, self._nodes)
            if self.actives(seen):
                return ""
            return "no broker of the pair is active"

        await api.await_nodes(cluster, nodes, why_not, timeout_ms, may_exit=True)

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None:
        """Queues are made when they are first used; a pair is one when its backup has all."""
        self._queues = queues
        if not await self.await_settled(cluster, queues, 60_000):
            raise api.BootFailed("the backup has not copied what the primary has")

    async def observe(self, cluster: Cluster, node: str) -> api.Observation:
        if (await cluster.processes.status(node)).state != "running":
            raise api.Unreachable(f"{node} does not run")
        held = await self._is_copied(cluster, node)
        role = "none" if node not in self._brokers else "mirror" if held is None else "master"
        others = [each for each in self._brokers if each != node]
        claims = [
            {
                "group": group, "role": role, "epoch": 0,
                "master": node if role == "master" else "",
                "mirrors": others if role == "master" else [],
                "synchronised": others if held else [],
                "state": "running",
            }
            for group in self._queues or ("pair",)
        ]  # fmt: skip
        return {"running": [node], "partitions": [], "claims": claims}

    async def _is_copied(self, cluster: Cluster, node: str) -> bool | None:
        """Whether a backup has all that an active broker has; None: this one is not active."""
        at, client = cluster.endpoint(node, "client"), self._asking.pop(node, None)
        try:
            if client is None:
                if not await _is_listening(at.host, at.port):
                    return None
                client = ArtemisClient(at.host, at.port, timeout_ms=ASK_TIMEOUT_MS, alone=True)
                await client.open()
            held = bool(await client.ask("broker", "ReplicaSync"))
        except (api.ClientError, asyncio.CancelledError):
            if client is not None:
                await client.close()
            raise
        self._asking[node] = client
        return held

    async def _look(
        self, cluster: Cluster, nodes: Sequence[str]
    ) -> dict[str, api.Observation | None]:
        async def look(node: str) -> api.Observation | None:
            try:
                return await self.observe(cluster, node)
            except api.ClientError:
                return None

        return dict(zip(nodes, await asyncio.gather(*map(look, nodes)), strict=True))

    def actives(self, seen: Mapping[str, api.Observation | None]) -> list[str]:
        return [
            node
            for node, answer in seen.items()
            if answer is not None and answer["claims"][0]["role"] == "master"
        ]

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        members = api.members_of(cluster, self)

        async def why_not(node: str) -> str:
            return self.why_unsettled(await self._look(cluster, members), queues)

        try:
            await api.await_nodes(cluster, members[:1], why_not, timeout_ms, may_exit=True)
        except api.BootFailed:
            return False
        return True

    def why_unsettled(
        self, seen: Mapping[str, api.Observation | None], queues: Sequence[str]
    ) -> str:
        """Settled: every node answers, one broker of the pair is active, and a backup has all."""
        for node, answer in seen.items():
            if answer is None:
                return f"{node} did not answer"
        active = self.actives(seen)
        if len(active) != 1:
            return f"{' and '.join(active) or 'no broker'} of the pair active"
        answer = seen[active[0]]
        assert answer is not None
        if answer["claims"][0]["synchronised"] or not set(self._brokers) & seen.keys() - {
            active[0]
        }:
            return ""
        return f"no backup has all of {active[0]}"

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[api.EventRow]:
        return ()


async def _is_listening(host: str, port: int) -> bool:
    """Raises Unreachable: no answer, which may be the network's."""
    try:
        async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return False
    except (OSError, TimeoutError) as error:
        raise api.Unreachable(f"{host} does not answer") from error
    writer.close()
    return True


def lay_out(
    layout: str, nodes: Sequence[str], parameters: Mapping[str, object]
) -> Mapping[str, tuple[str, ...]]:
    return hosted(nodes, layout)


def check(plan: api.Plan) -> None:
    """Raises UsageError."""
    asked, count = parameters_of(plan), len(plan.cluster.nodes)
    least = {"none": 2, VOTING: 4, "lock": KEEPERS}[asked.guard]
    if count < least:
        raise api.UsageError(f"--guard {asked.guard} needs --nodes {least} or more")
    if (asked.guard == VOTING) != bool(plan.system.services):
        raise api.UsageError("--guard voting and --layout voting go together: some nodes only vote")


# Sooner than as shipped, so that a backup takes over within a fault. A primary is to miss its lock
# before its backup, as there: what it does without a backup, it acknowledges alone.
QUICK = {"ttl_ms": 6000, "session_ms": 3000}
GAPS = (
    "Under `safe` a run in which the primary loses its backup, or is paused, may be Invalid for one"
    " cause that is known: it acknowledges by itself as soon as its backup's connection ends, and"
    " asks for its lock afterwards (`artemis-paused`). By votes it does so in every partition"
    " (`artemis-vote`).",
    "No other release than 2.40.0 was run; what `artemis-paused` names in the source is the same in"
    " 2.56.0.",
    f"Not set up: shared stores, pings of the network ({MANUAL}/network-isolation.html), peers that"
    f" compete for a lock ({MANUAL}/ha.html), mirrors ({MANUAL}/amqp-broker-connections.html).",
    "A cluster moves no messages here: neither load balancing nor redistribution"
    f" ({MANUAL}/clusters.html).",
    "Not spoken: Core, OpenWire, MQTT, STOMP; transactions, duplicate detection, topics, groups.",
    "Messages are small and few: neither paging nor large messages, which have files of their own"
    f" ({MANUAL}/paging.html, {MANUAL}/large-messages.html).",
)
SYSTEM = api.SystemRecord(
    name="artemis",
    summary="ActiveMQ Artemis 2.40: a primary and its backups by replication, AMQP 1.0",
    make=ArtemisSystem,
    speaks=("queues",),
    workload="queue",
    profiles={
        "default": api.Profile(
            promise="The backup has an acknowledged message, as long as it is connected:"
            f" {MANUAL}/ha.html#replication"
        ),
        "safe": api.Profile(
            parameters={**QUICK, "guard": "lock"},
            promise="And one broker at most is active, since it holds a lock of a quorum. Not that"
            " it looks for its lock before it acknowledges (see `artemis-paused`):"
            f" {MANUAL}/network-isolation.html#pluggable-lock-manager",
        ),
        "unsafe": api.Profile(
            parameters={**QUICK, "check_active": True},
            promise="A pair that is cut may both be active:"
            f" {MANUAL}/network-isolation.html",
        ),
    },
    parameters=ArtemisParameters,
    check=check,
    layouts=api.Layouts(
        names=(VOTING,), lay_out=lay_out, missing=lambda *_: "",
        best_count=lambda layout, parameters: 4 if layout == VOTING else 3,
    ),
    serves=BROKER,
    queues=lambda plan: api.Queues(port="client", make_client=ArtemisClient),
    notices_after_ms=lambda plan: parameters_of(plan).ttl_ms,
    documented_losses=lambda plan: documented_losses(parameters_of(plan)),
    gaps=GAPS,
    footprint=api.Footprint(memory_mib=330, cpus=0.3),
)  # fmt: skip
