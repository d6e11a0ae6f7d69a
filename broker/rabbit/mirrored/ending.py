"""How a queue process ends: its queue is deleted, its node stops, its mirror was dropped, its ring
broke, it crashed.

The reason matters to others. "normal" means that the queue is deleted: channels take their
publishes for settled, and the ring buries nobody. Everything else is a loss of this process only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import StorageError
from shalott.broker.rabbit.amqp.queue_protocol import Count, Delete
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import gm, policy, rows
from shalott.broker.rabbit.mirrored import instructions as ins
from shalott.broker.rabbit.mirrored.master import Master
from shalott.broker.rabbit.mirrored.messages import Declared, StopProcess, StopTimeout
from shalott.broker.rabbit.mirrored.mirror import Mirror
from shalott.broker.rabbit.mirrored.modes import RecoverStart
from shalott.broker.rabbit.processes.messages import Failed, Message, Pid
from shalott.broker.rabbit.processes.process import Caller

if TYPE_CHECKING:
    from shalott.broker.rabbit.mirrored.process import QueueProcess

log = logging.getLogger("shalott.broker.mirrored")

# How long a deleted queue's ring may take to settle before a process ends regardless.
DELETE_DRAIN_MS = 3_000
CLOSE_LATE_MS = 60_000

Tell = Callable[[], object]  # answers who asked for it


@dataclass(slots=True)
class Stopping:
    """A master that waits for its mirrors to end before it does."""

    reason: str
    waiting: dict[Pid, None]


# -- deletion --------------------------------------------------------------------------------------


async def delete(process: QueueProcess, request: Delete, caller: Caller) -> Message | None:
    master = process.role
    assert isinstance(master, Master)
    if request.if_unused and len(master.consumers):
        return Failed("in_use")
    if request.if_empty and master.queue.ready:
        return Failed("not_empty")
    count = master.queue.ready
    await _delete(process, master, lambda: caller.reply(Count(count)))
    return None


async def delete_unused(process: QueueProcess, tell: Tell | None = None) -> None:
    """Auto-delete, x-expires, or the owner of an exclusive queue is gone."""
    assert isinstance(process.role, Master)
    await _delete(process, process.role, tell)


async def _delete(process: QueueProcess, master: Master, tell: Tell | None) -> None:
    """``tell``, who asked, when the rows are gone: the name is free when it hears of it."""
    process.is_deleting = True
    master.flush()
    # Confirmed: it may be gone here only as far as this node knows.
    await process.transact(
        lambda tx: rows.delete_owned(tx, process.key, process.pid), confirmed=True
    )
    if await process.guard_master():
        return
    master.cancel_consumers()
    if tell is not None:
        tell()
    process.emit("deleted")
    if process.gm is None:
        await _end_deleted(process)
    else:
        process.broadcast(ins.DeleteAndTerminate())
        _drain(process)


async def end_as_deleted(process: QueueProcess, row: QueueRow) -> None:
    """KB-RMQ-11: terminate(normal) deletes the record, which is another master's by now, and
    tells the ring that the queue is deleted.
    """
    process.is_deleting = True
    await process.transact(lambda tx: rows.delete(tx, row))
    process.emit("deleted")
    if process.gm is None:
        await _end_deleted(process)
    process.broadcast(ins.DeleteAndTerminate())
    _drain(process)


async def ring_deleted(process: QueueProcess) -> None:
    """A mirror hears that the queue is deleted."""
    process.is_deleting = True
    _drain(process)


def _drain(process: QueueProcess) -> None:
    assert process.gm is not None
    process.gm.idle()
    process.gm.feed(gm.Stop("normal"))
    process.after(DELETE_DRAIN_MS, StopTimeout())


async def out_of_place(process: QueueProcess) -> None:
    """The row is gone, or this process is not in it."""
    if process.row() is None and process.metadata.read(rows.DURABLE, process.key) is None:
        await _end_deleted(process)
    process.emit("demoted", reason="it has lost its place")
    process.exit("shutdown")


async def _end_deleted(process: QueueProcess) -> None:
    if isinstance(process.role, Master) and process.gm is not None:
        await process.transact(lambda tx: rows.forget_group(tx, process.key))
    await process.context.storage.wipe(process.key)
    process.exit("normal")


async def ring_stopped(process: QueueProcess, reason: str) -> None:
    if process.is_deleting:
        await _end_deleted(process)
    if reason == "shutdown" and process.role is not None:
        await out_of_place(process)
    process.exit(reason)


# -- orderly stops ---------------------------------------------------------------------------------


async def stop(process: QueueProcess, reason: str) -> None:
    """The node stops ("shutdown"), the mirror isn't wanted ("dropped"), or something failed."""
    if process.stopping_mirrors is not None or process.is_deleting:
        return
    row, master = process.row(), process.role
    if isinstance(master, Master) and reason == "shutdown" and row is not None:
        alive = [pid for pid in row.slave_pids if process.runtime.is_alive(pid)]
        synced = [pid for pid in alive if pid in row.sync_slave_pids]
        if alive and not synced and not policy.promotes_unsynced_on_shutdown(row):
            text = "stopping all nodes on master shutdown since no synchronised mirror is available"
            log.warning("queue '%s': %s", process.key, text)
            _stop_mirrors(process, alive, reason)
            return
        if alive and not synced:
            process.emit("loss_window", reason="L8: unsynchronised mirrors take over on shutdown")
    if reason == "dropped":
        if isinstance(master, Mirror):
            await process.transact(lambda tx: rows.forget_mirror(tx, process.key, process.pid))
        if process.gm is not None:
            process.gm.idle()
        await process.context.storage.wipe(process.key)
    process.exit(reason)


