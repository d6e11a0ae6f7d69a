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

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from shalott.broker.rabbit.amqp.queue_protocol import Publish
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored.messages import SenderDeathTimer, Synced
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.confirms import DurableMarks, Inheritance, Outbox
from shalott.broker.rabbit.replica.shell import Shell
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.broker.rabbit.storage.entries import Expiry

# How long after a channel's death the master is reminded of it, if it hasn't said anything.
SENDER_DEATH_MS = 20_000

# published: by the ring only. confirmed: the same, and durable. discarded: by the ring, and nothing
# is left of it. A Publish: seen from both, and owed a confirm when it is durable.
Status = Literal["published", "confirmed", "discarded", "refused"] | Publish


@dataclass(slots=True)
class Sender:
    """A channel that publishes to this queue. It is forgotten when its death was heard from both
    sides.
    """

    waiting: deque[Publish] = field(default_factory=deque)  # from the channel, not yet by the ring
    pending: dict[int, None] = field(default_factory=dict)  # by the ring, not yet from the channel
    down: Literal["", "gm", "channel"] = ""


class Mirror:
    """The contents and the bookkeeping of one mirror."""

    role = "mirror"

    def __init__(self, shell: Shell, queue: BackingQueue, row: QueueRow) -> None:
        self.shell = shell
        self.queue = queue
        self.is_durable = row.durable
        self.master = row.pid
        self.outbox = Outbox(shell.pid, shell.key)
        self.depth_delta: int | None = None  # the master's depth less ours; None: not known yet
        self.has_flags = False  # became synchronised: to be recorded by the process
        self._statuses: dict[int, Status] = {}
        self._senders: dict[Pid, Sender] = {}
        self._marks = DurableMarks()

    @property
    def is_synchronised(self) -> bool:
        return self.depth_delta == 0

    # -- from channels -----------------------------------------------------------------------------

    def publish(self, message: Publish) -> None:
        """A channel's copy."""
        sender = self._sender(message.channel)
        status = self._statuses.pop(message.content.id, None)
        if status is None:
            sender.waiting.append(message)
            return
        sender.pending.pop(message.content.id, None)
        assert not isinstance(status, Publish), "a channel sends a message once"
        self._confirm_or_wait(status, message)

    def _confirm_or_wait(self, status: str, message: Publish) -> None:
        """Both copies were seen."""
        if message.seq is None:
            return
        if status == "refused":
            self.outbox.refuse(message.channel, message.seq)
        elif status == "published" and self.is_durable and message.content.persistent:
            self._statuses[message.content.id] = message
        else:
            self._confirm(message)

    def _confirm(self, message: Publish) -> None:
        assert message.seq is not None
        self.outbox.confirm(message.channel, message.seq)
        if self.outbox.is_full:
            self.flush()

    def flush(self) -> None:
        for channel, letter in self.outbox.take(self.shell.env.clock.monotonic_ns()):
            self.shell.send(channel, letter)

    def durable_advanced(self) -> None:
        for message_id in self._marks.reached(self.queue.index.durable_mark):
            self._safe(message_id)
        self.flush()

    def _await(self, mark: int, message_id: int) -> None:
        if mark <= self.queue.index.durable_mark:
            self._safe(message_id)
        else:
            self._marks.add(mark, message_id)

    def _safe(self, message_id: int) -> None:
        status = self._statuses.get(message_id)
        if isinstance(status, Publish):
            del self._statuses[message_id]
            self._confirm(status)
        elif status == "published":
            self._statuses[message_id] = "confirmed"

    def _sender(self, channel: Pid) -> Sender:
        sender = self._senders.get(channel)
        if sender is None:
            sender = self._senders[channel] = Sender()
            self.shell.monitor(channel)
        return sender

    # -- from the master ---------------------------------------------------------------------------

    def apply(self, instruction: ins.Instruction) -> None:
        """Do as the master did. SyncStart and DeleteAndTerminate are the process's business."""
        match instruction:
            case ins.Published(channel, content, delivered, ttl_ms):
                self._match(channel, content.id, "published")
                expiry = None if ttl_ms is None else self._expiry(ttl_ms * 1_000_000)
                if delivered:
                    mark = self.queue.publish_delivered(content, expiry=expiry)
                else:
                    # The news of a delivery may die with the master, so each counts as delivered.
                    mark = self.queue.publish(content, redelivered=True, expiry=expiry)
                self._await(mark, content.id)
            case ins.Discarded(channel, message_id):
                self._match(channel, message_id, "discarded")
            case ins.PublishRefused(channel, message_id):
                self._match(channel, message_id, "refused")
            case ins.Dropped():
                self._drop(instruction)
            case ins.Acked(ids):
                self._change_delta(len(self.queue.ack(ids)) - len(ids))
            case ins.Requeued(ids):
                self.queue.requeue(ids)
            case ins.Depth(depth):
                self._set_delta(depth - self.queue.messages.depth)
            case ins.SenderDeath(channel):
                self._sender_down(channel, "gm")

    def _match(self, channel: Pid, message_id: int, status: Status) -> None:
        """Bring the ring's copy together with the channel's."""
        sender = self._sender(channel)
        if not sender.waiting:
            sender.pending[message_id] = None
            self._statuses[message_id] = status
        elif sender.waiting[0].content.id == message_id:
            assert not isinstance(status, Publish)
            self._confirm_or_wait(status, sender.waiting.popleft())
        # Else the channel sent it before it knew of this mirror: no copy will come, no confirm is
        # wanted.

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

    def _change_delta(self, change: int) -> None:
        if self.depth_delta is None or change == 0:
            return
        assert self.depth_delta + change >= 0, f"depth delta {self.depth_delta} and {change}"
        self._set_delta(self.depth_delta + change)

    # -- deaths ------------------------------------------------------------------------------------

    def channel_down(self, channel: Pid) -> None:
        if channel in self._senders:
            self.shell.after(SENDER_DEATH_MS, SenderDeathTimer(channel))
            self._sender_down(channel, "channel")

    def remind_master(self, channel: Pid) -> None:
        """It may not know the channel at all, if that died before a single message got there."""
        if channel in self._senders:
            self.shell.broadcast(ins.EnsureMonitoring((channel,)))
            self.shell.after(SENDER_DEATH_MS, SenderDeathTimer(channel))

    def _sender_down(self, channel: Pid, where: Literal["gm", "channel"]) -> None:
        sender = self._senders.get(channel)
        if sender is None:
            return
        if sender.down in ("", where):
            sender.down = where
            return
        del self._senders[channel]
        for message_id in sender.pending:
            self._statuses.pop(message_id, None)
        self.shell.demonitor(channel)

    # -- synchronisation ---------------------------------------------------------------------------

    def begin_sync(self) -> None:
        """Throw away what is here: the master sends all of it. Confirms wait until it has."""
        master_depth = self._master_depth()
        self.queue.clear()
        self._marks.clear()
        self.depth_delta = master_depth

    def abort_sync(self, *, master_lives: bool) -> None:
        """Start empty again, since what came is the oldest part only.

        If the newest messages were added to it, those between would be missing. A publish that is
        owed a confirm is only at the master now; if the master is dead, it may be lost.
        """
        self.begin_sync()
        owed = [s for s in self._statuses.values() if isinstance(s, Publish)]
        for message in owed:
            del self._statuses[message.content.id]
            if master_lives:
                self._confirm(message)
            elif message.seq is not None:
                self.outbox.refuse(message.channel, message.seq)
        self.flush()

    def _master_depth(self) -> int | None:
        return None if self.depth_delta is None else self.depth_delta + self.queue.messages.depth

    def take_synced(self, messages: tuple[Synced, ...]) -> None:
        """A batch, in the master's order."""
        for content, unacked, left_ns in messages:
            publish = self.queue.publish_delivered if unacked else self.queue.publish
            expiry = None if left_ns is None else self._expiry(left_ns)
            mark = publish(content, redelivered=True, expiry=expiry, copy_may_come=True)
            if content.id in self._statuses:
                self._await(mark, content.id)

    def finish_sync(self) -> None:
        """What the master didn't send has been consumed: a confirm for it waits for nothing."""
        self._set_delta(0)
        for message_id in [i for i in self._statuses if i not in self.queue.messages]:
            self._safe(message_id)

    # -- promotion ---------------------------------------------------------------------------------

    def inheritance(self) -> Inheritance:
        """What the master needs to know that this mirror becomes."""
        seen: dict[int, str] = {}
        owed: dict[int, tuple[Pid, int]] = {}
        for message_id, status in self._statuses.items():
            if not isinstance(status, Publish):
                seen[message_id] = status
            elif status.seq is not None:
                owed[message_id] = (status.channel, status.seq)
        return Inheritance(
            seen=seen,
            owed=owed,
            marks=self._marks,
            senders=tuple(c for c, sender in self._senders.items() if sender.down != "channel"),
            deliveries=[m for sender in self._senders.values() for m in sender.waiting],
        )
