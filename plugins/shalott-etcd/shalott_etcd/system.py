"""EtcdSystem: etcd of one release, a member a container.

A node's claim is what its own status says: it leads if it takes itself for the leader, and the
epoch is Raft's term. etcd writes no events that we read; its log is in each node's output. Members
are changed by its own API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

import shalott.api as api
from shalott_etcd.client import Header, LogClient, RegisterClient, TransactionClient, ask, encode
from shalott_etcd.leases import LeaseClient
from shalott_etcd.losses import documented_losses

MANUAL = "https://etcd.io/docs/latest"
IMAGE = Path(__file__).parent / "images" / "etcd"
ASK_TIMEOUT_MS = 1500
GROUP = "etcd"  # what is replicated: all of it is one log
Release: TypeAlias = Literal["3.5.0", "3.5.1", "3.5.2", "3.5.35", "3.6.16", "3.7.3"]
T = TypeVar("T")


class EtcdParameters(msgspec.Struct, frozen=True, kw_only=True):
    """etcd's own flags. Elections take one to two timeouts."""

    version: Release = "3.7.3"
    heartbeat_ms: int = 100
    election_timeout_ms: int = 1000
    reads: Annotated[
        Literal["quorum", "serializable"],
        msgspec.Meta(description="serializable: answered from a node's own copy."),
    ] = "quorum"
    unsafe_no_fsync: Annotated[
        bool, msgspec.Meta(description="Answer before what is written is synced.")
    ] = False
    corrupt_check: Annotated[
        bool, msgspec.Meta(description="A member compares what it holds before it serves.")
    ] = False
    snapshot_count: Annotated[
        int, msgspec.Meta(ge=0, description="Entries from snapshot to snapshot; 0: the release's.")
    ] = 0
    compact_every_ms: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            description="Old revisions are dropped so often; 0: never. Far below the time that a"
            " node takes to start, releases 3.5.0 to 3.5.2 panic there.",
        ),
    ] = 0
    compaction_batch: Annotated[
        int, msgspec.Meta(ge=0, description="Revisions that are dropped at a time; 0: its own.")
    ] = 0
    lease_ttl_s: Annotated[int, msgspec.Meta(ge=2, description="Of a lock's lease, seconds.")] = 5
    lease_trust: Annotated[
        Literal["clock", "answers"],
        msgspec.Meta(
            description="answers: who holds a lock has lost it when etcd says so; clock: or when"
            " the lease was not renewed in half its time."
        ),
    ] = "clock"


class Member(msgspec.Struct, frozen=True):
    """One that was let in, and has not started, has its address only."""

    ID: str
    name: str = ""
    peerURLs: tuple[str, ...] = ()  # noqa: N815

    @property
    def node(self) -> str:
        return self.name or self.peerURLs[0].split("/")[2].split(":")[0]


class Members(msgspec.Struct, frozen=True):
    members: tuple[Member, ...] = ()


class Status(msgspec.Struct, frozen=True):
    header: Header
    raftTerm: str  # noqa: N815
    raftAppliedIndex: str = "0"  # noqa: N815
    leader: str = "0"


