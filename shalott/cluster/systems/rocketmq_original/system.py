"""RocketmqOriginal: RocketMQ itself, releases 4.9.4 to 5.5.0, in containers.

A node is a container with a Java machine for its name server (and the controller in it) and one for
its broker. What it believes is asked for over RocketMQ's own administration requests (asking.py)
and put into the words of our own brokers' claims (observing.py); what happened when is read from
the services' logs (events.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tenacity import wait_fixed

from shalott.broker.rocket.remoting.command import RequestCode
from shalott.cluster.cluster import Cluster
from shalott.cluster.nodes import NodeSpec, Topology
from shalott.cluster.system import EventRow, Observation, members_of
from shalott.cluster.systems.rocket import settling
from shalott.cluster.systems.rocketmq_original import files
from shalott.cluster.systems.rocketmq_original.acknowledged import acknowledged_events
from shalott.cluster.systems.rocketmq_original.admin import Admin
from shalott.cluster.systems.rocketmq_original.config import (
    HEAPS,
    member_ids,
    properties_of,
)
from shalott.cluster.systems.rocketmq_original.log_lines import Where
from shalott.cluster.systems.rocketmq_original.observing import Views
from shalott.cluster.systems.rocketmq_original.parameters import (
    PORTS,
    RocketmqParameters,
    addresses,
    hosted_ports,
    machines_of,
    nodes_with,
    replication_of,
    services_of,
)
from shalott.cluster.systems.settling import Observe
from shalott.cluster.waiting import ask_until
from shalott.core.errors import BootFailed, ClientError, Definite, Indefinite
from shalott.core.history import History
from shalott.core.parameters import make_parameters
from shalott.core.plan import SystemPlan
from shalott.core.timeline import place_log

if TYPE_CHECKING:
    from shalott.core.history import Recorder

from shalott.broker.base.events import Event
from shalott.cluster.systems.own_broker import placed_row
from shalott.cluster.systems.rocketmq_original.broker_log import BrokerLog
from shalott.cluster.systems.rocketmq_original.config import GROUP
from shalott.cluster.systems.rocketmq_original.controller_log import ControllerLog, complete_sets

log = logging.getLogger("shalott.cluster.systems")

IMAGE = "rocketmq"
HASHES = "/opt/rocketmq/jars.sha256"
QUOTED_LINES = 12
CONFIGURE_WITHIN_S = 90.0
COPIED_WITHIN_S = 75.0  # slaves copy their master's tables every 10 or 60 s
RETRY_S = 0.25
PATIENCE_S = 60  # of a broker that waits for others before it starts, the first time
UNRIVALLED_S = 120  # of a former master that waits until its operator makes it a slave
ADMIN_TIMEOUT_MS = 5000.0


class RocketmqOriginal:
    """See ``cluster.system.System``. One broker group; a queue is "topic/number"."""

    name = "rocketmq"
    ports: Mapping[str, int] = PORTS
    packages: Sequence[str] = ("openjdk-17-jre-headless",)

    def __init__(self, plan: SystemPlan) -> None:
        self._plan = plan
        self._parameters = make_parameters(RocketmqParameters, plan.parameters)
        self.image = f"{IMAGE}:{self._parameters.version}"
        self._admin = Admin()
        self._hosts_of_log: dict[str, str] = {}  # as nodes call each other
        # By service: ids in its Raft group, by node.
        self._members: dict[str, dict[str, str]] = {"broker": {}, "controller": {}}
        self._views = Views(plan, self._admin, self._members)

    # -- what runs ---------------------------------------------------------------------------------

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        for service, members in self._members.items():
            members |= member_ids(self._plan, topology, service)
        known = addresses(topology)
        self._hosts_of_log = {own["remoting"].rpartition(":")[0]: n for n, own in known.items()}
        return [
            NodeSpec(
                name=node,
                image=self.image,
                command=("{config}", "{data}", *machines_of(services_of(self._plan, node))),
                files=properties_of(self._plan, topology, node),
                environment={**HEAPS, **self._boots(node, topology)},
                ports={port: listen[port].port for port in hosted_ports(self._plan, node)},
                collect=("log", "conf"),
            )
            for node, listen in topology.listen.items()
        ]

    def _boots(self, node: str, topology: Topology) -> dict[str, str]:
        """The first broker becomes the master; slaves that follow one start after it. Where no one
        elects, a master that is back waits until its operator has seen to it."""
        brokers = nodes_with(self._plan, "broker", tuple(topology.listen))
        follows = self.replication != "dledger" and node in brokers[1:]
        after = f"{'master' if follows else 'name-servers'} {PATIENCE_S}"
        by_hand = self.replication == "master-slave"
        return {
            "AFTER": after,
            "REGISTERS": "yes" if by_hand else "",
            "UNRIVALLED": str(UNRIVALLED_S) if by_hand else "",
        }

    def hosted_ports(self, node: str) -> Sequence[str]:
        return hosted_ports(self._plan, node)

    @property
    def replication(self) -> str:
        return replication_of(self._plan.parameters)

    def _hosts(self, node: str, service: str) -> bool:
        return service in services_of(self._plan, node)

    async def artifacts(self, cluster: Cluster) -> Mapping[str, str]:
        """The jars of the image, as they were hashed when it was made."""
        done = await cluster.processes.run_command(cluster.nodes[0], ["cat", HASHES])
        pairs = (line.split() for line in done.output.splitlines())
        return {words[1]: words[0] for words in pairs if len(words) == 2}

    # -- being ready -------------------------------------------------------------------------------

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        """All of them in their roles, the slaves in sync, and known to every name server."""
        reason = await settling.await_settled(self._observer(cluster), nodes, timeout_ms)
        if reason:
            printed = [
                f"{node} printed:\n{(await cluster.files.output(node, QUOTED_LINES)).strip()}"
                for node in nodes
            ]
            raise BootFailed("\n".join([f"the cluster is not ready: {reason}.", *printed]))

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None:
        """Make the topic, with as many queues as there are keys of it, and wait until every name
        server tells clients of it."""
        counts: dict[str, int] = {}
        for queue in queues:
            topic, _, number = queue.rpartition("/")
            counts[topic] = max(counts.get(topic, 0), int(number) + 1)
        for topic, count in counts.items():
            reason = ""

            async def is_made(topic: str = topic, count: int = count) -> bool:
                nonlocal reason
                try:
                    await self.restore_topic(cluster, topic, count)
                    await self._await_routes(cluster, topic)
                except ClientError as error:
                    reason = str(error)
                    return False
                return True

            if not await ask_until(is_made, CONFIGURE_WITHIN_S, wait_fixed(RETRY_S)):
                raise BootFailed(f"the topic {topic} can't be made: {reason}")

    async def restore_topic(self, cluster: Cluster, topic: str, queues: int) -> None:
        """Make a topic, or make it again where it was forgotten. Raises ClientError.

        As ``mqadmin updateTopic`` does, at the master; then at the slaves, if the plan says so,
        which would copy it within a minute. Some releases' slaves refuse it: their copy is waited
        for.
        """
        master = await self.master(cluster)
        fields = topic_fields(topic, queues)
        await self._make_topic(cluster, master, fields)
        if self._parameters.topic_made_at == "all":
            others = [n for n in cluster.nodes if n != master and self._hosts(n, "broker")]
            for node in others:
                try:
                    await self._make_topic(cluster, node, fields)
                except Definite:
                    await self._await_copied(cluster, node, topic)

    async def _make_topic(self, cluster: Cluster, node: str, fields: Mapping[str, str]) -> None:
        address = self._views.address(cluster, node, "remoting")
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        await self._admin.ask(address, code, fields, timeout_ms=ADMIN_TIMEOUT_MS)

    async def _await_copied(self, cluster: Cluster, node: str, topic: str) -> None:
        """Raises Indefinite if it does not come."""
        address = self._views.address(cluster, node, "remoting")

        async def has_it() -> bool:
            found = await self._admin.json(address, RequestCode.GET_ALL_TOPIC_CONFIG)
            return topic in (found.get("topicConfigTable") or {})

        if not await ask_until(has_it, COPIED_WITHIN_S, wait_fixed(RETRY_S)):
            raise Indefinite(f"{node} does not copy the topic {topic} from its master")

    async def _await_routes(self, cluster: Cluster, topic: str) -> None:
        for node in cluster.nodes:
            if self._hosts(node, "nameserver"):
                address = self._views.address(cluster, node, "nameserver")
                await self._admin.ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})

    async def master(self, cluster: Cluster) -> str:
        """The node that says so, of several the one of the highest epoch. Raises ClientError."""
        found: list[tuple[int, str]] = []
        for node in cluster.nodes:
            for claim in (await self.observe(cluster, node))["claims"]:
                if claim["role"] == "master":
                    found.append((int(claim.get("epoch") or 0), node))
        if not found:
            raise Indefinite("no node says that it is the master")
        return max(found)[1]

    # -- what it believes --------------------------------------------------------------------------

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        return await self._views.observe(cluster, node)

    def _observer(self, cluster: Cluster) -> Observe:
        async def observe(node: str) -> Observation:
            return await self._views.observe_with_slaves(cluster, node)

        return observe

    async def record_replicas(self, cluster: Cluster, record: Recorder) -> None:
        """As ``RecordsReplicas``: by what the nodes' files hold, read in the nodes."""
        await files.record_files(
            cluster, record, members_of(cluster, self), self._observer(cluster)
        )

    # -- at rest -----------------------------------------------------------------------------------

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        nodes = members_of(cluster, self)
        reason = await settling.await_settled(self._observer(cluster), nodes, timeout_ms)
        if reason:
            log.warning("the cluster has not settled within %d ms: %s", timeout_ms, reason)
        return not reason

    def why_unsettled(self, seen: Mapping[str, Observation | None], queues: Sequence[str]) -> str:
        return settling.why_unsettled(seen)

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[EventRow]:
        where = Where(
            hosts=self._hosts_of_log,
            members={member: node for node, member in self._members["broker"].items()},
            controllers={member: node for node, member in self._members["controller"].items()},
        )
        return read_events(collected, run_start_wall_ns, where)

    def acknowledged_events(self, history: History, rows: Sequence[EventRow]) -> Sequence[EventRow]:
        return acknowledged_events(history, rows, self._hosts_of_log)


