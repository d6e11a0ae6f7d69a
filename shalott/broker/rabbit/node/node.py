"""Node: everything that runs in one broker process, and its life.

Two layers, as in RabbitMQ, where the Erlang VM outlives the broker application in it:
- the node: clocks and files (Env), the process runtime, links to the other nodes, the metadata
  server, the partition handler, the management API. It lives as long as the operating system's
  process.
- the broker (application.py): queues and AMQP clients. A node that pauses, or loses an autoheal,
  stops it and starts it again.

All starting and stopping of the broker is done by one task, one command after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from shalott.broker.base.env import Env, Platform
from shalott.broker.base.errors import BrokerError, ConfigError
from shalott.broker.base.http_server import ManagementServer
from shalott.broker.rabbit.amqp.alarms import Alarms
from shalott.broker.rabbit.amqp.channel import Channel
from shalott.broker.rabbit.amqp.connection import ConnectionInfo
from shalott.broker.rabbit.amqp.counts import Counts
from shalott.broker.rabbit.amqp.limits import MESSAGES as LIMITS_MESSAGES
from shalott.broker.rabbit.amqp.queue_protocol import MESSAGES as QUEUE_MESSAGES
from shalott.broker.rabbit.amqp.services import ChannelInfo, Port, Queues, Session
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.management.agent import MESSAGES as AGENT_MESSAGES
from shalott.broker.rabbit.management.agent import NAME as CLIENTS
from shalott.broker.rabbit.management.agent import ClientsAgent
from shalott.broker.rabbit.management.api import respond, serve_other
from shalott.broker.rabbit.management.backend import Rates
from shalott.broker.rabbit.management.clients import clients_of_node, send_away
from shalott.broker.rabbit.management.metrics import respond as respond_metrics
from shalott.broker.rabbit.management.nodes import admit, forget
from shalott.broker.rabbit.management.views import look
from shalott.broker.rabbit.metadata.access import ReplicatedMetadata
from shalott.broker.rabbit.metadata.api import Metadata
from shalott.broker.rabbit.metadata.messages import MESSAGES as METADATA_MESSAGES
from shalott.broker.rabbit.metadata.messages import SERVER
from shalott.broker.rabbit.metadata.opening import Store, make_server, open_store
from shalott.broker.rabbit.metadata.partitions import MESSAGES as PARTITION_MESSAGES
from shalott.broker.rabbit.metadata.partitions import NAME as PARTITIONS
from shalott.broker.rabbit.metadata.partitions import PartitionHandler
from shalott.broker.rabbit.metadata.raft_group import MESSAGES as CONSENSUS_MESSAGES
from shalott.broker.rabbit.mirrored.messages import MESSAGES as MIRROR_MESSAGES
from shalott.broker.rabbit.node.application import Application, Host
from shalott.broker.rabbit.node.clustering import Clustering
from shalott.broker.rabbit.node.node_state import MEMBER, BeginAgain, ShutDown, Standing
from shalott.broker.rabbit.processes.mesh import Mesh
from shalott.broker.rabbit.processes.messages import MESSAGES as PROCESS_MESSAGES
from shalott.broker.rabbit.processes.messages import Codec, Message, Pid
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.rabbit.storage.disk_space import DiskMonitor
from shalott.broker.rabbit.storage.memory import MemoryMonitor

log = logging.getLogger("shalott.broker.node")

NodePhase = Literal["booting", "running", "stopping", "paused", "stopped"]
# What a node without a broker is, by the command that ended it.
_PHASES: Mapping[str, NodePhase] = {"stop": "paused", "stop app": "stopped"}


# What may travel between nodes: what the node's codec is made of.
MESSAGES: tuple[type[Message], ...] = (
    *PROCESS_MESSAGES,
    *METADATA_MESSAGES,
    *PARTITION_MESSAGES,
    *CONSENSUS_MESSAGES,
    *QUEUE_MESSAGES,
    *MIRROR_MESSAGES,
    *AGENT_MESSAGES,
    *LIMITS_MESSAGES,
)


class Node:
    """Made by ``open``; ``start`` it, await ``fatal``, ``stop`` it.

    ``config``: as its standing has it; ``configured``: as the operator's file has it.
    """

    def __init__(
        self, env: Env, configured: NodeConfig, store: Store, standing: Standing = MEMBER
    ) -> None:
        self.env = env
        self.configured = configured
        self.standing = standing
        self.config = config = standing.applied(configured)
        self.phase: NodePhase = "stopped"
        self.started_ns = env.clock.monotonic_ns()
        self.runtime = Runtime(config.name, env.incarnation, Codec(MESSAGES))
        self.runtime.on_crash = self._crashed
        self.mesh = Mesh(env, config, self.runtime)
        self.metadata_server = make_server(env, config, store, connections=self.connections)
        self.metadata = ReplicatedMetadata(self.runtime, self.metadata_server)
        self.partitions = PartitionHandler(env, config, self.metadata_server, self)
        self.broker: Application | None = None
        view = NodeView(self)
        self.alarms = Alarms()
        self.clients = ClientsAgent(
            partial(clients_of_node, view),
            partial(send_away, view),
            self.alarms,
            partial(look, view),
            partial(forget, view),
            partial(admit, view),
            partial(serve_other, view),
        )
        self.memory = MemoryMonitor(
            env.clock,
            config.memory_limit_bytes,
            paging_ratio=config.vm_memory_high_watermark_paging_ratio,
        )
        self.memory.on_alarm = partial(self.clients.raise_alarm, "memory")
        self.disk_space = DiskMonitor(
            env.disk, config.disk_free_limit, partial(self.clients.raise_alarm, "disk")
        )
        self.management = ManagementServer(
            partial(respond, view), host=config.management_host, port=config.management_port
        )
        self.management_tls: ManagementServer | None = None
        if config.management_ssl is not None:
            self.management_tls = ManagementServer(
                partial(respond, view),
                host=config.management_host,
                port=config.management_ssl.port,
                tls=config.management_ssl,
            )
        self.metrics: ManagementServer | None = None
        if config.prometheus_port:
            self.metrics = ManagementServer(
                partial(respond_metrics, view),
                host=config.management_host,
                port=config.prometheus_port,
            )
        self.fatal: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        self._store = store
        self._go = asyncio.Event()
        self._is_held = standing.held  # the operator wants no broker here
        self.clustering = Clustering(self)
        # (start | stop | stop app | restart | restart when told, reason)
        self._wanted = asyncio.Queue[tuple[str, str]]()
        self._life: asyncio.Task[None] | None = None
        self.metadata_server.on_lost = lambda why: self.restart(why, wait_for_go=False)
        self.metadata_server.on_failed = self.fail
        self.metadata_server.on_refused = lambda why: self._give_up(ConfigError(why))

    @classmethod
    async def open(
        cls, config: NodeConfig, platform: Platform, *, standing: Standing = MEMBER
    ) -> Node:
        """Read what a former life left on the disk."""
        env = await platform.begin_life(config.name, config.bugs)
        return cls(env, config, await open_store(env, standing.applied(config)), standing)

    async def start(self) -> None:
        """Listen, link and begin to boot the broker. Raises ConfigError if a port is taken; the
        AMQP port is tried last, so what becomes of it is in ``fatal``.
        """
        if self.standing.joining is None:
            self.runtime.spawn(self.metadata_server, name=SERVER)
            self.runtime.spawn(self.partitions, name=PARTITIONS)
        self.runtime.spawn(self.clients, name=CLIENTS)
        self.disk_space.start()
        await asyncio.sleep(0)  # let both subscribe to links before there are any
        await self.management.start()
        if self.management_tls is not None:
            await self.management_tls.start()
        if self.metrics is not None:
            await self.metrics.start()
        await self.mesh.start()
        if self.standing.joining is not None:
            self._life = asyncio.create_task(self.clustering.enter(), name="join")
            return
        self._life = asyncio.create_task(self._live(), name="life")
        self.metadata_server.is_forced = self.standing.forced
        if not self._is_held:
            self.phase = "booting"
            self._wanted.put_nowait(("start", "the node starts"))

    async def stop(self) -> None:
        """An orderly end: queues hand over, clients get connection.close 320, files are flushed."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        if self.broker is not None:
            await self.broker.hand_over()
        await self._stop_broker("stopped", "the node stops")
        self.memory.stop()
        self.disk_space.stop()
        await self.management.stop()
        if self.management_tls is not None:
            await self.management_tls.stop()
        if self.metrics is not None:
            await self.metrics.stop()
        await self.mesh.stop()
        await self.runtime.kill(self.clients.pid)
        if self.standing.joining is None:
            await self.runtime.kill(self.partitions.pid)
            await self.runtime.kill(self.metadata_server.pid)
            await self.metadata_server.close()
        await self._store.close()

    def fail(self, reason: str) -> None:
        """The node can't go on (its disk failed, say): end the process without pretending an
        orderly stop.
        """
        self._crashed("node", f"crash: {reason}")
        self._give_up(BrokerError(reason))

    def _crashed(self, process: str, reason: str) -> None:
        self.env.events.emit("", "crashed", detail={"process": process, "reason": reason})

    def begin_again(self, standing: Standing, *, wipes: bool) -> None:
        """End this life, and have another begin; without what this one knew if it ``wipes``."""
        self._give_up(BeginAgain(standing, wipes=wipes))

    def shut_down(self) -> None:
        """End this life in good order, for the operator said so."""
        self._give_up(ShutDown("the operator said so"))

    def _give_up(self, error: BrokerError) -> None:
        if not self.fatal.done():
            self.fatal.set_result(error)

    # -- broker.rabbit.metadata.partitions.NodeControl ---------------------------------------------

    def pause(self, reason: str) -> None:
        self._wanted.put_nowait(("stop", reason))

    def resume(self) -> None:
        if not self._is_held:
            self._wanted.put_nowait(("start", "resumed"))

    def restart(self, reason: str, *, wait_for_go: bool) -> None:
        if self._is_held:
            if wait_for_go:
                self.partitions.broker_stopped()  # the winner waits for that
            return
        self._wanted.put_nowait(("restart when told" if wait_for_go else "restart", reason))

    def go(self) -> None:
        self._go.set()

    # -- the operator ------------------------------------------------------------------------------

    def stop_app(self) -> None:
        """End the broker in good order, and leave the node there, until ``start_app``."""
        self._is_held = True
        self._wanted.put_nowait(("stop app", "stopped by the operator"))

    def start_app(self) -> None:
        self._is_held = False
        if not self.partitions.is_pausing:  # else it resumes when the cluster is back
            self._wanted.put_nowait(("start", "started by the operator"))

    def disconnect(self, node: str, reason: str) -> None:
        self.mesh.disconnect(node, reason)

    def connections(self) -> int:
        return 0 if self.broker is None else self.broker.listener.connection_count

    # -- the broker's life -------------------------------------------------------------------------

    async def _live(self) -> None:
        """Carry out what is wanted, in order. A boot that waits for other nodes gives way to the
        next command.
        """
        starting: asyncio.Task[None] | None = None
        while True:
            command, reason = await self._wanted.get()
            log.info("%s: %s", command, reason)
            if command == "start" and starting is not None and not starting.done():
                continue  # it may have to wait for other nodes, and the next command with it
            if starting is not None:
                if command != "start":
                    starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
                starting = None
            if command == "stop app" and self.broker is not None:
                await self.broker.hand_over()
            if command != "start":
                await self._stop_broker(_PHASES.get(command, "booting"), reason)
            if command == "restart when told":
                self.partitions.broker_stopped()
                await self._go.wait()
                self._go.clear()
            if command not in _PHASES and self.phase != "running":
                starting = asyncio.create_task(self._start_broker(), name="start broker")
                starting.add_done_callback(self._start_ended)

    def _start_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ConfigError):
            self._give_up(error)
        elif error is not None:
            log.error("the broker did not start", exc_info=error)
            self.fail(f"the broker did not start: {type(error).__name__}: {error}")

    async def _start_broker(self) -> None:
        self.phase = "booting"
        await self.metadata_server.boot()
        host = Host(self.env, self.config, self.runtime, self.metadata, self.memory, self.alarms)
        self.broker = Application(
            host,
            may_confirm=self.partitions.may_confirm,
            fail=self.fail,
            restarted=self.metadata_server.me.application > 1,
        )
        await self.broker.start()
        self.phase = "running"
        await self.clustering.has_started()
        self.env.events.emit("", "role", role="running")
        log.info("the broker runs")

    async def _stop_broker(self, phase: NodePhase, reason: str) -> None:
        self.phase = "stopping"
        broker, self.broker = self.broker, None
        if broker is not None:
            await broker.stop(reason)
        if self.metadata_server.phase != "down":
            self.metadata_server.leave()
        self.phase = phase
        self.env.events.emit("", "role", role="paused" if phase == "paused" else "stopped")


