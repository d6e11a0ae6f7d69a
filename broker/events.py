"""The node's event log: who became master, what was promoted, synchronised or truncated, and when.

One JSON object a line in ``events.jsonl``. The harness reads it after a run to judge mastership, so the words
here are a contract: see docs/architecture.md.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One line. ``at_ns`` is the node's own monotonic clock, ``wall_ns`` its wall clock."""

    at_ns: int
    wall_ns: int
    node: str
    incarnation: int
    group: str  # queue name, or "" for the node itself
    kind: str  # role, epoch, promoted, demoted, sync_started, sync_done, set_changed, acked, partition, paused, ...
    role: str = ""  # master, mirror, none; for group "": running, paused, stopped
    epoch: int = 0  # version of the metadata row that gave the role
    detail: dict[str, Any] = {}


class EventLog(Protocol):
    """Where a node says what happened to its roles."""

    def emit(
        self, group: str, kind: str, *, role: str = "", epoch: int = 0, detail: dict[str, Any] | None = None
    ) -> None:
        """Record an event now. Never blocks; written in order, flushed at once."""
        ...
