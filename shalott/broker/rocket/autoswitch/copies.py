"""Copies: which slave has how much of a master's log, and what of the log counts.

A message counts as replicated, under allAckInSyncStateSet, when every member of the set and of what
was proposed has it, and there are minInSyncReplicas of them; upstream counts these only before it
appends, so that a set that shrinks meanwhile leaves the master's own copy as the only one.
"""

from __future__ import annotations

from collections.abc import Iterable

from shalott.broker.base.env import Env
from shalott.broker.rocket.autoswitch.connection import AutoSwitchHAConnection
from shalott.broker.rocket.autoswitch.sync_state_set import Members, SyncStateSet
from shalott.broker.rocket.commitlog.api import Log
from shalott.broker.rocket.config import RocketConfig
from shalott.broker.rocket.ha.group_transfer import (
    ALL_ACK_IN_SYNC_STATE_SET,
    NOTHING_ACKNOWLEDGED,
    Ack,
)

MISSING = Ack("", NOTHING_ACKNOWLEDGED)  # stands for the members that are missing


class Copies:
    """Of one tenure. ``ackable`` is the end of all that ever counted: it is raised whenever
    acknowledgements are judged."""

    def __init__(
        self, env: Env, config: RocketConfig, log: Log, sync_state_set: SyncStateSet
    ) -> None:
        self.set = sync_state_set
        self.connections: dict[int, AutoSwitchHAConnection] = {}
        self.ackable = 0
        self._env = env
        self._config = config.ha
        self._log = log
        self._acks_flushed = config.store.flush == "sync"
        # KB-RKT-F: upstream asks when a message is appended, and only then
        self._asks_before_append = env.has_bug("KB-RKT-F")
        self._held: dict[int, int] = {}  # what each slave has said to have, connected or not

    def note(self, connection: AutoSwitchHAConnection) -> None:
        """The slave has acknowledged more."""
        slave = connection.slave_id
        self._held[slave] = max(self._held.get(slave, 0), connection.ack_offset)

    def holders(self, end: int) -> tuple[int, ...]:
        """The slaves that are known to have everything before ``end``."""
        return tuple(sorted(slave for slave, held in self._held.items() if held >= end))

    def ack_nums(self) -> int:
        """How many copies a message appended now needs."""
        if self._config.all_ack_in_sync_state_set:
            return ALL_ACK_IN_SYNC_STATE_SET
        wanted = min(self._config.in_sync_replicas, len(self.set.members))
        return max(wanted, self._config.min_in_sync_replicas)

    def acks(self) -> Iterable[Ack]:
        """Of the slaves that are connected."""
        return [Ack(str(slave), one.ack_offset) for slave, one in self.connections.items()]

    def member_acks(self) -> Iterable[Ack]:
        """Of all that must have a message, but the master. Raises ``ackable``."""
        judged = self.set.judged
        acks = [self._member_ack(member) for member in judged if member != self.set.me]
        if len(judged) < self._config.min_in_sync_replicas and not self._asks_before_append:
            acks.append(MISSING)
        end = min((ack.offset for ack in acks), default=self._log.max_offset)
        self.ackable = max(self.ackable, end)
        return acks

    def _member_ack(self, member: int) -> Ack:
        connection = self.connections.get(member)
        if connection is None:
            return Ack(str(member), NOTHING_ACKNOWLEDGED)
        return Ack(str(member), connection.ack_offset)

    def confirmed(self, judged: Members, before: int) -> int:
        """What every member has; as before if that can't be known of one."""
        # What the master's own copy is worth.
        end = self._log.flushed_offset if self._acks_flushed else self._log.written_offset
        for member in judged:
            connection = self.connections.get(member)
            if member == self.set.me:
                continue
            if connection is None:
                if self._env.has_bug("KB-RKT-12"):  # KB-RKT-12: who is not there does not count
                    continue
                return before
            if connection.ack_offset <= 0:
                if self._env.has_bug("KB-RKT-13"):  # KB-RKT-13: a connection that has said nothing
                    return 0
                return before
            end = min(end, connection.ack_offset)
        return end
