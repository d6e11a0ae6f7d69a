"""Master: the process that serves a queue.

It does what RabbitMQ spreads over rabbit_amqqueue_process (publishers, consumers, settling,
limits), rabbit_mirror_queue_master (every change is told to the mirrors, in order) and
rabbit_mirror_queue_coordinator (death of channels, depth for new mirrors). It works alike with no
mirrors at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from shalott.broker.rabbit.amqp.queue_protocol import (
    CancelConsumer,
    ChannelLimit,
    Consume,
    ConsumerCancelled,
    Count,
    Get,
    Paused,
    Publish,
    Purge,
    Resume,
    Returned,
    Settle,
    Stat,
    Stats,
    Taken,
    Written,
)
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored.bug_rules import master_rules
from shalott.broker.rabbit.mirrored.messages import FlushAcked
from shalott.broker.rabbit.processes.messages import Done, Failed, Message, Pid
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.confirms import Inheritance, MasterConfirms
from shalott.broker.rabbit.replica.consumers import Consumers
from shalott.broker.rabbit.replica.dispatch import Dispatch
from shalott.broker.rabbit.replica.limits import Limits
from shalott.broker.rabbit.replica.shell import Shell
from shalott.broker.rabbit.storage.backing_queue import BackingQueue


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
        self.confirms = MasterConfirms(shell, queue, heritage)
        self.is_deletable = False  # auto-delete or exclusive, and its last user is gone
        self._rules = master_rules(shell.env.has_bug)
        self.dispatch = Dispatch(
            shell, queue, self.limits, self.consumers, self.confirms, self._rules
        )
        self.counts = self.dispatch.counts
        if row.exclusive_owner is not None:
            shell.monitor(row.exclusive_owner)
        for channel in heritage.senders:
            shell.monitor(channel)
        self.limits.watch_head()
        self._deliveries = heritage.deliveries

    def take_deliveries(self) -> None:
        """What came from channels when this was a mirror, and was never told by the dead master."""
        deliveries, self._deliveries = self._deliveries, []
        for delivery in deliveries:
            # It may have given them straight to consumers.
            self.publish(delivery, redelivered=True)

    @property
    def has_flags(self) -> bool:
        """Whether there is something for the process to do."""
        return self.is_deletable or self.limits.is_unused or self.waits_for_head

    @property
    def waits_for_head(self) -> bool:
        """The process is to read ahead, and call ``go_on``."""
        return self.dispatch.waits_for_head or self.limits.waits_for_head

    def go_on(self) -> None:
        """The head is in memory now."""
        self.dispatch.waits_for_head = self.limits.waits_for_head = False
        self.limits.expire()
        self.limits.trim()
        self.dispatch.deliver_ready()

    def unread(self, message: Message) -> list[int]:
        """Messages that ``message`` rejects and that are passed on: the process reads them before
        it hands it over."""
        if not isinstance(message, Settle) or message.outcome != "reject":
            return []
        if not self.queue.messages.has_paged or not self.limits.passes_on:
            return []
        return self.consumers.messages_of(message.channel, message.ack_ids)

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
                self.dispatch.deliver_ready()
            case Written(channel, count):
                self.consumers.written(channel, count)
                self.dispatch.deliver_ready()
            case Taken(channel, ack_id):
                self.consumers.answered(channel, ack_id)
                self.dispatch.deliver_ready()
            case Returned():
                self.returned(message)
            case Resume(channel):
                self.shell.monitor(channel)
                self.consumers.resume(channel)
                self.dispatch.deliver_ready()
            case FlushAcked():
                self.confirms.acked_timer_fired()
            case _:
                in_use = len(self.consumers) > 0
                return self.limits.handle(message, self.limits.expire, in_use=in_use)
        return True

    def handle_call(self, request: Message) -> Message | None:
        match request:
            case Get():
                return self.dispatch.get(request)
            case Consume():
                return self.consume(request)
            case CancelConsumer(channel, tag):
                if self.consumers.cancel(channel, tag):
                    # Another one may be the single active consumer now.
                    self._user_left()
                    self.dispatch.deliver_ready()
                return Done()
            case Purge():
                return Count(self.purge())
            case Stat():
                return self.stats("running")
        return None

    def stats(self, state: str) -> Stats:
        active = self.consumers.single_active
        detail: dict[str, object] = (
            {} if active is None else {"single_active": [str(active[0]), active[1]]}
        )
        return Stats(
            self.queue.messages.ready,
            self.queue.messages.unacked,
            len(self.consumers),
            state,
            detail,
        )

    # -- publishing --------------------------------------------------------------------------------

    def publish(self, message: Publish, *, redelivered: bool = False) -> None:
        content = message.content
        self.shell.monitor(message.channel)
        self.shell.env.witness("master.takes", self.shell.pid, content.id)
        self.counts.publish += 1
        if self.confirms.took_in_ring(
            message, must_be_durable=self.is_durable and content.persistent
        ):
            return
        if self.limits.refuses(content):
            self.limits.refused(content)
            # Mirrors hold the channel's copy already: tell them that nothing will come of it.
            self.shell.broadcast(ins.PublishRefused(message.channel, content.id))
            self.confirms.refuse(message)
            return
        self.confirms.owe(message)
        ttl_ms = self.limits.ttl_ms(content)
        if not self.dispatch.deliver_at_once(message, ttl_ms, redelivered):
            expiry = self.limits.expiry(ttl_ms)
            mark = self.queue.publish(content, redelivered=redelivered, expiry=expiry)
            self.dispatch.tell(message, ins.Published(message.channel, content, ttl_ms=ttl_ms))
            self.confirms.await_durable(mark, content.id)
            self.limits.expire()
            self.dispatch.deliver_ready()
            self.limits.trim()

    # -- consuming ---------------------------------------------------------------------------------

    def consume(self, request: Consume) -> Message:
        self.shell.monitor(request.channel)
        if not self.consumers.add(request):
            return Failed("access_refused", "the queue is in exclusive use")
        self.limits.touch()
        self.dispatch.deliver_ready()
        return Done()

    def settle(self, request: Settle) -> None:
        ids = self.consumers.settle(request.channel, request.ack_ids)
        if request.outcome == "requeue":
            self._requeue(ids)
        else:
            if request.outcome == "reject":
                self.limits.dead_letter(ids, "rejected")
            else:
                self.counts.ack += len(ids)
            self.ack(ids)
        self.dispatch.deliver_ready()

    def returned(self, message: Returned) -> None:
        """A channel has no room."""
        self.shell.monitor(message.channel)
        if self.consumers.pause(message.channel):
            self.shell.send(message.channel, Paused(self.shell.pid))
        ids = self.consumers.settle(message.channel, (message.ack_id,))
        self._requeue(ids, redelivered=message.redelivered)
        self.dispatch.deliver_ready()

    def ack(self, ids: Iterable[int]) -> None:
        acked = self.queue.ack(ids)
        if acked:
            self.shell.broadcast(ins.Acked(tuple(acked)))

    def _requeue(self, ids: Iterable[int], *, redelivered: bool = True) -> None:
        requeued = self.queue.requeue(ids, redelivered=redelivered)
        if requeued:
            self.shell.broadcast(ins.Requeued(tuple(requeued)))
            self.limits.trim()

    def requeue_all(self) -> None:
        """After a promotion: the consumers that held these are the old master's."""
        if not self._rules.tells_requeued:
            self.queue.requeue(self.queue.messages.unacked_ids())
            self.limits.trim()
        else:
            self._requeue(self.queue.messages.unacked_ids())
        self.limits.expire()

    def purge(self) -> int:
        count = self.queue.purge()
        self.shell.broadcast(ins.Dropped(0, count, False))
        return count

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
        self.confirms.forget_channel(pid)
        if had > len(self.consumers):
            self._user_left()
        self.dispatch.deliver_ready()

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
        self.shell.broadcast(ins.Depth(self.queue.messages.depth))
