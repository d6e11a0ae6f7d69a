"""Mutants by hand of mirrored queues besides the ring: limits, paging, recovery, tables."""

from __future__ import annotations

from shalott.harness.mutants.by_hand import ByHand
from shalott.harness.mutants.mutant import Mutant

_of = ByHand("mirrored")

MIRRORED_FEATURES: tuple[Mutant, ...] = (
    _of(
        "rabbit.amqp.publishing",
        "Publisher.publish",
        "copies-not-routed",
        "properties.also",
        "()",
        "what names its queue in CC and BCC comes to none",
    ),
    _of(
        "rabbit.amqp.properties",
        "without_bcc",
        "bcc-shown",
        "field[0] != _BCC",
        "True",
        "consumers see who else got a message by BCC",
    ),
    _of(
        "rabbit.amqp.exchanges",
        "Router.route",
        "once-for-each-key",
        "list(dict.fromkeys(keys))",
        "list(keys)",
        "a queue that is named twice gets a message twice",
    ),
    _of(
        "rabbit.replica.sync",
        "MasterSync._send",
        "sync-without-expiry",
        "h.expiry and h.expiry.left_ns(clock)",
        "None",
        "what a mirror got by a synchronisation never expires there",
    ),
    _of(
        "rabbit.replica.dispatch",
        "Dispatch.deliver_at_once",
        "delivered-at-once-never-expires",
        "self._queue.publish_delivered(content, expiry=self._limits.expiry(ttl_ms))",
        "self._queue.publish_delivered(content)",
        "a message that went straight to a consumer does not expire when it comes back",
    ),
    _of(
        "rabbit.replica.limits",
        "Limits._may_drop",
        "paged-not-passed-on",
        "head is None or (head.content is None and self.passes_on)",
        "head is None",
        "what expires, or is too much, while it is paged out is not dead-lettered",
    ),
    _of(
        "rabbit.storage.entries",
        "entry_of",
        "read-back-unrecorded",
        "entry.record_bytes = paged.record_bytes",
        "",
        "a message that was paged out and read back counts as one without a record in the journal",
    ),
    _of(
        "rabbit.storage.message_order",
        "Line.cut",
        "near-behind-delta",
        "self.delta.appendleft(segment_of(taken))",
        "self.delta.append(segment_of(taken))",
        "what leaves memory on the near side comes back behind what had left before it",
    ),
    _of(
        "rabbit.storage.recovery",
        "Replay.finish",
        "opening-not-noted",
        """
        if isinstance(self._last, Closed):
            # Durable before the first delivery of this life.
            journal.append(encode_record(Opened()))
            await journal.flush()
        """,
        "",
        "what is delivered after an orderly restart comes without its flag after a crash",
    ),
    _of(
        "base.journal",
        "Journal._replace",
        "old-ordinal-goes-on",
        "self._size, self._ordinal = size, ordinal",
        "self._size = size",
        "what a journal takes after its compaction is not understood by the next life",
    ),
    _of(
        "rabbit.amqp.deliveries",
        "Deliveries.process_down",
        "stale-keeps-its-place",
        "self.counted -= delivery.counted",
        "",
        "what a dead queue process had delivered counts against its channel's prefetch for ever",
    ),
    _of(
        "rabbit.replica.consumers",
        "Consumers.drop_channel",
        "in-question-for-ever",
        """
        if self.in_question is not None and self.in_question[0] == channel:
            self.in_question = None
        """,
        "",
        "a queue waits for ever for a dead channel to say whether it has room",
    ),
    _of(
        "rabbit.replica.mirror",
        "Mirror.finish_sync",
        "consumed-meanwhile-owed",
        "self.confirms.sync_ended(self.queue.messages)",
        "",
        "a mirror never confirms what it was owed for and was consumed before a synchronisation",
    ),
    _of(
        "rabbit.mirrored.storage",
        "QueueStorage.recover",
        "recovered-without-priorities",
        """
        BackingQueue.recover(
            self._disk, self.directory(row.key), max_priority=levels, clock=self._clock, pages=pages
        )
        """,
        """
        BackingQueue.recover(
            self._disk, self.directory(row.key), clock=self._clock, pages=pages
        )
        """,
        "a recovered queue knows no priorities, and its mirrors drop other messages than it",
    ),
    _of(
        "rabbit.amqp.confirms",
        "UnconfirmedMessages.take_acks",
        "multiple-over-undecided",
        "next(iter(self._debts), None)",
        "max(self._debts, default=None)",
        "an acknowledgement of many covers publishes that are not decided yet",
    ),
    _of(
        "rabbit.gm.member",
        "Member._take",
        "catchup-not-forwarded",
        "self.broadcasts.forward(message.states)",
        "",
        "a newcomer keeps to itself what its right neighbour may have missed while it joined",
    ),
    _of(
        "rabbit.mirrored.rows",
        "store",
        "durable-row-written-once",
        "tx.read(DURABLE, row.key) != durable",
        "tx.read(DURABLE, row.key) is None",
        "a restarted cluster recovers a queue from its first master, not from its last",
    ),
    _of(
        "rabbit.metadata.raft_log",
        "ReplicatedTables.restore",
        "image-without-members",
        "self.members = {member.node: member for member in found.members}",
        "",
        "a node that begins with a snapshot refuses what others write",
    ),
    _of(
        "rabbit.metadata.tables",
        "Tables.snapshot",
        "tombstones-left-out",
        """
        [
            StoredRow(table, key, row.version, row.record)
            for table, rows in self._tables.items()
            for key, row in sorted(rows.items())
        ]
        """,
        """
        [
            StoredRow(table, key, row.version, row.record)
            for table, rows in self._tables.items()
            for key, row in sorted(rows.items())
            if row.record is not None
        ]
        """,
        "a node that begins with a snapshot has another version of deleted rows than the others",
    ),
)
