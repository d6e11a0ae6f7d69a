"""Consumption: one queue that is a member's, from when it was assigned to when it was given up.

What RocketMQ's push consumer does between a pull and a commit. Concurrent consumers give several
messages to the listener at once, and send back to the broker what it wants later; what could not be
sent back is given to it again here (client/impl/consumer/ConsumeMessageConcurrentlyService.java).
Orderly ones give one at a time, while the broker's lock on the queue is theirs, and the same one
again after a pause (ConsumeMessageOrderlyService.java). What a listener says of a queue that was
given up meanwhile counts for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from shalott.broker.base.tasks import Tasks
from shalott.broker.rocket.remoting.command import ResponseCode
from shalott.checkers.groups.group_rules import Group
from shalott.clients.rocketmq import group_requests as requests
from shalott.clients.rocketmq.log_client import NOTHING_STORED
from shalott.clients.rocketmq.rocket_client import (
    Dial,
    NotSent,
    Pulled,
    Queue,
    Refused,
    RocketClient,
    RocketError,
    Routes,
)
from shalott.clients.rocketmq.stored_messages import PulledMessage
from shalott.core.client import ClientRows
from shalott.core.message_body import decode_body
from shalott.core.op import Completion, OpType
from shalott.core.rng import draw_float, stream_key

PULL_MESSAGES = 32
HELD_MAX = 256  # upstream: pullThresholdForQueue, 1,000
FULL_S = 0.05  # PULL_TIME_DELAY_MILLS_WHEN_FLOW_CONTROL
PULL_AGAIN_S = 1.0  # after a pull that failed; upstream: 3 s
CONSUME_AGAIN_S = 5.0  # what could not be sent back
NOTHING_S = 0.2  # after an answer that brings nothing and moves nothing
PULL_PATIENCE_MS = 6000  # beyond the wait that was asked for: an original looks every 5 s
LOCK_LIVES_S = 30.0  # REBALANCE_LOCK_MAX_LIVE_TIME: without an answer that renews it
FIRST_RETRY_LEVEL = 3
GONE = "its member is gone"

Finished = Callable[["Consumption"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """As DefaultMQPushConsumer has them. ``parallel``: messages that the listener is given at once
    (its threads). ``retry_level``: the delay that it asks for; 0 leaves it to the broker.
    """

    heartbeat_ms: int = 30_000
    rebalance_ms: int = 20_000
    persist_ms: int = 5000
    lock_ms: int = 20_000
    route_poll_ms: int = 30_000
    pull_wait_ms: int = 15_000
    timeout_ms: int = 3000
    suspend_ms: int = 1000
    parallel: int = 20
    retry_level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What makes a member: ``name`` is its client id. ``dial`` says where an address is reached."""

    name: str
    group: Group
    settings: MemberSettings
    name_server: str
    dial: Dial
    listener: Listener
    rows: ClientRows


@dataclass(slots=True, kw_only=True)
class Means:
    """What a member's consumptions share."""

    name: str
    group: Group
    settings: MemberSettings
    client: RocketClient
    routes: Routes
    listener: Listener
    rows: ClientRows
    slots: asyncio.Semaphore

    @property
    def words(self) -> dict[str, object]:
        """Of every row."""
        return {"member": self.name, "group": self.group.name}


