"""TableServer: what a node's metadata server is to the rest of the node, and what its two kinds
have in common.

server.py replicates tables as Mnesia does: every side of a partition writes on. raft_server.py
needs a majority of the listed nodes. A node's partition mode decides which it has (opening.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from shalott.broker.rabbit.metadata.messages import SERVER, Member, Phase
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.messages import Message, Name, Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Runtime

RETRY_MS = 50
COMMIT_LATE_MS = 200  # in simulation, now and then


class TableServer(Protocol):
    """The node calls ``boot`` and ``leave``; the rest is messages, and looks."""

    needs_majority: bool  # for a write: of the listed nodes
    is_forced: bool  # boot, even if others may have fresher tables (force_boot)
    pid: Pid
    subscribers: Subscribers  # local processes that get TableChanged and Membership
    on_status: Callable[[], None]  # a node's status changed
    on_lost: Callable[[str], None]  # this node is no member any more: it must boot anew
    on_failed: Callable[[str], None]  # its disk failed for good: the node must give itself up
    on_refused: Callable[[str], None]  # the cluster has forgotten this node: it can't start

    @property
    def members(self) -> Mapping[str, Member]:
        """Who shares these tables with this node, as it sees it."""
        ...

    @property
    def phase(self) -> Phase: ...

    @property
    def tables(self) -> Tables: ...

    @property
    def me(self) -> Member: ...

    @property
    def leader_node(self) -> str | None:
        """The node that takes writes."""
        ...

    async def boot(self) -> None:
        """Become a running member; returns when this node is one."""
        ...

    def leave(self) -> None:
        """Stop sharing tables: the other members see this node as down."""
        ...

    async def close(self) -> None:
        """The node ends."""
        ...

    def lost_membership(self) -> None:
        """The leader says that this node is no member."""
        ...

    def may_confirm(self) -> bool:
        """Whether this node is in the group that may write, if there is only one such group."""
        ...

    async def await_version(self, version: int) -> None:
        """Return once this node's tables are at least at ``version``."""
        ...

    def belonging(self) -> tuple[str, ...]:
        """The configured nodes that were not forgotten (membership.py), whether they run or not."""
        ...

    def running_peers(self) -> list[str]:
        """Linked nodes whose broker runs."""
        ...

    def known_partitions(self) -> Mapping[str, Sequence[str]]:
        """This node and its linked peers, each with the nodes that it says it ran apart from."""
        ...


class MemberServer(TableServer, Protocol):
    """A server whose tables need no majority, as its parts see it."""

    tables: Tables
    changed: asyncio.Event  # the version of the tables
    runtime: Runtime

    def deliver(self, item: Message) -> None: ...

    def after(self, delay_ms: float, message: Message) -> asyncio.TimerHandle: ...

    async def written(self, version: int, rows: Sequence[StoredRow]) -> None: ...


def server_name(node: str) -> Name:
    return Name(node, SERVER)


class Subscribers:
    """Local processes that hear of changes, in the order in which they came."""

    def __init__(self) -> None:
        self._pids: list[Pid] = []

    def add(self, pid: Pid) -> None:
        self._pids.append(pid)

    def remove(self, pid: Pid) -> None:
        if pid in self._pids:
            self._pids.remove(pid)

    def tell(self, server: Process | MemberServer, message: Message) -> None:
        for pid in self._pids:
            server.runtime.send(pid, message)
