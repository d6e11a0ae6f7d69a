"""Every way an operation can end, against a scripted server, and what it is classified as."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pamqp import commands
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from shalott.clients.amqp.queue_client import NOTHING, AmqpQueueClient, Habits
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.message_body import decode_body, encode_body
from shalott.core.op import Completion, Invocation
from tests.world.rabbit.scripted_server import FakeServer, Script, Session, fake_server

pytestmark = pytest.mark.unit

PUBLISH = (60, 40)
GET = (60, 70)
ENQUEUE = Invocation(f="enqueue", key="q", value=7)
DEQUEUE = Invocation(f="dequeue", key="q")
PLAIN = Habits()


@asynccontextmanager
async def client_of(
    on_method: Script, timeout_ms: int = 5000, heartbeat_s: int = 0, habits: Habits = PLAIN
) -> AsyncIterator[tuple[AmqpQueueClient, FakeServer]]:
    async with fake_server(on_method, heartbeat_s) as server:
        client = AmqpQueueClient("127.0.0.1", server.port, op_timeout_ms=timeout_ms, habits=habits)
        await client.open()
        try:
            yield client, server
        finally:
            await client.close()


def run_one(invocation: Invocation, on_method: Script, timeout_ms: int = 5000) -> Completion:
    async def main() -> Completion:
        async with client_of(on_method, timeout_ms) as (client, _):
            return await client.invoke(invocation)

    return asyncio.run(main())


def on_publish(*answers: object) -> Script:
    """Answer the body of each publish."""

    async def script(session: Session, value: object) -> None:
        if isinstance(value, ContentBody):
            for answer in answers:
                if isinstance(answer, commands.Basic.Return):
                    session.send_content(answer, value.value)
                elif answer == "hang up":
                    raise ConnectionResetError
                else:
                    session.send(answer)  # type: ignore[arg-type]

    return script


def on_get(*answers: object, then_hang_up: bool = False) -> Script:
    async def script(session: Session, value: object) -> None:
        if isinstance(value, commands.Basic.Get):
            for answer in answers:
                if isinstance(answer, bytes):
                    got = commands.Basic.GetOk(1, True, "", "q", 0)
                    session.send_content(got, answer)
                else:
                    session.send(answer)  # type: ignore[arg-type]
            if then_hang_up:
                await session.writer.drain()
                raise ConnectionResetError

    return script


def channel_close(code: int, text: str, cause: tuple[int, int]) -> commands.Channel.Close:
    return commands.Channel.Close(code, text, *cause)


NO_ROUTE = commands.Basic.Return(312, "NO_ROUTE", "", "q")
HOME_NODE_DOWN = "NOT_FOUND - home node of queue is down"


@pytest.mark.parametrize(
    ("answers", "outcome", "text"),
    [
        ((commands.Basic.Ack(1),), "ok", None),
        ((commands.Basic.Ack(1, True),), "ok", None),
        (
            (commands.Basic.Nack(1),),
            Indefinite,
            "nack: no process of the queue lived to confirm it",
        ),
        ((NO_ROUTE, commands.Basic.Ack(1)), Definite, "returned: 312 NO_ROUTE"),
        ((NO_ROUTE, commands.Basic.Nack(1)), Definite, "returned: 312 NO_ROUTE"),
        ((channel_close(404, HOME_NODE_DOWN, PUBLISH),), Definite, "404 NOT_FOUND"),
        ((channel_close(541, "INTERNAL_ERROR", (0, 0)),), Indefinite, "541"),
        ((channel_close(406, "unknown delivery tag", (60, 80)),), Indefinite, "406"),
        (("hang up",), Indefinite, "connection"),
        ((NO_ROUTE, "hang up"), Indefinite, "connection"),
    ],
)
def test_enqueue_outcomes(
    answers: tuple[object, ...], outcome: type[Exception] | str, text: str | None
) -> None:
    if outcome == "ok":
        assert run_one(ENQUEUE, on_publish(*answers)) == Completion(type="ok")
        return
    assert isinstance(outcome, type)
    with pytest.raises(outcome, match=text) as raised:
        run_one(ENQUEUE, on_publish(*answers))
    assert not isinstance(raised.value, Unreachable)


@pytest.mark.parametrize(
    ("answers", "is_known"),
    [
        ((commands.Basic.Ack(2),), False),
        ((commands.Basic.Ack(2), commands.Basic.Ack(1)), True),
        ((commands.Basic.Ack(2, True),), True),
    ],
)
def test_what_follows_an_enqueue_to_no_queue_answers_for_it_only_as_one_of_several(
    answers: tuple[Frame, ...], is_known: bool
) -> None:
    async def script(session: Session, value: object) -> None:
        if isinstance(value, ContentBody) and value.value == NOTHING:
            session.send(*answers)

    async def main() -> None:
        async with client_of(script, 100, habits=Habits(behind=1)) as (client, server):
            done = await client.invoke(ENQUEUE)
            assert done.type == "ok"
            keys = [
                one.routing_key
                for one in server.received
                if isinstance(one, commands.Basic.Publish)
            ]
            assert keys == ["q", "q.to-nobody"]

    if is_known:
        asyncio.run(main())
    else:
        with pytest.raises(Indefinite, match="timeout"):
            asyncio.run(main())


@pytest.mark.parametrize(("invocation", "lingers"), [(ENQUEUE, True), (DEQUEUE, False)])
def test_a_patient_client_without_a_confirm_stays_connected(
    invocation: Invocation, lingers: bool
) -> None:
    async def main() -> None:
        async with client_of(on_publish(), 50, habits=Habits(patient=True)) as (client, _):
            with pytest.raises(Indefinite, match="timeout"):
                await client.invoke(invocation)
            assert client.lingers is lingers

    asyncio.run(main())


def test_an_enqueue_by_copies_names_its_queue_in_headers_only() -> None:
    async def main() -> None:
        script, habits = on_publish(commands.Basic.Ack(1)), Habits(copied=True)
        async with client_of(script, habits=habits) as (client, server):
            assert (await client.invoke(ENQUEUE)).type == "ok"
            found = [one for one in server.received if isinstance(one, commands.Basic.Publish)]
            assert [one.routing_key for one in found] == ["q.to-nobody"]
            headers = [
                one.properties.headers for one in server.received if isinstance(one, ContentHeader)
            ]
            assert headers == [{"CC": ["q", "q"], "BCC": ["q"]}]

    asyncio.run(main())


@pytest.mark.parametrize("invocation", [ENQUEUE, DEQUEUE])
def test_no_answer_in_time_is_indefinite(invocation: Invocation) -> None:
    with pytest.raises(Indefinite, match="timeout: no answer in 0.05 s"):
        run_one(invocation, on_publish(), timeout_ms=50)


def test_a_confirm_of_another_publish_is_not_ours() -> None:
    with pytest.raises(Indefinite, match="timeout"):
        run_one(ENQUEUE, on_publish(commands.Basic.Ack(2)), timeout_ms=50)


@pytest.mark.parametrize("invocation", [ENQUEUE, DEQUEUE])
def test_the_server_closing_the_connection_is_indefinite(invocation: Invocation) -> None:
    async def script(session: Session, value: object) -> None:
        if isinstance(value, ContentBody | commands.Basic.Get):
            session.send(commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0), channel=0)

    with pytest.raises(Indefinite, match="320 CONNECTION_FORCED"):
        run_one(invocation, script)


def test_what_is_published_is_persistent_mandatory_and_carries_the_value() -> None:
    async def main() -> list[object]:
        async with client_of(on_publish(commands.Basic.Ack(1))) as (client, server):
            await client.invoke(ENQUEUE)
            return server.received

    received = asyncio.run(main())
    publish = next(value for value in received if isinstance(value, commands.Basic.Publish))
    assert publish.mandatory and publish.routing_key == "q" and publish.exchange == ""
    header = received[received.index(publish) + 1]
    assert header.properties.delivery_mode == 2  # type: ignore[attr-defined]
    body = received[received.index(publish) + 2]
    assert isinstance(body, ContentBody) and decode_body(body.value) == 7


def test_a_body_larger_than_a_frame_is_split() -> None:
    async def script(session: Session, value: object) -> None:
        bodies = [value for value in session.received if isinstance(value, ContentBody)]
        if sum(len(body.value) for body in bodies) == 10_000:
            assert len(bodies) == 3  # the server's frame_max is 4096
            session.send(commands.Basic.Ack(1))

    async def main() -> Completion:
        async with fake_server(script) as server:
            client = AmqpQueueClient("127.0.0.1", server.port, body_bytes=10_000)
            await client.open()
            completion = await client.invoke(ENQUEUE)
            await client.close()
            return completion

    assert asyncio.run(main()).type == "ok"


def test_dequeue_takes_the_message_and_acknowledges_it() -> None:
    acknowledged: list[object] = []

    async def script(session: Session, value: object) -> None:
        if isinstance(value, commands.Basic.Ack):
            acknowledged.append(value.delivery_tag)
        await on_get(encode_body(9, 64))(session, value)

    completion = run_one(DEQUEUE, script)
    assert completion == Completion(type="ok", value=9, redelivered=True)
    assert acknowledged == [1]


def test_a_message_in_hand_is_ok_even_if_the_connection_goes_with_it() -> None:
    completion = run_one(DEQUEUE, on_get(encode_body(9, 64), then_hang_up=True))
    assert completion.type == "ok" and completion.value == 9


@pytest.mark.parametrize("hangs_up", [False, True])
def test_a_message_is_acknowledged_after_the_work_unless_the_channel_ended(hangs_up: bool) -> None:
    acknowledged: list[object] = []

    async def script(session: Session, value: object) -> None:
        if isinstance(value, commands.Basic.Ack):
            acknowledged.append(value.delivery_tag)
        await on_get(encode_body(9, 64), then_hang_up=hangs_up)(session, value)

    async def main() -> Completion:
        async with fake_server(script, 0) as server:
            client = AmqpQueueClient("127.0.0.1", server.port, habits=Habits(ack_after_ms=50))
            await client.open()
            try:
                return await client.invoke(DEQUEUE)
            finally:
                await client.close()

    completion = asyncio.run(main())
    if hangs_up:
        assert completion.type == "fail" and completion.value is None
        assert (completion.error or "").startswith("given back: ")
        assert completion.extra == {"given_back": 9} and completion.redelivered is True
        assert acknowledged == []
    else:
        assert completion == Completion(type="ok", value=9, redelivered=True)
        assert acknowledged == [1]


def test_an_empty_queue_is_a_certain_nothing() -> None:
    answer = on_get(commands.Basic.GetEmpty())
    assert run_one(DEQUEUE, answer) == Completion(type="fail", error="empty")


@pytest.mark.parametrize("body", [b"", b"short", encode_body(9, 64)[:-1] + b"!"])
def test_a_foreign_or_damaged_body_is_corrupted(body: bytes) -> None:
    completion = run_one(DEQUEUE, on_get(body))
    assert (completion.type, completion.value, completion.error) == ("ok", None, "corrupted")


@pytest.mark.parametrize(
    ("cause", "outcome"), [(GET, Definite), ((0, 0), Indefinite), (PUBLISH, Indefinite)]
)
def test_a_get_that_closes_the_channel(cause: tuple[int, int], outcome: type[Exception]) -> None:
    with pytest.raises(outcome, match="404"):
        run_one(DEQUEUE, on_get(channel_close(404, HOME_NODE_DOWN, cause)))


def test_a_get_whose_connection_is_lost_is_indefinite() -> None:
    with pytest.raises(Indefinite, match="connection"):
        run_one(DEQUEUE, on_get(then_hang_up=True))


def test_a_closed_channel_is_opened_again_and_confirms_count_from_one() -> None:
    refusals = [channel_close(404, HOME_NODE_DOWN, PUBLISH)]

    async def script(session: Session, value: object) -> None:
        if isinstance(value, ContentBody):
            session.send(refusals.pop() if refusals else commands.Basic.Ack(1))

    async def main() -> tuple[Completion, FakeServer]:
        async with client_of(script) as (client, server):
            with pytest.raises(Definite, match="404"):
                await client.invoke(ENQUEUE)
            return await client.invoke(ENQUEUE), server

    completion, server = asyncio.run(main())
    assert completion.type == "ok"
    assert server.connections == 1
    opened = [value for value in server.received if isinstance(value, commands.Channel.Open)]
    assert len(opened) == 2
    assert any(isinstance(value, commands.Channel.CloseOk) for value in server.received)


def test_a_channel_closed_between_operations_is_noticed_before_writing() -> None:
    async def script(session: Session, value: object) -> None:
        if isinstance(value, commands.Basic.Get):
            session.send(commands.Basic.GetEmpty())
            session.send(channel_close(541, "INTERNAL_ERROR", (0, 0)))
        elif isinstance(value, ContentBody):
            session.send(commands.Basic.Ack(1))

    async def main() -> None:
        async with client_of(script) as (client, server):
            assert (await client.invoke(DEQUEUE)).error == "empty"
            async with asyncio.timeout(5):
                assert (await client.invoke(ENQUEUE)).type == "ok"
            assert server.connections == 1

    asyncio.run(main())


def test_a_connection_lost_between_operations_is_unreachable_and_nothing_is_written() -> None:
    async def script(session: Session, value: object) -> None:
        if isinstance(value, commands.Basic.Get):
            session.send(commands.Basic.GetEmpty())
            session.send(commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0), channel=0)

    async def main() -> None:
        async with client_of(script) as (client, server):
            await client.invoke(DEQUEUE)
            async with asyncio.timeout(5):
                await server.closed.wait()
            with pytest.raises(Unreachable, match="320 CONNECTION_FORCED"):
                await client.invoke(ENQUEUE)
            assert not any(isinstance(value, ContentBody) for value in server.received)

    asyncio.run(main())


def test_a_refused_connection_is_unreachable() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # bound, not listening: refused
        port = listener.getsockname()[1]

        async def main() -> None:
            client = AmqpQueueClient("127.0.0.1", port)
            with pytest.raises(Unreachable, match="cannot connect to 127.0.0.1"):
                await client.open()
            with pytest.raises(Unreachable, match="not connected"):
                await client.invoke(ENQUEUE)
            await client.close()

        asyncio.run(main())


def test_a_blocked_publisher_does_not_publish() -> None:
    async def script(session: Session, value: object) -> None:
        if isinstance(value, commands.Basic.Get):
            session.send(commands.Connection.Blocked("low on memory"), channel=0)
            session.send(commands.Basic.GetEmpty())

    async def main() -> None:
        async with client_of(script) as (client, _):
            await client.invoke(DEQUEUE)
            with pytest.raises(Definite, match="low on memory"):
                await client.invoke(ENQUEUE)

    asyncio.run(main())


@pytest.mark.parametrize(
    "garbage",
    [b"AMQP\x00\x00\x09\x01", b"\x01\x00\x01\x00\x00\x00\x02ab\x00", b"\x09" * 64],
    ids=["another version", "no frame end", "noise"],
)
def test_a_server_that_does_not_speak_amqp_is_one_clear_error(garbage: bytes) -> None:
    async def main() -> None:
        answered = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(garbage)
            try:
                await reader.read()
            except ConnectionError:
                pass
            writer.transport.abort()
            answered.set()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            client = AmqpQueueClient("127.0.0.1", server.sockets[0].getsockname()[1])
            with pytest.raises(Unreachable, match="what is not AMQP"):
                await client.open()
            await client.close()
            await answered.wait()

    asyncio.run(main())


def test_a_silent_server_is_given_up_after_two_heartbeats() -> None:
    async def script(session: Session, value: object) -> None:
        pass

    async def main() -> int:
        async with client_of(script, heartbeat_s=1, timeout_ms=10_000) as (client, server):
            with pytest.raises(Indefinite, match="no heartbeat for 2 s"):
                await client.invoke(ENQUEUE)
            return server.connections

    assert asyncio.run(main()) == 1


def test_passive_declare_tells_depth_or_that_the_queue_is_down() -> None:
    async def script(session: Session, value: object) -> None:
        if isinstance(value, commands.Queue.Declare):
            assert value.passive
            if value.queue == "q":
                session.send(commands.Queue.DeclareOk("q", 3, 0))
            else:
                session.send(channel_close(404, HOME_NODE_DOWN, (50, 10)))

    async def main() -> None:
        async with client_of(script) as (client, _):
            assert await client.declare_passive("q") == 3
            with pytest.raises(Definite, match="404"):
                await client.declare_passive("other")

    asyncio.run(main())
