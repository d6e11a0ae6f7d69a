"""Deliveries: what a client has been given on one channel, and has not settled yet.

A delivery whose queue process died is *stale*: the queue will deliver the message again from
elsewhere, so settling the old tag means nothing, but it is no error either, because the client
could not know.

A per-consumer prefetch is the queue's business. The channel-wide one (qos with global) spans queues
on different nodes, so the channel keeps it: each queue is told the limit, and what several queues
deliver beyond it together goes back to where it was. From the first that is returned to a queue all
that it sends is, until it has said that nothing is under way any more (Paused) and there is room
(Resume): so nothing overtakes what went back.
"""

from __future__ import annotations

from collections.abc import Iterable

from pamqp import commands

from shalott.broker.rabbit.amqp.errors import NOT_IMPLEMENTED, PRECONDITION_FAILED, AmqpError
from shalott.broker.rabbit.amqp.queue_methods import QueueAccess, unexpected_answer
from shalott.broker.rabbit.amqp.queue_protocol import (
    ChannelLimit,
    Deliver,
    Get,
    Got,
    GotEmpty,
    Resume,
    Returned,
    Settle,
    Taken,
    Written,
)
from shalott.broker.rabbit.amqp.services import Context
from shalott.broker.rabbit.amqp.wire import encode_deliver, encode_get_ok
from shalott.broker.rabbit.processes.messages import Pid

WRITTEN_EVERY = 50  # deliveries after which their queue is told (rabbit_writer.erl)


class Delivery:
    """One unsettled delivery. ``process`` None: stale."""

    __slots__ = ("ack_id", "at_ns", "counted", "process", "tag")

    def __init__(self, process: Pid, ack_id: int, *, counted: bool, at_ns: int = 0) -> None:
        self.at_ns = at_ns  # when it was given
        self.process: Pid | None = process
        self.ack_id = ack_id
        self.tag = 0
        self.counted = counted  # against the channel's global prefetch


