"""NatsSystem: NATS JetStream of one release, a server a container.

What a node believes is what its monitoring port says: of the meta group, which keeps what streams
there are, and of each stream's group, who leads it, in which term. JetStream writes no events that
we read; its log is in each node's output.

Members are removed by the API of the meta group, which then leaves their streams' groups; a server
is let in by its first contact, and gets copies of what has too few. A server whose disk is empty
takes a new name, as the manual wants: the name is in a file beside its store.

What is promised: https://docs.nats.io/nats-concepts/jetstream#replication-and-sync-behavior
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, KeyValueConfig, RetentionPolicy, StreamConfig

import shalott.api as api
from shalott_nats.client import (
    API_PREFIX,
    CONSUMER,
    LOG,
    LogClient,
    QueueClient,
    connect,
    stream_of,
    subject_of,
    told,
)
from shalott_nats.losses import documented_losses
from shalott_nats.monitor import (
    LIFE,
    META,
    META_GROUP,
    State,
    claim_of,
    jetstream_state,
    node_of,
    raft_groups,
    why_unsettled,
)
from shalott_nats.registers import BUCKET, STREAM, RegisterClient

MANUAL = "https://docs.nats.io"
IMAGE = Path(__file__).parent / "images" / "nats"
ASK_TIMEOUT_MS = 1500
CONFIGURE_S = 30
FORGET_MS = 5000  # an answer may come before the group agreed
ACCOUNT = "shalott"
OPERATOR = "operator"  # of the system account: name and password
Release: TypeAlias = Literal["2.10.20", "2.10.22", "2.12.1", "2.15.3"]


class NatsParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The server's own settings."""

    version: Release = "2.15.3"
    replicas: Annotated[int, msgspec.Meta(ge=1, le=5, description="Copies of each stream.")] = 3
    sync_interval: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^(always|\d+(ms|s|m))$",
            description="When files are synced: always, or so often.",
        ),
    ] = "2m"
    ack_wait_ms: Annotated[
        int, msgspec.Meta(ge=100, description="Then a message that is not settled comes again.")
    ] = 5000
    reads: Annotated[
        Literal["leader", "direct"],
        msgspec.Meta(description="direct: of registers, answered from any copy."),
    ] = "leader"
    fresh_names: Annotated[
        bool, msgspec.Meta(description="A server whose disk is empty takes a new name.")
    ] = True


# With the file in which the name stands, and the node. What a loss of power takes of it would be a
# stranger's name, so it is synced, and its directory.
START = f"""place=$1; node=$2; shift 2
if [ ! -s "$place" ]; then
  echo "$node{LIFE}$(date +%s)" >"$place.new" && sync "$place.new" && mv "$place.new" "$place"
  sync "${{place%/*}}"
fi
exec nats-server -n "$(cat "$place")" "$@"
"""


