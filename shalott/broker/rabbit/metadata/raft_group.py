"""TableGroup: a node's replica of the tables, in a Raft group of the listed nodes (broker/raft).

It implements what a RaftRunner wants: the state machine and the watcher. What the log orders is in
raft_log.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from shalott.broker.base.env import Env
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata import raft_log
from shalott.broker.rabbit.metadata.raft_log import ReplicatedTables
from shalott.broker.rabbit.metadata.raft_transport import MeshTransport
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.messages import Failed
from shalott.broker.raft.api import Entry, RaftSettings, Role, Snapshot
from shalott.broker.raft.group import Busy, NotLeader, Submitted
from shalott.broker.raft.runner import RaftRunner
from shalott.broker.raft.storage import RaftStorage

log = logging.getLogger("shalott.broker.metadata")

LOG_PATH = "metadata/raft.journal"
SNAPSHOT_THRESHOLD = 1000  # entries
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
        *,
        snapshot_threshold: int = SNAPSHOT_THRESHOLD,
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
            snapshot_threshold=snapshot_threshold,
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
