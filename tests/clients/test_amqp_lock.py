"""Every way an acquire or a release can end, against a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from pamqp import commands
from pamqp.body import ContentBody

from shalott.clients.amqp.lock_client import AmqpLockClient
from shalott.core.client import Watchful
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.op import Completion, Invocation
from tests.world.rabbit.scripted_server import FakeServer, Script, Session, fake_server

pytestmark = pytest.mark.unit

ACQUIRE = Invocation(f="acquire", key="lock")
RELEASE = Invocation(f="release", key="lock")
CREATE = Invocation(f="create", key="lock")
GET, REJECT = (60, 70), (60, 90)

Body = Callable[[AmqpLockClient, FakeServer], Awaitable[None]]


@asynccontextmanager
async def client_of(
    script: Script, timeout_ms: int = 5000
) -> AsyncIterator[tuple[AmqpLockClient, FakeServer]]:
    async with fake_server(script) as server:
        client = AmqpLockClient("127.0.0.1", server.port, op_timeout_ms=timeout_ms)
        await client.open()
        try:
            yield client, server
        finally:
            await client.close()


def run(body: Body, script: Script, timeout_ms: int = 5000) -> None:
    async def main() -> None:
        async with client_of(script, timeout_ms) as (client, server):
            await body(client, server)

    asyncio.run(main())


def answering(*, get: object = "message", reject: object = None, publish: object = None) -> Script:
    """What the server says to a get, a reject and a publish."""

    async def script(session: Session, value: object) -> None:
        asked = {commands.Basic.Get: get, commands.Basic.Reject: reject, ContentBody: publish}
        answer = asked.get(type(value))
        if answer == "message":
            session.send_content(commands.Basic.GetOk(7, False, "", "lock", 0), b"token")
        elif answer == "hang up":
            raise ConnectionResetError
        elif isinstance(answer, commands.Basic.Return):
            session.send_content(answer, b"token")
        elif answer is not None:
            session.send(answer)  # type: ignore[arg-type]

    return script


def channel_close(code: int, text: str, cause: tuple[int, int]) -> commands.Channel.Close:
    return commands.Channel.Close(code, text, *cause)


def test_a_lock_is_held_until_it_is_rejected_on_the_same_channel() -> None:
    async def body(client: AmqpLockClient, server: FakeServer) -> None:
        assert await client.invoke(ACQUIRE) == Completion(type="ok", redelivered=False)
        with pytest.raises(Definite, match="it holds lock"):
            await client.invoke(ACQUIRE)
        assert await client.invoke(RELEASE) == Completion(type="ok")
        with pytest.raises(Definite, match="does not hold"):
            await client.invoke(RELEASE)
        (get,) = [each for each in server.received if isinstance(each, commands.Basic.Get)]
        assert not get.no_ack
        (reject,) = [each for each in server.received if isinstance(each, commands.Basic.Reject)]
        assert (reject.delivery_tag, reject.requeue) == (7, True)

    run(body, answering())


def test_a_lock_that_somebody_else_holds_is_certainly_not_acquired() -> None:
    async def body(client: AmqpLockClient, server: FakeServer) -> None:
        assert await client.invoke(ACQUIRE) == Completion(type="fail", error="empty")

    run(body, answering(get=commands.Basic.GetEmpty()))


@pytest.mark.parametrize(
    ("answer", "outcome", "text"),
    [
        (None, Indefinite, "timeout"),
        ("hang up", Indefinite, "connection"),
        (channel_close(404, "NOT_FOUND - home node is down", GET), Definite, "404"),
        (channel_close(541, "INTERNAL_ERROR", (0, 0)), Indefinite, "541"),
    ],
)
def test_an_acquire_without_a_message(answer: object, outcome: type[Exception], text: str) -> None:
    async def body(client: AmqpLockClient, server: FakeServer) -> None:
        with pytest.raises(outcome, match=text) as raised:
            await client.invoke(ACQUIRE)
        assert not isinstance(raised.value, Unreachable)

    run(body, answering(get=answer), timeout_ms=100)


@pytest.mark.parametrize(
    "answer",
    [
        "hang up",
        channel_close(406, "PRECONDITION_FAILED - unknown delivery tag", REJECT),
        channel_close(541, "INTERNAL_ERROR", (0, 0)),
    ],
)
def test_a_release_that_ends_badly_is_never_a_fail(answer: object) -> None:
    """A failed release would say that the lock is still held, for ever."""

    async def body(client: AmqpLockClient, server: FakeServer) -> None:
        await client.invoke(ACQUIRE)
        with pytest.raises(Indefinite):
            await client.invoke(RELEASE)

    run(body, answering(reject=answer))


def test_a_release_on_a_connection_that_was_lost_is_an_info() -> None:
    async def script(session: Session, value: object) -> None:
        session.send_content(commands.Basic.GetOk(1, False, "", "lock", 0), b"token")
        await session.writer.drain()
        raise ConnectionResetError

    async def body(client: AmqpLockClient, server: FakeServer) -> None:
        assert isinstance(client, Watchful)
        await client.invoke(ACQUIRE)
        async with asyncio.timeout(5):
            await client.until_lost()
        with pytest.raises(Indefinite, match="while it held lock"):
            await client.invoke(RELEASE)

    run(body, script)


def test_a_channel_that_ends_while_it_holds_a_lock_is_noticed_at_once() -> None:
    closed = channel_close(406, "PRECONDITION_FAILED - delivery timeout", (0, 0))

    async def script(session: Session, value: object) -> None:
        if isinstance(value, commands.Basic.Get):
            session.send_content(commands.Basic.GetOk(1, False, "", "lock", 0), b"token")
            session.send(closed)

    async def body(client: AmqpLockClient, server: FakeServer) -> None:
        await client.invoke(ACQUIRE)
        async with asyncio.timeout(5):
            await client.until_lost()
        with pytest.raises(Indefinite, match="delivery timeout while it held lock"):
            await client.invoke(RELEASE)
        await client.invoke(ACQUIRE)  # on a new channel

    run(body, script)


def test_watching_may_end_while_nothing_happens_and_loses_nothing() -> None:
    async def body(client: AmqpLockClient, server: FakeServer) -> None:
        await client.invoke(ACQUIRE)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await client.until_lost()
        assert await client.invoke(RELEASE) == Completion(type="ok")

    run(body, answering())


@pytest.mark.parametrize(
    ("answer", "is_made"),
    [
        (commands.Basic.Ack(1), True),
        (commands.Basic.Nack(1), False),
        (commands.Basic.Return(312, "NO_ROUTE", "", "lock"), False),
    ],
)
def test_a_lock_is_made_by_one_confirmed_message(answer: object, is_made: bool) -> None:
    async def body(client: AmqpLockClient, server: FakeServer) -> None:
        if is_made:
            assert (await client.invoke(CREATE)).type == "ok"
            return
        with pytest.raises(Indefinite):
            await client.invoke(CREATE)

    run(body, answering(publish=answer))
