"""Streams behave the same on asyncio's own loop and on the simulated one."""

from __future__ import annotations

import asyncio
from inspect import getsource
from typing import Any, TypeAlias

import pytest

from tests.world.clock.both_loops import HOST, agree, end, serve, settle

pytestmark = pytest.mark.unit

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
MANY_BYTES = 16 << 20  # more than real kernels keep


async def echo(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(4096):
        writer.write(data)
        await writer.drain()
    await end(writer)


async def stop(server: asyncio.Server, writer: Writer) -> None:
    await end(writer)
    server.close()
    await server.wait_closed()
    await settle()  # the server's side ends too


def test_what_is_written_is_read_back_in_every_way() -> None:
    async def program() -> Any:
        server, port = await serve(echo)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"exact line\nuntil;rest")
        writer.writelines([b" of", b" it"])
        await writer.drain()
        seen = [
            await reader.readexactly(5),
            await reader.readline(),
            await reader.readuntil(b";"),
            await reader.readexactly(10),
            reader.at_eof(),
        ]
        writer.write_eof()
        seen += [
            await reader.read(),
            reader.at_eof(),
            await reader.read(5),
            await reader.readline(),
        ]
        await stop(server, writer)
        return seen

    assert agree(program) == [
        b"exact", b" line\n", b"until;", b"rest of it", False, b"", True, b"", b"",
    ]  # fmt: skip


def test_a_stream_that_ends_early_says_what_it_had() -> None:
    async def program() -> Any:
        async def two_parts(reader: Reader, writer: Writer) -> None:
            writer.write(b"half")
            await end(writer)

        server, port = await serve(two_parts)
        seen: list[Any] = []
        for method, argument in (("readexactly", 10), ("readuntil", b";")):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                await getattr(reader, method)(argument)
            except asyncio.IncompleteReadError as error:
                seen.append((error.partial, error.expected))
            await end(writer)
        reader, writer = await asyncio.open_connection(HOST, port)
        seen.append(await reader.readline())
        await stop(server, writer)
        return seen

    assert agree(program) == [(b"half", 10), (b"half", None), b"half"]


def test_a_line_over_the_limit_is_refused() -> None:
    async def program() -> Any:
        async def long_line(reader: Reader, writer: Writer) -> None:
            writer.write(b"x" * 100 + b"\n" + b"short\n")
            await end(writer)

        server, port = await serve(long_line)
        reader, writer = await asyncio.open_connection(HOST, port, limit=50)
        await settle()
        seen: list[Any] = []
        try:
            await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            seen.append(error.consumed)
        try:
            await reader.readline()
        except ValueError as error:
            seen.append(type(error).__name__)
        seen.append(await reader.readline())
        await stop(server, writer)
        return seen

    assert agree(program) == [100, "ValueError", b"short\n"]


def test_lines_can_be_iterated() -> None:
    async def program() -> Any:
        async def poem(reader: Reader, writer: Writer) -> None:
            writer.writelines([b"on either side\n", b"the river lie\n", b"unfinished"])
            await end(writer)

        server, port = await serve(poem)
        reader, writer = await asyncio.open_connection(HOST, port)
        lines = [line async for line in reader]
        await stop(server, writer)
        return lines

    assert agree(program) == [b"on either side\n", b"the river lie\n", b"unfinished"]


def test_half_a_connection_may_end_first() -> None:
    async def program() -> Any:
        async def answer_at_the_end(reader: Reader, writer: Writer) -> None:
            question = await reader.read()
            writer.write(question[::-1])
            await end(writer)

        server, port = await serve(answer_at_the_end)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"abc")
        can = writer.can_write_eof()
        writer.write_eof()
        answer = await reader.read()
        closing = writer.is_closing()
        await stop(server, writer)
        return can, answer, closing, writer.is_closing()

    assert agree(program) == (True, b"cba", False, True)


