"""Redis and Valkey from Debian's packages: under Sentinel, or as a cluster.

Under Sentinel each node is a server and a sentinel, in one container, and the first node is the
master to begin with. A cluster has three masters with one replica each, so it wants six nodes.
A node's role is what its own INFO says, its epoch what its sentinel or the cluster tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from redis.exceptions import RedisError

import shalott.api as api
from shalott_redis.client import (
    GROUP,
    MASTER,
    LogClient,
    QueueClient,
    RegisterClient,
    Ways,
    ask,
    dial,
)
from shalott_redis.settings import (
    FAILOVER_TIMEOUT_MS,
    MANUALS,
    REPLICATION_TIMEOUT_S,
    RedisParameters,
    ValkeyParameters,
    documented_losses,
    parameters_of,
)

IMAGES = Path(__file__).parent / "images"
CLUSTER_NODES = 6  # three masters, and a replica of each
ASK_TIMEOUT_S = 1.5
TOOL_TIMEOUT_MS = 60_000


class RedisSystem:
    """See ``cluster.system.System``."""

    def __init__(self, plan: api.Plan) -> None:
        self.name = plan.system.name
        self._own = parameters_of(plan)
        self.ports: Mapping[str, int] = {"redis": 6379, "sentinel": 26379}
        if self._own.mode == "cluster":
            self.ports = {"redis": 6379, "bus": 16379}
        self.packages: Sequence[str] = (f"{self.name}-server",)
        self.image = f"{IMAGES / self.name}:{self._own.version}"

    def node_specs(self, topology: api.Topology) -> Sequence[api.NodeSpec]:
        nodes = list(topology.listen)
        first = topology.dial[nodes[1]][nodes[0]]["redis"]
        specs = []
        for node in nodes:
            master, data = "" if node == nodes[0] else first.host, topology.data_dir[node]
            files = {"server.conf": self._server(data, master)}
            if self._own.mode == "sentinel":
                files["sentinel.conf"] = self._sentinel(data, first.host, len(nodes))
            specs.append(
                api.NodeSpec(
                    name=node,
                    image=self.image,
                    command=("{config}", "{data}"),
                    files=files,
                    ports=self.ports,
                    collect=("server.log", "sentinel.log", "server.conf", "sentinel.conf"),
                )
            )
        return specs

    def _server(self, data: str, master: str) -> str:
        own = self._own
        lines = [
            "bind 0.0.0.0", "protected-mode no", "port 6379", f"dir {data}",
            f"logfile {data}/server.log",
            f"appendonly {'yes' if own.aof else 'no'}", f"appendfsync {own.fsync}",
            f"min-replicas-to-write {own.min_replicas}",
            f"min-replicas-max-lag {own.max_lag_s}",
            "repl-ping-replica-period 1", f"repl-timeout {REPLICATION_TIMEOUT_S}",
            "repl-diskless-sync-delay 0",
        ]  # fmt: skip
        if not own.snapshots:
            lines.append('save ""')
        if own.mode == "cluster":
            lines += ["cluster-enabled yes", f"cluster-node-timeout {own.down_after_ms}"]
        elif master:
            lines.append(f"replicaof {master} 6379")
        return "\n".join(lines) + "\n"

    def _sentinel(self, data: str, master: str, nodes: int) -> str:
        own = self._own
        return (
            f"port 26379\nprotected-mode no\ndir {data}\nlogfile {data}/sentinel.log\n"
            f"sentinel monitor {MASTER} {master} 6379 {nodes // 2 + 1}\n"
            f"sentinel down-after-milliseconds {MASTER} {own.down_after_ms}\n"
            f"sentinel failover-timeout {MASTER} {FAILOVER_TIMEOUT_MS}\n"
        )

    async def await_ready(
        self, cluster: api.Cluster, nodes: Sequence[str], timeout_ms: int
    ) -> None:
        async def why_not(node: str) -> str:
            answer = await self.observe(cluster, node)
            return "" if self._own.mode == "cluster" else why_waiting(answer["claims"][0])

        await api.await_nodes(cluster, nodes, why_not, timeout_ms)

    async def configure(self, cluster: api.Cluster, queues: Sequence[str]) -> None:
        first = cluster.nodes[0]
        if self._own.mode == "cluster":
            at = [cluster.endpoint(node, "redis") for node in cluster.nodes]
            words = [f"{self.name}-cli", "--cluster", "create"]
            words += [f"{each.host}:{each.port}" for each in at]
            words += ["--cluster-replicas", "1", "--cluster-yes"]
            done = await cluster.processes.run_command(first, words, TOOL_TIMEOUT_MS)
            if done.exit_code != 0:
                raise api.BootFailed(f"there is no cluster: {' '.join(done.output.split())}")
            if not await self.await_settled(cluster, (), TOOL_TIMEOUT_MS):
                raise api.BootFailed("the new cluster does not settle")
        for queue in queues if self._own.structure == "stream" else ():
            words = [f"{self.name}-cli", "-c", "XGROUP", "CREATE", queue, GROUP, "0", "MKSTREAM"]
            done = await cluster.processes.run_command(first, words, TOOL_TIMEOUT_MS)
            if "OK" not in done.output:
                raise api.BootFailed(f"there is no group of {queue}: {done.output}")

    async def observe(self, cluster: api.Cluster, node: str) -> api.Observation:
        told = await self._ask(cluster, node, "redis", "INFO", "replication")
        group, epoch = self.name, 0
        if self._own.mode == "sentinel":
            about = await self._ask(cluster, node, "sentinel", "SENTINEL", "MASTER", MASTER)
            epoch = int(dict(zip(about[::2], about[1::2], strict=True))[b"config-epoch"])
        else:
            rows = (
                (await self._ask(cluster, node, "redis", "CLUSTER", "NODES")).decode().splitlines()
            )
            own = next(row.split() for row in rows if "myself" in row)
            group, epoch = f"{self.name} of {own[0] if own[3] == '-' else own[3]}", int(own[6])
        names = {cluster.endpoint(each, "redis").host: each for each in cluster.nodes}
        is_master = told.get("role") == "master"
        master = node if is_master else names.get(told.get("master_host", ""), "")
        followers = (told.get(f"slave{number}") for number in range(len(names)))
        mirrors = sorted(
            names.get(each["ip"], "")
            for each in followers
            if each is not None and each["state"] == "online"
        )
        claim = {
            "group": group,
            "role": "master" if is_master else "mirror",
            "epoch": epoch,
            "master": master,
            "mirrors": mirrors,
            "synchronised": mirrors,
            "by_majority": self._own.copies == "all",  # else a former master acknowledges
            "state": "running" if is_master else told.get("master_link_status", "down"),
            "offset": int(told.get("master_repl_offset", 0)),
        }
        return {"running": [node], "partitions": [], "claims": [claim]}

    async def await_settled(
        self, cluster: api.Cluster, queues: Sequence[str], timeout_ms: int
    ) -> bool:
        async def look(node: str) -> api.Observation | None:
            try:
                return await self.observe(cluster, node)
            except api.ClientError:
                return None

        members = api.members_of(cluster, self)

        async def why_not(node: str) -> str:
            seen = await asyncio.gather(*map(look, members))
            return self.why_unsettled(dict(zip(members, seen, strict=True)), queues)

        try:
            await api.await_nodes(cluster, members[:1], why_not, timeout_ms)
        except api.BootFailed:
            return False
        return True

    def why_unsettled(
        self, seen: Mapping[str, api.Observation | None], queues: Sequence[str]
    ) -> str:
        """Settled: as many masters as there should be, and each other node follows one of them."""
        claims = {node: answer["claims"][0] for node, answer in seen.items() if answer is not None}
        if silent := sorted(set(seen) - set(claims)):
            return f"{', '.join(silent)} did not answer"
        masters = sorted(node for node, claim in claims.items() if claim["role"] == "master")
        wanted = 1 if self._own.mode == "sentinel" else CLUSTER_NODES // 2
        if len(masters) != wanted:
            return f"{', '.join(masters) or 'no node'} would be master"
        for node, claim in claims.items():
            if reason := why_waiting(claim):
                return f"{node}: {reason}"
            if claim["master"] not in masters:
                return f"{node} follows {claim['master'] or 'no node'}"
            if node not in (claim["master"], *claims[claim["master"]]["mirrors"]):
                return f"{claim['master']} does not know {node}"
        epochs = {claim["epoch"] for claim in claims.values()}
        if self._own.mode == "sentinel" and len(epochs) != 1:
            return f"the sentinels are in the epochs {', '.join(map(str, sorted(epochs)))}"
        return ""

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[api.EventRow]:
        return ()

    async def _ask(self, cluster: api.Cluster, node: str, port: str, *words: str) -> Any:
        at = cluster.endpoint(node, port)
        asked = dial(at.host, at.port, ASK_TIMEOUT_S)
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                return await ask(asked, *words)
        except (RedisError, OSError, TimeoutError) as error:
            raise api.Indefinite(f"{node}: {type(error).__name__}: {error}") from error
        finally:
            await asked.aclose()


def why_waiting(claim: Mapping[str, object]) -> str:
    """Why a node does not serve yet: a replica that has not caught up."""
    waits = claim["role"] == "mirror" and claim["state"] != "up"
    return f"its link to {claim['master'] or 'its master'} is {claim['state']}" if waits else ""


def ways_of(plan: api.Plan) -> Ways:
    own = parameters_of(plan)
    is_cluster = own.mode == "cluster"
    replicas = 1 if is_cluster else len(plan.cluster.nodes) - 1
    return Ways(
        copies={"none": 0, "one": min(1, replicas), "all": replicas}[own.copies],
        synced=own.aof and own.version != "7.0",  # WAITAOF came with 7.2
        is_cluster=is_cluster,
        structure=own.structure,
    )


def port_of(plan: api.Plan) -> str:
    return "redis" if parameters_of(plan).mode == "cluster" else "sentinel"


def registers(plan: api.Plan) -> api.Registers:
    """Reads that all copies confirm are of now; others may come from a former master."""
    return api.Registers(
        port=port_of(plan),
        make_client=partial(RegisterClient, ways=ways_of(plan)),
        promises="linearizable" if parameters_of(plan).copies == "all" else "sequential",
    )


# What ``safe`` does not survive: a copy that comes back with less than it had acknowledged may be
# chosen as master. The manual promises nothing of that: replicas are chosen "best effort".
BEYOND = ("wipe", "disk-corrupt", "replace-node", "remove-node", "add-node")
POWER = ("power", "power-all", "power-redeclare")


def check(plan: api.Plan) -> None:
    """Raises UsageError for what it can't be told, or does not promise under ``safe``."""
    own, nodes = parameters_of(plan), len(plan.cluster.nodes)
    if own.mode == "cluster" and nodes != CLUSTER_NODES:
        raise api.UsageError(f"a cluster here has three masters and a replica each: {CLUSTER_NODES}"
                             f" nodes, not {nodes}")  # fmt: skip
    if own.mode == "sentinel" and nodes < 3:
        raise api.UsageError("sentinels need a majority: take three nodes at least")
    if plan.system.profile != "safe":
        return
    beyond = BEYOND if ways_of(plan).synced else (*BEYOND, *POWER)
    for fault in plan.faults:
        if fault.kind in beyond:
            raise api.UsageError(
                f"{plan.system.name} {own.version} does not promise to keep what was acknowledged"
                f" over {fault.kind}: leave it out, or take another profile than safe"
            )


