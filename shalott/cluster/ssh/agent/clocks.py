"""The node's clock: a file that libfaketime reads, or the host's own wall clock.

A clock is so far ahead of the true time, and gaining; a drift is made of steps, TICK_S apart, here
and not by the harness. The true time is told from the clock that is never set: CLOCK_BOOTTIME, and
how far the wall clock was ahead of it before any fault. Where the host's own clock is set, that is
written down before (state.py), so all that undo can set the clock right: the agent, its keeper, or
a sweep.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.ssh.agent.agent_node import Node, NodeError
from shalott.cluster.ssh.agent.host_clock import HOST_CLOCK, HostClock
from shalott.cluster.ssh.agent.state import Request, State, read_states, write_state

FILE = "clock"  # in the configuration directory, as in cluster/faketime.py
WIDTH = 40  # of the file's text: it is overwritten in place, never shorter for a moment
TICK_S = 0.02
READ_WITHIN_S = 10.0


@dataclass(frozen=True)
class Setting:
    """So far ahead at ``since_ns`` of the monotonic clock, and gaining."""

    offset_ms: float
    drift_ppm: float
    since_ns: int

    def offset_at(self, now_ns: int) -> float:
        return self.offset_ms + self.drift_ppm * (now_ns - self.since_ns) / 1e12


class NodeClock:
    """One node's clock. ``host``: the host's, as tests replace it."""

    def __init__(self, state: State, node: Node, host: HostClock = HOST_CLOCK) -> None:
        self._state = state
        self._node = node
        self._host = host
        self._setting: Setting | None = None
        self._put: Callable[[float], None] = self._write_file
        self._next: asyncio.TimerHandle | None = None

    def set(self, request: Request) -> None:
        """``way``: "library" or "host"; zeros restore it. Raises NodeError, OSError."""
        self._stop()
        offset_ms, drift_ppm = request["offset_ms"], request["drift_ppm"]
        is_host = request["way"] == "host"
        if is_host and not offset_ms and not drift_ppm:
            restore(self._state, self._host)
            return
        if is_host:
            self._remember_true_time()
        self._put = self._set_host if is_host else self._write_file
        self._setting = Setting(offset_ms, drift_ppm, time.monotonic_ns())
        self._put(offset_ms)
        if drift_ppm:
            self._go_on()

    def close(self) -> None:
        """No step is made any more; the clock stays as it is."""
        self._stop()

    async def offset_ms(self, command: Sequence[str]) -> float:
        """How far ahead of the true time the node's wall clock is. ``command`` prints a monotonic
        time and the wall clock beside it, and is run with the environment of the node's process.
        Raises NodeError."""
        done = await self._node.run_beside(command, READ_WITHIN_S)
        try:
            monotonic_ns, wall_ns = map(int, done["output"].split())
        except ValueError as error:
            said = done["output"].strip()[-200:] or f"exit code {done['exit_code']}"
            raise NodeError(f"its clock can't be read by its python3: {said}") from error
        return (wall_ns - monotonic_ns - self._true_beside_monotonic_ns()) / 1e6

    def _true_beside_monotonic_ns(self) -> int:
        """The true time less the monotonic clock."""
        monotonic, boot, wall = self._host.read()
        if self._state.true_ns is None:
            return wall - monotonic
        return self._state.true_ns + boot - monotonic

    def _remember_true_time(self) -> None:
        if self._state.true_ns is not None:
            return
        if any(each.true_ns is not None for each in read_states()):
            raise NodeError("another run has set this host's clock already")
        _, boot, wall = self._host.read()
        self._state.true_ns = wall - boot
        write_state(self._state)  # first, so that it is known when all is undone

    def _set_host(self, offset_ms: float) -> None:
        assert self._state.true_ns is not None
        self._host.set(self._state.true_ns, round(offset_ms * 1e6))

    def _write_file(self, offset_ms: float) -> None:
        path = Path(self._state.directory) / "config" / FILE
        descriptor = os.open(str(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, file_text(offset_ms).encode())
        finally:
            os.close(descriptor)

    def _go_on(self) -> None:
        self._next = asyncio.get_event_loop().call_later(TICK_S, self._step)

    def _step(self) -> None:
        if self._setting is not None:
            self._put(self._setting.offset_at(time.monotonic_ns()))
            self._go_on()

    def _stop(self) -> None:
        self._setting = None
        if self._next is not None:
            self._next.cancel()
            self._next = None


def restore(state: State, host: HostClock = HOST_CLOCK) -> None:
    """The host's clock is right again, if it was set at all."""
    if state.true_ns is not None:
        host.set(state.true_ns, 0)
        state.true_ns = None
        write_state(state)


def file_text(offset_ms: float) -> str:
    """What libfaketime reads: seconds to add."""
    return f"{offset_ms / 1000:+.6f}".ljust(WIDTH - 1) + "\n"