def test_drain_waits_for_a_reader_that_does_not_read() -> None:
    async def program() -> Any:
        begin = asyncio.Event()
        counted = asyncio.get_running_loop().create_future()

        async def sleepy(reader: Reader, writer: Writer) -> None:
            await begin.wait()
            total = 0
            while data := await reader.read(1 << 16):
                total += len(data)
            counted.set_result(total)
            await end(writer)

        server, port = await serve(sleepy)
        _, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"x" * MANY_BYTES)
        blocked = False
        try:
            async with asyncio.timeout(0.1):
                await writer.drain()
        except TimeoutError:
            blocked = True
        begin.set()
        await writer.drain()
        writer.close()
        total = await counted
        await stop(server, writer)
        return blocked, total

    assert agree(program) == (True, MANY_BYTES)


def test_a_slow_reader_holds_up_a_fast_writer_and_nothing_is_lost() -> None:
    async def program() -> Any:
        crc = asyncio.get_running_loop().create_future()

        async def slow(reader: Reader, writer: Writer) -> None:
            whole = bytearray()
            while data := await reader.read(300_000):
                whole += data
                await asyncio.sleep(0)
            crc.set_result(bytes(whole))
            await end(writer)

        server, port = await serve(slow, limit=1000)
        _, writer = await asyncio.open_connection(HOST, port)
        sent = bytearray()
        for number in range(400):
            piece = number.to_bytes(4, "big") * 2500
            sent += piece
            writer.write(piece)
            await writer.drain()
        writer.close()
        received = await crc
        await stop(server, writer)
        return received == sent, len(received)

    assert agree(program) == (True, 4_000_000)


def test_a_reset_reaches_the_one_who_reads() -> None:
    async def program() -> Any:
        async def reset(reader: Reader, writer: Writer) -> None:
            writer.transport.pause_reading()
            await settle()
            writer.transport.abort()

        server, port = await serve(reset)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"never read")
        seen = []
        try:
            await reader.readexactly(1)
        except ConnectionResetError as error:
            seen.append(error.errno)
        try:
            writer.write(b"more")
            await writer.drain()
        except ConnectionResetError as error:
            seen.append(error.errno)
        seen.append(writer.is_closing())
        await stop(server, writer)
        return seen

    assert agree(program) == [104, 104, True]


def test_abort_without_unread_bytes_looks_like_an_end() -> None:
    async def program() -> Any:
        async def abort(reader: Reader, writer: Writer) -> None:
            await reader.readexactly(4)
            writer.write(b"last words")
            writer.transport.abort()

        server, port = await serve(abort)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"ping")
        seen = [await reader.read()]
        await stop(server, writer)
        return seen

    assert agree(program) == [b"last words"]


def test_draining_a_broken_connection_raises() -> None:
    async def program() -> Any:
        async def leave(reader: Reader, writer: Writer) -> None:
            await end(writer)

        server, port = await serve(leave)
        reader, writer = await asyncio.open_connection(HOST, port)
        ended = await reader.read()
        errors = []
        for _ in range(3):
            try:
                writer.write(b"into the void")
                await writer.drain()
                errors.append("none")
            except OSError as error:
                errors.append(type(error).__name__)
            await settle()
        try:
            writer.close()
            await writer.wait_closed()
        except OSError as error:
            errors.append(type(error).__name__)
        await stop(server, writer)
        return ended, errors

    assert agree(program) == (
        b"",
        ["none", "ConnectionResetError", "BrokenPipeError", "BrokenPipeError"],
    )


def test_wait_closed_waits_for_what_is_buffered() -> None:
    async def program() -> Any:
        begin, received = asyncio.Event(), []

        async def late(reader: Reader, writer: Writer) -> None:
            writer.transport.pause_reading()
            await begin.wait()
            writer.transport.resume_reading()
            received.append(len(await reader.read()))
            await end(writer)

        server, port = await serve(late)
        _, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"x" * MANY_BYTES)
        writer.close()
        closing = asyncio.create_task(writer.wait_closed())
        await settle()
        early = closing.done()
        begin.set()
        await closing
        while not received:
            await settle()
        await stop(server, writer)
        return early, received

    assert agree(program) == (False, [MANY_BYTES])


