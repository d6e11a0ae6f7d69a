"""What became of operations on a system's queues: ok, fail, or no one knows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from shalott.clients.queued_client import QueuedClient
from shalott.core.client import completion_of
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.message_body import encode_body
from shalott.core.op import Completion, Invocation
from shalott.core.queued import Received

pytestmark = pytest.mark.unit

DEQUEUE = Invocation(f="dequeue", key="q")


@dataclass
class Queue:
    holds: list[Received] = field(default_factory=list)
    settling: Exception | None = None
    hangs: bool = False
    settled: list[Received] = field(default_factory=list)
    sent: list[tuple[str, bytes]] = field(default_factory=list)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def send(self, queue: str, body: bytes) -> None:
        self.sent.append((queue, body))

    async def receive(self, queue: str) -> Received | None:
        return self.holds.pop(0) if self.holds else None

    async def settle(self, received: Received) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.settling is not None:
            raise self.settling
        self.settled.append(received)


def invoked(fake: Queue, asked: Invocation = DEQUEUE, *, settles: bool = True) -> Completion:
    client = QueuedClient(fake, body_bytes=64, timeout_ms=200, settles=settles)
    return completion_of(client, asyncio.run(client.invoke(asked)))


def message(redelivered: bool | None = False) -> Received:
    return Received(encode_body(7, 64), redelivered, token="t")


def test_an_enqueue_sends_a_body_of_the_size_that_was_asked_for() -> None:
    fake = Queue()
    assert invoked(fake, Invocation(f="enqueue", key="q", value=7)).type == "ok"
    assert fake.sent == [("q", encode_body(7, 64))]


def test_a_message_is_settled_once_it_came() -> None:
    fake = Queue([message(True)])
    assert invoked(fake) == Completion(type="ok", value=7, redelivered=True)
    assert [each.token for each in fake.settled] == ["t"]
    assert invoked(fake) == Completion(type="fail", error="empty")


def test_a_queue_that_forgets_what_it_delivers_is_not_told() -> None:
    fake = Queue([message(None)])
    assert invoked(fake, settles=False) == Completion(type="ok", value=7)
    assert not fake.settled


@pytest.mark.parametrize("why", [Indefinite("no answer"), TimeoutError(), OSError("reset")])
def test_a_message_whose_settling_was_not_answered_was_seen(why: Exception) -> None:
    found = invoked(Queue([message()], settling=why))
    assert (found.type, found.value, found.redelivered) == ("info", 7, False)


def test_a_message_whose_settling_takes_too_long_was_seen() -> None:
    found = invoked(Queue([message()], hangs=True))
    assert (found.type, found.value, found.error) == ("info", 7, "timeout")


@pytest.mark.parametrize("why", [Definite("lost the claim"), Unreachable("closed")])
def test_a_message_that_was_certainly_not_settled_counts_for_nothing(why: Exception) -> None:
    found = invoked(Queue([message()], settling=why))
    assert (found.type, found.value, found.extra) == ("fail", None, {"given_back": 7})
    assert found.error == f"given back: {why}"


def test_a_damaged_body_is_told() -> None:
    found = invoked(Queue([Received(b"something of others")]))
    assert (found.type, found.value, found.error) == ("ok", None, "corrupted")