class EtcdSystem:
    """See ``cluster.system.System``; it ``ChangesMembers`` and ``Defragments``."""

    name = "etcd"
    ports: Mapping[str, int] = {"client": 2379, "peer": 2380}

    def __init__(self, parameters: EtcdParameters) -> None:
        self._parameters = parameters
        self.image = f"{IMAGE}:{parameters.version}"
        self._names: dict[str, str] = {}  # by member id
        self.left_out: Sequence[str] = ()

    def node_specs(self, topology: api.Topology) -> Sequence[api.NodeSpec]:
        nodes = sorted(topology.listen)
        client = self.ports["client"]
        return [
            api.NodeSpec(
                name=node,
                image=self.image,
                command=self._command(node, nodes),
                environment={
                    "SHALOTT_CLIENTS": ",".join(
                        f"http://{other}:{client}" for other in nodes if other != node
                    )
                },
                ports=self.ports,
                collect=(),
            )
            for node in nodes
        ]

    def _command(self, node: str, nodes: Sequence[str]) -> tuple[str, ...]:
        asked, client, peer = self._parameters, self.ports["client"], self.ports["peer"]
        flags = {
            "name": node,
            "data-dir": "{data}/etcd",
            "listen-client-urls": f"http://0.0.0.0:{client}",
            "advertise-client-urls": f"http://{node}:{client}",
            "listen-peer-urls": f"http://0.0.0.0:{peer}",
            "initial-advertise-peer-urls": f"http://{node}:{peer}",
            "initial-cluster": ",".join(f"{name}=http://{name}:{peer}" for name in nodes),
            "initial-cluster-token": "shalott",
            "heartbeat-interval": str(asked.heartbeat_ms),
            "election-timeout": str(asked.election_timeout_ms),
            "unsafe-no-fsync": "true" if asked.unsafe_no_fsync else "false",
        }
        if asked.corrupt_check:
            is_old = asked.version.startswith("3.5.")
            name = "experimental-initial-corrupt-check" if is_old else "feature-gates"
            flags[name] = "true" if is_old else "InitialCorruptCheck=true"
        if asked.snapshot_count:
            flags["snapshot-count"] = str(asked.snapshot_count)
        if asked.compact_every_ms:
            flags["auto-compaction-mode"] = "periodic"
            flags["auto-compaction-retention"] = f"{asked.compact_every_ms}ms"
        if asked.compaction_batch:
            old = "experimental-" if asked.version.startswith("3.5.") else ""
            flags[f"{old}compaction-batch-limit"] = str(asked.compaction_batch)
        return ("etcd", *(f"--{flag}={value}" for flag, value in flags.items()))

    # -- members -----------------------------------------------------------------------------------

    def why_not_leave(self, node: str) -> str:
        return ""

    async def members(self, cluster: api.Cluster, node: str) -> Sequence[str]:
        return [member.node for member in await self._members(cluster, node)]

    async def running_members(self, cluster: api.Cluster, node: str) -> Sequence[str]:
        members = await self.members(cluster, node)
        seen = await self._look(cluster, members)
        return [member for member in members if seen[member] is not None]

    async def forget(self, cluster: api.Cluster, node: str, by: str) -> None:
        for member in await self._members(cluster, by):
            if member.node == node:
                await self._ask(cluster, by, "cluster/member/remove", {"ID": member.ID}, Members)
        self.left_out = [*(name for name in self.left_out if name != node), node]

    async def admit(self, cluster: api.Cluster, node: str, by: str) -> None:
        if node not in await self.members(cluster, by):
            address = f"http://{node}:{self.ports['peer']}"
            await self._ask(cluster, by, "cluster/member/add", {"peerURLs": [address]}, Members)
        self.left_out = [name for name in self.left_out if name != node]

    async def _members(self, cluster: api.Cluster, by: str) -> Sequence[Member]:
        return (await self._ask(cluster, by, "cluster/member/list", {}, Members)).members

    async def defragment(self, cluster: api.Cluster, node: str) -> None:
        await self._ask(cluster, node, "maintenance/defragment", {}, dict[str, object])

    # -- at the beginning, meanwhile and at the end ------------------------------------------------

    async def await_ready(
        self, cluster: api.Cluster, nodes: Sequence[str], timeout_ms: int
    ) -> None:
        async def why_not(node: str) -> str:
            await self._ask(cluster, node, "kv/range", {"key": encode("ready")}, dict[str, object])
            return ""  # the leader confirmed the read: there is one, and the node hears of it

        await api.await_nodes(cluster, nodes, why_not, timeout_ms)

    async def configure(self, cluster: api.Cluster, queues: Sequence[str]) -> None:
        """Keys need no declaration."""

    async def observe(self, cluster: api.Cluster, node: str) -> api.Observation:
        status = await self._ask(cluster, node, "maintenance/status", {}, Status)
        own, leader = status.header.member_id, status.leader
        if leader not in self._names and leader != "0":  # it may have been replaced
            members = await self._members(cluster, node)
            self._names = {member.ID: member.node for member in members}
        master = self._names.get(leader, "")
        others = sorted(set(self._names.values()) - {master})
        claim = {
            "group": GROUP,
            "role": "master" if leader == own else "mirror" if master else "none",
            "epoch": int(status.raftTerm),
            "master": master,
            "mirrors": others,
            "synchronised": others,
            "state": "running" if master else "down",
            "applied": int(status.raftAppliedIndex),
            "revision": int(status.header.revision),
        }
        return {"running": [node], "partitions": [], "claims": [claim]}

    async def await_settled(
        self, cluster: api.Cluster, queues: Sequence[str], timeout_ms: int
    ) -> bool:
        members = api.members_of(cluster, self)

        async def why_not(node: str) -> str:
            before = await self._look(cluster, members)  # clients may be at work meanwhile
            return _why_unsettled(before, await self._look(cluster, members))

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
        return _why_unsettled(seen, seen)

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[api.EventRow]:
        return ()

    async def _ask(
        self, cluster: api.Cluster, node: str, path: str, body: object, kind: type[T]
    ) -> T:
        return await ask(cluster.endpoint(node, "client"), path, body, ASK_TIMEOUT_MS, kind)


