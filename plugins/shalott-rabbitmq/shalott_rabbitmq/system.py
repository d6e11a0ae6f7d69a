"""RabbitMQ 4 from Debian's packages, one node a container: quorum queues, streams, classic queues.

Nodes are called rabbit@n1 among themselves and n1 everywhere else. A node's role in a queue is what
its own answer says: its leader is the master, its other members are the mirrors. The management API
tells no terms; the log does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec

import shalott.api as api
from shalott_rabbitmq.beliefs import PREFIX, claim_of, short_name, why_unsettled
from shalott_rabbitmq.client import STREAM_PREFIX, QueueClient, StreamClient
from shalott_rabbitmq.losses import documented_losses

MANUAL = "https://www.rabbitmq.com/docs"
IMAGES = Path(__file__).parent / "images" / "rabbitmq4"
TOOL_TIMEOUT_MS = 60_000  # rabbitmqctl starts a virtual machine of its own
ASK_TIMEOUT_MS = 1500
CONFIGURE_TIMEOUT_MS = 15_000
OF_QUORUM_QUEUES = ("queue", "fifo", "partitions")  # whose queues the harness declares
STREAMS = 30  # as many keys as the workload partitions may have
NODES = "/api/nodes?columns=name,running,partitions"
QUEUES = "/api/queues/%2F?disable_stats=true"


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """RabbitMQ's own default of the net tick is 60 s; 4 s keeps runs short."""

    version: Annotated[
        Literal["4.0", "4.3"],
        msgspec.Meta(description="4.0 is Debian 13's, 4.3 of the suite after it."),
    ] = "4.0"
    queue_type: Annotated[
        Literal["classic", "quorum"], msgspec.Meta(description="Of queues; partitions are streams.")
    ] = "classic"
    replicas: Annotated[
        int, msgspec.Meta(ge=1, description="Members of a quorum queue or a stream.")
    ] = 3
    metadata: Annotated[
        Literal["default", "mnesia", "khepri"],
        msgspec.Meta(description="default: Mnesia in 4.0, Khepri in 4.3."),
    ] = "default"
    partition_handling: Annotated[
        Literal["ignore", "pause_minority", "autoheal"],
        msgspec.Meta(description="cluster_partition_handling, of Mnesia."),
    ] = "ignore"
    net_tick_ms: Annotated[int, msgspec.Meta(ge=1000, description="net_ticktime.")] = 4000
    delivery_limit: Annotated[
        int,
        msgspec.Meta(ge=-1, description="Deliveries before a message is dropped; -1: no limit."),
    ] = 20
    sync_boot: Annotated[
        bool,
        msgspec.Meta(
            description="Sync a boot's files before the load, as a kernel does in half a minute."
        ),
    ] = False
    client: Annotated[
        Literal["aio-pika", "own"],
        msgspec.Meta(description="Who speaks AMQP in the workload queue."),
    ] = "aio-pika"

    @property
    def store(self) -> str:
        if self.metadata != "default":
            return self.metadata
        return "mnesia" if self.version == "4.0" else "khepri"


