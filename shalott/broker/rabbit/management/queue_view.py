"""A queue as the management API shows it: its row, and what its master says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from shalott.broker.base.errors import CallTimeout, ProcessError
from shalott.broker.rabbit.amqp.queue_protocol import Inspect, Stats
from shalott.broker.rabbit.management.backend import ManagementBackend
from shalott.broker.rabbit.metadata.policies import in_force
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored.messages import CountOperations, Operations
from shalott.broker.rabbit.processes.messages import Pid

STAT_TIMEOUT_MS = 1000


def queue_rows(backend: ManagementBackend) -> list[QueueRow]:
    """Every queue, by key: the live row, or the durable one of a queue that waits for its node."""
    rows = dict(backend.metadata.rows("durable_queue"))
    rows.update(backend.metadata.rows("queue"))
    return [row for _, row in sorted(rows.items()) if isinstance(row, QueueRow)]


def is_live(backend: ManagementBackend, row: QueueRow) -> bool:
    """Whether the row is the live one, and its master can be reached."""
    return (
        row.pid is not None
        and backend.metadata.read("queue", row.key) is not None
        and backend.runtime.is_alive(row.pid)
    )


def recorded_state(backend: ManagementBackend, row: QueueRow) -> str | None:
    """crashed or stopped, if the live row says so, whoever lives; down, if there is only the
    durable one; else None (rabbit_amqqueue:info, list_down).
    """
    if backend.metadata.read("queue", row.key) is None:
        return "down"
    return None if row.state == "live" else row.state


async def view_queues(backend: ManagementBackend, rows: Sequence[QueueRow]) -> list[dict[str, Any]]:
    """All at once: one slow master delays the answer, but does not stop it."""
    return list(await asyncio.gather(*(view_queue(backend, row) for row in rows)))


async def count_of(backend: ManagementBackend, pid: Pid) -> Operations | None:
    """What a queue process has done; None if it does not say."""
    try:
        answer = await backend.runtime.call(pid, CountOperations(), timeout_ms=STAT_TIMEOUT_MS)
    except ProcessError:
        return None
    return answer if isinstance(answer, Operations) else None


def view_operations(backend: ManagementBackend, pid: Pid, told: Operations) -> dict[str, Any]:
    """As RabbitMQ: no ``message_stats`` before anything was done, ``sync_messages`` of a master
    that synchronises. How many there are to send is our own."""
    shown: dict[str, Any] = {"message_bytes": told.message_bytes}
    now_ns = backend.env.clock.monotonic_ns()
    stats = backend.rates.message_stats(str(pid), told.counts, now_ns)
    if any(told.counts.values()):
        shown["message_stats"] = stats
    if told.sync_messages is not None:
        shown["sync_messages"] = told.sync_messages
        shown["sync_messages_total"] = told.sync_total
    return shown


async def view_queue(backend: ManagementBackend, row: QueueRow) -> dict[str, Any]:
    """Message counts are absent if the master can't be asked; ``state`` then says why."""
    shown: dict[str, Any] = {
        "name": row.name,
        "vhost": row.vhost,
        "type": "classic",
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "exclusive": row.exclusive_owner is not None,
        "arguments": row.arguments,
        "node": "" if row.pid is None else row.pid.node,
        "slave_nodes": [pid.node for pid in row.slave_pids],
        "synchronised_slave_nodes": [pid.node for pid in row.sync_slave_pids],
        "pid": None if row.pid is None else str(row.pid),
        "slave_pids": list(map(str, row.slave_pids)),
        "sync_slave_pids": list(map(str, row.sync_slave_pids)),
        "gm_pids": list(map(str, row.gm_pids)),
        "recoverable_slaves": list(row.recoverable_slaves),
        "policy": row.policy,
        "operator_policy": in_force(backend.metadata, row.vhost, row.name).operator_policy,
        "effective_policy_definition": row.definition,
    }
    if (state := recorded_state(backend, row)) is not None:
        return {**shown, "state": state}
    if row.pid is None or not is_live(backend, row):
        return {**shown, "state": "down"}
    try:
        answer, counted = await asyncio.gather(
            backend.runtime.call(row.pid, Inspect(), timeout_ms=STAT_TIMEOUT_MS),
            count_of(backend, row.pid),
        )
    except CallTimeout:
        return {**shown, "state": "unresponsive"}
    except ProcessError:
        return {**shown, "state": "down"}
    if not isinstance(answer, Stats):
        return {**shown, "state": "unresponsive"}
    return {
        **shown,
        "state": answer.state,
        "messages": answer.ready + answer.unacknowledged,
        "messages_ready": answer.ready,
        "messages_unacknowledged": answer.unacknowledged,
        "consumers": answer.consumers,
        **answer.detail,
        **({} if counted is None else view_operations(backend, row.pid, counted)),
    }
