"""Mutants by hand of controller mode: what registers, reports, follows, copies and recovers."""

from __future__ import annotations

from shalott.harness.mutants.by_hand import ByHand
from shalott.harness.mutants.mutant import Mutant

_of = ByHand("controller")

CONTROLLER_FEATURES: tuple[Mutant, ...] = (
    _of(
        "rocket.controller.decisions",
        "register_broker",
        "old-report-taken",
        """
        if group.sync.master == broker_id:
            sync = group.sync
            events.append(cs.AlterSyncStateSetEvent(name, sync.members, sync.set_epoch + 1))
        """,
        "",
        "a report of a master's former life still changes the set when it has registered again",
    ),
    _of(
        "rocket.controller.state",
        "apply",
        "set-dies-with-master",
        "new = msgspec.structs.replace(sync, master=None, master_epoch=epoch)",
        """
        new = msgspec.structs.replace(
            sync, master=None, master_epoch=epoch, members=(), set_epoch=sync.set_epoch + 1
        )
        """,
        "a group whose master is gone takes the next that asks, whatever its log lacks",
    ),
    _of(
        "rocket.autoswitch.epochs",
        "consistent_point",
        "oldest-common-epoch",
        "reversed(local)",
        "local",
        "a slave cuts its log at the end of the oldest epoch that it shares with its master",
    ),
    _of(
        "rocket.autoswitch.service",
        "AutoSwitchHAService._go_on_as_master",
        "epoch-begins-unmarked",
        "start = tenure.send_limit = self.store.log.max_offset",
        "start = self.store.log.max_offset",
        "a master that is elected again sends bytes of its new epoch as of the old one",
    ),
    _of(
        "rocket.replicas.set_reports",
        "SetReports._send",
        "unanswered-is-refused",
        'log.info("it is unknown whether the set is %s: %s", proposal.members, error)',
        """
        log.info("it is unknown whether the set is %s: %s", proposal.members, error)
        tenure.refused(proposal.members)
        """,
        "a master forgets a set that it proposed when it hears nothing of it",
    ),
    _of(
        "rocket.node.slave_sync",
        "SlaveSync._ask",
        "late-copy-taken",
        """
        if self._master() != master or self._broker.replica.epoch != epoch:
            return None
        """,
        "",
        "a new master takes over older tables that its predecessor sends late",
    ),
    _of(
        "rocket.processor.tables",
        "Tables.replace_topics",
        "higher-counter-wins",
        "table.data_version == self.topics_version",
        "table.data_version.counter <= self.topics_version.counter",
        "a deposed master keeps its own topics when it follows",
    ),
    _of(
        "rocket.processor.delays",
        "_deliver_level",
        "undelivered-passed",
        """
        if result.status is not PutStatus.PUT_OK:
            return False
        """,
        "",
        "a delayed message that could not be stored in its topic is passed over",
    ),
    _of(
        "rocket.commitlog.recovery",
        "_open_store_files",
        "deletion-beyond-end",
        "await deleted.limit(message_log.max_offset)",
        "",
        "a topic's deletion hides what is sent to it after a power loss",
    ),
    _of(
        "raft.journal_log",
        "JournalLog.compact",
        "compacted-without-vote",
        "records: list[Record] = [HardRecord(self._hard), SnapshotRecord(snapshot)]",
        "records: list[Record] = [SnapshotRecord(snapshot)]",
        "a controller whose log was compacted has no term and no vote when it restarts",
    ),
)
