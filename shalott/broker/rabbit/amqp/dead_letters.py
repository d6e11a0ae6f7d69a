"""DeadLetters: publishes what queues of this node reject, outlive or have no room for.

After rabbit/rabbit_dead_letter.erl, and with its guarantee: none. A dead letter is published
without confirms, so one that meets a dying queue is lost (at most once). It takes the same double
path as any publish, to the masters and to the mirrors of the queues that it is routed to; this
process is the publishing channel there, and its end is the end of a channel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from shalott.broker.base.env import Env
from shalott.broker.rabbit.amqp.deaths import Death, is_cycle, record_death
from shalott.broker.rabbit.amqp.exchanges import Router
from shalott.broker.rabbit.amqp.properties import read_properties
from shalott.broker.rabbit.amqp.publishing import processes_of
from shalott.broker.rabbit.amqp.queue_protocol import Content, Publish
from shalott.broker.rabbit.amqp.queues import Queues
from shalott.broker.rabbit.metadata.api import Metadata
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Message
from shalott.broker.rabbit.processes.process import Process

log = logging.getLogger("shalott.broker.amqp")


class Died(Message, frozen=True):
    """A queue's master -> the dead letters of its node."""

    vhost: str
    queue: str
    contents: tuple[Content, ...]
    reason: str  # rejected, expired, maxlen
    exchange: str
    routing_key: str | None  # None: the one that each message was published with


class DeadLetters(Process):
    """Spawn it before the node's queues are recovered; ``of`` is for their masters."""

    def __init__(self, env: Env, metadata: Metadata, queues: Queues) -> None:
        super().__init__()
        self._env = env
        self._queues = queues
        self._router = Router(metadata)
        self._cycles: dict[tuple[str, str], None] = {}  # (vhost, queue) that were told to the log

    def of(self, row: QueueRow) -> Callable[[Sequence[Content], str, str, str | None], None]:
        """Takes (contents, reason, exchange, routing key) from the master of ``row``."""

        def take(
            contents: Sequence[Content], reason: str, exchange: str, routing_key: str | None
        ) -> None:
            died = Died(row.vhost, row.name, tuple(contents), reason, exchange, routing_key)
            self.deliver(died)

        return take

    async def handle(self, message: Message) -> None:
        if not isinstance(message, Died):
            return
        if self._router.exchange(message.vhost, message.exchange) is None:
            return  # as the original does: the queue may name an exchange that is yet to come
        for content in message.contents:
            letter = self._letter(message, content)
            for row in self._targets(message, letter):
                for process in processes_of(row):
                    self.runtime.send(process, Publish(self.pid, None, letter))

    def _letter(self, died: Died, content: Content) -> Content:
        death = Death(
            queue=died.queue,
            reason=died.reason,
            at_s=self._env.clock.wall_ns() // 1_000_000_000,
            exchange=content.exchange,
            routing_key=content.routing_key,
        )
        routing_key = content.routing_key if died.routing_key is None else died.routing_key
        return Content(
            id=self._env.rng.getrandbits(63),
            exchange=died.exchange,
            routing_key=routing_key,
            properties=record_death(content.properties, death),
            body=content.body,
            persistent=content.persistent,
            priority=content.priority,
        )

    def _targets(self, died: Died, letter: Content) -> list[QueueRow]:
        headers = read_properties(letter.properties).headers
        names = self._router.route(died.vhost, died.exchange, letter.routing_key, headers)
        rows = []
        for name in names:
            row = self._queues.lookup(died.vhost, name)
            if died.reason != "rejected" and is_cycle(letter.properties, name):
                self._tell_cycle(died.vhost, name)
            elif row is not None:
                rows.append(row)
        return rows

    def _tell_cycle(self, vhost: str, queue: str) -> None:
        if (vhost, queue) not in self._cycles:
            self._cycles[vhost, queue] = None
            log.warning(
                "messages that died in queue '%s' in vhost '%s' come back to it: dropped",
                queue,
                vhost,
            )
