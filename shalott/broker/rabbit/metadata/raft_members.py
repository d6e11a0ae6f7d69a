"""Housekeeper: how the leader of the tables' Raft group keeps the list of members.

- A run of a broker that is over (it said so, a later one is there, or the link to its node broke)
  is dropped at once: writes wait for every member.
- A newcomer is added when it is linked to every member, or its queues would be cut off from theirs,
  when every member is in sight of the leader, and when a majority runs or boots: fewer members than
  that can do nothing (raft_log.py).
- Of two members that have had no link to each other for long, one is dropped.
- A leader that is no member itself gives the lead to one that is: its own links say nothing about
  the queues'.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.membership import belonging, is_majority, refusal
from shalott.broker.rabbit.metadata.messages import JoinRefused, Member
from shalott.broker.rabbit.metadata.raft_group import TableGroup
from shalott.broker.rabbit.metadata.raft_log import AddMember, DropMember
from shalott.broker.rabbit.metadata.raft_participant import Participant
from shalott.broker.rabbit.processes.mesh import linked_within_ms
from shalott.broker.raft.group import Submitted

log = logging.getLogger("shalott.broker.metadata")

APART_NET_TICKS = 1.5  # two members without a link: by then the leader knows if one is dead
STRANGER_NET_TICKS = 1.0  # how long a leader may be no member


class Housekeeper:
    """Every method may be called on any node; only the leader's does anything. ``on_refused`` is
    called with this node's own broker, if that may not join, and the reason."""

    def __init__(
        self,
        group: TableGroup,
        participant: Participant,
        config: NodeConfig,
        on_refused: Callable[[Member, str], None],
    ) -> None:
        self._group = group
        self._participant = participant
        self._on_refused = on_refused
        self._node = config.name
        self._listed = config.node_names
        self._net_tick_ms = config.net_tick_ms
        self._began_at = 0.0
        self._member_at = 0.0  # when this node was last a member, or did not lead
        self._was_linked: dict[str, None] = {}
        # Proposed in this tenure, at which index; what was applied since is no longer under way.
        self._dropping: dict[Member, int] = {}
        self._adding: dict[Member, int] = {}
        self._apart: dict[tuple[str, str], float] = {}  # members without a link, since when

    def begin(self) -> None:
        self._began_at = self._member_at = self._now()

    def linked(self, node: str) -> None:
        self._was_linked[node] = None

    def role_changed(self) -> None:
        self._dropping.clear()
        self._adding.clear()
        self._apart.clear()

    def look(self) -> None:
        """Drop whose run is over."""
        group = self._group
        if not group.raft.is_ready:
            return
        belong = belonging(self._listed, group.tables)
        for member in list(group.state.members.values()):
            if self._is_over(member):
                self._drop(member, "its run is over, or cut off")
            elif member.node not in belong:
                self._drop(member, "it was forgotten")

    def _drop(self, member: Member, why: str) -> None:
        if self._is_under_way(self._dropping, member):
            return
        submitted = self._group.propose(DropMember(member))
        if isinstance(submitted, Submitted):
            log.warning("dropping %s from the members: %s", member.node, why)
            self._dropping[member] = submitted.index

    def _is_under_way(self, proposed: Mapping[Member, int], member: Member) -> bool:
        return proposed.get(member, 0) > self._group.tables.version

    def _is_over(self, member: Member) -> bool:
        participant = self._participant
        if member.node == self._node:
            return member != participant.me or participant.phase == "down"
        status = participant.peers.get(member.node)
        if status is not None:
            is_down = status.member == member and status.phase == "down"
            return is_down or status.member.is_newer_than(member)
        if member.node in participant.linked():
            return False  # its status is on its way
        # A node that has just come up may not have met it yet.
        patience = linked_within_ms(self._net_tick_ms) / self._net_tick_ms
        return member.node in self._was_linked or self._waited(self._began_at, patience)

    def wants_to_join(self, member: Member, linked: tuple[str, ...]) -> None:
        """``member`` boots and is linked to these nodes. It asks again until it is added."""
        group, participant = self._group, self._participant
        members = group.state.members
        if not group.raft.is_ready or members.get(member.node) == member:
            return
        if member.node not in belonging(self._listed, group.tables):
            self._refuse(member)
            return
        is_newest = member == participant.me or self._status_is_of(member)
        others = [other for node, other in members.items() if node != member.node]
        strangers = [other.node for other in others if other.node not in linked]
        absent = [other.node for other in others if not self._is_in_sight(other)]
        if not is_newest or self._is_under_way(self._adding, member):
            return
        if not self._may_become_a_majority():
            log.info("%s can't join yet: no majority runs or boots", member.node)
            return
        if strangers or absent:
            log.info("%s can't join yet: %s", member.node, ", ".join(strangers or absent))
            return
        submitted = group.propose(AddMember(member))
        if isinstance(submitted, Submitted):
            self._adding[member] = submitted.index

    def _refuse(self, member: Member) -> None:
        reason = refusal(member.node, self._node)
        if member == self._participant.me:
            self._on_refused(member, reason)
        else:
            self._participant.tell(member.node, JoinRefused(member, reason))

    def _status_is_of(self, member: Member) -> bool:
        status = self._participant.peers.get(member.node)
        return status is not None and status.member == member and status.phase == "booting"

    def _may_become_a_majority(self) -> bool:
        participant = self._participant
        up = [node for node, status in participant.peers.items() if status.phase != "down"]
        return is_majority(len(up) + (participant.phase != "down"), len(self._listed))

    def _is_in_sight(self, member: Member) -> bool:
        participant = self._participant
        if member.node == self._node:
            return member == participant.me and participant.phase == "running"
        status = participant.peers.get(member.node)
        return status is not None and status.member == member and status.phase != "down"

    # -- now and then ------------------------------------------------------------------------------

    def watch(self) -> None:
        """Every half net tick."""
        group, participant = self._group, self._participant
        if not group.raft.is_ready or group.state.members.get(self._node) == participant.me:
            self._member_at = self._now()
        if group.raft.is_ready:
            self._part()
            if self._waited(self._member_at, STRANGER_NET_TICKS):
                self._give_the_lead()

    def _give_the_lead(self) -> None:
        there = [m.node for m in self._group.state.members.values() if self._is_in_sight(m)]
        if there:
            log.info("%s shall lead the tables", there[0])
            self._group.raft.transfer(there[0])

    def _part(self) -> None:
        """Queues need a link between any two members: drop one of two that have none."""
        members = self._group.state.members
        now = self._now()
        self._apart = {pair: self._apart.get(pair, now) for pair in self._without_link()}
        lasting = [p for p, since in self._apart.items() if self._waited(since, APART_NET_TICKS)]
        if not lasting or not is_majority(len(members) - 1, len(self._listed)):
            return
        order = list(members)
        missing = {node: sum(node in pair for pair in lasting) for node in order}
        worst = max(order, key=lambda node: (missing[node], order.index(node)))
        self._drop(members[worst], f"it has no link to {missing[worst]} members")

    def _without_link(self) -> list[tuple[str, str]]:
        """Pairs of members, of which one says that it is not linked to the other."""
        members = [m for m in self._group.state.members.values() if m.node != self._node]
        return [
            (one.node, other.node)
            for one in members
            for other in members
            if one.node < other.node
            and (self._says_gone(one, other) or self._says_gone(other, one))
        ]

    def _says_gone(self, one: Member, other: Member) -> bool:
        status = self._participant.peers.get(one.node)
        return status is not None and status.member == one and other.node not in status.linked

    def _waited(self, since: float, net_ticks: float) -> bool:
        return (self._now() - since) * 1000 >= net_ticks * self._net_tick_ms

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
