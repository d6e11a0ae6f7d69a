"""Publisher: a channel's outgoing half. Routes publishes; what becomes of them is verdicts.py's.

The order of words to the client is part of the protocol: basic.return comes before the basic.ack of
the same message, and an unroutable message is acknowledged (rabbit_channel.erl).
"""

from __future__ import annotations

from typing import NamedTuple

from pamqp import commands

from shalott.broker.rabbit.amqp import counts
from shalott.broker.rabbit.amqp.direct_reply import REPLY_TO, DirectReplies, is_reply_queue
from shalott.broker.rabbit.amqp.errors import (
    ACCESS_REFUSED,
    NAMES,
    NO_ROUTE,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    AmqpError,
)
from shalott.broker.rabbit.amqp.properties import (
    Properties,
    read_properties,
    with_reply_to,
    without_bcc,
)
from shalott.broker.rabbit.amqp.queue_protocol import Content, Publish
from shalott.broker.rabbit.amqp.rights import check_topic
from shalott.broker.rabbit.amqp.services import Context
from shalott.broker.rabbit.amqp.verdicts import Verdicts
from shalott.broker.rabbit.amqp.wire import encode_return
from shalott.broker.rabbit.metadata.records import ExchangeRow, QueueRow
from shalott.broker.rabbit.processes.messages import Pid


class Routed(NamedTuple):
    """A publish that was not refused, and the names of the queues that it goes to."""

    method: commands.Basic.Publish
    content: Content
    queues: list[str]


