"""CppProcess: RocketMQ's C++ client as a child, driven over pipes (program.py says in what words).

``on_said`` is called with what it says, in order, and ``on_end`` with why it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shalott.core.errors import Unreachable, UsageError

LibraryLine = Mapping[str, Any]  # what a library's process says: program.py has the fields
PROGRAM = Path(__file__).with_name("program.py")
START_TIMEOUT_S = 20.0  # 0.2 s on an idle machine
LEAVE_TIMEOUT_S = 10.0
LAST_WORDS_BYTES = 2000
LINE_BYTES_MAX = 1 << 20


def require_library() -> None:
    """Raises UsageError where the C++ client can't be had."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UsageError(
            "--client cpp needs RocketMQ's C++ client, whose library is for x86-64 Linux only"
        )
    if importlib.util.find_spec("rocketmq") is None:
        raise UsageError("--client cpp needs the package rocketmq: pip install shalott[clients]")


class CppProcess:
    """One producer or one member. ``leave`` ends it in order, ``kill`` without a word."""

    def __init__(
        self, body_bytes: int, on_said: Callable[[LibraryLine], None], on_end: Callable[[str], None]
    ) -> None:
        self._body_bytes = body_bytes
        self._on_said = on_said
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._home = Path()
        self._reader: asyncio.Task[None] | None = None
        self._answer: asyncio.Future[LibraryLine] | None = None  # to join, produce, leave

    async def start(self) -> None:
        """Until the library is loaded. Raises Unreachable: nothing was asked of anybody."""
        self._home = Path(tempfile.mkdtemp(prefix="shalott-cpp-"))
        with self._errors_file.open("wb") as errors:  # noqa: ASYNC230 - a file of ours
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", str(PROGRAM), str(self._body_bytes)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "HOME": str(self._home)},  # the library logs there
                limit=LINE_BYTES_MAX,
            )
        self._answer = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(self._process), name="cpp client")
        await self._answered(START_TIMEOUT_S)

    async def ask(self, do: str, what: Mapping[str, object], timeout_s: float) -> None:
        """Do what has one answer. Raises Unreachable if it failed or the process is gone."""
        self._answer = asyncio.get_running_loop().create_future()
        self.tell(do, what)
        await self._answered(timeout_s)

    def tell(self, do: str, what: Mapping[str, object]) -> None:
        """Do what has none, or answers with what is said later."""
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            raise Unreachable("the C++ client's process has ended")
        process.stdin.write(json.dumps({"do": do, **what}).encode() + b"\n")

    async def leave(self) -> None:
        """Shut the library down, which says goodbye to brokers, and end the process."""
        with contextlib.suppress(Unreachable):
            await self.ask("leave", {}, LEAVE_TIMEOUT_S)
        await self.kill()

    async def kill(self) -> None:
        """End it without a word. Nothing is left behind."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if self._reader is not None:
            await self._reader
        shutil.rmtree(self._home, ignore_errors=True)

    async def _answered(self, timeout_s: float) -> None:
        assert self._answer is not None
        try:
            async with asyncio.timeout(timeout_s):
                said = await self._answer
        except TimeoutError as error:
            raise Unreachable(f"the C++ client did not answer in {timeout_s:g} s") from error
        if "error" in said:
            raise Unreachable(f"the C++ client: {said['error']}")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            said = json.loads(line)
            if said["said"] in ("delivered", "sent"):
                self._on_said(said)
            else:
                self._settle(said)
        ended = f"the C++ client's process ended ({await process.wait()}){self._last_words()}"
        self._settle({"said": "failed", "error": ended})
        self._on_end(ended)

    def _settle(self, said: LibraryLine) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(said)

    @property
    def _errors_file(self) -> Path:
        return self._home / "stderr.txt"

    def _last_words(self) -> str:
        try:
            said = self._errors_file.read_bytes()[-LAST_WORDS_BYTES:]
            words = said.decode(errors="replace").split()
        except OSError:
            return ""
        return f": {' '.join(words)}" if words else ""
