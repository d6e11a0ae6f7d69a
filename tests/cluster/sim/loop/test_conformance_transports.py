"""Transports, protocols and servers behave the same on asyncio's own loop and the simulated one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import Any

import pytest

from tests.world.clock.both_loops import HOST, Pair, Recorder, agree, settle

pytestmark = pytest.mark.unit

MEGABYTE = 1 << 20
MANY_BYTES = 16 * MEGABYTE  # more than real kernels keep


def test_a_connection_is_made_read_ended_and_lost_in_this_order() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            pair.near.transport.write(b"ping")
            pair.near.transport.write_eof()
            await pair.far.lost.wait()
            await pair.near.lost.wait()
            return pair.near.told, pair.far.told, bytes(pair.far.received)

    assert agree(program) == (
        ["made", "eof", ("lost", None)],
        ["made", "data", "eof", ("lost", None)],
        b"ping",
    )


def test_a_protocol_may_keep_its_half_open_after_the_peers_end() -> None:
    async def program() -> Any:
        async with Pair(keep_open=True) as pair:
            pair.near.transport.write_eof()
            await pair.far.eof.wait()
            still_open = not pair.far.transport.is_closing()
            pair.far.transport.write(b"answer")
            pair.far.transport.write_eof()
            await pair.near.eof.wait()
            return still_open, bytes(pair.near.received), pair.near.told

    assert agree(program) == (True, b"answer", ["made", "data", "eof"])


def test_connection_lost_comes_in_a_callback_of_its_own() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            pair.near.transport.close()
            before = pair.near.told
            closing = pair.near.transport.is_closing()
            pair.near.transport.close()  # again: nothing
            await pair.near.lost.wait()
            return before, closing, pair.near.told

    assert agree(program) == (["made"], True, ["made", ("lost", None)])


def test_close_sends_what_is_buffered_first() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            pair.far.transport.pause_reading()
            pair.near.transport.write(b"x" * MANY_BYTES)
            buffered = pair.near.transport.get_write_buffer_size() > 0
            pair.near.transport.close()
            await settle()
            log_before = pair.near.told
            pair.far.transport.resume_reading()
            await pair.far.lost.wait()
            return buffered, log_before, len(pair.far.received), pair.far.told, pair.near.told

    assert agree(program) == (
        True,
        ["made", "pause"],
        MANY_BYTES,
        ["made", "data", "eof", ("lost", None)],
        ["made", "pause", "resume", ("lost", None)],
    )


def test_abort_throws_the_buffer_away() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            pair.far.transport.pause_reading()
            pair.near.transport.write(b"x" * MANY_BYTES)
            pair.near.transport.abort()
            emptied = pair.near.transport.get_write_buffer_size()
            await pair.near.lost.wait()
            pair.far.transport.resume_reading()
            await pair.far.lost.wait()
            arrived = len(pair.far.received)
            return emptied, pair.near.told, pair.far.told, 0 < arrived < MANY_BYTES

    assert agree(program) == (
        0,
        ["made", "pause", ("lost", None)],
        ["made", "data", "eof", ("lost", None)],
        True,
    )


def test_abort_with_unread_bytes_resets_the_connection() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            pair.far.transport.pause_reading()
            pair.near.transport.write(b"never read")
            await settle()
            pair.far.transport.abort()
            await pair.near.lost.wait()
            return pair.near.told, pair.far.told

    assert agree(program) == (["made", ("lost", "ConnectionResetError")], ["made", ("lost", None)])


def test_nothing_is_delivered_while_reading_is_paused() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            states = [pair.far.transport.is_reading()]
            pair.far.transport.pause_reading()
            pair.far.transport.pause_reading()  # again: nothing
            states.append(pair.far.transport.is_reading())
            pair.near.transport.write(b"late")
            pair.near.transport.write_eof()
            await settle()
            before = pair.far.told
            pair.far.transport.resume_reading()
            pair.far.transport.resume_reading()
            at_once = pair.far.told
            await pair.far.lost.wait()
            return states, before, at_once, pair.far.told, bytes(pair.far.received)

    assert agree(program) == (
        [True, False],
        ["made"],
        ["made"],
        ["made", "data", "eof", ("lost", None)],
        b"late",
    )


def test_a_protocol_that_pauses_in_its_callback_gets_no_more() -> None:
    class OneAtATime(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()

    async def program() -> Any:
        pair = Pair()
        pair.far = OneAtATime()
        async with pair:
            pair.near.transport.write(b"first")
            await settle()
            pair.near.transport.write(b"second")
            await settle()
            before = bytes(pair.far.received)
            pair.far.transport.resume_reading()
            await settle()
            return before, bytes(pair.far.received)

    assert agree(program) == (b"first", b"firstsecond")


def test_a_full_buffer_pauses_the_writer_until_it_drains() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            pair.near.transport.set_write_buffer_limits(high=10_000, low=100)
            limits = pair.near.transport.get_write_buffer_limits()
            pair.far.transport.pause_reading()
            pair.near.transport.write(b"x" * MANY_BYTES)
            await settle()
            before = pair.near.told
            pair.far.transport.resume_reading()
            while len(pair.far.received) < MANY_BYTES:
                await settle(0.01)
            left = pair.near.transport.get_write_buffer_size()
            return limits, before, pair.near.told, left

    assert agree(program) == ((100, 10_000), ["made", "pause"], ["made", "pause", "resume"], 0)


@pytest.mark.parametrize(
    ("high", "low", "expected"),
    [
        (None, None, (16 * 1024, 64 * 1024)),
        (1000, None, (250, 1000)),
        (None, 10, (10, 40)),
        (0, None, (0, 0)),
        (1, 2, "ValueError"),
    ],
)
def test_write_buffer_limits_have_asyncios_defaults(
    high: int | None, low: int | None, expected: Any
) -> None:
    async def program() -> Any:
        async with Pair() as pair:
            try:
                pair.near.transport.set_write_buffer_limits(high=high, low=low)
            except ValueError as error:
                return type(error).__name__
            return pair.near.transport.get_write_buffer_limits()

    assert agree(program) == expected


def test_end_of_file_comes_after_all_that_is_buffered() -> None:
    async def program() -> Any:
        async with Pair(keep_open=True) as pair:
            pair.near.transport.write(b"x" * MANY_BYTES)
            pair.near.transport.write_eof()
            pair.near.transport.write_eof()  # again: nothing
            await pair.far.eof.wait()
            return len(pair.far.received), pair.near.transport.can_write_eof()

    assert agree(program) == (MANY_BYTES, True)


def test_wrong_writes_are_refused() -> None:
    async def program() -> Any:
        errors = []
        async with Pair(keep_open=True) as pair:
            for wrong in ("text", None):
                try:
                    pair.near.transport.write(wrong)  # type: ignore[arg-type]
                except TypeError as error:
                    errors.append(str(error))
            pair.near.transport.write(b"")
            pair.near.transport.write_eof()
            try:
                pair.near.transport.write(b"more")
            except RuntimeError as error:
                errors.append(str(error))
        return errors

    assert agree(program) == [
        "data argument must be a bytes-like object, not 'str'",
        "data argument must be a bytes-like object, not 'NoneType'",
        "Cannot call write() after write_eof()",
    ]


def test_bytes_arrive_as_they_were_when_written() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            changing = bytearray(b"before")
            pair.near.transport.write(changing)
            changing[:] = b"after!"
            pair.near.transport.write(memoryview(b" and then"))
            pair.near.transport.writelines([b" some", bytearray(b" more")])
            await settle()
            return bytes(pair.far.received)

    assert agree(program) == b"before and then some more"


def test_writing_to_a_closed_peer_breaks_the_connection() -> None:
    async def program() -> Any:
        async with Pair(keep_open=True) as pair:
            pair.far.transport.close()
            await pair.near.eof.wait()
            pair.near.transport.write(b"first")  # a reset comes back
            await settle()
            before = pair.near.told
            pair.near.transport.write(b"second")
            await pair.near.lost.wait()
            pair.near.transport.write(b"third")  # ignored
            return before, pair.near.told

    assert agree(program) == (
        ["made", "eof"],
        ["made", "eof", ("lost", "BrokenPipeError")],
    )


def test_each_end_knows_both_names() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            near, far = pair.near.transport, pair.far.transport
            listening = pair.server.sockets[0].getsockname()
            return (
                near.get_extra_info("peername") == listening,
                far.get_extra_info("sockname") == listening,
                far.get_extra_info("peername") == near.get_extra_info("sockname"),
                near.get_extra_info("peername")[0],
                near.get_extra_info("socket").getpeername() == listening,
                near.get_extra_info("sslcontext"),
                near.get_extra_info("nonsense", "default"),
            )

    assert agree(program) == (True, True, True, HOST, True, None, "default")


def test_a_transport_can_change_its_protocol() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            second = Recorder()
            second.connection_made(pair.far.transport)
            same = pair.far.transport.get_protocol() is pair.far
            pair.far.transport.set_protocol(second)
            pair.near.transport.write(b"to the second")
            await settle()
            pair.near.transport.close()
            await second.lost.wait()
            pair.far.connection_lost(None)
            return same, bytes(pair.far.received), bytes(second.received), second.told

    assert agree(program) == (
        True,
        b"",
        b"to the second",
        ["made", "data", "eof", ("lost", None)],
    )


def test_a_buffered_protocol_gets_its_bytes_in_its_own_buffer() -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(4)
            self.received = b""
            self.lost = asyncio.Event()

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.received += bytes(self.buffer[:nbytes])

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set()

    async def program() -> Any:
        loop, far, near = asyncio.get_running_loop(), Buffered(), Recorder()
        server = await loop.create_server(lambda: far, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        await loop.create_connection(lambda: near, HOST, port)
        near.transport.write(b"longer than four")
        near.transport.close()
        await far.lost.wait()
        server.close()
        await server.wait_closed()
        return far.received

    assert agree(program) == b"longer than four"


@pytest.mark.parametrize("method", ["data_received", "eof_received"])
def test_a_protocol_that_fails_loses_its_connection_and_the_loop_is_told(method: str) -> None:
    async def program() -> Any:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: told.append((context["message"], str(context["exception"])))
        )

        def fail(*arguments: object) -> None:
            raise ValueError("planted")

        async with Pair() as pair:
            setattr(pair.far, method, fail)
            pair.near.transport.write(b"ping")
            pair.near.transport.write_eof()
            await pair.far.lost.wait()
            return told, pair.far.log[-1]

    assert agree(program) == (
        [(f"Fatal error: protocol.{method}() call failed.", "planted")],
        ("lost", "ValueError"),
    )


def test_a_taken_address_is_in_use_until_its_server_closes() -> None:
    async def program() -> Any:
        loop = asyncio.get_running_loop()
        first = await loop.create_server(Recorder, HOST, 0)
        port = first.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="error while attempting to bind on address") as caught:
            await loop.create_server(Recorder, HOST, port)
        first.close()
        await first.wait_closed()
        second = await loop.create_server(Recorder, HOST, port)
        second.close()
        await second.wait_closed()
        message = str(caught.value).replace(str(port), "PORT")
        # Since 3.13 asyncio repeats the number; the simulation says the same on every version.
        message = message.replace(f"[errno {errno.EADDRINUSE}] ", "")
        return caught.value.errno, message, first.sockets, first.is_serving()

    assert agree(program) == (
        errno.EADDRINUSE,
        f"[Errno {errno.EADDRINUSE}] error while attempting to bind on address"
        " ('127.0.0.1', PORT): address already in use",
        (),
        False,
    )


def test_nobody_listening_refuses() -> None:
    async def program() -> Any:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Recorder, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError) as caught:
            await loop.create_connection(Recorder, HOST, port)
        return caught.value.errno, str(caught.value).replace(str(port), "PORT")

    assert agree(program) == (
        errno.ECONNREFUSED,
        f"[Errno {errno.ECONNREFUSED}] Connect call failed ('127.0.0.1', PORT)",
    )


def test_a_server_serves_when_it_is_told_to() -> None:
    async def program() -> Any:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Recorder, HOST, 0, start_serving=False)
        port = server.sockets[0].getsockname()[1]
        states = [server.is_serving()]
        with contextlib.suppress(ConnectionRefusedError):
            await loop.create_connection(Recorder, HOST, port)
            states.append("connected")
        await server.start_serving()
        states.append(server.is_serving())
        near = Recorder()
        await loop.create_connection(lambda: near, HOST, port)
        near.transport.close()
        await near.lost.wait()
        server.close()
        await server.wait_closed()
        return [*states, server.is_serving(), server.get_loop() is loop]

    assert agree(program) == [False, True, False, True]


def test_connections_outlive_their_server() -> None:
    async def program() -> Any:
        async with Pair() as pair:
            pair.server.close()
            pair.near.transport.write(b"still here")
            await settle()
            return bytes(pair.far.received), pair.near.told

    assert agree(program) == (b"still here", ["made"])


def test_serving_for_ever_ends_with_its_cancellation() -> None:
    async def program() -> Any:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Recorder, HOST, 0, start_serving=False)
        serving = asyncio.create_task(server.serve_forever())
        await settle()
        states = [server.is_serving()]
        with pytest.raises(RuntimeError, match="already being awaited"):
            await server.serve_forever()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        return [*states, server.is_serving(), server.sockets]

    assert agree(program) == [True, False, ()]


def test_addresses_resolve() -> None:
    async def program() -> Any:
        infos = await asyncio.get_running_loop().getaddrinfo(HOST, 5672, proto=6)
        family, kind, proto, name, address = infos[0]
        return int(family), int(kind), proto, name, address

    assert agree(program) == (2, 1, 6, "", (HOST, 5672))
