"""Tenure, a master's tenure: what it knows while it is one: slaves, SyncStateSet, confirm offset.

Source: store/ha/autoswitch/AutoSwitchHAService.java (maybeExpandInSyncStateSet,
maybeShrinkSyncStateSet, computeConfirmOffset); docs/protocols.md 2.8. Copies says what counts as
replicated, SetProposals who should be in the set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shalott.broker.base.env import Env
from shalott.broker.rocket.autoswitch import packets
from shalott.broker.rocket.autoswitch.connection import AutoSwitchHAConnection
from shalott.broker.rocket.autoswitch.copies import Copies
from shalott.broker.rocket.autoswitch.epochs import EpochFileCache
from shalott.broker.rocket.autoswitch.set_proposals import SetProposals
from shalott.broker.rocket.autoswitch.sync_state_set import Members, SyncStateSet
from shalott.broker.rocket.commitlog.api import Store
from shalott.broker.rocket.config import RocketConfig
from shalott.broker.rocket.ha.group_transfer import GroupTransferService


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
        config: RocketConfig,
        store: Store,
        cache: EpochFileCache,
        sync_state_set: SyncStateSet,
        *,
        epoch: int,
        broker_id_of: Callable[[str], int],
        set_is_wrong: Callable[[], None],
    ) -> None:
        self.env = env
        self.config = config.ha
        self.log = store.log
        self.cache = cache
        self.epoch = epoch
        self.segment_bytes = config.store.segment_bytes
        self.by_address = config.ha.handshake_by_address
        self.handshakes_in_parts = env.buggify("ha.handshake_in_parts")
        self.copies = Copies(env, config, store.log, sync_state_set)
        self.proposals = SetProposals(env, config.ha, store, cache, self.copies)
        self.transfer = GroupTransferService(self.copies.acks, members=self.copies.member_acks)
        self.send_limit: int | None = None  # an epoch is about to begin there
        self._store = store
        self._group = config.broker.broker_name
        self._broker_id_of = broker_id_of
        self._set_is_wrong = set_is_wrong
        self._is_over = False
        self._told: tuple[int, Members] = (0, ())
        self._sends_unflushed = env.has_bug("KB-RKT-D")
        self._drops_who_left = env.has_bug("KB-RKT-F")

    @property
    def set(self) -> SyncStateSet:
        return self.copies.set

    @property
    def connections(self) -> dict[int, AutoSwitchHAConnection]:
        """Of slaves, by their ids."""
        return self.copies.connections

    # -- for connections ---------------------------------------------------------------------------

    @property
    def confirm_offset(self) -> int:
        return self._store.confirm_offset

    @property
    def sendable(self) -> int:
        end = self.log.max_offset if self._sends_unflushed else self.log.flushed_offset
        return end if self.send_limit is None else min(end, self.send_limit)

    def identify(self, handshake: packets.SlaveHandshake) -> int:
        """Raises HaProtocolError if it is no slave of this broker."""
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
        self.proposals.lost.pop(connection.slave_id, None)
        if older is not None and older is not connection:
            older.abort()

    def acknowledged(self, connection: AutoSwitchHAConnection) -> None:
        if self.connections.get(connection.slave_id) is not connection:
            return
        self.copies.note(connection)
        self.follow_up()
        if self.proposals.may_join(connection):
            self._set_is_wrong()

    def disconnected(self, connection: AutoSwitchHAConnection) -> None:
        """Only the connection that counts (KB-RKT-33 is its absence)."""
        if self.connections.get(connection.slave_id) is not connection:
            return
        del self.connections[connection.slave_id]
        self.proposals.lost[connection.slave_id] = None
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
        """The tenure is over: no producer is told any more that a message counts."""
        self._is_over = True
        if self._drops_who_left:  # KB-RKT-F: the role ends the connections, and each its slave's
            for slave in self.connections:
                self.set.drop(slave)
            self.transfer.notify()
        self.transfer.give_up()
        connections, self.copies.connections = self.connections, {}
        for connection in connections.values():
            connection.abort()

    def _update_confirm_offset(self) -> None:
        judged = self.set.judged
        if (waits := (self.epoch, judged)) != self._told:
            self._told = waits
            self.env.witness("waits for", *waits)
        if len(judged) == 1 or not self.config.all_ack_in_sync_state_set:
            self._store.set_confirm_offset(None)
            return
        before = self._store.confirm_offset
        after = self.copies.confirmed(judged, before)
        if not self.env.has_bug("KB-RKT-13"):
            after = max(before, after)  # it never goes back in a tenure
        self._store.set_confirm_offset(after)
        if after > before:
            log = self._store.log
            self.env.witness("confirmed", log.directory, log.segment_bytes, before, after)
        if after < before:
            detail: dict[str, object] = {"from": before, "to": after}
            emit = self.env.events.emit
            emit(self._group, "confirm_lowered", role="master", epoch=self.epoch, detail=detail)

    # -- the set -----------------------------------------------------------------------------------

    def propose(self, *, is_check: bool) -> Proposal | None:
        """The change to report now, None if the set is as it should be. ``is_check``: this is the
        periodic look, at which members that never connected in this tenure are dropped, too.
        """
        wanted = self.proposals.wanted(is_check=is_check)
        if wanted == self.set.members:
            return None
        set_epoch = self.set.epoch
        members = self.proposals.propose(wanted)
        self.follow_up()
        return Proposal(members=members, set_epoch=set_epoch, master_epoch=self.epoch)

    def learn(self, members: Iterable[int], set_epoch: int) -> bool:
        """The controllers' word on the set; whether it is news."""
        news = self.set.learn(members, set_epoch)
        if news:
            self.proposals.answered()
        self.follow_up()
        return news

    def refused(self, proposal: Members) -> None:
        """The controllers said no to it."""
        self.set.refused(proposal)
        if not self.set.is_synchronizing:
            self.proposals.answered()
        self.follow_up()

    def begin_epoch(self, epoch: int, members: Iterable[int], set_epoch: int) -> None:
        """The same master was elected again; what was proposed is void, it is of another epoch."""
        self.epoch, self.send_limit = epoch, None
        self.copies.set = self.set.of_next_epoch(members, set_epoch)
        self.proposals.answered()
        self.follow_up()
        self.wake()
