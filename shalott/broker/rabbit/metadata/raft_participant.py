"""Participant: this node's broker in the group of members, and what it sees of the others.

A broker that was dropped, or sees no leader for long, has lost its membership: it restarts and
joins anew. Nothing that it confirmed can be lost by that: what a confirm rests on is written by the
majority.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.membership import is_majority
from shalott.broker.rabbit.metadata.messages import GroupStatus, Member, Membership, Phase
from shalott.broker.rabbit.metadata.raft_group import TableGroup
from shalott.broker.rabbit.metadata.serving import Subscribers, server_name
from shalott.broker.rabbit.processes.messages import Message
from shalott.broker.rabbit.processes.process import Process

log = logging.getLogger("shalott.broker.metadata")

PATIENCE_NET_TICKS = 2.0  # without a leader


class Participant:
    """Of one node. ``process``: whose mailbox it lives in. ``on_status``, ``on_lost``: as
    broker.rabbit.metadata.serving.TableServer has them.
    """

    def __init__(
        self,
        process: Process,
        config: NodeConfig,
        incarnation: int,
        group: TableGroup,
        *,
        on_status: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self.phase: Phase = "down"
        self.me = Member(config.name, incarnation, 0)
        self.members: dict[str, Member] = {}  # that this node sees, in order of joining
        self.peers: dict[str, GroupStatus] = {}  # linked nodes' latest status
        self.subscribers = Subscribers()
        self.running = asyncio.Event()
        self._process = process
        self._config = config
        self._group = group
        self._on_status = on_status
        self._on_lost = on_lost
        self._joined_at = 0  # the version at which this node became a member
        self._seen_at = 0.0  # when this node was last in the majority, or not running
        self._lost = False

    @property
    def leader_node(self) -> str | None:
        """The node that takes writes, if it is known and can be reached."""
        leader = self._group.raft.leader
        if leader == self._config.name or leader in self.linked():
            return leader
        return None

    def boot(self) -> None:
        assert self.phase == "down"
        self.me = Member(self.me.node, self.me.incarnation, self.me.application + 1)
        self._lost = False
        self.running.clear()
        self._set_phase("booting")

    def leave(self) -> None:
        self.members = {}
        self._set_phase("down")

    def tell(self, node: str, message: Message) -> None:
        self._process.runtime.send(server_name(node), message)

    def linked(self) -> list[str]:
        """The nodes that this one is linked to."""
        return self._process.runtime.nodes()

    # -- status ------------------------------------------------------------------------------------

    def _set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self.tell_status()

    def tell_status(self) -> None:
        linked = tuple(self.linked())
        members = tuple(self._group.state.members.values())
        status = GroupStatus(self.me, self.phase, linked, members, self._group.tables.version)
        for node in linked:
            self.tell(node, status)
        self._on_status()

    def peer_status(self, status: GroupStatus) -> None:
        self.peers[status.member.node] = status
        self.refresh()
        if (
            self.phase == "running"
            and status.version >= self._joined_at
            and self.me not in status.members
        ):
            names = ", ".join(member.node for member in status.members)
            self.lose(f"{status.member.node} says that {names or 'no node'} are the members")
        self._on_status()

    def peer_down(self, node: str) -> None:
        self.peers.pop(node, None)
        self.refresh()
        self.tell_status()

    # -- being a member ----------------------------------------------------------------------------

    @property
    def may_confirm(self) -> bool:
        is_member = self._group.state.members.get(self._config.name) == self.me
        is_running = self.phase == "running" and not self._lost
        may_write = self._group.state.has_majority and self.leader_node is not None
        return is_running and is_member and may_write

    def members_changed(self) -> None:
        """In the log."""
        mine = self._group.state.members.get(self._config.name)
        if self.phase == "booting" and mine == self.me:
            self._became_member()
        elif self.phase == "running" and mine != self.me:
            self.lose("it was dropped")
        self.refresh()
        self.tell_status()

    def _became_member(self) -> None:
        self._joined_at = self._group.tables.version
        self._seen_at = self._now()
        self._set_phase("running")
        self.running.set()

    def lose(self, why: str) -> None:
        """This node is no member of the group that may write: it has to join anew. (Without links
        to a majority it pauses anyway, see partitions.py.)
        """
        linked = len(self.linked()) + 1
        is_linked = is_majority(linked, len(self._config.node_names))
        if not self._lost and is_linked and self.phase == "running":
            self._lost = True
            log.error("this node is out of the majority: %s", why)
            self._on_lost(why)

    def watch(self) -> None:
        """Now and then: whether it is still in the majority."""
        patience_ms = PATIENCE_NET_TICKS * self._config.net_tick_ms
        if self.phase != "running" or self.may_confirm:
            self._seen_at = self._now()
        elif self._group.state.members.get(self._config.name) != self.me:
            self.lose("it was dropped")
        elif (self._now() - self._seen_at) * 1000 >= patience_ms:
            self.lose("it saw no leader with a majority for too long")

    def refresh(self) -> None:
        """The members that this node sees are those that it is linked to: a link may break and
        come back."""
        if self.phase != "running":
            return
        seen = {
            node: member
            for node, member in self._group.state.members.items()
            if member == self.me or self._is_there(member)
        }
        if seen == self.members and list(seen) == list(self.members):
            return
        stayed = [node for node, member in self.members.items() if seen.get(node) == member]
        is_replaced = any(node in seen and node not in stayed for node in self.members)
        self.members = seen
        log.info("members now: %s", ", ".join(seen))
        if is_replaced:  # its old run ended, which is news of its own
            self.subscribers.tell(self._process, Membership(tuple(sorted(stayed))))
        self.subscribers.tell(self._process, Membership(tuple(sorted(seen))))
        self._on_status()

    def _is_there(self, member: Member) -> bool:
        status = self.peers.get(member.node)
        return status is not None and status.member == member and status.phase != "down"

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
