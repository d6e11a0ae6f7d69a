"""Mutants by hand of controller mode: epochs, sets, elections, and what counts as replicated."""

from __future__ import annotations

from shalott.harness.mutants.by_hand import ByHand
from shalott.harness.mutants.mutant import Mutant

_of = ByHand("controller")

CONTROLLER: tuple[Mutant, ...] = (
    _of(
        "rocket.autoswitch.sync_state_set",
        "SyncStateSet.refused",
        "earlier-proposal-forgotten",
        "left > 0",
        "left > 1",
        "a proposed set is forgotten while an earlier report of it may still be carried out",
    ),
    _of(
        "rocket.autoswitch.sync_state_set",
        "SyncStateSet.learn",
        "stale-set-learnt",
        "epoch <= self.epoch",
        "epoch < self.epoch - 1",
        "a master takes an older set for the controllers' newest",
    ),
    _of(
        "rocket.autoswitch.sync_state_set",
        "SyncStateSet.judged",
        "proposed-not-counted",
        "ordered([*self.local, *proposed])",
        "self.local",
        "acknowledgements do not wait for a member that is being added to the set",
    ),
    _of(
        "rocket.autoswitch.copies",
        "Copies.confirmed",
        "confirm-unflushed",
        "end = self._log.flushed_offset if self._acks_flushed else self._log.written_offset",
        "end = self._log.max_offset",
        "the confirm offset goes up to what the master itself has not flushed",
        equivalent="members acknowledge what they were sent, and only what is flushed is sent",
    ),
    _of(
        "rocket.autoswitch.copies",
        "Copies.confirmed",
        "confirm-best-member",
        "end = min(end, connection.ack_offset)",
        "end = max(min(end, connection.ack_offset), before)",
        "the confirm offset passes over a member that has acknowledged less",
        equivalent="the confirm offset never goes back in a tenure anyhow",
    ),
    _of(
        "rocket.autoswitch.copies",
        "Copies.confirmed",
        "gone-member-skipped",
        """
        if connection is None:
            if self._env.has_bug("KB-RKT-12"):  # KB-RKT-12: who is not there does not count
                continue
            return before
        """,
        """
        if connection is None:
            continue
        """,
        "a member of the set without a connection does not hold the confirm offset back",
    ),
    _of(
        "rocket.autoswitch.copies",
        "Copies._member_ack",
        "gone-member-acknowledges",
        """
        if connection is None:
            return Ack(str(member), NOTHING_ACKNOWLEDGED)
        """,
        """
        if connection is None:
            return Ack(str(member), self._log.max_offset)
        """,
        "a member of the set without a connection counts as having everything",
    ),
    _of(
        "rocket.autoswitch.copies",
        "Copies.member_acks",
        "lonely-set-acknowledges",
        """
        if len(judged) < self._config.min_in_sync_replicas and not self._asks_before_append:
            acks.append(MISSING)
        """,
        "",
        "a master whose set has shrunk to itself acknowledges with its own copy alone",
    ),
    _of(
        "rocket.autoswitch.set_proposals",
        "SetProposals.may_join",
        "joins-behind-what-counted",
        "return ack >= max(self._copies.ackable, self._store.confirm_offset)",
        "return True",
        "a slave joins the set without all that was acknowledged before",
    ),
    _of(
        "rocket.autoswitch.set_proposals",
        "SetProposals.may_join",
        "joins-before-epoch",
        "entry is None or ack < entry.start_offset or not connection.is_caught_up",
        "entry is None",
        "a slave joins the set that has nothing of the master's epoch yet",
        equivalent="it must have all that ever counted, which the next condition asks for",
    ),
    _of(
        "rocket.autoswitch.set_proposals",
        "SetProposals._may_stay",
        "lost-member-kept",
        "return not is_check and member not in self.lost",
        "return True",
        "a member that is gone is never taken out of the set",
    ),
    _of(
        "rocket.autoswitch.epochs",
        "without_suffix",
        "empty-epoch-kept",
        "entry.start_offset < offset",
        "entry.start_offset <= offset",
        "a log that is cut keeps the entry of an epoch of which it has no bytes",
    ),
    _of(
        "rocket.autoswitch.epochs",
        "consistent_point",
        "cut-at-longer-log",
        "return min(mine.end_offset, found.end_offset)",
        "return mine.end_offset",
        "a slave keeps what it has of an epoch beyond the master's end of it",
    ),
    _of(
        "rocket.autoswitch.epochs",
        "EpochFileCache._replace",
        "epoch-not-stored",
        "await self._save(entries)",
        "",
        "a new epoch is remembered in memory only",
    ),
    _of(
        "rocket.autoswitch.epochs",
        "at_offset",
        "border-in-older-epoch",
        "entry.start_offset <= offset",
        "entry.start_offset < offset",
        "the first byte of an epoch is sent as one of the epoch before",
    ),
    _of(
        "rocket.autoswitch.service",
        "AutoSwitchHAService._begin_epoch",
        "epoch-before-flush",
        "await replicated.flushed(end)",
        "",
        "an epoch begins where the log ends in memory, which a power loss moves",
    ),
    _of(
        "rocket.autoswitch.service",
        "AutoSwitchHAService.change_to_master",
        "tail-not-cut",
        "await self._cut_tail()",
        "",
        "a new master appends behind a message that it has in part only",
    ),
    _of(
        "rocket.autoswitch.service",
        "AutoSwitchHAService.change_to_slave",
        "epoch-forgotten-at-restart",
        "epoch < max(self.epoch, self.cache.last_epoch)",
        "epoch < self.epoch",
        "a restarted broker follows a master of an older epoch than its log has",
    ),
    _of(
        "rocket.autoswitch.service",
        "AutoSwitchHAService.step_down",
        "tenure-goes-on",
        "tenure.close()",
        "",
        "a master that steps down goes on to acknowledge and to serve its slaves",
    ),
    _of(
        "rocket.autoswitch.service",
        "AutoSwitchHAService._go_on_as_master",
        "sends-while-epoch-begins",
        "start = tenure.send_limit = self.store.log.max_offset",
        "start = self.store.log.max_offset",
        "bytes are sent as of the old epoch while the new one is being recorded",
    ),
    _of(
        "rocket.autoswitch.service",
        "AutoSwitchHAService._catch_up",
        "queue-offsets-not-found",
        "await store.recover_queue_offsets(from_queues_only=again)",
        "",
        "a new master gives queue offsets without having looked which are taken",
    ),
    _of(
        "rocket.autoswitch.tenure",
        "Tenure.acknowledged",
        "old-connection-counts",
        """
        if self.connections.get(connection.slave_id) is not connection:
            return
        """,
        "",
        "acknowledgements over a connection that was replaced still count",
        equivalent="what each slave has is read from the connection that replaced it",
    ),
    _of(
        "rocket.autoswitch.tenure",
        "Tenure._update_confirm_offset",
        "pair-not-waited-for",
        "len(judged) == 1",
        "len(judged) <= 2",
        "a master with one slave confirms without it",
    ),
    _of(
        "rocket.autoswitch.tenure",
        "Tenure.sendable",
        "sends-unflushed",
        "end = self.log.max_offset if self._sends_unflushed else self.log.flushed_offset",
        "end = self.log.written_offset",
        "a master sends what its own power loss would take from it",
    ),
    _of(
        "rocket.autoswitch.client",
        "AutoSwitchHAClient._safe_offset",
        "ack-before-sync",
        "return replicated.flushed_offset if self._slave.acks_flushed"
        " else replicated.written_offset",
        "return replicated.max_offset",
        "a slave acknowledges what it has in memory",
    ),
    _of(
        "rocket.autoswitch.client",
        "AutoSwitchHAClient._first_ack",
        "first-ack-before-sync",
        "await self._safe(end)",
        "",
        "the first acknowledgement of a slave covers what is not on its disk",
    ),
    _of(
        "rocket.autoswitch.client",
        "AutoSwitchHAClient._truncate",
        "epochs-not-cut",
        "await uninterrupted(cache.truncate_suffix(point))",
        "",
        "a slave cuts its log and keeps the epochs of what it cut",
    ),
    _of(
        "rocket.autoswitch.client",
        "AutoSwitchHAClient._handshake",
        "older-master-followed",
        "header.epoch < oldest",
        "header.epoch < oldest - 1",
        "a slave follows, and cuts its log for, a master of the epoch before",
    ),
    _of(
        "rocket.controller.decisions",
        "_why_not",
        "old-master-alters-set",
        "request.master_epoch != sync.master_epoch",
        "request.master_epoch > sync.master_epoch",
        "the controllers take a set from a master of an older epoch",
        equivalent="an election gives the set a new epoch, which is compared next",
    ),
    _of(
        "rocket.controller.decisions",
        "_why_not",
        "stale-report-taken",
        "wanted.sync_state_set_epoch != sync.set_epoch",
        "wanted.sync_state_set_epoch > sync.set_epoch",
        "the controllers take a set that replaces an older one than theirs",
    ),
    _of(
        "rocket.controller.decisions",
        "_elected",
        "same-epoch-again",
        "event = cs.ElectMasterEvent(name, master, sync.master_epoch + 1, is_unclean)",
        "event = cs.ElectMasterEvent(name, master, sync.master_epoch, is_unclean)",
        "a new master is elected in its predecessor's epoch",
    ),
    _of(
        "rocket.controller.elect_policy",
        "_elect_among",
        "dead-master-elected",
        "alive = [broker for broker in brokers if candidates.is_alive(broker)]",
        "alive = list(brokers)",
        "a broker that is not alive may be elected",
    ),
    _of(
        "rocket.controller.elect_policy",
        "_compare",
        "shorter-log-elected",
        "return other.max_offset - one.max_offset or one.priority - other.priority",
        "return one.max_offset - other.max_offset or one.priority - other.priority",
        "of two members of the set the one with the shorter log is elected",
        equivalent="every member of the set has all that was acknowledged",
    ),
    _of(
        "rocket.controller.replicated_state",
        "ReplicatedState._once_certain",
        "answer-before-commit",
        "await asyncio.shield(proposal.committed)",
        "proposal.committed.add_done_callback(lambda done: done.exception())",
        "the controllers' leader answers before its decision is committed",
    ),
    _of(
        "rocket.replicas.manager",
        "ReplicasManager.hear",
        "goes-on-as-master",
        "service.step_down()",
        "",
        "a master that hears of a newer one goes on until it knows where that one is",
    ),
    _of(
        "rocket.commitlog.dispatch",
        "Dispatch._bound",
        "dispatch-beyond-confirmed",
        "bound = min(bound, self.confirm, self._log.max_offset)",
        "",
        "consumers see messages that are not confirmed",
    ),
    _of(
        "rocket.ha.group_transfer",
        "GroupTransferService.is_replicated",
        "any-member-will-do",
        "return all(ack.offset >= next_offset for ack in self._members())",
        "members = list(self._members())\n"
        "return not members or any(ack.offset >= next_offset for ack in members)",
        "a message counts as replicated when one member of the set has it",
    ),
    _of(
        "raft.journal_log",
        "JournalLog.set_hard_state",
        "vote-not-written",
        "self._write(HardRecord(hard))",
        "",
        "a controller forgets its vote and its term when it restarts",
    ),
    _of(
        "raft.applier",
        "Applier.take_snapshot",
        "snapshot-of-older-index",
        "index = self.applied_index",
        "index = self.applied_index - 1",
        "a snapshot is said to be older by one entry than what is in it",
    ),
)
