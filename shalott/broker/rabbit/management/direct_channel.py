"""DirectChannel: an AMQP channel without a socket, as the user who asks the API. What is declared,
published and fetched goes the way that a client's methods go, with its rights and its refusals
(rabbit_mgmt_util.erl, with_channel).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pamqp import commands

from shalott.broker.base.errors import CallTimeout
from shalott.broker.base.http_api import Request, unavailable
from shalott.broker.rabbit.amqp.channel import Channel
from shalott.broker.rabbit.amqp.errors import AmqpError
from shalott.broker.rabbit.amqp.services import Session
from shalott.broker.rabbit.amqp.wire import Command, Method, decode_method
from shalott.broker.rabbit.management.backend import ManagementBackend
from shalott.broker.rabbit.processes.messages import Pid

ANSWER_S = 10.0


class Answers:
    """Implements Port: what the channel says, in order."""

    number = 1

    def __init__(self) -> None:
        self._said: asyncio.Queue[Command | AmqpError] = asyncio.Queue()
        self.is_closed = asyncio.Event()

    async def send(self, method: Method) -> None:
        self._said.put_nowait(Command(method))

    async def send_payload(self, payload: bytes) -> None:
        self._said.put_nowait(Command(decode_method(payload)))

    async def send_content(self, payload: bytes, properties: bytes, body: bytes) -> None:
        self._said.put_nowait(Command(decode_method(payload), properties, body))

    def closed(self) -> None:
        self.is_closed.set()

    def failed(self, error: AmqpError) -> None:
        self._said.put_nowait(error)
        self.is_closed.set()

    async def next(self) -> Command:
        """Raises AmqpError if the channel was closed, CallTimeout."""
        try:
            async with asyncio.timeout(ANSWER_S):
                said = await self._said.get()
        except TimeoutError:
            raise CallTimeout(f"a channel did not answer in {ANSWER_S} s") from None
        if isinstance(said, AmqpError):
            raise said
        return said


class DirectChannel:
    """Made by ``open_channel``."""

    def __init__(self, channel: Channel, answers: Answers) -> None:
        self._channel = channel
        self.answers = answers

    @property
    def pid(self) -> Pid:
        return self._channel.pid

    def tell(self, method: Method, properties: bytes = b"", body: bytes = b"") -> None:
        self._channel.accept(Command(method, properties, body))

    async def ask(self, method: Method) -> Command:
        """The answer to a method that has one. Raises AmqpError, CallTimeout."""
        self.tell(method)
        return await self.answers.next()

    async def close(self) -> None:
        """All that was told is done then."""
        if not self.answers.is_closed.is_set():
            self.tell(commands.Channel.Close())
            async with asyncio.timeout(ANSWER_S):
                await self.answers.is_closed.wait()


@asynccontextmanager
async def open_channel(
    backend: ManagementBackend, request: Request, vhost: str
) -> AsyncIterator[DirectChannel]:
    """In ``vhost``, as the one who asks. Raises ApiError(503) while the broker doesn't run."""
    answers = Answers()
    owner = Pid(backend.config.name, backend.env.incarnation, 0)  # of no connection
    channel = backend.make_channel(answers, Session(owner, request.user, vhost, False))
    if channel is None:
        raise unavailable(f"the broker on this node is {backend.phase}")
    pid = backend.runtime.spawn(channel)
    direct = DirectChannel(channel, answers)
    try:
        yield direct
        await direct.close()
    except TimeoutError:
        raise CallTimeout("a channel did not close") from None
    finally:
        await backend.runtime.kill(pid)
