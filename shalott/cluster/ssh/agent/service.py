"""A node that is a service of the host's own: a unit of systemd, or what commands start and stop.

The agent did not start it and does not end it for good. What is done to it is written down first
(state.py), so that it runs again in every case.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shalott.cluster.filling import empty, fill, is_full
from shalott.cluster.ssh.agent.agent_node import Node, NodeError
from shalott.cluster.ssh.agent.service_processes import STARTED_WITHIN_S, ServiceProcesses
from shalott.cluster.ssh.agent.state import (
    Request,
    State,
    has_stopped,
    signal_process,
    start_ticks,
    write_state,
)

GONE_WITHIN_S = 10.0
POLL_S = 0.01
WATCH_S = 0.2
REFILL_S = 0.1


class Service:
    """The requests for it. ``on_exit`` is called with the exit code, None if it can't be known, of
    each end that was not asked for."""

    def __init__(self, state: State, node: Node, on_exit: Callable[[int | None], None]) -> None:
        self._state = state
        self._node = node
        self._on_exit = on_exit
        self._processes = ServiceProcesses(state.service, node)
        self._unit = self._processes.unit
        self._first: tuple[int, int] | None = None  # the oldest process and its start ticks
        self._code: int | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    # -- requests

    async def do_adopt(self, request: Request) -> Mapping[str, object]:
        """Watch it from now on. Says how large its logs are, and what time it is."""
        self._node.adopt(request["data"])
        self._look_at(await self._processes.found())
        self._tasks["watch"] = asyncio.get_event_loop().create_task(self._watch())
        sizes = {path: _size(path) for path in request["logs"]}
        return {**await self.do_status(request), "sizes": sizes, "began_s": int(time.time())}

    async def do_start(self, request: Request) -> None:
        if not await self._processes.runs():
            if self._unit:  # it may have been started too often of late, by us
                await self._processes.shell(
                    f"systemctl reset-failed {shlex.quote(self._unit)}; true"
                )
            await self._processes.shell(self._state.service["start"])
            await self._await(
                self._processes.runs, STARTED_WITHIN_S, "it was started, and does not run"
            )
        self._look_at(await self._processes.found())
        self._set(is_down=False)

    async def do_stop(self, request: Request) -> None:
        self._begin_end()
        await self._resume()
        await self._processes.shell(self._state.service["stop"], request["timeout_s"])
        await self._await(self._processes.is_gone, GONE_WITHIN_S, "it was stopped, and still runs")

    async def do_kill(self, request: Request) -> None:
        """SIGKILL to all of it, then a stop, for its supervisor would start it again."""
        self._begin_end()
        deadline = asyncio.get_event_loop().time() + GONE_WITHIN_S
        pids = await self._processes.found()
        if not pids and await self._processes.runs():
            raise NodeError("its processes are not known, so it can't be killed: say pids")
        while pids:
            for pid in pids:
                signal_process(pid, signal.SIGKILL)
            if asyncio.get_event_loop().time() > deadline:
                raise NodeError("it did not end at SIGKILL")
            await asyncio.sleep(POLL_S)
            pids = [pid for pid in pids if start_ticks(pid) is not None]
        self._code = 128 + signal.SIGKILL
        self._set(paused=[])
        await self._processes.shell(f"{self._state.service['stop']} || true")
        await self._await(self._processes.is_gone, GONE_WITHIN_S, "it was killed, and runs again")

    async def do_pause(self, request: Request) -> None:
        pids = await self._processes.found()
        if not pids:
            raise NodeError("it does not run, or its processes are not known")
        deadline = asyncio.get_event_loop().time() + GONE_WITHIN_S
        while running := [pid for pid in pids if not has_stopped(pid)]:
            ticks = {pid: start_ticks(pid) for pid in pids}
            self._set(paused=[(pid, at) for pid, at in ticks.items() if at is not None])
            for pid in running:
                signal_process(pid, signal.SIGSTOP)
            if asyncio.get_event_loop().time() > deadline:
                raise NodeError("it did not stop at SIGSTOP")
            await asyncio.sleep(POLL_S)
            pids = await self._processes.found()

    async def do_resume(self, request: Request) -> None:
        await self._resume()

    async def do_status(self, request: Request) -> Mapping[str, object]:
        first = self._first  # to ask for all of them takes a command
        if (first is not None and start_ticks(first[0]) == first[1]) or (
            await self._processes.runs()
        ):
            state = "paused" if self._state.paused else "running"
            return {"state": state, "pid": self._first[0] if self._first else 1}
        return {"state": "exited", "exit_code": self._code}

    async def do_output(self, request: Request) -> str:
        lines = int(request["lines"])
        if self._unit:
            unit = shlex.quote(self._unit)
            return await self._processes.said(f"journalctl -q -o cat -n {lines} -u {unit} || true")
        logs = " ".join(map(shlex.quote, self._state.service.get("logs", "").splitlines()))
        return await self._processes.said(f"tail -q -n {lines} {logs} || true") if logs else ""

    async def do_command(self, request: Request) -> Mapping[str, object]:
        return await self._node.run_command(request["command"], request["timeout_s"])

    async def do_fill(self, request: Request) -> None:
        """Take all the room of a directory's file system, or give it back."""
        directory = request["directory"]
        task = self._tasks.pop(f"fill {directory}", None)
        if task is not None:
            task.cancel()
        if request["is_full"]:
            self._set(filled=[*{*self._state.filled, directory}])
            await asyncio.to_thread(fill, Path(directory))
            refilling = asyncio.get_event_loop().create_task(_keep_full(Path(directory)))
            self._tasks[f"fill {directory}"] = refilling
        else:
            empty(Path(directory))
            self._set(filled=[each for each in self._state.filled if each != directory])

    def do_is_full(self, request: Request) -> bool:
        return is_full(Path(request["directory"]))

    def _look_at(self, pids: Sequence[int]) -> None:
        self._first = (pids[0], start_ticks(pids[0]) or 0) if pids else None

    async def _resume(self) -> None:
        for pid, ticks in self._state.paused:
            if start_ticks(pid) == ticks:
                signal_process(pid, signal.SIGCONT)
        self._set(paused=[])

    def _begin_end(self) -> None:
        self._set(is_down=True)
        self._first = None

    def _set(self, **changes: object) -> None:
        """Written down before it is done, and after it is undone."""
        for name, value in changes.items():
            setattr(self._state, name, value)
        write_state(self._state)

    async def _watch(self) -> None:
        """Tell of ends that were not asked for, also where it is started again at once."""
        while True:
            await asyncio.sleep(WATCH_S)
            first = self._first
            if first is None and not self._state.is_down and not self._state.paused:
                self._look_at(await self._processes.found())
            if first is None or start_ticks(first[0]) == first[1] or self._first != first:
                continue
            self._first = None
            self._code = await self._processes.exit_code()
            self._on_exit(self._code)

    async def _await(self, holds: Callable[[], object], within_s: float, otherwise: str) -> None:
        deadline = asyncio.get_event_loop().time() + within_s
        while not await holds():  # type: ignore[misc]
            if asyncio.get_event_loop().time() > deadline:
                raise NodeError(otherwise)
            await asyncio.sleep(POLL_S)


async def _keep_full(directory: Path) -> None:
    while True:
        await asyncio.sleep(REFILL_S)
        if not is_full(directory):
            await asyncio.to_thread(fill, directory)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