class NatsSystem:
    """See ``cluster.system.System``; it ``ChangesMembers``. ``bucket``: its clients use registers,
    not the log."""

    name = "nats"
    ports: Mapping[str, int] = {"client": 4222, "cluster": 6222, "monitor": 8222}

    def __init__(self, parameters: NatsParameters, *, bucket: bool = False) -> None:
        self._parameters = parameters
        self.image = f"{IMAGE}:{parameters.version}"
        self._own = STREAM if bucket else LOG  # without queues
        self._groups: dict[str, str] = {}  # what the history calls a stream
        self._nodes: dict[str, str] = {}  # of peers, by id
        self.left_out: Sequence[str] = ()

    def node_specs(self, topology: api.Topology) -> Sequence[api.NodeSpec]:
        nodes = sorted(topology.listen)
        return [
            api.NodeSpec(
                name=node,
                image=self.image,
                command=self._command(node),
                files={"nats.conf": self._configuration(node, nodes)},
                ports=self.ports,
                collect=(),
            )
            for node in nodes
        ]

    def _command(self, node: str) -> tuple[str, ...]:
        flags = ("-c", "{config}/nats.conf", "-sd", "{data}/store")
        if self._parameters.fresh_names:  # faults of files spare what is called so
            return ("sh", "-c", START, "nats", "{data}/.shalott-name", node, *flags)
        return ("nats-server", "-n", node, *flags)

    def _configuration(self, node: str, nodes: Sequence[str]) -> str:
        """Routes notice a silent peer after two pings: by default after four minutes."""
        routes = ", ".join(
            f'"nats://{other}:{self.ports["cluster"]}"' for other in nodes if other != node
        )
        return (
            f"listen: 0.0.0.0:{self.ports['client']}\n"
            f"http: 0.0.0.0:{self.ports['monitor']}\n"
            f"jetstream {{ sync_interval: {self._parameters.sync_interval} }}\n"
            f"cluster {{ name: shalott, listen: 0.0.0.0:{self.ports['cluster']},"
            f" no_advertise: true, ping_interval: 5s, routes: [{routes}] }}\n"
            f"accounts {{ {ACCOUNT}: {{ jetstream: enabled, users: [{{user: client}}] }},"
            f" $SYS: {{ users: [{{user: {OPERATOR}, password: {OPERATOR}}}] }} }}\n"
            "no_auth_user: client\n"
        )

    # -- what it believes --------------------------------------------------------------------------

    async def observe(self, cluster: api.Cluster, node: str) -> api.Observation:
        at = self._monitor(cluster, node)
        state, system, own = await asyncio.gather(
            jetstream_state(at), raft_groups(at), raft_groups(at, f"?acc={ACCOUNT}")
        )
        known = {**system, **own}
        claims = [claim_of(META, node, state.meta_cluster, known.get(META_GROUP), State())]
        for account in state.account_details:
            for stream in account.stream_detail:
                group = self._groups.get(stream.name, stream.name)
                raft = known.get(stream.stream_raft_group)
                claims.append(claim_of(group, node, stream.cluster, raft, stream.state))
        return {"running": [node], "partitions": [], "claims": claims}

    def _monitor(self, cluster: api.Cluster, node: str) -> api.Management:
        return api.Management(cluster.endpoint(node, "monitor"), timeout_ms=ASK_TIMEOUT_MS)

    # -- members -----------------------------------------------------------------------------------

    def why_not_leave(self, node: str) -> str:
        return ""

    async def members(self, cluster: api.Cluster, node: str) -> Sequence[str]:
        return sorted({node, *(await self._peers(cluster, node)).values()})

    async def running_members(self, cluster: api.Cluster, node: str) -> Sequence[str]:
        members = await self.members(cluster, node)
        seen = await self._look(cluster, members)
        return [member for member in members if seen[member] is not None]

    async def forget(self, cluster: api.Cluster, node: str, by: str) -> None:
        for peer, own in (await self._peers(cluster, by)).items():
            if own == node:
                await self._remove(cluster, peer, by)
        self.left_out = [*(name for name in self.left_out if name != node), node]

    async def admit(self, cluster: api.Cluster, node: str, by: str) -> None:
        """Its first contact does it."""
        self.left_out = [name for name in self.left_out if name != node]

    async def _remove(self, cluster: api.Cluster, peer: str, by: str) -> None:
        at = cluster.endpoint(by, "client")
        connection = await connect(
            at.host, at.port, ASK_TIMEOUT_MS, user=OPERATOR, password=OPERATOR
        )
        try:
            async with told("remove"):
                answer = await connection.request(
                    f"{API_PREFIX}.SERVER.REMOVE",
                    json.dumps({"peer": "", "peer_id": peer}).encode(),
                    timeout=FORGET_MS / 1000,
                )
        finally:
            await connection.close()
        if error := json.loads(answer.data).get("error"):
            raise api.Indefinite(f"remove: {error}")

        async def why_not(node: str) -> str:
            return f"{peer} is a peer" if peer in await self._peers(cluster, node) else ""

        try:
            await api.await_nodes(cluster, [by], why_not, FORGET_MS, may_exit=True)
        except api.BootFailed as error:
            raise api.Indefinite(f"remove: {by} still has the peer {peer}") from error

    async def _peers(self, cluster: api.Cluster, by: str) -> Mapping[str, str]:
        """The nodes of the meta group's other peers, by id, as ``by`` has them."""
        meta = (await raft_groups(self._monitor(cluster, by))).get(META_GROUP)
        if meta is None:
            raise api.Definite(f"{by} has no meta group")
        self._nodes |= {peer: node_of(each.name) for peer, each in meta.peers.items() if each.name}
        return {peer: self._nodes.get(peer, peer) for peer in meta.peers}

    # -- at the beginning and at the end -----------------------------------------------------------

    async def await_ready(
        self, cluster: api.Cluster, nodes: Sequence[str], timeout_ms: int
    ) -> None:
        async def why_not(node: str) -> str:
            meta = (await self.observe(cluster, node))["claims"][0]
            await self._peers(cluster, node)  # later, one that is down may have no name there
            return "" if meta["master"] else "it knows no leader of the meta group"

        await api.await_nodes(cluster, nodes, why_not, timeout_ms)

    async def configure(self, cluster: api.Cluster, queues: Sequence[str]) -> None:
        """A stream for each queue; without queues, the one log or the bucket."""
        self._groups = {stream_of(queue): queue for queue in queues}
        at = cluster.endpoint(cluster.nodes[0], "client")
        wanted = [*map(self._queue, queues)] if queues else [self._alone()]
        why = "no answer"
        try:
            async with asyncio.timeout(CONFIGURE_S):
                while wanted:
                    try:
                        await self._make(at, wanted[0], consumer=bool(queues))
                        wanted.pop(0)
                    except (nats.errors.Error, api.ClientError) as error:  # no leader yet
                        why = str(error)
                        await asyncio.sleep(0.2)
        except TimeoutError as error:
            raise api.BootFailed(f"the stream of {wanted[0]} can't be made: {why}") from error

    def _queue(self, queue: str) -> StreamConfig:
        return StreamConfig(
            name=stream_of(queue),
            subjects=[subject_of(queue)],
            retention=RetentionPolicy.WORK_QUEUE,
            num_replicas=self._parameters.replicas,
        )

    def _alone(self) -> StreamConfig | KeyValueConfig:
        copies = self._parameters.replicas
        if self._own == LOG:
            return StreamConfig(name=LOG, subjects=[f"{LOG}.*"], num_replicas=copies)
        is_direct = self._parameters.reads == "direct"
        return KeyValueConfig(bucket=BUCKET, replicas=copies, direct=is_direct)

    async def _make(
        self, at: api.Endpoint, wanted: StreamConfig | KeyValueConfig, *, consumer: bool
    ) -> None:
        connection = await connect(at.host, at.port, ASK_TIMEOUT_MS)
        try:
            stream = connection.jetstream(timeout=ASK_TIMEOUT_MS / 1000)
            if isinstance(wanted, KeyValueConfig):
                await stream.create_key_value(wanted)
                return
            await stream.add_stream(wanted)
            if consumer:
                shared = ConsumerConfig(
                    durable_name=CONSUMER,
                    ack_policy=AckPolicy.EXPLICIT,
                    ack_wait=self._parameters.ack_wait_ms / 1000,
                    max_ack_pending=100_000,
                )
                await stream.add_consumer(str(wanted.name), shared)
        finally:
            await connection.close()

    async def await_settled(
        self, cluster: api.Cluster, queues: Sequence[str], timeout_ms: int
    ) -> bool:
        members = api.members_of(cluster, self)

        async def why_not(node: str) -> str:
            before = await self._look(cluster, members)  # clients may be at work meanwhile
            after = await self._look(cluster, members)
            return why_unsettled(before, after, self._copies(queues, len(members)))

        try:
            await api.await_nodes(cluster, members[:1], why_not, timeout_ms)
        except api.BootFailed:
            return False
        return True

    async def _look(
        self, cluster: api.Cluster, nodes: Sequence[str]
    ) -> dict[str, api.Observation | None]:
        async def look(node: str) -> api.Observation | None:
            try:
                return await self.observe(cluster, node)
            except api.ClientError:
                return None

        return dict(zip(nodes, await asyncio.gather(*map(look, nodes)), strict=True))

    def why_unsettled(
        self, seen: Mapping[str, api.Observation | None], queues: Sequence[str]
    ) -> str:
        return why_unsettled(seen, seen, self._copies(queues, len(seen)))

    def _copies(self, queues: Sequence[str], count: int) -> Mapping[str, int]:
        """How many each group has among so many members."""
        own = min(self._parameters.replicas, count)
        return {META: count, **dict.fromkeys(queues or (self._own,), own)}

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[api.EventRow]:
        return ()


