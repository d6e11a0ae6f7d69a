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
from collections.abc import Callable, Mapping, Sequence

from shalott.broker.base.env import Env
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.api import TableChanged
from shalott.broker.rabbit.metadata.booting import Booting
from shalott.broker.rabbit.metadata.journal import TableJournal
from shalott.broker.rabbit.metadata.leading import Leadership
from shalott.broker.rabbit.metadata.membership import INCONSISTENT, belonging, refusal
from shalott.broker.rabbit.metadata.messages import (
    Applied,
    Apply,
    Commit,
    Dump,
    Dumped,
    Join,
    Joined,
    Member,
    MemberJoined,
    Phase,
    Reconsider,
    SettleTables,
    Status,
)
from shalott.broker.rabbit.metadata.participant import MnesiaParticipant
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.messages import Failed, Message, NodeDownEvent, NodeUp
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller


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
        self.is_forced = False  # load, even if others may have fresher tables (force_boot)
        self._config = config
        self._journal = journal
        self.participant = MnesiaParticipant(self, env, journal, config.name, connections)
        self.subscribers = self.participant.subscribers
        self._leadership = Leadership(self, self.participant, env, config)
        self.booting = Booting(self, self.participant, config, journal)
        self.changed = asyncio.Event()
        self.on_status: Callable[[], None] = lambda: None
        self.on_lost: Callable[[str], None] = lambda why: None
        self.on_failed: Callable[[str], None] = lambda why: None
        self.on_refused: Callable[[str], None] = lambda why: None

    # -- TableServer -------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        return self.participant.phase

    @property
    def members(self) -> Mapping[str, Member]:
        return self.participant.members

    @property
    def me(self) -> Member:
        return self.participant.me

    @property
    def leader_node(self) -> str | None:
        return next(iter(self.participant.members), None)

    async def boot(self) -> None:
        """Become a running member: copy the tables from a running node, or load them if they can't
        be stale.
        """
        participant = self.participant
        assert participant.phase == "down"
        participant.boot()
        self.tables = Tables()
        self.tables.store(self._journal.rows)
        self.tables.version = max(self.tables.version, self._journal.mark)
        self.booting.begin()
        participant.running.clear()
        participant.set_phase("booting")
        self.deliver(Reconsider())
        await participant.running.wait()

    def leave(self) -> None:
        self.participant.leave()
        self._leadership.end()
        self.participant.set_phase("down")

    async def close(self) -> None:
        """The journal is closed by who opened it."""

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
        return [n for n, status in self.participant.peers.items() if status.phase == "running"]

    def known_partitions(self) -> Mapping[str, Sequence[str]]:
        return self.participant.known_partitions()

    # -- messages ----------------------------------------------------------------------------------

    async def started(self) -> None:
        self.runtime.watch_nodes(self.pid)

    async def handle(self, message: Message) -> None:
        participant = self.participant
        match message:
            case NodeUp(node, _):
                participant.tell(node, participant.status())
            case NodeDownEvent(node, _):
                participant.peers.pop(node, None)
                await self._member_down(node)
                await self.booting.reconsider()
                self.on_status()
            case Status():
                await self._peer_status(message)
            case Apply():
                await self._apply(message)
            case Applied(member, version):
                if participant.members.get(member.node) == member:
                    self._leadership.settle(version, member.node)
            case MemberJoined(leader, member):
                if leader == participant.leader:
                    await participant.add(member)
            case SettleTables():
                await self._leadership.reconcile()
            case Reconsider():
                await self.booting.reconsider()

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        match request:
            case Commit():
                return await self._leadership.commit(request, caller)
            case Join(member, linked):
                return await self._join(member, linked)
            case Dump(leader):
                if self.phase != "running" or leader != self.participant.leader:
                    return Failed("other_leader", str(self.participant.leader))
                return Dumped(self.tables.version, tuple(self.tables.snapshot()))
        return Failed("unsupported", type(request).__name__)

    # -- membership --------------------------------------------------------------------------------

    async def _peer_status(self, status: Status) -> None:
        node = status.member.node
        self.participant.peers[node] = status
        if self.participant.is_over(status):
            await self._member_down(node)
        if self.phase == "running":
            self.participant.note_partition(status)
        await self.booting.reconsider()
        self.on_status()

    async def _member_down(self, node: str) -> None:
        participant = self.participant
        if node not in participant.members or participant.phase != "running":
            return
        led = participant.leads
        await participant.remove(node)
        self._leadership.member_gone(node)
        if participant.leads and not led:
            self._leadership.begin()
        participant.members_changed()

    async def _join(self, member: Member, linked: tuple[str, ...]) -> Message:
        participant = self.participant
        leads = participant.phase == "running" and participant.leads
        if not leads or self._leadership.is_reconciling:
            return Failed("not_leader", str(participant.leader))
        if member.node not in self.belonging():
            return Failed(INCONSISTENT, refusal(member.node, self._config.name))
        strangers = [n for n in participant.others() if n not in linked]
        if any(node != member.node for node in strangers):
            return Failed("not_linked", ", ".join(strangers))
        await self._member_down(member.node)
        for node in participant.others():
            participant.tell(node, MemberJoined(participant.me, member))
        await participant.add(member)
        return Joined(
            participant.me,
            tuple(participant.members.values()),
            self.tables.version,
            tuple(self.tables.snapshot()),
        )

    # -- writes ------------------------------------------------------------------------------------

    async def _apply(self, message: Apply) -> None:
        if self.phase != "running" or message.leader != self.participant.leader:
            return
        taken = self.tables.store(message.rows)
        self.tables.version = max(self.tables.version, message.version)
        await self.written(message.version, taken)
        self.participant.tell(message.leader.node, Applied(self.me, message.version))

    async def written(self, version: int, rows: Sequence[StoredRow]) -> None:
        await self._journal.write(version, rows)
        self.changed.set()
        for row in rows:
            self.subscribers.tell(self, TableChanged(row.table, row.key))
