"""MajorityServer: the tables of a node under pause_minority, replicated by Raft.

Theory. The listed nodes are a Raft group of fixed membership (broker/raft), each as long as its
process runs, whether its broker does or not. What its log orders is in raft_log.py: writes, and who
is a *member*: one run of the broker on a node. So no two groups can write, what was answered is
never undone, and every node sees the same changes in the same order.

A write goes to the group's leader, which puts it into the log. Whether its rows are still as the
writer saw them is decided when it is applied, at its place in the log. It is answered when it is
applied on every member (tables are read locally, and who was told of a write may tell others), and
who stays away is dropped from the members (raft_members.py).

A node that was dropped, or sees no leader for long, restarts its broker and joins anew. Nothing
that it confirmed can be lost by that: what a confirm rests on is written here, by the majority.
Known-bug switch OUR-08 takes all of this away: then tables are those of server.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from shalott.broker.base.env import Env
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata import raft_log
from shalott.broker.rabbit.metadata.api import TableChanged
from shalott.broker.rabbit.metadata.membership import belonging
from shalott.broker.rabbit.metadata.messages import (
    Applied,
    Commit,
    GroupStatus,
    JoinGroup,
    JoinRefused,
    Member,
    Phase,
    Reconsider,
    Watch,
)
from shalott.broker.rabbit.metadata.raft_group import NAME as TRANSPORT
from shalott.broker.rabbit.metadata.raft_group import TableGroup
from shalott.broker.rabbit.metadata.raft_members import Housekeeper
from shalott.broker.rabbit.metadata.raft_participant import Participant
from shalott.broker.rabbit.metadata.raft_writes import Writes
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.messages import Failed, Message, NodeDownEvent, NodeUp
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller
from shalott.broker.raft.api import Entry, Role
from shalott.broker.raft.storage import RaftStorage


class MajorityServer(Process):
    """Implements broker.rabbit.metadata.serving.TableServer. ``log`` is open, and closed by who
    opened it."""

    needs_majority = True

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        log: RaftStorage,
    ) -> None:
        super().__init__()
        self.is_forced = False  # nothing can force a majority
        self.on_status: Callable[[], None] = lambda: None
        self.on_lost: Callable[[str], None] = lambda why: None
        self.on_failed: Callable[[str], None] = lambda why: None
        self.on_refused: Callable[[str], None] = lambda why: None
        self._config = config
        self._replica = TableReplica(self, env, config, log)
        self.group = self._replica.group
        self.participant = self._replica.participant
        self.subscribers = self.participant.subscribers

    # -- TableServer -------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        return self.participant.phase

    @property
    def members(self) -> Mapping[str, Member]:
        return self.participant.members

    @property
    def tables(self) -> Tables:
        return self.group.state.tables

    @property
    def me(self) -> Member:
        return self.participant.me

    @property
    def leader_node(self) -> str | None:
        return self.participant.leader_node

    async def boot(self) -> None:
        self.participant.boot()
        self._replica.look_soon()
        await self.participant.running.wait()

    def leave(self) -> None:
        self.participant.leave()
        self._replica.look_soon()

    async def close(self) -> None:
        await self.group.raft.stop()
        await self.runtime.kill(self.group.transport.pid)

    def lost_membership(self) -> None:
        self.participant.lose("the leader does not know this node")

    def may_confirm(self) -> bool:
        return self.participant.may_confirm

    async def await_version(self, version: int) -> None:
        while self.tables.version < version:
            self._replica.changed.clear()
            await self._replica.changed.wait()

    def belonging(self) -> tuple[str, ...]:
        return belonging(self._config.node_names, self.tables)

    def running_peers(self) -> list[str]:
        return [n for n, status in self.participant.peers.items() if status.phase == "running"]

    def known_partitions(self) -> Mapping[str, Sequence[str]]:
        """There are none: who is not in the majority does not run."""
        return dict.fromkeys((*self.participant.peers, self._config.name), ())

    # -- messages ----------------------------------------------------------------------------------

    async def started(self) -> None:
        self.runtime.watch_nodes(self.pid)
        self.runtime.spawn(self.group.transport, name=TRANSPORT)
        self._replica.housekeeper.begin()
        await self.group.raft.start()
        self.after(self._config.net_tick_ms / 2, Watch())

    async def handle(self, message: Message) -> None:
        replica = self._replica
        match message:
            case NodeUp(node, _):
                replica.housekeeper.linked(node)
                self.participant.tell_status()
                replica.tell_applied()
            case NodeDownEvent(node, _):
                self.participant.peer_down(node)
            case GroupStatus():
                self.participant.peer_status(message)
            case JoinGroup(member, linked):
                replica.housekeeper.wants_to_join(member, linked)
            case JoinRefused(member, reason):
                replica.refused(member, reason)
                return
            case Applied():
                replica.writes.member_has(message)
                return
            case Watch():
                self.participant.watch()
                replica.housekeeper.watch()
                self.after(self._config.net_tick_ms / 2, message)
            case Reconsider():
                replica.is_looking = False
        replica.look()

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        if isinstance(request, Commit):
            return await self._replica.writes.commit(request, caller)
        return Failed("unsupported", type(request).__name__)


class TableReplica:
    """A server's part in the Raft group: whom it tells what happens there, and what it proposes.
    Implements broker.rabbit.metadata.raft_group.Listener.
    """

    def __init__(
        self,
        server: MajorityServer,
        env: Env,
        config: NodeConfig,
        log: RaftStorage,
    ) -> None:
        self._server = server
        self._node = config.name
        self.changed = asyncio.Event()
        self.is_looking = False
        self.group = TableGroup(env, config, log, self)
        self.participant = Participant(
            server,
            config,
            env.incarnation,
            self.group,
            on_status=lambda: server.on_status(),
            on_lost=lambda why: server.on_lost(why),
        )
        self.writes = Writes(self.group, env, config.name)
        self.housekeeper = Housekeeper(self.group, self.participant, config, self.refused)

    def refused(self, member: Member, reason: str) -> None:
        """``member``, which was forgotten, may not join."""
        if member == self.participant.me and self.participant.phase == "booting":
            self._server.on_refused(reason)

    def look_soon(self) -> None:
        """In a message of its own: from where nothing may be proposed."""
        if not self.is_looking:
            self.is_looking = True
            self._server.deliver(Reconsider())

    def look(self) -> None:
        participant = self.participant
        if participant.phase == "booting" and (leader := participant.leader_node) is not None:
            request = JoinGroup(participant.me, tuple(participant.linked()))
            if leader == self._node:
                self.housekeeper.wants_to_join(request.member, request.linked)
            else:
                participant.tell(leader, request)
        self.housekeeper.look()

    def tell_applied(self) -> None:
        """To the leader, what this member has."""
        leader, participant = self.group.raft.leader, self.participant
        if leader not in ("", self._node) and participant.phase == "running":
            participant.tell(leader, Applied(participant.me, self.group.tables.version))

    # -- what happens in the group -----------------------------------------------------------------

    def rows_changed(self, rows: Sequence[StoredRow]) -> None:
        for row in rows:
            self.participant.subscribers.tell(self._server, TableChanged(row.table, row.key))

    def members_changed(self) -> None:
        self.participant.members_changed()
        self.look_soon()

    def applied(self, entry: Entry, outcome: raft_log.Outcome) -> None:
        self.writes.applied(entry, outcome)

    def committed(self) -> None:
        self.changed.set()
        self.tell_applied()
        self.writes.answer()

    def role_changed(self, role: Role) -> None:
        if role != "leader":
            self.writes.end()
        self.housekeeper.role_changed()
        self.tell_applied()
        self.look_soon()

    def leader_ready(self) -> None:
        self.look_soon()

    def failed(self, reason: str) -> None:
        self._server.on_failed(reason)
