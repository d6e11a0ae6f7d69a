"""ConsumerChannel: one channel with consumers: what it is given, what it says of it, how it ends.

Deliveries are recorded as they are read and settled as the channel's ``Settling`` says, by timers
of the event loop, and proved as channel_answers.py says. Once the client sees the end of its
channel, of any kind, nothing is settled any more, and what is still open stays indefinite.

What was delivered before the answer to basic.recover is the server's again: the server had sent it
before it took everything back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from pamqp import commands
from pamqp.base import Frame
from pamqp.common import FieldTable

from shalott.clients.amqp.channel_answers import OutstandingRpcs, Proofs
from shalott.clients.amqp.connection import Connection, Content, Event
from shalott.core.client import ClientRows
from shalott.core.message_body import decode_body
from shalott.core.op import Completion, OpType
from shalott.core.subscription import PLAIN, Settling, Subscription, Verdict

_CONSUME = commands.Basic.Consume.index


@dataclass(slots=True, eq=False)
class ConsumerChannel:
    """``on_end`` is called once, when it has ended, for any reason."""

    connection: Connection
    rows: ClientRows
    name: str
    connection_name: str
    settling: Settling
    on_end: Callable[[ConsumerChannel], None]
    limit: int = 0  # of the channel, if it has one
    ended: str | None = None
    consumers: dict[str, Consumer] = field(default_factory=dict)  # those that have not ended
    unsettled: dict[int, Unsettled] = field(default_factory=dict)  # by delivery tag, ascending
    number: int = 0
    _row: int = 0
    _made: int = 0  # consumers
    _came: int = 0  # deliveries
    _highest: int = 0  # delivery tag
    _no_ack: dict[str, bool] = field(default_factory=dict)  # by consumer, ended ones too
    _queues: dict[str, str] = field(default_factory=dict)
    _due: DueVerdicts = field(init=False)
    _proofs: Proofs = field(init=False)
    _rpcs: OutstandingRpcs = field(init=False)
    _recovering: int | None = None  # row

    def __post_init__(self) -> None:
        self._due = DueVerdicts(self._say_if_unsettled)
        self._proofs = Proofs(self.rows, self._send, self._close_if_idle)
        self._rpcs = OutstandingRpcs(self._send)

    # What the client asks of it.

    async def open(self) -> None:
        """Raises ChannelEnded."""
        self.number = self.connection.attach(self)
        told = {"channel": self.name, "connection": self.connection_name}
        self._row = self.rows.begin("channel", "", told)
        if self.connection.lost is not None:
            self.lost(self.connection.lost)
        await self._rpcs.call(commands.Channel.Open(), commands.Channel.OpenOk)

    async def consume(self, queue: str, wanted: Subscription) -> None:
        """Raises ChannelEnded: refused, if the server had something against it."""
        if wanted.per_channel and wanted.prefetch and not self.consumers and not self.limit:
            self.limit = wanted.prefetch
            qos = commands.Basic.Qos(prefetch_count=self.limit, global_=True)
            await self._rpcs.call(qos, commands.Basic.QosOk)
        elif not self.limit:
            qos = commands.Basic.Qos(prefetch_count=wanted.prefetch)
            await self._rpcs.call(qos, commands.Basic.QosOk)
        consumer = self._begin(queue, wanted)
        arguments: FieldTable = {}
        if wanted.priority:
            arguments["x-priority"] = wanted.priority
        if wanted.cancel_on_failover:
            arguments["x-cancel-on-ha-failover"] = True
        method = commands.Basic.Consume(
            queue=queue,
            consumer_tag=consumer.name,
            no_ack=wanted.no_ack,
            exclusive=wanted.exclusive,
            arguments=arguments,
        )
        await self._rpcs.call(method, commands.Basic.ConsumeOk, consumer.name)

    async def cancel(self, consumer: Consumer) -> None:
        """Raises ChannelEnded."""
        consumer.leaving_ns = self.rows.now_ns()
        await self._rpcs.call(
            commands.Basic.Cancel(consumer_tag=consumer.name),
            commands.Basic.CancelOk,
            consumer.name,
        )
        self._close_if_idle()

    async def look(self, queue: str) -> int:
        """How many messages are ready in ``queue``. Raises ChannelEnded."""
        return await self._proofs.look(queue)

    def close(self, why: str = "channel-closed") -> None:
        """Close the channel, and hear nothing more of it."""
        if self.ended is None:
            self._send(commands.Channel.Close(200, "bye", 0, 0))
            self._end(why)

    def drop(self, why: str) -> None:
        """Its client ends the connection itself."""
        self.connection.detach(self.number)
        self._end(why)

    def settle_all_from_now(self) -> None:
        """Acknowledge what comes, at once. What was to be kept is given back with the channel."""
        self.settling = PLAIN
        if any(delivery.kept for delivery in self.unsettled.values()):
            self.close()

    def find(self, queue: str, slot: int) -> Consumer | None:
        """The consumer in that place that is not about to leave."""
        for consumer in self.consumers.values():
            place = (consumer.queue, consumer.wanted.slot)
            if place == (queue, slot) and consumer.leaving_ns is None:
                return consumer
        return None

    # What the connection tells it.

    def received(self, event: Event) -> None:
        if self.ended is not None:
            if isinstance(event, commands.Channel.CloseOk):
                self.connection.detach(self.number)
            elif isinstance(event, commands.Channel.Close):
                self._send(commands.Channel.CloseOk())
            return
        match event:
            case Content(method=commands.Basic.Deliver()):
                self._delivered(event)
            case commands.Queue.DeclareOk():
                self._proofs.answered(event)
            case commands.Basic.Cancel():
                self._cancelled_by_server(event)
            case commands.Basic.RecoverOk():
                self._recovered()
            case commands.Channel.Close():
                self._send(commands.Channel.CloseOk())
                self.connection.detach(self.number)
                caused_by = (int(event.class_id or 0) << 16) | int(event.method_id or 0)
                text = f"channel closed: {event.reply_code} {event.reply_text}"
                self._end("channel-closed", text, caused_by)
            case commands.Basic.ConsumeOk() | commands.Basic.CancelOk():
                self._began_or_ended(event)
                self._rpcs.answered(event, event.consumer_tag)
            case Content():
                pass  # nothing is published here
            case _:
                self._rpcs.answered(event, None)

    def lost(self, reason: str) -> None:
        self._end("lost", reason)

    # Consumers.

    def _begin(self, queue: str, wanted: Subscription) -> Consumer:
        self._made += 1
        name = f"{self.name}.{self._made}"
        extra = {
            "consumer": name,
            "channel": self.name,
            "prefetch": self.limit or wanted.prefetch,
            "global": self.limit > 0,
            "exclusive": wanted.exclusive,
            "priority": wanted.priority,
            "cancel_on_failover": wanted.cancel_on_failover,
            "no_ack": wanted.no_ack,
        }
        row = self.rows.begin("consumer", queue, extra)
        consumer = Consumer(name, queue, wanted, extra, row)
        self.consumers[name] = consumer
        self._queues[name], self._no_ack[name] = queue, wanted.no_ack
        self._proofs.subscribed(queue)
        return consumer

    def _began_or_ended(self, event: commands.Basic.ConsumeOk | commands.Basic.CancelOk) -> None:
        consumer = self.consumers.get(event.consumer_tag or "")
        if consumer is None:
            return
        if isinstance(event, commands.Basic.ConsumeOk):
            consumer.active_ns = self.rows.now_ns()
        else:
            self._end_consumer(consumer, "cancelled")
            self._close_if_idle()

    def _cancelled_by_server(self, event: commands.Basic.Cancel) -> None:
        """Its queue is gone, or has another master: nothing said of its deliveries can be proved
        by asking."""
        if not event.nowait:
            self._send(commands.Basic.CancelOk(consumer_tag=event.consumer_tag))
        consumer = self.consumers.get(event.consumer_tag or "")
        if consumer is None:
            return
        self._proofs.cut_off(consumer.queue)
        self._end_consumer(consumer, "cancelled-by-server")
        self._close_if_idle()

    def _end_consumer(self, consumer: Consumer, ended: str, error: str | None = None) -> None:
        del self.consumers[consumer.name]
        told = {"active_ns": consumer.active_ns, "leaving_ns": consumer.leaving_ns, "ended": ended}
        kind: OpType = "info" if consumer.active_ns is None else "ok"
        if ended == "refused":
            kind = "fail"
        self.rows.end(
            consumer.row, Completion(type=kind, error=error, extra={**consumer.extra, **told})
        )

    # Deliveries, and what is said of them.

    def _delivered(self, content: Content) -> None:
        method, properties = content.method, content.properties
        assert isinstance(method, commands.Basic.Deliver)
        name, tag = method.consumer_tag or "", int(method.delivery_tag or 0)
        queue = self._queues.get(name, "")
        value = decode_body(content.body)
        extra: dict[str, object] = {"consumer": name, "channel": self.name, "tag": tag}
        if properties is not None:
            extra.update(told_in(properties))
        self.rows.happened(
            "deliver",
            Completion(
                type="ok",
                key=queue,
                value=value,
                redelivered=bool(method.redelivered),
                error=CORRUPTED if value is None else None,
                extra=extra,
            ),
        )
        self._highest = tag
        if self._no_ack.get(name):
            return
        verdict = self.settling.verdict(self._came)
        self._came += 1
        self.unsettled[tag] = Unsettled(queue, value, kept=verdict.said == "never")
        if verdict.said == "never":
            return
        if verdict.after_ms <= 0 and self._recovering is None:
            self._say(tag, verdict)
        else:
            self._due.add(tag, verdict)

    def _say_if_unsettled(self, tag: int, verdict: Verdict) -> None:
        if tag in self.unsettled:
            self._say(tag, verdict)

    def _say(self, tag: int, verdict: Verdict) -> None:
        if verdict.said == "recover":
            self._due.is_held = True
            told = {"channel": self.name, "upto": self._highest}
            self._recovering = self.rows.begin("recover", "", told)
            self._send(commands.Basic.Recover(requeue=True))
            return
        said, own = verdict.said, self.unsettled[tag]
        extra: dict[str, object] = {"channel": self.name, "tag": tag}
        settled = [tag]
        if verdict.multiple:
            extra["upto"] = tag
            settled = [other for other in self.unsettled if other <= tag]
        if said != "ack":
            extra["requeue"] = verdict.requeue
        queues = tuple(dict.fromkeys(self.unsettled[other].queue for other in settled))
        for other in settled:
            del self.unsettled[other]
        row = self.rows.begin(said, own.queue, extra, None if verdict.multiple else own.value)
        self._send(settlement_of(tag, verdict))
        self._proofs.want(row, queues)

    def _recovered(self) -> None:
        if self._recovering is None:
            return
        told = {"channel": self.name, "upto": self._highest}
        self.rows.end(self._recovering, Completion(type="ok", extra=told))
        self._recovering = None
        self.unsettled.clear()
        self._due.clear()
        self._close_if_idle()

    # Its end.

    def _close_if_idle(self) -> None:
        """No consumer is left here, and nothing more will be said."""
        quiet = not self.consumers and self._proofs.are_given and not self._rpcs.waiters
        waits = any(not delivery.kept for delivery in self.unsettled.values())
        if quiet and not waits and self._made and self._recovering is None:
            self.close()

    def _end(self, ended: str, error: str | None = None, caused_by: int = 0) -> None:
        if self.ended is not None:
            return
        self.ended = ended
        self._due.end()
        why = error or ended
        self._proofs.end(why)
        if self._recovering is not None:
            self.rows.end(self._recovering, Completion(type="info", error=why))
        for consumer in list(self.consumers.values()):
            refused = caused_by == _CONSUME and consumer.active_ns is None
            self._end_consumer(consumer, "refused" if refused else ended, error)
        told = {"channel": self.name, "connection": self.connection_name, "ended": ended}
        self.rows.end(self._row, Completion(type="ok", error=error, extra=told))
        self._rpcs.end(ended, why, caused_by)
        self._proofs.refuse(why)
        self.on_end(self)

    def _send(self, *methods: Frame) -> None:
        self.connection.send(*methods, channel=self.number)


CORRUPTED = "corrupted"


@dataclass(slots=True, eq=False)
class DueVerdicts:
    """What is to be said of deliveries later, by a timer. ``is_held``: while the server recovers,
    nothing is said.
    """

    say: Callable[[int, Verdict], None]
    is_held: bool = False
    _due: list[tuple[float, int, Verdict]] = field(default_factory=list)  # (at, tag, what)
    _timer: asyncio.TimerHandle | None = None

    def add(self, tag: int, verdict: Verdict) -> None:
        at_s = asyncio.get_running_loop().time() + verdict.after_ms / 1000
        heappush(self._due, (at_s, tag, verdict))  # no two have one tag
        self._wind()

    def clear(self) -> None:
        """The server has recovered: what was due is its again."""
        self.is_held = False
        self._due.clear()
        self._wind()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.is_held = True

    def _wind(self) -> None:
        """See that the earliest of what is due is said in time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and not self.is_held:
            loop = asyncio.get_running_loop()
            delay_s = max(0.0, self._due[0][0] - loop.time())
            self._timer = loop.call_later(delay_s, self._say_what_is_due)

    def _say_what_is_due(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time() + 1e-6
        while self._due and self._due[0][0] <= now_s and not self.is_held:
            _, tag, verdict = heappop(self._due)
            self.say(tag, verdict)
        self._wind()


@dataclass(slots=True, eq=False)
class Consumer:
    """One consumer as its client sees it. ``active_ns``: when consume-ok came."""

    name: str
    queue: str
    wanted: Subscription
    extra: dict[str, object]
    row: int
    active_ns: int | None = None
    leaving_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A delivery of which nothing was said yet. ``kept``: nothing will be."""

    queue: str
    value: int | None
    kept: bool


def settlement_of(tag: int, verdict: Verdict) -> Frame:
    if verdict.said == "ack":
        return commands.Basic.Ack(delivery_tag=tag, multiple=verdict.multiple)
    if verdict.said == "nack":
        return commands.Basic.Nack(
            delivery_tag=tag, multiple=verdict.multiple, requeue=verdict.requeue
        )
    return commands.Basic.Reject(delivery_tag=tag, requeue=verdict.requeue)


def told_in(properties: commands.Basic.Properties) -> dict[str, object]:
    """What a row says of a message besides its body: its deaths and its priority."""
    told: dict[str, object] = {}
    deaths = (properties.headers or {}).get("x-death")
    if isinstance(deaths, list):
        told["deaths"] = [
            {name: death.get(name) for name in ("queue", "reason", "count")}
            for death in deaths
            if isinstance(death, dict)
        ]
    if properties.priority is not None:
        told["priority"] = properties.priority
    return told
