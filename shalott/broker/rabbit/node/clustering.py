"""Clustering: what an operator does to a node whose broker is stopped, so that it belongs to
another cluster, or to none, or starts without the others (rabbit/rabbit_mnesia.erl: reset,
join_cluster, force_load_next_boot).

A node's configuration names its peers, so the cluster that it can join is that one: reset takes it
out, and join_cluster lets it in again. It comes back with an empty disk, and takes no part in the
tables, nor in their elections, before a running node has let it in. So all that it had acknowledged
or voted for in its life before is held by a majority that does not need it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import BrokerError, ProcessError
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.management.agent import NAME, Admit, Forget
from shalott.broker.rabbit.metadata.serving import TableServer
from shalott.broker.rabbit.node.node_state import Standing, write_standing
from shalott.broker.rabbit.processes.messages import Failed, Message, Name
from shalott.broker.rabbit.processes.runtime import Runtime

log = logging.getLogger("shalott.broker.node")

ANSWER_MS = 15_000
LINK_MS = 10_000
LOOK_MS = 50
ALREADY = "The node is already a member of this cluster"


class ClusterNode(Protocol):
    """The node, as far as this needs it."""

    env: Env
    configured: NodeConfig
    config: NodeConfig
    runtime: Runtime
    standing: Standing

    @property
    def phase(self) -> str: ...

    @property
    def metadata_server(self) -> TableServer: ...

    def begin_again(self, standing: Standing, *, wipes: bool) -> None: ...


class Clustering:
    """A node's."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    @property
    def standing(self) -> Standing:
        return self._node.standing

    async def reset(self, *, force: bool) -> None:
        """Leave the cluster, unless it is to be left without a word, and begin again with nothing.
        Raises BrokerError."""
        self._require_stopped()
        server, me = self._node.metadata_server, self._node.config.name
        if not force and any(node != me for node in server.belonging()):
            running = server.running_peers()
            if not running:
                text = "You cannot leave a cluster if no online nodes are present."
                raise BrokerError(text)
            await self._ask(running[0], Forget(me))
        self._node.env.witness("left")
        self._node.begin_again(Standing(alone=True, held=True), wipes=True)

    async def join(self, through: str) -> None:
        """Become a member of the cluster that ``through`` belongs to. What the node had is gone.
        Raises BrokerError."""
        self._require_stopped()
        configured = self._node.configured
        if through not in configured.node_names or through == configured.name:
            raise BrokerError(f"{through} is not a node of this node's configuration")
        if not self.standing.alone:
            raise BrokerError(ALREADY)
        self._node.env.witness("left")
        self._node.begin_again(Standing(held=True, joining=through), wipes=True)

    async def enter(self) -> None:
        """The life in between: ask to be let in, and begin again, in the cluster or alone."""
        through = self.standing.joining
        assert through is not None
        try:
            await self._linked(through)
            await self._ask(through, Admit(self._node.config.name))
        except BrokerError as error:
            log.warning("could not join through %s: %s", through, error)
            alone = Standing(alone=True, held=True, problem=str(error))
            self._node.begin_again(alone, wipes=False)
            return
        self._node.begin_again(Standing(held=True), wipes=False)

    async def force_boot(self) -> None:
        """The next start loads this node's tables. Raises BrokerError."""
        self._require_stopped()
        server = self._node.metadata_server
        if server.needs_majority:
            raise BrokerError("under pause_minority tables need a majority: no node can go alone")
        server.is_forced = True
        await write_standing(self._node.env.disk, Standing(alone=self.standing.alone, forced=True))

    async def seed(self, node: str) -> None:
        """See that one that the configuration names is there. Raises BrokerError."""
        self._require_stopped()
        configured = self._node.configured
        if node not in configured.node_names or node == configured.name:
            raise BrokerError(f"{node} is not a node of this node's configuration")
        await self._linked(node)

    async def has_started(self) -> None:
        """What was forced is done."""
        server = self._node.metadata_server
        if server.is_forced:
            server.is_forced = False
            await write_standing(self._node.env.disk, Standing(alone=self.standing.alone))

    async def _linked(self, node: str) -> None:
        try:
            async with asyncio.timeout(LINK_MS / 1000):
                while node not in self._node.runtime.nodes():
                    await pause_ms(LOOK_MS)
        except TimeoutError:
            raise BrokerError(f"unable to reach node {node}") from None

    async def _ask(self, node: str, request: Message) -> None:
        """Raises BrokerError if it can't or will not."""
        try:
            answer = await self._node.runtime.call(Name(node, NAME), request, timeout_ms=ANSWER_MS)
        except ProcessError as error:
            raise BrokerError(f"node {node} gave no answer: {error}") from error
        if isinstance(answer, Failed):
            raise BrokerError(answer.text)

    def _require_stopped(self) -> None:
        if self._node.phase != "stopped":
            raise BrokerError("the broker on this node must be stopped: stop_app")
