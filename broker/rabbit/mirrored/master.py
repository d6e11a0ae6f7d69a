"""Master: the process that serves a queue.

It does what RabbitMQ spreads over rabbit_amqqueue_process (publishers, consumers, settling,
limits), rabbit_mirror_queue_master (every change is told to the mirrors, in order) and
rabbit_mirror_queue_coordinator (death of channels, depth for new mirrors). It works alike with no
mirrors at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shalott.broker.rabbit.amqp.queue_protocol import (
    CancelConsumer,
    ChannelLimit,
    Consume,
    ConsumerCancelled,
    Count,
    Deliver,
    Get,
    Got,
    GotEmpty,
    Publish,
    Purge,
    Settle,
    Stat,
    Stats,
)
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import instructions as ins
from shalott.broker.rabbit.mirrored.confirms import AckedInterval, DurableMarks, Outbox
from shalott.broker.rabbit.mirrored.consumers import Consumers
from shalott.broker.rabbit.mirrored.limits import Limits
from shalott.broker.rabbit.mirrored.messages import FlushAcked
from shalott.broker.rabbit.mirrored.shell import Shell
from shalott.broker.rabbit.processes.messages import Done, Failed, Message, Pid
from shalott.broker.rabbit.storage.backing_queue import BackingQueue, Fetched

ACKED_INTERVAL_MS = 100


@dataclass(slots=True)
class Inheritance:
    """What a promoted mirror hands to the master that it becomes; empty for one that starts as
    master.

    ``seen``: messages that came by GM and not yet from their channel (published, confirmed or
    discarded). ``owed``: confirms that are due when the message is durable. ``deliveries``: what
    came from channels only.
    """

    seen: dict[int, str] = field(default_factory=dict)
    owed: dict[int, tuple[Pid, int]] = field(default_factory=dict)
    marks: DurableMarks = field(default_factory=DurableMarks)
    senders: tuple[Pid, ...] = ()
    deliveries: list[Publish] = field(default_factory=list)


class Master:
    """The queue's contents and users. Handlers are synchronous: what they tell others goes through
    ``shell``.
    """

    role = "master"

    def __init__(
        self, shell: Shell, queue: BackingQueue, row: QueueRow, heritage: Inheritance
    ) -> None:
        self.shell = shell
        self.queue = queue
        self.is_durable = row.durable
        self.auto_delete = row.auto_delete
        self.exclusive_owner = row.exclusive_owner
        self.limits = Limits(shell, queue, row)
        # Ack ids start at random, so that none of a former master's can be taken for one of ours.
        self.consumers = Consumers(
            shell.env.rng.getrandbits(60),
            single_active=row.arguments.get("x-single-active-consumer") is True,
        )
        self.outbox = Outbox(shell.pid, shell.key)
        self.is_deletable = False  # auto-delete or exclusive, and its last user is gone
        self._seen = heritage.seen
        self._owed = heritage.owed
        self._marks = heritage.marks
        self._in_ring: dict[int, bool] = {}  # message id -> whether it is safe here
        self._acked_timer_runs = False
        self._unheard: tuple[AckedInterval, int] | None = None  # with the ring's mark
        if row.exclusive_owner is not None:
            shell.monitor(row.exclusive_owner)
        for channel in heritage.senders:
            shell.monitor(channel)
        self.limits.note_present()
        self._deliveries = heritage.deliveries

    def take_deliveries(self) -> None:
        """What came from channels when this was a mirror, and was never told by the dead master."""
        deliveries, self._deliveries = self._deliveries, []
        for delivery in deliveries:
            self.publish(delivery)

    @property
    def has_flags(self) -> bool:
        """Whether there is something for the process to do."""
        return self.is_deletable or self.limits.is_unused

    # -- messages and calls ------------------------------------------------------------------------

    def handle(self, message: Message) -> bool:
        """Whether ``message`` was one that a master knows."""
        match message:
            case Publish():
                self.publish(message)
            case Settle():
                self.settle(message)
            case ChannelLimit(channel, prefetch):
                self.shell.monitor(channel)
                self.consumers.set_limit(channel, prefetch)
                self.deliver_ready()
            case FlushAcked():
                self._acked_timer_runs = False
                self.emit_acked()
                self.flush()
            case _:
                in_use = len(self.consumers) > 0
                return self.limits.handle(message, self._expire, in_use=in_use)
        return True

    def handle_call(self, request: Message) -> Message | None:
        match request:
            case Get():
                return self.get(request)
            case Consume():
                return self.consume(request)
            case CancelConsumer(channel, tag):
                if self.consumers.cancel(channel, tag):
                    self._user_left()
                return Done()
            case Purge():
                return Count(self.purge())
            case Stat():
                return self.stats("running")
        return None

    def stats(self, state: str) -> Stats:
        return Stats(self.queue.ready, self.queue.unacked, len(self.consumers), state)

    # -- publishing --------------------------------------------------------------------------------

    def publish(self, message: Publish) -> None:
        content = message.content
        self.shell.monitor(message.channel)
        if self._is_known(message):
            return
        if self.limits.refuses(content):
            self.limits.refused(content)
            # Mirrors hold the channel's copy already: tell them that nothing will come of it.
            self.shell.broadcast(ins.Discarded(message.channel, content.id))
            if message.seq is not None:
                self.outbox.refuse(message.channel, message.seq)
            return
        if message.seq is not None:
            self._owed[content.id] = (message.channel, message.seq)
        if not self._deliver_at_once(message):
            mark = self.queue.publish(content)
            self.limits.note(content)
            self._tell(message, ins.Published(message.channel, content))
            self._await(mark, content.id)
            self._expire()
            self.deliver_ready()
            self.limits.trim()

    def _is_known(self, message: Publish) -> bool:
        """Whether this process took it when it was a mirror, by way of the ring."""
        content = message.content
        status = self._seen.pop(content.id, None)
        if status is None:
            if (
                content.id in self.queue
            ):  # it came with a synchronisation, and again from its channel
                self._owe(message)
                self._await(self.queue.mark(), content.id)
                return True
            return False
        self._owe(message)
        must_be_durable = self.is_durable and content.persistent
        if status != "published" or not must_be_durable:
            self._confirm(content.id)
        return True

    def _owe(self, message: Publish) -> None:
        if message.seq is not None:
            self._owed[message.content.id] = (message.channel, message.seq)

    def _deliver_at_once(self, message: Publish) -> bool:
        """To a consumer that is waiting, past the queue, if there is nothing in it."""
        if self.queue.ready:
            return False
        consumer = self.consumers.next_ready()
        if consumer is None:
            return False
        content, request = message.content, consumer.request
        if request.no_ack:
            self.shell.broadcast(ins.Discarded(message.channel, content.id))
            ack_id = self.consumers.next_ack_id()
            self._confirm(content.id)
        else:
            mark = self.queue.publish_delivered(content)
            self._tell(message, ins.Published(message.channel, content, delivered=True))
            ack_id = self.consumers.delivered(request.channel, content.id, consumer)
            self._await(mark, content.id)
        self.shell.send(
            request.channel, Deliver(self.shell.pid, request.tag, ack_id, False, content)
        )
        return True

    def _tell(self, message: Publish, instruction: ins.Published) -> None:
        """To the mirrors; and find out whether one of them depends on the ring for it.

        The channel waits for those that it sent the message to. A mirror that it didn't know has
        the ring's copy only, which is lost if this process dies while the ring is broken: so the
        confirm waits for the ring. (The original does not wait, and can lose such a message after
        confirming it.)
        """
        if (
            message.seq is None
            or not message.sent_to
            or all(mirror in message.sent_to for mirror in self.shell.mirrors())
            or self.shell.env.has_bug("OUR-02")  # OUR-02: as the original does
        ):
            self.shell.broadcast(instruction)
        else:
            self._in_ring[message.content.id] = False
            self.shell.broadcast_confirmed(instruction, message.content.id)

    def ring_has(self, message_id: int) -> None:
        """Every mirror has delivered it."""
        if self._in_ring.pop(message_id, False):
            self._safe(message_id)

    # -- confirms ----------------------------------------------------------------------------------

    def _await(self, mark: int, message_id: int) -> None:
        if mark <= self.queue.durable_mark:
            self._safe(message_id)
        else:
            self._marks.add(mark, message_id)

    def durable_advanced(self) -> None:
        for message_id in self._marks.reached(self.queue.durable_mark):
            self._safe(message_id)
        self.flush()

    def _safe(self, message_id: int) -> None:
        """The message is as safe here as it must be."""
        if message_id in self._in_ring:
            self._in_ring[message_id] = True
        elif message_id in self._seen:
            self._seen[message_id] = "confirmed"  # its channel's copy is still to come
        else:
            self._confirm(message_id)

    def _confirm(self, message_id: int) -> None:
        owed = self._owed.pop(message_id, None)
        if owed is None:
            return
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
        if not self.shell.metadata.is_in_majority():
            return
        for channel, letter in self.outbox.take(self.shell.env.clock.monotonic_ns()):
            self.shell.send(channel, letter)

    def emit_acked(self) -> None:
        """Tell the log when publishes were confirmed.

        Where tables need a majority, only of what the ring has brought home: a master that was
        replaced without knowing it confirms to channels that wait for its mirrors in vain, so no
        client hears of that.
        """
        if self._unheard is None and (interval := self.outbox.take_interval()) is not None:
            self._unheard = interval, self.shell.ring_mark()
        if self._unheard is not None:
            interval, mark = self._unheard
            if not self.shell.metadata.needs_majority or self.shell.ring_is_home(mark):
                self._unheard = None
                self.shell.emit(
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
            self.shell.after(ACKED_INTERVAL_MS, FlushAcked())

    # -- consuming ---------------------------------------------------------------------------------

    def get(self, request: Get) -> Message:
        self.shell.monitor(request.channel)
        self.limits.touch()
        self._expire()
        fetched = self._fetch(request.no_ack)
        if fetched is None:
            return GotEmpty()
        content = fetched.content
        ack_id = (
            self.consumers.next_ack_id()
            if request.no_ack
            else self.consumers.delivered(request.channel, content.id, None)
        )
        return Got(ack_id, fetched.redelivered, content, fetched.remaining)

    def _fetch(self, no_ack: bool) -> Fetched | None:
        fetched = self.queue.fetch(no_ack=no_ack)
        if fetched is not None:
            if no_ack:
                self.limits.forget((fetched.content.id,))
            self.shell.broadcast(ins.Dropped(self.queue.ready, 1, not no_ack))
        return fetched

    def consume(self, request: Consume) -> Message:
        self.shell.monitor(request.channel)
        if not self.consumers.add(request):
            return Failed("access_refused", "the queue is in exclusive use")
        self.limits.touch()
        self.deliver_ready()
        return Done()

    def deliver_ready(self) -> None:
        """Hand out messages while there are some, and consumers that may have them."""
        self._expire()
        while self.queue.ready and (consumer := self.consumers.next_ready()) is not None:
            request = consumer.request
            fetched = self._fetch(request.no_ack)
            assert fetched is not None
            ack_id = (
                self.consumers.next_ack_id()
                if request.no_ack
                else self.consumers.delivered(request.channel, fetched.content.id, consumer)
            )
            delivery = Deliver(
                self.shell.pid, request.tag, ack_id, fetched.redelivered, fetched.content
            )
            self.shell.send(request.channel, delivery)

    def settle(self, request: Settle) -> None:
        ids = self.consumers.settle(request.channel, request.ack_ids)
        if request.outcome == "requeue":
            self._requeue(ids)
        else:
            if request.outcome == "reject":
                self.limits.dead_letter(ids, "rejected")
            self.ack(ids)
        self.deliver_ready()

    def ack(self, ids: Iterable[int]) -> None:
        acked = self.queue.ack(ids)
        if acked:
            self.limits.forget(acked)
            self.shell.broadcast(ins.Acked(tuple(acked)))

    def _requeue(self, ids: Iterable[int]) -> None:
        requeued = self.queue.requeue(ids)
        if requeued:
            self.shell.broadcast(ins.Requeued(tuple(requeued)))
            self.limits.trim()

    def requeue_all(self) -> None:
        """After a promotion: the consumers that held these are the old master's.

        (rmq#7579: the other mirrors were not told.)
        """
        if self.shell.env.has_bug("KB-RMQ-29"):
            # KB-RMQ-29: promote_backing_queue_state requeued in its own backing queue only.
            self.queue.requeue(self.queue.unacked_ids())
            self.limits.trim()
            return
        self._requeue(self.queue.unacked_ids())

    def purge(self) -> int:
        count = self.queue.purge()
        self.limits.purged()
        self.shell.broadcast(ins.Dropped(0, count, False))
        return count

    def _expire(self) -> None:
        self.limits.expire()

    # -- users that go away ------------------------------------------------------------------------

    def process_down(self, pid: Pid) -> None:
        """A channel or the exclusive owner is dead."""
        if pid == self.exclusive_owner:
            self.is_deletable = True
            return
        had = len(self.consumers)
        self._requeue(self.consumers.drop_channel(pid))
        # The ring hears this after all that the channel published here, so mirrors may forget it
        # too.
        self.shell.broadcast(ins.SenderDeath(pid))
        for message_id in [m for m, (channel, _) in self._owed.items() if channel == pid]:
            del self._owed[message_id]
        if had > len(self.consumers):
            self._user_left()
        self.deliver_ready()

    def _user_left(self) -> None:
        self.limits.touch()
        if self.auto_delete and self.consumers.had_any and not len(self.consumers):
            self.is_deletable = True

    def cancel_consumers(self) -> None:
        """The queue is deleted."""
        for consumer in self.consumers:
            request = consumer.request
            self.shell.send(request.channel, ConsumerCancelled(self.shell.pid, request.tag))

    # -- from mirrors ------------------------------------------------------------------------------

    def hear(self, instruction: ins.Instruction) -> None:
        """What a mirror said in the ring."""
        match instruction:
            case ins.RequestDepth():
                self.tell_depth()
            case ins.EnsureMonitoring(channels):
                for channel in channels:
                    self.shell.monitor(channel)

    def tell_depth(self) -> None:
        self.shell.broadcast(ins.Depth(self.queue.depth))
