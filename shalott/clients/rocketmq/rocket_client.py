"""A RocketMQ client over the remoting protocol, small enough to know what became of each request.

It asks name servers for routes, sends to queues, pulls from them, and asks for offsets. It retries
nothing: a producer that does makes duplicates. Three errors say all that can go wrong: NotSent (it
certainly was not carried out), Unknown (it may have been), Refused (a server said no, with its code
and remark).

Order of calls and headers are the Java client's (client/impl/MQClientAPIImpl.java).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from shalott.broker.rocket.remoting.client import RemotingClient, Unanswered, Unreachable
from shalott.broker.rocket.remoting.codec import FrameError
from shalott.broker.rocket.remoting.command import Command, Language, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.headers import (
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    BadHeader,
    ConsumerOffset,
    CreateTopic,
    Offset,
    PullMessage,
    PullResult,
    QueueOfTopic,
    RouteOfTopic,
    SendMessageV2,
    SendResult,
    from_ext,
    to_ext,
)
from shalott.broker.rocket.remoting.route_data import (
    DEFAULT_TOPIC,
    PERM_READ,
    PERM_WRITE,
    BadBody,
    TopicRoute,
    decode_body,
)
from shalott.broker.rocket.remoting.send_batch import BatchItem, encode_batch
from shalott.clients.rocketmq.stored_messages import (
    Malformed,
    PulledMessage,
    decode_messages,
    encode_properties,
)

UNIQUE_KEY = "UNIQ_KEY"
TRANSACTION, PREPARED = "TRAN_MSG", 0x4  # of a half message: the property, and its flag
DEFAULT_QUEUES = 4  # of a topic that a send creates
# A pull that waits is answered this much later at most: an original looks every 5 s only at who
# waits (PullRequestHoldService), and its answer takes its time.
HOLD_PERIOD_MS, PULL_GRACE_MS = 5000, 2000

H = TypeVar("H", bound=msgspec.Struct)
Dial = Callable[[str], tuple[str, int]]


class RocketError(Exception):
    """Base of what can become of a request that did not succeed."""


class NotSent(RocketError):
    """Nothing was sent: it was certainly not carried out."""


class Unknown(RocketError):
    """It was sent, and there is no answer that can be understood."""


class Refused(RocketError):
    """It was answered, with another code than success."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{code} {_name(code)}: {remark}" if remark else f"{code} {_name(code)}")
        self.code = code
        self.remark = remark


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of a broker group."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Sent:
    """``code`` SUCCESS is SEND_OK; 10, 11 and 12 mean stored, and no more than that."""

    code: ResponseCode
    message_id: str
    queue_offset: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull found. ``code``: SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY or
    PULL_OFFSET_MOVED."""

    code: ResponseCode
    next_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[PulledMessage, ...]
    suggested_id: int = 0  # of the broker to pull from next; 0 is the master


STORED_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
PULL_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class RocketClient:
    """``dial`` says where an address that a route names is reached; addresses are "host:port".

    ``on_push`` gets what brokers tell without being asked, with their address.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        *,
        dial: Dial,
        group: str = "shalott",
        timeout_ms: float = 3000,
        on_push: Callable[[str, Command], None] | None = None,
    ) -> None:
        self._name_servers = tuple(name_servers)
        self._group = group
        self._timeout_ms = timeout_ms
        self._remoting = RemotingClient(dial, on_push=on_push)
        self._turn = 0

    async def close(self) -> None:
        await self._remoting.close()

    # -- name servers ------------------------------------------------------------------------------

    async def route(self, topic: str) -> TopicRoute:
        """From the first name server that answers. Refused with TOPIC_NOT_EXIST if it has none."""
        failed: RocketError = NotSent("there is no name server")
        for address in self._name_servers:
            try:
                header = RouteOfTopic(topic=topic)
                answer = await self.ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            except (NotSent, Unknown) as error:
                failed = error
                continue
            try:
                return decode_body(success(answer).body, TopicRoute)
            except BadBody as error:
                raise Unknown(str(error)) from error
        raise failed

    async def send_route(self, topic: str) -> TopicRoute:
        """The topic's; or, if it is nowhere yet, that of the template it would be made from."""
        try:
            return await self.route(topic)
        except Refused as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return await self.route(DEFAULT_TOPIC)

    # -- brokers -----------------------------------------------------------------------------------

    async def create_topic(self, address: str, topic: str, queues: int) -> None:
        """At one broker, which must be a master; or change how many queues it has."""
        header = CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues)
        success(await self.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header))

    def next_queue(self, topic: str, route: TopicRoute) -> Queue:
        """One after the other of those that may be written. Raises NotSent if there are none."""
        queues = [
            Queue(topic, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.perm & PERM_WRITE and route.master(data.broker_name) is not None
            for queue_id in range(data.write_queue_nums)
        ]
        if not queues:
            raise NotSent(f"no queue of {topic} may be written")
        self._turn += 1
        return queues[(self._turn - 1) % len(queues)]

    async def send(
        self,
        address: str,
        queue: Queue,
        body: bytes,
        *,
        unique_key: str,
        properties: Mapping[str, str] | None = None,
        before: Sequence[bytes] = (),
        reconsumed: tuple[int, int | None] = (0, None),
        timeout_ms: float | None = None,
    ) -> Sent:
        """Send one message to the broker at ``address``.

        ``before``: bodies that go before it in one batch. ``reconsumed``: how often, of one that a
        consumer sends to its retry topic, and how often it may be.
        """
        # Not the time of day: clients run in simulations too, and no reader needs it.
        born_ms = int(asyncio.get_running_loop().time() * 1000)
        header = SendMessageV2(
            producer_group=self._group,
            topic=queue.topic,
            default_topic_queue_nums=DEFAULT_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=PREPARED if TRANSACTION in (properties or {}) else 0,
            born_timestamp=born_ms,
            properties=encode_properties({UNIQUE_KEY: unique_key, **(properties or {})}),
            broker_name=queue.broker_name,
            reconsume_times=reconsumed[0],
            consume_retry_times=reconsumed[1],
            batch=bool(before),
        )
        code = RequestCode.SEND_MESSAGE_V2
        if before:
            code = RequestCode.SEND_BATCH_MESSAGE
            last = BatchItem(body, header.properties or "", 0)
            body = encode_batch([*(BatchItem(one, "", 0) for one in before), last])
        answer = await self.ask(address, code, header, body=body, timeout_ms=timeout_ms)
        if answer.code not in STORED_CODES:
            raise Refused(answer.code, answer.remark)
        result = _header(answer, SendResult)
        message_id = result.msg_id.rpartition(",")[2]
        return Sent(ResponseCode(answer.code), message_id, result.queue_offset + len(before))

    async def pull(
        self,
        address: str,
        queue: Queue,
        offset: int,
        *,
        max_messages: int = 32,
        wait_ms: int = 0,
        timeout_ms: float | None = None,
        subscription: str = "*",
    ) -> Pulled:
        """Pull from ``offset`` on; wait for the first message if there is none yet.

        ``subscription``: "a || b" for messages with one of these tags.
        """
        header = PullMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if wait_ms > 0 else 0),
            suspend_timeout_millis=wait_ms,
            subscription=subscription,
        )
        held_ms = wait_ms + HOLD_PERIOD_MS if wait_ms > 0 else 0
        patience_ms = held_ms + PULL_GRACE_MS if timeout_ms is None else timeout_ms
        answer = await self.ask(address, RequestCode.PULL_MESSAGE, header, timeout_ms=patience_ms)
        if answer.code not in PULL_CODES:
            raise Refused(answer.code, answer.remark)
        result = _header(answer, PullResult)
        try:
            messages = tuple(decode_messages(answer.body))
        except Malformed as error:
            raise Unknown(f"{address}: {error}") from error
        return Pulled(
            ResponseCode(answer.code),
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
            messages,
            result.suggest_which_broker_id,
        )

    async def min_offset(self, address: str, queue: Queue) -> int:
        header = QueueOfTopic(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, header)

    async def max_offset(self, address: str, queue: Queue) -> int:
        """Where the next message will lie."""
        header = QueueOfTopic(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, header)

    async def offset_at(self, address: str, queue: Queue, timestamp_ms: int) -> int:
        """Of the first message that was stored then or later."""
        header = QueueOfTopic(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms)
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def consumer_offset(
        self, address: str, queue: Queue, group: str | None = None
    ) -> int | None:
        """Where the group, by default this client's, stands; None if it never said so."""
        header = ConsumerOffset(
            consumer_group=group or self._group, topic=queue.topic, queue_id=queue.queue_id
        )
        try:
            return await self._offset(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except Refused as refusal:
            if refusal.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit_offset(
        self, address: str, queue: Queue, offset: int, group: str | None = None
    ) -> None:
        """The group has consumed everything before ``offset``."""
        header = ConsumerOffset(
            consumer_group=group or self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        success(await self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header))

    async def _offset(self, address: str, code: RequestCode, header: msgspec.Struct) -> int:
        return _header(success(await self.ask(address, code, header)), Offset).offset

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: msgspec.Struct,
        *,
        body: bytes = b"",
        timeout_ms: float | None = None,
        as_cpp: bool = False,
    ) -> Command:
        """Any request. Raises NotSent and Unknown.

        ``as_cpp``: in the name of a C++ client, for whom some bodies are other ones.
        """
        language = Language.CPP if as_cpp else Language.PYTHON
        request = Command(code=code, ext=to_ext(header), body=body, language=language)
        patience_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        try:
            return await self._remoting.invoke(address, request, patience_ms)
        except (Unreachable, FrameError) as error:
            raise NotSent(str(error)) from error
        except Unanswered as error:
            raise Unknown(str(error)) from error

    def tell(
        self,
        address: str,
        code: RequestCode,
        header: msgspec.Struct,
        answered: Callable[[Command | Unanswered], None],
    ) -> None:
        """Ask over the connection that is there, and wait for nothing; nothing if there is none."""
        request = Command(code=code, ext=to_ext(header), language=Language.PYTHON)
        with contextlib.suppress(Unreachable):
            self._remoting.try_ask(address, request, self._timeout_ms, answered)

    def is_connected(self, address: str) -> bool:
        return self._remoting.is_connected(address)


