"""QueuesService: the queues as channels see them (broker.rabbit.amqp.queues.Queues)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import MetadataUnavailable, ProcessError
from shalott.broker.rabbit.amqp.queue_protocol import Count, Delete
from shalott.broker.rabbit.metadata.api import Metadata, Transaction
from shalott.broker.rabbit.metadata.policies import in_force
from shalott.broker.rabbit.metadata.records import QueueRow, queue_key
from shalott.broker.rabbit.mirrored import policy, rows
from shalott.broker.rabbit.mirrored.bug_rules import operator_rules
from shalott.broker.rabbit.mirrored.messages import SUPERVISOR, Declared, DeclareQueue
from shalott.broker.rabbit.processes.messages import Failed, Name, Pid
from shalott.broker.rabbit.processes.runtime import Runtime

DECLARE_TIMEOUT_MS = 30_000
RETRY_MS = 25
NOT_BEGUN = ("stopping", "ending")  # a supervisor that said this has not tried to declare it


class QueuesService:
    def __init__(self, env: Env, runtime: Runtime, metadata: Metadata) -> None:
        self._env = env
        self._runtime = runtime
        self._metadata = metadata
        self._rules = operator_rules(env.has_bug)

    def lookup(self, vhost: str, name: str) -> QueueRow | None:
        """The live row as this node sees it."""
        return rows.read(self._metadata, queue_key(vhost, name))

    def is_available(self, row: QueueRow) -> bool:
        """Whether the master's process can be reached now."""
        return row.pid is not None and self._runtime.is_alive(row.pid)

    async def declare(
        self,
        *,
        vhost: str,
        name: str,
        durable: bool,
        auto_delete: bool,
        exclusive_owner: Pid | None,
        arguments: Mapping[str, object],
    ) -> QueueRow:
        """Create the queue, on this node unless a locator says otherwise, or return the row that
        exists.

        Raises MetadataUnavailable.
        """
        wanted = QueueRow(
            vhost=vhost,
            name=name,
            durable=durable,
            auto_delete=auto_delete,
            exclusive_owner=exclusive_owner,
            arguments=dict(arguments),
        )
        last = ""
        for _ in range(DECLARE_TIMEOUT_MS // RETRY_MS):
            existing = self.lookup(vhost, name)
            if existing is not None:
                if (confirmed := await self._confirm(existing)) is not None:
                    return confirmed
                continue  # this node's tables have caught up
            node = self._locate(wanted)
            try:
                answer = await self._runtime.call(
                    Name(node, SUPERVISOR), DeclareQueue(wanted), timeout_ms=DECLARE_TIMEOUT_MS
                )
            except ProcessError as error:
                raise MetadataUnavailable(f"queue '{name}' can't be declared: {error}") from error
            if isinstance(answer, Declared):
                if answer.created:
                    return answer.row
                if (confirmed := await self._confirm(answer.row)) is not None:
                    return confirmed
            last = answer.text or answer.kind if isinstance(answer, Failed) else str(answer)
            if isinstance(answer, Failed) and answer.kind not in NOT_BEGUN:
                break  # it may have been declared, and deleted since: not to be declared twice
            await pause_ms(RETRY_MS)
        raise MetadataUnavailable(f"queue '{name}' can't be declared: {last}")

    async def _confirm(self, existing: QueueRow) -> QueueRow | None:
        """The row as the tables' majority has it, None if it is gone: others may have deleted it,
        and what has no majority may still be undone. Where none is needed none is asked.
        """
        if not self._metadata.needs_majority:
            return existing
        return await self._metadata.transact(
            lambda tx: rows.read_any(tx, existing.key), confirmed=True
        )

    def _locate(self, wanted: QueueRow) -> str:
        """Where the master shall be: the argument, else the policy, else here."""
        if wanted.exclusive_owner is not None:
            return self._runtime.node
        found = in_force(self._metadata, wanted.vhost, wanted.name)
        row = msgspec.structs.replace(wanted, definition=found.effective)
        nodes = self._metadata.running_nodes()
        candidates = [n for n in nodes if n in self._runtime.nodes() or n == self._runtime.node]
        match policy.setting(row, "queue-master-locator"):
            case "random":
                return candidates[self._env.choose_index(len(candidates))]
            case "min-masters":
                return min(candidates, key=lambda node: (self._masters_on(node), node))
        return self._runtime.node

    def _masters_on(self, node: str) -> int:
        live = self._metadata.rows(rows.QUEUE)
        return sum(
            1
            for _, row in live
            if isinstance(row, QueueRow) and row.pid is not None and row.pid.node == node
        )

    async def remove(self, row: QueueRow) -> int:
        """Delete the rows, the bindings and every process of the queue; returns how many messages
        it held.

        Raises MetadataUnavailable: it may be deleted or not.
        """
        current = self.lookup(row.vhost, row.name)
        asked: QueueRow | None = None  # of whose master it is unknown whether it has done it
        if current is not None and current.pid is not None and self.is_available(current):
            request = Delete(if_unused=False, if_empty=False)
            try:
                answer = await self._runtime.call(current.pid, request, timeout_ms=None)
            except ProcessError as error:
                answer, asked = Failed("noproc", str(error)), current
            if isinstance(answer, Count):
                return answer.count
        if not self._rules.deletes_without_master:
            await self._await_master(row)
            return await self.remove(row)
        # The master couldn't do it (rmq#1501): its processes end when they see the row gone.
        await self._metadata.transact(
            lambda tx: _delete(tx, row.key, asked), confirmed=True, once=True
        )
        return 0

    async def _await_master(self, row: QueueRow) -> None:
        """KB-RMQ-21: before 3.7.5 only a master could delete its queue, and a request hung until
        there was one. Ours gives up after a while, as the original's clients did.
        """
        for _ in range(DECLARE_TIMEOUT_MS // RETRY_MS):
            current = self.lookup(row.vhost, row.name)
            if current is not None and self.is_available(current):
                return
            await pause_ms(RETRY_MS)
        raise MetadataUnavailable(f"queue '{row.name}' can't be deleted: it has no master")


def _delete(tx: Transaction, key: str, asked: QueueRow | None) -> None:
    """``asked``: its master may have deleted it already, and a queue that others have declared
    since is not the one that was meant.
    """
    found = rows.read_any(tx, key)
    if found is None:
        return
    if asked is not None and found.pid not in (asked.pid, *asked.slave_pids):
        raise MetadataUnavailable(f"queue '{found.name}' has another master than was asked")
    rows.delete(tx, found)
    rows.forget_group(tx, key)