class Consumption:
    """``lost`` is called, once, when an orderly queue's lock is not the member's any more."""

    def __init__(
        self, means: Means, queue: Queue, start: int, why: str, lost: Finished, lock_s: float = 0.0
    ) -> None:
        self.queue = queue
        self.key = f"{queue.topic}/{queue.queue_id}"
        self.why = why
        self.pulled = ProcessingQueue(start)
        self.lock_s = lock_s  # when the answer that renewed it last was asked for
        self.dropped = False
        self.stopping = False
        self._means = means
        self._start = start
        self._lost = lost
        self._busy = 0
        self._changed = asyncio.Event()
        self._tasks = Tasks(name=f"consume {self.key}")
        self._row = means.rows.begin("assignment", self.key, means.words | {"why": why})
        self._tasks.start(self._pull())
        if means.group.orderly:
            self._tasks.start(self._consume_in_order())

    @property
    def committable(self) -> int | None:
        """What may be committed; None if nothing was said yet of a group that is new here."""
        offset = self.pulled.committable
        return offset if offset != self._start or self.why == "committed" else None

    async def stop(self) -> None:
        """Pull nothing more, give nothing more to the listener, and wait until what it works on is
        done."""
        self.stopping = True
        self._changed.set()
        while self._busy:
            self._changed.clear()
            await self._changed.wait()

    async def drop(self) -> None:
        """As ``stop``, but what the listener says counts for nothing."""
        self.dropped = True
        await self.stop()

    async def end(self, ended: str) -> None:
        """End every row; what the listener still works on is unknown."""
        self.dropped = self.stopping = True
        await self._tasks.end()
        words = self._means.words | {"why": self.why, "ended": ended}
        self._means.rows.end(self._row, Completion(type="ok", offset=self._start, extra=words))

    # -- pulling -----------------------------------------------------------------------------------

    async def _pull(self) -> None:
        broker_id: int | None = None
        while not self.stopping:
            if len(self.pulled) >= HELD_MAX:
                await asyncio.sleep(FULL_S)
                continue
            try:
                answer = await self._pull_once(broker_id)
            except RocketError:
                self._means.routes.forget(self.queue.topic)
                broker_id = None
                await asyncio.sleep(PULL_AGAIN_S)
                continue
            broker_id = answer.suggested_id or None
            if not self.stopping:
                await self._take(answer)

    async def _pull_once(self, broker_id: int | None) -> Pulled:
        means, wait_ms = self._means, self._means.settings.pull_wait_ms
        address = await means.routes.address(self.queue, broker_id)
        return await means.client.pull(
            address,
            self.queue,
            self.pulled.next_offset,
            max_messages=PULL_MESSAGES,
            wait_ms=wait_ms,
            timeout_ms=wait_ms + PULL_PATIENCE_MS,
            subscription=requests.subscription_of(means.group, self.queue.topic),
        )

    async def _take(self, answer: Pulled) -> None:
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            await self._move(answer.next_offset)
            return
        wanted = [message for message in answer.messages if self._is_wanted(message)]
        moved = answer.next_offset > self.pulled.next_offset
        for message in self.pulled.put(wanted, answer.next_offset):
            if not self._means.group.orderly:
                self._tasks.start(self._consume(message))
        self._changed.set()
        if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and not moved:
            await asyncio.sleep(NOTHING_S)

    async def _move(self, offset: int) -> None:
        """The queue has no such offset: forget what it had, and go on where the broker says."""
        words = self._means.words | {"from": self.pulled.next_offset}
        self._means.rows.happened(
            "moved", Completion(type="ok", key=self.key, offset=offset, extra=words)
        )
        self.pulled.move(offset)
        await asyncio.sleep(NOTHING_S)

    def _is_wanted(self, message: PulledMessage) -> bool:
        """Brokers go by hashes of tags, so a consumer looks again."""
        tags = self._means.group.tags
        retried = self.queue.topic.startswith(requests.RETRY_PREFIX)
        return not tags or retried or message.properties.get(requests.TAGS) in tags

    # -- consuming ---------------------------------------------------------------------------------

    async def _consume(self, message: PulledMessage) -> None:
        """One message of a concurrent group, until something has become of it."""
        again = 0
        while True:
            async with self._means.slots:
                if self.stopping or self.dropped or not self.pulled.holds(message):
                    return
                self._busy += 1
                try:
                    is_done = await self._consume_once(message, again)
                finally:
                    self._busy -= 1
                    self._changed.set()
            if is_done:
                return
            again += 1
            await asyncio.sleep(CONSUME_AGAIN_S)

    async def _consume_once(self, message: PulledMessage, again: int) -> bool:
        """Whether nothing more is to be done with it here."""
        outcome = await self._deliver(message, again)
        if outcome == "dropped":
            return True
        if outcome == "later" and not await self._send_back(message):
            return False
        self.pulled.done(message)
        return True

    async def _consume_in_order(self) -> None:
        again = 0
        while not self.stopping and not self.dropped:
            message = self.pulled.first
            if message is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            if asyncio.get_running_loop().time() - self.lock_s > LOCK_LIVES_S:
                self._lost(self)
                return
            self._busy += 1
            try:
                is_done = await self._consume_first(message, again)
            finally:
                self._busy -= 1
                self._changed.set()
            again = 0 if is_done else again + 1
            if not is_done:
                await asyncio.sleep(self._means.settings.suspend_ms / 1000)

    async def _consume_first(self, message: PulledMessage, again: int) -> bool:
        outcome = await self._deliver(message, again)
        if outcome == "dropped":
            return True
        times = message.reconsumed + again
        if outcome == "suspend":
            if times < self._means.group.max_reconsume:
                return False
            if not await self._send_to_retry(message, times):
                return False
        self.pulled.done(message)
        return True

    async def _deliver(self, message: PulledMessage, again: int) -> str:
        """Give it to the listener; what comes of it."""
        means = self._means
        value = decode_body(message.body) if message.is_sound else None
        words = means.words | {"reconsumed": message.reconsumed, "origin": _origin(message)}
        if requests.TAGS in message.properties:
            words["tag"] = message.properties[requests.TAGS]
        row = means.rows.begin("deliver", self.key, words, value)
        work = means.listener.work(means.group, value or 0, message.reconsumed + again)
        offset, redelivered = message.queue_offset, message.reconsumed + again > 0
        try:
            await asyncio.sleep(work.time_ms / 1000)
        except asyncio.CancelledError:
            means.rows.end(
                row, Completion(type="info", offset=offset, redelivered=redelivered, error=GONE)
            )
            raise
        outcome = "dropped" if self.dropped else "success" if value is None else work.outcome
        means.rows.end(
            row,
            Completion(
                type="ok",
                offset=offset,
                redelivered=redelivered,
                error="corrupted" if value is None else None,
                extra=words | {"outcome": outcome},
            ),
        )
        return outcome

    # -- sending back ------------------------------------------------------------------------------

    async def _send_back(self, message: PulledMessage) -> bool:
        """Whether the broker certainly has it again."""
        means, level = self._means, self._means.settings.retry_level

        def send(address: str) -> Coroutine[object, object, None]:
            return requests.send_back(means.client, address, means.group, message, level)

        return await self._sent_back(message, level, message.reconsumed, send)

    async def _send_to_retry(self, message: PulledMessage, times: int) -> bool:
        means = self._means
        level = means.settings.retry_level or FIRST_RETRY_LEVEL + times

        def send(address: str) -> Coroutine[object, object, None]:
            return requests.send_to_retry(
                means.client,
                address,
                means.group,
                message,
                broker_name=self.queue.broker_name,
                level=level,
                times=times,
            )

        return await self._sent_back(message, level, times, send)

    async def _sent_back(
        self,
        message: PulledMessage,
        level: int,
        times: int,
        send: Callable[[str], Coroutine[object, object, None]],
    ) -> bool:
        row = self._begin_send_back(message, level, times)
        try:
            await send(await self._means.routes.address(self.queue))
        except RocketError as error:
            self._end_send_back(row, message, error)
            return False
        except asyncio.CancelledError:
            self._end_send_back(row, message, None)
            raise
        self._means.rows.end(row, Completion(type="ok", offset=message.queue_offset))
        return True

    def _begin_send_back(self, message: PulledMessage, level: int, times: int) -> int:
        words = self._means.words | {"level": level, "reconsumed": times}
        value = decode_body(message.body) if message.is_sound else None
        return self._means.rows.begin("send-back", self.key, words, value)

    def _end_send_back(self, row: int, message: PulledMessage, error: RocketError | None) -> None:
        """Without a yes; None: no task waits for the answer any more."""
        if error is not None:
            self._means.routes.forget(self.queue.topic)
        kind: OpType = "info" if error is None else fate_of(error)
        reason = GONE if error is None else str(error)
        self._means.rows.end(row, Completion(type=kind, offset=message.queue_offset, error=reason))


