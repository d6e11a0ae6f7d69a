"""Mirror: a queue process that follows its master.

After rabbit/rabbit_mirror_queue_slave.erl. A message reaches a mirror twice: from its channel,
directly, and from the master, through the ring. Only the master's copy changes the contents, in the
master's order; the channel's copy is kept until then, so that nothing is lost if the master dies
between the two. A mirror confirms a publish when it has seen both copies and, if it must be, the
message is on disk.

A mirror starts empty. It is synchronised when its depth equals the master's: because it was,
because everything older was consumed, or because the contents were copied (sync.py).
"""

from __future__ import annotations

from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored.messages import Synced
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.publish_copies import PublishCopies
from shalott.broker.rabbit.replica.shell import Shell
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.broker.rabbit.storage.entries import Expiry


class Mirror:
    """The contents and the bookkeeping of one mirror."""

    role = "mirror"

    def __init__(self, shell: Shell, queue: BackingQueue, row: QueueRow) -> None:
        self.shell = shell
        self.queue = queue
        self.master = row.pid
        self.depth_delta: int | None = None  # the master's depth less ours; None: not known yet
        self.has_flags = False  # became synchronised: to be recorded by the process
        self.confirms = PublishCopies(shell, queue, is_durable=row.durable)

    @property
    def is_synchronised(self) -> bool:
        return self.depth_delta == 0

    # -- from the master ---------------------------------------------------------------------------

    def apply(self, instruction: ins.Instruction) -> None:
        """Do as the master did. SyncStart and DeleteAndTerminate are the process's business."""
        match instruction:
            case ins.Published(channel, content, delivered, ttl_ms):
                self.confirms.match(channel, content.id, "published")
                expiry = None if ttl_ms is None else self._expiry(ttl_ms * 1_000_000)
                if delivered:
                    mark = self.queue.publish_delivered(content, expiry=expiry)
                else:
                    # The news of a delivery may die with the master, so each counts as delivered.
                    mark = self.queue.publish(content, redelivered=True, expiry=expiry)
                self.confirms.await_durable(mark, content.id)
            case ins.Discarded(channel, message_id):
                self.confirms.match(channel, message_id, "discarded")
            case ins.PublishRefused(channel, message_id):
                self.confirms.match(channel, message_id, "refused")
            case ins.Dropped():
                self._drop(instruction)
            case ins.Acked(ids):
                self._change_delta(len(self.queue.ack(ids)) - len(ids))
            case ins.Requeued(ids):
                self.queue.requeue(ids)
            case ins.Depth(depth):
                self._set_delta(depth - self.queue.messages.depth)
            case ins.SenderDeath(channel):
                self.confirms.sender_down(channel, "gm")

    async def drop_from_disk(self, instruction: ins.Dropped) -> None:
        """``apply``, where some of them may be in no memory. Raises StorageError."""
        queue, needed = self.queue, instruction.ack_required
        wanted = max(0, queue.messages.ready - instruction.remaining)
        count = 0
        if instruction.ids:
            for message_id in instruction.ids:
                await queue.ahead.find_head()
                head = queue.messages.peek()
                if head is not None and head.id == message_id:
                    count += len(queue.drop(1, ack_required=needed))
        elif not instruction.remaining and not needed:
            count = queue.purge()
        else:
            while count < wanted:
                await queue.ahead.find_head()
                count += len(queue.drop(wanted - count, ack_required=needed))
        if not needed:
            self._change_delta(count - instruction.count)

    def _drop(self, instruction: ins.Dropped) -> None:
        # An unsynchronised mirror holds the tail of the master's messages, so it may have less to
        # drop.
        count = max(0, self.queue.messages.ready - instruction.remaining)
        if instruction.ids:
            count = self._drop_those(instruction)
        else:
            self.queue.drop(count, ack_required=instruction.ack_required)
        if not instruction.ack_required:
            self._change_delta(count - instruction.count)

    def _drop_those(self, instruction: ins.Dropped) -> int:
        """What is ready here is ready at the master, in the same order: what was its head is the
        head here, or is not here. Returns how many were."""
        count = 0
        for message_id in instruction.ids:
            head = self.queue.messages.peek()
            if head is not None and head.id == message_id:
                count += len(self.queue.drop(1, ack_required=instruction.ack_required))
        return count

    def _expiry(self, left_ns: int) -> Expiry:
        return Expiry.after(self.shell.env.clock, left_ns)

    def _set_delta(self, delta: int) -> None:
        if delta == 0 and self.depth_delta != 0:
            self.has_flags = True
        self.depth_delta = delta
        self._testify()

    def _testify(self) -> None:
        shell = self.shell
        shell.env.witness("synchronised", shell.key, str(shell.pid), self.is_synchronised)

    def _change_delta(self, change: int) -> None:
        if self.depth_delta is None or change == 0:
            return
        assert self.depth_delta + change >= 0, f"depth delta {self.depth_delta} and {change}"
        self._set_delta(self.depth_delta + change)

    # -- synchronisation ---------------------------------------------------------------------------

    def begin_sync(self) -> None:
        """Throw away what is here: the master sends all of it. Confirms wait until it has."""
        self._start_empty(self._master_depth())

    def _start_empty(self, master_depth: int | None) -> None:
        self.queue.clear()
        self.confirms.forget_marks()
        self.depth_delta = master_depth
        self._testify()

    def abort_sync(self, *, master_lives: bool) -> None:
        """Start empty again, since what came is the oldest part only.

        If the newest messages were added to it, those between would be missing.
        """
        self._start_empty(self.depth_delta)  # still the master's depth: what came did not count
        self.confirms.give_up_owed(master_lives=master_lives)

    def _master_depth(self) -> int | None:
        return None if self.depth_delta is None else self.depth_delta + self.queue.messages.depth

    def take_synced(self, messages: tuple[Synced, ...]) -> None:
        """A batch, in the master's order."""
        for content, unacked, left_ns in messages:
            publish = self.queue.publish_delivered if unacked else self.queue.publish
            expiry = None if left_ns is None else self._expiry(left_ns)
            mark = publish(content, redelivered=True, expiry=expiry, copy_may_come=True)
            self.confirms.synced(mark, content.id)

    def finish_sync(self) -> None:
        """All that the master has is here."""
        self._set_delta(0)
        self.confirms.sync_ended(self.queue.messages)