GAPS = (
    "Transactions, scripts and keys that expire are not tested, nor publish and subscribe.",
    "Membership is not: no node is added to a cluster, removed, or made anew by its tool.",
    "A cluster is not resharded, and each queue is one key, so on one of its masters.",
    "Servers write no events: who is master is known by polls, twice a second.",
    "Clusters have three masters with one replica each; the findings are of Sentinel's.",
)


def record(name: str, summary: str, parameters: type[msgspec.Struct]) -> api.SystemRecord:
    """Of either, for they are asked in the same words.

    ``safe`` is what the manual has against loss: a log that is synced always, a master that takes
    no writes without a replica, and clients that wait until every replica has a write; one that
    was not told so has been told nothing.
    """
    manual = MANUALS[name]
    safe = {"aof": True, "fsync": "always", "min_replicas": 1, "copies": "all"}
    return api.SystemRecord(
        name=name,
        summary=f"{summary}, with Sentinel or as a cluster",
        make=RedisSystem,
        speaks=("queues", "registers", "partitions"),
        workload="queue",
        profiles={
            "default": api.Profile(
                promise="The master has an acknowledged write; a failover may lose it:"
                f" {manual}/replication/"
            ),
            "safe": api.Profile(
                parameters=safe,
                promise="Every copy had an acknowledged write, which makes its loss improbable:"
                f" {manual}/replication/",
            ),
            "unsafe": api.Profile(
                parameters={"aof": False, "snapshots": False},
                promise=f"The memory of the master has it: {manual}/persistence/",
            ),
        },
        parameters=parameters,
        worlds=("docker",),
        check=check,
        queues=lambda plan: api.Queues(
            port=port_of(plan), make_client=partial(QueueClient, ways=ways_of(plan))
        ),
        registers=registers,
        documented_losses=documented_losses,
        partitions=lambda plan: api.Partitions(
            port=port_of(plan), make_client=partial(LogClient, ways=ways_of(plan)),
            transactions=False,
        ),
        notices_after_ms=lambda plan: parameters_of(plan).down_after_ms,
        stays_up=True,
        gaps=GAPS,
        footprint=api.Footprint(memory_mib=30, cpus=0.1),
    )  # fmt: skip


REDIS = record("redis", "Redis from Debian's packages", RedisParameters)
VALKEY = record("valkey", "Valkey from Debian's packages", ValkeyParameters)
