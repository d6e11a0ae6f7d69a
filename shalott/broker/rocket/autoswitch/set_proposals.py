"""SetProposals: which SyncStateSet a master should propose to the controllers.

A slave that joins the set must have all that ever counted (``Copies.ackable``). All of it happens
between two awaits, so between the look at a candidate and its proposal nothing can count without
it.
"""

from __future__ import annotations

from shalott.broker.base.env import Env
from shalott.broker.rocket.autoswitch.connection import NS_PER_MS, AutoSwitchHAConnection
from shalott.broker.rocket.autoswitch.copies import Copies
from shalott.broker.rocket.autoswitch.epochs import EpochFileCache
from shalott.broker.rocket.autoswitch.sync_state_set import Members
from shalott.broker.rocket.commitlog.api import Store
from shalott.broker.rocket.config import HaConfig


class SetProposals:
    """Of one tenure. ``lost`` are the members whose connection ended."""

    def __init__(
        self, env: Env, config: HaConfig, store: Store, cache: EpochFileCache, copies: Copies
    ) -> None:
        self.lost: dict[int, None] = {}
        self._clock = env.clock
        self.config = config
        self._store = store
        self._cache = cache
        self._copies = copies
        self._unanswered_ns = 0  # since when a report has not been answered

    def propose(self, members: Members) -> Members:
        """To be reported; until it is answered, either set may be the controllers'."""
        if not self._unanswered_ns:
            self._unanswered_ns = self._clock.monotonic_ns()
        return self._copies.set.propose(members)

    def answered(self) -> None:
        """No report waits for an answer."""
        self._unanswered_ns = 0

    def wanted(self, *, is_check: bool) -> Members:
        """The set as it should be. ``is_check``: see Tenure.propose."""
        known = self._copies.set
        if is_check and self._is_stuck():
            # However the report ended, it is void once the set's epoch has moved on.
            return (known.me,)
        stay = [one for one in known.members if self._may_stay(one, is_check=is_check)]
        connections = self._copies.connections
        join = [slave for slave, one in connections.items() if self.may_join(one)]
        return tuple(sorted([*stay, *join]))

    def _may_stay(self, member: int, *, is_check: bool) -> bool:
        if member == self._copies.set.me:
            return True
        connection = self._copies.connections.get(member)
        if connection is None:
            return not is_check and member not in self.lost
        behind_ms = self._since_ms(connection.caught_up_ns)
        return behind_ms <= self.config.max_time_slave_not_catchup_ms

    def may_join(self, connection: AutoSwitchHAConnection) -> bool:
        """maybeExpandInSyncStateSet."""
        if connection.is_learner or connection.slave_id in self._copies.set.members:
            return False
        entry = self._cache.last
        ack = connection.ack_offset
        if entry is None or ack < entry.start_offset or not connection.is_caught_up:
            return False
        if not self.config.all_ack_in_sync_state_set:
            return True
        self._copies.member_acks()  # raises ``ackable``
        return ack >= max(self._copies.ackable, self._store.confirm_offset)

    def _is_stuck(self) -> bool:
        """Whether messages wait for a slave that was proposed, is gone, and may be in the set."""
        known = self._copies.set
        if not self._unanswered_ns or len(known.members) == 1:
            return False
        gone = [
            one
            for one in known.judged
            if one not in known.members and one not in self._copies.connections
        ]
        too_long_ms = self.config.max_time_slave_not_catchup_ms
        return bool(gone) and self._since_ms(self._unanswered_ns) > too_long_ms

    def _since_ms(self, at_ns: int) -> float:
        return (self._clock.monotonic_ns() - at_ns) / NS_PER_MS
