"""Mutants by hand of RocketMQ's master and slave, and of the commit log that both write."""

from __future__ import annotations

from shalott.harness.mutants.by_hand import ByHand
from shalott.harness.mutants.mutant import Mutant

_of = ByHand("master-slave")

MASTER_SLAVE: tuple[Mutant, ...] = (
    _of(
        "rocket.ha.master_side",
        "MasterSide._flush",
        "ack-before-sync",
        "await self._store.log.flushed(stage.end)",
        "await self._store.log.written(stage.end)",
        "a message is acknowledged when the operating system has it, not the disk",
        equivalent="slaves are waited for, and are sent only what the master's disk has",
    ),
    _of(
        "rocket.ha.master_side",
        "MasterSide.copied",
        "flush-not-looked-at",
        "return replication if replication is not PutStatus.PUT_OK else flush",
        "return replication",
        "a message whose flush failed or took too long is acknowledged",
        equivalent="slaves are waited for, and are sent only what the master's disk has",
    ),
    _of(
        "rocket.ha.master_side",
        "MasterSide._replicate",
        "slave-not-waited-for",
        "max(2, self._config.ha.in_sync_replicas)",
        "self._config.ha.in_sync_replicas",
        "a synchronous master acknowledges with its own copy alone",
    ),
    _of(
        "rocket.ha.master_side",
        "MasterSide._replicate",
        "timeout-is-success",
        "return PutStatus.PUT_OK if replicated else PutStatus.FLUSH_SLAVE_TIMEOUT",
        "return PutStatus.PUT_OK",
        "a message that no slave had in time is acknowledged",
    ),
    _of(
        "rocket.ha.master_side",
        "MasterSide._replicate",
        "no-slave-is-success",
        "return PutStatus.SLAVE_NOT_AVAILABLE",
        "return PutStatus.PUT_OK",
        "a synchronous master without a slave acknowledges",
    ),
    _of(
        "rocket.ha.master_side",
        "MasterSide.restarts",
        "restart-readable",
        "self._unconfirmed_end = self._store.log.max_offset",
        "self._unconfirmed_end = 0",
        "a restarted master lets clients read what no slave may have",
    ),
    _of(
        "rocket.ha.master_side",
        "MasterSide._confirm",
        "reads-ahead-of-slave",
        "acknowledged = min(furthest, self._store.log.max_offset)",
        "acknowledged = self._store.log.max_offset",
        "clients read what only the master has",
    ),
    _of(
        "rocket.ha.group_transfer",
        "GroupTransferService.is_replicated",
        "master-counts-twice",
        "1 + len(having) >= ack_nums",
        "2 + len(having) >= ack_nums",
        "the master's own copy counts as two",
    ),
    _of(
        "rocket.ha.group_transfer",
        "GroupTransferService.is_replicated",
        "any-ack-will-do",
        """
        having = dict.fromkeys(
            ack.slave for ack in self._connections() if ack.offset >= next_offset
        )
        """,
        "having = dict.fromkeys(ack.slave for ack in self._connections() if ack.offset > 0)",
        "a slave that has acknowledged anything counts as having the message",
    ),
    _of(
        "rocket.ha.group_transfer",
        "GroupTransferService.give_up",
        "waiters-told-done",
        "_answer(request, False)",
        "_answer(request, True)",
        "producers that wait while the role changes are told that slaves have their messages",
    ),
    _of(
        "rocket.ha.client",
        "_SlaveConnection._report",
        "report-before-write",
        "self._reported = self._store.log.written_offset",
        "self._reported = self._store.log.max_offset",
        "a slave reports what it has in memory only",
        equivalent="it reports while it waits for bytes, and then all that came is written",
    ),
    _of(
        "rocket.ha.client",
        "_SlaveConnection.run",
        "tail-not-reported",
        "self._store.log.written_offset > self._reported or self._report_due_ms() <= 0",
        "self._report_due_ms() <= 0",
        "a slave reports at its heartbeats only",
    ),
    _of(
        "rocket.ha.server",
        "HaServer.extent",
        "sends-unflushed",
        "end = store_log.flushed_offset if self._flushed_only else store_log.written_offset",
        "end = store_log.written_offset",
        "a master sends what its own power loss would take from it",
    ),
    _of(
        "rocket.ha.server",
        "HaServer.serve",
        "old-master-serves-on",
        """
        if not serving:
            for connection in list(self._tasks):
                connection.close()
        """,
        "",
        "a master that was deposed goes on to send to its slaves",
    ),
    _of(
        "rocket.ha.session",
        "MasterSession._is_missing",
        "longer-slave-accepted",
        "return before or offset > extent.max",
        "return before",
        "a slave whose log is longer than the master's is taken for one that has all",
    ),
    _of(
        "rocket.ha.replica",
        "MasterSlaveReplica.readable",
        "reads-before-agreement",
        "return self._record.agreed",
        "return True",
        "a slave lets clients read what it has and its new master may not have",
    ),
    _of(
        "rocket.ha.replica",
        "MasterSlaveReplica.follow",
        "agreement-skipped",
        "self.store.log.max_offset == 0",
        "True",
        "a broker that follows another master does not look where their logs part",
    ),
    _of(
        "rocket.ha.replica",
        "MasterSlaveReplica.follow",
        "role-not-stored",
        "await write_role(self._env.disk, self._record)",
        "",
        "a broker that was made a slave is a master again when it restarts",
    ),
    _of(
        "rocket.ha.replica",
        "MasterSlaveReplica._take_up",
        "queues-incomplete",
        """
        await self.store.dispatched(self.store.log.max_offset)
        await self.store.recover_queue_offsets()
        """,
        "",
        "a new master gives queue offsets that messages of its predecessor have",
    ),
    _of(
        "rocket.ha.replica",
        "MasterSlaveReplica._agreed",
        "cut-not-made",
        "await self._cut(offset)",
        "",
        "a broker keeps what it has beyond where its log and the new master's part",
    ),
    _of(
        "rocket.ha.agreement",
        "find_agreement",
        "cut-within-message",
        "agreed = start if parted is None else await last_boundary(log, start, parted)",
        "agreed = start if parted is None else parted",
        "a log is cut in the midst of a message",
    ),
    _of(
        "rocket.ha.agreement",
        "_read_and_compare",
        "longer-log-kept",
        "if not frame.body:\n    return position",
        "if not frame.body:\n    return end",
        "a broker keeps what it has beyond the end of its new master's log",
    ),
    _of(
        "rocket.commitlog.segment_writer",
        "SegmentWriter.sync",
        "end-read-after-sync",
        """
        end = self.written_end
        await self._files.sync()
        """,
        """
        await self._files.sync()
        end = self.written_end
        """,
        "what was written while a sync ran is taken for synced",
        equivalent="one task writes and syncs, so nothing is written while a sync runs",
    ),
    _of(
        "rocket.commitlog.segment_writer",
        "SegmentWriter.sync",
        "sync-skipped",
        "await self._files.sync()",
        "",
        "the commit log is never synced",
    ),
    _of(
        "rocket.commitlog.segments",
        "SegmentedLog.truncate",
        "cut-in-memory",
        """
        if offset < written:
            await self._files.cut(offset, self._min, shorten=not self.truncate_in_memory_only)
        """,
        "",
        "what is cut off comes back with the next restart",
    ),
    _of(
        "rocket.commitlog.commit_log",
        "CommitLog._recover",
        "found-not-made-durable",
        "await segments.settle(min(flushed, end))",
        "",
        "what a restarted broker finds is in the page cache only, and counts as flushed",
    ),
    _of(
        "rocket.commitlog.commit_log",
        "CommitLog._recover",
        "torn-tail-kept",
        "await segments.truncate(end)",
        "",
        "a torn message stays at the log's end, and others are written behind it",
    ),
    _of(
        "rocket.commitlog.checkpoint",
        "CheckpointKeeper.write_if_due",
        "checkpoint-says-too-much",
        """
        if message_log.flushed_offset < self._due.dispatched:
            return
        """,
        "",
        "a checkpoint covers what is not flushed",
        equivalent="where reads wait for the flush, as in safe, nothing is dispatched before it",
    ),
    _of(
        "rocket.commitlog.checkpoint",
        "CheckpointKeeper.write_if_due",
        "queues-not-flushed",
        "await queues.flush()",
        "",
        "a checkpoint covers what the consume queues have in memory only",
    ),
    _of(
        "rocket.commitlog.store",
        "MessageStore.truncate",
        "checkpoint-not-lowered",
        "await self._checkpoints.lower(offset)",
        "",
        "a crash after a cut finds a checkpoint beyond the log's end",
    ),
    _of(
        "rocket.commitlog.store",
        "MessageStore.truncate",
        "queues-not-cut",
        "await dispatch.cut(offset)",
        "",
        "consume queues keep units of messages that were cut off",
    ),
    _of(
        "rocket.commitlog.dispatch",
        "Dispatch.recover_queue_offsets",
        "undispatched-not-counted",
        "position = self.position",
        "position = self._log.max_offset",
        "queue offsets of messages that are in no queue yet are given again",
        equivalent="a master has its whole log in its queues before it appends",
    ),
    _of(
        "rocket.commitlog.consume_queues",
        "QueueSet.recover",
        "unproven-units-kept",
        "await queue.cut(end)",
        "",
        "a restarted broker keeps what a power loss has left of the newest units of its queues",
    ),
    _of(
        "rocket.commitlog.segment_files",
        "SegmentFiles.create",
        "new-name-unsynced",
        "self._names_dirty = True",
        "",
        "a power loss takes the log's newest file though its bytes were synced",
    ),
    _of(
        "rocket.commitlog.deleted_topics",
        "DeletedTopics.covers",
        "deleted-one-too-many",
        "offset < self.ends.get(topic, 0)",
        "offset <= self.ends.get(topic, 0)",
        "the first message of a topic that was deleted and made again is hidden with the old ones",
    ),
    _of(
        "rocket.ha.replica",
        "MasterSlaveReplica.promote",
        "half-message-kept",
        "await self._cut_incomplete_message()",
        "",
        "a promoted slave writes its first message behind a part of another one",
    ),
    _of(
        "rocket.ha.replica",
        "MasterSlaveReplica._agreed",
        "agreement-without-epoch",
        """
        self._record = RoleRecord(
            is_master=False, master=self._record.master, epoch=self._record.epoch
        )
        """,
        "self._record = RoleRecord(is_master=False, master=self._record.master)",
        "a follower that cut its log begins to count failovers anew",
    ),
    _of(
        "rocket.processor.table_files",
        "TableFiles._save",
        "refused-table-forgotten",
        "self._dirty[path] = None",
        "",
        "a table that the disk did not take is not written again",
    ),
    _of(
        "rocket.processor.tables",
        "Tables.learn",
        "grown-topic-not-learnt",
        "known is not None and queue_id < queues_of(known)",
        "known is not None",
        "a new master refuses reads of queues that its predecessor added to a topic",
    ),
    _of(
        "rocket.processor.transactions",
        "Transactions._store_end",
        "failed-commit-decides",
        "del known.ending[queue_offset]",
        """
        del known.ending[queue_offset]
        known.decided[queue_offset] = None
        """,
        "a transaction whose commit could not be stored is never committed",
    ),
)
