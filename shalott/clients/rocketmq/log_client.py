"""LogClient: the log workload's client of one node, over RocketMQ's remoting protocol.

Sends go to the master of the route that this node's own name server gives: on the wrong side of a
partition that may be a deposed one, and finding that out is what the workload is for. Nothing is
sent twice. A key is one queue, "topic/queue".

    send    ok      SEND_OK; the offset is the message's in its queue, "broker" in its extra the
                    address of the broker that said so
            fail    nothing was sent; the broker says that nothing was stored, or refused for a
                    reason that comes before the storing
            info    stored, and no more than that (flush or slave timeout, no slave); an answer that
                    does not say; no answer
            of a transaction (transactions.py): ok when the message is stored and is to be
            committed, be that said or not; fail when it is to be rolled back; info else
    pop     ok      what a group was given, and what it acknowledged of it; "empty" if nothing
            fail    as of polls: what was given and not told comes again
    grow    ok      the topic has the key's queue, says its master
    settle  ok      the topic's master has decided every transaction that it knows of
            fail    not yet, or it did not say
    poll    ok      messages, from where this client stands in the queue, or where it was told
            fail    "empty": there is nothing beyond; or anything else, as polls have no effect

A poll reads at this node's own broker if the client knows it, else at the route's master. A broker
that says the offset is none of the queue's (PULL_OFFSET_MOVED) moves the client, as it moves
RocketMQ's consumers; that poll is a fail, and the next one begins there. No error is Unreachable:
that would replace the client, and with it where it stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from shalott.broker.rocket.remoting.command import Command, ResponseCode
from shalott.broker.rocket.remoting.route_data import TopicRoute
from shalott.clients.rocketmq.pops import Popper
from shalott.clients.rocketmq.rocket_client import (
    TRANSACTION,
    Dial,
    NotSent,
    Pulled,
    Queue,
    Refused,
    RocketClient,
    RocketError,
    Sent,
)
from shalott.clients.rocketmq.transactions import (
    PRODUCER_GROUP,
    PRODUCERS,
    Book,
    Decision,
    Producer,
    Transactions,
)
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.log_generator import GROW, NO_QUEUE
from shalott.core.message_body import decode_body, encode_body
from shalott.core.op import Completion, Invocation

EMPTY = "empty"
ROUTE_POLL_MS = 30_000  # pollNameServerInterval
POLL_WAIT_MS = 100
ID_BYTES = (16, 28)
HALF = Queue("RMQ_SYS_TRANS_HALF_TOPIC", "", 0)
HALF_READERS = "CID_RMQ_SYS_TRANS"
DISCARDED = Queue("TRANS_CHECK_MAX_TIME_TOPIC", "", 0)
FILLER = b"filler"
ROLLED_BACK = "rolled back"
# Of a message, by their names in a send's extra. One that has a time of its own has a "delay" too,
# for its judges: no level of the broker's.
BY_TIME = {"tag": "TAGS", "timer_ms": "TIMER_DELAY_MS"}
BY_LEVEL = {"tag": "TAGS", "delay": "DELAY"}
# What our brokers' remarks say of a message that is not SEND_OK
# (broker/rocket/processor/puts.py).
NOTHING_STORED = "nothing was stored"
STORED = "it was stored on this broker"
ILLEGAL_QUEUE = "queueId["  # so begins a broker's remark on a poll of a queue that it has not
# Brokers answer so before they store anything. SERVICE_NOT_AVAILABLE is not among them: without a
# remark it may be a leader's that lost its place with the message in its log.
BEFORE_STORING = (
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
)


@dataclass(slots=True)
class _CachedRoute:
    route: TopicRoute
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """``tell_where`` has a send's row say where in the broker's log its message is. With ``batch``
    every other message ends a batch of so many, whose others are fillers. ``transactions``: which
    sends are some; the clients of a run share a ``book``."""

    body_bytes: int = 64
    op_timeout_ms: int = 5000
    route_poll_ms: int = ROUTE_POLL_MS
    poll_wait_ms: int = POLL_WAIT_MS
    tell_where: bool = False
    batch: int = 1
    transactions: Transactions = Transactions()
    book: Book = field(default_factory=Book)


USUAL = LogSettings()


class LogClient:
    """``host`` and ``port`` are the node's name server's; ``broker`` is the address under which its
    broker is known, and ``dial`` says where the harness reaches such addresses.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        dial: Dial,
        broker: str | None = None,
        settings: LogSettings = USUAL,
    ) -> None:
        self._broker = broker
        self._settings = settings
        timeout_ms = settings.op_timeout_ms / 3
        self._client = RocketClient(
            [f"{host}:{port}"], dial=dial, timeout_ms=timeout_ms, on_push=self._pushed
        )
        self._producer: Producer | None = None
        if settings.transactions.share > 0:
            self._producer = Producer(
                self._client, settings.transactions, settings.book, f"{PRODUCERS}@{host}:{port}"
            )
        self._routes: dict[str, _CachedRoute] = {}
        self._stands: dict[str, int] = {}  # key -> offset of the next poll

    async def open(self) -> None:
        """See that the name server answers: one that can't be reached has done nothing."""
        try:
            await self._client.route("")
        except Refused:
            return
        except RocketError as error:
            raise Unreachable(str(error)) from error

    async def close(self) -> None:
        await self._client.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        topic, _, queue = invocation.key.rpartition("/")
        if not topic or not queue.isdecimal():
            raise Definite(f"{invocation.key!r} is no queue: topic/queue is wanted")
        deadline_s = asyncio.get_running_loop().time() + self._settings.op_timeout_ms / 1000
        if invocation.f == "send":
            assert invocation.value is not None
            return await self._send(topic, int(queue), invocation, deadline_s)
        if invocation.f == "poll":
            return await self._poll(invocation, topic, int(queue), deadline_s)
        if invocation.f == "settle":
            return await self._settle(topic)
        if invocation.f == "pop":
            return await self._pop(topic, invocation, deadline_s)
        if invocation.f == GROW:
            return await self._grow(topic, int(queue))
        raise Definite(f"a log client knows no {invocation.f}")

    # -- send --------------------------------------------------------------------------------------

    async def _send(
        self, topic: str, queue_id: int, invocation: Invocation, deadline_s: float
    ) -> Completion:
        """With the tag and the delay level that ``extra`` has. A delayed message gets its offset
        when it is due, so none is told."""
        extra, value = invocation.extra or {}, invocation.value or 0
        names = BY_TIME if "timer_ms" in extra else BY_LEVEL
        properties = {name: str(extra[key]) for key, name in names.items() if key in extra}
        queue, master = await self._master(topic, queue_id)
        decision = self._settings.transactions.of(value)
        if decision is not None:
            return await self._transact(queue, master, value, decision, deadline_s)
        sent = await self._stored(queue, master, value, properties, deadline_s)
        self._settings.book.used[invocation.key] = None
        told = {**extra, **self._place(sent, master)}
        return Completion(
            type="ok", offset=None if "delay" in extra else sent.queue_offset, extra=told
        )

    async def _stored(
        self,
        queue: Queue,
        master: str,
        value: int,
        properties: Mapping[str, str],
        deadline_s: float,
    ) -> Sent:
        """Raises Definite, Indefinite."""
        fillers = self._settings.batch - 1 if value % 2 and TRANSACTION not in properties else 0
        try:
            sent = await self._client.send(
                master,
                queue,
                encode_body(value, self._settings.body_bytes),
                unique_key=f"{value:032X}",
                properties=properties,
                before=[FILLER] * fillers,
                timeout_ms=_left_ms(deadline_s),
            )
        except RocketError as error:
            self._routes.pop(queue.topic, None)
            raise fate_of_send(error) from error
        if sent.code != ResponseCode.SUCCESS:
            raise Indefinite(f"{sent.code.name} at queue offset {sent.queue_offset}")
        return sent

    def _place(self, sent: Sent, master: str) -> dict[str, object]:
        where = log_offset_of(sent.message_id) if self._settings.tell_where else {}
        return {"broker": master, **where}

    async def _master(self, topic: str, queue_id: int) -> tuple[Queue, str]:
        """Whom to ask. Raises Definite: nothing was sent to a broker yet."""
        route = await self._route(topic)
        for data in route.queue_datas:
            master = route.master(data.broker_name)
            if master is not None:
                return Queue(topic, data.broker_name, queue_id), master
        self._routes.pop(topic, None)
        raise Definite(f"no master has {topic}")

    async def _route(self, topic: str) -> TopicRoute:
        now_s = asyncio.get_running_loop().time()
        cached = self._routes.get(topic)
        if cached is not None and now_s < cached.until_s:
            return cached.route
        try:
            route = await self._client.send_route(topic)
        except RocketError as error:
            raise Definite(f"no route: {error}") from error
        self._routes[topic] = _CachedRoute(route, now_s + self._settings.route_poll_ms / 1000)
        return route

    async def _grow(self, topic: str, queue_id: int) -> Completion:
        _, master = await self._master(topic, queue_id)
        try:
            await self._client.create_topic(master, topic, queue_id + 1)
        except RocketError as error:
            self._routes.pop(topic, None)
            raise fate_of_send(error) from error
        return Completion(type="ok", extra={"broker": master})

    # -- transactions ------------------------------------------------------------------------------

    async def _transact(
        self, queue: Queue, master: str, value: int, decision: Decision, deadline_s: float
    ) -> Completion:
        extra: dict[str, object] = {"transaction": decision.decision, "told": decision.told}
        producer = self._producer
        assert producer is not None
        await producer.beat(master)
        properties = {TRANSACTION: "true", PRODUCER_GROUP: PRODUCERS}
        try:
            sent = await self._stored(queue, master, value, properties, deadline_s)
        except (Definite, Indefinite) as error:
            if not decision.commits:
                return Completion(type="fail", error=ROLLED_BACK, extra=extra)
            if isinstance(error, Indefinite):
                error.extra = extra
            raise
        if decision.told == "now":
            await producer.end(master, value, sent, decision, _left_ms(deadline_s))
        if not decision.commits:
            return Completion(type="fail", error=ROLLED_BACK, extra=extra)
        self._settings.book.used[f"{queue.topic}/{queue.queue_id}"] = None
        return Completion(type="ok", extra={**extra, **self._place(sent, master)})

    def _pushed(self, address: str, command: Command) -> None:
        if self._producer is not None:
            self._producer.pushed(address, command)

    async def _settle(self, topic: str) -> Completion:
        """A broker reads what waits to be decided as a consumer of its own: it stands at the end
        when nothing is left, for what it asked about and was not told it puts there anew
        (TransactionalMessageServiceImpl.check). What it asked about too often, it puts aside."""
        _, master = await self._master(topic, 0)
        producer = self._producer
        if producer is not None:
            await producer.beat(master)
        try:
            stored = await self._client.max_offset(master, HALF)
            decided = await self._client.consumer_offset(master, HALF, HALF_READERS)
            discarded = await self._client.max_offset(master, DISCARDED)
        except RocketError as error:
            self._routes.pop(topic, None)
            raise Definite(str(error)) from error
        told = {} if producer is None else producer.book.told()
        if stored and decided != stored:
            left = stored - (decided or 0)
            words = f"{left} messages of transactions are undecided"
            return Completion(type="fail", error=words, extra={"undecided": left} if told else None)
        extra = {"transactions": stored, "discarded": discarded, **told}
        return Completion(type="ok", extra=extra)

    # -- pop ---------------------------------------------------------------------------------------

    async def _pop(self, topic: str, invocation: Invocation, deadline_s: float) -> Completion:
        """Of any queue of the topic, at its master (pops.py)."""
        queue, master = await self._master(topic, 0)
        popper = Popper(self._client, self._settings.transactions.key)
        calm = bool((invocation.extra or {}).get("calm"))
        try:
            told = await popper.pop(
                master, queue.broker_name, topic, calm=calm, deadline_s=deadline_s
            )
        except RocketError as error:
            self._routes.pop(topic, None)
            raise Definite(str(error)) from error
        extra = {**(invocation.extra or {}), **told}
        return Completion(type="ok", error=None if told["popped"] else EMPTY, extra=extra)

    # -- poll --------------------------------------------------------------------------------------

    async def _poll(
        self, invocation: Invocation, topic: str, queue_id: int, deadline_s: float
    ) -> Completion:
        key = invocation.key
        start = self._start(key, invocation.value)
        if self._broker is not None:
            queue, address = Queue(topic, "", queue_id), self._broker
        else:
            queue, address = await self._master(topic, queue_id)
        try:
            pulled = await self._client.pull(
                address,
                queue,
                start,
                wait_ms=self._settings.poll_wait_ms,
                timeout_ms=_left_ms(deadline_s),
            )
        except RocketError as error:
            self._routes.pop(topic, None)
            is_absent = isinstance(error, Refused) and (error.remark or "").startswith(
                ILLEGAL_QUEUE
            )
            raise Definite(f"{NO_QUEUE}: {error}" if is_absent else str(error)) from error
        if pulled.code == ResponseCode.PULL_OFFSET_MOVED:
            self._stands[key] = pulled.next_offset
            return Completion(
                type="fail",
                error=f"there is no offset {start}: the broker says {pulled.next_offset}",
                extra={"from": start, "moved": pulled.next_offset},
            )
        if pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            raise Definite("the broker says to try again")
        if pulled.code == ResponseCode.PULL_NOT_FOUND:
            self._stands[key] = start
            extra = {"from": start, "records": []}
            return Completion(type="fail", error=EMPTY, extra=extra)
        return self._read(key, start, pulled)

    def _start(self, key: str, value: int | None) -> int:
        """Where to read: on from where it stands, at an offset, or so many messages back."""
        stand = self._stands.get(key, 0)
        if value is None:
            return stand
        return value if value >= 0 else max(0, stand + value)

    def _read(self, key: str, start: int, pulled: Pulled) -> Completion:
        records = [
            (message.queue_offset, decode_body(message.body) if message.is_sound else None)
            for message in pulled.messages
            if message.body != FILLER
        ]
        if not pulled.messages:
            raise Definite("the broker found messages and sent none")
        self._stands[key] = pulled.messages[-1].queue_offset + 1
        extra: dict[str, object] = {"from": start, "records": records}
        others = [one.queue_offset for one in pulled.messages if one.body == FILLER]
        if others:
            extra["others"] = others
        retried = [(one.queue_offset, one.reconsumed) for one in pulled.messages if one.reconsumed]
        return Completion(type="ok", extra=extra | ({"reconsumed": retried} if retried else {}))


def log_offset_of(message_id: str) -> dict[str, int]:
    """Where in the log it lies: a broker's message id is its address 8 (of IPv6: 20) and that 8
    (MessageDecoder.createMessageId). Nothing if it is no such id."""
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        return {}
    return {"log_offset": int.from_bytes(raw[-8:])} if len(raw) in ID_BYTES else {}


def fate_of_send(error: RocketError) -> Definite | Indefinite:
    """What became of a message whose send ended so."""
    match error:
        case NotSent():
            return Definite(str(error))
        case Refused(remark=remark) if NOTHING_STORED in remark:
            return Definite(str(error))
        case Refused(remark=remark, code=code) if code in BEFORE_STORING and STORED not in remark:
            return Definite(str(error))
    return Indefinite(str(error))


def _left_ms(deadline_s: float) -> float:
    return max(0.0, (deadline_s - asyncio.get_running_loop().time()) * 1000)