def _why_unsettled(
    before: Mapping[str, api.Observation | None], seen: Mapping[str, api.Observation | None]
) -> str:
    """Settled: all follow one leader in one term, and have applied what it had ``before``. What
    they made of it may differ nevertheless: that is for checkers to find."""
    claims = {node: answer["claims"][0] for node, answer in seen.items() if answer is not None}
    silent = sorted(set(seen) - set(claims))
    if silent:
        return f"{', '.join(silent)} did not answer"
    for what in ("master", "epoch"):
        told = {node: claim[what] for node, claim in claims.items()}
        if len(set(told.values())) > 1 or not all(told.values()):
            return f"{what}: " + ", ".join(f"{node} says {each}" for node, each in told.items())
    led = [claim for answer in before.values() if answer for claim in answer["claims"]]
    end = max((claim["applied"] for claim in led if claim["role"] == "master"), default=0)
    behind = sorted(node for node, claim in claims.items() if claim["applied"] < end)
    return f"{', '.join(behind)} has not applied {end}" if behind else ""


def parameters_of(plan: api.Plan) -> EtcdParameters:
    return api.make_parameters(EtcdParameters, plan.system.parameters)


def registers(plan: api.Plan) -> api.Registers:
    stale = parameters_of(plan).reads == "serializable"
    return api.Registers(port="client", make_client=partial(RegisterClient, serializable=stale))


def transactions(plan: api.Plan) -> api.Transactions:
    """Of reads of a node's own copy etcd says that they may be stale: they are serializable."""
    stale = parameters_of(plan).reads == "serializable"
    return api.Transactions(
        port="client",
        make_client=partial(TransactionClient, serializable=stale),
        promises="serializable" if stale else "strict-serializable",
    )


def locks(plan: api.Plan) -> api.Locks:
    """A new leader gives every lease its whole time again."""
    asked = parameters_of(plan)
    by_clock = asked.lease_trust == "clock"
    make = partial(LeaseClient, ttl_s=asked.lease_ttl_s, by_clock=by_clock)
    return api.Locks(port="client", make_client=make, gone_after_ms=2000 * asked.lease_ttl_s)


def check(plan: api.Plan) -> None:
    """Raises UsageError for what etcd can't be told, or can't survive by its own account."""
    parameters = parameters_of(plan)
    if parameters.election_timeout_ms < 5 * parameters.heartbeat_ms:
        raise api.UsageError(
            f"--election-timeout {parameters.election_timeout_ms}ms: etcd wants at least five"
            f" heartbeats of {parameters.heartbeat_ms} ms"
        )
    if any(fault.kind == "wipe" for fault in plan.faults):
        raise api.UsageError(
            "a member of etcd whose data is gone has to be removed and added: use --nemesis"
            " replace-node in place of wipe"
        )


SYSTEM = api.SystemRecord(
    name="etcd",
    summary="etcd 3.5 to 3.7: a replicated key-value store (containers only)",
    make=lambda plan: EtcdSystem(parameters_of(plan)),
    speaks=("registers", "transactions", "partitions", "locks", "watches"),
    workload="register",
    profiles={
        "default": api.Profile(
            promise="Operations are strictly serializable, and what is acknowledged stays:"
            f" {MANUAL}/learning/api_guarantees"
        ),
        "safe": api.Profile(
            parameters={"corrupt_check": True},
            promise="The same, and a member's data is compared before it serves:"
            f" {MANUAL}/op-guide/data_corruption",
        ),
        "unsafe": api.Profile(
            parameters={"unsafe_no_fsync": True},
            promise=f"Nothing, without syncs (unsafe-no-fsync): {MANUAL}/op-guide/configuration",
        ),
    },
    parameters=EtcdParameters,
    check=check,
    registers=registers,
    transactions=transactions,
    locks=locks,
    partitions=lambda plan: api.Partitions(
        port="client", make_client=LogClient, transactions=False
    ),
    documented_losses=lambda plan: documented_losses(parameters_of(plan)),
    footprint=api.Footprint(memory_mib=80, cpus=0.3),
    stays_up=True,
    gaps=(
        "Clients speak JSON to the gRPC gateway of one member each: etcd's own client, which goes"
        " from member to member and tries again, is not tested.",
        "No users, roles or tokens, so no bug of authorization (issue 14571); no TLS.",
        "Learners, moving the leader, downgrades, alarms, quotas, snapshots that are saved and"
        " restored, and --force-new-cluster are not asked for.",
        "A lease is tested as a lock: that its key stays while it is renewed, and goes afterwards;"
        " keys that share a lease, and checkpoints of leases, are not.",
        "A transaction reads first and then writes under a comparison; nested ones, and reads at an"
        " old revision, are not made, so no bug of a read within a transaction (issue 18667).",
        "Each write that is watched is one event: that the events of one revision come together"
        " (atomic) is not tested, nor filters, fragments and previous values.",
        "A watch of many on one stream is not opened; that no event ever comes any more is not"
        " noticed unless a later one of its stream comes.",
        "Clocks are not broken: a Go program reads them without libfaketime.",
        "Releases before 3.5, and those between 3.5.2 and 3.5.35, are not here.",
    ),
)
