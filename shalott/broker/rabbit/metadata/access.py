"""ReplicatedMetadata: what the rest of the broker uses (broker.rabbit.metadata.api.Metadata)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import MetadataUnavailable, ProcessError
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.messages import Commit, Committed, Conflicted
from shalott.broker.rabbit.metadata.records import Record
from shalott.broker.rabbit.metadata.serving import RETRY_MS, TableServer, server_name
from shalott.broker.rabbit.metadata.tables import Change, LocalTransaction, Tables
from shalott.broker.rabbit.processes.messages import Failed, Message, Pid
from shalott.broker.rabbit.processes.runtime import Runtime

T = TypeVar("T")

# A leader that said this may have done the write nevertheless.
DOUBTFUL = ("leader_lost", "not_running")


@dataclass(frozen=True, slots=True)
class Doubt(Generic[T]):
    """A commit whose outcome is unknown, and what the body had returned."""

    changes: tuple[Change, ...]
    result: T

    def is_over(self, tables: Tables) -> bool:
        """Whether what it was to change has been changed: by this commit, or another.

        Until then it may be tried again, since it is compare-and-set. Raises MetadataUnavailable if
        another's change is what is there now.
        """
        written = [change for change in self.changes if not change.check_only]
        if all(tables.row_version(c.table, c.key) == c.expected for c in written):
            return False
        if all(tables.read(c.table, c.key) == c.record for c in written):
            return True
        raise MetadataUnavailable("the leader was lost, and others have written since")

    def check(self, tables: Tables) -> tuple[Change, ...]:
        """What confirms that the rows are as they seem to be."""
        return tuple(
            Change(c.table, c.key, tables.row_version(c.table, c.key), check_only=True)
            for c in self.changes
            if not c.check_only
        )


class ReplicatedMetadata:
    """Reads this node's tables; writes through the leader."""

    def __init__(self, runtime: Runtime, server: TableServer) -> None:
        self._runtime = runtime
        self._server = server

    def read(self, table: str, key: str) -> Record | None:
        return self._server.tables.read(table, key)

    def version(self, table: str, key: str) -> int:
        return self._server.tables.row_version(table, key)

    def rows(self, table: str) -> list[tuple[str, Record]]:
        return self._server.tables.rows(table)

    def running_nodes(self) -> list[str]:
        return sorted(self._server.members)

    @property
    def needs_majority(self) -> bool:
        return self._server.needs_majority

    def is_in_majority(self) -> bool:
        return self._server.may_confirm()

    def is_settled(self, table: str, key: str) -> bool:
        return True  # what is here is committed; without a majority, the other side may win

    def subscribe(self, pid: Pid) -> None:
        """``pid`` gets TableChanged for every row that changes, and Membership."""
        self._server.subscribers.add(pid)

    def unsubscribe(self, pid: Pid) -> None:
        self._server.subscribers.remove(pid)

    async def transact(
        self,
        body: Callable[[Transaction], T],
        *,
        confirmed: bool = False,
        once: bool = False,
        timeout_ms: float = 30000,
    ) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        trouble = "not a running member"
        doubt: Doubt[T] | None = None
        while True:
            if self._server.phase == "running":
                if doubt is not None and doubt.is_over(self._server.tables):
                    changes, result = doubt.check(self._server.tables), doubt.result
                else:
                    transaction = LocalTransaction(self._server.tables)
                    result = body(transaction)
                    if not transaction.writes and not confirmed:
                        return result
                    changes = transaction.changes()
                answer = await self._commit(changes, deadline)
                if isinstance(answer, Committed):
                    return result
                is_doubtful = isinstance(answer, Failed) and answer.kind in DOUBTFUL
                if once and is_doubtful and any(not change.check_only for change in changes):
                    doubt = Doubt(changes, result)
                trouble = str(answer)
            if loop.time() >= deadline:
                raise MetadataUnavailable(f"no write in {timeout_ms:.0f} ms: {trouble}")
            await pause_ms(RETRY_MS)

    async def _commit(self, changes: tuple[Change, ...], deadline: float) -> Message:
        """The leader's answer. A lost answer is a Failed: the body runs again on fresh rows and
        sees what became of it, or ``Doubt`` does.
        """
        leader = self._server.leader_node
        if leader is None:
            return Failed("no_leader")
        request = Commit(self._server.me, changes)
        remaining_ms = max(1.0, (deadline - asyncio.get_running_loop().time()) * 1000)
        try:
            answer = await self._runtime.call(server_name(leader), request, timeout_ms=remaining_ms)
        except ProcessError as error:
            return Failed("leader_lost", str(error))
        if isinstance(answer, Conflicted | Committed):
            await self._catch_up(answer.version)
        if isinstance(answer, Failed) and answer.kind == "not_member":
            self._server.lost_membership()
        return answer

    async def _catch_up(self, version: int) -> None:
        """A conflict means that fresher rows are on their way here: wait for them, but not for a
        dead leader's.
        """
        try:
            async with asyncio.timeout(1):
                await self._server.await_version(version)
        except TimeoutError:
            pass
