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
from typing import Annotated, Literal

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError

import shalott.api as api
from shalott.api import Cluster, NodeSpec
from shalott_kafka.client import TOPIC, KafkaClient
from shalott_kafka.wire import COMMITTED, Wire

MANUAL = "https://kafka.apache.org/documentation/"
IMAGE = Path(__file__).parent / "kafka"
BROKER, CONTROLLER = "broker", "controller"
CONTROLLERS = "controllers"  # what the metadata's log is called in claims
BROKERS_MIN = 3
NEVER = (1 << 63) - 1  # Kafka's own default of what may be left to the kernel
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
Whole = Annotated[int, msgspec.Meta(ge=1)]


class KafkaParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka's own settings, of brokers and topic and of the clients that use them."""

    version: Annotated[str, msgspec.Meta(pattern=r"^(3\.9|4\.\d+)\.\d+$")] = "4.4.0"
    replicas: Annotated[int, msgspec.Meta(ge=1, description="Of each partition.")] = 3
    min_insync_replicas: Whole = 1
    unclean_election: bool = False
    acks: Literal["all", "1"] = "all"
    idempotence: bool = True
    transactions: Annotated[bool, msgspec.Meta(description="Sends are parts of transactions.")] = (
        True
    )
    flush_messages: Annotated[
        int, msgspec.Meta(ge=0, description="Sync a log after so many; 0: the kernel decides.")
    ] = 0
    session_timeout_ms: Annotated[
        int, msgspec.Meta(ge=1, description="A silent broker is fenced after it.")
    ] = 9000
    replica_lag_ms: Annotated[
        int, msgspec.Meta(ge=1, description="A copy that lags so long leaves the ISR.")
    ] = 30_000
    request_timeout_ms: Annotated[
        int, msgspec.Meta(ge=1, description="A client sends again what had no answer.")
    ] = 30_000
    transaction_timeout_ms: Whole = 5000
    reads: Annotated[
        Literal["leader", "nearest"],
        msgspec.Meta(description="Whose copy is polled: nearest is the client's own node's."),
    ] = "leader"
    heap: Annotated[str, msgspec.Meta(pattern=r"^\d+[mg]$")] = "256m"


def parameters_of(plan: api.Plan) -> KafkaParameters:
    return api.make_parameters(KafkaParameters, plan.system.parameters)


