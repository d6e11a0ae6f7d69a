"""What Kafka is told: its parameters, which plans are refused, layouts, and a node's properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

import shalott.api as api

BROKER, CONTROLLER = "broker", "controller"
BROKERS_MIN = 3
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
    transaction_version: Annotated[
        Literal["1", "2"],
        msgspec.Meta(
            description="2: each transaction has an epoch of its own (KIP-890, from 4.0)."
        ),
    ] = "1"
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
    offset_reset: Annotated[
        Literal["earliest", "latest"],
        msgspec.Meta(description="Where a group begins that committed nothing."),
    ] = "earliest"
    heap: Annotated[str, msgspec.Meta(pattern=r"^\d+[mg]$")] = "256m"


def parameters_of(plan: api.Plan) -> KafkaParameters:
    return api.make_parameters(KafkaParameters, plan.system.parameters)


def properties(
    asked: KafkaParameters, services: Mapping[str, Sequence[str]], node: str, address: str
) -> Mapping[str, object]:
    """A node's ``server.properties``; ``services``: of each node, in the order of their ids."""
    ids, hosts = {each: at for at, each in enumerate(services, 1)}, services[node]
    brokers = sum(BROKER in own for own in services.values())
    voters = (f"{ids[each]}@{each}:9093" for each, own in services.items() if CONTROLLER in own)
    listeners = ["CLIENT://0.0.0.0:9092", "BROKER://0.0.0.0:9094"]
    advertised = f"CLIENT://{address}:9092,BROKER://{node}:9094"
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
        "node.id": ids[node],
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
        **({"log.flush.interval.messages": asked.flush_messages} if asked.flush_messages else {}),
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
    if len(plan.cluster.nodes) == 1:
        raise api.UsageError("a broker advertises the address that others dial: it needs --nodes 2")
    if asked.transactions and not asked.idempotence:
        raise api.UsageError("--transactions need --idempotence")
    if asked.transaction_version == "2" and asked.version.startswith("3."):
        raise api.UsageError(f"Kafka {asked.version} has no --transaction-version 2: 4.0 has it")
    if asked.idempotence and asked.acks != "all":
        raise api.UsageError(f"--acks {asked.acks} excludes --idempotence")
    if not asked.min_insync_replicas <= asked.replicas <= brokers:
        raise api.UsageError(
            f"{brokers} brokers can't have --replicas {asked.replicas} with --min-insync-replicas"
            f" {asked.min_insync_replicas}"
        )
