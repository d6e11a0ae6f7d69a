"""Dispatch: how a master hands messages to its consumers, and tells its mirrors of it.

After rabbit/rabbit_amqqueue_process.erl (run_message_queue, attempt_delivery, fetch) and
rabbit_mirror_queue_master.erl.
"""

from __future__ import annotations

from shalott.broker.rabbit.amqp.queue_protocol import Deliver, Get, Got, GotEmpty, Publish
from shalott.broker.rabbit.mirrored.bug_rules import MasterRules
from shalott.broker.rabbit.processes.messages import Message
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.confirms import MasterConfirms
from shalott.broker.rabbit.replica.consumers import Consumers
from shalott.broker.rabbit.replica.limits import Limits
from shalott.broker.rabbit.replica.shell import Counts, Shell
from shalott.broker.rabbit.storage.backing_queue import BackingQueue, Fetched


class Dispatch:
    """Of one master."""

    def __init__(
        self,
        shell: Shell,
        queue: BackingQueue,
        limits: Limits,
        consumers: Consumers,
        confirms: MasterConfirms,
        rules: MasterRules,
    ) -> None:
        self.counts = Counts()
        self.waits_for_head = False  # a consumer does, and it is on disk
        self._shell = shell
        self._queue = queue
        self._limits = limits
        self._consumers = consumers
        self._confirms = confirms
        self._rules = rules

    def deliver_ready(self) -> None:
        """Hand out messages while there are some, and consumers that may have them.

        What is overdue goes before each one (rabbit_amqqueue_process fetches so): a dead message is
        never delivered, though it became the head a moment ago.
        """
        self._limits.expire()
        while self._has_head() and (consumer := self._consumers.next_ready()) is not None:
            request = consumer.request
            fetched = self._fetch(request.no_ack)
            assert fetched is not None
            ack_id = (
                self._consumers.next_ack_id()
                if request.no_ack
                else self._consumers.delivered(request.channel, fetched.content.id, consumer)
            )
            asks = self._consumers.in_question is not None
            delivery = Deliver(
                self._shell.pid, request.tag, ack_id, fetched.redelivered, fetched.content, asks
            )
            self.counts.delivered(no_ack=request.no_ack, redelivered=fetched.redelivered)
            self._consumers.sent(request.channel)
            self._shell.send(request.channel, delivery)
            self._limits.expire()

    def _has_head(self) -> bool:
        """Whether a message can be handed out now. If it must be read first, the process hears of
        it, should there be a consumer to have it."""
        if not self._queue.messages.ready:
            return False
        if not self._queue.messages.is_head_away:
            return True
        self.waits_for_head = self._consumers.has_ready()
        return False

    def deliver_at_once(self, message: Publish, ttl_ms: int | None, redelivered: bool) -> bool:
        """To a consumer that is waiting, past the queue, if there is nothing in it."""
        if self._queue.messages.ready:
            return False
        consumer = self._consumers.next_ready()
        if consumer is None:
            return False
        content, request = message.content, consumer.request
        if request.no_ack:
            self._shell.broadcast(ins.Discarded(message.channel, content.id))
            ack_id = self._consumers.next_ack_id()
            self._confirms.confirm(content.id)
        else:
            mark = self._queue.publish_delivered(content, expiry=self._limits.expiry(ttl_ms))
            self.tell(message, ins.Published(message.channel, content, True, ttl_ms))
            ack_id = self._consumers.delivered(request.channel, content.id, consumer)
            self._confirms.await_durable(mark, content.id)
        self.counts.delivered(no_ack=request.no_ack, redelivered=redelivered)
        asks = self._consumers.in_question is not None
        delivery = Deliver(self._shell.pid, request.tag, ack_id, redelivered, content, asks)
        self._consumers.sent(request.channel)
        self._shell.send(request.channel, delivery)
        return True

    def tell(self, message: Publish, instruction: ins.Published) -> None:
        """To the mirrors; and find out whether one of them depends on the ring for it.

        The channel waits for those that it sent the message to. A mirror that it didn't know has
        the ring's copy only, which is lost if this process dies while the ring is broken: so the
        confirm waits for the ring. (The original does not wait, and can lose such a message after
        confirming it.)
        """
        if (
            message.seq is None
            or not message.sent_to
            or all(mirror in message.sent_to for mirror in self._shell.mirrors())
            or not self._rules.confirms_wait_for_ring
        ):
            self._shell.broadcast(instruction)
        else:
            self._confirms.broadcast_awaited(instruction, message.content.id)

    def get(self, request: Get) -> Message | None:
        """None: read ahead, and ask again."""
        self._shell.monitor(request.channel)
        self._limits.touch()
        self._limits.expire()
        if self._queue.messages.is_head_away:
            return None
        fetched = self._fetch(request.no_ack)
        if fetched is None:
            self.counts.get_empty += 1
            return GotEmpty()
        self.counts.got(no_ack=request.no_ack, redelivered=fetched.redelivered)
        self._limits.expire()  # what is the head now
        content = fetched.content
        ack_id = (
            self._consumers.next_ack_id()
            if request.no_ack
            else self._consumers.delivered(request.channel, content.id, None)
        )
        return Got(ack_id, fetched.redelivered, content, fetched.remaining)

    def _fetch(self, no_ack: bool) -> Fetched | None:
        fetched = self._queue.fetch(no_ack=no_ack)
        if fetched is not None:
            ids = (fetched.content.id,) if self._queue.messages.has_priorities else ()
            self._shell.broadcast(ins.Dropped(self._queue.messages.ready, 1, not no_ack, ids))
        return fetched