class KafkaSystem:
    """See ``cluster.system.System``."""

    name = "kafka"
    ports: Mapping[str, int] = {"client": 9092, "controller": 9093, "broker": 9094}

    def __init__(self, plan: api.Plan) -> None:
        self._asked, nodes = parameters_of(plan), plan.cluster.nodes
        self.image = f"{IMAGE}:{self._asked.version}"
        self._services = plan.system.services or dict.fromkeys(nodes, (BROKER, CONTROLLER))
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
        properties = self._properties(node, at or node)
        return NodeSpec(
            name=node,
            image=self.image,
            command=("{config}/server.properties", "{data}/kafka"),
            files={"server.properties": "".join(f"{k}={v}\n" for k, v in properties.items())},
            environment={"HEAP": self._asked.heap},
            ports={name: self.ports[name] for name in self.hosted_ports(node)},
            collect=(),
        )

    def _properties(self, node: str, address: str) -> Mapping[str, object]:
        asked, hosts = self._asked, self._services[node]
        brokers = len(self._hosts(BROKER))
        voters = (f"{self._ids[each]}@{each}:9093" for each in self._hosts(CONTROLLER))
        listeners = [f"CLIENT://0.0.0.0:{self.ports['client']}", "BROKER://0.0.0.0:9094"]
        advertised = f"CLIENT://{address}:{self.ports['client']},BROKER://{node}:9094"
        own = [*(listeners if BROKER in hosts else ())]
        own += ["CONTROLLER://0.0.0.0:9093"] if CONTROLLER in hosts else []
        of_broker: dict[str, object] = {
            "advertised.listeners": advertised,
            "inter.broker.listener.name": "BROKER",
        }
        if asked.reads == "nearest":
            of_broker["broker.rack"] = address
            of_broker["replica.selector.class"] = RACK_AWARE
        return {
            "process.roles": ",".join(hosts),
            "node.id": self._ids[node],
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(own),
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("CLIENT", "BROKER", "CONTROLLER")
            ),
            **(of_broker if BROKER in hosts else {}),
            "log.dirs": "/data/kafka",
            "auto.create.topics.enable": "false",
            "min.insync.replicas": asked.min_insync_replicas,
            "unclean.leader.election.enable": str(asked.unclean_election).lower(),
            **(
                {"log.flush.interval.messages": asked.flush_messages}
                if asked.flush_messages
                else {}
            ),
            "broker.session.timeout.ms": asked.session_timeout_ms,
            "broker.heartbeat.interval.ms": min(2000, asked.session_timeout_ms // 4),
            "replica.lag.time.max.ms": asked.replica_lag_ms,
            # What keeps transactions and groups is replicated as is recommended for either.
            "transaction.state.log.replication.factor": min(3, brokers),
            "transaction.state.log.min.isr": min(2, brokers),
            "transaction.state.log.num.partitions": 6,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
            "offsets.topic.replication.factor": min(3, brokers),
            "offsets.topic.num.partitions": 6,
            "group.initial.rebalance.delay.ms": 0,
            "log.index.size.max.bytes": 1 << 20,  # they are made in full length ahead
        }

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
        producer = AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id=f"{self._prefix}first"
        )
        try:
            async with asyncio.timeout(30):
                admin = AIOKafkaAdminClient(bootstrap_servers=servers)
                await admin.start()
                try:
                    await admin.create_topics([topic])
                finally:
                    await admin.close()
                if self._asked.transactions:
                    await producer.start()
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
        async def why_not(node: str) -> str:
            seen = dict(zip(cluster.nodes, await self._look(cluster), strict=True))
            return self.why_unsettled(seen, queues) or await self._why_open(cluster)

        try:
            await api.await_nodes(cluster, cluster.nodes[:1], why_not, timeout_ms)
        except api.BootFailed:
            return False
        return True

    async def _look(self, cluster: Cluster) -> list[api.Observation | None]:
        async def look(node: str) -> api.Observation | None:
            try:
                return await self.observe(cluster, node)
            except api.ClientError:
                return None

        return await asyncio.gather(*map(look, cluster.nodes))

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
                if set(claim["mirrors"]) - set(claim["synchronised"]):
                    return f"{claim['group']}: {node} knows of a copy that is not in sync"
        for group, named in leaders.items():
            if len(named) != 1 or "" in named:
                return f"{group} is led by {' or '.join(sorted(named)) or 'none'}"
        return ""

    async def _why_open(self, cluster: Cluster) -> str:
        """Readers of what is committed come no further than the oldest open transaction."""
        for node in self._hosts(BROKER):
            at, keys = cluster.endpoint(node, "client"), range(self._partitions)
            stable = await self._wire.ends(at, self._topic, keys, COMMITTED)
            for key, end in (await self._wire.ends(at, self._topic, keys)).items():
                if key in stable and stable[key].offset < end.offset:
                    return f"{TOPIC}-{key}: a transaction is open at {stable[key].offset}"
        return ""

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[api.EventRow]:
        return ()


def lay_out(
    layout: str, nodes: Sequence[str], parameters: Mapping[str, object]
) -> Mapping[str, tuple[str, ...]]:
    """Brokers first, then one controller, or three if three brokers are left. Raises UsageError."""
    if layout == "together":
        return {}
    if len(nodes) <= BROKERS_MIN:
        raise api.UsageError(f"--layout {layout} needs {BROKERS_MIN + 1} nodes or more")
    count = 3 if len(nodes) >= BROKERS_MIN + 3 else 1
    brokers = len(nodes) - count
    return {node: (BROKER if at < brokers else CONTROLLER,) for at, node in enumerate(nodes)}


def missing(services: Mapping[str, tuple[str, ...]], parameters: Mapping[str, object]) -> str:
    hosted = {each for own in services.values() for each in own}
    return next((each for each in (BROKER, CONTROLLER) if each not in hosted), "")


def check(plan: api.Plan) -> None:
    """Raises UsageError for what Kafka can't be told."""
    asked = parameters_of(plan)
    services = plan.system.services.values()
    brokers = sum(BROKER in own for own in services) or len(plan.cluster.nodes)
    if asked.transactions and not asked.idempotence:
        raise api.UsageError("--transactions need --idempotence")
    if asked.idempotence and asked.acks != "all":
        raise api.UsageError(f"--acks {asked.acks} excludes --idempotence")
    if not asked.min_insync_replicas <= asked.replicas <= brokers:
        raise api.UsageError(
            f"{brokers} brokers can't have --replicas {asked.replicas} with --min-insync-replicas"
            f" {asked.min_insync_replicas}"
        )


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
    footprint=api.Footprint(memory_mib=420, cpus=0.4),
    stays_up=True,
)
