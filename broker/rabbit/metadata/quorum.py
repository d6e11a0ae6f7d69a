"""Quorum: what makes tables need a majority of the listed nodes, under pause_minority.

Theory. Mnesia's tables have no quorum: every side of a partition writes on, and a node that was
dropped by the others learns it from them, if ever. After a flap, a one-way cut or a partition in
which no two nodes see the same others, members disagree on who they are, and two groups may write
and confirm. This is the cure, after viewstamped replication (Liskov and Cowling, "Viewstamped
Replication Revisited", 2012) with Paxos's rule for what a new leader takes over:

- A write is answered when a majority has it, and every member besides; what was answered is
  *settled*, and all members hear of it.
- A leader that follows another one first asks the members for their rows, under a *ballot* above
  all that it knows. Whoever answers has promised, on its disk, to follow nobody of a lower ballot:
  else the rows of a candidate that died, which nobody else has, would later count for more than
  what was settled since under a lower one. Of a majority's rows those of the highest ballot count,
  the newest of each; they are installed on a majority before anything else happens.
  Each ballot has its own range of versions, so a deposed leader's rows are never taken for newer.
- The leader decides who is a member, and the others take it from its status. It drops who does not
  count it as leader any more, and one of two members that can't reach each other for long. A node
  that was dropped, or does not see a leader with a majority for long, restarts its broker and joins
  anew. Nothing that it confirmed can be lost by that: without a majority it confirms nothing.
- A newcomer is let in only while a majority of the others confirms the leader, since its former
  life may have been part of another leader's majority; and if it promised a higher ballot, only
  when the leader has got one that is higher still. When nobody runs, a majority of booting nodes
  elects one on what is on their disks.

Known-bug switch OUR-08 takes all of this away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.healing import is_majority
from shalott.broker.rabbit.metadata.messages import (
    SERVER,
    Dump,
    Dumped,
    Install,
    Member,
    Outbid,
    Settled,
    Status,
    Verify,
    Watch,
)
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.mesh import linked_within_ms
from shalott.broker.rabbit.processes.messages import Done, Failed, Message, Name

if TYPE_CHECKING:
    from shalott.broker.rabbit.metadata.server import MetadataServer

log = logging.getLogger("shalott.broker.metadata")

BALLOT_VERSIONS = 1_000_000  # versions that a leader may give out
RETRY_MS = 50
PATIENCE_NET_TICKS = 2.0  # without a leader that has a majority
APART_NET_TICKS = 1.5  # two members without a link: by then the leader knows if one is dead


def next_ballot(seen: int, node: str, listed: tuple[str, ...]) -> int:
    """Above ``seen``, and no other node's."""
    return (seen // len(listed) + 1) * len(listed) + sorted(listed).index(node)


def merged(dumps: Iterable[Dumped]) -> Tables:
    """The newest of each row under the highest ballot. What is there of lower ones was in a
    majority's hands before that ballot began, or never settled.
    """
    every = list(dumps)
    highest = max(dump.ballot for dump in every)
    tables = Tables()
    for dump in every:
        if dump.ballot == highest:
            tables.store(dump.rows)
    return tables


class Quorum:
    """The part of a metadata server that knows about majorities."""

    def __init__(self, server: MetadataServer, config: NodeConfig) -> None:
        self.ballot = 0
        self.committed = 0  # every row up to this version is on a majority
        self._server = server
        self._listed = tuple(config.node_names)
        self._net_tick_ms = config.net_tick_ms
        self._joined_at: dict[str, int] = {}  # as leader: what a member knew when it became one
        self._member_since = 0  # version of the tables when this node became a member
        self._outbid = 0  # the highest ballot that others are known to have promised
        self._lost = False
        self._boot_at = self._seen_at = self._electing_at = 0.0
        self._apart: dict[tuple[str, str], float] = {}

    # -- what the server asks ----------------------------------------------------------------------

    def has_majority(self, count: int) -> bool:
        return is_majority(count, len(self._listed))

    @property
    def is_leading(self) -> bool:
        server = self._server
        return (
            server.phase == "running"
            and server.leader == server.me
            and not server.reconciling
            and self.has_majority(len(server.members))
        )

    @property
    def is_in(self) -> bool:
        """Whether this node is in the one group that may write, as far as it can know."""
        server = self._server
        if server.phase != "running" or self._lost:
            return False
        if server.leader == server.me:
            return self.is_leading
        leader = None if server.leader is None else server.peers.get(server.leader.node)
        return (
            leader is not None
            and leader.member == server.leader
            and leader.leading
            and server.me in leader.members
        )

    def booting(self, ballot: int) -> None:
        """A new life of the broker begins, with what this node's disk has of ``ballot``."""
        self.ballot, self.committed = ballot, 0
        self._joined_at, self._apart = {}, {}
        self._lost = False
        self._boot_at = self._seen_at = self._electing_at = self._now()
        self._server.after(self._net_tick_ms / 2, Watch(self._server.me.application))

    def became_member(self, version: int, ballot: int) -> None:
        self.ballot, self._member_since, self._seen_at = ballot, version, self._now()

    def joined(self, member: Member, version: int) -> None:
        """As leader: ``member`` has all up to ``version``."""
        self._joined_at[member.node] = version

    def lost(self, why: str) -> None:
        """This node is no member of the group that may write: it has to join anew. (Without links
        to a majority it pauses anyway, see partitions.py.)
        """
        is_linked = self.has_majority(len(self._server.runtime.nodes()) + 1)
        if not self._lost and is_linked and self._server.phase == "running":
            self._lost = True
            log.error("this node is out of the majority: %s", why)
            self._server.on_out_of_majority(why)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- statuses ----------------------------------------------------------------------------------

    async def peer_status(self, status: Status) -> None:
        """What another node says of itself, while this one runs."""
        server = self._server
        knows = self._joined_at.get(status.member.node, 0)
        if server.leader == server.me:
            mine = server.members.get(status.member.node) == status.member
            if (
                mine
                and status.phase == "running"
                and status.version >= knows
                and server.me not in status.members
            ):
                log.warning("%s follows another leader", status.member.node)
                await server.member_down(status.member.node)
        elif status.member == server.leader and status.phase == "running":
            if server.me in status.members:
                self._refresh(status)
        elif server.leader is not None:
            self._refresh(server.peers.get(server.leader.node))
        is_older = status.version < max(self._member_since, server.tables.version)
        if status.leading and not is_older and server.me not in status.members:
            self.lost(f"{status.member.node} leads {', '.join(m.node for m in status.members)}")

    def _refresh(self, leader: Status | None) -> None:
        """The members are the leader's that this node is linked to: a link may break and come
        back.
        """
        server = self._server
        if leader is None or leader.member != server.leader or server.me not in leader.members:
            return
        members = {m.node: m for m in leader.members if m == server.me or self._is_there(m)}
        if members != server.members or list(members) != list(server.members):
            server.members = members
            log.info("members now: %s", ", ".join(members))
            server.membership_changed()

    def _is_there(self, member: Member) -> bool:
        status = self._server.peers.get(member.node)
        return status is not None and status.member == member and status.phase != "down"

    # -- a leader's majority -----------------------------------------------------------------------

    async def is_confirmed(self, *, but: Member) -> bool:
        """Whether a majority without ``but``'s former life still follows this leader."""
        server = self._server
        asked = [n for n in server.members if n not in (but.node, server.me.node)]
        answers = await self._ask(asked, lambda node: Verify(server.me, server.members[node]))
        confirmed = [node for node, answer in answers.items() if isinstance(answer, Done)]
        return self.has_majority(len(confirmed) + 1)

    def verify(self, request: Verify) -> Message:
        server = self._server
        follows = server.phase == "running" and request.leader == server.leader
        return Done() if follows and request.to == server.me else Failed("other_leader")

    def tell_settled(self, version: int) -> None:
        """As leader: everything up to ``version`` is on a majority."""
        server = self._server
        if version <= self.committed:
            return
        self.committed = version
        for node in server.members:
            if node != server.me.node:
                server.tell(node, Settled(server.me, version))

    def settled(self, message: Settled) -> None:
        if message.leader == self._server.leader:
            self.committed = max(self.committed, message.version)

    async def _ask(
        self, nodes: Iterable[str], request: Callable[[str], Message]
    ) -> Mapping[str, Message]:
        """The answers of those that gave one within a net tick."""
        asked = list(nodes)
        answers = await asyncio.gather(*(self._ask_one(node, request(node)) for node in asked))
        return {
            node: answer
            for node, answer in zip(asked, answers, strict=True)
            if not isinstance(answer, Failed)
        }

    async def _ask_one(self, node: str, request: Message) -> Message:
        try:
            return await self._server.runtime.call(
                Name(node, SERVER), request, timeout_ms=self._net_tick_ms
            )
        except ProcessError as error:
            return Failed("no_answer", str(error))

    # -- elections ---------------------------------------------------------------------------------

    def begin_election(self) -> None:
        self._electing_at = self._now()

    async def elect(self, voters: list[str]) -> bool:
        """Become the leader of a majority; False if there is none now. In the order of
        ``voters`` they are the next leaders.
        """
        server, me = self._server, self._server.me
        ballot = await self._own_ballot()
        votes = await self._votes(voters, ballot)
        if self._outbid > ballot:
            ballot = await self._own_ballot()
            votes = await self._votes(voters, ballot)
        hurried = len(votes) < len(voters) and not self._waited(self._electing_at, 1.0)
        if not self.has_majority(len(votes) + 1) or hurried or server.me != me:
            return False
        tables = merged([self._own_dump(), *votes.values()])
        tables.version = ballot * BALLOT_VERSIONS
        rows = tuple(tables.snapshot())
        members = (me, *(dump.member for dump in votes.values() if dump.member is not None))
        await server.install(tables, ballot)
        follows = {member.node: member for member in members}
        answers = await self._ask(
            votes,
            lambda node: Install(me, follows[node], ballot, members, tables.version, rows),
        )
        installed = [node for node, answer in answers.items() if isinstance(answer, Done)]
        if not self.has_majority(len(installed) + 1) or server.me != me:
            return False
        server.members = {n: follows[n] for n in (me.node, *installed)}
        self._joined_at = dict.fromkeys(server.members, tables.version)
        self.became_member(tables.version, ballot)
        log.info("leading %s at ballot %d", ", ".join(server.members), ballot)
        self.tell_settled(tables.version)
        return True

    async def _own_ballot(self) -> int:
        """To ask for votes with: the one that this node asked with before, until it has been used
        or outbid, or a new one. It is promised here as well.
        """
        server, ballot = self._server, self._server.promised
        seen = max(self._in_force(), self._outbid)
        node = server.me.node
        is_mine = ballot % len(self._listed) == sorted(self._listed).index(node)
        if ballot <= seen or not is_mine:
            ballot = next_ballot(max(ballot, seen), node, self._listed)
        await server.promise(ballot)
        return ballot

    async def _votes(self, voters: list[str], ballot: int) -> dict[str, Dumped]:
        answers = await self._ask(voters, lambda node: Dump(self._server.me, ballot))
        for answer in answers.values():
            if isinstance(answer, Outbid):
                self._outbid = max(self._outbid, answer.ballot)
        return {node: answer for node, answer in answers.items() if isinstance(answer, Dumped)}

    def is_outbid_by(self, promised: int) -> bool:
        """As leader: whether a newcomer may not follow this ballot. The next one is higher."""
        self._outbid = max(self._outbid, promised)
        return promised > self.ballot

    async def dump(self, request: Dump) -> Message:
        """A candidate wants this node's rows, and its allegiance."""
        server = self._server
        follows = server.phase == "running" and request.leader == server.leader
        if not follows and server.phase != "booting":
            return Failed("other_leader", str(server.leader))
        if request.ballot < server.promised or request.ballot <= self._in_force():
            return Outbid(max(server.promised, self._in_force()))
        await server.promise(request.ballot)
        return self._own_dump()

    def _in_force(self) -> int:
        return max(self.ballot, self._server.tables.version // BALLOT_VERSIONS)

    def _own_dump(self) -> Dumped:
        tables = self._server.tables
        return Dumped(tables.version, tuple(tables.snapshot()), self.ballot, self._server.me)

    def accepts(self, request: Install) -> bool:
        server = self._server
        follows = server.phase == "running" and request.leader == server.leader
        return (
            (follows or server.phase == "booting")
            and request.to == server.me
            and request.ballot == server.promised
            and request.ballot > self.ballot
        )

    # -- booting -----------------------------------------------------------------------------------

    async def boot(self) -> None:
        """Join the leader that has a majority; or, if nobody runs, let a majority elect one."""
        server = self._server
        peers = [status for _, status in sorted(server.peers.items())]
        running = [status for status in peers if status.phase == "running"]
        leading = [status for status in running if status.leading]
        if leading:
            await server.join_through(max(leading, key=lambda status: status.version))
            return
        booting = [status.member.node for status in peers if status.phase == "booting"]
        if running or not self.has_majority(len(booting) + 1):
            self._electing_at = self._now()
            return
        everybody = len(booting) + 1 == len(self._listed)
        linked_in = linked_within_ms(self._net_tick_ms) / self._net_tick_ms
        is_time = everybody or self._waited(self._boot_at, linked_in)
        is_first = all(server.me.node < node for node in booting)
        if is_time and is_first and await self.elect(booting):
            server.set_phase("running")
            server.membership_changed()

    def _waited(self, since: float, net_ticks: float) -> bool:
        return (self._now() - since) * 1000 >= net_ticks * self._net_tick_ms

    # -- the watch ---------------------------------------------------------------------------------

    async def watch(self, tick: Watch) -> None:
        """Every half net tick, while this broker lives."""
        server = self._server
        if tick.application != server.me.application or server.phase == "down":
            return
        server.after(self._net_tick_ms / 2, tick)
        if server.phase == "booting" or self.is_in:
            self._seen_at = self._now()
        elif self._waited(self._seen_at, PATIENCE_NET_TICKS):
            self.lost("it saw no leader with a majority for too long")
        if self.is_leading:
            await self._part()

    async def _part(self) -> None:
        """Queues need a link between any two members: drop one of two that have none."""
        server = self._server
        apart = self._without_link()
        now = self._now()
        self._apart = {pair: self._apart.get(pair, now) for pair in apart}
        lasting = [p for p in apart if self._waited(self._apart[p], APART_NET_TICKS)]
        if not lasting or not self.has_majority(len(server.members) - 1):
            return
        order = list(server.members)
        missing = {node: sum(node in pair for pair in lasting) for node in order}
        worst = max(order, key=lambda node: (missing[node], order.index(node)))
        log.warning("dropping %s: it has no link to %d members", worst, missing[worst])
        await server.member_down(worst)

    def _without_link(self) -> list[tuple[str, str]]:
        """Pairs of members, of which one says that it lost the other."""
        server = self._server
        others = [node for node in server.members if node != server.me.node]
        return [
            (one, other)
            for one in others
            for other in others
            if one != other and self._says_gone(one, other)
        ]

    def _says_gone(self, one: str, other: str) -> bool:
        server = self._server
        status = server.peers.get(one)
        return (
            status is not None
            and status.member == server.members[one]
            and status.version >= self._joined_at.get(other, 0)
            and server.members[other] not in status.members
        )


def rows_that_differ(old: Tables, new: Tables) -> list[StoredRow]:
    """Rows of ``new`` at another version than in ``old``, and as deleted those that are not in
    ``new`` at all.
    """
    changed = [row for row in new.snapshot() if old.row_version(row.table, row.key) != row.version]
    gone = [row for row in old.snapshot() if new.row(row.table, row.key) is None]
    return [*changed, *gone]
