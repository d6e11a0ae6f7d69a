"""NatsSystem: NATS JetStream of one release, a server a container.

What a node believes is what its monitoring port says: of the meta group, which keeps what streams
there are, and of each stream's group, who leads it, in which term. JetStream writes no events that
we read; its log is in each node's output.

What is promised: https://docs.nats.io/nats-concepts/jetstream#replication-and-sync-behavior
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig

import shalott.api as api
from shalott_nats.client import (
    CONSUMER,
    LOG,
    LogClient,
    QueueClient,
    connect,
    stream_of,
    subject_of,
)
from shalott_nats.losses import documented_losses

MANUAL = "https://docs.nats.io"
IMAGE = Path(__file__).parent / "images" / "nats"
ASK_TIMEOUT_MS = 1500
CONFIGURE_S = 30
ACCOUNT, META, LEADER = "shalott", "meta", "LEADER"
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


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Of a Raft group, as a node has it."""

    state: str
    term: int
    committed: int = 0
    applied: int = 0


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """Of a group, as its leader has it; a follower knows who leads."""

    leader: str = ""
    replicas: tuple[Peer, ...] = ()


class State(msgspec.Struct, frozen=True, kw_only=True):
    messages: int = 0
    last_seq: int = 0


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cluster: Members = Members()
    state: State = State()
    stream_raft_group: str = ""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    stream_detail: tuple[Stream, ...] = ()


class JetStreamState(msgspec.Struct, frozen=True, kw_only=True):
    meta_cluster: Members = Members()
    account_details: tuple[Account, ...] = ()


class NatsSystem:
    """See ``cluster.system.System``."""

    name = "nats"
    ports: Mapping[str, int] = {"client": 4222, "cluster": 6222, "monitor": 8222}

    def __init__(self, parameters: NatsParameters) -> None:
        self._parameters = parameters
        self.image = f"{IMAGE}:{parameters.version}"
        self._groups: dict[str, str] = {}  # what the history calls a stream

    def node_specs(self, topology: api.Topology) -> Sequence[api.NodeSpec]:
        nodes = sorted(topology.listen)
        return [
            api.NodeSpec(
                name=node,
                image=self.image,
                command=("nats-server", "-c", "{config}/nats.conf", "-sd", "{data}/store"),
                files={"nats.conf": self._configuration(node, nodes)},
                ports=self.ports,
                collect=(),
            )
            for node in nodes
        ]

    def _configuration(self, node: str, nodes: Sequence[str]) -> str:
        """Routes notice a silent peer after two pings: by default after four minutes."""
        routes = ", ".join(
            f'"nats://{other}:{self.ports["cluster"]}"' for other in nodes if other != node
        )
        return (
            f"server_name: {node}\n"
            f"listen: 0.0.0.0:{self.ports['client']}\n"
            f"http: 0.0.0.0:{self.ports['monitor']}\n"
            f"jetstream {{ sync_interval: {self._parameters.sync_interval} }}\n"
            f"cluster {{ name: shalott, listen: 0.0.0.0:{self.ports['cluster']},"
            f" no_advertise: true, ping_interval: 5s, routes: [{routes}] }}\n"
            f"accounts {{ {ACCOUNT}: {{ jetstream: enabled, users: [{{user: client}}] }},"
            " $SYS: { users: [{user: operator, password: operator}] } }\n"
            "no_auth_user: client\n"
        )

    # -- what it believes --------------------------------------------------------------------------

    async def observe(self, cluster: api.Cluster, node: str) -> api.Observation:
        at = api.Management(cluster.endpoint(node, "monitor"), timeout_ms=ASK_TIMEOUT_MS)
        told, system, own = await asyncio.gather(
            at.get("/jsz?accounts=true&streams=true&raft=true"),
            _groups(at, "/raftz"),
            _groups(at, f"/raftz?acc={ACCOUNT}"),
        )
        try:
            state = msgspec.convert(told, JetStreamState)
        except msgspec.ValidationError as error:
            raise api.Definite(f"{node} answered with something else: {error}") from error
        known = {**system, **own}
        claims = [_claim(META, node, state.meta_cluster, known.get("_meta_"), State())]
        for account in state.account_details:
            for stream in account.stream_detail:
                group = self._groups.get(stream.name, stream.name)
                raft = known.get(stream.stream_raft_group)
                claims.append(_claim(group, node, stream.cluster, raft, stream.state))
        return {"running": [node], "partitions": [], "claims": claims}

    # -- at the beginning and at the end -----------------------------------------------------------

    async def await_ready(
        self, cluster: api.Cluster, nodes: Sequence[str], timeout_ms: int
    ) -> None:
        async def why_not(node: str) -> str:
            meta = (await self.observe(cluster, node))["claims"][0]
            return "" if meta["master"] else "it knows no leader of the meta group"

        await api.await_nodes(cluster, nodes, why_not, timeout_ms)

    async def configure(self, cluster: api.Cluster, queues: Sequence[str]) -> None:
        """A stream for each queue; without queues, the one log."""
        self._groups = {stream_of(queue): queue for queue in queues}
        at = cluster.endpoint(cluster.nodes[0], "client")
        wanted = [self._queue(queue) for queue in queues] or [
            StreamConfig(name=LOG, subjects=[f"{LOG}.*"], num_replicas=self._parameters.replicas)
        ]
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
            raise api.BootFailed(f"the stream {wanted[0].name} can't be made: {why}") from error

    def _queue(self, queue: str) -> StreamConfig:
        return StreamConfig(
            name=stream_of(queue),
            subjects=[subject_of(queue)],
            retention=RetentionPolicy.WORK_QUEUE,
            num_replicas=self._parameters.replicas,
        )

    async def _make(self, at: api.Endpoint, wanted: StreamConfig, *, consumer: bool) -> None:
        connection = await connect(at.host, at.port, ASK_TIMEOUT_MS)
        try:
            stream = connection.jetstream(timeout=ASK_TIMEOUT_MS / 1000)
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
        async def why_not(node: str) -> str:
            before = await self._look(cluster)  # clients may be at work: a log grows meanwhile
            return self._why_unsettled(before, await self._look(cluster), queues)

        try:
            await api.await_nodes(cluster, cluster.nodes[:1], why_not, timeout_ms)
        except api.BootFailed:
            return False
        return True

    async def _look(self, cluster: api.Cluster) -> dict[str, api.Observation | None]:
        async def look(node: str) -> api.Observation | None:
            try:
                return await self.observe(cluster, node)
            except api.ClientError:
                return None

        answers = await asyncio.gather(*map(look, cluster.nodes))
        return dict(zip(cluster.nodes, answers, strict=True))

    def why_unsettled(
        self, seen: Mapping[str, api.Observation | None], queues: Sequence[str]
    ) -> str:
        return self._why_unsettled(seen, seen, queues)

    def _why_unsettled(
        self,
        before: Mapping[str, api.Observation | None],
        seen: Mapping[str, api.Observation | None],
        queues: Sequence[str],
    ) -> str:
        """Settled: each group has one leader, whom its members follow in one term, and they have
        what it had ``before``."""
        silent = sorted(node for node, answer in seen.items() if answer is None)
        if silent:
            return f"{', '.join(silent)} did not answer"
        for group in (META, *(queues or (LOG,))):
            claims = _claims(seen, group)
            wanted = len(seen) if group == META else min(self._parameters.replicas, len(seen))
            if len(claims) < wanted:
                return f"{group}: {len(claims)} of {wanted} copies"
            for what in ("master", "epoch"):
                told = {node: claim[what] for node, claim in claims.items()}
                if len(set(told.values())) > 1 or not all(told.values()):
                    said = ", ".join(f"{node} says {each}" for node, each in told.items())
                    return f"{group}: {what}: {said}"
            leaders = [c for c in _claims(before, group).values() if c["role"] == "master"]
            end = max((claim["last_offset"] for claim in leaders), default=0)
            behind = sorted(node for node, claim in claims.items() if claim["last_offset"] < end)
            if behind:
                return f"{group}: {', '.join(behind)} has not come to {end}"
        return ""

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[api.EventRow]:
        return ()


