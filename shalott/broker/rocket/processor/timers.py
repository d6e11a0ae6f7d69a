"""Timers: messages that are delivered at a time of their own: TIMER_DELIVER_MS, TIMER_DELAY_MS and
TIMER_DELAY_SEC (upstream: TimerMessageStore, HookUtils).

Such a message is stored in the one queue of rmq_sys_wheel_timer, with its real topic and queue and
the time when it is due as properties. The master reads that queue, keeps in memory which place is
due when, and stores what is due under its real topic. Where it stands is written behind and copied
by slaves (delay_tables.py), so after a crash or a failover messages may be delivered again, and
none is forgotten: at least once, as upstream.

As upstream's wheel has slots of a second, the time is rounded down to one, and what is due in a
slot is delivered when the slot is over: never early, and at most a second late.
"""

from __future__ import annotations

import heapq
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field, replace

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.commitlog.api import GetStatus, Message
from shalott.broker.rocket.commitlog.codec import Stored
from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.delay_tables import SLOT_MS
from shalott.broker.rocket.processor.puts import ensure_topic, put
from shalott.broker.rocket.processor.stored_messages import (
    REAL_QID,
    REAL_TOPIC,
    UNIQ_KEY,
    flags_to_store_again,
    properties_of,
    properties_text,
    read_stored,
)
from shalott.broker.rocket.processor.topics import RETRY_PREFIX, TIMER_TOPIC

DELIVER_MS = "TIMER_DELIVER_MS"
DELAY_MS = "TIMER_DELAY_MS"
DELAY_SEC = "TIMER_DELAY_SEC"
OUT_MS = "TIMER_OUT_MS"  # when it is due, rounded down
ENQUEUED_MS = "TIMER_ENQUEUE_MS"
DEQUEUED_MS = "TIMER_DEQUEUE_MS"
REVOKES = "TIMER_DEL_UNIQKEY"  # "topic+key" of a message that is not to be delivered
ASKED = (DELAY_SEC, DELAY_MS, DELIVER_MS)  # the first that is there counts

DELAY_MS_MAX = 3 * 86_400_000  # timerMaxDelaySec
CLOCKS_APART_MS = 3_600_000  # by which a former master's clock may have been wrong
QUEUE = 0
BATCH, BATCH_BYTES = 32, 256 << 10
_LONG = re.compile(r"[+-]?[0-9]{1,18}")


class IllegalTimer(BrokerError):
    """A message asks for a time that is none, or too far away."""


def timed(broker: Broker, message: Message) -> Message:
    """The message as it waits; itself if it asks for no time, or for one that is over. Raises
    IllegalTimer."""
    properties = properties_of(message.properties)
    if OUT_MS in properties or not any(name in properties for name in ASKED):
        return message
    now_ms = broker.wall_ms()
    due_ms = _due_ms(properties, now_ms)
    if due_ms <= now_ms:
        if REVOKES in properties:
            raise IllegalTimer(_illegal())
        return message
    if due_ms - now_ms > DELAY_MS_MAX:
        raise IllegalTimer(_illegal())
    out_ms = (due_ms - 1) // SLOT_MS * SLOT_MS
    ensure_topic(broker, TIMER_TOPIC, queues=1)
    properties |= {OUT_MS: str(out_ms), REAL_TOPIC: message.topic, REAL_QID: str(message.queue_id)}
    text = properties_text(properties)
    return replace(message, topic=TIMER_TOPIC, queue_id=QUEUE, properties=text)


def _due_ms(properties: dict[str, str], now_ms: int) -> int:
    name = next(name for name in ASKED if name in properties)
    if not _LONG.fullmatch(properties[name]):
        raise IllegalTimer(_illegal())
    number = int(properties[name])
    match name:
        case "TIMER_DELAY_SEC":
            return now_ms + number * 1000
        case "TIMER_DELAY_MS":
            return now_ms + number
        case _:
            return number


def _illegal() -> str:
    return (
        "timer message illegal, the delay time should not be bigger than the max delay"
        f" {DELAY_MS_MAX}ms; or if set del msg, the delay time should be bigger than the current"
        " time"
    )


def without_timers(properties: dict[str, str]) -> None:
    """A level of delay counts, and no time beside it."""
    for name in ASKED:
        properties.pop(name, None)


def recall_handle(broker_name: str, message: Message) -> str:
    """What the sender of a timer may call it back with (RecallMessageHandle); "" for others."""
    properties = properties_of(message.properties)
    topic = properties.get(REAL_TOPIC, "")
    if message.topic != TIMER_TOPIC or topic.startswith(RETRY_PREFIX):
        return ""
    due_ms = int(properties[OUT_MS]) + 1  # upstream: the rounding would make it the slot before
    words = ("v1", topic, broker_name, str(due_ms), properties.get(UNIQ_KEY, ""))
    return urlsafe_b64encode(" ".join(words).encode()).decode()


