"""Delayed messages: levels, the topic where they wait, and the service that delivers them
(upstream: ScheduleMessageService).

A message with a delay is stored under SCHEDULE_TOPIC_XXXX, in the queue of its level, with its real
topic and queue as properties. The master reads each queue from the level's offset on, and stores
every message whose time has come under its real topic. What has a time of its own in place of a
level is in timers.py. The offset is written behind, so what was
delivered shortly before a crash is delivered again: at least once, as upstream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace

from shalott.broker.rocket.commitlog.api import GetStatus, Message
from shalott.broker.rocket.commitlog.codec import Stored
from shalott.broker.rocket.commitlog.due_times import LEVELS_S, SCHEDULE_TOPIC
from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.flights import Flights
from shalott.broker.rocket.processor.puts import ensure_topic, put
from shalott.broker.rocket.processor.stored_messages import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    flags_to_store_again,
    properties_of,
    properties_text,
    read_stored,
)
from shalott.broker.rocket.processor.timers import Timers, without_timers
from shalott.broker.rocket.processor.transactions import Transactions

TICK_S = 0.1
LOOKS = 100  # at the end of a queue that are remembered, for each delay
AGAIN_S = 1.0  # after a put that failed, and where nothing was ever delayed
BATCH_BYTES = 256 << 10


def delay_level_of(properties: str) -> int:
    """The level that a message asks for; 0: none."""
    text = properties_of(properties).get(DELAY, "")
    return min(int(text), len(LEVELS_S)) if text.isdecimal() else 0


def delayed(broker: Broker, message: Message, level: int) -> Message:
    """The message as it waits; itself for level 0."""
    if level <= 0:
        return message
    level = min(level, len(LEVELS_S))
    ensure_topic(broker, SCHEDULE_TOPIC, queues=len(LEVELS_S))
    properties = properties_of(message.properties)
    without_timers(properties)
    properties |= {REAL_TOPIC: message.topic, REAL_QID: str(message.queue_id), DELAY: str(level)}
    return replace(
        message, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=properties_text(properties)
    )


@dataclass(slots=True)
class Look:
    """The end of a queue, and when it was first and last seen there."""

    end: int
    first_ms: int
    last_ms: int


class Arrivals:
    """When the messages of a level came, by the clock that is never set.

    A message bears the time of the clock that stored it: another master's, or ours when it was set
    otherwise. But what lies before an end that was seen had come by then, and what lies beyond came
    later; within these bounds the time that a message bears counts. So a delay is neither
    lengthened by a clock that was ahead, as it would be, nor cut short, as by upstream
    (correctDeliverTimestamp), which delivers at once what was stored in a future.
    """

    def __init__(self, delay_ms: int) -> None:
        self._apart_ms = delay_ms // LOOKS
        self._looks: deque[Look] = deque()

    def looked(self, end: int, now_ms: int) -> None:
        looks = self._looks
        if looks and end < looks[-1].end:
            looks.clear()
        if looks and end == looks[-1].end:
            looks[-1].last_ms = now_ms
        elif not looks or now_ms - looks[-1].first_ms >= self._apart_ms:
            looks.append(Look(end, now_ms, now_ms))

    def stored_ms(self, offset: int, bears_ms: int, now_ms: int) -> int:
        """When the head of the queue was stored; for heads in the order of their offsets."""
        looks = self._looks
        while len(looks) > 1 and looks[1].end <= offset:
            looks.popleft()
        soonest_ms, latest_ms = bears_ms, now_ms
        for look in looks:
            if look.end > offset:
                latest_ms = look.first_ms
                break
            soonest_ms = look.last_ms
        return min(max(bears_ms, soonest_ms), latest_ms)

    def forget(self) -> None:
        """Another broker is the master."""
        self._looks.clear()


async def deliver_delayed(broker: Broker) -> None:
    """Deliver what is due, ask for transactions, revive what was popped, while this broker is the
    master, until cancelled."""
    arrivals = [Arrivals(1000 * delay_s) for delay_s in LEVELS_S]
    timers, transactions, flights = Timers(broker), Transactions(broker), Flights(broker)
    while True:
        if not broker.is_master:
            timers.forget()
            transactions.forget()
            flights.forget()
            for each in arrivals:
                each.forget()
        has_delays = broker.is_master and _has_delays(broker)
        has_timers = broker.is_master and timers.is_used()
        idle = True
        if has_delays:
            for level in range(1, len(LEVELS_S) + 1):
                idle &= await _deliver_level(broker, level, arrivals[level - 1])
        if has_timers:
            idle &= await timers.deliver()
        if broker.is_master and broker.knows_its_log and transactions.is_used():
            await transactions.check()
        if broker.is_master and flights.is_used():
            await flights.revive()
        await asyncio.sleep(TICK_S if idle and (has_delays or has_timers) else AGAIN_S)


def _has_delays(broker: Broker) -> bool:
    queues = range(len(LEVELS_S))
    return any(broker.store.reader.queue_range(SCHEDULE_TOPIC, queue)[1] for queue in queues)


async def _deliver_level(broker: Broker, level: int, arrivals: Arrivals) -> bool:
    """Whether all that is due is delivered."""
    first, end = broker.store.reader.queue_range(SCHEDULE_TOPIC, level - 1)
    arrivals.looked(end, broker.now_ms())
    offset = min(max(broker.tables.delayed.delays.get(level, 0), first), end)
    while offset < end:
        got = await broker.store.reader.get(
            SCHEDULE_TOPIC, level - 1, offset, max_messages=1, max_bytes=BATCH_BYTES
        )
        if got.status is not GetStatus.FOUND or not got.messages:
            return True
        waiting = read_stored(got.messages[0])
        now_ms = broker.now_ms()
        bears_ms = waiting.store_ms - broker.wall_ms() + now_ms
        stored_ms = arrivals.stored_ms(offset, bears_ms, now_ms)
        if stored_ms + 1000 * LEVELS_S[level - 1] > now_ms:
            return True
        result = await put(broker, [_due(broker, waiting)])
        if result.status is not PutStatus.PUT_OK:
            return False
        offset = got.next_offset
        broker.tables.delayed.put_delay(level, offset)
    return True


def _due(broker: Broker, waiting: Stored) -> Message:
    """The message under its real topic."""
    properties = properties_of(waiting.message.properties)
    topic = properties.pop(REAL_TOPIC, "")
    queue_id = int(properties.pop(REAL_QID, "0"))
    properties.pop(DELAY, None)
    return replace(
        waiting.message,
        topic=topic,
        queue_id=queue_id,
        properties=properties_text(properties),
        sys_flag=flags_to_store_again(waiting),
        store_host=broker.host,
    )
