"""KafkaSystem: Apache Kafka under KRaft, by its own jars; nodes are broker and controller at once,
or, in the layout ``apart``, one of the two.

The partitions of one topic are what clients use. A node's claims are what it says itself: of a
partition that it leads, if it answers for the log's end, the epoch and high watermark; of others,
what its copy of the metadata has; and of the controllers' log, if it is the one that leads it.
Clients connect to a listener of their own, under the address at which the harness sees a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError

import shalott.api as api
from shalott.api import Cluster, NodeSpec
from shalott_kafka.client import TOPIC, KafkaClient
from shalott_kafka.losses import MANUAL, documented_losses
from shalott_kafka.settings import (
    BROKER,
    BROKERS_MIN,
    CONTROLLER,
    KafkaParameters,
    check,
    lay_out,
    missing,
    parameters_of,
    properties,
)
from shalott_kafka.wire import COMMITTED, Wire

CONFIGURE_S = 60  # on a machine that is busy with other runs
IMAGE = Path(__file__).parent / "kafka"
CONTROLLERS = "controllers"  # what the metadata's log is called in claims


class KafkaSystem:
    """See ``cluster.system.System``."""

    name = "kafka"
    ports: Mapping[str, int] = {"client": 9092, "controller": 9093, "broker": 9094}

    def __init__(self, plan: api.Plan) -> None:
        self._asked, nodes = parameters_of(plan), plan.cluster.nodes
        self.image = f"{IMAGE}:{self._asked.version}"
        hosted = plan.system.services or dict.fromkeys(nodes, (BROKER, CONTROLLER))
        self._services = {node: hosted[node] for node in nodes}
        self._ids = {node: at for at, node in enumerate(nodes, 1)}
        self._names = {at: node for node, at in self._ids.items()}
        self._prefix = api.names_prefix(plan)  # "" in a cluster of our own
        self._topic = f"{self._prefix}{TOPIC}"
        keys = plan.workload.parameters.get("keys")
        self._partitions = keys if isinstance(keys, int) else 4
        self._wire = Wire()

    def hosted_ports(self, node: str) -> Sequence[str]:
        own = self._services[node]
        return [
            *(("client", BROKER) if BROKER in own else ()),
            *((CONTROLLER,) * (CONTROLLER in own)),
        ]

    def _hosts(self, service: str) -> list[str]:
        return [node for node in self._ids if service in self._services[node]]

    def node_specs(self, topology: api.Topology) -> Sequence[NodeSpec]:
        return [self._spec(topology, node) for node in topology.listen]

    def _spec(self, topology: api.Topology, node: str) -> NodeSpec:
        at = next(
            (seen[node]["client"].host for seen in topology.dial.values() if node in seen), ""
        )
        told = properties(self._asked, self._services, node, at or node)
        return NodeSpec(
            name=node,
            image=self.image,
            command=("{config}/server.properties", "{data}/kafka"),
            files={"server.properties": "".join(f"{k}={v}\n" for k, v in told.items())},
            environment={"HEAP": self._asked.heap},
            ports={name: self.ports[name] for name in self.hosted_ports(node)},
            collect=(),
        )

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            if BROKER not in self._services[node]:
                await self.observe(cluster, node)
                return ""
            at = cluster.endpoint(node, "client")
            known = await self._wire.brokers(at)
            if self._prefix and (own := [each for each in known if known[each] == at]):
                self._ids[node] = own[0]  # others number theirs as they like
                self._names = {number: name for name, number in self._ids.items()}
            elif self._prefix:
                return f"no broker is told to clients as {at.host}:{at.port} (advertised.listeners)"
            return "" if self._ids[node] in known else "it is not let in by the controllers"

        await api.await_nodes(cluster, nodes, why_not, timeout_ms)

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None:
        """Make the topic; the first producer makes the log of transactions."""
        ats = [cluster.endpoint(node, "client") for node in self._hosts(BROKER)]
        servers = [f"{at.host}:{at.port}" for at in ats]
        topic = NewTopic(self._topic, self._partitions, self._asked.replicas)
        try:
            async with asyncio.timeout(CONFIGURE_S):
                admin = AIOKafkaAdminClient(bootstrap_servers=servers)
                await admin.start()
                try:
                    await admin.create_topics([topic])
                finally:
                    await admin.close()
                if self._asked.transactions:
                    producer = AIOKafkaProducer(
                        bootstrap_servers=servers, transactional_id=f"{self._prefix}first"
                    )
                    try:
                        await producer.start()
                    finally:
                        await producer.stop()
        except TopicAlreadyExistsError:
            pass
        except (KafkaError, OSError, TimeoutError) as error:
            raise api.BootFailed(f"no topic could be made: {type(error).__name__}") from error
        if not await self.await_settled(cluster, queues, 30_000):
            raise api.BootFailed("the topic's partitions have no leaders that all agree on")

    async def observe(self, cluster: Cluster, node: str) -> api.Observation:
        claims: list[dict[str, object]] = []
        if CONTROLLER in self._services[node]:
            claims.append(await self._observe_quorum(cluster, node))
        if BROKER in self._services[node]:
            claims += await self._observe_partitions(cluster, node)
        return {"running": [node], "partitions": [], "claims": claims}

    async def _observe_quorum(self, cluster: Cluster, node: str) -> dict[str, object]:
        told = await self._wire.quorum(cluster.endpoint(node, CONTROLLER))
        leader = self._names.get(told.leader, "") if told else ""
        others = [each for each in self._hosts(CONTROLLER) if each != leader]
        role = "none" if told is None else "master" if leader == node else "mirror"
        return {
            "group": CONTROLLERS, "role": role, "epoch": told.epoch if told else 0,
            "master": leader, "mirrors": others, "synchronised": others, "state": "running",
        }  # fmt: skip

    async def _observe_partitions(self, cluster: Cluster, node: str) -> list[dict[str, object]]:
        at = cluster.endpoint(node, "client")
        known = await self._wire.partitions(at, self._topic)
        led = await self._wire.ends(at, self._topic, [each.key for each in known])
        claims: list[dict[str, object]] = []
        for each in known:
            end, leader = led.get(each.key), self._names.get(each.leader, "")
            followers = [name for at in each.replicas if (name := self._names[at]) != leader]
            claims.append({
                "group": f"{TOPIC}-{each.key}",
                "role": "master" if end else "mirror" if node in followers else "none",
                "epoch": end.epoch if end else 0,
                "master": leader,
                "mirrors": followers,
                "synchronised": [name for at in each.isr if (name := self._names[at]) != leader],
                "state": "running" if leader else "down",
                "high_watermark": end.offset if end else None,
            })  # fmt: skip
        return claims

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        members = api.members_of(cluster, self)

        async def why_not(node: str) -> str:
            seen = dict(zip(members, await self._look(cluster, members), strict=True))
            return self.why_unsettled(seen, queues) or await self._why_open(cluster, members)

        try:
            await api.await_nodes(cluster, members[:1], why_not, timeout_ms)
        except api.BootFailed:
            return False
        return True

    async def _look(self, cluster: Cluster, nodes: Sequence[str]) -> list[api.Observation | None]:
        async def look(node: str) -> api.Observation | None:
            try:
                return await self.observe(cluster, node)
            except api.ClientError:
                return None

        return await asyncio.gather(*map(look, nodes))

    def why_unsettled(
        self, seen: Mapping[str, api.Observation | None], queues: Sequence[str]
    ) -> str:
        """Settled: every node answers, all brokers name the same leaders, and no copy is behind."""
        leaders: dict[str, set[str]] = {f"{TOPIC}-{key}": set() for key in range(self._partitions)}
        for node, answer in seen.items():
            if answer is None:
                return f"{node} did not answer"
            for claim in answer["claims"]:
                if claim["group"] == CONTROLLERS:
                    continue
                leaders.setdefault(claim["group"], set()).add(claim["master"])
                if (set(claim["mirrors"]) & seen.keys()) - set(claim["synchronised"]):
                    return f"{claim['group']}: {node} knows of a copy that is not in sync"
        for group, named in leaders.items():
            if len(named) != 1 or "" in named:
                return f"{group} is led by {' or '.join(sorted(named)) or 'none'}"
        return ""

    async def _why_open(self, cluster: Cluster, members: Sequence[str]) -> str:
        """Readers of what is committed come no further than the oldest open transaction."""
        for node in (each for each in self._hosts(BROKER) if each in members):
            at, keys = cluster.endpoint(node, "client"), range(self._partitions)
            stable = await self._wire.ends(at, self._topic, keys, COMMITTED)
            for key, end in (await self._wire.ends(at, self._topic, keys)).items():
                if key in stable and stable[key].offset < end.offset:
                    return f"{TOPIC}-{key}: a transaction is open at {stable[key].offset}"
        return ""

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[api.EventRow]:
        return ()


def partitions(plan: api.Plan) -> api.Partitions:
    asked = parameters_of(plan)
    return api.Partitions(
        port="client",
        make_client=partial(KafkaClient, asked=asked, prefix=api.names_prefix(plan)),
        transactions=asked.transactions,
        groups=True,
        prefixes=True,
    )


# Sooner than as shipped, so that leaders change within a fault; neither loses anything.
QUICK = {"session_timeout_ms": 3000, "replica_lag_ms": 5000}
UNSAFE = {
    **QUICK, "acks": "1", "idempotence": False, "transactions": False, "unclean_election": True,
}  # fmt: skip
# No copy is on a disk before the kernel puts it there: https://kafka.apache.org/documentation, on
# "Application vs. OS Flush Management". What a manual's settings do not promise to survive:
BEYOND = ("power-all", "disk-full", "disk-error", "disk-short", "disk-corrupt", "wipe")
SYSTEM = api.SystemRecord(
    name="kafka",
    summary="Apache Kafka 3.9 to 4.4 under KRaft, by its jars: partitions, transactions, groups",
    make=KafkaSystem,
    speaks=("partitions",),
    workload="partitions",
    profiles={
        "default": api.Profile(
            promise="All that are in sync have an acknowledged message; that may be one alone:"
            f" {MANUAL}#topicconfigs_min.insync.replicas"
        ),
        "safe": api.Profile(
            parameters={**QUICK, "min_insync_replicas": 2},
            promise="Two nodes have an acknowledged message, in memory at least:"
            f" {MANUAL}#topicconfigs_min.insync.replicas",
        ),
        "unsafe": api.Profile(
            parameters=UNSAFE,
            promise=f"The leader has it; any copy may lead: {MANUAL}#design_uncleanleader",
        ),
    },
    parameters=KafkaParameters,
    check=check,
    layouts=api.Layouts(
        names=("apart",), lay_out=lay_out, missing=missing, best_count=lambda *_: BROKERS_MIN + 3
    ),
    serves=BROKER,
    partitions=partitions,
    notices_after_ms=lambda plan: parameters_of(plan).session_timeout_ms,
    search=dict.fromkeys(("default", "safe", "unsafe"), api.Search(beyond=BEYOND)),
    documented_losses=lambda plan: documented_losses(parameters_of(plan)),
    gaps=(
        "Of clients only aiokafka 0.14 is tested. It does not speak the newest protocol of"
        " transactions (KIP-890), nor do librdkafka 2.16 and kafka-python 3.0; with"
        " --transaction-version 2 two requests of it are this plug-in's own.",
        "What the client in Java does by itself is not tested: Jepsen's report on Bufstream 0.1.0"
        " tells of a deadlock in it.",
        "Groups share partitions by the classic protocol; the one of KIP-848, share groups"
        " (KIP-932) and offsets committed in transactions are not tested.",
        "Members of the controllers' quorum and copies of partitions are not added, removed or"
        " moved; leaders are not elected by an operator.",
        "Segments are never rolled, compacted, deleted or tiered: runs are too short for it.",
        "Brokers speak in plain text and ask nobody who he is; quotas are not set.",
    ),
    footprint=api.Footprint(memory_mib=420, cpus=0.4),
    stays_up=True,
)
