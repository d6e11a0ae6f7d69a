"""KB-RMQ-25: what RabbitMQ 3.8.9 did with the masters of a node that was taken out of service.

Before an orderly stop, maintenance mode moved each master to another node, drawn from all that ran,
whether it mirrored the queue or not. The destination was asked for a mirror without waiting for it
(rabbit_mirror_queue_misc:transfer_leadership, add_mirrors async), and the master and every other
mirror were dropped at once: each threw its contents away. With ha-mode exactly the new one was
often a node that held nothing yet, so nothing was left (rabbitmq-server#2749). Adding mirrors
synchronously mended it (#2751); then maintenance stopped moving masters at all (#2755), which is
what this broker does: without the switch none of this runs.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import policy, rows
from shalott.broker.rabbit.mirrored.bug_rules import operator_rules
from shalott.broker.rabbit.mirrored.messages import (
    SUPERVISOR,
    StartMirror,
    StopProcess,
    UpdateMirroring,
)
from shalott.broker.rabbit.processes.messages import Name, Pid
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.rabbit.queue_process.state import QueueContext

# -- orphaned exclusive queues ---------------------------------------------------------------------

# Exclusive queues that outlived their connection: it was on this node, and ended with it.
#
# A connection deletes its exclusive queues when it ends, and so does their master. After a crash of
# the node both are gone, and a durable queue is still in the tables and on disk. It must go before
# clients come, who would find its name locked (rabbit/rabbit_amqqueue_process.erl does this when it
# recovers an exclusive queue).


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


log = logging.getLogger("shalott.broker.mirrored")

# How long and how often the new master is looked for (wait_for_new_master).
NEW_MASTER_LOOKS = 100
NEW_MASTER_LOOK_MS = 100


async def hand_over(context: QueueContext, runtime: Runtime) -> None:
    """The operator takes the node out of service."""
    if not operator_rules(context.env.has_bug).maintenance_leaves_masters:
        await _transfer_masters(context, runtime)


async def _transfer_masters(context: QueueContext, runtime: Runtime) -> None:
    """Move every mirrored queue's master from this node to another, one after the other."""
    candidates = [node for node in context.metadata.running_nodes() if node != runtime.node]
    for key, row in context.metadata.rows(rows.QUEUE):
        assert isinstance(row, QueueRow)
        is_local = row.pid is not None and row.pid.node == runtime.node
        if is_local and candidates and policy.is_mirrored(row):
            destination = candidates[context.env.choose_index(len(candidates))]
            await _transfer(context, runtime, key, destination)


async def _transfer(context: QueueContext, runtime: Runtime, key: str, destination: str) -> None:
    log.info("queue '%s': its master moves to %s", key, destination)
    row = rows.read(context.metadata, key)
    if row is None or row.pid is None:
        return
    replicas = [row.pid, *row.slave_pids]
    adding: asyncio.Task[None] | None = None
    if all(pid.node != destination for pid in replicas):
        adding = asyncio.create_task(_add_mirror(runtime, key, destination))
        await asyncio.sleep(0)  # asked for, and no more than that
    for pid in replicas:
        is_only_one = pid == row.pid and not row.slave_pids
        if pid.node != destination and not is_only_one:  # cannot_drop_only_mirror
            runtime.send(pid, StopProcess("dropped"))
    await _await_master(context, runtime, key, destination)
    if adding is not None:
        adding.cancel()


async def _add_mirror(runtime: Runtime, key: str, node: str) -> None:
    try:
        await runtime.call(Name(node, SUPERVISOR), StartMirror(key), timeout_ms=None)
    except ProcessError as error:
        log.warning("queue '%s': no mirror on %s: %s", key, node, error)


async def _await_master(
    context: QueueContext, runtime: Runtime, key: str, destination: str
) -> None:
    for _ in range(NEW_MASTER_LOOKS):
        row = rows.read(context.metadata, key)
        if row is None:
            return
        if row.pid is not None and row.pid.node == destination:
            runtime.send(row.pid, UpdateMirroring())
            return
        await pause_ms(NEW_MASTER_LOOK_MS)
    log.warning("queue '%s': its master did not move to %s", key, destination)