def parameters_of(plan: api.Plan) -> NatsParameters:
    return api.make_parameters(NatsParameters, plan.system.parameters)


def check(plan: api.Plan) -> None:
    """Raises UsageError for what JetStream can't be told, or can't survive by its own account."""
    replicas, nodes = parameters_of(plan).replicas, len(plan.cluster.nodes)
    if replicas > nodes:
        raise api.UsageError(f"--replicas {replicas}: there are {nodes} nodes")
    if any(fault.kind == "wipe" for fault in plan.faults):
        raise api.UsageError(
            "a server whose disk is gone has to be removed, and comes back under another name:"
            " use --nemesis replace-node in place of wipe"
        )


def registers(plan: api.Plan) -> api.Registers:
    """At the leader they are held to what streams are called, linearizable. Of direct ones the
    manual guarantees that they do not go back, and not that a client reads what it wrote:
    https://docs.nats.io/nats-concepts/jetstream/key-value-store"""
    is_direct = parameters_of(plan).reads == "direct"
    return api.Registers(
        port="client",
        make_client=partial(RegisterClient, direct=is_direct),
        promises="monotonic" if is_direct else "linearizable",
    )


SYSTEM = api.SystemRecord(
    name="nats",
    summary="NATS JetStream 2.10 to 2.15: replicated streams (containers only)",
    make=lambda plan: NatsSystem(parameters_of(plan), bucket=plan.workload.name == "register"),
    speaks=("queues", "partitions", "registers"),
    workload="queue",
    profiles={
        "default": api.Profile(
            promise="A quorum has an acknowledged message, and its disks have it two minutes later:"
            f" {MANUAL}/running-a-nats-service/configuration#jetstream"
        ),
        "safe": api.Profile(
            parameters={"sync_interval": "always"},
            promise="A quorum has an acknowledged message on its disks:"
            f" {MANUAL}/nats-concepts/jetstream#replication-and-sync-behavior",
        ),
    },
    parameters=NatsParameters,
    check=check,
    queues=lambda plan: api.Queues(port="client", make_client=QueueClient),
    partitions=lambda plan: api.Partitions(
        port="client", make_client=LogClient, transactions=False
    ),
    documented_losses=lambda plan: documented_losses(parameters_of(plan)),
    registers=registers,
    footprint=api.Footprint(memory_mib=60, cpus=0.2),
    stays_up=True,
    gaps=(
        "Clusters of clusters (gateways), leaf nodes, mirrors and sources are not run.",
        "Streams in memory, limits that discard, and message deduplication by id are not used.",
        "Push consumers, priority groups, object stores and batched publishing are not spoken.",
        "A reader's own offsets are not committed: consumers of the log are not durable.",
        "A server is removed after its process ended, not while it runs, and none is evacuated.",
    ),
)
