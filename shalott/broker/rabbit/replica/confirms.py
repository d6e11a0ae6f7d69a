"""Which publishes a queue process still has to confirm, and when it did.

A publish is confirmed to its channel once the message is safe here: at once if it needn't be on
disk, else when the backing queue's durable mark has reached it. Confirms leave in batches, one
message a channel.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from shalott.broker.rabbit.amqp.queue_protocol import Confirmed, Publish, Refused
from shalott.broker.rabbit.mirrored.messages import FlushAcked
from shalott.broker.rabbit.processes.messages import Message, Pid
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.shell import Shell
from shalott.broker.rabbit.storage.backing_queue import BackingQueue

BATCH_MAX = 64


class DurableMarks:
    """Message ids in the order in which they become durable."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int]] = deque()

    def add(self, mark: int, message_id: int) -> None:
        self._waiting.append((mark, message_id))

    def clear(self) -> None:
        self._waiting.clear()

    def reached(self, durable_mark: int) -> list[int]:
        """Ids that have become durable."""
        ids = []
        while self._waiting and self._waiting[0][0] <= durable_mark:
            ids.append(self._waiting.popleft()[1])
        return ids


class AckedInterval(msgspec.Struct, frozen=True):
    """Publishes that were confirmed between two instants of this node's clock."""

    first_ns: int
    last_ns: int
    count: int


class Outbox:
    """Confirms and refusals on their way to channels."""

    def __init__(self, process: Pid, queue: str) -> None:
        self._process = process
        self._queue = queue
        self._confirmed: dict[Pid, list[int]] = {}
        self._refused: dict[Pid, list[int]] = {}
        self.size = 0  # what waits: confirms and refusals
        self._interval: AckedInterval | None = None

    def confirm(self, channel: Pid, seq: int) -> None:
        self._confirmed.setdefault(channel, []).append(seq)
        self.size += 1

    def refuse(self, channel: Pid, seq: int) -> None:
        self._refused.setdefault(channel, []).append(seq)
        self.size += 1

    @property
    def is_full(self) -> bool:
        return self.size >= BATCH_MAX

    @property
    def has_confirms(self) -> bool:
        return bool(self._confirmed)

    def take(self, now_ns: int) -> list[tuple[Pid, Message]]:
        """What to send now, to whom."""
        if not self.size:
            return []
        if self._confirmed:
            first = now_ns if self._interval is None else self._interval.first_ns
            count = 0 if self._interval is None else self._interval.count
            count += sum(len(seqs) for seqs in self._confirmed.values())
            self._interval = AckedInterval(first, now_ns, count)
        letters: list[tuple[Pid, Message]] = []
        for channel, seqs in self._confirmed.items():
            letters.append((channel, Confirmed(self._process, self._queue, tuple(seqs))))
        for channel, seqs in self._refused.items():
            letters.append((channel, Refused(self._process, self._queue, tuple(seqs))))
        self._confirmed, self._refused, self.size = {}, {}, 0
        return letters

    @property
    def has_interval(self) -> bool:
        return self._interval is not None

    def take_interval(self) -> AckedInterval | None:
        """What was confirmed since this was last asked."""
        interval, self._interval = self._interval, None
        return interval


def testify_confirm(shell: Shell, queue: BackingQueue, message_id: int) -> None:
    """``shell``'s process is about to confirm it. It may have been consumed meanwhile."""
    entry = queue.messages.entries.get(message_id)
    content = None if entry is None else entry.content
    if content is not None and content.persistent and queue.index.is_durable:
        shell.env.witness("durable", shell.key, queue.directory, message_id)


# -- promotion -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Inheritance:
    """What a promoted mirror hands to the master that it becomes; empty for one that starts as
    master.

    ``seen``: messages that came by GM and not yet from their channel (published, confirmed,
    discarded or refused). ``owed``: confirms that are due when the message is durable.
    ``deliveries``: what came from channels only.
    """

    seen: dict[int, str] = field(default_factory=dict)
    owed: dict[int, tuple[Pid, int]] = field(default_factory=dict)
    marks: DurableMarks = field(default_factory=DurableMarks)
    senders: tuple[Pid, ...] = ()
    deliveries: list[Publish] = field(default_factory=list)


# -- masters ---------------------------------------------------------------------------------------

# MasterConfirms: which publishes a master still owes a confirm for, and what each waits for.
#
# A publish is confirmed when it is as safe here as it must be: durable, if it has to be, and
# carried by the ring, if a mirror depends on the ring for it. A promoted mirror knows of publishes
# that its channels have not sent it yet: those are confirmed when the channel's copy comes.

ACKED_INTERVAL_MS = 100