def topic_fields(topic: str, queues: int) -> dict[str, str]:
    """The header of UPDATE_AND_CREATE_TOPIC, whole: the original refuses one that lacks any."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


# A name server has its node's controller in it.
WITH_CONTROLLERS = ("nameserver", "controller")


def read_events(collected: Path, run_start_wall_ns: int, where: Where) -> Sequence[EventRow]:
    """All that the nodes' logs say. ``collected``: a directory for each node, with its ``log``."""
    found: list[tuple[Event, int]] = []  # with its time of the run

    def take(events: Iterable[Event]) -> None:
        told = list(events)
        walls = [event.wall_ns for event in told]
        placed = place_log(run_start_wall_ns, told[0].node, walls) if told else []
        found.extend(zip(told, placed, strict=True))

    for directory in sorted(collected.glob("*/log")):
        node = directory.parent.name
        broker = directory / "broker.log"
        if broker.is_file():
            take(BrokerLog(node, GROUP, where).events(broker))
        for service in WITH_CONTROLLERS:
            path = directory / f"{service}.log"
            if path.is_file():
                take(ControllerLog(node, where).events(path))
    found.sort(key=lambda pair: pair[1])
    completed = complete_sets([event for event, _ in found], where)
    return [placed_row(event, run_ns) for event, (_, run_ns) in zip(completed, found, strict=True)]