def _claims(seen: Mapping[str, api.Observation | None], group: str) -> dict[str, Mapping[str, Any]]:
    """What each node that answered says of the group."""
    return {
        node: claim
        for node, answer in seen.items()
        for claim in (answer or {"claims": ()})["claims"]
        if claim["group"] == group
    }


async def _groups(at: api.Management, path: str) -> dict[str, Group]:
    """By name, of one account. Before there is a first, a server says that there is none."""
    answer = await at.request("GET", path)
    if answer.status == 404:
        return {}
    try:
        told = msgspec.json.decode(answer.body, type=dict[str, dict[str, Group]])
    except msgspec.DecodeError as error:
        raise api.Definite(f"{path}: {error}") from error
    return {name: group for each in told.values() for name, group in each.items()}


def _claim(
    group: str, node: str, members: Members, raft: Group | None, state: State
) -> dict[str, object]:
    is_leader = raft is not None and raft.state == LEADER
    others = sorted(peer.name for peer in members.replicas if peer.name != node)
    return {
        "group": group,
        "role": "master" if is_leader else "mirror" if members.leader else "none",
        "epoch": 0 if raft is None else raft.term,
        "master": node if is_leader else members.leader,
        "mirrors": others,
        "synchronised": others,  # a majority is, whichever: no one waits for a certain one
        "state": "running" if members.leader else "down",
        "messages": state.messages,
        "last_offset": state.last_seq,
    }


def parameters_of(plan: api.Plan) -> NatsParameters:
    return api.make_parameters(NatsParameters, plan.system.parameters)


def check(plan: api.Plan) -> None:
    """Raises UsageError for what JetStream can't be told, or can't survive by its own account."""
    replicas, nodes = parameters_of(plan).replicas, len(plan.cluster.nodes)
    if replicas > nodes:
        raise api.UsageError(f"--replicas {replicas}: there are {nodes} nodes")
    if any(fault.kind == "wipe" for fault in plan.faults):
        raise api.UsageError(
            "a server whose disk is gone has to come back under another name:"
            " leave out --nemesis wipe"
        )


SYSTEM = api.SystemRecord(
    name="nats",
    summary="NATS JetStream 2.10 to 2.15: replicated streams (containers only)",
    make=lambda plan: NatsSystem(parameters_of(plan)),
    speaks=("queues", "partitions"),
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
    footprint=api.Footprint(memory_mib=60, cpus=0.2),
    stays_up=True,
)
