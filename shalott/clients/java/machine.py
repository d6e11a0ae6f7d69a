"""JavaMachine: one JVM for all Java clients of a run, driven over pipes (bridge/Bridge.java).

It begins with the first client that wants it and ends with the last one. It ends by itself when its
standard input does, so none outlives the harness. If it dies its clients are
told, and the next one begins another. Its life is a row of the history: f = ``jvm``.

Times in rows are the harness's. Java's clock (``System.nanoTime``) is compared with ours when the
machine begins, so that what the bridge says of its own times can be placed: ``clock_offset_ns`` in
the row is Java's minus ours, as far off as ``clock_error_ns`` at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from shalott.clients.cpp.process import LibraryLine
from shalott.clients.cpp.tap import RemotingTap
from shalott.clients.java.build import JavaClient
from shalott.core.client import ClientRows
from shalott.core.errors import Unreachable
from shalott.core.op import Completion

log = logging.getLogger("shalott.clients")

START_TIMEOUT_S = 20.0  # 0.2 s on an idle machine
OWNER_PROPERTY = "shalott.owner"  # tells whose process this is
LINE_BYTES_MAX = 8 << 20  # a poll of 32 large messages
LAST_WORDS_BYTES = 2000
CLOCK_READINGS = 5
# Small: tens of clients with a few messages each.
OPTIONS = (
    *("-Xms32m", "-Xmx192m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-XX:MaxDirectMemorySize=128m", "-XX:+ExitOnOutOfMemoryError", "-Xshare:auto"),
)


class JavaMachine:
    """``client`` finds the library. ``properties``: of the JVM, which the library has for what its
    objects can't be told."""

    def __init__(
        self, client: Callable[[], JavaClient], properties: Mapping[str, str] | None = None
    ) -> None:
        self._client = client
        self._properties = dict(properties or {})
        self._listeners: dict[str, tuple[Callable[[LibraryLine], None], Callable[[str], None]]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._home = Path()
        self._reader: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[LibraryLine] | None = None
        self._clock: asyncio.Future[LibraryLine] | None = None
        self._lock = asyncio.Lock()
        self._row: tuple[ClientRows, int, dict[str, object]] | None = None
        self._serial = 0
        self._is_ready = False
        self._beginning: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    def new_name(self, what: str) -> str:
        """Of a client, unique in the run."""
        self._serial += 1
        return f"{what}-{self._serial}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def acquire(
        self,
        name: str,
        on_said: Callable[[LibraryLine], None],
        on_end: Callable[[str], None],
        rows: ClientRows | None,
    ) -> None:
        """For the client ``name``, which is told what is said of it and of the machine's end.
        Raises Unreachable: there is no machine. Who does not wait that long may be cancelled: the
        machine begins for others."""
        self._listeners[name] = (on_said, on_end)
        if self._beginning is None or self._beginning.done():
            self._beginning = asyncio.create_task(self._begin(rows), name="java clients' begin")
            self._beginning.add_done_callback(_look_at)
        await asyncio.shield(self._beginning)

    async def release(self, name: str) -> None:
        """The client is gone. The last one ends the machine, also if who waits for that is
        cancelled."""
        self._listeners.pop(name, None)
        if not self._listeners:
            self._ending = asyncio.create_task(self._end_if_unused(), name="java clients' end")
            await asyncio.shield(self._ending)

    async def _begin(self, rows: ClientRows | None) -> None:
        async with self._lock:
            if not self._is_ready:
                try:
                    await self._start(rows)
                except BaseException:
                    await self._stop("did not start")
                    raise

    async def _end_if_unused(self) -> None:
        async with self._lock:
            if not self._listeners:
                await self._stop("closed")

    def tell(self, name: str, do: str, what: Mapping[str, object]) -> None:
        """Raises Unreachable: the machine is gone."""
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            raise Unreachable("the JVM of the Java clients has ended")
        process.stdin.write(json.dumps({"do": do, "on": name, **what}).encode() + b"\n")

    # -- its life ----------------------------------------------------------------------------------

    async def _start(self, rows: ClientRows | None) -> None:
        client = self._client()
        self._home = Path(tempfile.mkdtemp(prefix="shalott-java-"))
        properties = {
            "user.home": str(self._home),
            OWNER_PROPERTY: str(os.getpid()),
            **self._properties,
        }
        defined = [f"-D{name}={value}" for name, value in properties.items()]
        with self._errors_file.open("wb") as errors:  # noqa: ASYNC230 - a file of ours
            process = await asyncio.create_subprocess_exec(
                *(client.java, *OPTIONS, *defined, "-cp", client.class_path, "Bridge"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=LINE_BYTES_MAX,
            )
        self._process = process
        if rows is not None:
            words: dict[str, object] = {"pid": process.pid}
            self._row = (rows, rows.begin("jvm", "", words), words)
        self._ready = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(process), name="java clients")
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                ready = await self._ready
                if "error" in ready:
                    raise Unreachable(f"the Java clients' JVM: {ready['error']}")
                offset_ns, error_ns = await self._compare_clocks()
        except TimeoutError as error:
            sentence = f"the JVM of the Java clients did not begin in {START_TIMEOUT_S:g} s"
            raise Unreachable(sentence) from error
        self._is_ready = True
        if self._row is not None:
            told = {"version": ready.get("version", ""), "clock_offset_ns": offset_ns}
            self._row[2].update(told | {"clock_error_ns": error_ns})

    async def _compare_clocks(self) -> tuple[int, int]:
        """Java's clock minus ours, by the quickest of a few answers, and how far off that is."""
        best: tuple[int, int] | None = None
        for number in range(CLOCK_READINGS):
            self._clock = asyncio.get_running_loop().create_future()
            asked_ns = time.monotonic_ns()
            self.tell("", "clock", {"id": number})
            said = await self._clock
            answered_ns = time.monotonic_ns()
            error_ns = (answered_ns - asked_ns) // 2
            if best is None or error_ns < best[1]:
                best = (int(said["at"]) - (asked_ns + answered_ns) // 2, error_ns)
        assert best is not None
        return best

    async def _stop(self, ended: str) -> None:
        """Kill it. Nothing is left behind."""
        process, self._process = self._process, None
        self._is_ready = False
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if self._reader is not None:
            await self._reader
        self._end_row(ended)
        shutil.rmtree(self._home, ignore_errors=True)

    def _end_row(self, ended: str) -> None:
        if self._row is not None:
            rows, row, words = self._row
            self._row = None
            rows.end(row, Completion(type="ok", extra=words | {"ended": ended}))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._hear(json.loads(line))
        code = await process.wait()
        if self._process is not process:  # it was stopped
            return
        self._process, self._is_ready = None, False
        words = f"the JVM of the Java clients ended ({code}){self._last_words()}"
        log.warning("%s", words)
        self._end_row(words)
        shutil.rmtree(self._home, ignore_errors=True)
        for waiting in (self._ready, self._clock):
            if waiting is not None and not waiting.done():
                waiting.set_result({"said": "failed", "error": words, "at": 0})
        for _, on_end in list(self._listeners.values()):
            on_end(words)

    def _hear(self, said: LibraryLine) -> None:
        waiting = {"ready": self._ready, "clock": self._clock}.get(said["said"])
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(said)
        elif (heard := self._listeners.get(said["on"])) is not None:
            heard[0](said)

    @property
    def _errors_file(self) -> Path:
        return self._home / "stderr.txt"

    def _last_words(self) -> str:
        try:
            said = self._errors_file.read_bytes()[-LAST_WORDS_BYTES:]
        except OSError:
            return ""
        words = " ".join(said.decode(errors="replace").split())
        return f": {words}" if words else ""


def _look_at(done: asyncio.Task[None]) -> None:
    """An error without a waiter is no error of the loop's."""
    if not done.cancelled():
        done.exception()


LEAVE_TIMEOUT_S = 10.0
EVENTS = ("delivered", "sent", "polled")


class JavaInstance:
    """One client of the library in the run's JVM, used as a C++ client's process is.

    It has a tap of its own (cpp/tap.py), so what it says to brokers is known to be its own, and it
    dies without a word: its connections are cut before its object is dropped. ``on_said`` gets what
    it says, in order; ``on_end``, why it ended if that was not asked for.
    """

    def __init__(
        self,
        machine: JavaMachine,
        what: str,
        tap: RemotingTap,
        on_said: Callable[[LibraryLine], None],
        on_end: Callable[[str], None],
        rows: ClientRows | None = None,
    ) -> None:
        self.name = machine.new_name(what)
        self._machine = machine
        self._tap = tap
        self._on_said = on_said
        self._on_end = on_end
        self._rows = rows
        self._answer: asyncio.Future[LibraryLine] | None = None  # to produce, join, leave
        self._is_held = False

    async def start(self) -> None:
        """Until there is a JVM. Raises Unreachable: nothing was asked of anybody."""
        self._is_held = True
        await self._machine.acquire(self.name, self._said, self._ended, self._rows)

    async def ask(self, do: str, what: Mapping[str, object], timeout_s: float) -> None:
        """Do what has one answer. Raises Unreachable if it failed or the JVM is gone."""
        self._answer = asyncio.get_running_loop().create_future()
        self.tell(do, what)
        try:
            async with asyncio.timeout(timeout_s):
                said = await self._answer
        except TimeoutError as error:
            sentence = f"the Java client did not {do} in {timeout_s:g} s"
            raise Unreachable(sentence) from error
        if "error" in said:
            raise Unreachable(f"the Java client: {said['error']}")

    def tell(self, do: str, what: Mapping[str, object]) -> None:
        """Do what has none, or answers with what is said later. Raises Unreachable."""
        self._machine.tell(self.name, do, what)

    async def leave(self) -> None:
        """Shut the library's object down, which says goodbye to brokers."""
        with contextlib.suppress(Unreachable):
            await self.ask("leave", {}, LEAVE_TIMEOUT_S)
        await self.kill()

    async def kill(self) -> None:
        """End it without a word. Does nothing the second time."""
        if not self._is_held:
            return
        self._is_held = False
        try:
            await self._tap.close()
        finally:
            with contextlib.suppress(Unreachable):
                self.tell("drop", {})
            await self._machine.release(self.name)

    def _said(self, said: LibraryLine) -> None:
        if said["said"] in EVENTS:
            self._on_said(said)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(said)

    def _ended(self, words: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result({"said": "failed", "error": words})
        self._on_end(words)