class Deliveries:
    """By tag: pure bookkeeping. Tags count up from 1 and are never reused.

    What ``settle`` takes out stays *uncommitted* until the queues hear of it (``commit``), which
    is at once but in a transaction; ``roll_back`` makes it unsettled again.
    """

    def __init__(self) -> None:
        self._unsettled: dict[int, Delivery] = {}  # in order of tag
        self._uncommitted: dict[int, Delivery] = {}
        self._last_tag = 0
        self.counted = 0

    def __len__(self) -> int:
        return len(self._unsettled)

    def processes(self) -> list[Pid]:
        """Of the queues that hear how these are settled."""
        given = (delivery.process for delivery in self._unsettled.values())
        return list(dict.fromkeys(process for process in given if process is not None))

    def outstanding(self) -> int:
        """Those that take a place in the channel's prefetch, counted anew."""
        return sum(one.counted for one in (*self._unsettled.values(), *self._uncommitted.values()))

    @property
    def upcoming_tag(self) -> int:
        """Of the next delivery. A reply bears it too, and can't be settled."""
        return self._last_tag + 1

    @property
    def oldest_ns(self) -> int | None:
        """When the client was given what it holds longest."""
        oldest = next(iter(self._unsettled.values()), None)
        return None if oldest is None else oldest.at_ns

    def next_tag(self) -> int:
        self._last_tag += 1
        return self._last_tag

    def add(self, tag: int, delivery: Delivery) -> None:
        delivery.tag = tag
        self._unsettled[tag] = delivery
        self.counted += delivery.counted

    def settle(self, tag: int, *, multiple: bool) -> list[Delivery]:
        """Take out what the client settles. Raises AmqpError(406) if ``tag`` is not unsettled."""
        if tag == 0 and multiple:
            return self.settle_all()
        if tag not in self._unsettled:
            raise AmqpError(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        tags: list[int] = [tag]
        if multiple:
            tags = []
            for candidate in self._unsettled:
                if candidate > tag:
                    break
                tags.append(candidate)
        return self._remove(tags)

    def settle_all(self) -> list[Delivery]:
        return self._remove(list(self._unsettled))

    def process_down(self, process: Pid) -> None:
        """Everything from ``process`` is stale now."""
        for delivery in (*self._unsettled.values(), *self._uncommitted.values()):
            if delivery.process == process:
                delivery.process = None
                self.counted -= delivery.counted
                delivery.counted = False

    def commit(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            del self._uncommitted[delivery.tag]
            self.counted -= delivery.counted

    def roll_back(self) -> None:
        back = self._unsettled | self._uncommitted
        self._unsettled = {tag: back[tag] for tag in sorted(back)}
        self._uncommitted = {}

    def _remove(self, tags: Iterable[int]) -> list[Delivery]:
        removed = [self._unsettled.pop(tag) for tag in tags]
        self._uncommitted.update((delivery.tag, delivery) for delivery in removed)
        return removed


def by_process(deliveries: Iterable[Delivery]) -> dict[Pid, tuple[int, ...]]:
    """The ack ids that each living queue process is to hear of, in order of delivery."""
    grouped: dict[Pid, list[int]] = {}
    for delivery in deliveries:
        if delivery.process is not None:
            grouped.setdefault(delivery.process, []).append(delivery.ack_id)
    return {process: tuple(ack_ids) for process, ack_ids in grouped.items()}


class WrittenCounts:
    """How many deliveries of each queue process went to the client's socket, or back."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._counts: dict[Pid, int] = {}  # of which their queue has not been told

    def count(self, process: Pid) -> None:
        count = self._counts.get(process, 0) + 1
        if count == WRITTEN_EVERY:
            self._context.services.runtime.send(process, Written(self._context.pid, count))
            count = 0
        self._counts[process] = count

    def process_down(self, process: Pid) -> None:
        self._counts.pop(process, None)


class Unsettled:
    """A channel's deliveries, the channel-wide prefetch, and the methods that give and settle."""

    def __init__(self, context: Context, access: QueueAccess) -> None:
        self._context = context
        self._access = access
        self.deliveries = Deliveries()
        self.prefetch = 0  # of all consumers together; 0: no limit
        self._limits: dict[Pid, int] = {}  # what queue processes were told of it; else 0
        # Queue processes that a delivery beyond the prefetch was returned to; whether they have
        # heard of it.
        self._returned: dict[Pid, bool] = {}
        self.written = WrittenCounts(context)
        # In a transaction, what the client settled since it began; None: there is none.
        self._uncommitted: list[tuple[str, list[Delivery]]] | None = None

    def __len__(self) -> int:
        return len(self.deliveries)

    # -- methods -----------------------------------------------------------------------------------

    async def get(self, method: commands.Basic.Get) -> None:
        name = self._access.name(method.queue)
        request = Get(self._context.pid, method.no_ack)
        row, answer = await self._access.ask(name, request)
        if isinstance(answer, GotEmpty):
            self._context.counts.add("get_empty")
            await self._context.port.send(commands.Basic.GetEmpty())
            return
        if not isinstance(answer, Got):
            raise unexpected_answer(row, answer)
        content = answer.content
        tag = self.deliveries.next_tag()
        self._given_away("get_no_ack" if method.no_ack else "get", row.pid, answer)
        if not method.no_ack:
            assert row.pid is not None
            self._context.watch(row.pid)
            self.deliveries.add(tag, _given(self._context, row.pid, answer.ack_id, counted=False))
        payload = encode_get_ok(
            tag, answer.redelivered, content.exchange, content.routing_key, answer.remaining
        )
        await self._context.port.send_content(payload, content.properties, content.body)

    async def ack(self, method: commands.Basic.Ack) -> None:
        await self._settle(method.delivery_tag, multiple=method.multiple, outcome="ack")

    async def nack(self, method: commands.Basic.Nack) -> None:
        outcome = "requeue" if method.requeue else "reject"
        await self._settle(method.delivery_tag, multiple=method.multiple, outcome=outcome)

    async def reject(self, method: commands.Basic.Reject) -> None:
        outcome = "requeue" if method.requeue else "reject"
        await self._settle(method.delivery_tag or 0, multiple=False, outcome=outcome)

    async def recover(self, requeue: bool, *, answers: bool) -> None:
        """What comes before recover-ok is taken back, so queues go on after it."""
        if not requeue:
            raise AmqpError(NOT_IMPLEMENTED, "requeue=false")
        self._tell_queues(self.deliveries.settle_all(), "requeue")
        if answers:
            await self._context.port.send(commands.Basic.RecoverOk())
        self.resume()

    async def _settle(self, tag: int, *, multiple: bool, outcome: str) -> None:
        settled = self.deliveries.settle(tag, multiple=multiple)
        if self._uncommitted is not None:
            self._uncommitted.append((outcome, settled))
            return
        self._tell_queues(settled, outcome)
        self.resume()

    # -- transactions ------------------------------------------------------------------------------

    def begin(self) -> None:
        """From now on queues hear of what is settled when it is committed."""
        self._uncommitted = []

    @property
    def uncommitted_acks(self) -> int:
        return sum(len(settled) for outcome, settled in self._uncommitted or () if outcome == "ack")

    def commit(self) -> None:
        """In the order in which the client settled."""
        settlements, self._uncommitted = self._uncommitted or (), []
        for outcome, settled in settlements:
            self._tell_queues(settled, outcome)
        self.resume()

    def roll_back(self) -> None:
        """All that was settled since the transaction began is the client's again."""
        self._uncommitted = []
        self.deliveries.roll_back()

    def _tell_queues(self, deliveries: list[Delivery], outcome: str) -> None:
        if outcome == "ack":
            self._context.counts.add("ack", len(deliveries))
        self.deliveries.commit(deliveries)
        for process, ack_ids in by_process(deliveries).items():
            settle = Settle(self._context.pid, ack_ids, outcome)
            self._context.services.runtime.send(process, settle)

    # -- deliveries --------------------------------------------------------------------------------

    async def pass_on(self, message: Deliver, *, no_ack: bool) -> None:
        tag = self.deliveries.next_tag()
        if not no_ack:
            self.deliveries.add(
                tag, _given(self._context, message.process, message.ack_id, counted=True)
            )
        _testify(self._context, self.deliveries)
        content = message.content
        self._given_away("deliver_no_ack" if no_ack else "deliver", message.process, message)
        payload = encode_deliver(
            message.tag, tag, message.redelivered, content.exchange, content.routing_key
        )
        await self._context.port.send_content(payload, content.properties, content.body)

    def _given_away(self, how: str, process: Pid | None, given: Got | Deliver) -> None:
        """A client is about to have it."""
        self._context.counts.add(how)
        if given.redelivered:
            self._context.counts.add("redeliver")
        told = str(process), given.content.id, given.redelivered
        self._context.services.env.witness("delivered", *told)

    def requeue(self, message: Deliver) -> None:
        settle = Settle(self._context.pid, (message.ack_id,), "requeue")
        self._context.services.runtime.send(message.process, settle)

    def process_down(self, process: Pid) -> None:
        self._limits.pop(process, None)
        self.deliveries.process_down(process)
        self._returned.pop(process, None)
        self.written.process_down(process)
        _testify(self._context, self.deliveries)

    # -- the channel-wide prefetch -----------------------------------------------------------------

    @property
    def _full(self) -> bool:
        return 0 < self.prefetch <= self.deliveries.counted

    def send_limit(self, process: Pid | None) -> None:
        """A queue process keeps what it was told, also while it has no consumer."""
        limit = self.prefetch
        if process is not None and self._limits.get(process, 0) != limit:
            self._context.watch(process)
            self._limits[process] = limit
            message = ChannelLimit(self._context.pid, limit)
            self._context.services.runtime.send(process, message)

    def is_returned(self, message: Deliver) -> bool:
        """Whether it was beyond the limit, and went back. A queue that asks is told."""
        if not self._full and message.process not in self._returned:
            if message.asks:
                taken = Taken(self._context.pid, message.ack_id)
                self._context.services.runtime.send(message.process, taken)
            return False
        self._returned.setdefault(message.process, False)
        back = Returned(self._context.pid, message.ack_id, message.redelivered)
        self._context.services.runtime.send(message.process, back)
        return True

    def paused(self, process: Pid) -> None:
        if process in self._returned:
            self._returned[process] = True
            self.resume()

    def resume(self) -> None:
        """The first to send something has the room; the others are returned theirs again."""
        if self._full:
            return
        for process in [process for process, heard in self._returned.items() if heard]:
            del self._returned[process]
            self._context.services.runtime.send(process, Resume(self._context.pid))


def _testify(context: Context, deliveries: Deliveries) -> None:
    """What counts against the prefetch."""
    told = context.pid, deliveries.counted, deliveries.outstanding
    context.services.env.witness("prefetch", *told)


def _given(context: Context, process: Pid, ack_id: int, *, counted: bool) -> Delivery:
    now_ns = context.services.env.clock.monotonic_ns()
    return Delivery(process, ack_id, counted=counted, at_ns=now_ns)


def check_timeout(context: Context, deliveries: Deliveries) -> None:
    """Raises AmqpError(406) if the client has held a delivery for too long."""
    timeout_ms = context.services.config.consumer_timeout_ms
    oldest_ns = deliveries.oldest_ns
    now_ns = context.services.env.clock.monotonic_ns()
    if oldest_ns is not None and now_ns - oldest_ns > timeout_ms * 1_000_000:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"delivery acknowledgement on channel {context.number} timed out. Timeout value used:"
            f" {timeout_ms} ms. This timeout value can be configured, see consumers doc guide to"
            " learn more",
        )
