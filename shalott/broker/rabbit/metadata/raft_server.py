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
import logging
from collections.abc import Callable, Mapping, Sequence

from shalott.broker.base.env import Env
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata import raft_log
from shalott.broker.rabbit.metadata.api import TableChanged
from shalott.broker.rabbit.metadata.membership import belonging, is_majority
from shalott.broker.rabbit.metadata.messages import (
    Applied,
    Commit,
    GroupStatus,
    JoinGroup,
    JoinRefused,
    Member,
    Membership,
    Phase,
    Reconsider,
    Watch,
)
from shalott.broker.rabbit.metadata.raft_log import ReplicatedTables
from shalott.broker.rabbit.metadata.raft_members import Housekeeper
from shalott.broker.rabbit.metadata.raft_transport import NAME as TRANSPORT
from shalott.broker.rabbit.metadata.raft_transport import MeshTransport
from shalott.broker.rabbit.metadata.raft_writes import Writes
from shalott.broker.rabbit.metadata.serving import Subscribers, server_name
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.messages import (
    Failed,
    Message,
    NodeDownEvent,
    NodeUp,
    Pid,
)
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller
from shalott.broker.raft.api import Entry, RaftSettings, Role, Snapshot
from shalott.broker.raft.group import Busy, NotLeader, Submitted
from shalott.broker.raft.runner import RaftRunner
from shalott.broker.raft.storage import RaftStorage

log = logging.getLogger("shalott.broker.metadata")

LOG_PATH = "metadata/raft.journal"
SNAPSHOT_THRESHOLD = 1000  # entries
PATIENCE_NET_TICKS = 2.0  # without a leader
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


