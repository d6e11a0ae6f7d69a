"""A program that speaks AMQP for clients of Artemis: a process for each who connects to it.

Its argument is the number of a listening socket that it was left. What comes is a JSON line an
operation: its name and its arguments, and each is answered by one: [true, value], or [false, words,
whether the broker refused it]. A process ends with its client's connection, all of it with its
standard input.

It is a program because proton wants one thread: its objects count their users without a lock, and
where the last use ends is up to Python's collector, which may be in any thread.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import TextIO

from proton import Delivery, Message, ProtonException
from proton.reactor import Container
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, SendException

TROUBLES = (ProtonException, OSError)  # a time-out of proton's is one
NOT_TAKEN = [Delivery.REJECTED, Delivery.RELEASED]
MANAGEMENT = "activemq.management"


class Speaker:
    """A connection and its links. Raises what proton raises."""

    _blocking: BlockingConnection
    _timeout_s: float

    def __init__(self, container: Container) -> None:
        self._container = container
        self._senders: dict[str, BlockingSender] = {}
        self._receivers: dict[str, BlockingReceiver] = {}
        self._answers: BlockingReceiver | None = None
        self._unsettled: dict[int, Delivery] = {}
        self._numbers = itertools.count()

    def open(self, host: str, port: int, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        address = f"amqp://{host}:{port}"
        self._blocking = BlockingConnection(address, timeout_s, container=self._container)

    def close(self) -> None:
        self._blocking.close()

    def _sender(self, queue: str) -> BlockingSender:
        if queue not in self._senders:
            self._senders[queue] = self._blocking.create_sender(queue, name=f"to {queue}")
        return self._senders[queue]

    def send(self, queue: str, body: str) -> None:
        message = Message(body=body.encode("latin-1"), durable=True)
        outcome = self._sender(queue).send(message, error_states=NOT_TAKEN).remote_state
        if outcome != Delivery.ACCEPTED:
            raise ProtonException(f"the broker's outcome is {outcome}")

    def receive(self, queue: str) -> tuple[str, int] | None:
        """A body, and the number by which it is settled. None: the broker had none to give."""
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
        if not fetched.has_message:
            return None
        message, number = fetched.pop(), next(self._numbers)
        assert isinstance(message.body, (bytes, memoryview)), "as it was sent"
        self._unsettled[number] = fetched.unsettled.popleft()
        return bytes(message.body).decode("latin-1"), number  # a view ends with its message

    def settle(self, queue: str, number: int) -> None:
        """The broker does not answer an acceptance: what is asked behind it is answered later."""
        delivery = self._unsettled.pop(number)
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        self.ask(f"queue.{queue}", "deliveringCount")

    def ask(self, resource: str, attribute: str) -> object:
        """What the broker's management says."""
        if self._answers is None:
            self._answers = self._blocking.create_receiver(None, dynamic=True, name="answers")
        asked = {"_AMQ_ResourceName": resource, "_AMQ_Attribute": attribute}
        back = self._answers.link.remote_source.address
        self._sender(MANAGEMENT).send(Message(properties=asked, reply_to=back))
        answer = self._answers.receive(self._timeout_s)
        self._answers.accept()
        told: dict[str, object] = dict(answer.properties or {})
        if not told["_AMQ_OperationSucceeded"] or not isinstance(answer.body, str):
            raise ProtonException(f"{attribute} of {resource}: {answer.body!r}")
        return json.loads(answer.body)[0]


def answer_of(do: Callable[..., object], words: list[object]) -> tuple[object, ...]:
    try:
        return True, do(*words)
    except SendException as error:
        return False, f"the broker's outcome is {error.state}", True
    except TROUBLES as error:
        return False, f"{type(error).__name__} {error}".strip(), False


def serve(stream: TextIO, container: Container) -> None:
    speaker = Speaker(container)
    for line in stream:
        name, *words = json.loads(line)
        stream.write(json.dumps(answer_of(getattr(speaker, name), words)) + "\n")
        stream.flush()


def main(number: int) -> None:
    listening = socket.socket(fileno=number)
    container = Container()  # each process has its copy: to make one takes 50 ms, for TLS
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while sys.stdin not in (ready := select.select([listening, sys.stdin], [], [])[0]):
        if not ready:
            continue
        client, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            try:
                serve(client.makefile("rw"), container)
            except ConnectionError:
                pass  # nobody waits for the answer any more
            os._exit(0)
        client.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
