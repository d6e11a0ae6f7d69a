"""ConnectionRows: what passed on one AMQP connection, as rows of the history.

The rows are those that docs/reference/consumers.md names for the workload ``consume``: channels and
consumers from their beginning to their end, deliveries, and what was said of them. They say what
was on the wire, caused by an application or by its library's recovery. A consumer that a library
makes again on a new channel is a new consumer, though its tag be the same; the old one is ``lost``.

An ack, nack or reject is ok once a passive queue.declare of its queue, sent later on the same
channel, was answered. What a publish came to is kept for its client (``published``).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from pamqp import commands
from pamqp.base import Frame

from shalott.clients.amqp_libraries.amqp_tap import Message
from shalott.core.client import ClientRows
from shalott.core.message_body import decode_body
from shalott.core.op import Completion, OpType

CORRUPTED = "corrupted"
CUT_OFF = "the consumer had been cancelled by the server"
_CONSUME = commands.Basic.Consume.index


@dataclass(slots=True)
class Published:
    """How often a message was sent, and what came back for it."""

    sent: int = 0
    acked: int = 0
    nacked: int = 0
    returned: list[str] = field(default_factory=list)


class Ledger:
    """What a client's connections have in common: names, and what became of its publishes.
    ``numbers``: of the connections of the whole run."""

    def __init__(self, rows: ClientRows, numbers: Iterator[int]) -> None:
        self.rows = rows
        self.published: dict[int, Published] = {}
        self.over: str | None = None  # why connections end from now on: hung-up, closed
        self._numbers = numbers

    def connection(self) -> ConnectionRows:
        return ConnectionRows(self, f"{self.rows.process}.{next(self._numbers)}")


@dataclass(slots=True)
class _Consumer:
    name: str
    queue: str
    row: int
    extra: dict[str, object]
    no_ack: bool


@dataclass(slots=True)
class _Said:
    """``queues``: those whose masters have not answered since."""

    row: int
    queues: list[str]


@dataclass(slots=True)
class _Channel:
    name: str
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    row: int | None = None  # of the history, as soon as it has a consumer
    extra: dict[str, object] = field(default_factory=dict)
    prefetch: int = 0
    is_global: bool = False
    asking: deque[_Consumer] = field(default_factory=deque)  # no consume-ok yet
    consumers: dict[str, _Consumer] = field(default_factory=dict)  # by tag
    gone: dict[str, _Consumer] = field(default_factory=dict)  # those that have ended
    unsettled: dict[int, tuple[str, int | None]] = field(default_factory=dict)  # queue, value
    said: list[_Said] = field(default_factory=list)
    checks: deque[tuple[str, int]] = field(default_factory=deque)  # queue, so much was said
    cut_off: dict[str, None] = field(default_factory=dict)  # queues
    recovers: deque[int] = field(default_factory=deque)
    highest: int = 0  # delivery tag
    published: dict[int, int] = field(default_factory=dict)  # value, by sequence number
    sequence: int = 0
    confirms: bool = False
    closing: bool = False  # its client asked


class ConnectionRows:
    """A Reader of AmqpTap."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._rows = ledger.rows
        self.name = name
        self._channels: dict[int, _Channel] = {}
        self._opened = itertools.count(1)
        self._blocked: int | None = None
        self._why = ""  # the server's words when it closed the connection
        self._said_goodbye = False

    # -- what the client sent ----------------------------------------------------------------------

    def sent(self, number: int, method: Frame, message: Message | None) -> None:
        match method:
            case commands.Channel.Open():
                self._channels[number] = _Channel(f"{self.name}.{next(self._opened)}")
            case commands.Connection.Close():
                self._said_goodbye = True
        channel = self._channels.get(number)
        if channel is None:
            return
        match method:
            case commands.Basic.Qos():
                channel.prefetch = int(method.prefetch_count or 0)
                channel.is_global = bool(method.global_)
            case commands.Basic.Consume():
                self._consume(channel, method)
            case commands.Basic.Cancel():
                self._leave(channel, str(method.consumer_tag))
            case commands.Basic.Ack() | commands.Basic.Nack() | commands.Basic.Reject():
                self._say(channel, method)
            case commands.Basic.Recover():
                extra = {"channel": channel.name, "upto": channel.highest}
                channel.recovers.append(self._rows.begin("recover", "", extra))
            case commands.Queue.Declare() if not method.nowait:
                asked = str(method.queue) if method.passive else ""
                channel.checks.append((asked, len(channel.said)))
            case commands.Confirm.Select():
                channel.confirms = True
            case commands.Basic.Publish() if message is not None:
                self._publish(channel, message)
            case commands.Channel.Close():
                channel.closing = True

    def _consume(self, channel: _Channel, method: commands.Basic.Consume) -> None:
        if channel.row is None:
            channel.extra = {"channel": channel.name, "connection": self.name}
            channel.row = self._rows.begin("channel", "", channel.extra)
        queue, tag = str(method.queue), str(method.consumer_tag)
        name = f"{channel.name}.{next(channel.numbers)}"
        arguments = method.arguments or {}
        extra: dict[str, object] = {
            "consumer": name,
            "channel": channel.name,
            "prefetch": channel.prefetch,
            "global": channel.is_global,
            "exclusive": bool(method.exclusive),
            "priority": arguments.get("x-priority", 0),
            "cancel_on_failover": bool(arguments.get("x-cancel-on-ha-failover", False)),
            "no_ack": bool(method.no_ack),
            "consumer_tag": tag,  # the library's, which may be that of an earlier consumer
            "active_ns": None,
            "leaving_ns": None,
        }
        row = self._rows.begin("consumer", queue, extra)
        channel.asking.append(_Consumer(name, queue, row, extra, bool(method.no_ack)))

    def _leave(self, channel: _Channel, tag: str) -> None:
        consumer = channel.consumers.get(tag)
        if consumer is not None:
            consumer.extra["leaving_ns"] = self._rows.now_ns()

    def _say(
        self,
        channel: _Channel,
        method: commands.Basic.Ack | commands.Basic.Nack | commands.Basic.Reject,
    ) -> None:
        tag = int(method.delivery_tag or 0)
        multiple = bool(getattr(method, "multiple", False))
        extra: dict[str, object] = {"channel": channel.name, "tag": tag}
        if not isinstance(method, commands.Basic.Ack):
            extra["requeue"] = bool(method.requeue)
        if multiple:
            upto = tag or channel.highest
            extra |= {"multiple": True, "upto": upto}
            settled = [each for each in channel.unsettled if each <= upto]
        else:
            settled = [tag] if tag in channel.unsettled else []
        messages = [channel.unsettled.pop(each) for each in settled]
        queues = list(dict.fromkeys(queue for queue, _ in messages))
        queue = queues[-1] if queues else ""
        value = messages[0][1] if messages and not multiple else None
        f = method.name.rpartition(".")[2].lower()
        row = self._rows.begin(f, queue, extra, value)
        if any(each in channel.cut_off for each in queues):
            self._rows.end(row, Completion(type="info", error=CUT_OFF))
        else:
            channel.said.append(_Said(row, queues or [""]))

    def _publish(self, channel: _Channel, message: Message) -> None:
        value = decode_body(message.body)
        channel.sequence += 1
        if value is None:
            return
        self._ledger.published.setdefault(value, Published()).sent += 1
        if channel.confirms:
            channel.published[channel.sequence] = value

    # -- what came from the server -----------------------------------------------------------------

    def came(self, number: int, method: Frame, message: Message | None) -> None:
        match method:
            case commands.Connection.Close():
                self._why = f"{method.reply_code} {method.reply_text}"
            case commands.Connection.Blocked():
                extra = {"why": str(method.reason), "connection": self.name}
                self._blocked = self._rows.begin("blocked", "", extra)
            case commands.Connection.Unblocked():
                self._unblocked()
        channel = self._channels.get(number)
        if channel is None:
            return
        match method:
            case commands.Basic.ConsumeOk() if channel.asking:
                consumer = channel.asking.popleft()
                consumer.extra["active_ns"] = self._rows.now_ns()
                consumer.extra["consumer_tag"] = str(method.consumer_tag)
                channel.consumers[str(method.consumer_tag)] = consumer
                channel.cut_off.pop(consumer.queue, None)
            case commands.Basic.Deliver() if message is not None:
                self._deliver(channel, method, message)
            case commands.Basic.CancelOk():
                self._end_consumer(channel, str(method.consumer_tag), "cancelled")
            case commands.Basic.Cancel():
                cancelled = channel.consumers.get(str(method.consumer_tag))
                if cancelled is not None:
                    self._cut_off(channel, cancelled.queue)
                self._end_consumer(channel, str(method.consumer_tag), "cancelled-by-server")
            case commands.Queue.DeclareOk() if channel.checks:
                self._checked(channel, *channel.checks.popleft())
            case commands.Basic.RecoverOk() if channel.recovers:
                channel.unsettled.clear()
                told = {"channel": channel.name, "upto": channel.highest}
                self._rows.end(channel.recovers.popleft(), Completion(type="ok", extra=told))
            case commands.Basic.Return() if message is not None:
                self._returned(method, message)
            case commands.Basic.Ack() | commands.Basic.Nack():
                self._confirmed(channel, method)
            case commands.Channel.Close():
                refused = (int(method.class_id or 0) << 16 | int(method.method_id or 0)) == _CONSUME
                error = f"{method.reply_code} {method.reply_text}"
                self._end_channel(number, "channel-closed", error, refused=refused)
            case commands.Channel.CloseOk():
                self._end_channel(number, "channel-closed", None)

    def _deliver(self, channel: _Channel, method: commands.Basic.Deliver, message: Message) -> None:
        consumer_tag, tag = str(method.consumer_tag), int(method.delivery_tag or 0)
        consumer = channel.consumers.get(consumer_tag) or channel.gone.get(consumer_tag)
        queue = "" if consumer is None else consumer.queue
        value = decode_body(message.body)
        channel.highest = max(channel.highest, tag)
        if consumer is None or not consumer.no_ack:
            channel.unsettled[tag] = (queue, value)
        extra: dict[str, object] = {
            "consumer": consumer_tag if consumer is None else consumer.name,
            "channel": channel.name,
            "tag": tag,
        }
        headers = message.properties.headers or {}
        deaths = headers.get("x-death")
        if isinstance(deaths, list):
            extra["deaths"] = [
                {name: death.get(name) for name in ("queue", "reason", "count")}
                for death in deaths
                if isinstance(death, dict)
            ]
        if message.properties.priority is not None:
            extra["priority"] = message.properties.priority
        self._rows.happened(
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

    def _checked(self, channel: _Channel, queue: str, count: int) -> None:
        """The queue's master has answered what was sent behind the first ``count``."""
        for said in channel.said[:count]:
            if queue in said.queues:
                said.queues.remove(queue)
                if not said.queues:
                    self._rows.end(said.row, Completion(type="ok"))
        self._keep_said(channel, [bool(said.queues) for said in channel.said])

    def _keep_said(self, channel: _Channel, keep: list[bool]) -> None:
        """Forget the others. Questions under way count what was said before them."""
        channel.checks = deque((name, sum(keep[:count])) for name, count in channel.checks)
        channel.said = [said for said, stays in zip(channel.said, keep, strict=True) if stays]

    def _cut_off(self, channel: _Channel, queue: str) -> None:
        """The server cancelled a consumer: its queue is gone, or has another master. Nothing that
        was said of its deliveries can be proved by asking."""
        channel.cut_off[queue] = None
        keep = [queue not in said.queues for said in channel.said]
        for said, stays in zip(channel.said, keep, strict=True):
            if not stays:
                self._rows.end(said.row, Completion(type="info", error=CUT_OFF))
        self._keep_said(channel, keep)

    def _returned(self, method: commands.Basic.Return, message: Message) -> None:
        value = decode_body(message.body)
        if value is not None and value in self._ledger.published:
            words = f"{method.reply_code} {method.reply_text}"
            self._ledger.published[value].returned.append(words)

    def _confirmed(
        self, channel: _Channel, method: commands.Basic.Ack | commands.Basic.Nack
    ) -> None:
        tag = int(method.delivery_tag or 0)
        numbers = [tag]
        if method.multiple:
            numbers = [each for each in channel.published if tag == 0 or each <= tag]
        for number in numbers:
            value = channel.published.pop(number, None)
            if value is None:
                continue
            if isinstance(method, commands.Basic.Ack):
                self._ledger.published[value].acked += 1
            else:
                self._ledger.published[value].nacked += 1

    # -- ends --------------------------------------------------------------------------------------

    def ended(self, error: str) -> None:
        over = self._ledger.over
        ended = over or ("closed" if self._said_goodbye else "lost")
        for number in list(self._channels):
            self._end_channel(number, ended, None if over else self._why or error)
        self._unblocked()

    def _end_channel(
        self, number: int, ended: str, error: str | None, *, refused: bool = False
    ) -> None:
        channel = self._channels.pop(number)
        for consumer in (*channel.consumers.values(), *channel.asking):
            its = ended
            kind: OpType = "ok" if consumer.extra["active_ns"] is not None else "info"
            if refused and consumer in channel.asking:
                its, kind = "refused", "fail"
            self._rows.end(
                consumer.row,
                Completion(type=kind, error=error, extra={**consumer.extra, "ended": its}),
            )
        for row in (*(said.row for said in channel.said), *channel.recovers):
            self._rows.end(
                row, Completion(type="info", error=f"{ended}: {error}" if error else ended)
            )
        if channel.row is not None:
            extra = {**channel.extra, "ended": ended}
            self._rows.end(channel.row, Completion(type="ok", error=error, extra=extra))

    def _end_consumer(self, channel: _Channel, tag: str, ended: str) -> None:
        consumer = channel.consumers.pop(tag, None)
        if consumer is not None:
            channel.gone[tag] = consumer
            extra = {**consumer.extra, "ended": ended}
            self._rows.end(consumer.row, Completion(type="ok", extra=extra))

    def _unblocked(self) -> None:
        row, self._blocked = self._blocked, None
        if row is not None:
            self._rows.end(row, Completion(type="ok"))
