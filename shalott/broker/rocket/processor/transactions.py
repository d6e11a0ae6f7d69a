"""Transactions: half messages, their end, and asking back (upstream: EndTransactionProcessor,
TransactionalMessageServiceImpl).

A half message is stored in the one queue of RMQ_SYS_TRANS_HALF_TOPIC, with its real topic and queue
as properties. END_TRANSACTION stores it under its real topic, or not, and then notes in
RMQ_SYS_TRANS_OP_HALF_TOPIC which half message is decided, by its queue offset: both are in the log,
so a new master knows what its predecessor decided. What is not decided in time its producer group
is asked for, again and again, and in the end it is laid aside.

How far both queues were worked off stands with the offsets of CID_RMQ_SYS_TRANS, where an original
looks. A crash between the message and its note commits it twice, as upstream: at least once. But
what is noted is never decided again, where upstream's would commit once more.
"""

from __future__ import annotations

from dataclasses import replace

from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import Encoder, Stored
from shalott.broker.rocket.commitlog.replica import PutResult, PutStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.fields import BadRequest, Fields
from shalott.broker.rocket.processor.half_messages import HalfMessages, Waiting
from shalott.broker.rocket.processor.puts import (
    ensure_topic,
    not_master,
    put,
    remark_of,
    stored_from,
)
from shalott.broker.rocket.processor.stored_messages import (
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    flags_to_store_again,
    properties_of,
    properties_text,
    read_stored,
)
from shalott.broker.rocket.processor.topics import HALF_TOPIC, LAID_ASIDE_TOPIC, OP_TOPIC
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
TRAN_MSG, PRODUCER_GROUP = "TRAN_MSG", "PGROUP"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
GROUP = "CID_RMQ_SYS_TRANS"
DECIDED = "d"  # the tag of a note
QUEUE = 0
MESSAGE_BYTES_MAX = 8 << 20


def is_half(message: Message) -> bool:
    """Whether a producer asks for a transaction."""
    properties = properties_of(message.properties)
    flagged = message.sys_flag & ROLLBACK == PREPARED
    return flagged or properties.get(TRAN_MSG, "").lower() == "true"


def half(broker: Broker, message: Message, producer_group: str) -> Message:
    """The message as it is stored until it is decided."""
    ensure_topic(broker, HALF_TOPIC, queues=1)
    properties = {PRODUCER_GROUP: producer_group} | properties_of(message.properties)
    properties |= {REAL_TOPIC: message.topic, REAL_QID: str(message.queue_id)}
    return replace(
        message,
        topic=HALF_TOPIC,
        queue_id=QUEUE,
        sys_flag=message.sys_flag & ~ROLLBACK,
        properties=properties_text(properties),
    )


def whole(stored: Stored, host: tuple[str, int]) -> Message:
    """A half message under its real topic."""
    properties = properties_of(stored.message.properties)
    topic, queue_id = properties.pop(REAL_TOPIC, ""), properties.pop(REAL_QID, "0")
    properties.pop(TRAN_MSG, None)
    return replace(
        stored.message,
        topic=topic,
        queue_id=int(queue_id) if queue_id.isdecimal() else 0,
        properties=properties_text(properties),
        sys_flag=flags_to_store_again(stored) | COMMIT,
        store_host=host,
        prepared_transaction_offset=stored.physical_offset,
    )


