"""PublishCopies: what a mirror has seen of each publish, from its channel and by the ring.

After rabbit/rabbit_mirror_queue_slave.erl (sender_queues, msg_id_status). A publish is confirmed
when both copies were seen and, if it must be, the message is on disk.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from shalott.broker.rabbit.amqp.queue_protocol import Publish
from shalott.broker.rabbit.mirrored.messages import SenderDeathTimer
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.confirms import (
    DurableMarks,
    Inheritance,
    Outbox,
    testify_confirm,
)
from shalott.broker.rabbit.replica.shell import Shell
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.broker.rabbit.storage.message_table import MessageTable

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


class PublishCopies:
    """Of one mirror."""

    def __init__(self, shell: Shell, queue: BackingQueue, *, is_durable: bool) -> None:
        self.outbox = Outbox(shell.pid, shell.key)
        self._shell = shell
        self._queue = queue
        self._is_durable = is_durable
        self._statuses: dict[int, Status] = {}
        self._senders: dict[Pid, Sender] = {}
        self._marks = DurableMarks()

    @property
    def owed_count(self) -> int:
        """Publishes that wait for their confirm."""
        return sum(isinstance(status, Publish) for status in self._statuses.values())

    # -- from channels -----------------------------------------------------------------------------

    def publish(self, message: Publish) -> None:
        """A channel's copy."""
        sender = self._sender(message.channel)
        self._testify("mirror.takes", message.content.id, message.seq is not None)
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
            self._refuse(message.channel, message.seq, message.content.id)
        elif status == "published" and self._is_durable and message.content.persistent:
            self._statuses[message.content.id] = message
        else:
            self._confirm(message)

    def _confirm(self, message: Publish) -> None:
        assert message.seq is not None
        testify_confirm(self._shell, self._queue, message.content.id)
        self._testify("mirror.confirms", message.content.id)
        self.outbox.confirm(message.channel, message.seq)
        if self.outbox.is_full:
            self.flush()

    def _refuse(self, channel: Pid, seq: int, message_id: int) -> None:
        self._testify("refuses", message_id)
        self.outbox.refuse(channel, seq)

    def _testify(self, what: str, *details: object) -> None:
        self._shell.env.witness(what, self._shell.pid, *details)

    def flush(self) -> None:
        for channel, letter in self.outbox.take(self._shell.env.clock.monotonic_ns()):
            self._shell.send(channel, letter)

    def durable_advanced(self) -> None:
        for message_id in self._marks.reached(self._queue.index.durable_mark):
            self._safe(message_id)
        self.flush()

    def await_durable(self, mark: int, message_id: int) -> None:
        if mark <= self._queue.index.durable_mark:
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
            self._shell.monitor(channel)
        return sender

    # -- from the ring -----------------------------------------------------------------------------

    def match(self, channel: Pid, message_id: int, status: Status) -> None:
        """Bring the ring's copy together with the channel's."""
        sender = self._sender(channel)
        self._testify("ring.brought", message_id)
        if not sender.waiting:
            sender.pending[message_id] = None
            self._statuses[message_id] = status
        elif sender.waiting[0].content.id == message_id:
            assert not isinstance(status, Publish)
            self._confirm_or_wait(status, sender.waiting.popleft())
        # Else the channel sent it before it knew of this mirror: no copy will come, no confirm is
        # wanted.

    # -- deaths ------------------------------------------------------------------------------------

    def channel_down(self, channel: Pid) -> None:
        if channel in self._senders:
            self._shell.after(SENDER_DEATH_MS, SenderDeathTimer(channel))
            self.sender_down(channel, "channel")

    def remind_master(self, channel: Pid) -> None:
        """It may not know the channel at all, if that died before a single message got there."""
        if channel in self._senders:
            self._shell.broadcast(ins.EnsureMonitoring((channel,)))
            self._shell.after(SENDER_DEATH_MS, SenderDeathTimer(channel))

    def sender_down(self, channel: Pid, where: Literal["gm", "channel"]) -> None:
        sender = self._senders.get(channel)
        if sender is None:
            return
        if sender.down in ("", where):
            sender.down = where
            return
        del self._senders[channel]
        for message_id in sender.pending:
            self._statuses.pop(message_id, None)
        self._testify("mirror.forgets", [message.content.id for message in sender.waiting])
        self._shell.demonitor(channel)

    # -- synchronisation ---------------------------------------------------------------------------

    def forget_marks(self) -> None:
        """The contents were thrown away: confirms wait until they are here again."""
        self._marks.clear()

    def give_up_owed(self, *, master_lives: bool) -> None:
        """A publish that is owed a confirm is only at the master now; if the master is dead, it may
        be lost."""
        owed = [s for s in self._statuses.values() if isinstance(s, Publish)]
        for message in owed:
            del self._statuses[message.content.id]
            if master_lives:
                self._confirm(message)
            elif message.seq is not None:
                self._refuse(message.channel, message.seq, message.content.id)
        self.flush()

    def synced(self, mark: int, message_id: int) -> None:
        """A synchronisation brought it."""
        if message_id in self._statuses:
            self.await_durable(mark, message_id)

    def sync_ended(self, messages: MessageTable) -> None:
        """What the master didn't send has been consumed: a confirm for it waits for nothing."""
        for message_id in [i for i in self._statuses if i not in messages]:
            self._safe(message_id)

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
