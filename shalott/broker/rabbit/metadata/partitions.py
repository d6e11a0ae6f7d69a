"""PartitionHandler: what a node does about lost and regained peers (rabbit/rabbit_node_monitor.erl,
rabbit_autoheal.erl).

- ``ignore``: nothing. Both sides run; an operator restarts one.
- ``pause_minority``: a node that sees no strict majority of the listed nodes stops its broker until
  it does.
- ``autoheal``: when sides that ran apart see each other again, all sides but one restart and lose
  what they had.
- A partial partition (I see X down, Y sees it up) is made a full one by breaking with Y; under
  pause_minority the node pauses until the *whole* cluster is back. The incarnation in the question
  keeps a quick restart of X from looking like one. (Where tables need a majority, raft_server.py,
  their leader drops one of the two instead. OUR-08 brings the pause back.)

``may_confirm`` is RabbitMQ's pause_partition_guard: no confirm leaves a node about to pause.
Queue processes and channels hear of the lost peers (Down) before this process does (NodeDownEvent).
RabbitMQ asks whether the node has decided to pause; in between it confirms what only the lost
mirrors were missing, about one message for each publisher on the paused master (measured on
RabbitMQ 3.10), and the other side discards it. We ask for the majority itself, which is gone as
soon as the link is (known-bug switch OUR-07 brings RabbitMQ's guard back).
"""

from __future__ import annotations

import logging
from typing import Protocol

from shalott.broker.base.env import Env
from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.membership import choose_winner, is_majority, sides_of
from shalott.broker.rabbit.metadata.serving import TableServer
from shalott.broker.rabbit.processes.messages import Done, Message, Name, NodeDownEvent, NodeUp
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller

log = logging.getLogger("shalott.broker.partitions")

NAME = "partitions"
HEAL_TIMEOUT_MS = 60000


class NodeControl(Protocol):
    """What the handler may do to its node. None of these waits."""

    def pause(self, reason: str) -> None:
        """Stop the broker on this node until ``resume``."""
        ...

    def resume(self) -> None: ...

    def restart(self, reason: str, *, wait_for_go: bool) -> None:
        """Stop the broker, and start it again at once, or when ``go`` is called."""
        ...

    def go(self) -> None: ...

    def disconnect(self, node: str, reason: str) -> None: ...

    def connections(self) -> int: ...


class CheckPartial(Message):
    """I lost ``node`` in this incarnation: do you see it?"""

    reporter: str
    node: str
    incarnation: int


class Ping(Message):
    """call -> Done."""


class PartialPartition(Message):
    """I do see ``node``, and it answered me."""

    proxy: str
    node: str
    incarnation: int


class HealQuery(Message):
    """call -> HealReport: who shares tables with you, how many clients have you?"""


class HealReport(Message):
    members: tuple[str, ...]
    connections: int


class HealRestart(Message):
    """Your side lost: stop, report to ``coordinator``, and start when told."""

    coordinator: str


class HealStopped(Message):
    node: str


class HealGo(Message):
    """Every loser has stopped: start, and join the winner."""


class HealTimeout(Message):
    """To the coordinator itself: don't wait any longer."""

    round: int


class StatusChanged(Message):
    """From the metadata server, to this process: a node's status changed."""


MESSAGES: tuple[type[Message], ...] = (
    CheckPartial, Ping, PartialPartition, HealQuery, HealReport, HealRestart, HealStopped, HealGo,
    HealTimeout, StatusChanged,
)  # fmt: skip


