"""MirroredSystem: this project's broker, with mirrored queues.

A node's claims, which readiness and observations rest on, come from its management API:

  GET /api/shalott/claims
  {"node": "n1", "status": "running", "running_nodes": [...], "partitions": [...],
   "claims": [{"group": queue, "role": "master"|"mirror"|"none", "epoch": int, "master": node,
               "mirrors": [...], "synchronised": [...], "state": str, "messages": int}, ...]}
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shalott.broker.rabbit.config import NodeConfig
from shalott.cluster.cluster import Cluster
from shalott.cluster.nodes import NodeSpec, Topology
from shalott.cluster.system import EventRow, Observation, members_of
from shalott.cluster.systems import settling
from shalott.cluster.systems.management import (
    DEFAULT_VHOST,
    RABBIT_PORTS,
    api_path,
    delete_queue,
    management,
    put,
    queue_path,
    set_up,
)
from shalott.cluster.systems.own_broker import event_row, in_order, read_event_file
from shalott.cluster.systems.rabbit.message_names import message_reader
from shalott.cluster.systems.rabbit.moved_mirrors import MovedMirrors
from shalott.cluster.systems.rabbit.parameters import MirroredParameters
from shalott.cluster.systems.settling import await_nodes
from shalott.core.errors import Definite, UsageError
from shalott.core.json_value import JsonObject
from shalott.core.parameters import make_parameters
from shalott.core.plan import SystemPlan

if TYPE_CHECKING:
    from shalott.cluster.sim.machine import Machine

log = logging.getLogger("shalott.cluster.systems")

KNOWN_AFTER_S = 10  # and two net ticks: then every node has noticed what became of the others
RESTART_TIMEOUT_MS = 60000
# What nodes say to each other (NamesMessages); ticks, monitors and what tools ask are left out.
MESSAGES = (
    *("Activity", "Publish", "Confirmed", "PushRequest", "PushResponse", "Get", "Got", "Settle"),
    *("HeartbeatRequest", "HeartbeatResponse", "GroupStatus", "GotEmpty", "Applied", "Commit"),
    *("Committed", "Conflicted", "CheckNeighbours", "Catchup", "JoinRing", "RingJoined", "Done"),
    *("StartMirror", "AutoSync", "SyncAnswer", "SyncBatch", "SyncNext", "SyncComplete", "Down"),
    *("SyncAborted", "UpdateMirroring", "LookAgain", "JoinGroup", "VoteRequest", "VoteResponse"),
    "TakeLeadership",
)
MEMBERS_TIMEOUT_MS = 10000  # the node that is asked may wait for a leader


class MirroredSystem(MovedMirrors):
    """See ``cluster.system.System``."""

    name = "mirrored"
    ports: Mapping[str, int] = RABBIT_PORTS
    image = "broker"
    events_file = "events.jsonl"
    tells_synchronisations = True

    def __init__(self, plan: SystemPlan, seed: int, *, durable: bool = True) -> None:
        self._plan = plan
        self._parameters = make_parameters(MirroredParameters, plan.parameters)
        self._vhost = self._parameters.vhost
        self._seed = seed
        self._durable = durable  # the queues
        self.left_out: tuple[str, ...] = ()

    message_names = MESSAGES
    data_files = ("queues/*/journal", "queues/*/journal.new", "metadata/*", "pages/*")

    message_reader = staticmethod(message_reader)

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        return [
            NodeSpec(
                name=node,
                image=self.image,
                command=("{python}", "-m", "shalott.broker", "--config", "{config}/node.toml"),
                files={"node.toml": to_toml(self._node_config(topology, node))},
                ports={port: at.port for port, at in listen.items()},
                collect=("events.jsonl",),
            )
            for node, listen in topology.listen.items()
        ]

    def _node_config(self, topology: Topology, node: str) -> NodeConfig:
        listen = topology.listen[node]
        peers = [(peer, at["cluster"]) for peer, at in sorted(topology.dial[node].items())]
        fields = {
            "name": node,
            "data_dir": topology.data_dir[node],
            "peers": [{"name": peer, "host": at.host, "port": at.port} for peer, at in peers],
            "bind_host": listen["amqp"].host,
            "management_host": listen["management"].host,
            "amqp_port": listen["amqp"].port,
            "cluster_port": listen["cluster"].port,
            "management_port": listen["management"].port,
            "net_tick_ms": self._parameters.net_tick_ms,
            "partition_mode": self._parameters.partition_mode,
            "bugs": self._plan.bugs,
            "startup_delay_ms": self._parameters.startup_delay_ms,
            "recovery_delay_ms": self._parameters.recovery_delay_ms,
            "snapshot_entries": self._parameters.snapshot_entries,
            "loopback_users": (),  # clients come from elsewhere, as guest
            "vm_memory_high_watermark_absolute": self._parameters.memory_limit_bytes,
            "seed": _node_seed(self._seed, node),
        }
        try:
            return msgspec.convert(fields, NodeConfig)
        except msgspec.ValidationError as error:
            raise UsageError(f"the plan's system can't be configured: {error}") from error

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            answer = await management(cluster, node).get("/api/shalott/claims")
            if answer["status"] != "running":
                return f"it is {answer['status']}"
            absent = sorted(set(nodes) - set(answer["running_nodes"]))
            return f"it doesn't run with {', '.join(absent)}" if absent else ""

        await await_nodes(cluster, nodes, why_not, timeout_ms)

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None:
        await set_up(cluster, self._vhost, self._plan.policy)
        for i, queue in enumerate(queues):
            node = cluster.nodes[i % len(cluster.nodes)]
            await put(cluster, node, queue_path(queue, self._vhost), _definition(self._durable))

    async def declare_queue(self, cluster: Cluster, node: str, queue: str) -> None:
        await management(cluster, node).put(
            queue_path(queue, self._vhost), _definition(self._durable)
        )

    async def delete_queue(self, cluster: Cluster, node: str, queue: str, timeout_ms: int) -> None:
        await delete_queue(cluster, node, queue, timeout_ms, self._vhost)

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        answer = await management(cluster, node).get("/api/shalott/claims")
        try:
            return {
                "running": answer["running_nodes"],
                "partitions": answer["partitions"],
                "claims": [
                    {**claim, "group": self.group_of(claim["group"])} for claim in answer["claims"]
                ],
            }
        except (KeyError, TypeError) as error:
            raise Definite(f"{node} answered with something else than claims") from error

    async def held(self, cluster: Cluster, node: str) -> int:
        rows = await management(cluster, node).get(api_path("queues", self._vhost))
        return sum(int(row.get("messages_unacknowledged", 0)) for row in rows)

    def group_of(self, told: str) -> str:
        """Nodes name a queue with its vhost, unless that is the usual one."""
        return told if self._vhost == DEFAULT_VHOST else told.removesuffix(f"@{self._vhost}")

    @property
    def wants_mending(self) -> bool:
        """Under the other modes the nodes see to it themselves."""
        own = self._parameters
        return own.partition_mode == "ignore" and own.operator == "restart-minority"

    async def mend_partition(self, cluster: Cluster) -> Sequence[str]:
        known_within_s = KNOWN_AFTER_S + 2 * self._parameters.net_tick_ms / 1000
        restarted = await settling.smaller_side(
            self._observer(cluster), members_of(cluster, self), known_within_s
        )
        for node in restarted:
            log.info("restarting %s, on the smaller side of a partition", node)
            await cluster.processes.stop(node)
        await asyncio.gather(*(cluster.processes.start(node) for node in restarted))
        if restarted:
            await self.await_ready(cluster, members_of(cluster, self), RESTART_TIMEOUT_MS)
        return restarted

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        nodes = members_of(cluster, self)
        return await settling.await_settled(
            self._observer(cluster), nodes, queues, self._plan.policy, timeout_ms
        )

    def why_not_leave(self, node: str) -> str:
        return ""

    async def members(self, cluster: Cluster, node: str) -> Sequence[str]:
        answer = await management(cluster, node).get("/api/shalott/members")
        found: Sequence[str] = answer["members"]
        return found

    async def running_members(self, cluster: Cluster, node: str) -> Sequence[str]:
        answer = await management(cluster, node).get("/api/shalott/members")
        found: Sequence[str] = answer["running_nodes"]
        return found

    async def forget(self, cluster: Cluster, node: str, by: str) -> None:
        if node in await self.members(cluster, by):
            await management(cluster, by, MEMBERS_TIMEOUT_MS).delete(_member_path(node))
        self.left_out = (*self.left_out, node)

    async def admit(self, cluster: Cluster, node: str, by: str) -> None:
        if node not in await self.members(cluster, by):
            await management(cluster, by, MEMBERS_TIMEOUT_MS).put(_member_path(node), {})
        self.left_out = tuple(other for other in self.left_out if other != node)

    async def inspect(self, machines: Mapping[str, Machine]) -> None:
        from shalott.cluster.systems.rabbit.simulated_replicas import record_replicas

        await record_replicas(machines)

    def why_unsettled(self, seen: Mapping[str, Observation | None], queues: Sequence[str]) -> str:
        return settling.why_unsettled(seen, queues, self._plan.policy)

    def _observer(self, cluster: Cluster) -> settling.Observe:
        async def observe(node: str) -> Observation:
            return await self.observe(cluster, node)

        return observe

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[EventRow]:
        rows = [
            event_row(event, run_start_wall_ns, self.group_of)
            for directory in sorted(collected.glob("*"))  # none if nothing could be collected
            if directory.is_dir()
            for event in read_event_file(directory / "events.jsonl")
        ]
        return in_order(rows)


def _definition(durable: bool) -> JsonObject:
    return {"durable": durable, "auto_delete": False, "arguments": {}}


def _member_path(node: str) -> str:
    return f"/api/shalott/members/{node}"


def _node_seed(seed: int, node: str) -> int:
    """Another one for each node; never 0, which would mean: draw one."""
    digest = hashlib.sha256(f"{seed}/{node}".encode()).digest()
    return 1 + int.from_bytes(digest[:6], "big")


def to_toml(config: NodeConfig) -> str:
    """The configuration as ``broker.rabbit.config.load_config`` reads it. JSON's scalars and arrays
    are TOML's."""
    fields = msgspec.to_builtins(config)
    peers = fields.pop("peers")
    said = {name: value for name, value in fields.items() if value is not None}
    tables = {name: value for name, value in said.items() if isinstance(value, dict)}
    plain = {name: value for name, value in said.items() if name not in tables}
    lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
    for peer in peers:
        lines += [
            "",
            "[[peers]]",
            *(f"{name} = {json.dumps(value)}" for name, value in peer.items()),
        ]
    for table, values in tables.items():
        keys = (f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items())
        lines += ["", f"[{table}]", *keys]
    return "\n".join(lines) + "\n"
