"""The parts of a node's Env for tests: clocks, event logs, and a disk that no code may use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from shalott.broker.base.disk import File
from shalott.cluster.sim.loop.loop import SimLoop


class LoopClock:
    """Virtual time, for both clocks: that of ``loop``, or of whichever simulation runs."""

    def __init__(self, loop: SimLoop | None = None) -> None:
        self._loop = loop

    def monotonic_ns(self) -> int:
        loop = self._loop or asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        return loop.now_ns

    wall_ns = monotonic_ns


class ManualClock:
    """Stands still unless told otherwise."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    wall_ns = monotonic_ns

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ns += duration_ms * 1_000_000


@dataclass(frozen=True)
class Event:
    """What a node wrote to its event log."""

    node: str
    group: str
    kind: str
    role: str
    epoch: int
    detail: dict[str, Any]


class Events:
    """A node's event log: entries go to a list that the nodes of a test may share."""

    def __init__(self, node: str, log: list[Event] | None = None) -> None:
        self.log = [] if log is None else log
        self._node = node

    def emit(
        self,
        group: str,
        kind: str,
        *,
        role: str = "",
        epoch: int = 0,
        detail: dict[str, Any] | None = None,
    ) -> None:
        self.log.append(Event(self._node, group, kind, role, epoch, detail or {}))


class NoEvents:
    """An event log that keeps nothing."""

    def emit(self, *args: Any, **more: Any) -> None:
        pass


class UnwantedEvents:
    """An event log for what must not write to it."""

    def emit(self, *args: Any, **more: Any) -> None:
        raise AssertionError(f"an event: {args} {more}")


class UnwantedDisk:
    """A disk for what keeps nothing: any use of it is a bug."""

    async def open(self, path: str, *, create: bool) -> File:
        raise AssertionError(path)

    async def rename(self, source: str, target: str) -> None:
        raise AssertionError(source)

    async def remove(self, path: str) -> None:
        raise AssertionError(path)

    async def sync_dir(self, path: str) -> None:
        raise AssertionError(path)

    async def listdir(self, path: str) -> list[str]:
        raise AssertionError(path)

    async def free_bytes(self) -> int:
        raise AssertionError