class PartitionHandler(Process):
    """Registered as "partitions" on every node, whether its broker runs or not."""

    def __init__(
        self, env: Env, config: NodeConfig, server: TableServer, control: NodeControl
    ) -> None:
        super().__init__()
        self._env = env
        self._config = config
        self._server = server
        self._control = control
        self._incarnations: dict[str, int] = {}  # of linked peers
        self._pausing = False
        self._await_all = False  # paused by a partial partition: only the whole cluster ends it
        self._heal_waiting: dict[str, None] = {}  # losers that have not stopped yet
        self._heal_losers: tuple[str, ...] = ()
        self._heal_round = 0
        self._coordinator: str | None = None  # as a loser: who told us to restart

    def may_confirm(self) -> bool:
        """Whether confirms may leave this node."""
        if self._pausing:
            return False
        if self._config.partition_mode != "pause_minority" or self._env.has_bug("OUR-07"):
            return True
        is_linked = is_majority(len(self.runtime.nodes()) + 1, len(self._config.node_names))
        return is_linked and self._server.may_confirm()

    async def started(self) -> None:
        self.runtime.watch_nodes(self.pid)
        self._server.on_status = lambda: self.deliver(StatusChanged())

    async def handle(self, message: Message) -> None:
        match message:
            case NodeUp(node, incarnation):
                self._incarnations[node] = incarnation
                self._maybe_resume()
            case NodeDownEvent(node, _):
                self._node_down(node)
            case CheckPartial():
                await self._check_partial(message)
            case PartialPartition(proxy, node, incarnation):
                self._partial_partition(proxy, node, incarnation)
            case StatusChanged():
                await self._maybe_heal()
            case HealRestart(coordinator):
                self._lost(coordinator)
            case HealStopped(node):
                self._loser_stopped(node)
            case HealGo():
                if self._coordinator is not None:
                    self._coordinator = None
                    self._control.go()
            case HealTimeout(number):
                if number == self._heal_round and self._heal_losers:
                    self._let_losers_go()

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        if isinstance(request, HealQuery):
            members = tuple(sorted(self._server.members))
            return HealReport(members, self._control.connections())
        return Done()

    @property
    def is_pausing(self) -> bool:
        """Whether the broker is kept away until the cluster is back."""
        return self._pausing

    def broker_stopped(self) -> None:
        """Called by the node when a restart that was asked for here has stopped the broker."""
        if self._coordinator is not None:
            self.runtime.send(Name(self._coordinator, NAME), HealStopped(self._config.name))

    # -- pause_minority and partial partitions -----------------------------------------------------

    def _node_down(self, node: str) -> None:
        incarnation = self._incarnations.pop(node, 0)
        self._loser_stopped(node)
        if self._coordinator == node:
            self._coordinator = None
            self._control.go()
        if self._server.phase != "running" or self._pausing:
            return
        if self._config.partition_mode == "pause_minority" and not self._sees_majority():
            self._pause(f"minority: {node} is down and fewer than half of the nodes are left")
            return
        if self._server.needs_majority:
            return  # the leader decides what becomes of two members without a link
        for peer in self.runtime.nodes():
            question = CheckPartial(self._config.name, node, incarnation)
            self.runtime.send(Name(peer, NAME), question)

    def _sees_majority(self) -> bool:
        return is_majority(len(self._incarnations) + 1, len(self._config.node_names))

    def _pause(self, reason: str) -> None:
        log.error("pausing: %s", reason)
        self._pausing = True
        self._env.events.emit("", "paused", role="paused", detail={"reason": reason})
        self._control.pause(reason)

    def _maybe_resume(self) -> None:
        if not self._pausing:
            return
        if self._await_all:
            recovered = len(self._incarnations) + 1 >= len(self._server.belonging())
        else:
            recovered = self._sees_majority()
        if recovered:
            log.warning("the cluster is back: resuming")
            self._pausing = self._await_all = False
            self._env.events.emit("", "resumed", role="running")
            self._control.resume()

    async def _check_partial(self, question: CheckPartial) -> None:
        if self._incarnations.get(question.node) != question.incarnation:
            return
        try:
            timeout_ms = self._config.net_tick_ms * 1.5
            await self.runtime.call(Name(question.node, NAME), Ping(), timeout_ms=timeout_ms)
        except ProcessError:
            return
        answer = PartialPartition(self._config.name, question.node, question.incarnation)
        self.runtime.send(Name(question.reporter, NAME), answer)

    def _partial_partition(self, proxy: str, node: str, incarnation: int) -> None:
        back = node in self._incarnations
        if (
            back
            or self._server.phase != "running"
            or self._pausing
            or proxy not in self._incarnations
        ):
            return
        text = f"partial partition: {node} is down here and up at {proxy}"
        self._env.events.emit("", "partial_partition", detail={"node": node, "proxy": proxy})
        if self._config.partition_mode == "pause_minority":
            self._await_all = True
            self._pause(text)
        else:
            log.error("%s; breaking with %s too", text, proxy)
            self._control.disconnect(proxy, text)

    # -- autoheal ----------------------------------------------------------------------------------

    async def _maybe_heal(self) -> None:
        """The first running node by name coordinates, once it sees a partition and no healing is
        under way.
        """
        server = self._server
        if self._config.partition_mode != "autoheal" or server.phase != "running":
            return
        if self._heal_losers or self._coordinator is not None:
            return
        running = server.running_peers()
        if len(running) + 1 < len(server.belonging()):
            return  # who is not back yet could turn the decision (all_rabbit_nodes_up)
        known = server.known_partitions()
        parted = any(known[node] for node in (self._config.name, *running))
        if not parted or any(node < self._config.name for node in running):
            return
        reports = await self._ask_all(running)
        members = {node: report.members for node, report in reports.items()}
        counts = {node: report.connections for node, report in reports.items()}
        members[self._config.name] = tuple(sorted(server.members))
        counts[self._config.name] = self._control.connections()
        sides = sides_of(members, counts)
        if len(sides) > 1 and server.phase == "running":
            winner = choose_winner(sides)
            losers = tuple(sorted(node for node in members if node not in winner.nodes))
            self._heal(winner.nodes, losers)

    async def _ask_all(self, nodes: list[str]) -> dict[str, HealReport]:
        reports: dict[str, HealReport] = {}
        for node in sorted(nodes):
            try:
                timeout_ms = self._config.net_tick_ms
                answer = await self.runtime.call(
                    Name(node, NAME), HealQuery(), timeout_ms=timeout_ms
                )
            except ProcessError:
                continue
            if isinstance(answer, HealReport) and node in answer.members:
                reports[node] = answer
        return reports

    def _heal(self, winner: tuple[str, ...], losers: tuple[str, ...]) -> None:
        log.error("autoheal: %s win, %s restart", ", ".join(winner), ", ".join(losers))
        self._env.events.emit(
            "", "autoheal", detail={"winner": list(winner), "losers": list(losers)}
        )
        self._heal_round += 1
        self._heal_losers = losers
        self._heal_waiting = dict.fromkeys(losers)
        self.after(HEAL_TIMEOUT_MS, HealTimeout(self._heal_round))
        for node in losers:
            self.runtime.send(Name(node, NAME), HealRestart(self._config.name))

    def _lost(self, coordinator: str) -> None:
        if self._coordinator is None and self._server.phase == "running":
            self._coordinator = coordinator
            self._env.events.emit("", "autoheal_lost", detail={"coordinator": coordinator})
            self._control.restart("autoheal: this side lost", wait_for_go=True)

    def _loser_stopped(self, node: str) -> None:
        if node in self._heal_waiting:
            del self._heal_waiting[node]
            if not self._heal_waiting:
                self._let_losers_go()

    def _let_losers_go(self) -> None:
        losers, self._heal_losers, self._heal_waiting = self._heal_losers, (), {}
        for node in losers:
            self.runtime.send(Name(node, NAME), HealGo())
