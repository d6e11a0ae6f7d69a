"""A client of Artemis' queues, by AMQP 1.0 and Apache's own library, qpid-proton.

    send      fail    the broker refused it (rejected, released), or no link could be had
              info    no answer in time, a connection that ended, any other outcome
    settle    info    no answer in time, a connection that ended

AMQP tells how often a delivery failed, which is not whether there was one: nothing is said of it.
Proton's connections block, so each client has a thread. A client is of one node; where that is
passive, and takes no connections, it goes to the others of its pair, as a client with the list of
both does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from proton import Delivery, Message, ProtonException
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, SendException

import shalott.api as api

R = TypeVar("R")
TROUBLES = (ProtonException, OSError)  # a time-out of proton's is one
NOT_TAKEN = [Delivery.REJECTED, Delivery.RELEASED]
MANAGEMENT = "activemq.management"
PEERS: dict[str, tuple[str, ...]] = {}  # of each address, the others of its pair: system.py's


class Connection:
    """Of one thread: a connection and its links. Raises what proton raises."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._senders: dict[str, BlockingSender] = {}
        self._receivers: dict[str, BlockingReceiver] = {}
        self._answers: BlockingReceiver | None = None
        self._blocking = BlockingConnection(f"amqp://{host}:{port}", timeout=timeout_s)

    def close(self) -> None:
        self._blocking.close()

    def sender(self, queue: str) -> BlockingSender:
        if queue not in self._senders:
            self._senders[queue] = self._blocking.create_sender(queue, name=f"to {queue}")
        return self._senders[queue]

    def receive(self, queue: str) -> tuple[Message, Delivery] | None:
        """None: the broker had none to give."""
        if queue not in self._receivers:
            made = self._blocking.create_receiver(queue, credit=0, name=f"from {queue}")
            self._receivers[queue] = made
        receiver = self._receivers[queue]
        fetched = receiver.fetcher
        assert fetched is not None, "it has no handler of its own"
        receiver.link.drain(1)
        self._blocking.wait(
            lambda: bool(fetched.has_message) or not receiver.link.credit,
            timeout=self._timeout_s,
        )
        return (fetched.pop(), fetched.unsettled.popleft()) if fetched.has_message else None

    def settle(self, queue: str, delivery: Delivery) -> None:
        """The broker does not answer an acceptance: what is asked behind it is answered later."""
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        self.ask(f"queue.{queue}", "deliveringCount")

    def ask(self, resource: str, attribute: str) -> object:
        """What the broker's management says."""
        if self._answers is None:
            self._answers = self._blocking.create_receiver(None, dynamic=True, name="answers")
        asked = {"_AMQ_ResourceName": resource, "_AMQ_Attribute": attribute}
        back = self._answers.link.remote_source.address
        self.sender(MANAGEMENT).send(Message(properties=asked, reply_to=back))
        answer = self._answers.receive(self._timeout_s)
        self._answers.accept()
        told: dict[str, object] = dict(answer.properties or {})
        if not told["_AMQ_OperationSucceeded"] or not isinstance(answer.body, str):
            raise ProtonException(f"{attribute} of {resource}: {answer.body!r}")
        return json.loads(answer.body)[0]


class ArtemisClient:
    """See ``Queued``."""

    def __init__(self, host: str, port: int, *, timeout_ms: int, alone: bool = False) -> None:
        self._hosts, self._port = (host, *(() if alone else PEERS.get(host, ()))), port
        self._timeout_s = timeout_ms / 1000
        self._connection: Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        said = ""
        for host in self._hosts:
            make = partial(Connection, host, self._port, self._timeout_s / len(self._hosts))
            try:
                self._connection = await self._run(make)
            except TROUBLES as error:
                said += f"{host}: {_words(error)}. "
            else:
                return
        raise api.Unreachable(said)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        thread, self._thread = self._thread, None
        if thread is not None:
            if connection is not None:
                thread.submit(connection.close)
            thread.shutdown(wait=False)

    async def send(self, queue: str, body: bytes) -> None:
        connection = self._connected
        try:
            sender = await self._run(lambda: connection.sender(queue))
        except TROUBLES as error:
            raise api.Unreachable(f"no link: {_words(error)}") from error
        message = Message(body=body, durable=True)
        try:
            delivery = await self._run(lambda: sender.send(message, error_states=NOT_TAKEN))
        except SendException as error:
            raise api.Definite(f"the broker's outcome is {error.state}") from error
        except TROUBLES as error:
            raise api.Indefinite(_words(error)) from error
        if delivery.remote_state != Delivery.ACCEPTED:
            raise api.Indefinite(f"the broker's outcome is {delivery.remote_state}")

    async def receive(self, queue: str) -> api.Received | None:
        connection = self._connected
        try:
            found = await self._run(lambda: connection.receive(queue))
            if found is None:
                out = await self._run(lambda: connection.ask(f"queue.{queue}", "deliveringCount"))
                if out:
                    raise api.Definite(f"{out} were delivered and are not settled")
                return None
        except TROUBLES as error:
            raise api.Indefinite(_words(error)) from error
        message, delivery = found
        assert isinstance(message.body, (bytes, memoryview)), "as it was sent"
        return api.Received(bytes(message.body), token=(queue, delivery))

    async def settle(self, received: api.Received) -> None:
        connection = self._connected
        assert isinstance(received.token, tuple), "as it was received"
        queue, delivery = received.token
        try:
            await self._run(lambda: connection.settle(queue, delivery))
        except TROUBLES as error:
            raise api.Indefinite(_words(error)) from error

    async def ask(self, resource: str, attribute: str) -> object:
        """Of the broker's management. Raises ClientError."""
        connection = self._connected
        try:
            return await self._run(lambda: connection.ask(resource, attribute))
        except TROUBLES as error:
            raise api.Indefinite(_words(error)) from error

    @property
    def _connected(self) -> Connection:
        if self._connection is None:
            raise api.Unreachable("no connection")
        return self._connection

    async def _run(self, do: Callable[[], R]) -> R:
        assert self._thread is not None, "open comes first"
        return await asyncio.get_running_loop().run_in_executor(self._thread, do)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()