class MasterConfirms:
    """Of one master. ``outbox`` holds what is due until ``flush``."""

    def __init__(self, shell: Shell, queue: BackingQueue, heritage: Inheritance) -> None:
        self._shell = shell
        self._queue = queue
        self.outbox = Outbox(shell.pid, shell.key)
        self._seen = heritage.seen
        self._owed = heritage.owed
        self._marks = heritage.marks
        self._in_ring: dict[int, bool] = {}  # message id -> whether it is safe here
        self._acked_timer_runs = False
        self._unheard: tuple[AckedInterval, int] | None = None  # with the ring's mark

    # -- publishes ---------------------------------------------------------------------------------

    def owe(self, message: Publish) -> None:
        """If its channel wants a confirm."""
        if message.seq is not None:
            self._owed[message.content.id] = (message.channel, message.seq)

    @property
    def owed_count(self) -> int:
        """Publishes that wait for their confirm."""
        return len(self._owed)

    def owed_ids(self) -> list[int]:
        """Of which messages those are."""
        return list(self._owed)

    def refuse(self, message: Publish) -> None:
        """The same channel gets a refusal instead."""
        if message.seq is not None:
            self._shell.env.witness("refuses", self._shell.pid, message.content.id)
            self.outbox.refuse(message.channel, message.seq)

    def took_in_ring(self, message: Publish, *, must_be_durable: bool) -> bool:
        """Whether the queue has ``message`` from the ring already, of the time when this was a
        mirror. Then its confirm is seen to.
        """
        message_id = message.content.id
        status = self._seen.pop(message_id, None)
        if status is None:
            if message_id not in self._queue.messages:
                return False
            # It came with a synchronisation, and again from its channel.
            self.owe(message)
            self.await_durable(self._queue.index.mark, message_id)
        elif status == "refused":
            self.refuse(message)
        else:
            self.owe(message)
            if status != "published" or not must_be_durable:
                self.confirm(message_id)
        return True

    def forget_channel(self, channel: Pid) -> None:
        """Its confirms are not waited for any more."""
        for message_id in [m for m, (owed_to, _) in self._owed.items() if owed_to == channel]:
            del self._owed[message_id]

    # -- what they wait for ------------------------------------------------------------------------

    def await_durable(self, mark: int, message_id: int) -> None:
        """It is safe here when the queue's durable mark reaches ``mark``."""
        if mark <= self._queue.index.durable_mark:
            self._safe(message_id)
        else:
            self._marks.add(mark, message_id)

    def broadcast_awaited(self, instruction: ins.Instruction, message_id: int) -> None:
        """Tell the ring, and wait until it has carried that to every mirror."""
        self._in_ring[message_id] = False
        self._shell.broadcast_confirmed(instruction, message_id)

    def durable_advanced(self) -> None:
        for message_id in self._marks.reached(self._queue.index.durable_mark):
            self._safe(message_id)
        self.flush()

    def ring_has(self, message_id: int) -> None:
        """Every mirror has delivered it."""
        if self._in_ring.pop(message_id, False):
            self._safe(message_id)

    def _safe(self, message_id: int) -> None:
        """The message is as safe here as it must be."""
        if message_id in self._in_ring:
            self._in_ring[message_id] = True
        elif message_id in self._seen:
            self._seen[message_id] = "confirmed"  # its channel's copy is still to come
        else:
            self.confirm(message_id)

    # -- sending -----------------------------------------------------------------------------------

    def confirm(self, message_id: int) -> None:
        """It waits for nothing more."""
        owed = self._owed.pop(message_id, None)
        if owed is None:
            return
        testify_confirm(self._shell, self._queue, message_id)
        shell = self._shell
        shell.env.witness("master.confirms", shell.pid, message_id, shell.mirrors_in_ring)
        self.outbox.confirm(*owed)
        if self.outbox.is_full:
            self.flush()

    def flush(self) -> None:
        """Send the confirms that have gathered. Outside the majority they are held: another may be
        master by now, and this one soon learns it.
        """
        if not self.outbox.size:
            return
        if self.outbox.has_confirms:
            self._start_acked_timer()
        if not self._shell.metadata.is_in_majority():
            return
        for channel, letter in self.outbox.take(self._shell.env.clock.monotonic_ns()):
            self._shell.send(channel, letter)

    # -- the event log -----------------------------------------------------------------------------

    def acked_timer_fired(self) -> None:
        self._acked_timer_runs = False
        self.emit_acked()
        self.flush()

    def emit_acked(self) -> None:
        """Tell the log when publishes were confirmed.

        Where tables need a majority, only of what the ring has brought home: a master that was
        replaced without knowing it confirms to channels that wait for its mirrors in vain, so no
        client hears of that.
        """
        if self._unheard is None and (interval := self.outbox.take_interval()) is not None:
            self._unheard = interval, self._shell.ring_mark()
        if self._unheard is not None:
            interval, mark = self._unheard
            if not self._shell.metadata.needs_majority or self._shell.ring_is_home(mark):
                self._unheard = None
                self._shell.emit(
                    "acked",
                    first_ns=interval.first_ns,
                    last_ns=interval.last_ns,
                    count=interval.count,
                )
        if self._unheard is not None or self.outbox.has_interval:
            self._start_acked_timer()

    def _start_acked_timer(self) -> None:
        if not self._acked_timer_runs:
            self._acked_timer_runs = True
            self._shell.after(ACKED_INTERVAL_MS, FlushAcked())