def fate_of(error: RocketError) -> OpType:
    """What became of a request that ended so: it was certainly not done, or may have been."""
    if isinstance(error, NotSent):
        return "fail"
    is_no = isinstance(error, Refused) and NOTHING_STORED in error.remark
    return "fail" if is_no else "info"


def _origin(message: PulledMessage) -> str:
    return message.properties.get(requests.ORIGIN, message.topic)


Outcome = Literal["success", "later", "suspend"]
ATTEMPTS = 64  # of one message that draw different numbers
LOW_BITS = (1 << 32) - 1  # of a value: the message's number in its run


@dataclass(frozen=True, slots=True)
class Work:
    time_ms: float
    outcome: Outcome


@dataclass(slots=True, kw_only=True)
class Listener:
    """What the application does with a message: how long it works on it, and what it answers.

    Drawn for each delivery from the run's seed, the group and the message, so that a message that
    one consumer can't process is one that no consumer of its group can. Shares are of the
    deliveries, but ``poison``: of the messages, which no attempt can consume. ``calm``: from now on
    everything is consumed at once.
    """

    seed: int
    process_ms: int
    slow_ms: int
    slow: float
    later: float
    suspend: float
    poison: float
    calm: bool = False
    _keys: dict[tuple[str, str], int] = field(default_factory=dict)

    def work(self, group: Group, value: int, attempt: int) -> Work:
        """Of the ``attempt``-th time that a message of the group is consumed, counted from 0."""
        place = (value & LOW_BITS) * ATTEMPTS + min(attempt, ATTEMPTS - 1)
        time_ms = 2 * self.process_ms * self._draw(group, "time", place)
        if self.calm:
            return Work(time_ms, "success")
        if self._draw(group, "slow", place) < self.slow:
            time_ms = self.slow_ms
        return Work(time_ms, self._outcome(group, value & LOW_BITS, place))

    def _outcome(self, group: Group, number: int, place: int) -> Outcome:
        if group.broadcast:
            return "success"  # it has no retries
        is_poison = self._draw(group, "poison", number) < self.poison
        share = self.suspend if group.orderly else self.later
        if is_poison or self._draw(group, "outcome", place) < share:
            return "suspend" if group.orderly else "later"
        return "success"

    def _draw(self, group: Group, what: str, place: int) -> float:
        key = self._keys.get((what, group.name))
        if key is None:
            key = stream_key(self.seed, "listener", what, group.name)
            self._keys[what, group.name] = key
        return draw_float(key, place)


