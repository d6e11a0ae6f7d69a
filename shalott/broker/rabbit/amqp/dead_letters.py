"""DeadLetters: publishes what queues of this node reject, outlive or have no room for.

After rabbit/rabbit_dead_letter.erl, and with its guarantee: none. A dead letter is published
without confirms, so one that meets a dying queue is lost (at most once). It takes the same double
path as any publish, to the masters and to the mirrors of the queues that it is routed to; this
process is the publishing channel there, and its end is the end of a channel.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pamqp import decode

from shalott.broker.base.env import Env
from shalott.broker.rabbit.amqp.counts import DEAD, Counts
from shalott.broker.rabbit.amqp.exchanges import Router
from shalott.broker.rabbit.amqp.properties import join_properties, read_properties, split_properties
from shalott.broker.rabbit.amqp.publishing import processes_of
from shalott.broker.rabbit.amqp.queue_protocol import Content, Publish
from shalott.broker.rabbit.amqp.services import Queues
from shalott.broker.rabbit.amqp.tables import (
    Field,
    join_array,
    join_table,
    long_string,
    split_array,
    split_table,
)
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

    def __init__(self, env: Env, metadata: Metadata, queues: Queues, counts: Counts) -> None:
        super().__init__()
        self._env = env
        self._queues = queues
        self._counts = counts
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
        self._counts.add(DEAD + message.reason, len(message.contents))
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
            routing_keys=(content.routing_key, *read_properties(content.properties).also),
        )
        replaced = died.routing_key is not None
        routing_key = content.routing_key if died.routing_key is None else died.routing_key
        return Content(
            id=self._env.rng.getrandbits(63),
            exchange=died.exchange,
            routing_key=routing_key,
            properties=record_death(content.properties, death, drop_cc=replaced),
            also=() if replaced else content.also,
            body=content.body,
            persistent=content.persistent,
            priority=content.priority,
        )

    def _targets(self, died: Died, letter: Content) -> list[QueueRow]:
        headers = read_properties(letter.properties).headers
        names = self._router.route(
            died.vhost, died.exchange, letter.routing_key, headers, letter.also
        )
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


# -- the headers of a dead letter ------------------------------------------------------------------

# What a dead letter's headers tell of its deaths. Pure.
#
# After rabbit/rabbit_dead_letter.erl. The header x-death is an array with one table for each pair
# of queue and reason, the latest first: how often (count), when first (time), and how the message
# had been published then (exchange, routing-keys). The three x-first-death headers never change.
# The expiration that the publisher gave goes, or the message would die again where it is sent to;
# the table keeps it as original-expiration.
#
# A message that comes back, by expiry or length alone, to a queue where it died before would circle
# for ever, and is dropped. A rejection in the circle means that a client takes part in it: then it
# is the client's business.

X_DEATH = b"x-death"
COUNT_MAX = 2**63 - 1
INTEGERS = (b"b", b"B", b"s", b"u", b"I", b"i", b"l", b"L")
REJECTED = long_string("rejected")


@dataclass(frozen=True, slots=True)
class Death:
    """How a message left ``queue``, to which it had come by ``exchange`` and ``routing_keys``
    (that of its publish, and those of its header CC).
    """

    queue: str
    reason: str  # rejected, expired, maxlen
    at_s: int  # Unix time
    exchange: str
    routing_keys: tuple[str, ...]


def record_death(properties: bytes, death: Death, *, drop_cc: bool = False) -> bytes:
    """The encoded property list of the dead letter. Raises ValueError on a malformed one."""
    values = split_properties(properties)
    headers = split_table(values["headers"]) if "headers" in values else []
    expiration = values.pop("expiration", None)
    former = _deaths(headers)
    same = [each for each in former if _is_same(each, death)]
    latest = _again(same[0]) if same else _first(death, expiration)
    others = [each for each in former if each not in same]
    history = b"A" + join_array((latest, *others))
    added: list[Field] = [(X_DEATH, history)]
    if not former:
        added += [
            (b"x-first-death-reason", long_string(death.reason)),
            (b"x-first-death-queue", long_string(death.queue)),
            (b"x-first-death-exchange", long_string(death.exchange)),
        ]
    replaced = [name for name, _ in added] + ([b"CC"] if drop_cc else [])
    kept = [field for field in headers if field[0] not in replaced]
    values["headers"] = join_table((*kept, *added))
    return join_properties(values)


def is_cycle(properties: bytes, queue: str) -> bool:
    """Whether a dead letter that goes to ``queue`` has died there before, and no client since."""
    values = split_properties(properties)
    headers = split_table(values["headers"]) if "headers" in values else []
    for death in _deaths(headers):
        table = _table(death)
        if table.get(b"reason", REJECTED) == REJECTED:
            return False  # or a client wrote this entry
        if table.get(b"queue") == long_string(queue):
            return True
    return False


def _deaths(headers: list[Field]) -> list[bytes]:
    """The values in x-death; none if that isn't an array, which no broker wrote then."""
    history = dict(headers).get(X_DEATH, b"")
    try:
        return split_array(history[1:]) if history[:1] == b"A" else []
    except ValueError:
        return []


def _table(value: bytes) -> dict[bytes, bytes]:
    try:
        return dict(split_table(value[1:])) if value[:1] == b"F" else {}
    except ValueError:
        return {}


def _is_same(value: bytes, death: Death) -> bool:
    table = _table(value)
    reason, queue = long_string(death.reason), long_string(death.queue)
    return (table.get(b"reason"), table.get(b"queue")) == (reason, queue)


def _first(death: Death, expiration: bytes | None) -> bytes:
    fields: list[Field] = [
        (b"count", _integer(1)),
        (b"reason", long_string(death.reason)),
        (b"queue", long_string(death.queue)),
        (b"time", b"T" + struct.pack(">Q", death.at_s)),
        (b"exchange", long_string(death.exchange)),
        (b"routing-keys", b"A" + join_array(map(long_string, death.routing_keys))),
    ]
    if expiration is not None:
        fields.append((b"original-expiration", long_string(expiration[1:])))
    return b"F" + join_table(fields)


def _again(value: bytes) -> bytes:
    """The same table, with a count of one more."""
    table = _table(value)
    count = table.get(b"count", b"V")
    former = decode.embedded_value(count)[1] if count[:1] in INTEGERS else 0
    assert isinstance(former, int)
    table[b"count"] = _integer(min(former + 1, COUNT_MAX))
    return b"F" + join_table(table.items())


def _integer(number: int) -> bytes:
    return b"l" + struct.pack(">q", number)
