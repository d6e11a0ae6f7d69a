"""How a queue process starts: as the master of a new or recovered queue, or as a mirror.

After rabbit/rabbit_mirror_queue_slave.erl (handle_go) and rabbit_prequeue.erl. A mirror joins the
ring first and enters the row after that, so that it gets every message by the ring that a channel
could send it directly.
"""

from __future__ import annotations

import logging

import msgspec

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import MetadataUnavailable
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import log_lines, rows
from shalott.broker.rabbit.mirrored.messages import (
    AutoSync,
    Declared,
    DeclareStart,
    MirrorStart,
    RecoverStart,
)
from shalott.broker.rabbit.processes.messages import Done, Failed
from shalott.broker.rabbit.queue_process import mirroring, roles
from shalott.broker.rabbit.queue_process.queue_shell import QueueShell
from shalott.broker.rabbit.queue_process.state import QueueState
from shalott.broker.rabbit.replica.confirms import Inheritance
from shalott.broker.rabbit.replica.master import Master

log = logging.getLogger("shalott.broker.mirrored")

RECOVER_LATE_MS = 1000


async def start(state: QueueState, shell: QueueShell) -> None:
    """First thing of all."""
    match state.identity.start:
        case DeclareStart() as declaration:
            await _declare(state, shell, declaration)
        case RecoverStart() as recovery:
            await _recover(state, shell, recovery)
        case MirrorStart():
            roles.join_ring(state, shell)


async def joined(state: QueueState, shell: QueueShell) -> None:
    """The ring has taken this process in."""
    if isinstance(state.role, Master):
        row = await shell.transactions.transact(lambda tx: rows.add_gm(tx, state.key, shell.pid))
        if row is None:
            shell.exit("shutdown")
        await mirroring.update(state, shell, announce=True)
    elif state.role is None:
        await _become_mirror(state, shell)


# -- masters ---------------------------------------------------------------------------------------


async def _declare(state: QueueState, shell: QueueShell, declaration: DeclareStart) -> None:
    wanted = msgspec.structs.replace(declaration.row, pid=shell.pid)
    try:
        row, _ = await shell.transactions.transact_once(lambda tx: rows.declare(tx, wanted))
    except MetadataUnavailable as error:
        declaration.caller.reply(Failed("unknown", str(error)))
        row = await _row_in_doubt(state, shell)
    if row.pid != shell.pid:
        declaration.caller.reply(Declared(row, created=False))
        shell.exit("shutdown")
    state.identity.declared = row
    queue, _ = await shell.context.storage.open_empty(row)
    roles.become_master(state, shell, queue, row, Inheritance(), started_as="declared")
    if state.ring.gm is None:
        declaration.caller.reply(Declared(row, created=True))


async def _row_in_doubt(state: QueueState, shell: QueueShell) -> QueueRow:
    """A process must own the row if it was written. If it was not, it is not to be any more."""
    row = await shell.transactions.transact(lambda tx: rows.read_any(tx, state.key), confirmed=True)
    if row is None:
        shell.exit("shutdown")
    return row


async def _recover(state: QueueState, shell: QueueShell, recovery: RecoverStart) -> None:
    if shell.env.buggify("recover.late"):
        # A restarted process may get its turn late (0.8 s in the log of seed 003): what was decided
        # on a row long ago must be looked at again.
        await pause_ms(shell.env.rng.random() * RECOVER_LATE_MS)
    if shell.config.recovery_delay_ms:
        await pause_ms(shell.env.rng.random() * shell.config.recovery_delay_ms)
    snapshot = recovery.snapshot
    row: QueueRow | None
    if snapshot is not None:  # see SupervisorRules.recovers_current_row
        row = await shell.transactions.transact(
            lambda tx: rows.store_snapshot(tx, snapshot, shell.pid)
        )
    else:
        row = await shell.transactions.transact(
            lambda tx: rows.take_over(tx, state.key, shell.pid, recovery.seen)
        )
    if row is None:
        shell.exit("shutdown")
    queue = await shell.context.storage.recover(row)
    log.info("queue '%s': recovered %d messages", state.key, queue.messages.depth)
    told = queue.directory, queue.last_serial, queue.messages.flags
    shell.env.witness("recovered", state.key, *told)
    roles.become_master(state, shell, queue, row, Inheritance(), started_as="recovered")


# -- mirrors ---------------------------------------------------------------------------------------


async def _become_mirror(state: QueueState, shell: QueueShell) -> None:
    start = state.identity.start
    assert isinstance(start, MirrorStart)
    found = await shell.transactions.transact(
        lambda tx: rows.init_mirror(tx, state.key, shell.pid, shell.runtime.is_alive)
    )
    if found.outcome != "new":
        if start.caller is not None:
            start.caller.reply(Done() if found.outcome == "existing" else Failed(found.outcome))
        if found.outcome == "stale_master":
            assert found.row is not None and found.row.pid is not None
            log.warning(log_lines.stale_master(state.key, found.row.pid, shell.runtime.node))
        else:
            name = log_lines.queue_of(state.key)
            log.info("%s: no mirror is started: %s", name, found.outcome)
        shell.exit(f"not started: {found.outcome}")
    row = found.row
    assert row is not None and row.pid is not None
    for pid in found.stop_first:
        log.warning(log_lines.stale_slave(state.key, pid, shell.runtime.node))
        # rmq#802: one that didn't die in time when the master stopped it would block this one.
        await shell.runtime.kill(pid)
    queue, discarded = await shell.context.storage.open_empty(row)
    roles.become_mirror(state, shell, queue, row, row.pid)
    shell.emit("wiped", count=discarded)
    if discarded:
        reason = "L4: a mirror that starts throws away what it had"
        shell.emit("discarded", count=discarded, reason=reason)
    shell.monitor_peer(row.pid)
    shell.send(row.pid, AutoSync(shell.pid))
    if start.caller is not None:
        start.caller.reply(Done())