def test_a_plain_callback_may_serve() -> None:
    async def program() -> Any:
        def greet(reader: Reader, writer: Writer) -> None:
            writer.write(b"hello")
            writer.close()

        server = await asyncio.start_server(greet, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            reader, writer = await asyncio.open_connection(HOST, port)
            greeting = await reader.read()
            await end(writer)
        return greeting, server.is_serving()

    assert agree(program) == (b"hello", False)


@pytest.mark.skipif(
    "in client_connected_cb" not in getsource(asyncio.StreamReaderProtocol.connection_made),
    reason="this Python's own streams (3.11.2 has such) tell nobody, and leave the client waiting",
)
def test_a_client_handler_that_fails_is_told_to_the_loop() -> None:
    async def program() -> Any:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: told.append((context["message"], str(context["exception"])))
        )

        async def fail(reader: Reader, writer: Writer) -> None:
            raise ValueError("planted")

        server, port = await serve(fail)
        reader, writer = await asyncio.open_connection(HOST, port)
        rest = await reader.read()
        await stop(server, writer)
        return rest, told

    assert agree(program) == (b"", [("Unhandled exception in client_connected_cb", "planted")])


def test_many_clients_are_served_at_once() -> None:
    async def program() -> Any:
        server, port = await serve(echo)

        async def ask(number: int) -> bytes:
            reader, writer = await asyncio.open_connection(HOST, port)
            for _ in range(5):
                writer.write(b"%03d" % number)
                answer = await reader.readexactly(3)
                await asyncio.sleep(0)
            writer.write_eof()
            rest = await reader.read()
            await end(writer)
            return answer + rest

        answers = await asyncio.gather(*(ask(number) for number in range(20)))
        server.close()
        await server.wait_closed()
        await settle()
        return answers

    assert agree(program) == [b"%03d" % number for number in range(20)]


def test_a_read_given_up_leaves_the_bytes_to_the_next() -> None:
    async def program() -> Any:
        server, port = await serve(echo)
        reader, writer = await asyncio.open_connection(HOST, port)
        seen: list[Any] = []
        try:
            await asyncio.wait_for(reader.readexactly(3), 0.02)
        except TimeoutError:
            seen.append("timeout")
        writer.write(b"ab")
        await settle()
        reading = asyncio.create_task(reader.readexactly(3))
        await settle(0.01)
        reading.cancel()
        await asyncio.wait([reading])
        seen.append(reading.cancelled())
        writer.write(b"c")
        seen.append(await reader.readexactly(3))
        await stop(server, writer)
        return seen

    assert agree(program) == ["timeout", True, b"abc"]


def test_two_may_not_read_at_once() -> None:
    async def program() -> Any:
        server, port = await serve(echo)
        reader, writer = await asyncio.open_connection(HOST, port)
        first = asyncio.create_task(reader.read(1))
        await asyncio.sleep(0)
        try:
            await reader.read(1)
        except RuntimeError as error:
            text = str(error)
        writer.write(b"x")
        seen = await first
        await stop(server, writer)
        return text, seen

    assert agree(program) == (
        "read() called while another coroutine is already waiting for incoming data",
        b"x",
    )


def test_both_sides_may_write_first() -> None:
    async def program() -> Any:
        async def talker(reader: Reader, writer: Writer) -> None:
            writer.write(b"server first\n")
            seen.append(await reader.readline())
            await end(writer)

        seen: list[bytes] = []
        server, port = await serve(talker)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"client first\n")
        seen.append(await reader.readline())
        await reader.read()
        await stop(server, writer)
        return sorted(seen)

    assert agree(program) == [b"client first\n", b"server first\n"]
