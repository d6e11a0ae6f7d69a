"""Tenure, a master's tenure: what it knows while it is one: slaves, SyncStateSet, confirm offset.

Source: store/ha/autoswitch/AutoSwitchHAService.java (maybeExpandInSyncStateSet,
maybeShrinkSyncStateSet, computeConfirmOffset); docs/protocols.md 2.8. A message counts as
replicated, under allAckInSyncStateSet, when every member of the set and of what was proposed has
it, and there are minInSyncReplicas of them; upstream counts these only before it appends, so that a
set that shrinks meanwhile leaves the master's own copy as the only one.

Who joins the set must have all that ever counted: ``ackable`` is the end of that, and it is raised
whenever acknowledgements are judged. All of it happens between two awaits, so between the look at a
candidate and its proposal nothing can count without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shalott.broker.base.env import Env
from shalott.broker.rocket.autoswitch import packets
from shalott.broker.rocket.autoswitch.connection import NS_PER_MS, AutoSwitchHAConnection
from shalott.broker.rocket.autoswitch.epochs import EpochFileCache
from shalott.broker.rocket.autoswitch.sync_state_set import Members, SyncStateSet
from shalott.broker.rocket.commitlog.api import Store
from shalott.broker.rocket.config import HaConfig
from shalott.broker.rocket.ha.group_transfer import (
    ALL_ACK_IN_SYNC_STATE_SET,
    NOTHING_ACKNOWLEDGED,
    Ack,
    GroupTransferService,
)

NOBODY = Ack("", NOTHING_ACKNOWLEDGED)  # stands for the members that are missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change of the set to report: the wanted members instead of the set of that epoch."""

    members: Members
    set_epoch: int
    master_epoch: int


