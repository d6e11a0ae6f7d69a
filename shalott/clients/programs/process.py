"""ProgramProcess: a client that is a program, which reads what to do and writes what came of it.

One JSON object a line: on its standard input ``{"id": 1, "f": "send", "key": "q1", "value": ...,
"timeout_ms": 5000}``, on its standard output ``{"id": 1, "type": "ok", "value": ...}``. A process
serves one client, which has one operation at a time; it is told whom it serves by its environment
(``environment``). It ends when its input does.

A program is a stranger: it may die, stall, flood, or talk nonsense. Once an operation was written
to it, each of these leaves open whether it was done, so it is Indefinite, in a sentence that begins
with BLAME; the process is killed then and another takes its place. What it says that it was not
asked for spoils the next operation before that is written, which is Unreachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Literal, TypeVar

import msgspec

from shalott.core.errors import CLIENT_PROGRAM as BLAME
from shalott.core.errors import Definite, Indefinite, Unreachable

T = TypeVar("T")

LINE_BYTES_MAX = 1 << 20
LAST_WORDS_BYTES = 2000
CHUNK_BYTES = 1 << 16
ERRORS_PAUSE_S = 0.05  # a program that floods its errors waits, and the harness does not
EXIT_WITHIN_S = 1.0
ERROR_CHARS_MAX = 300

Places = Mapping[str, tuple[str, int]]  # host and port of the clients' port, by node
# Of the run that this context belongs to: a program may want to know the other nodes.
PLACES: ContextVar[Places] = ContextVar("PLACES", default={})  # noqa: B039 (never changed)


class Answer(msgspec.Struct, frozen=True):
    """What a program says of one operation."""

    id: int
    type: Literal["ok", "fail", "info"]
    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    token: msgspec.Raw = msgspec.Raw(b"null")
    redelivered: bool | None = None

    def read(self, kind: msgspec.json.Decoder[T], f: str) -> T:
        """Its value. Raises Indefinite: it is of another type."""
        try:
            return kind.decode(self.value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Indefinite(f"{BLAME}: the value of its answer to {f}: {error}") from error


class ProgramProcess:
    """Not started yet. ``words``: the program and its arguments."""

    def __init__(
        self, words: tuple[str, ...], host: str, port: int, *, workload: str, timeout_ms: int
    ) -> None:
        self._words = words
        self._at = (host, port)
        self._workload = workload
        self._timeout_ms = timeout_ms
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._last_words = b""
        self._asked = 0
        self._answer: asyncio.Future[Answer] | None = None
        self._why_unfit = ""  # what it did wrong

    async def open(self) -> None:
        """Start it. Raises Unreachable: nothing was asked of it."""
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **environment(self._at, self._workload, self._timeout_ms)},
                limit=LINE_BYTES_MAX,
                start_new_session=True,  # so that what it starts ends with it
            )
        except OSError as error:
            raise Unreachable(f"{BLAME}: {self._words[0]} can't be started: {error}") from error
        assert process.stdout is not None and process.stderr is not None
        self._tasks = [
            asyncio.create_task(self._read(process, process.stdout), name="client program"),
            asyncio.create_task(self._listen(process.stderr), name="client program's errors"),
        ]

    async def ask(self, f: str, **said: object) -> Answer:
        """One operation. Raises Definite: it says that it failed, Indefinite: it says that it does
        not know, or nothing that can be understood."""
        output = self._process.stdout if self._process is not None else None
        if output is not None and output.at_eof():
            await asyncio.wait(self._tasks[:1])  # it says how it ended
        if self._why_unfit:
            why = self._why_unfit
            await self.close()
            raise Unreachable(f"{BLAME}: {why}")
        if self._process is None:
            await self.open()  # another one in its place
        process = self._process
        assert process is not None and process.stdin is not None
        self._asked += 1
        line = {"id": self._asked, "f": f, **said, "timeout_ms": self._timeout_ms}
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answer = answer
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                process.stdin.write(msgspec.json.encode(line) + b"\n")
                with contextlib.suppress(ConnectionError):  # the reader says how it ended
                    await process.stdin.drain()
                found = await answer
        except TimeoutError as error:
            raise self._unfit(f"no answer to {f} in {self._timeout_ms} ms") from error
        finally:
            self._answer = None
        if found.type == "fail":
            raise Definite(found.error[:ERROR_CHARS_MAX] or "the client says so")
        if found.type == "info":
            raise Indefinite(found.error[:ERROR_CHARS_MAX] or "the client does not know")
        return found

    async def close(self) -> None:
        """End it, with all that it started."""
        process, self._process = self._process, None
        self._why_unfit, self._last_words = "", b""
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXIT_WITHIN_S):
                for left in (process.stdout, process.stderr):
                    while left is not None and await left.read(CHUNK_BYTES):
                        pass  # pipes are closed when they have been read to their end
                await process.wait()

    async def _read(
        self, process: asyncio.subprocess.Process, output: asyncio.StreamReader
    ) -> None:
        """Its answers, until one is no answer or there are no more."""
        while not self._why_unfit:
            try:
                line = await output.readline()
            except ValueError:
                self._unfit(f"a line of more than {LINE_BYTES_MAX} bytes")
                return
            if not line.endswith(b"\n"):
                self._unfit(await self._how_it_ended(process, line))
                return
            try:
                self._take(msgspec.json.decode(line, type=Answer), line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                self._unfit(f"no answer: {error}: {_quoted(line)}")

    def _take(self, answer: Answer, line: bytes) -> None:
        waiting = self._answer
        if waiting is None or waiting.done() or answer.id != self._asked:
            self._unfit(f"an answer to what it was not asked: {_quoted(line)}")
        else:
            waiting.set_result(answer)

    def _unfit(self, why: str) -> Indefinite:
        """What is asked of it now may have been done, and it is asked nothing more."""
        self._why_unfit = self._why_unfit or why
        error = Indefinite(f"{BLAME}: {why}")
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        return error

    async def _how_it_ended(self, process: asyncio.subprocess.Process, rest: bytes) -> str:
        try:
            async with asyncio.timeout(EXIT_WITHIN_S):
                code = await process.wait()
                await self._tasks[1]  # its last words
        except TimeoutError:
            return "it closed its output"
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        said = " ".join(self._last_words.decode(errors="replace").split())[-ERROR_CHARS_MAX:]
        return (
            f"it ended with {how}"
            + (f": {said}" if said else "")
            + (f", in the middle of {_quoted(rest)}" if rest else "")
        )

    async def _listen(self, errors: asyncio.StreamReader) -> None:
        while chunk := await errors.read(CHUNK_BYTES):
            self._last_words = (self._last_words + chunk)[-LAST_WORDS_BYTES:]
            if len(chunk) > LAST_WORDS_BYTES:
                await asyncio.sleep(ERRORS_PAUSE_S)


def environment(at: tuple[str, int], workload: str, timeout_ms: int) -> dict[str, str]:
    """What tells a program whom it serves."""
    places = PLACES.get()
    node = next((name for name, place in places.items() if place == at), "")
    return {
        "SHALOTT_HOST": at[0],
        "SHALOTT_PORT": str(at[1]),
        "SHALOTT_NODE": node,
        "SHALOTT_NODES": ",".join(f"{n}={host}:{port}" for n, (host, port) in places.items()),
        "SHALOTT_WORKLOAD": workload,
        "SHALOTT_TIMEOUT_MS": str(timeout_ms),
    }


def _quoted(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return text if len(text) <= 80 else f"{text[:77]}..."
