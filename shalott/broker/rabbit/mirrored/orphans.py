"""Exclusive queues that outlived their connection: it was on this node, and ended with it.

A connection deletes its exclusive queues when it ends, and so does their master. After a crash of
the node both are gone, and a durable queue is still in the tables and on disk. It must go before
clients come, who would find its name locked (rabbit/rabbit_amqqueue_process.erl does this when it
recovers an exclusive queue).
"""

from __future__ import annotations

import logging
from functools import partial

from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import rows
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.rabbit.queue_process.context import QueueContext

log = logging.getLogger("shalott.broker.mirrored")


async def drop_orphans(context: QueueContext, runtime: Runtime) -> None:
    """Delete the exclusive queues of this node's former connections. Raises MetadataUnavailable."""
    for key, owner in _orphans(context, runtime).items():
        log.info("queue '%s' is deleted: its connection %s is gone", key, owner)
        await context.metadata.transact(partial(rows.forget_orphan, key=key, owner=owner))
        await context.storage.wipe(key)


def _orphans(context: QueueContext, runtime: Runtime) -> dict[str, Pid]:
    tables = (context.metadata.rows(rows.DURABLE), context.metadata.rows(rows.QUEUE))
    owners = {
        key: row.exclusive_owner
        for table in tables
        for key, row in table
        if isinstance(row, QueueRow) and row.exclusive_owner is not None
    }
    return {
        key: owner
        for key, owner in owners.items()
        if owner.node == runtime.node and not runtime.is_alive(owner)
    }