class Transactions:
    """What is not decided at this master; known again whenever it becomes one."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    @property
    def _known(self) -> HalfMessages:
        return self.broker.halves

    def is_used(self) -> bool:
        return self.broker.store.reader.queue_range(HALF_TOPIC, QUEUE)[1] > 0

    def forget(self) -> None:
        """This broker is not the master."""
        self.broker.halves = HalfMessages()

    async def end(self, offset: int, queue_offset: int, group: str, outcome: int) -> PutResult:
        """Decide one. Raises BadRequest for what is no half message of this group, and for one that
        was decided before."""
        await self._load()
        stored = await self._half_at(offset)
        properties = {} if stored is None else properties_of(stored.message.properties)
        if stored is None or stored.queue_offset != queue_offset:
            raise BadRequest("the transaction state table offset, or its message, is not there")
        if properties.get(PRODUCER_GROUP) != group:
            raise BadRequest("The producer group wrong")
        worked_off = self.broker.tables.offset(GROUP, HALF_TOPIC, QUEUE) or 0
        known = self._known
        is_ended = queue_offset in known.decided or queue_offset < worked_off
        if is_ended or queue_offset in known.ending:
            raise BadRequest("the transaction was decided before")
        message = whole(stored, self.broker.host) if outcome == COMMIT else None
        return await self._store_end(known, queue_offset, stored, message)

    async def check(self) -> None:
        """Ask for what should be decided by now; note how far both queues are worked off."""
        await self._load()
        now_ms = self.broker.now_ms()
        for queue_offset, waiting in list(self._known.waiting.items()):
            if queue_offset in self._known.decided:
                self._known.waiting.pop(queue_offset, None)
            elif queue_offset not in self._known.ending and waiting.ask_at_ms <= now_ms:
                waiting.ask_at_ms = now_ms + self.broker.config.transaction_check_interval_ms
                await self._ask(queue_offset, waiting)
        self._note_offsets()

    async def _ask(self, queue_offset: int, waiting: Waiting) -> None:
        stored = await self._half_at(waiting.offset)
        if stored is None:
            self._known.waiting.pop(queue_offset, None)  # its file is gone
            return
        if waiting.asked >= self.broker.config.transaction_check_max:
            await self._lay_aside(queue_offset, stored)
            return
        broker = self.broker
        group = properties_of(stored.message.properties).get(PRODUCER_GROUP, "")
        members = broker.clients.producers().get(group)
        if not members:
            return  # later: that none is there is no answer
        waiting.asked += 1
        member = members[broker.env.choose_index(len(members))]
        broker.tell(member.connection, _question(broker, stored))

    async def _lay_aside(self, queue_offset: int, stored: Stored) -> None:
        ensure_topic(self.broker, LAID_ASIDE_TOPIC, queues=1)
        properties = stored.message.properties
        message = replace(whole(stored, self.broker.host), topic=LAID_ASIDE_TOPIC, queue_id=0)
        message = replace(message, properties=properties, sys_flag=flags_to_store_again(stored))
        await self._store_end(self._known, queue_offset, stored, message)

    async def _store_end(
        self, known: HalfMessages, queue_offset: int, half: Stored, message: Message | None
    ) -> PutResult:
        """``message``: what goes to its topic. Meanwhile nothing else decides it, and when that
        fails it is as open as before."""
        told = queue_offset, half.physical_offset, message is not None
        self.broker.env.witness("decides", *told)
        known.ending[queue_offset] = None
        try:
            if message is not None:
                result = await put(self.broker, [message])
                if result.status is not PutStatus.PUT_OK:
                    return result
            result = await self._note(queue_offset)
        finally:
            del known.ending[queue_offset]
        if result.status is PutStatus.PUT_OK:
            known.decided[queue_offset] = None
            known.waiting.pop(queue_offset, None)
        return result

    async def _note(self, queue_offset: int) -> PutResult:
        self.broker.env.witness("notes", queue_offset)
        ensure_topic(self.broker, OP_TOPIC, queues=1)
        note = Message(
            topic=OP_TOPIC,
            queue_id=QUEUE,
            body=b"%d" % queue_offset,
            properties=properties_text({TAGS: DECIDED}),
            born_ms=self.broker.wall_ms(),
            born_host=self.broker.host,
            store_host=self.broker.host,
        )
        return await put(self.broker, [note])

    # -- what the log has --------------------------------------------------------------------------

    async def _load(self) -> None:
        """Take notice of what came into both queues; notes first, so that none is missed. Raises
        BadRequest while an older note may be one that can't be read yet."""
        if not self.broker.knows_its_log:
            raise BadRequest("what was decided before is not known yet")
        tables = self.broker.tables
        if self._known.epoch != self.broker.replica.epoch:
            self.forget()
            self._known.epoch = self.broker.replica.epoch
            self._known.halves_end = tables.offset(GROUP, HALF_TOPIC, QUEUE) or 0
            self._known.ops_end = tables.offset(GROUP, OP_TOPIC, QUEUE) or 0
        known = self._known
        async with known.held:
            await self._look(known)

    async def _look(self, known: HalfMessages) -> None:
        async for stored in stored_from(self.broker, OP_TOPIC, QUEUE, known.ops_end):
            known.ops_end = stored.queue_offset + 1
            for number in stored.message.body.split(b","):
                if number.strip().isdigit():
                    known.decided[int(number)] = None
        now_ms, wall_ms = self.broker.now_ms(), self.broker.wall_ms()
        async for stored in stored_from(self.broker, HALF_TOPIC, QUEUE, known.halves_end):
            known.halves_end = stored.queue_offset + 1
            if stored.queue_offset not in known.decided:
                age_ms = max(0, wall_ms - stored.store_ms)
                ask_at_ms = now_ms + max(0, self._immunity_ms(stored) - age_ms)
                known.waiting[stored.queue_offset] = Waiting(stored.physical_offset, ask_at_ms)

    async def _half_at(self, offset: int) -> Stored | None:
        data = await self.broker.store.reader.message_at(offset)
        stored = None if data is None else read_stored(data)
        return stored if stored is not None and stored.message.topic == HALF_TOPIC else None

    def _immunity_ms(self, stored: Stored) -> int:
        asked = properties_of(stored.message.properties).get(IMMUNITY, "")
        timeout_ms = self.broker.config.transaction_timeout_ms
        return int(asked) * 1000 if asked.isdecimal() else timeout_ms

    def _note_offsets(self) -> None:
        """A note counts until its half message is worked off, so notes are not passed while any
        waits that may be older."""
        tables = self.broker.tables
        done = min(self._known.waiting, default=self._known.halves_end)
        if tables.offset(GROUP, HALF_TOPIC, QUEUE) != done:
            tables.put_offset(GROUP, HALF_TOPIC, QUEUE, done)
        for queue_offset in [each for each in self._known.decided if each < done]:
            del self._known.decided[queue_offset]
        if not self._known.decided and tables.offset(GROUP, OP_TOPIC, QUEUE) != self._known.ops_end:
            tables.put_offset(GROUP, OP_TOPIC, QUEUE, self._known.ops_end)


