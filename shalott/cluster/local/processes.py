"""The processes of local nodes, each in a session and process group of its own.

Its output is appended to a file over all its lives. Signals go to the whole group, so what a node
started dies, stops and goes on with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence

from shalott.cluster.capabilities import Can
from shalott.cluster.disks.node_disks import MountedDisks
from shalott.cluster.local.links import LocalLinks
from shalott.cluster.local.nodes import LAUNCHER, LocalNodes, Program
from shalott.cluster.local.sweep import StartedProcess
from shalott.cluster.nodes import CommandResult, Link, NodeExit, NodeStatus
from shalott.cluster.owner import process_state, start_ticks
from shalott.cluster.precedence import children_first
from shalott.cluster.waiting import wait_until
from shalott.core.errors import HarnessError

STOPPED_WITHIN_S = 5
POLL_S = 0.001
TIMED_OUT = 124  # what coreutils' timeout exits with


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


class LocalProcesses:
    """See ``Processes``. ``on_start``: called when a process was started."""

    def __init__(
        self,
        run: LocalNodes,
        links: LocalLinks,
        disks: MountedDisks,
        *,
        capabilities: Can,
        on_exit: Callable[[NodeExit], None],
    ) -> None:
        self.capabilities = capabilities
        self.on_start: Callable[[], None] = lambda: None
        self._run = run
        self._links = links
        links.are_alive = self._are_alive
        self._disks = disks
        self._on_exit = on_exit
        self._processes: dict[str, NodeProcess] = {}
        self._watching: dict[asyncio.Task[None], None] = {}  # one for each process that runs

    async def start(self, node: str) -> None:
        running = self._processes.get(node)
        if running is not None and running.is_alive:
            return
        await self._links.set_power(node, is_on=True)
        process = await launch(self._run.program(node, self._run.spec(node).command))
        self._processes[node] = process
        self.on_start()
        watch = asyncio.create_task(self._watch(node, process))
        self._watching[watch] = None
        watch.add_done_callback(self._watching.pop)

    async def _watch(self, node: str, process: NodeProcess) -> None:
        status = await process.wait()
        if not process.end_asked:
            self._on_exit(NodeExit(node=node, exit_code=status.exit_code))

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        await self._process(node).stop(timeout_ms)

    async def kill(self, node: str) -> None:
        await self._process(node).kill()

    async def power_off(self, node: str) -> None:
        self._disks.check("power")
        await self._links.set_power(node, is_on=False)
        await self._process(node).kill()
        await self._disks.power(node)

    async def pause(self, node: str) -> None:
        await self._process(node).pause()

    async def resume(self, node: str) -> None:
        self._process(node).resume()

    async def status(self, node: str) -> NodeStatus:
        process = self._processes.get(node)
        return NodeStatus(state="absent") if process is None else process.status()

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        return await run_to_end(self._run.program(node, command), timeout_ms)

    def started(self) -> tuple[StartedProcess, ...]:
        """Those that run."""
        return tuple(
            StartedProcess(node, process.pid, process.start_ticks)
            for node, process in self._processes.items()
            if process.is_alive
        )

    def _are_alive(self, link: Link) -> bool:
        return all(self._process(node).is_alive for node in link)

    def _process(self, node: str) -> NodeProcess:
        if node not in self._processes:
            raise HarnessError(f"{node} was never started")
        return self._processes[node]

    async def heal(self) -> None:
        for process in self._processes.values():
            if process.paused:
                process.resume()

    async def forget(self) -> None:
        """All have ended: wait until that was told."""
        await asyncio.gather(*self._watching)
        self._links.forget_power()

    async def close(self) -> None:
        await asyncio.gather(*(process.kill() for process in self._processes.values()))
        await asyncio.gather(*self._watching)
        self._processes.clear()