class RabbitmqSystem:
    """See ``cluster.system.System``."""

    name = "rabbitmq4"
    ports: Mapping[str, int] = {"amqp": 5672, "management": 15672, "cluster": 25672}
    packages: Sequence[str] = ("rabbitmq-server", "erlang-base")

    def __init__(self, plan: api.Plan) -> None:
        self._own = parameters_of(plan)
        self._streams = plan.workload.name == "partitions"
        self._keys = int(plan.workload.parameters.get("keys", STREAMS))
        self.image = f"{IMAGES}:{self._own.version}"
        self.left_out: tuple[str, ...] = ()

    def node_specs(self, topology: api.Topology) -> Sequence[api.NodeSpec]:
        written = configuration(self._own, list(topology.listen))
        return api.rabbitmq_specs(topology, self.image, written)

    async def await_ready(
        self, cluster: api.Cluster, nodes: Sequence[str], timeout_ms: int
    ) -> None:
        async def why_not(node: str) -> str:
            running, _ = await self._membership(cluster, node)
            absent = sorted(set(nodes) - set(running))
            return f"it doesn't run with {', '.join(absent)}" if absent else ""

        await api.await_nodes(cluster, nodes, why_not, timeout_ms, may_exit=True)

    async def configure(self, cluster: api.Cluster, queues: Sequence[str]) -> None:
        if self._own.version == "4.0" and self._own.store == "khepri":
            for words in (("await_startup",), ("enable_feature_flag", "--opt-in", "khepri_db")):
                await self._tool(cluster, cluster.nodes[0], "rabbitmqctl", *words)
        streams = [f"{STREAM_PREFIX}{key}" for key in range(self._keys)] if self._streams else []
        for number, name in enumerate((*queues, *streams)):
            node = cluster.nodes[number % len(cluster.nodes)]
            try:
                await self.declare_queue(cluster, node, name)
            except api.ClientError as error:
                raise api.BootFailed(f"{node} does not declare {name}: {error}") from error
        if self._own.sync_boot:
            tool = ("find", "/data", "-exec", "sync", "{}", "+")  # a file may be gone by then
            for node in cluster.nodes:
                await cluster.processes.run_command(node, tool, TOOL_TIMEOUT_MS)

    async def declare_queue(self, cluster: api.Cluster, node: str, queue: str) -> None:
        kind = "stream" if queue.startswith(STREAM_PREFIX) else self._own.queue_type
        size = min(self._own.replicas, len(cluster.nodes))
        arguments: dict[str, object] = {"x-queue-type": kind}
        if kind == "stream":
            arguments["x-initial-cluster-size"] = size
        elif kind == "quorum":
            arguments["x-quorum-initial-group-size"] = size
            arguments["x-delivery-limit"] = self._own.delivery_limit
        wanted = {"durable": True, "arguments": arguments, "node": f"{PREFIX}{node}"}
        await management(cluster, node, CONFIGURE_TIMEOUT_MS).put(queue_path(queue), wanted)

    async def delete_queue(
        self, cluster: api.Cluster, node: str, queue: str, timeout_ms: int
    ) -> None:
        await management(cluster, node, timeout_ms).delete(queue_path(queue))

    async def observe(self, cluster: api.Cluster, node: str) -> api.Observation:
        """``running`` is empty while the node waits for one that is cut off."""

        async def membership() -> tuple[list[str], list[str]]:
            try:
                return await self._membership(cluster, node)
            except api.Indefinite:
                return [], []

        (running, partitions), queues = await asyncio.gather(
            membership(), management(cluster, node).get(QUEUES)
        )
        try:
            claims = [claim_of(node, queue) for queue in queues]
        except (KeyError, TypeError) as error:
            raise api.Definite(f"{node} answered with something else than queues") from error
        return {"running": running, "partitions": partitions, "claims": claims}

    async def _membership(self, cluster: api.Cluster, node: str) -> tuple[list[str], list[str]]:
        """(running nodes, nodes from which it is partitioned), as ``node`` sees them."""
        answer = await management(cluster, node).get(NODES)
        try:
            running = sorted(short_name(each["name"]) for each in answer if each["running"])
            own = next(each for each in answer if each["name"] == PREFIX + node)
        except (KeyError, TypeError, StopIteration) as error:
            raise api.Definite(f"{node} answered with something else than nodes") from error
        return running, sorted(map(short_name, own.get("partitions", ())))

    async def await_settled(
        self, cluster: api.Cluster, queues: Sequence[str], timeout_ms: int
    ) -> bool:
        async def why_not(node: str) -> str:
            nodes = api.members_of(cluster, self)
            seen = dict(zip(nodes, await asyncio.gather(*map(look, nodes)), strict=True))
            await self._grow(cluster, seen, queues)
            return self.why_unsettled(seen, queues)

        async def look(node: str) -> api.Observation | None:
            try:
                return await self.observe(cluster, node)
            except api.ClientError:
                return None

        try:
            first = api.members_of(cluster, self)[:1]
            await api.await_nodes(cluster, first, why_not, timeout_ms, may_exit=True)
        except api.BootFailed:
            return False
        return True

    async def _grow(
        self,
        cluster: api.Cluster,
        seen: Mapping[str, api.Observation | None],
        queues: Sequence[str],
    ) -> None:
        """What an operator does for a node that came back empty: it is a member again of each
        quorum queue that has too few."""
        few: set[str] = set()
        for answer in filter(None, seen.values()):
            for claim in answer["claims"]:
                members = {claim["master"], *claim["mirrors"]}
                wants = claim["kind"] == "quorum" and claim["group"] in queues
                if wants and len(members) < min(self._own.replicas, len(seen)):
                    few |= set(seen) & set(answer["running"]) - members
        for node in sorted(few):
            words = ("grow", f"{PREFIX}{node}", "all")
            await self._tool(cluster, node, "rabbitmq-queues", *words)

    def why_unsettled(
        self, seen: Mapping[str, api.Observation | None], queues: Sequence[str]
    ) -> str:
        return why_unsettled(seen, queues, self._own.replicas)

    # -- membership, as ``ChangesMembers`` has it

    def why_not_leave(self, node: str) -> str:
        return "" if self._own.queue_type == "quorum" else "its classic queues would go with it"

    async def members(self, cluster: api.Cluster, node: str) -> Sequence[str]:
        return [short_name(each["name"]) for each in await management(cluster, node).get(NODES)]

    async def running_members(self, cluster: api.Cluster, node: str) -> Sequence[str]:
        return (await self._membership(cluster, node))[0]

    async def forget(self, cluster: api.Cluster, node: str, by: str) -> None:
        if node in await self.members(cluster, by):
            await self._tool(cluster, by, "rabbitmqctl", "forget_cluster_node", f"{PREFIX}{node}")
        self.left_out = (*self.left_out, node)

    async def admit(self, cluster: api.Cluster, node: str, by: str) -> None:
        """An empty node finds the others by its configuration, and joins by itself; its queues are
        grown when the cluster is to settle."""
        self.left_out = tuple(other for other in self.left_out if other != node)

    async def _tool(self, cluster: api.Cluster, node: str, *words: str) -> None:
        done = await cluster.processes.run_command(node, list(words), TOOL_TIMEOUT_MS)
        if done.exit_code != 0:
            raise api.Definite(" ".join(done.output.split()) or f"exit code {done.exit_code}")

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[api.EventRow]:
        return api.read_rabbitmq_logs(collected, run_start_wall_ns)


