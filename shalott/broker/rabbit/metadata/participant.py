"""MnesiaParticipant: this node's broker among the members, where tables need no majority, and what
it sees of the others. (Where they need one: raft_participant.py.)

A node that runs without being a member of another that runs has run apart from it. Mnesia says
"inconsistent_database, running_partitioned_network" (mnesia_monitor).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from shalott.broker.base.env import Env
from shalott.broker.rabbit.metadata.journal import TableJournal
from shalott.broker.rabbit.metadata.messages import Member, Membership, Phase, Status
from shalott.broker.rabbit.metadata.serving import MemberServer, Subscribers, server_name
from shalott.broker.rabbit.processes.messages import Message

log = logging.getLogger("shalott.broker.metadata")


class MnesiaParticipant:
    """Of one node. ``server``: whose mailbox it lives in."""

    def __init__(
        self,
        server: MemberServer,
        env: Env,
        journal: TableJournal,
        name: str,
        connections: Callable[[], int],
    ) -> None:
        self.phase: Phase = "down"
        self.me = Member(name, env.incarnation, 0)
        self.members: dict[str, Member] = {}  # in order of joining
        self.peers: dict[str, Status] = {}  # linked nodes' latest status
        self.partitions: dict[str, None] = {}  # nodes that ran apart from this one
        self.subscribers = Subscribers()
        self.running = asyncio.Event()
        self._server = server
        self._events = env.events
        self._journal = journal
        self._connections = connections

    @property
    def leader(self) -> Member | None:
        return next(iter(self.members.values()), None)

    @property
    def leads(self) -> bool:
        return self.leader == self.me

    def others(self) -> list[str]:
        return [node for node in self.members if node != self.me.node]

    def known_partitions(self) -> Mapping[str, Sequence[str]]:
        known = {node: status.partitions for node, status in self.peers.items()}
        return {**known, self.me.node: tuple(self.partitions)}

    def boot(self) -> None:
        self.me = Member(self.me.node, self.me.incarnation, self.me.application + 1)
        self.partitions = {}

    def leave(self) -> None:
        self.members = {}
        self.partitions = {}

    def run(self, members: dict[str, Member]) -> None:
        """This node has the tables, and is a member beside the other ``members``."""
        self.members = members
        self.set_phase("running")
        self.members_changed()

    # -- status ------------------------------------------------------------------------------------

    def tell(self, node: str, message: Message) -> None:
        self._server.runtime.send(server_name(node), message)

    def set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self.tell_status()
        if phase == "running":
            self.running.set()

    def status(self) -> Status:
        return Status(
            self.me,
            self.phase,
            tuple(self._journal.saw_down),
            tuple(self.members.values()),
            tuple(self.partitions),
            self._connections(),
            self._server.tables.version,
        )

    def tell_status(self) -> None:
        status = self.status()
        for node in self._server.runtime.nodes():
            self.tell(node, status)
        self._server.on_status()

    def is_over(self, status: Status) -> bool:
        """Whether ``status`` says that the run which is a member here is over.

        A node's "booting" may come after the leader told us that it joined: that is another link's
        news.
        """
        mine = self.members.get(status.member.node)
        return mine is not None and (
            status.member.is_newer_than(mine) or (mine == status.member and status.phase == "down")
        )

    def note_partition(self, status: Status) -> None:
        """While running: whether the peer ran apart from this node."""
        node = status.member.node
        apart = (
            status.phase == "running"
            and self.members.get(node) != status.member
            and self.me not in status.members
        )
        if apart and node not in self.partitions:
            self.partitions[node] = None
            log.error("inconsistent database: %s ran apart from this node", node)
            self._events.emit("", "partition", role="running", detail={"with": node})
            self.tell_status()
        elif not apart and status.phase != "running" and node in self.partitions:
            del self.partitions[node]
            self.tell_status()

    # -- members -----------------------------------------------------------------------------------

    async def add(self, member: Member) -> None:
        self.members.pop(member.node, None)
        self.members[member.node] = member
        self.partitions.pop(member.node, None)
        await self._journal.note_up(member.node)
        log.info("%s joined; members now: %s", member.node, ", ".join(self.members))
        self.members_changed()

    async def remove(self, node: str) -> None:
        """Call ``members_changed`` when the leadership has been told as well."""
        del self.members[node]
        await self._journal.note_down(node)
        log.warning("%s left; members now: %s", node, ", ".join(self.members))

    def members_changed(self) -> None:
        self.tell_status()
        self.subscribers.tell(self._server, Membership(tuple(sorted(self.members))))