class MajorityServer(Process):
    """Implements broker.rabbit.metadata.serving.TableServer, and what a RaftRunner wants: the
    state machine and the watcher. ``log`` is open, and closed by who opened it."""

    needs_majority = True

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        log: RaftStorage,
        *,
        snapshot_threshold: int = SNAPSHOT_THRESHOLD,
    ) -> None:
        super().__init__()
        self.phase: Phase = "down"
        self.members: dict[str, Member] = {}  # that this node sees, in order of joining
        self.peers: dict[str, GroupStatus] = {}  # linked nodes' latest status
        self.is_forced = False  # nothing can force a majority
        self.state = ReplicatedTables(len(config.node_names), is_blind=env.has_bug("OUR-04"))
        self.on_status: Callable[[], None] = lambda: None
        self.on_lost: Callable[[str], None] = lambda why: None
        self.on_failed: Callable[[str], None] = lambda why: None
        self.on_refused: Callable[[str], None] = lambda why: None
        self._env = env
        self._config = config
        self._me = Member(config.name, env.incarnation, 0)
        self._joined_at = 0  # the version at which this node became a member
        self._seen_at = 0.0  # when this node was last in the majority, or not running
        self._lost = False
        self._subscribers = Subscribers()
        self._running = asyncio.Event()
        self._changed = asyncio.Event()
        self._writes = Writes(self, env, config.name)
        self._is_looking = False
        self._transport = MeshTransport()
        self._transport.on_connection = self._connection_changed
        self._transport.on_crash = self.failed
        self.raft = RaftRunner(
            env,
            config.node_names,
            settings=settings_of(config),
            storage=log,
            transport=self._transport,
            machine=self,
            watcher=self,
            snapshot_threshold=snapshot_threshold,
        )
        self._housekeeper = Housekeeper(self, config)

    # -- TableServer -------------------------------------------------------------------------------

    @property
    def tables(self) -> Tables:
        return self.state.tables

    @property
    def me(self) -> Member:
        return self._me

    @property
    def leader_node(self) -> str | None:
        """Who takes writes, if it is known and can be reached."""
        leader = self.raft.leader
        if leader == self._config.name or leader in self.runtime.nodes():
            return leader
        return None

    async def boot(self) -> None:
        assert self.phase == "down"
        self._me = Member(self._me.node, self._me.incarnation, self._me.application + 1)
        self._lost = False
        self._running.clear()
        self._set_phase("booting")
        self._look_soon()
        await self._running.wait()

    def leave(self) -> None:
        self.members = {}
        self._set_phase("down")
        self._look_soon()

    async def close(self) -> None:
        await self.raft.stop()
        await self.runtime.kill(self._transport.pid)

    def subscribe(self, pid: Pid) -> None:
        self._subscribers.add(pid)

    def unsubscribe(self, pid: Pid) -> None:
        self._subscribers.remove(pid)

    def lost_membership(self) -> None:
        self._lose("the leader does not know this node")

    def may_confirm(self) -> bool:
        is_member = self.state.members.get(self._config.name) == self._me
        is_running = self.phase == "running" and not self._lost
        may_write = self.state.has_majority and self.leader_node is not None
        return is_running and is_member and may_write

    def is_settled(self, table: str, key: str) -> bool:
        """What is applied is committed."""
        return True

    async def await_version(self, version: int) -> None:
        while self.tables.version < version:
            self._changed.clear()
            await self._changed.wait()

    def belonging(self) -> tuple[str, ...]:
        return belonging(self._config.node_names, self.tables)

    def refused(self, member: Member, reason: str) -> None:
        """``member``, which was forgotten, may not join."""
        if member == self._me and self.phase == "booting":
            self.on_refused(reason)

    def running_peers(self) -> list[str]:
        return [node for node, status in self.peers.items() if status.phase == "running"]

    def known_partitions(self) -> Mapping[str, Sequence[str]]:
        """There are none: who is not in the majority does not run."""
        return dict.fromkeys((*self.peers, self._config.name), ())

    # -- messages ----------------------------------------------------------------------------------

    async def started(self) -> None:
        self.runtime.watch_nodes(self.pid)
        self.runtime.spawn(self._transport, name=TRANSPORT)
        self._housekeeper.begin()
        await self.raft.start()
        self.after(self._config.net_tick_ms / 2, Watch())

    async def handle(self, message: Message) -> None:
        match message:
            case NodeUp(node, _):
                self._housekeeper.linked(node)
                self._tell_status()
                self._tell_applied()
            case NodeDownEvent(node, _):
                self.peers.pop(node, None)
                self._refresh()
                self._tell_status()
            case GroupStatus():
                self._peer_status(message)
            case JoinGroup(member, linked):
                self._housekeeper.wants_to_join(member, linked)
            case JoinRefused(member, reason):
                self.refused(member, reason)
                return
            case Applied():
                self._writes.member_has(message)
                return
            case Watch():
                self._watch()
                self.after(self._config.net_tick_ms / 2, message)
            case Reconsider():
                self._is_looking = False
        self._look()

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        if isinstance(request, Commit):
            return await self._writes.commit(request, caller)
        return Failed("unsupported", type(request).__name__)

    def tell(self, node: str, message: Message) -> None:
        self.runtime.send(server_name(node), message)

    def _set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self._tell_status()

    def _tell_status(self) -> None:
        linked = tuple(self.runtime.nodes())
        members = tuple(self.state.members.values())
        status = GroupStatus(self._me, self.phase, linked, members, self.tables.version)
        for node in linked:
            self.tell(node, status)
        self.on_status()

    def _peer_status(self, status: GroupStatus) -> None:
        self.peers[status.member.node] = status
        self._refresh()
        if (
            self.phase == "running"
            and status.version >= self._joined_at
            and self._me not in status.members
        ):
            names = ", ".join(member.node for member in status.members)
            self._lose(f"{status.member.node} says that {names or 'no node'} are the members")
        self.on_status()

    def _look_soon(self) -> None:
        """In a message of its own: from where nothing may be proposed."""
        if not self._is_looking:
            self._is_looking = True
            self.deliver(Reconsider())

    def _look(self) -> None:
        if self.phase == "booting" and (leader := self.leader_node) is not None:
            request = JoinGroup(self._me, tuple(self.runtime.nodes()))
            if leader == self._config.name:
                self._housekeeper.wants_to_join(request.member, request.linked)
            else:
                self.tell(leader, request)
        self._housekeeper.look()

    # -- being a member ----------------------------------------------------------------------------

    def _became_member(self) -> None:
        self._joined_at = self.tables.version
        self._seen_at = self._now()
        self._set_phase("running")
        self._running.set()

    def _lose(self, why: str) -> None:
        """This node is no member of the group that may write: it has to join anew. (Without links
        to a majority it pauses anyway, see partitions.py.)
        """
        is_linked = is_majority(len(self.runtime.nodes()) + 1, len(self._config.node_names))
        if not self._lost and is_linked and self.phase == "running":
            self._lost = True
            log.error("this node is out of the majority: %s", why)
            self.on_lost(why)

    def _watch(self) -> None:
        if self.phase != "running" or self.may_confirm():
            self._seen_at = self._now()
        elif self.state.members.get(self._config.name) != self._me:
            self._lose("it was dropped")
        elif (self._now() - self._seen_at) * 1000 >= PATIENCE_NET_TICKS * self._config.net_tick_ms:
            self._lose("it saw no leader with a majority for too long")
        self._housekeeper.watch()

    def _refresh(self) -> None:
        """The members that this node sees are those that it is linked to: a link may break and
        come back."""
        if self.phase != "running":
            return
        seen = {
            node: member
            for node, member in self.state.members.items()
            if member == self._me or self._is_there(member)
        }
        if seen == self.members and list(seen) == list(self.members):
            return
        stayed = [node for node, member in self.members.items() if seen.get(node) == member]
        is_replaced = any(node in seen and node not in stayed for node in self.members)
        self.members = seen
        log.info("members now: %s", ", ".join(seen))
        if is_replaced:  # its old run ended, which is news of its own
            self._subscribers.tell(self, Membership(tuple(sorted(stayed))))
        self._subscribers.tell(self, Membership(tuple(sorted(seen))))
        self.on_status()

    def _is_there(self, member: Member) -> bool:
        status = self.peers.get(member.node)
        return status is not None and status.member == member and status.phase != "down"

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- the log -----------------------------------------------------------------------------------

    def propose(self, command: raft_log.Command) -> Submitted | Failed:
        """Put it into the log, if this node leads."""
        try:
            return self.raft.submit(raft_log.encode(command))
        except NotLeader as error:
            return Failed("not_leader", str(error))
        except Busy as error:
            return Failed("busy", str(error))

    def _tell_applied(self) -> None:
        """To the leader, what this member has."""
        leader = self.raft.leader
        if leader not in ("", self._config.name) and self.phase == "running":
            self.tell(leader, Applied(self._me, self.tables.version))

    # -- broker.raft.group.StateMachine ------------------------------------------------------------

    def apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            command = raft_log.decode(entry.data)
            outcome = self.state.apply(entry.index, command)
            self._applied(entry, outcome)

    def _applied(self, entry: Entry, outcome: raft_log.Outcome) -> None:
        match outcome:
            case raft_log.Written(rows):
                self._publish(rows)
            case raft_log.MembersChanged(rows):
                self._publish(rows)
                self._members_changed()
        self._writes.applied(entry, outcome)

    def take_snapshot(self) -> bytes:
        return self.state.image()

    def restore(self, snapshot: Snapshot) -> None:
        self._publish(self.state.restore(snapshot.data))
        self._members_changed()

    def _publish(self, rows: Sequence[StoredRow]) -> None:
        for row in rows:
            self._subscribers.tell(self, TableChanged(row.table, row.key))

    def _members_changed(self) -> None:
        mine = self.state.members.get(self._config.name)
        if self.phase == "booting" and mine == self._me:
            self._became_member()
        elif self.phase == "running" and mine != self._me:
            self._lose("it was dropped")
        self._refresh()
        self._tell_status()
        self._look_soon()

    # -- broker.raft.group.Watcher -----------------------------------------------------------------

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        if role != "leader":
            self._writes.end()
        self._housekeeper.role_changed()
        self._tell_applied()
        self._look_soon()

    def leader_ready(self, term: int) -> None:
        log.info("this node leads the tables, in term %d", term)
        self._look_soon()

    def committed(self, index: int) -> None:
        self._changed.set()
        self._tell_applied()
        self._writes.answer()

    def truncated(self, from_index: int, last_index: int) -> None:
        """What was never committed was never applied."""

    def failed(self, reason: str) -> None:
        self.on_failed(reason)

    def _connection_changed(self, member: str, is_up: bool) -> None:
        self.raft.connection_changed(member, is_up)
