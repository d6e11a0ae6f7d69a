"""EtcdSystem: etcd 3.4 from Debian's package, one member a container.

A node's claim is what its own status says: it leads if it takes itself for the leader, and the
epoch is Raft's term. etcd writes no events that we read; its log is in each node's output.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from shalott.api import (
    BootFailed,
    ClientError,
    Cluster,
    Definite,
    EventRow,
    Indefinite,
    MembersByTool,
    NodeSpec,
    Observation,
    Plan,
    Profile,
    Registers,
    SystemRecord,
    Topology,
    UsageError,
    await_nodes,
    make_parameters,
    members_of,
)
from shalott_registers.client import EtcdClient, ask, read_request

IMAGE = Path(__file__).parent / "images" / "etcd"
ETCDCTL = ("etcdctl", "--command-timeout=4s")  # asks the node that it runs on
ASK_TIMEOUT_MS = 1500
GROUP = "etcd"  # what is replicated: all of it is one log


class EtcdParameters(msgspec.Struct, frozen=True, kw_only=True):
    """etcd's own flags. Elections take one to two timeouts."""

    heartbeat_ms: int = 100
    election_timeout_ms: int = 1000
    reads: Annotated[
        Literal["quorum", "serializable"],
        msgspec.Meta(description="serializable: answered from a node's own copy."),
    ] = "quorum"
    unsafe_no_fsync: Annotated[
        bool, msgspec.Meta(description="Answer before what is written is synced.")
    ] = False


# With the data of an earlier life etcd ignores the flags about the initial cluster. A node without
# data founds a cluster, unless there is one already that knows it: then it joins that.
START = """peers=$1; shift
state=new
etcdctl --endpoints=$peers --command-timeout=1s member list >/dev/null 2>&1 && state=existing
exec etcd --initial-cluster-state=$state "$@"
"""