# -- the node as the management API sees it --------------------------------------------------------


class NodeView:
    """Implements broker.rabbit.management.backend.ManagementBackend. Everything here answers at
    once, also while the node is busy."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rates = Rates()

    @property
    def env(self) -> Env:
        return self._node.env

    @property
    def config(self) -> NodeConfig:
        return self._node.config

    @property
    def runtime(self) -> Runtime:
        return self._node.runtime

    @property
    def metadata(self) -> Metadata:
        return self._node.metadata

    @property
    def queues(self) -> Queues | None:
        broker = self._node.broker
        return None if broker is None or self.phase != "running" else broker.queues

    @property
    def phase(self) -> str:
        return self._node.phase

    @property
    def started_ns(self) -> int:
        return self._node.started_ns

    @property
    def memory(self) -> MemoryMonitor:
        return self._node.memory

    @property
    def alarms(self) -> Alarms:
        return self._node.alarms

    @property
    def disk_space(self) -> DiskMonitor:
        return self._node.disk_space

    @property
    def app(self) -> NodeApp:
        return NodeApp(self._node)

    @property
    def clustering(self) -> Clustering:
        return self._node.clustering

    def partitions(self) -> Mapping[str, Sequence[str]]:
        return self._node.metadata_server.known_partitions()

    def local_queues(self) -> Mapping[str, Pid]:
        broker = self._node.broker
        return {} if broker is None else broker.supervisor.children.by_key

    def connections(self) -> Sequence[ConnectionInfo]:
        broker = self._node.broker
        return [] if broker is None else broker.listener.connections()

    @property
    def counts(self) -> Counts:
        broker = self._node.broker
        return Counts() if broker is None else broker.listener.counts

    def channels(self) -> Sequence[tuple[ConnectionInfo, Sequence[ChannelInfo]]]:
        broker = self._node.broker
        return [] if broker is None else broker.listener.channels()

    @property
    def rates(self) -> Rates:
        return self._rates

    def close_connection(self, pid: Pid, text: str) -> bool:
        broker = self._node.broker
        return broker is not None and broker.listener.close_connection(pid, text)

    def make_channel(self, port: Port, session: Session) -> Channel | None:
        broker = self._node.broker
        if broker is None or self.phase != "running":
            return None
        return broker.listener.make_channel(port, session)


class NodeApp:
    """Implements broker.rabbit.management.backend.App."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def take_clients(self, takes: bool) -> None:
        broker = self._node.broker
        if broker is None or takes == broker.listener.listening:
            return
        if takes:
            await broker.listener.resume()
        else:
            broker.listener.suspend()

    def shut_down(self) -> None:
        self._node.shut_down()

    def stop_app(self) -> None:
        self._node.stop_app()

    def start_app(self) -> None:
        self._node.start_app()