@dataclass
class Timers:
    """What waits at a master; known again whenever it becomes one. ``deliver`` is called again and
    again by the one task that delivers what is delayed."""

    broker: Broker
    _epoch: int | None = None  # of the mastership of which this is known
    _loaded: int = 0  # queue offset up to where it is known
    _waiting: list[tuple[int, int]] = field(default_factory=list)  # a heap: due ms, queue offset
    _revoked: dict[tuple[int, str], None] = field(default_factory=dict)
    _oldest: int | None = None  # the lowest queue offset that waits, while it is known
    _delivered_ms: int = -1  # the latest that was due, of those that were delivered

    def forget(self) -> None:
        """This broker is not the master."""
        self._epoch = None
        self._waiting, self._revoked, self._delivered_ms = [], {}, -1
        self._oldest = None

    def is_used(self) -> bool:
        return self.broker.store.reader.queue_range(TIMER_TOPIC, QUEUE)[1] > 0

    async def deliver(self) -> bool:
        """Whether all that is due is delivered."""
        broker = self.broker
        if self._epoch != broker.replica.epoch:
            await self._begin()
        await self._load()
        done = True
        while self._waiting and self._waiting[0][0] + SLOT_MS <= broker.wall_ms():
            due_ms, offset = self._waiting[0]
            if not await self._deliver_one(due_ms, offset):
                done = False
                break
            heapq.heappop(self._waiting)
            self._oldest = None
            self._delivered_ms = max(self._delivered_ms, due_ms)
        if broker.is_master and self._epoch == broker.replica.epoch:
            self._note()
        return done

    async def _begin(self) -> None:
        """Go on where this broker's former life, or the former master, was."""
        self.forget()
        self._epoch = self.broker.replica.epoch
        store, known = self.broker.store, self.broker.tables.delayed.timers
        since_ms = known.due_ms - DELAY_MS_MAX - CLOCKS_APART_MS
        self._loaded = await store.reader.queue_offset_at_ms(TIMER_TOPIC, QUEUE, since_ms)

    async def _load(self) -> None:
        """Take notice of what came into the queue."""
        store, known = self.broker.store, self.broker.tables.delayed.timers
        first, end = store.reader.queue_range(TIMER_TOPIC, QUEUE)
        self._loaded = max(self._loaded, first)
        while self._loaded < end:
            got = await store.reader.get(
                TIMER_TOPIC, QUEUE, self._loaded, max_messages=BATCH, max_bytes=BATCH_BYTES
            )
            if got.status is not GetStatus.FOUND or not got.messages:
                return
            for number, data in enumerate(got.messages):
                properties = properties_of(read_stored(data).message.properties)
                out_ms, offset = properties.get(OUT_MS, ""), self._loaded + number
                if not _LONG.fullmatch(out_ms) or REAL_TOPIC not in properties:
                    continue  # no timer of ours
                if offset < known.known_end and int(out_ms) < known.due_ms:
                    continue  # it has been delivered
                if REVOKES in properties:
                    self._revoked[int(out_ms), properties[REVOKES]] = None
                else:
                    heapq.heappush(self._waiting, (int(out_ms), offset))
                    self._oldest = None
            self._loaded = got.next_offset

    async def _deliver_one(self, due_ms: int, offset: int) -> bool:
        broker = self.broker
        got = await broker.store.reader.get(
            TIMER_TOPIC, QUEUE, offset, max_messages=1, max_bytes=BATCH_BYTES
        )
        if got.status is GetStatus.TOO_SMALL:
            return True  # its file is gone with all that was so old
        if got.status is not GetStatus.FOUND or not got.messages:
            return False
        waiting = read_stored(got.messages[0])
        properties = properties_of(waiting.message.properties)
        topic, key = properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, "")
        if (due_ms, f"{topic}+{key}") in self._revoked:
            return True
        result = await put(broker, [_due(broker, waiting, properties)])
        return result.status is PutStatus.PUT_OK

    def _note(self) -> None:
        """For the next life, or the next master: what waits was not due before what is noted,
        however the clock was set meanwhile."""
        tables = self.broker.tables
        due_ms = max(self._delivered_ms + 1, tables.delayed.timers.due_ms)
        waiting = None
        if self._waiting:
            if self._oldest is None:
                self._oldest = min(offset for _, offset in self._waiting)
            waiting = (self._waiting[0][0], self._oldest)
            due_ms = min(due_ms, waiting[0])
        else:
            self._revoked = {}
        tables.delayed.put_timers(due_ms, self._loaded, waiting)


def _due(broker: Broker, waiting: Stored, properties: dict[str, str]) -> Message:
    """The message under its real topic. It keeps what says that it waited, as upstream's does."""
    topic, queue_id = properties[REAL_TOPIC], properties.get(REAL_QID, "0")
    properties |= {ENQUEUED_MS: str(waiting.store_ms), DEQUEUED_MS: str(broker.wall_ms())}
    return replace(
        waiting.message,
        topic=topic,
        queue_id=int(queue_id) if queue_id.isdecimal() else 0,
        properties=properties_text(properties),
        sys_flag=flags_to_store_again(waiting),
        store_host=broker.host,
    )