class Tenure:
    """Implements connection.Master. ``set_is_wrong`` is called when there may be a change to
    report; ``follow_up`` after every change of the set or of connections.
    """

    def __init__(
        self,
        env: Env,
        config: HaConfig,
        store: Store,
        cache: EpochFileCache,
        sync_state_set: SyncStateSet,
        *,
        group: str,
        epoch: int,
        segment_bytes: int,
        acks_flushed: bool,
        by_address: bool,
        broker_id_of: Callable[[str], int],
        set_is_wrong: Callable[[], None],
    ) -> None:
        self.env = env
        self.config = config
        self.log = store.log
        self.cache = cache
        self.set = sync_state_set
        self.epoch = epoch
        self.segment_bytes = segment_bytes
        self.by_address = by_address
        self.handshakes_in_parts = env.buggify("ha.handshake_in_parts")
        self.connections: dict[int, AutoSwitchHAConnection] = {}
        self.transfer = GroupTransferService(self._acks, members=self._member_acks)
        self.ackable = 0
        self.send_limit: int | None = None  # an epoch is about to begin there
        self._store = store
        self._group = group
        self._acks_flushed = acks_flushed
        self._broker_id_of = broker_id_of
        self._set_is_wrong = set_is_wrong
        self._is_over = False
        self._sends_unflushed = env.has_bug("KB-RKT-D")
        self._drops_who_left = env.has_bug("KB-RKT-F")
        self._lost: dict[int, None] = {}  # members whose connection ended
        self._held: dict[int, int] = {}  # what each slave has said to have, whoever is connected
        self._unanswered_ns = 0  # since when a report has not been answered

    # -- for connections ---------------------------------------------------------------------------

    @property
    def confirm_offset(self) -> int:
        return self._store.confirm_offset

    @property
    def sendable(self) -> int:
        end = self.log.max_offset if self._sends_unflushed else self.log.flushed_offset
        return end if self.send_limit is None else min(end, self.send_limit)

    def identify(self, handshake: packets.SlaveHandshake) -> int:
        """Raises HaProtocolError if it is nobody."""
        broker_id = handshake.broker_id
        if self.by_address:
            broker_id = self._broker_id_of(handshake.address)
        if broker_id < 0 or broker_id == self.set.me:
            raise packets.HaProtocolError(f"{handshake} is no slave of this broker")
        return broker_id

    def connected(self, connection: AutoSwitchHAConnection) -> None:
        """A slave that connects again replaces its older connection."""
        if self._is_over:
            connection.abort()
            return
        older = self.connections.get(connection.slave_id)
        self.connections[connection.slave_id] = connection
        self._lost.pop(connection.slave_id, None)
        if older is not None and older is not connection:
            older.abort()

    def acknowledged(self, connection: AutoSwitchHAConnection) -> None:
        slave = connection.slave_id
        if self.connections.get(slave) is not connection:
            return
        self._held[slave] = max(self._held.get(slave, 0), connection.ack_offset)
        self.follow_up()
        if self._may_join(connection):
            self._set_is_wrong()

    def disconnected(self, connection: AutoSwitchHAConnection) -> None:
        """Only the connection that counts (KB-RKT-33 is its absence)."""
        if self.connections.get(connection.slave_id) is not connection:
            return
        del self.connections[connection.slave_id]
        self._lost[connection.slave_id] = None
        if self._drops_who_left:
            self.set.drop(connection.slave_id)
        self.follow_up()
        if connection.slave_id in self.set.members:
            self._set_is_wrong()

    def follow_up(self) -> None:
        """Acknowledgements, connections or the set changed: judge again."""
        self._update_confirm_offset()
        self.transfer.notify()

    def wake(self) -> None:
        """The log has grown."""
        for connection in self.connections.values():
            connection.wake.set()

    def close(self) -> None:
        """The tenure is over: nobody is told any more that a message counts."""
        self._is_over = True
        if self._drops_who_left:  # KB-RKT-F: the role ends the connections, and each its slave's
            for slave in self.connections:
                self.set.drop(slave)
            self.transfer.notify()
        self.transfer.give_up()
        connections, self.connections = self.connections, {}
        for connection in connections.values():
            connection.abort()

    # -- what counts -------------------------------------------------------------------------------

    @property
    def own_end(self) -> int:
        """What the master's own copy is worth."""
        return self.log.flushed_offset if self._acks_flushed else self.log.written_offset

    def ack_nums(self) -> int:
        """How many copies a message appended now needs."""
        if self.config.all_ack_in_sync_state_set:
            return ALL_ACK_IN_SYNC_STATE_SET
        wanted = min(self.config.in_sync_replicas, len(self.set.members))
        return max(wanted, self.config.min_in_sync_replicas)

    def holders(self, end: int) -> tuple[int, ...]:
        """The slaves that are known to have everything before ``end``."""
        return tuple(sorted(slave for slave, held in self._held.items() if held >= end))

    def _acks(self) -> Iterable[Ack]:
        return [Ack(str(slave), one.ack_offset) for slave, one in self.connections.items()]

    def _member_acks(self) -> Iterable[Ack]:
        """Everybody's who must have a message, but the master's."""
        judged = self.set.judged
        acks = [self._member_ack(member) for member in judged if member != self.set.me]
        if len(judged) < self.config.min_in_sync_replicas and not self._drops_who_left:
            acks.append(NOBODY)  # KB-RKT-F: upstream asks when a message is appended, and only then
        end = min((ack.offset for ack in acks), default=self.log.max_offset)
        self.ackable = max(self.ackable, end)
        return acks

    def _member_ack(self, member: int) -> Ack:
        connection = self.connections.get(member)
        if connection is None:
            return Ack(str(member), NOTHING_ACKNOWLEDGED)
        return Ack(str(member), connection.ack_offset)

    # -- the confirm offset ------------------------------------------------------------------------

    def _update_confirm_offset(self) -> None:
        judged = self.set.judged
        if len(judged) == 1 or not self.config.all_ack_in_sync_state_set:
            self._store.set_confirm_offset(None)
            return
        before = self._store.confirm_offset
        after = self._computed_confirm_offset(judged, before)
        if not self.env.has_bug("KB-RKT-13"):
            after = max(before, after)  # it never goes back in a tenure
        self._store.set_confirm_offset(after)
        if after < before:
            detail = {"from": before, "to": after}
            emit = self.env.events.emit
            emit(self._group, "confirm_lowered", role="master", epoch=self.epoch, detail=detail)

    def _computed_confirm_offset(self, judged: Members, before: int) -> int:
        """What every member has; as before if that can't be known of one."""
        end = self.own_end
        for member in judged:
            connection = self.connections.get(member)
            if member == self.set.me:
                continue
            if connection is None:
                if self.env.has_bug("KB-RKT-12"):  # KB-RKT-12: who is not there does not count
                    continue
                return before
            if connection.ack_offset <= 0:
                if self.env.has_bug("KB-RKT-13"):  # KB-RKT-13: a connection that has said nothing
                    return 0
                return before
            end = min(end, connection.ack_offset)
        return end

    # -- the set -----------------------------------------------------------------------------------

    def propose(self, *, is_check: bool) -> Proposal | None:
        """The change to report now, None if the set is as it should be. ``is_check``: this is the
        periodic look, at which members that never connected in this tenure are dropped, too.
        """
        wanted = self._wanted(is_check=is_check)
        if wanted == self.set.members:
            return None
        return self._proposed(wanted)

    def _proposed(self, wanted: Members) -> Proposal:
        if not self._unanswered_ns:
            self._unanswered_ns = self.env.clock.monotonic_ns()
        set_epoch = self.set.epoch
        members = self.set.propose(wanted)
        self.follow_up()
        return Proposal(members=members, set_epoch=set_epoch, master_epoch=self.epoch)

    def _wanted(self, *, is_check: bool) -> Members:
        if is_check and self._is_stuck():
            # Whatever became of the report, it is void once the set's epoch has moved on.
            return (self.set.me,)
        stay = [one for one in self.set.members if self._may_stay(one, is_check=is_check)]
        join = [slave for slave, one in self.connections.items() if self._may_join(one)]
        return tuple(sorted([*stay, *join]))

    def _may_stay(self, member: int, *, is_check: bool) -> bool:
        if member == self.set.me:
            return True
        connection = self.connections.get(member)
        if connection is None:
            return not is_check and member not in self._lost
        return self._since_ms(connection.caught_up_ns) <= self.config.max_time_slave_not_catchup_ms

    def _may_join(self, connection: AutoSwitchHAConnection) -> bool:
        """maybeExpandInSyncStateSet."""
        if connection.is_learner or connection.slave_id in self.set.members:
            return False
        entry = self.cache.last
        ack = connection.ack_offset
        if entry is None or ack < entry.start_offset or not connection.is_caught_up:
            return False
        if not self.config.all_ack_in_sync_state_set:
            return True
        self._member_acks()  # raises ``ackable``
        return ack >= max(self.ackable, self._store.confirm_offset)

    def _is_stuck(self) -> bool:
        """Whether messages wait for somebody who was proposed, is gone, and may be in the set."""
        if not self._unanswered_ns or len(self.set.members) == 1:
            return False
        gone = [
            one
            for one in self.set.judged
            if one not in self.set.members and one not in self.connections
        ]
        too_long = self._since_ms(self._unanswered_ns) > self.config.max_time_slave_not_catchup_ms
        return bool(gone) and too_long

    def learn(self, members: Iterable[int], set_epoch: int) -> bool:
        """The controllers' word on the set; whether it is news."""
        news = self.set.learn(members, set_epoch)
        if news:
            self._unanswered_ns = 0
        self.follow_up()
        return news

    def refused(self, proposal: Members) -> None:
        """The controllers said no to it."""
        self.set.refused(proposal)
        if not self.set.is_synchronizing:
            self._unanswered_ns = 0
        self.follow_up()

    def begin_epoch(self, epoch: int, members: Iterable[int], set_epoch: int) -> None:
        """The same master was elected again; what was proposed is void, it is of another epoch."""
        self.epoch, self.send_limit = epoch, None
        self.set = self.set.of_next_epoch(members, set_epoch)
        self._unanswered_ns = 0
        self.follow_up()
        self.wake()

    def in_sync_slaves(self) -> int:
        return len(self.set.members) - 1

    def _since_ms(self, at_ns: int) -> float:
        return (self.env.clock.monotonic_ns() - at_ns) / NS_PER_MS
