"""How a queue process ends: its queue is deleted, its node stops, its mirror was dropped, another
master is recorded, its ring broke, it crashed.

The reason matters to others. "normal" means that the queue is deleted: channels take their
publishes for settled, and the ring buries no member. Everything else is a loss of this process
only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import StorageError
from shalott.broker.rabbit.amqp.queue_protocol import Count, Delete
from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.metadata.policies import POLICY
from shalott.broker.rabbit.metadata.records import PolicyRow, QueueRow, policy_key
from shalott.broker.rabbit.mirrored import log_lines, policy, rows
from shalott.broker.rabbit.mirrored.messages import Declared, RecoverStart, StopProcess, StopTimeout
from shalott.broker.rabbit.processes.messages import Failed, Message, Pid
from shalott.broker.rabbit.processes.runtime import Caller
from shalott.broker.rabbit.queue_process import roles
from shalott.broker.rabbit.queue_process.queue_shell import QueueShell
from shalott.broker.rabbit.queue_process.state import Identity, MirrorsStop, QueueState
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.replica.mirror import Mirror

log = logging.getLogger("shalott.broker.mirrored")

# How long a deleted queue's ring may take to settle before a process ends regardless.
DELETE_DRAIN_MS = 3_000
CLOSE_LATE_MS = 60_000

Tell = Callable[[], object]  # answers who asked for it


# -- deletion --------------------------------------------------------------------------------------


async def delete(
    state: QueueState, shell: QueueShell, request: Delete, caller: Caller
) -> Message | None:
    master = state.role
    assert isinstance(master, Master)
    if request.if_unused and len(master.consumers):
        return Failed("in_use")
    if request.if_empty and master.queue.messages.ready:
        return Failed("not_empty")
    count = master.queue.messages.ready
    await _delete(state, shell, master, lambda: caller.reply(Count(count)))
    return None


async def delete_unused(state: QueueState, shell: QueueShell, tell: Tell | None = None) -> None:
    """Auto-delete, x-expires, or the owner of an exclusive queue is gone."""
    assert isinstance(state.role, Master)
    await _delete(state, shell, state.role, tell)


async def _delete(state: QueueState, shell: QueueShell, master: Master, tell: Tell | None) -> None:
    """``tell``, who asked, when the rows are gone: the name is free when it hears of it."""
    state.ending.is_deleting = True
    master.confirms.flush()
    # Confirmed: it may be gone here only as far as this node knows.
    await shell.transactions.transact(
        lambda tx: rows.delete_owned(tx, state.key, shell.pid), confirmed=True
    )
    if await yields(state, shell):
        return
    master.cancel_consumers()
    if tell is not None:
        tell()
    shell.emit("deleted")
    if state.ring.gm is None:
        await _end_deleted(state, shell)
    shell.broadcast(ins.DeleteAndTerminate())
    _drain(state, shell)


def ring_deleted(state: QueueState, shell: QueueShell) -> None:
    """The ring brought the word that the queue is deleted."""
    state.ending.is_deleting = True
    _drain(state, shell)


def _drain(state: QueueState, shell: QueueShell) -> None:
    assert state.ring.gm is not None
    state.ring.gm.idle()
    state.ring.gm.feed(gm.Stop("normal"))
    shell.after(DELETE_DRAIN_MS, StopTimeout())


async def out_of_place(state: QueueState, shell: QueueShell) -> NoReturn:
    """The row is gone, or this process is not in it."""
    if shell.row() is None and shell.metadata.read(rows.DURABLE, state.key) is None:
        await _end_deleted(state, shell)
    shell.emit("demoted", reason="it has lost its place")
    shell.exit("shutdown")


async def _end_deleted(state: QueueState, shell: QueueShell) -> NoReturn:
    if isinstance(state.role, Master) and state.ring.gm is not None:
        await shell.transactions.transact(lambda tx: rows.forget_group(tx, state.key))
    await shell.context.storage.wipe(state.key)
    shell.exit("normal")


async def ring_stopped(state: QueueState, shell: QueueShell, reason: str) -> None:
    """A master that was the only one of its ring has what no other process can have: it comes
    back."""
    if state.ending.is_deleting:
        await _end_deleted(state, shell)
    gm_shell, row = state.ring.gm, shell.row()
    if (
        reason == "shutdown"
        and isinstance(state.role, Master)
        and gm_shell is not None
        and gm_shell.member.ring.view is not None
        and gm_shell.member.ring.is_alone
        and row is not None
        and row.pid == shell.pid
    ):
        roles.join_another_ring(state, shell)
        return
    if reason == "shutdown" and state.role is not None:
        await out_of_place(state, shell)
    shell.exit(reason)


# -- another master --------------------------------------------------------------------------------


async def yields(state: QueueState, shell: QueueShell, *, stops_mirrors: bool = False) -> bool:
    """Two processes of a queue may both be promoted in a partition. Who finds another one recorded
    as master ends, as "shutdown" and not as "normal", which would look as if the queue were deleted
    (rmq#914, rmq#953).

    Returns whether this process is not the master. Then it has ended, but for the known bugs.
    """
    row = shell.row()
    if row is None or row.pid == shell.pid:
        return False
    log.warning("queue '%s': %s is recorded as master, this process ends", state.key, row.pid)
    shell.emit("demoted", master=str(row.pid), reason="another master is recorded")
    if not shell.rules.yields_as_loss:
        await _end_as_deleted(state, shell, row)
    elif stops_mirrors and not shell.rules.stops_own_mirrors_only:
        await stop(state, shell, "shutdown")
    else:
        shell.exit("shutdown")
    return True


async def _end_as_deleted(state: QueueState, shell: QueueShell, row: QueueRow) -> None:
    """terminate(normal) deletes the record, which is another master's by now, and tells the ring
    that the queue is deleted.
    """
    state.ending.is_deleting = True
    await shell.transactions.transact(lambda tx: rows.delete(tx, row))
    shell.emit("deleted")
    if state.ring.gm is None:
        await _end_deleted(state, shell)
    shell.broadcast(ins.DeleteAndTerminate())
    _drain(state, shell)


# -- orderly stops ---------------------------------------------------------------------------------


async def stop(state: QueueState, shell: QueueShell, reason: str) -> None:
    """The node stops ("shutdown"), the mirror isn't wanted ("dropped"), or something failed."""
    if state.ending.has_begun:
        return
    row, role = shell.row(), state.role
    if isinstance(role, Master) and reason == "shutdown" and row is not None:
        alive = [pid for pid in row.slave_pids if shell.runtime.is_alive(pid)]
        obliged = not policy.promotes_unsynced_on_shutdown(row)
        shell.env.witness("stops", state.key, str(shell.pid), obliged, [str(p) for p in alive])
        synced = [pid for pid in alive if pid in row.sync_slave_pids]
        if alive and not synced and obliged:
            log.warning(log_lines.stopping_all(state.key))
            _stop_mirrors(state, shell, alive, reason)
            return
        if alive and not synced:
            shell.emit("loss_window", reason="L8: unsynchronised mirrors take over on shutdown")
        if not alive and row.pid == shell.pid and shell.metadata.is_in_majority():
            # No mirror takes its place. A node that can't write now can't say so either.
            await shell.transactions.transact(
                lambda tx: rows.mark_ended(tx, state.key, shell.pid, "stopped")
            )
    if reason == "dropped":
        if isinstance(role, Mirror):
            await shell.transactions.transact(
                lambda tx: rows.forget_mirror(tx, state.key, shell.pid)
            )
        if state.ring.gm is not None:
            state.ring.gm.idle()
        await shell.context.storage.wipe(state.key)
    shell.exit(reason)


def _stop_mirrors(state: QueueState, shell: QueueShell, mirrors: list[Pid], reason: str) -> None:
    log.debug(log_lines.stop_all_slaves(state.key, reason))
    state.ending.mirrors = MirrorsStop(reason, dict.fromkeys(mirrors))
    for pid in mirrors:
        shell.monitor_peer(pid)
        shell.send(pid, StopProcess("stopped by its master"))
    shell.after(shell.config.slave_wait_timeout_ms, StopTimeout())


async def mirror_stopped(state: QueueState, shell: QueueShell, pid: Pid) -> None:
    """A peer ended: perhaps the last that a master which stops was waiting for."""
    stopping = state.ending.mirrors
    if stopping is None:
        return
    stopping.waiting.pop(pid, None)
    if not stopping.waiting:
        await _all_stopped(state, shell, stopping)


async def stop_timed_out(state: QueueState, shell: QueueShell) -> None:
    if state.ending.is_deleting:
        await _end_deleted(state, shell)
    stopping = state.ending.mirrors
    if stopping is not None:
        for pid in stopping.waiting:
            log.warning(log_lines.missing_down(state.key, pid, shell.runtime.node))
        await _all_stopped(state, shell, stopping)


async def _all_stopped(state: QueueState, shell: QueueShell, stopping: MirrorsStop) -> NoReturn:
    survivors = tuple(stopping.waiting) if shell.rules.records_survivors else ()
    anybodys = not shell.rules.stops_own_mirrors_only
    shell.transactions.renew_grace()
    await shell.transactions.transact(
        lambda tx: rows.clear_mirrors(tx, state.key, shell.pid, survivors, anybodys=anybodys)
    )
    shell.exit(stopping.reason)


# -- the very end ----------------------------------------------------------------------------------


async def stopped(state: QueueState, shell: QueueShell, reason: str) -> None:
    """Last thing, at any end but a kill."""
    _answer_starter(state.identity, reason)
    role, row = state.role, shell.row()
    if role is None:
        return
    left = () if row is None or row.pid != shell.pid else row.slave_pids
    shell.env.witness("stopped", state.key, str(shell.pid), reason, [str(p) for p in left])
    role.confirms.flush()
    if state.ring.gm is not None:
        state.ring.gm.idle()
    if isinstance(role, Master):
        role.confirms.emit_acked()
        if reason.startswith("crash"):
            _tell_crash(state, shell, reason)
        if not shell.rules.ends_mark_own_row_only:
            await _mark_current_row(state, shell, reason)
    state.role = None
    shell.emit("role", was=role.role)
    shell.emit("stopped", reason=reason)
    try:
        if reason == "stopped by its master" and shell.env.buggify("mirror.close_late"):
            # To write out all that it holds may take longer than its master waits (rmq#802).
            await pause_ms(shell.env.rng.random() * CLOSE_LATE_MS)
        if reason in ("shutdown", "stopped by its master"):
            await role.queue.close()
        elif reason not in ("normal", "dropped"):  # those wiped it
            await role.queue.abandon()
    except StorageError as error:
        log.error("queue '%s': %s", state.key, error)


def _tell_crash(state: QueueState, shell: QueueShell, reason: str) -> None:
    """What gen_server2 prints of a process that ended by an error."""
    known, here = state.identity.first_row, shell.runtime.node
    if known is not None:
        key = policy_key(known.vhost, known.policy or "")
        found = shell.metadata.read(POLICY, key)
        policy_row = found if isinstance(found, PolicyRow) else None
        log.error(log_lines.server_state(known, policy_row, here))
    log.error("** Reason for termination ==\n** %s", log_lines.in_words(reason))


async def _mark_current_row(state: QueueState, shell: QueueShell, reason: str) -> None:
    """KB-RMQ-38."""
    if reason == "shutdown":
        await shell.transactions.transact(lambda tx: rows.mark_current_row(tx, state.key, None))
    elif reason not in ("normal", "dropped"):
        known = state.identity.first_row
        await shell.transactions.transact(lambda tx: rows.mark_current_row(tx, state.key, known))


def _answer_starter(identity: Identity, reason: str) -> None:
    """Answer what waits for the start, if it got no answer yet."""
    start = identity.start
    caller = None if isinstance(start, RecoverStart) else start.caller
    if caller is None:
        return
    if identity.declared is not None:
        caller.reply(Declared(identity.declared, created=True))  # even if it has ended since
    else:
        caller.reply(Failed("ended", reason))
