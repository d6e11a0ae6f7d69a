"""TableGroup: a node's replica of the tables, in a Raft group of the listed nodes (broker/raft).

It implements what a RaftRunner wants: the state machine and the watcher. What the log orders is in
raft_log.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata import raft_log
from shalott.broker.rabbit.metadata.raft_log import ReplicatedTables
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.messages import Failed, Message, Name, NodeDownEvent, NodeUp
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.raft import api
from shalott.broker.raft.api import Entry, RaftSettings, Role, Snapshot
from shalott.broker.raft.group import Busy, NotLeader, Submitted
from shalott.broker.raft.runner import RaftRunner
from shalott.broker.raft.storage import RaftStorage

# -- transport -------------------------------------------------------------------------------------

# MeshTransport: messages between the members of the tables' Raft group, over the nodes' own links.
#
# A message of the core is a letter to the process of the same name on another node. A link keeps
# order and loses what is under way when it breaks; the core asks again. That a link was made or
# broke is told to the core as well (broker.raft.api.ConnectionChanged): it need not wait for a
# time-out to miss a leader that is gone.

NAME = "consensus"
KINDS: Mapping[str, type[api.Message]] = {
    kind.__name__: kind
    for kind in (
        api.VoteRequest,
        api.VoteResponse,
        api.HeartbeatRequest,
        api.HeartbeatResponse,
        api.PushRequest,
        api.PushResponse,
        api.TakeLeadership,
    )
}


class Letter(Message):
    """One member's message to another: ``kind`` is the name of its type in broker.raft.api."""

    sender: str
    kind: str
    payload: bytes


MESSAGES: tuple[type[Message], ...] = (Letter,)

_encoder = msgspec.msgpack.Encoder()
_decoders: Mapping[str, msgspec.msgpack.Decoder[api.Message]] = {
    name: msgspec.msgpack.Decoder(kind) for name, kind in KINDS.items()
}


class MeshTransport(Process):
    """Implements broker.raft.transport.Transport. Spawn it as ``NAME`` before the group starts."""

    def __init__(self) -> None:
        super().__init__()
        self._receive: Callable[[str, api.Message], None] | None = None
        self.on_connection: Callable[[str, bool], None] = lambda member, is_up: None
        self.on_crash: Callable[[str], None] = lambda reason: None

    async def start(self, receive: Callable[[str, api.Message], None]) -> None:
        self._receive = receive

    async def stop(self) -> None:
        self._receive = None

    def send(self, to: str, message: api.Message) -> None:
        letter = Letter(self.runtime.node, type(message).__name__, _encoder.encode(message))
        self.runtime.send(Name(to, NAME), letter)

    async def started(self) -> None:
        self.runtime.watch_nodes(self.pid)

    async def handle(self, message: Message) -> None:
        if self._receive is None:
            return
        match message:
            case Letter(sender, kind, payload):
                self._receive(sender, _decoders[kind].decode(payload))
            case NodeUp(node, _):
                self.on_connection(node, True)
            case NodeDownEvent(node, _):
                self.on_connection(node, False)

    async def stopping(self, reason: str) -> None:
        """What a message led to failed, and a group that hears no more is worse than none."""
        self.on_crash(reason)


log = logging.getLogger("shalott.broker.metadata")

LOG_PATH = "metadata/raft.journal"
VOTE_MAX_MS = 500
STAND_STEP_MS = 100  # at most, from one node to the next


def settings_of(config: NodeConfig) -> RaftSettings:
    """A leader that is silent is given up when its link is: after 1 to 1.25 net ticks. Requests
    are not repeated while a link lives, since it loses nothing; a new link begins anew. Nodes stand
    for election in the order of their names, so that seldom two stand at once.
    """
    net_tick_ms = config.net_tick_ms
    step_ms = max(2, min(STAND_STEP_MS, net_tick_ms // 16))
    stand_ms = max(1, step_ms // 2) + config.node_names.index(config.name) * step_ms
    return RaftSettings(
        heartbeat_interval_ms=max(1, net_tick_ms // 4),
        max_heartbeat_leak=5,
        vote_min_ms=max(1, net_tick_ms // 40),
        vote_max_ms=max(2, min(VOTE_MAX_MS, net_tick_ms // 4)),
        stand_min_ms=stand_ms,
        stand_max_ms=stand_ms + step_ms // 2,
        push_timeout_ms=2 * net_tick_ms,
        commit_push_interval_ms=net_tick_ms,
        no_op_on_election=True,
        push_commits_at_once=True,
    )


class Listener(Protocol):
    """What is told of the group, in the order in which it happens."""

    def rows_changed(self, rows: Sequence[StoredRow]) -> None: ...

    def members_changed(self) -> None: ...

    def applied(self, entry: Entry, outcome: raft_log.Outcome) -> None: ...

    def committed(self) -> None: ...

    def role_changed(self, role: Role) -> None: ...

    def leader_ready(self) -> None: ...

    def failed(self, reason: str) -> None: ...


class TableGroup:
    """``storage`` is open, and closed by who opened it."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        storage: RaftStorage,
        listener: Listener,
    ) -> None:
        self.state = ReplicatedTables(len(config.node_names), is_blind=env.has_bug("OUR-04"))
        self.transport = MeshTransport()
        self._listener = listener
        self.transport.on_connection = self._connection_changed
        self.transport.on_crash = self.failed
        self.raft = RaftRunner(
            env,
            config.node_names,
            settings=settings_of(config),
            storage=storage,
            transport=self.transport,
            machine=self,
            watcher=self,
            snapshot_threshold=config.snapshot_entries,
        )

    @property
    def tables(self) -> Tables:
        return self.state.tables

    def propose(self, command: raft_log.Command) -> Submitted | Failed:
        """Put it into the log, if this node leads."""
        try:
            return self.raft.submit(raft_log.encode(command))
        except NotLeader as error:
            return Failed("not_leader", str(error))
        except Busy as error:
            return Failed("busy", str(error))

    # -- broker.raft.group.StateMachine ------------------------------------------------------------

    def apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            outcome = self.state.apply(entry.index, raft_log.decode(entry.data))
            match outcome:
                case raft_log.Written(rows):
                    self._listener.rows_changed(rows)
                case raft_log.MembersChanged(rows):
                    self._listener.rows_changed(rows)
                    self._listener.members_changed()
            self._listener.applied(entry, outcome)

    def take_snapshot(self) -> bytes:
        return self.state.image()

    def restore(self, snapshot: Snapshot) -> None:
        self._listener.rows_changed(self.state.restore(snapshot.data))
        self._listener.members_changed()

    # -- broker.raft.group.Watcher -----------------------------------------------------------------

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        self._listener.role_changed(role)

    def leader_ready(self, term: int) -> None:
        log.info("this node leads the tables, in term %d", term)
        self._listener.leader_ready()

    def committed(self, index: int) -> None:
        self._listener.committed()

    def truncated(self, from_index: int, last_index: int) -> None:
        """What was never committed was never applied."""

    def failed(self, reason: str) -> None:
        self._listener.failed(reason)

    def _connection_changed(self, member: str, is_up: bool) -> None:
        self.raft.connection_changed(member, is_up)