class EtcdSystem(MembersByTool):
    """See ``cluster.system.System``; ``etcdctl`` changes the members."""

    name = "etcd-debian"
    ports: Mapping[str, int] = {"client": 2379, "peer": 2380}
    packages: Sequence[str] = ("etcd-server",)
    image = str(IMAGE)

    def __init__(self, parameters: EtcdParameters) -> None:
        self._parameters = parameters
        self._names: dict[str, str] = {}  # by member id

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        nodes = sorted(topology.listen)
        return [
            NodeSpec(
                name=node,
                image=self.image,
                command=self._command(node, nodes),
                ports=self.ports,
                collect=(),
            )
            for node in nodes
        ]

    def _command(self, node: str, nodes: Sequence[str]) -> tuple[str, ...]:
        client, peer = self.ports["client"], self.ports["peer"]
        members = ",".join(f"{name}=http://{name}:{peer}" for name in nodes)
        flags = {
            "name": node,
            "data-dir": "{data}/etcd",
            "listen-client-urls": f"http://0.0.0.0:{client}",
            "advertise-client-urls": f"http://{node}:{client}",
            "listen-peer-urls": f"http://0.0.0.0:{peer}",
            "initial-advertise-peer-urls": f"http://{node}:{peer}",
            "initial-cluster": members,
            "initial-cluster-token": "shalott",
            "heartbeat-interval": str(self._parameters.heartbeat_ms),
            "election-timeout": str(self._parameters.election_timeout_ms),
            "enable-v2": "false",
            "logger": "zap",
            "log-outputs": "stderr",
            "unsafe-no-fsync": "true" if self._parameters.unsafe_no_fsync else "false",
        }
        words = [f"--{flag}={value}" for flag, value in flags.items()]
        peers = ",".join(f"http://{name}:{client}" for name in nodes if name != node)
        return ("sh", "-c", START, "etcd", peers, *words)

    def list_members(self) -> Sequence[str]:
        return (*ETCDCTL, "member", "list", "--write-out=json")

    def read_members(self, output: str) -> Mapping[str, str]:
        """A member that was let in, and has not started, has its address only."""
        told = msgspec.json.decode(output)["members"]
        return {
            each.get("name") or each["peerURLs"][0].split("/")[2].split(":")[0]: f"{each['ID']:x}"
            for each in told
        }

    def remove_member(self, called: str) -> Sequence[str]:
        return (*ETCDCTL, "member", "remove", called)

    def add_member(self, node: str) -> Sequence[str]:
        return (*ETCDCTL, "member", "add", node, f"--peer-urls=http://{node}:{self.ports['peer']}")

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            await self._ask(cluster, node, "kv/range", read_request("ready", serializable=False))
            return ""  # the leader confirmed the read: there is one, and the node hears of it

        await await_nodes(cluster, nodes, why_not, timeout_ms)

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None:
        """Keys need no declaration."""

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        status = await self._ask(cluster, node, "maintenance/status", {})
        try:
            own, leader = str(status["header"]["member_id"]), str(status.get("leader", "0"))
            term, applied = int(status["raftTerm"]), int(status["raftAppliedIndex"])
        except (KeyError, TypeError, ValueError) as error:
            raise Definite(f"{node} answered with something else than its status") from error
        if leader not in self._names and leader != "0":  # it may have been replaced
            told = await self._ask(cluster, node, "cluster/member/list", {})
            self._names = {str(each["ID"]): each.get("name", "") for each in told["members"]}
        master = self._names.get(leader, "")
        others = sorted(set(self._names.values()) - {master})
        claim = {
            "group": GROUP,
            "role": "master" if leader == own else "mirror" if master else "none",
            "epoch": term,
            "master": master,
            "mirrors": others,
            "synchronised": others,
            "state": "running" if master else "down",
            "applied": applied,
        }
        return {"running": [node], "partitions": [], "claims": [claim]}

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        async def why_not(node: str) -> str:
            return self.why_unsettled(await self._look(cluster), queues)

        try:
            await await_nodes(cluster, members_of(cluster, self)[:1], why_not, timeout_ms)
        except BootFailed:
            return False
        return True

    async def _look(self, cluster: Cluster) -> dict[str, Observation | None]:
        async def look(node: str) -> Observation | None:
            try:
                return await self.observe(cluster, node)
            except ClientError:
                return None

        members = members_of(cluster, self)
        answers = await asyncio.gather(*(look(node) for node in members))
        return dict(zip(members, answers, strict=True))

    def why_unsettled(self, seen: Mapping[str, Observation | None], queues: Sequence[str]) -> str:
        """Settled: all follow one leader in one term, and have applied as much as it has."""
        claims = {node: answer["claims"][0] for node, answer in seen.items() if answer is not None}
        silent = sorted(set(seen) - set(claims))
        if silent:
            return f"{', '.join(silent)} did not answer"
        for what in ("master", "epoch", "applied"):
            told = {node: claim[what] for node, claim in claims.items()}
            if len(set(told.values())) > 1 or not all(told.values()):
                return f"{what}: " + ", ".join(f"{node} says {each}" for node, each in told.items())
        return ""

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[EventRow]:
        return ()

    async def _ask(self, cluster: Cluster, node: str, path: str, body: object) -> Any:
        answer = await ask(cluster.endpoint(node, "client"), f"/v3/{path}", body, ASK_TIMEOUT_MS)
        if not isinstance(answer, dict):
            raise Indefinite(f"{node} answered {path} with something else than an object")
        return answer


def parameters_of(plan: Plan) -> EtcdParameters:
    return make_parameters(EtcdParameters, plan.system.parameters)


def registers(plan: Plan) -> Registers:
    stale = parameters_of(plan).reads == "serializable"
    return Registers(port="client", make_client=partial(EtcdClient, serializable=stale))


def check(plan: Plan) -> None:
    """Raises UsageError for what etcd can't be told, or can't survive by its own account."""
    parameters = parameters_of(plan)
    if parameters.election_timeout_ms < 5 * parameters.heartbeat_ms:
        raise UsageError(
            f"--election-timeout {parameters.election_timeout_ms}ms: etcd wants at least five"
            f" heartbeats of {parameters.heartbeat_ms} ms"
        )
    if any(fault.kind == "wipe" for fault in plan.faults):
        raise UsageError(
            "a member of etcd whose data is gone has to be removed and added: use --nemesis"
            " replace-node in place of wipe"
        )


SYSTEM = SystemRecord(
    name="etcd-debian",
    summary="etcd 3.4 from Debian's package: a replicated key-value store (containers only)",
    make=lambda plan: EtcdSystem(parameters_of(plan)),
    speaks=("registers",),
    registers=registers,
    workload="register",
    profiles={"upstream": Profile(), "safe": Profile()},  # its defaults are what its manual wants
    parameters=EtcdParameters,
    worlds=("docker", "ssh"),
    check=check,
    stays_up=True,
)
