"""Direct reply-to: answers that go from channel to channel, by no queue.

A client consumes from the pseudo-queue ``amq.rabbitmq.reply-to`` without acknowledging; in what it
publishes after that on the same channel, that name as reply_to becomes the channel's own address.
Who publishes to the address by the default exchange, on any node of the cluster, has it delivered
at once. Nothing is kept, and nothing is confirmed: the consumer may be gone
(rabbit_direct_reply_to.erl, rabbit_channel:deliver_reply).

An address names a process, and processes are not for clients to write to: so it bears a mark
that only nodes can make, as they know the cluster's cookie.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable

import msgspec
from pamqp import commands

from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.amqp.errors import NOT_ALLOWED, NOT_FOUND, PRECONDITION_FAILED, AmqpError
from shalott.broker.rabbit.amqp.queue_protocol import Content, Reply, ReplyConsumer
from shalott.broker.rabbit.amqp.services import Context
from shalott.broker.rabbit.amqp.wire import encode_declare_ok, encode_deliver
from shalott.broker.rabbit.processes.messages import Done, Failed, Message, Pid

ASK_TIMEOUT_MS = 2000  # two channels may ask each other
REPLY_TO = "amq.rabbitmq.reply-to"
_PREFIX = REPLY_TO + "."


def is_reply_queue(name: str) -> bool:
    """Whether a queue of this name is none, but a channel that waits for replies, or nothing."""
    return name == REPLY_TO or name.startswith(_PREFIX)


def _mark(cookie: str, channel: bytes, nonce: bytes) -> bytes:
    return hmac.new(cookie.encode(), channel + nonce, hashlib.sha256).digest()[:8]


def _text(data: bytes) -> str:
    """In letters that every client lets pass as a queue's name."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """Raises ValueError."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def make_address(cookie: str, channel: Pid, nonce: bytes) -> tuple[str, str]:
    """A routing key, and the part of it that the channel knows its own consumer by."""
    encoded = msgspec.msgpack.encode(channel)
    key = _text(nonce + _mark(cookie, encoded, nonce))
    return f"{_PREFIX}{_text(encoded)}.{key}", key


def read_address(cookie: str, routing_key: str) -> tuple[Pid, str] | None:
    """The channel, and what it knows its consumer by. None: no node of the cluster made this."""
    channel, _, key = routing_key.removeprefix(_PREFIX).partition(".")
    try:
        encoded, secret = _bytes(channel), _bytes(key)
        pid = msgspec.msgpack.decode(encoded, type=Pid)
    except (ValueError, msgspec.DecodeError):
        return None
    nonce, mark = secret[:8], secret[8:]
    return (pid, key) if hmac.compare_digest(mark, _mark(cookie, encoded, nonce)) else None


class DirectReplies:
    """One channel's: the consumer that it may have, and what it sends to those of others."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._cookie = context.services.config.cookie
        self._tag: str | None = None  # of the consumer
        self._key = ""
        self.address = ""

    # -- the consumer ------------------------------------------------------------------------------

    async def consume(self, method: commands.Basic.Consume, tags: Iterable[str]) -> None:
        """``tags``: of the channel's other consumers."""
        if method.consumer_tag in tags:
            text = f"attempt to reuse consumer tag '{method.consumer_tag}'"
            raise AmqpError(NOT_ALLOWED, text)
        if not method.no_ack:
            raise AmqpError(PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if self._tag is not None:
            raise AmqpError(PRECONDITION_FAILED, "reply consumer already set")
        rng = self._context.services.env.rng
        self._tag = method.consumer_tag or f"amq.ctag-{rng.getrandbits(128):032x}"
        nonce = rng.getrandbits(64).to_bytes(8, "big")
        self.address, self._key = make_address(self._cookie, self._context.pid, nonce)
        if not method.nowait:
            await self._context.port.send(commands.Basic.ConsumeOk(self._tag))

    def cancel(self, tag: str) -> bool:
        """Whether the consumer of that tag was this one."""
        if self._tag is None or tag != self._tag:
            return False
        self._tag = None
        return True

    def rewritten(self) -> str:
        """What reply_to is to be in place of the pseudo-queue's name. Raises AmqpError(406)."""
        if self._tag is None:
            raise AmqpError(PRECONDITION_FAILED, "fast reply consumer does not exist")
        return self.address

    async def on_reply(self, message: Reply, tag: int) -> None:
        if self._tag is None or message.key != self._key:
            return
        content = message.content
        payload = encode_deliver(self._tag, tag, False, content.exchange, content.routing_key)
        await self._context.port.send_content(payload, content.properties, content.body)

    def on_asked(self, message: ReplyConsumer) -> Message:
        exists = self._tag is not None and message.key == self._key
        return Done() if exists else Failed("not_found")

    # -- those of other channels -------------------------------------------------------------------

    def send(self, routing_key: str, content: Content) -> None:
        found = read_address(self._cookie, routing_key)
        if found is not None:
            channel, key = found
            self._context.services.runtime.send(channel, Reply(key, content))

    async def declare(self, method: commands.Queue.Declare) -> None:
        """As if it were passive. Raises AmqpError(404)."""
        if method.queue != REPLY_TO and not await self._exists(method.queue):
            vhost = self._context.session.vhost
            raise AmqpError(NOT_FOUND, f"no queue '{method.queue}' in vhost '{vhost}'")
        if not method.nowait:
            await self._context.port.send_payload(encode_declare_ok(method.queue, 0, 1))

    async def _exists(self, routing_key: str) -> bool:
        found = read_address(self._cookie, routing_key)
        if found is None:
            return False
        channel, key = found
        if channel == self._context.pid:
            return self._tag is not None and key == self._key
        try:
            answer = await self._context.services.runtime.call(
                channel, ReplyConsumer(key), timeout_ms=ASK_TIMEOUT_MS, caller=self._context.pid
            )
        except ProcessError:
            return False
        return isinstance(answer, Done)
