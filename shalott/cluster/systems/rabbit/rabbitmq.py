"""RabbitmqSystem: the real RabbitMQ 3.10, from Debian's package, in containers.

Nodes are called rabbit@n1 among themselves and n1 everywhere else. Roles are judged as each node
itself sees them: it is a queue's master if its own copy of the metadata says so. RabbitMQ has no
versions of that metadata, so epochs are 0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path

from shalott.cluster.cluster import Cluster
from shalott.cluster.nodes import NodeSpec, Topology
from shalott.cluster.system import Claim, EventRow, Observation, members_of
from shalott.cluster.systems import settling
from shalott.cluster.systems.management import (
    RABBIT_PORTS,
    api_path,
    delete_queue,
    management,
    put,
    queue_path,
    set_up,
)
from shalott.cluster.systems.rabbit import quorum
from shalott.cluster.systems.rabbit.parameters import OriginalParameters
from shalott.cluster.systems.rabbit.rabbitmq_log import read_rabbitmq_logs
from shalott.cluster.systems.rabbit.rabbitmq_node import (
    PREFIX,
    rabbitmq_configuration,
    rabbitmq_specs,
)
from shalott.cluster.systems.record import Parameters
from shalott.cluster.systems.settling import await_nodes
from shalott.core.errors import Definite, Indefinite
from shalott.core.json_value import JsonObject
from shalott.core.parameters import make_parameters
from shalott.core.plan import SystemPlan

log = logging.getLogger("shalott.cluster.systems")

KNOWN_AFTER_S = 20  # and two net ticks: a node asks after a lost one only now and then
CTL_TIMEOUT_MS = 60000  # rabbitmqctl can hang for good right after a restart
RESTART_TIMEOUT_MS = 90000
IMPATIENT = (
    "cluster_formation.discovery_retry_limit = 2",
    "mnesia_table_loading_retry_timeout = 10000",
    "mnesia_table_loading_retry_limit = 3",
)
# What a claim is made of. Without statistics the answer comes from the node's own tables at once,
# also while another node does not answer; anything more (totals, nodes) first asks around, until
# the net tick.
NODES = "/api/nodes?columns=name,running,partitions"
STATES = {"live": "running"}  # a queue's state in its record, in the API's usual words
MEMBERSHIP_TIMEOUT_MS = 1000
SYNC_PATIENCE_S = 10


class RabbitmqSystem:
    """See ``cluster.system.System``."""

    name = "rabbitmq"
    ports: Mapping[str, int] = RABBIT_PORTS
    image = "rabbitmq"
    tells_synchronisations = True
    packages: Sequence[str] = ("rabbitmq-server", "erlang-base")

    def __init__(self, plan: SystemPlan, *, durable: bool = True) -> None:
        self._plan = plan
        self._parameters = make_parameters(OriginalParameters, plan.parameters)
        self._quorum = quorum.is_quorum(plan.parameters)
        self._durable = durable  # the queues
        self.left_out: tuple[str, ...] = ()

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        own = self._parameters
        configuration = rabbitmq_configuration(
            list(topology.listen), own.partition_mode, own.net_tick_ms, *IMPATIENT
        )
        return rabbitmq_specs(topology, self.image, configuration)

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            running, _ = await self._membership(cluster, node)
            absent = sorted(set(nodes) - set(running))
            return f"it doesn't run with {', '.join(absent)}" if absent else ""

        await await_nodes(cluster, nodes, why_not, timeout_ms, may_exit=True)

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None:
        vhost = self._parameters.vhost
        await set_up(cluster, vhost, None if self._quorum else _mirroring(self._plan.policy))
        for i, queue in enumerate(queues):
            node = cluster.nodes[i % len(cluster.nodes)]
            await put(cluster, node, queue_path(queue, vhost), self._definition(cluster, node))

    async def declare_queue(self, cluster: Cluster, node: str, queue: str) -> None:
        path = queue_path(queue, self._parameters.vhost)
        await management(cluster, node).put(path, self._definition(cluster, node))

    async def delete_queue(self, cluster: Cluster, node: str, queue: str, timeout_ms: int) -> None:
        await delete_queue(cluster, node, queue, timeout_ms, self._parameters.vhost)

    def _definition(self, cluster: Cluster, node: str) -> JsonObject:
        arguments = quorum.arguments(cluster.nodes) if self._quorum else {}
        plain: JsonObject = {"durable": self._durable, "auto_delete": False, "arguments": arguments}
        return {**plain, "node": PREFIX + node}

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        """As ``System.observe``; ``running`` is empty while the node waits for one that is cut
        off."""
        (running, partitions), queues = await asyncio.gather(
            _unless_unknown(self._membership(cluster, node)),
            management(cluster, node).get(_queues_path(self._parameters.vhost)),
        )
        try:
            claims = [claim_of(node, queue, cluster.nodes) for queue in queues]
        except (KeyError, TypeError) as error:
            raise Definite(f"{node} answered with something else than queues") from error
        return {"running": running, "partitions": partitions, "claims": claims}

    async def _membership(self, cluster: Cluster, node: str) -> tuple[list[str], list[str]]:
        """(running nodes, nodes from which it is partitioned), as ``node`` sees them."""
        answer = await self._nodes(cluster, node)
        try:
            running = sorted(short_name(item["name"]) for item in answer if item["running"])
            own = [item for item in answer if item["name"] == PREFIX + node]
            partitions = own[0].get("partitions", ()) if own else ()
        except (KeyError, TypeError) as error:
            raise Definite(f"{node} answered with something else than nodes") from error
        return running, sorted(short_name(name) for name in partitions)

    async def _nodes(self, cluster: Cluster, node: str) -> Sequence[Claim]:
        found: Sequence[Claim] = await management(cluster, node, MEMBERSHIP_TIMEOUT_MS).get(NODES)
        return found

    def why_not_leave(self, node: str) -> str:
        return ""

    async def members(self, cluster: Cluster, node: str) -> Sequence[str]:
        return [short_name(item["name"]) for item in await self._nodes(cluster, node)]

    async def running_members(self, cluster: Cluster, node: str) -> Sequence[str]:
        running, _ = await self._membership(cluster, node)
        return running

    async def forget(self, cluster: Cluster, node: str, by: str) -> None:
        if node in await self.members(cluster, by):
            words = ["rabbitmqctl", "forget_cluster_node", f"{PREFIX}{node}"]
            done = await cluster.processes.run_command(by, words, CTL_TIMEOUT_MS)
            if done.exit_code != 0:
                raise Definite(" ".join(done.output.split()) or f"exit code {done.exit_code}")
        self.left_out = (*self.left_out, node)

    async def admit(self, cluster: Cluster, node: str, by: str) -> None:
        """An empty node finds the others by the list in its configuration, and joins by itself."""
        self.left_out = tuple(other for other in self.left_out if other != node)

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
        # All of them stop before one starts: a node that starts must not find its own side again.
        for node in restarted:
            log.info("restarting %s, on the smaller side of a partition", node)
            await _control(cluster, node, "stop_app")
        await asyncio.gather(*(_control(cluster, node, "start_app") for node in restarted))
        if restarted:
            await self.await_ready(cluster, members_of(cluster, self), RESTART_TIMEOUT_MS)
        return restarted

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        return await settling.await_settled(
            self._observer(cluster),
            members_of(cluster, self),
            queues,
            self._plan.policy,
            timeout_ms,
            # It has been seen to log that a sync is complete and never to say so in the queue's
            # record.
            sync_patience_s=SYNC_PATIENCE_S,
        )

    def why_unsettled(self, seen: Mapping[str, Observation | None], queues: Sequence[str]) -> str:
        return settling.why_unsettled(seen, queues, self._plan.policy)

    def _observer(self, cluster: Cluster) -> settling.Observe:
        async def observe(node: str) -> Observation:
            return await self.observe(cluster, node)

        return observe

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[EventRow]:
        return read_rabbitmq_logs(collected, run_start_wall_ns)


def _queues_path(vhost: str) -> str:
    return f"{api_path('queues', vhost)}?disable_stats=true"


def _mirroring(policy: Parameters) -> Parameters:
    definition = dict(policy)
    if definition.get("ha-mode") == "nodes":
        definition["ha-params"] = [f"{PREFIX}{node}" for node in definition["ha-params"]]
    return definition


async def _unless_unknown(
    membership: Coroutine[object, object, tuple[list[str], list[str]]],
) -> tuple[list[str], list[str]]:
    try:
        return await membership
    except Indefinite:
        return [], []


async def _control(cluster: Cluster, node: str, command: str) -> None:
    result = await cluster.processes.run_command(node, ["rabbitmqctl", command], CTL_TIMEOUT_MS)
    if result.exit_code != 0:
        log.warning("%s: rabbitmqctl %s failed, restarting the node", node, command)
        await cluster.processes.kill(node)
        await cluster.processes.start(node)


def claim_of(node: str, queue: Claim, nodes: Sequence[str]) -> Observation:
    """What a listed queue says of ``node``'s role, as ``node`` answered."""
    if queue.get("type") == "quorum":
        return quorum.claim_of(node, queue, {PREFIX + name: name for name in nodes})
    master = short_name(queue["node"])
    mirrors = sorted(short_name(name) for name in queue.get("slave_nodes", ()))
    role = "master" if node == master else "mirror" if node in mirrors else "none"
    return {
        "group": queue["name"],
        "role": role,
        "epoch": 0,
        "master": master,
        "mirrors": mirrors,
        "synchronised": sorted(short_name(n) for n in queue.get("synchronised_slave_nodes", ())),
        "state": STATES.get(queue["state"], queue["state"]),
    }


def short_name(name: str) -> str:
    return name.removeprefix(PREFIX)