def management(cluster: api.Cluster, node: str, timeout_ms: int = ASK_TIMEOUT_MS) -> api.Management:
    return api.Management(cluster.endpoint(node, "management"), timeout_ms=timeout_ms)


def queue_path(queue: str) -> str:
    return f"/api/queues/%2F/{quote(queue, safe='')}"


def configuration(own: Parameters, nodes: Sequence[str]) -> str:
    patient = "cluster_formation.discovery_retry_limit = 20"
    return api.rabbitmq_configuration(nodes, own.partition_handling, own.net_tick_ms, patient)


def parameters_of(plan: api.Plan) -> Parameters:
    return api.make_parameters(Parameters, plan.system.parameters)


def check(plan: api.Plan) -> None:
    """Raises UsageError for what this release can't be told, or does not promise."""
    own = parameters_of(plan)
    if own.version == "4.3" and own.metadata == "mnesia":
        raise api.UsageError("RabbitMQ 4.3 has no Mnesia any more: take --metadata khepri")
    if any(fault.kind == "wipe" for fault in plan.faults):
        raise api.UsageError(
            "a node that comes back empty has to be forgotten first: take --nemesis replace-node"
            " in place of wipe"
        )
    if own.queue_type != "quorum":
        return
    if plan.workload.name not in OF_QUORUM_QUEUES:
        raise api.UsageError(
            f"quorum queues have no workload {plan.workload.name}: use"
            f" {' or '.join(OF_QUORUM_QUEUES)}, or --queue-type classic"
        )
    if not plan.workload.parameters.get("durable", True):
        raise api.UsageError("quorum queues are always durable: leave out --no-durable")


def queues(plan: api.Plan) -> api.Queues | None:
    if parameters_of(plan).client == "own":
        return None
    return api.Queues(port="amqp", make_client=QueueClient)


# What mirrored queues lose by, and these do not have: docs/evidence/loss-windows.md.
CLOSED = ("L1", "L2", "L3", "L4", "L8", "L11", "L12")

GAPS = (
    "Messages are fetched one by one (basic.get): no consumer is pushed to with a prefetch, so that"
    " issue 15473 can't show.",
    "Not spoken: AMQP 1.0, MQTT, STOMP, and the streams' own protocol"
    f" ({MANUAL}/stream); offsets that the server keeps, filters, super streams.",
    f"Queues without dead letters, limits, priorities or single active consumers ({MANUAL}/dlx,"
    f" {MANUAL}/maxlength); no transactions; exchanges but the default one.",
    "No federation, shovels, TLS or definitions; no upgrade from 4.0 to 4.3"
    f" ({MANUAL}/upgrade); on 4.0 Khepri is chosen at boot, never while there is load.",
    "The net tick is 4 s in place of 60 s: partitions are noticed sooner than as shipped"
    f" ({MANUAL}/nettick).",
    "Debian's 4.0.5 and 4.3 only; messages are small, and queues short enough to fit into memory.",
)

SYSTEM = api.SystemRecord(
    name="rabbitmq4",
    summary="RabbitMQ 4 from Debian's packages: quorum queues, streams, classic queues",
    make=RabbitmqSystem,
    speaks=("amqp-0-9-1", "rabbitmq-management", "queues", "partitions"),
    workload="queue",
    profiles={
        "default": api.Profile(
            promise="A quorum has a confirmed message; what was delivered too often is dropped:"
            f" {MANUAL}/quorum-queues#poison-message-handling"
        ),
        "safe": api.Profile(
            parameters={
                "queue_type": "quorum",
                "partition_handling": "pause_minority",
                "delivery_limit": -1,
            },
            promise=f"A quorum has a confirmed message: {MANUAL}/quorum-queues#data-safety",
        ),
        "unsafe": api.Profile(
            parameters={"queue_type": "classic", "partition_handling": "autoheal"},
            promise="One node has it, and the nodes that lost a partition begin anew:"
            f" {MANUAL}/partitions#automatic-handling",
        ),
    },
    parameters=Parameters,
    worlds=("docker",),
    check=check,
    queues=queues,
    partitions=lambda plan: api.Partitions(
        port="amqp", make_client=StreamClient, transactions=False
    ),
    closes=lambda plan: CLOSED,
    # Erlang's kernel looks four times a net tick.
    notices_after_ms=lambda plan: 1.25 * parameters_of(plan).net_tick_ms,
    stays_up=True,
    orderly_exits=(0,),  # when the others are late at boot; it is started again
    documented_losses=lambda plan: documented_losses(parameters_of(plan)),
    gaps=GAPS,
    footprint=api.Footprint(memory_mib=200, cpus=0.35),
)
