"""MetadataServer: one a node; together they replicate the tables, as Mnesia does.

Theory. Nodes that share tables are *members*, in order of joining; the oldest is the leader. A
write goes to the leader, which checks every row's version, applies, sends the rows to all members
and answers when each member that is still up has applied them. There is no quorum: a member that
goes down is dropped and writes go on, on every side of a partition, as Mnesia does it; what
partitions do about it is partitions.py's business. (Under pause_minority a majority is needed:
raft_server.py.) When the leader goes down the next oldest first collects every member's rows, keeps
the newest version of each and hands them out: an answer of the old leader had reached them all.

A member is one run of the broker on a node. Two nodes that are linked and run without being members
of one another have run apart: that is the *partitioned* state, which a restart of one side ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from shalott.broker.base.env import Env
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.api import TableChanged
from shalott.broker.rabbit.metadata.booting import Booting
from shalott.broker.rabbit.metadata.journal import TableJournal
from shalott.broker.rabbit.metadata.leading import Leadership
from shalott.broker.rabbit.metadata.membership import INCONSISTENT, belonging, refusal
from shalott.broker.rabbit.metadata.messages import (
    SERVER,
    Applied,
    Apply,
    Commit,
    Dump,
    Dumped,
    Join,
    Joined,
    Member,
    MemberJoined,
    Membership,
    Phase,
    Reconsider,
    SettleTables,
    Status,
)
from shalott.broker.rabbit.metadata.serving import Subscribers
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.messages import (
    Failed,
    Message,
    Name,
    NodeDownEvent,
    NodeUp,
)
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller

log = logging.getLogger("shalott.broker.metadata")


class MetadataServer(Process):
    """Implements broker.rabbit.metadata.serving.TableServer. See the module's theory."""

    needs_majority = False

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        journal: TableJournal,
        *,
        connections: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__()
        self.tables = Tables()
        self.phase: Phase = "down"
        self.members: dict[str, Member] = {}  # in order of joining
        self.peers: dict[str, Status] = {}  # linked nodes' latest status
        self.partitions: dict[str, None] = {}
        self.is_forced = False  # load, even if others may have fresher tables (force_boot)
        self._env = env
        self._config = config
        self._journal = journal
        self._connections = connections
        self._me = Member(config.name, env.incarnation, 0)
        self.subscribers = Subscribers()
        self._running = asyncio.Event()
        self._leadership = Leadership(self, env, config)
        self._booting = Booting(self, config, journal)
        self.changed = asyncio.Event()
        self.on_status: Callable[[], None] = lambda: None
        self.on_lost: Callable[[str], None] = lambda why: None
        self.on_failed: Callable[[str], None] = lambda why: None
        self.on_refused: Callable[[str], None] = lambda why: None

    # -- TableServer -------------------------------------------------------------------------------

    async def boot(self) -> None:
        """Become a running member: copy the tables from a running node, or load them if they can't
        be stale.
        """
        assert self.phase == "down"
        self._me = Member(self._me.node, self._me.incarnation, self._me.application + 1)
        self.tables = Tables()
        self.tables.store(self._journal.rows)
        self.tables.version = max(self.tables.version, self._journal.mark)
        self.partitions = {}
        self._booting.begin()
        self._running.clear()
        self.set_phase("booting")
        self.deliver(Reconsider())
        await self._running.wait()

    def leave(self) -> None:
        self.members = {}
        self.partitions = {}
        self._leadership.end()
        self.set_phase("down")

    async def close(self) -> None:
        """The journal is closed by who opened it."""

    @property
    def me(self) -> Member:
        return self._me

    @property
    def leader(self) -> Member | None:
        return next(iter(self.members.values()), None)

    @property
    def leader_node(self) -> str | None:
        return next(iter(self.members), None)

    def waiting_for(self) -> list[str]:
        """While booting: listed nodes that are not there and may have fresher tables."""
        return self._booting.waiting_for()

    def lost_membership(self) -> None:
        self.on_lost("the other members do not know this node")

    def may_confirm(self) -> bool:
        return True

    async def await_version(self, version: int) -> None:
        while self.tables.version < version:
            self.changed.clear()
            await self.changed.wait()

    def belonging(self) -> tuple[str, ...]:
        return belonging(self._config.node_names, self.tables)

    def running_peers(self) -> list[str]:
        return [node for node, status in self.peers.items() if status.phase == "running"]

    def known_partitions(self) -> Mapping[str, Sequence[str]]:
        known = {node: status.partitions for node, status in self.peers.items()}
        return {**known, self._config.name: tuple(self.partitions)}

    # -- messages ----------------------------------------------------------------------------------

    async def started(self) -> None:
        self.runtime.watch_nodes(self.pid)

    async def handle(self, message: Message) -> None:
        match message:
            case NodeUp(node, _):
                self.tell(node, self.status())
            case NodeDownEvent(node, _):
                self.peers.pop(node, None)
                await self.member_down(node)
                await self._booting.reconsider()
                self.on_status()
            case Status():
                await self._peer_status(message)
            case Apply():
                await self._apply(message)
            case Applied(member, version):
                if self.members.get(member.node) == member:
                    self._leadership.settle(version, member.node)
            case MemberJoined(leader, member):
                if leader == self.leader:
                    await self._add_member(member)
            case SettleTables():
                await self._leadership.reconcile()
            case Reconsider():
                await self._booting.reconsider()

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        match request:
            case Commit():
                return await self._leadership.commit(request, caller)
            case Join(member, linked):
                return await self._join(member, linked)
            case Dump(leader):
                if self.phase != "running" or leader != self.leader:
                    return Failed("other_leader", str(self.leader))
                return Dumped(self.tables.version, tuple(self.tables.snapshot()))
        return Failed("unsupported", type(request).__name__)

    # -- status, membership ------------------------------------------------------------------------

    def status(self) -> Status:
        return Status(
            self._me,
            self.phase,
            tuple(self._journal.saw_down),
            tuple(self.members.values()),
            tuple(self.partitions),
            self._connections(),
            self.tables.version,
        )

    def broadcast_status(self) -> None:
        status = self.status()
        for node in self.runtime.nodes():
            self.tell(node, status)
        self.on_status()

    def tell(self, node: str, message: Message) -> None:
        self.runtime.send(Name(node, SERVER), message)

    def set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self.broadcast_status()
        if phase == "running":
            self._running.set()

    async def _peer_status(self, status: Status) -> None:
        node = status.member.node
        self.peers[node] = status
        mine = self.members.get(node)
        # Its "booting" may come after the leader told us that it joined: that is another link's
        # news.
        if mine is not None and (
            status.member.is_newer_than(mine) or (mine == status.member and status.phase == "down")
        ):
            await self.member_down(node)
        if self.phase == "running":
            self._note_partition(status)
        await self._booting.reconsider()
        self.on_status()

    def _note_partition(self, status: Status) -> None:
        node = status.member.node
        apart = (
            status.phase == "running"
            and self.members.get(node) != status.member
            and self._me not in status.members
        )
        if apart and node not in self.partitions:
            self.partitions[node] = None
            log.error("inconsistent database: %s ran apart from this node", node)
            self._env.events.emit("", "partition", role="running", detail={"with": node})
            self.broadcast_status()
        elif not apart and status.phase != "running" and node in self.partitions:
            del self.partitions[node]
            self.broadcast_status()

    async def member_down(self, node: str) -> None:
        if node not in self.members or self.phase != "running":
            return
        was_leader = self.leader == self._me
        del self.members[node]
        await self._journal.note_down(node)
        log.warning("%s left; members now: %s", node, ", ".join(self.members))
        self._leadership.member_gone(node)
        if self.leader == self._me and not was_leader:
            self._leadership.begin()
        self.membership_changed()

    async def _add_member(self, member: Member) -> None:
        self.members.pop(member.node, None)
        self.members[member.node] = member
        self.partitions.pop(member.node, None)
        await self._journal.note_up(member.node)
        log.info("%s joined; members now: %s", member.node, ", ".join(self.members))
        self.membership_changed()

    def membership_changed(self) -> None:
        self.broadcast_status()
        self._publish(Membership(tuple(sorted(self.members))))

    async def _join(self, member: Member, linked: tuple[str, ...]) -> Message:
        if self.phase != "running" or self.leader != self._me or self._leadership.is_reconciling:
            return Failed("not_leader", str(self.leader))
        if member.node not in self.belonging():
            return Failed(INCONSISTENT, refusal(member.node, self._config.name))
        strangers = [n for n in self.members if n not in linked and n != self._config.name]
        if any(node != member.node for node in strangers):
            return Failed("not_linked", ", ".join(strangers))
        await self.member_down(member.node)
        for node in self.members:
            if node != self._config.name:
                self.tell(node, MemberJoined(self._me, member))
        await self._add_member(member)
        return Joined(
            self._me,
            tuple(self.members.values()),
            self.tables.version,
            tuple(self.tables.snapshot()),
        )

    # -- writes ------------------------------------------------------------------------------------

    async def _apply(self, message: Apply) -> None:
        if self.phase != "running" or message.leader != self.leader:
            return
        taken = self.tables.store(message.rows)
        self.tables.version = max(self.tables.version, message.version)
        await self.written(message.version, taken)
        self.tell(message.leader.node, Applied(self._me, message.version))

    async def written(self, version: int, rows: Sequence[StoredRow]) -> None:
        await self._journal.write(version, rows)
        self.changed.set()
        for row in rows:
            self._publish(TableChanged(row.table, row.key))

    def _publish(self, message: Message) -> None:
        self.subscribers.tell(self, message)