class Publisher:
    """basic.publish and confirm.select.

    In a transaction (``begin``) publishes are kept until ``commit``, and what becomes of them is
    not the client's to hear one by one, but the commit's (transactions.py).
    """

    def __init__(self, context: Context, replies: DirectReplies, verdicts: Verdicts) -> None:
        self._context = context
        self._verdicts = verdicts
        self._replies = replies
        self._uncommitted: list[Routed] | None = None  # None: not in a transaction
        self._last = (b"", Properties())
        self._seq = 0

    async def select(self, method: commands.Confirm.Select) -> None:
        if self._uncommitted is not None:
            raise AmqpError(PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        self._verdicts.confirming = True
        if not method.nowait:
            await self._context.port.send(commands.Confirm.SelectOk())

    async def publish(
        self, method: commands.Basic.Publish, encoded_properties: bytes, body: bytes
    ) -> None:
        """Route and send on. Everything that can be refused is refused before anything is sent."""
        if method.immediate:
            raise AmqpError(NOT_IMPLEMENTED, "immediate=true")
        exchange = self._check_exchange(method.exchange)
        check_topic(self._context, exchange, "write", method.routing_key)
        if encoded_properties != self._last[0]:  # mostly all that a client publishes have the same
            self._last = (encoded_properties, read_properties(encoded_properties))
        properties = self._last[1]
        if properties.reply_to == REPLY_TO:
            encoded_properties = with_reply_to(encoded_properties, self._replies.rewritten())
        self._check_user(properties)
        if properties.has_bcc:
            encoded_properties = without_bcc(encoded_properties)
        content = Content(
            id=self._context.services.env.rng.getrandbits(63),
            exchange=method.exchange,
            routing_key=method.routing_key,
            properties=encoded_properties,
            body=body,
            persistent=properties.persistent,
            priority=properties.priority,
            expiration_ms=properties.expiration_ms,
            also=properties.also,
        )
        routed = Routed(method, content, self._route(content, properties))
        if self._uncommitted is not None:
            self._uncommitted.append(routed)
        else:
            await self._send(routed, needs_verdict=self._verdicts.confirming)

    # -- transactions ------------------------------------------------------------------------------

    def begin(self) -> None:
        self._uncommitted = []

    @property
    def uncommitted(self) -> int:
        return len(self._uncommitted or ())

    async def commit(self) -> None:
        """Send what is kept, in order. The verdicts tell what becomes of it."""
        publishes, self._uncommitted = self._uncommitted or (), []
        self._verdicts.refused = False
        for routed in publishes:
            await self._send(routed, needs_verdict=True)

    def roll_back(self) -> None:
        self._uncommitted = []

    def _check_exchange(self, name: str) -> ExchangeRow:
        vhost = self._context.session.vhost
        row = self._context.router.exchange(vhost, name)
        if row is None:
            raise AmqpError(NOT_FOUND, f"no exchange '{name}' in vhost '{vhost}'")
        if row.internal:
            text = f"cannot publish to internal exchange '{name}' in vhost '{vhost}'"
            raise AmqpError(ACCESS_REFUSED, text)
        return row

    def _check_user(self, properties: Properties) -> None:
        user = self._context.session.user
        if properties.user_id is not None and properties.user_id != user:
            text = (
                f"user_id property set to '{properties.user_id}'"
                f" but authenticated user was '{user}'"
            )
            raise AmqpError(PRECONDITION_FAILED, text)

    def _route(self, content: Content, properties: Properties) -> list[str]:
        names = self._context.router.route(
            self._context.session.vhost,
            content.exchange,
            content.routing_key,
            properties.headers,
            content.also,
        )
        if content.exchange != "" or not any(map(is_reply_queue, names)):
            return names
        for name in names:
            if is_reply_queue(name):
                self._replies.send(name, content)
        return [name for name in names if not is_reply_queue(name)]

    async def _send(self, routed: Routed, *, needs_verdict: bool) -> None:
        vhost, lookup = self._context.session.vhost, self._context.services.queues.lookup
        found = (lookup(vhost, name) for name in routed.queues)
        rows = [row for row in found if row is not None]
        self._count(routed, len(rows))
        if not rows and routed.method.mandatory:
            await self._return(routed.content)
        seq = None
        if needs_verdict:
            self._seq += 1
            seq = self._seq
        self._send_to_queues(rows, seq, routed.content)

    def _count(self, routed: Routed, queues: int) -> None:
        counted = self._context.counts
        if not counted.of("publish"):
            counted.add(counts.PUBLISHERS)
        counted.add("publish")
        if self._verdicts.confirming:
            counted.add(counts.EXPECTED)
        if queues:
            counted.add(counts.ROUTED, queues)
        else:
            counted.add("return_unroutable" if routed.method.mandatory else "drop_unroutable")

    async def _return(self, content: Content) -> None:
        payload = encode_return(NO_ROUTE, NAMES[NO_ROUTE], content.exchange, content.routing_key)
        await self._context.port.send_content(payload, content.properties, content.body)

    def _send_to_queues(self, rows: list[QueueRow], seq: int | None, content: Content) -> None:
        """To the master and to every mirror of each queue (rabbit_amqqueue:deliver)."""
        sent: dict[str, list[Pid]] = {}
        unsynchronised: dict[str, list[Pid]] = {}
        for row in rows:
            processes = processes_of(row)
            sent[row.key] = processes
            if self._verdicts.rules.discounts_unsynchronised:
                unsynchronised[row.key] = unsynchronised_mirrors(row)
            message = Publish(self._context.pid, seq, content, tuple(processes))
            for process in processes:
                if seq is not None:
                    self._context.watch(process)
                self._context.services.runtime.send(process, message)
        if seq is not None:
            self._verdicts.sent(seq, sent, unsynchronised)
            self._context.services.env.witness("sent", content.id, sent)


def processes_of(row: QueueRow) -> list[Pid]:
    """The master and every mirror: who gets what is published to a queue."""
    masters = () if row.pid is None else (row.pid,)
    return list(dict.fromkeys((*masters, *row.slave_pids)))


def unsynchronised_mirrors(row: QueueRow) -> list[Pid]:
    """The mirrors that are not recorded to hold all that their master holds."""
    return [pid for pid in row.slave_pids if pid not in row.sync_slave_pids and pid != row.pid]