def _stop_mirrors(process: QueueProcess, mirrors: list[Pid], reason: str) -> None:
    process.stopping_mirrors = Stopping(reason, dict.fromkeys(mirrors))
    for pid in mirrors:
        process.monitor_peer(pid)
        process.send(pid, StopProcess("stopped by its master"))
    process.after(process.config.slave_wait_timeout_ms, StopTimeout())


async def mirror_stopped(process: QueueProcess, pid: Pid) -> None:
    stopping = process.stopping_mirrors
    assert stopping is not None
    stopping.waiting.pop(pid, None)
    if not stopping.waiting:
        await _all_stopped(process)


async def stop_timed_out(process: QueueProcess) -> None:
    if process.is_deleting:
        await _end_deleted(process)
    if process.stopping_mirrors is not None:
        for pid in process.stopping_mirrors.waiting:
            log.warning("queue '%s': missing 'DOWN' message from %s", process.key, pid)
        await _all_stopped(process)


async def _all_stopped(process: QueueProcess) -> None:
    stopping = process.stopping_mirrors
    assert stopping is not None
    # KB-RMQ-13: those that did not end in time were forgotten.
    forgets = process.env.has_bug("KB-RMQ-13")
    survivors = () if forgets else tuple(stopping.waiting)
    anybodys = process.env.has_bug("KB-RMQ-02")
    process.renew_grace()
    await process.transact(
        lambda tx: rows.clear_mirrors(tx, process.key, process.pid, survivors, anybodys=anybodys)
    )
    process.exit(stopping.reason)


# -- the very end ----------------------------------------------------------------------------------


async def stopped(process: QueueProcess, reason: str) -> None:
    """Last thing, whatever the reason (but a kill)."""
    _answer_starter(process, reason)
    role = process.role
    if role is None:
        return
    role.flush()
    if process.gm is not None:
        process.gm.idle()
    if isinstance(role, Master):
        role.emit_acked()
    process.role = None
    process.emit("role", was=role.role)
    process.emit("stopped", reason=reason)
    try:
        if reason == "stopped by its master" and process.env.buggify("mirror.close_late"):
            # To write out all that it holds may take longer than its master waits (rmq#802).
            await pause_ms(process.env.rng.random() * CLOSE_LATE_MS)
        if reason in ("shutdown", "stopped by its master"):
            await role.queue.close()
        elif reason not in ("normal", "dropped"):  # those wiped it
            await role.queue.abandon()
    except StorageError as error:
        log.error("queue '%s': %s", process.key, error)


def _answer_starter(process: QueueProcess, reason: str) -> None:
    """Whoever waits for the start, if it got no answer yet."""
    caller = None if isinstance(process.start, RecoverStart) else process.start.caller
    if caller is None:
        return
    if process.declared is not None:
        caller.reply(Declared(process.declared, created=True))  # whatever became of it since
    else:
        caller.reply(Failed("ended", reason))
