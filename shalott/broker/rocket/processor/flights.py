"""Messages that were popped and not acknowledged (upstream: PopMessageProcessor, PopReviveService).

A pop stores a check point in the first queue of the cluster's revive topic before it is answered:
which messages of which queue a group was given, and for how long no other pop gives them. An
acknowledgement stores a note there. What is not acknowledged in time is stored again, in the retry
topic of the group and the topic, and then noted. All that is known follows from this queue, so a
new master knows it too: every master applies the records as it reads them, also its own.
A crash between the copy and its note makes two copies, as upstream: at least once.

Bodies are upstream's JSON, but that ``next`` says how far the group has come in the queue: a copy
of its offset may be older than the pop. An acknowledgement that comes too late is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import msgspec

from shalott.broker.rocket.commitlog.api import GetStatus, Message
from shalott.broker.rocket.commitlog.codec import Stored
from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.fields import BadRequest
from shalott.broker.rocket.processor.popped import Flight, Known, Place
from shalott.broker.rocket.processor.puts import ensure_topic, put, stored_from
from shalott.broker.rocket.processor.stored_messages import (
    TAGS,
    flags_to_store_again,
    properties_of,
    properties_text,
    property_of,
    read_stored,
)
from shalott.broker.rocket.processor.topics import RETRY_PREFIX, REVIVE_QUEUES, revive_topic

GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
CHECK_POINT, ACKS = "ck", "bAck"
FIRST_POP = "1ST_POP_TIME"
QUEUE, REVIVED_AT_ONCE, MESSAGE_BYTES = 0, 16, 4 << 20
LOOK_S = 1.0  # whether it is still the master, while its record does not come


class CheckPoint(msgspec.Struct, kw_only=True, frozen=True):
    """PopCheckPoint; offsets are so + each of d. ``next`` 0: the group came no further by it."""

    so: int
    pt: int  # the pop's time (ms of the wall clock), which is its name
    it: int  # invisible for so long (ms)
    n: int
    q: int
    t: str
    c: str
    d: list[int]
    bn: str = ""
    bm: int = 0
    rp: str = ""
    next: int = 0

    @property
    def place(self) -> Place:
        return self.c, self.t, self.q


class Acks(msgspec.Struct, kw_only=True, frozen=True):
    """BatchAckMsg: of one pop."""

    aol: list[int]
    so: int
    pt: int
    q: int
    t: str
    c: str
    bn: str = ""

    @property
    def place(self) -> Place:
        return self.c, self.t, self.q


def pop_retry_topic(group: str, topic: str) -> str:
    return topic if topic.startswith(RETRY_PREFIX) else f"{RETRY_PREFIX}{group}_{topic}"


class Flights:
    """What is popped at this master."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._topic = revive_topic(broker.config)

    @property
    def _known(self) -> Known:
        return self.broker.popped

    def is_used(self) -> bool:
        return self.broker.store.reader.queue_range(self._topic, QUEUE)[1] > 0

    def forget(self) -> None:
        """This broker is not the master."""
        self.broker.popped = Known()

    @contextlib.asynccontextmanager
    async def turn(self, place: Place) -> AsyncIterator[None]:
        """One pop of a queue at a time, and what came before is known."""
        async with self._known.turns.setdefault(place, asyncio.Lock()):
            await self._load()
            yield

    async def take(
        self, place: Place, offsets: Sequence[int], next_offset: int, invisible_ms: int
    ) -> int | None:
        """Of a queue whose turn it is; the pop's time, or None if that could not be stored."""
        pop_ms = self.broker.wall_ms()
        ck = self._check_point(place, offsets, pop_ms, invisible_ms, next_offset)
        return pop_ms if await self._write(CHECK_POINT, ck) else None

    async def ack(self, place: Place, pop_ms: int, offsets: Sequence[int]) -> list[int]:
        """Which of them are acknowledged now: those that this pop still has. Raises BadRequest if
        that may be stored, or not."""
        await self._load()
        own = self._of_pop(place, pop_ms, offsets)
        if own and not await self._while_busy(own, ACKS, self._acks(place, pop_ms, list(own))):
            raise BadRequest("the acknowledgement may be stored, or not")
        return list(own)

    async def change(self, place: Place, pop_ms: int, offset: int, invisible_ms: int) -> int | None:
        """Begin a new time from now on; the pop's new name, or None if it has it no more."""
        await self._load()
        own = self._of_pop(place, pop_ms, [offset])
        new_ms = max(self.broker.wall_ms(), pop_ms + 1)
        ck = self._check_point(place, [offset], new_ms, invisible_ms, 0)
        return new_ms if own and await self._while_busy(own, CHECK_POINT, ck) else None

    async def revive(self) -> None:
        """Store again what is due, if that can be said now."""
        with contextlib.suppress(BadRequest):
            await self._load()
            await self._revive_due()

    async def _revive_due(self) -> None:
        for place, flights in list(self._known.flights.items()):
            now_ms = self.broker.now_ms()
            due = [
                (flight.pop_ms, offset)
                for offset, flight in flights.items()
                if flight.due_ms <= now_ms and not flight.is_busy
            ]
            for pop_ms in dict.fromkeys(pop_ms for pop_ms, _ in due):
                offsets = [offset for at_ms, offset in due if at_ms == pop_ms]
                await self._revive(place, pop_ms, offsets[:REVIVED_AT_ONCE])
        done = min(
            (one.record for each in self._known.flights.values() for one in each.values()),
            default=self._known.end,
        )
        if self.broker.tables.offset(GROUP, self._topic, QUEUE) != done:
            self.broker.tables.put_offset(GROUP, self._topic, QUEUE, done)

    async def _revive(self, place: Place, pop_ms: int, offsets: list[int]) -> None:
        own = self._of_pop(place, pop_ms, offsets)  # some may be acknowledged meanwhile
        for flight in own.values():
            flight.is_busy = True
        try:
            done = [offset for offset in own if await self._store_again(place, pop_ms, offset)]
            if done:
                await self._write(ACKS, self._acks(place, pop_ms, done))
        finally:
            for flight in own.values():
                flight.is_busy = False

    async def _store_again(self, place: Place, pop_ms: int, offset: int) -> bool:
        """Whether there is a copy now, or nothing to copy. Each alone, as upstream: what is refused
        of many, where those before it are stored, would be stored again and again."""
        stored = await self._stored_at(place, offset)
        if stored is None:
            return True
        copy = self._copy(place, stored, pop_ms)
        ensure_topic(self.broker, copy.topic, queues=1)
        return (await put(self.broker, [copy])).status is PutStatus.PUT_OK

    async def _stored_at(self, place: Place, offset: int) -> Stored | None:
        """None: its file is gone."""
        _, topic, queue_id = place
        got = await self.broker.store.reader.get(
            topic, queue_id, offset, max_messages=1, max_bytes=MESSAGE_BYTES
        )
        stored = read_stored(got.messages[0]) if got.status is GetStatus.FOUND else None
        return stored if stored is not None and stored.queue_offset == offset else None

    def _copy(self, place: Place, stored: Stored, pop_ms: int) -> Message:
        group, topic, _ = place
        properties = properties_of(stored.message.properties)
        properties.setdefault(FIRST_POP, str(pop_ms))
        return replace(
            stored.message,
            topic=pop_retry_topic(group, topic),
            queue_id=0,
            properties=properties_text(properties),
            sys_flag=flags_to_store_again(stored),
            store_host=self.broker.host,
            reconsume_times=stored.message.reconsume_times + 1,
        )

    def _of_pop(self, place: Place, pop_ms: int, offsets: Sequence[int]) -> dict[int, Flight]:
        flights = self._known.flights.get(place, {})
        found = {offset: flights[offset] for offset in offsets if offset in flights}
        return {
            offset: flight
            for offset, flight in found.items()
            if flight.pop_ms == pop_ms and not flight.is_busy
        }

    async def _while_busy(self, own: dict[int, Flight], tag: str, record: msgspec.Struct) -> bool:
        for flight in own.values():
            flight.is_busy = True
        try:
            return await self._write(tag, record)
        finally:
            for flight in own.values():
                flight.is_busy = False

    # -- records -----------------------------------------------------------------------------------

    def _check_point(
        self,
        place: Place,
        offsets: Sequence[int],
        pop_ms: int,
        invisible_ms: int,
        next_offset: int,
    ) -> CheckPoint:
        group, topic, queue_id = place
        return CheckPoint(
            so=offsets[0],
            pt=pop_ms,
            it=invisible_ms,
            n=len(offsets),
            q=queue_id,
            t=topic,
            c=group,
            d=[offset - offsets[0] for offset in offsets],
            bn=self.broker.config.broker_name,
            next=next_offset,
        )

    def _acks(self, place: Place, pop_ms: int, offsets: list[int]) -> Acks:
        group, topic, queue_id = place
        name = self.broker.config.broker_name
        return Acks(aol=offsets, so=offsets[0], pt=pop_ms, q=queue_id, t=topic, c=group, bn=name)

    async def _write(self, tag: str, record: msgspec.Struct) -> bool:
        """Whether it is stored for good, and applied."""
        ensure_topic(self.broker, self._topic, queues=REVIVE_QUEUES)
        message = Message(
            topic=self._topic,
            queue_id=QUEUE,
            body=msgspec.json.encode(record),
            properties=properties_text({TAGS: tag}),
            born_ms=self.broker.wall_ms(),
            born_host=self.broker.host,
            store_host=self.broker.host,
        )
        epoch = self.broker.replica.epoch
        result = await put(self.broker, [message])
        if result.status is not PutStatus.PUT_OK or result.stage is None:
            return False
        wanted = result.stage.messages[0].queue_offset
        while self._known.epoch != epoch or self._known.end <= wanted:
            if self.broker.replica.epoch != epoch:
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self.broker.store.reader.arrived(self._topic, QUEUE, wanted)
            await self._load()
        return True

    async def _load(self) -> None:
        """Take notice of what came. Raises BadRequest where that can't be said now."""
        broker = self.broker
        may_say = broker.is_master and broker.knows_its_log
        if not may_say or not await broker.replica.readable():
            raise BadRequest("this broker may not say now what is popped")
        if self._known.epoch != self.broker.replica.epoch:
            self.forget()
            self._known.epoch = self.broker.replica.epoch
            self._known.end = self.broker.tables.offset(GROUP, self._topic, QUEUE) or 0
        known = self._known
        async with known.held:
            async for stored in stored_from(self.broker, self._topic, QUEUE, known.end):
                self._apply(known, stored)
                known.end = stored.queue_offset + 1

    def _apply(self, known: Known, stored: Stored) -> None:
        body, tag = stored.message.body, property_of(stored, TAGS)
        if tag == ACKS:
            acks = msgspec.json.decode(body, type=Acks)
            flights = known.flights.get(acks.place, {})
            for offset in acks.aol:
                if offset in flights and flights[offset].pop_ms == acks.pt:
                    del flights[offset]
        elif tag == CHECK_POINT:
            ck = msgspec.json.decode(body, type=CheckPoint)
            tables, (group, topic, queue_id) = self.broker.tables, ck.place
            age_ms = max(0, self.broker.wall_ms() - stored.store_ms)
            due_ms = self.broker.now_ms() + max(0, ck.it - age_ms)
            for each in ck.d:
                flight = Flight(stored.queue_offset, ck.pt, due_ms)
                known.flights.setdefault(ck.place, {})[ck.so + each] = flight
            if (tables.offset(group, topic, queue_id) or 0) < ck.next:
                tables.put_offset(group, topic, queue_id, ck.next)