Item = TypeVar("Item")


def allocate_averagely(member: str, members: Sequence[str], queues: Sequence[Item]) -> list[Item]:
    """The member's share of the queues, as pages of one size or one more: none if it is not among
    the members. Every member comes to the same division if it sees the same lists.
    """
    ordered = sorted(members)
    if member not in ordered:
        return []
    place, count = ordered.index(member), len(ordered)
    size, rest = divmod(len(queues), count)
    begin = place * size + min(place, rest)
    return list(queues[begin : begin + size + (place < rest)])


class ProcessingQueue:
    """The messages of one queue that were pulled and are not consumed yet, in their order.

    ``next_offset``: where to pull next. Everything before ``committable`` is consumed, or was never
    wanted (another tag).
    """

    def __init__(self, start: int) -> None:
        self.next_offset = start
        self._held: dict[int, PulledMessage] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def committable(self) -> int:
        """The first message that is not consumed, or else the end of what was pulled."""
        return min(self._held) if self._held else self.next_offset

    @property
    def first(self) -> PulledMessage | None:
        """What an orderly consumer takes next."""
        return self._held[min(self._held)] if self._held else None

    def put(self, messages: Sequence[PulledMessage], next_offset: int) -> list[PulledMessage]:
        """What a pull brought, and where the broker says to go on. Returns what is new here."""
        fresh = [one for one in messages if one.queue_offset not in self._held]
        for message in fresh:
            self._held[message.queue_offset] = message
        self.next_offset = max(self.next_offset, next_offset)
        return fresh

    def holds(self, message: PulledMessage) -> bool:
        """Whether it is still to be consumed here."""
        return self._held.get(message.queue_offset) is message

    def done(self, message: PulledMessage) -> None:
        """It was consumed, or is another member's now."""
        if self.holds(message):
            del self._held[message.queue_offset]

    def move(self, offset: int) -> None:
        """Forget everything and go on there: the queue has nothing else."""
        self._held.clear()
        self.next_offset = offset