def success(answer: Command) -> Command:
    """The answer, if it says so. Raises Refused."""
    if answer.code != ResponseCode.SUCCESS:
        raise Refused(answer.code, answer.remark)
    return answer


def _header(answer: Command, shape: type[H]) -> H:
    try:
        return from_ext(answer.ext, shape)
    except BadHeader as error:
        raise Unknown(str(error)) from error


def _name(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return "?"


@dataclass(slots=True)
class _Kept:
    route: TopicRoute
    until_s: float


class Routes:
    """Routes of one client, by topic: asked for again after a while, kept if no server answers."""

    def __init__(self, client: RocketClient, poll_ms: float) -> None:
        self._client = client
        self._poll_ms = poll_ms
        self._kept: dict[str, _Kept] = {}

    async def get(self, topic: str) -> TopicRoute:
        """Raises RocketError if there never was one."""
        now_s = asyncio.get_running_loop().time()
        kept = self._kept.get(topic)
        if kept is not None and now_s < kept.until_s:
            return kept.route
        try:
            route = await self._client.route(topic)
        except RocketError:
            if kept is None:
                raise
            return kept.route
        self._kept[topic] = _Kept(route, now_s + self._poll_ms / 1000)
        return route

    def forget(self, topic: str) -> None:
        """Ask again the next time, as what it says seems to be wrong."""
        kept = self._kept.get(topic)
        if kept is not None:
            kept.until_s = 0.0

    async def queues(self, topic: str) -> list[Queue]:
        """Those that may be read, in the order in which all members see them. Raises
        RocketError."""
        route = await self.get(topic)
        return [
            Queue(topic, data.broker_name, queue_id)
            for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
            if data.perm & PERM_READ
            for queue_id in range(data.read_queue_nums)
        ]

    async def address(self, queue: Queue, broker_id: int | None = 0) -> str:
        """Of the queue's broker with that id; None: of its master, or else of any. Raises
        RocketError."""
        route = await self.get(queue.topic)
        for data in route.broker_datas:
            if data.broker_name == queue.broker_name:
                wanted = 0 if broker_id is None else broker_id
                if wanted in data.broker_addrs:
                    return data.broker_addrs[wanted]
                if broker_id is None and data.broker_addrs:
                    return data.broker_addrs[min(data.broker_addrs)]
        self.forget(queue.topic)
        raise NotSent(f"{queue.topic} has no such broker now")

    async def brokers(self, topics: Sequence[str]) -> list[str]:
        """The addresses of all brokers that have one of the topics, masters first. Raises
        RocketError if none of the topics has a route."""
        found: dict[str, int] = {}
        failed: RocketError | None = None
        for topic in topics:
            try:
                route = await self.get(topic)
            except RocketError as error:
                failed = error
                continue
            for data in route.broker_datas:
                found |= {address: broker_id for broker_id, address in data.broker_addrs.items()}
        if not found and failed is not None:
            raise failed
        return sorted(found, key=lambda address: (found[address] != 0, address))