def _question(broker: Broker, stored: Stored) -> Command:
    """CHECK_TRANSACTION_STATE, with the message as its producer knows it."""
    properties = properties_of(stored.message.properties)
    key, offset = properties.get(UNIQ_KEY, ""), stored.physical_offset
    encoder = Encoder(MESSAGE_BYTES_MAX)
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QID, "0")
    asked = replace(stored.message, topic=topic, queue_id=int(queue_id))
    ext = {
        "bname": broker.config.broker_name,
        "commitLogOffset": str(offset),
        "msgId": key,
        "offsetMsgId": encoder.message_id(stored.message.store_host, offset),
        "topic": topic,
        "tranStateTableOffset": str(stored.queue_offset),
        "transactionId": key,
    }
    body = encoder.encode(asked, offset, stored.queue_offset, stored.store_ms)
    return Command(code=RequestCode.CHECK_TRANSACTION_STATE, ext=ext, body=body)


async def end_transaction(broker: Broker, request: Command, caller: Caller) -> Command:
    """An unknown outcome is no decision: the group is asked again."""
    fields = Fields(request.ext)
    outcome = fields.number("commitOrRollback")
    if not broker.is_master:
        return not_master(broker)
    if outcome not in (COMMIT, ROLLBACK):
        return response(ResponseCode.SUCCESS)
    result = await Transactions(broker).end(
        fields.number("commitLogOffset"),
        fields.number("tranStateTableOffset"),
        fields.text("producerGroup"),
        outcome,
    )
    if result.status is not PutStatus.PUT_OK:
        return response(ResponseCode.SYSTEM_ERROR, remark_of(result))
    return response(ResponseCode.SUCCESS)
