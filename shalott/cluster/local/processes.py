"""NodeProcess: one node's operating-system process, in a session and process group of its own.

Its output is appended to a file over all its lives. Signals go to the whole group, so what a node
started dies, stops and goes on with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.nodes import CommandResult, NodeStatus
from shalott.cluster.owner import process_state, start_ticks
from shalott.cluster.precedence import children_first
from shalott.cluster.waiting import wait_until
from shalott.core.errors import HarnessError

LAUNCHER = Path(__file__).with_name("launch.py")
STOPPED_WITHIN_S = 5
POLL_S = 0.001
TIMED_OUT = 124  # what coreutils' timeout exits with


@dataclass(frozen=True, slots=True)
class Program:
    """What to run for a node."""

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    output: Path


class NodeProcess:
    """A running or ended process. ``paused`` is by SIGSTOP."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.start_ticks = start_ticks(process.pid) or 0
        self.paused = False
        self.end_asked = False  # by the harness

    async def wait(self) -> NodeStatus:
        """Its status when it has ended."""
        await self._process.wait()
        return self.status()

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    def status(self) -> NodeStatus:
        code = self._process.returncode
        if code is None:
            return NodeStatus(state="paused" if self.paused else "running", pid=self.pid)
        # A signal's number as shells and containers show it.
        return NodeStatus(state="exited", exit_code=code if code >= 0 else 128 - code)

    def signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                pass  # it ended a moment ago

    async def kill(self) -> None:
        self.end_asked = self.end_asked or self.is_alive
        self.signal(signal.SIGKILL)
        await self._process.wait()

    async def stop(self, timeout_ms: int) -> None:
        self.end_asked = self.end_asked or self.is_alive
        self.signal(signal.SIGTERM)
        if self.paused:
            self.resume()  # or it could not end
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def pause(self) -> None:
        """Returns when the kernel has stopped it."""
        self.signal(signal.SIGSTOP)

        def has_stopped() -> bool:
            return not self.is_alive or process_state(self.pid) in ("T", "t")

        if not await wait_until(has_stopped, STOPPED_WITHIN_S, POLL_S):
            raise HarnessError(f"process {self.pid} did not stop at SIGSTOP")
        self.paused = True

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self.paused = False


async def launch(program: Program) -> NodeProcess:
    """Start a node's program. Raises HarnessError if it can't be run at all."""
    launcher = (sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()))
    try:
        with program.output.open("ab") as output, children_first():
            process = await asyncio.create_subprocess_exec(
                *launcher,
                *program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                cwd=program.directory,
                env=dict(program.environment),
                start_new_session=True,
            )
    except OSError as error:
        raise HarnessError(f"cannot run {program.command[0]}: {error.strerror}") from error
    return NodeProcess(process)


async def run_to_end(program: Program, timeout_ms: int) -> CommandResult:
    """Run an administration program beside a node, with what it prints kept apart from the
    node's."""
    process = await asyncio.create_subprocess_exec(
        *program.command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=program.directory,
        env=dict(program.environment),
        start_new_session=True,
    )
    communicating = asyncio.ensure_future(process.communicate())
    done, _ = await asyncio.wait([communicating], timeout=timeout_ms / 1000)
    if not done:
        os.killpg(process.pid, signal.SIGKILL)  # with its children: they hold its output open
    output, _ = await communicating
    code = process.returncode if done else TIMED_OUT
    assert code is not None
    return CommandResult(code, output.decode(errors="replace"))
