"""Monitors: the processes that a queue process watches: its users (channels and owners), and its
peers (other processes of the queue).

Each is watched once, however often that is asked for, and apart in either part.
"""

from __future__ import annotations

from typing import Literal, Protocol

from shalott.broker.rabbit.processes.messages import Down, Pid
from shalott.broker.rabbit.processes.runtime import Runtime

Part = Literal["peer", "user"]


class Watcher(Protocol):
    """Who gets the Downs."""

    @property
    def pid(self) -> Pid: ...

    @property
    def runtime(self) -> Runtime: ...


class Monitors:
    """Of one process."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._users: dict[Pid, int] = {}  # -> the monitor's reference
        self._peers: dict[Pid, int] = {}

    @property
    def users(self) -> list[Pid]:
        return list(self._users)

    def add_user(self, pid: Pid) -> None:
        if pid not in self._users:
            self._users[pid] = self._watcher.runtime.monitor(pid, self._watcher.pid)

    def drop_user(self, pid: Pid) -> None:
        ref = self._users.pop(pid, None)
        if ref is not None:
            self._watcher.runtime.demonitor(ref)

    def add_peer(self, pid: Pid) -> None:
        if pid not in self._peers:
            self._peers[pid] = self._watcher.runtime.monitor(pid, self._watcher.pid)

    def take(self, down: Down) -> Part | None:
        """What the process that ended was watched as; None if it is watched no more."""
        if self._peers.get(down.pid) == down.ref:
            del self._peers[down.pid]
            return "peer"
        if self._users.get(down.pid) == down.ref:
            del self._users[down.pid]
            return "user"
        return None
