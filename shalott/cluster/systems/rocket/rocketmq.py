"""RocketmqSystem: this project's RocketMQ brokers: master and slaves, DLedger, or controllers.

Every node hosts a broker and a name server, and a controller where the system has them, unless the
plan lays the services out on nodes of their own (layout.py). A node's claims, which
readiness and observations rest on, come from its management API; without a broker it has none:

  GET /api/shalott/claims
  {"node": "n1", "status": "running", "services": [...], "running_nodes": [...], "partitions": [],
   "claims": [{"group": broker name, "role": "master"|"slave"|"none", "epoch": int, "master": node,
               "mirrors": [...], "synchronised": [...], "state": str}],
   "controller": {"role": "leader"|..., "epoch": term, "leader": node, ...}}
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tenacity import wait_fixed

from shalott.broker.rocket.remoting.client import RemotingClient, Unanswered, Unreachable
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.headers import CreateTopic, to_ext
from shalott.cluster.cluster import Cluster
from shalott.cluster.nodes import NodeSpec, Topology
from shalott.cluster.system import EventRow, Observation, members_of
from shalott.cluster.systems.management import CONFIGURE_WITHIN_S, RETRY_S, management
from shalott.cluster.systems.message_names import NamingReader
from shalott.cluster.systems.own_broker import event_row, in_order, read_event_file
from shalott.cluster.systems.rocket import replicas, settling
from shalott.cluster.systems.rocket.config import (
    PORTS,
    hosted_ports,
    node_config,
    to_toml,
)
from shalott.cluster.systems.rocket.message_names import cut_of
from shalott.cluster.systems.settling import Observe
from shalott.cluster.waiting import ask_until
from shalott.core.errors import (
    BootFailed,
    ClientError,
    Definite,
    HarnessError,
    Indefinite,
)
from shalott.core.plan import SystemPlan

if TYPE_CHECKING:
    from shalott.cluster.sim.machine import Machine
    from shalott.core.history import Recorder


from shalott.cluster.systems.rocket.config import services_of

log = logging.getLogger("shalott.cluster.systems")

QUOTED_LINES = 8
ASK_TIMEOUT_MS = 3000
OBSERVE_TIMEOUT_S = 2.0
# What nodes say to each other and write (NamesMessages); heartbeats of name servers are left out.
_TABLES = (
    *("GET_ALL_TOPIC_CONFIG", "GET_ALL_CONSUMER_OFFSET", "GET_ALL_DELAY_OFFSET"),
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
)
_RAFT = ("DLEDGER_PUSH", "DLEDGER_HEART_BEAT")
_CONTROLLERS = (
    *("CONTROLLER_GET_REPLICA_INFO", "CONTROLLER_GET_SYNC_STATE_DATA"),
    *("CONTROLLER_ALTER_SYNC_STATE_SET", "CONTROLLER_ELECT_MASTER", "NOTIFY_BROKER_ROLE_CHANGED"),
    *("CONTROLLER_GET_NEXT_BROKER_ID", "CONTROLLER_APPLY_BROKER_ID", "CONTROLLER_REGISTER_BROKER"),
)
MESSAGES: Mapping[str, tuple[str, ...]] = {
    "master-slave": ("piece", "report", "answer", *_TABLES, "heartbeat"),
    "dledger": (*_RAFT, "answer", *_TABLES, "DLEDGER_VOTE", "DLEDGER_LEADERSHIP_TRANSFER"),
    "controller": (
        *("piece", "report", "answer", "BROKER_HEARTBEAT", *_RAFT, *_TABLES, "heartbeat"),
        *("handshake", "DLEDGER_VOTE", *_CONTROLLERS, "DLEDGER_INSTALL_SNAPSHOT"),
    ),
}
_FILES = ("consumequeue/**", "config/*", "checkpoint*")
FILES: Mapping[str, tuple[str, ...]] = {
    "master-slave": ("commitlog/*", *_FILES),
    "dledger": ("dledger/data/*", "dledger/index/*", "dledger/*.json*", *_FILES),
    "controller": ("commitlog/*", "controller/*", "epochFile*", "brokerIdentity*", *_FILES),
}
SERVICE_VIEWS = ("registered", "controller")  # of nodes that host the service


class RocketmqSystem:
    """See ``cluster.system.System``. One broker group; a queue is "topic/number".

    Its masters are elected, or stay what they are: see master_slave.py for those that an operator
    replaces.
    """

    image = "broker"
    events_file = "events.jsonl"

    def __init__(self, plan: SystemPlan, seed: int) -> None:
        self.name = plan.name
        self.ports: Mapping[str, int] = PORTS[plan.name]
        self._plan = plan
        self._seed = seed

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        return [
            NodeSpec(
                name=node,
                image=self.image,
                command=("{python}", "-m", "shalott.broker", "--config", "{config}/node.toml"),
                files={"node.toml": to_toml(node_config(self._plan, topology, node, self._seed))},
                ports={port: listen[port].port for port in hosted_ports(self._plan, node)},
                collect=("events.jsonl",),
            )
            for node, listen in topology.listen.items()
        ]

    @property
    def message_names(self) -> Sequence[str]:
        return MESSAGES[self.name]

    @property
    def data_files(self) -> Sequence[str]:
        return FILES[self.name]

    def message_reader(self, port: int, from_dialler: bool) -> NamingReader | None:
        names = [name for name, number in self.ports.items() if number == port]
        cut = cut_of(self.name, names[0], from_dialler) if names else None
        return NamingReader(cut) if cut is not None else None

    def hosted_ports(self, node: str) -> Sequence[str]:
        return hosted_ports(self._plan, node)

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
        """Make the topic, with as many queues as there are keys of it."""
        counts: dict[str, int] = {}
        for queue in queues:
            topic, _, number = queue.rpartition("/")
            counts[topic] = max(counts.get(topic, 0), int(number) + 1)
        for topic, count in counts.items():
            await self._make_topic(cluster, topic, count)

    async def _make_topic(self, cluster: Cluster, topic: str, queues: int) -> None:
        """At the master, until it says so: it may be repeated. Raises BootFailed."""
        reason = ""

        async def is_made() -> bool:
            nonlocal reason
            reason = await self._try_to_make_topic(cluster, topic, queues)
            return not reason

        if not await ask_until(is_made, CONFIGURE_WITHIN_S, wait_fixed(RETRY_S)):
            raise BootFailed(f"the topic {topic} can't be made: {reason}")

    async def _try_to_make_topic(self, cluster: Cluster, topic: str, queues: int) -> str:
        """ "" if it is there, else why it is not."""
        try:
            master = await self._master(cluster)
        except ClientError as error:
            return str(error)
        endpoint = cluster.endpoint(master, "remoting")
        wanted = CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues)
        command = Command(code=RequestCode.UPDATE_AND_CREATE_TOPIC, ext=to_ext(wanted))
        client = RemotingClient(lambda address: (endpoint.host, endpoint.port))
        try:
            answer = await client.invoke(master, command, ASK_TIMEOUT_MS)
        except (Unreachable, Unanswered) as error:
            return str(error)
        finally:
            await client.close()
        if answer.code == ResponseCode.SUCCESS:
            return ""
        return f"{master} answered {answer.code}: {answer.remark}"

    async def _master(self, cluster: Cluster) -> str:
        """The node that says so, of several the one of the highest epoch. Raises ClientError."""
        found: list[tuple[int, str]] = []
        for node in cluster.nodes:
            for claim in (await self.observe(cluster, node))["claims"]:
                if claim["role"] == "master":
                    found.append((int(claim.get("epoch") or 0), node))
        if not found:
            raise Indefinite("no node says that it is the master")
        return max(found)[1]

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        answer = await management(cluster, node).get("/api/shalott/claims")
        try:
            seen = {
                "status": answer["status"],
                "services": answer["services"],
                "running": answer["running_nodes"],
                "partitions": answer["partitions"],
                "claims": answer["claims"],
            }
        except (KeyError, TypeError) as error:
            raise Definite(f"{node} answered with something else than claims") from error
        return seen | {name: answer[name] for name in SERVICE_VIEWS if name in answer}

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        nodes = members_of(cluster, self)
        reason = await settling.await_settled(self._observer(cluster), nodes, timeout_ms)
        if reason:
            log.warning("the cluster has not settled within %d ms: %s", timeout_ms, reason)
        return not reason

    def why_unsettled(self, seen: Mapping[str, Observation | None], queues: Sequence[str]) -> str:
        return settling.why_unsettled(seen)

    async def record_replicas(self, cluster: Cluster, record: Recorder) -> None:
        async def get(node: str, path: str) -> replicas.Answer:
            api = management(cluster, node, replicas.ASK_TIMEOUT_MS)
            answer: replicas.Answer = await api.get(path)
            return answer

        async def ask(node: str) -> Observation:
            try:
                async with asyncio.timeout(OBSERVE_TIMEOUT_S):
                    return await self.observe(cluster, node)
            except (HarnessError, OSError, TimeoutError) as error:
                raise Indefinite(str(error) or type(error).__name__) from error

        nodes = members_of(cluster, self)
        await replicas.record_logs(record, nodes, ask, get, have_tables=True)

    async def inspect(self, machines: Mapping[str, Machine]) -> None:
        from shalott.cluster.sim.rest import record_waits
        from shalott.cluster.systems.rocket.simulated_rest import waits

        await record_waits(machines, waits)

    def _observer(self, cluster: Cluster) -> Observe:
        async def observe(node: str) -> Observation:
            return await self.observe(cluster, node)

        return observe

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[EventRow]:
        rows = [
            event_row(event, run_start_wall_ns)
            for directory in sorted(collected.glob("*"))  # none if nothing could be collected
            if directory.is_dir()
            for event in read_event_file(directory / "events.jsonl")
        ]
        return in_order(rows)


MEMBERS = "/api/shalott/members"
TIMEOUT_MS = 10_000  # the controllers may have to elect a leader first


class ControllerSystem(RocketmqSystem):
    """Brokers under controllers, which brokers join and leave: a ``ChangesMembers`` as well.

    A broker that the controllers have not heard of gets an id of theirs and registers; no operator
    has to let it in. One that is gone for good is taken out by an operator (CLEAN_BROKER_DATA,
    1011), which the controllers refuse while it lives. Only brokers come and go: the controllers
    are a fixed group (broker/raft), so a node that hosts one stays. So do the logs of ``dledger``,
    which are such a group themselves; brokers of ``master-slave`` are not registered anywhere that
    remembers them.
    """

    def __init__(self, plan: SystemPlan, seed: int) -> None:
        super().__init__(plan, seed)
        self.left_out: tuple[str, ...] = ()

    def why_not_leave(self, node: str) -> str:
        services = services_of(self._plan, node)
        if "controller" in services:
            return "it hosts a controller, and the controllers are a fixed group"
        return "" if "broker" in services else "it hosts no broker"

    async def members(self, cluster: Cluster, node: str) -> Sequence[str]:
        found: Sequence[str] = (await management(cluster, node).get(MEMBERS))["members"]
        return found

    async def running_members(self, cluster: Cluster, node: str) -> Sequence[str]:
        found: Sequence[str] = (await management(cluster, node).get(MEMBERS))["running_nodes"]
        return found

    async def forget(self, cluster: Cluster, node: str, by: str) -> None:
        if node in await self.members(cluster, by):
            await management(cluster, by, TIMEOUT_MS).delete(f"{MEMBERS}/{node}")
        self.left_out = (*self.left_out, node)

    async def admit(self, cluster: Cluster, node: str, by: str) -> None:
        """It registers by itself when it starts."""
        self.left_out = tuple(other for other in self.left_out if other != node)
