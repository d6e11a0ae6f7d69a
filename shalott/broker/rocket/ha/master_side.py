"""MasterSide: what a master does with its slaves: it waits for copies, and bounds what is read.

With read_flushed_only a SYNC_MASTER lets no client read what only it has: dispatch ends where a
slave has acknowledged, so that a failover to that slave takes nothing back that a reader has seen.
What it had when it became the master is readable at once; a master that restarts, which does not
know what of that a slave had, lets no client read before a slave has it all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shalott.broker.base.env import Env
from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.commitlog.api import PutStage, Store
from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.broker.rocket.config import RocketConfig
from shalott.broker.rocket.ha.group_transfer import Ack, GroupTransferService
from shalott.broker.rocket.ha.server import HaServer, PeerNames
from shalott.broker.rocket.ha.session import SessionRules

STRAY = "anybody"  # who KB-RKT-01 believes


class MasterSide:
    """``is_master`` says whether it is one now."""

    def __init__(
        self, env: Env, config: RocketConfig, store: Store, is_master: Callable[[], bool]
    ) -> None:
        self._env = env
        self._config = config
        self._store = store
        self._is_master = is_master
        # A slave's configuration does not say which kind of master it would be: one of a group
        # that waits for disks waits for slaves too.
        role = config.broker.role
        self._is_sync = role == "SYNC_MASTER" or (role == "SLAVE" and config.store.flush == "sync")
        self._readable_from_start = 0
        self._unconfirmed_end = 0  # where the log ended when this master started again
        self._believed = -1  # KB-RKT-01: the furthest report ever, true or not
        self.server = HaServer(
            env,
            lambda: store.log,
            session_rules(env, config),
            flushed_only=config.store.flush == "sync" and not env.has_bug("KB-RKT-06"),
            identify=PeerNames(config).name_of,
            on_ack=self._acknowledged,
        )
        self.transfers = GroupTransferService(self._acks)

    # -- how far readers may go --------------------------------------------------------------------

    @property
    def is_readable(self) -> bool:
        return not self._unconfirmed_end

    def restarts(self) -> None:
        """The node begins; whether as a master is not said yet."""
        if self._guards_reads():
            self._unconfirmed_end = self._store.log.max_offset

    def ready(self) -> None:
        """All that is in the log counts: it is this master's."""
        self._readable_from_start = self._store.log.max_offset

    def serve(self) -> None:
        """This node is the master now."""
        self.server.serve(True)
        self._confirm()

    def lay_down(self) -> None:
        """It is one no more."""
        self._unconfirmed_end = 0
        self.server.serve(False)
        self.transfers.give_up()

    def _acknowledged(self) -> None:
        self.transfers.notify()
        self._confirm()

    def _confirm(self) -> None:
        if not self._is_master() or not self._guards_reads():
            return
        furthest = self.server.push_to_slave_max_offset()
        if furthest >= self._unconfirmed_end:
            self._unconfirmed_end = 0
        acknowledged = min(furthest, self._store.log.max_offset)
        self._readable_from_start = max(self._readable_from_start, acknowledged)
        self._store.set_confirm_offset(self._readable_from_start)

    def _guards_reads(self) -> bool:
        return self._is_sync and self._config.store.read_flushed_only

    # -- waiting for copies ------------------------------------------------------------------------

    async def copied(self, stage: PutStage) -> PutStatus:
        """What became of messages that were appended."""
        self.server.wake()
        flush, replication = await asyncio.gather(self._flush(stage), self._replicate(stage))
        # As upstream: what replication ended with covers what the flush ended with.
        return replication if replication is not PutStatus.PUT_OK else flush

    async def _flush(self, stage: PutStage) -> PutStatus:
        try:
            async with asyncio.timeout(self._config.store.flush_timeout_ms / 1000):
                if self._config.store.flush == "async":
                    await self._store.log.written(stage.end)
                else:
                    await self._store.log.flushed(stage.end)
        except TimeoutError:
            return PutStatus.FLUSH_DISK_TIMEOUT
        except StorageError:
            return PutStatus.UNKNOWN_ERROR
        return PutStatus.PUT_OK

    async def _replicate(self, stage: PutStage) -> PutStatus:
        if not self._is_sync:
            return PutStatus.PUT_OK
        if not self._is_slave_ok(stage.end):
            return PutStatus.SLAVE_NOT_AVAILABLE
        replicated = await self.transfers.replicated(
            stage.end,
            ack_nums=max(2, self._config.ha.in_sync_replicas),
            timeout_ms=self._config.ha.slave_timeout_ms,
        )
        return PutStatus.PUT_OK if replicated else PutStatus.FLUSH_SLAVE_TIMEOUT

    def _is_slave_ok(self, end: int) -> bool:
        """Upstream asks before it waits: some slave is connected, and the best is not too far."""
        if not self.server.connections:
            return False
        gap = end - self.server.push_to_slave_max_offset()
        return gap < self._config.ha.max_gap_not_in_sync_bytes

    def _acks(self) -> list[Ack]:
        acks = list(self.server.acks())
        if self._env.has_bug("KB-RKT-01"):  # upstream 4.3: one number, raised by any report
            self._believed = max([self._believed, *(ack.offset for ack in acks)])
            acks.append(Ack(STRAY, self._believed))
        return acks

    def synchronised(self) -> list[str]:
        """The slaves that are not too far behind."""
        gap = self._config.ha.max_gap_not_in_sync_bytes
        infos = self.server.status(gap)["haConnectionInfo"]
        return sorted(dict.fromkeys(info["slave"] for info in infos if info["inSync"]))


def session_rules(env: Env, config: RocketConfig) -> SessionRules:
    """A master's."""
    return SessionRules(
        batch_bytes=config.ha.transfer_batch_bytes,
        heartbeat_interval_ms=config.ha.heartbeat_interval_ms,
        housekeeping_interval_ms=config.ha.housekeeping_interval_ms,
        segment_bytes=config.store.segment_bytes,
        last_file_only=config.ha.sync_from_last_file or env.has_bug("KB-RKT-04"),
        trusts_reports=env.has_bug("KB-RKT-01"),
        acks_beyond_end=env.has_bug("KB-RKT-06"),
        stalls_on_missing=env.has_bug("KB-RKT-03"),
    )
