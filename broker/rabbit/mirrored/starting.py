"""How a queue process starts: as the master of a new or recovered queue, or as a mirror; and whom
it mirrors to.

After rabbit/rabbit_mirror_queue_slave.erl (handle_go), rabbit_prequeue.erl and
rabbit_mirror_queue_misc.erl (update_mirrors). A mirror joins the ring first and enters the row
after that, so that it gets every message by the ring that a channel could send it directly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import MetadataUnavailable, NoProcess, ProcessError
from shalott.broker.rabbit.metadata.records import GroupRow, QueueRow
from shalott.broker.rabbit.mirrored import ending, gm, policy, rows, syncing
from shalott.broker.rabbit.mirrored import instructions as ins
from shalott.broker.rabbit.mirrored.gm_shell import GmShell
from shalott.broker.rabbit.mirrored.master import Inheritance, Master
from shalott.broker.rabbit.mirrored.messages import (
    SUPERVISOR,
    AutoSync,
    Declared,
    StartMirror,
    StopProcess,
)
from shalott.broker.rabbit.mirrored.mirror import Mirror
from shalott.broker.rabbit.mirrored.modes import DeclareStart, MirrorStart, RecoverStart
from shalott.broker.rabbit.processes.messages import Done, Failed, Name, Pid
from shalott.broker.rabbit.storage.backing_queue import BackingQueue

if TYPE_CHECKING:
    from shalott.broker.rabbit.mirrored.process import QueueProcess

log = logging.getLogger("shalott.broker.mirrored")

START_MIRROR_TIMEOUT_MS = 10_000
RECOVER_LATE_MS = 1000


async def start(process: QueueProcess) -> None:
    match process.start:
        case DeclareStart():
            await _declare(process, process.start)
        case RecoverStart():
            await _recover(process, process.start)
        case MirrorStart():
            process.join_ring()


# -- masters ---------------------------------------------------------------------------------------


async def _declare(process: QueueProcess, declaration: DeclareStart) -> None:
    wanted = _with_pid(declaration.row, process.pid)
    try:
        row, _ = await process.transact_once(lambda tx: rows.declare(tx, wanted))
    except MetadataUnavailable as error:
        declaration.caller.reply(Failed("unknown", str(error)))
        row = await _row_in_doubt(process)
    if row.pid != process.pid:
        declaration.caller.reply(Declared(row, created=False))
        process.exit("shutdown")
    process.declared = row
    queue, _ = await process.context.storage.open_empty(row)
    become_master(process, queue, row, Inheritance(), started_as="declared")
    if process.gm is None:
        declaration.caller.reply(Declared(row, created=True))


async def _row_in_doubt(process: QueueProcess) -> QueueRow:
    """Somebody must own the row if it was written. If it was not, it is not to be any more."""
    row = await process.transact(lambda tx: rows.read_any(tx, process.key), confirmed=True)
    if row is None:
        process.exit("shutdown")
    assert row is not None
    return row


def _with_pid(row: QueueRow, pid: Pid) -> QueueRow:
    return msgspec.structs.replace(row, pid=pid)


async def _recover(process: QueueProcess, start: RecoverStart) -> None:
    if process.env.buggify("recover.late"):
        # A restarted process may get its turn late (0.8 s in the log of seed 003): whoever decided
        # on a row long ago must look at it again.
        await pause_ms(process.env.rng.random() * RECOVER_LATE_MS)
    snapshot = start.snapshot
    if snapshot is not None:  # KB-RMQ-02
        row: QueueRow | None = await process.transact(
            lambda tx: rows.store_snapshot(tx, snapshot, process.pid)
        )
    else:
        row = await process.transact(
            lambda tx: rows.take_over(tx, process.key, process.pid, start.seen)
        )
    if row is None:
        process.exit("shutdown")
    assert row is not None
    queue = await process.context.storage.recover(row)
    log.info("queue '%s': recovered %d messages", process.key, queue.depth)
    become_master(process, queue, row, Inheritance(), started_as="recovered")


def become_master(
    process: QueueProcess,
    queue: BackingQueue,
    row: QueueRow,
    heritage: Inheritance,
    *,
    started_as: str,
) -> Master:
    master = Master(process, queue, row, heritage)
    if process.context.dead_letters is not None:
        master.limits.dead_letters = process.context.dead_letters(row)
    process.take_role(master, started_as=started_as, depth=queue.depth)
    if policy.is_mirrored(row) and process.gm is None:
        process.join_ring()
    return master


async def joined(process: QueueProcess) -> None:
    """The ring has taken this process in."""
    if isinstance(process.role, Master):
        row = await process.transact(lambda tx: rows.add_gm(tx, process.key, process.pid))
        if row is None:
            process.exit("shutdown")
        await update_mirroring(process, announce=True)
    elif process.role is None:
        await _become_mirror(process)


async def update_mirroring(process: QueueProcess, *, announce: bool = False) -> None:
    """Bring the mirrors in line with the policy; or see that this process isn't wanted any more."""
    if not isinstance(process.role, Master):
        await _check_place(process)
        return
    row = await process.transact(lambda tx: rows.update_policy(tx, process.key, process.pid))
    if row is None:
        is_blind = process.env.has_bug("KB-RMQ-02") or process.env.has_bug("KB-RMQ-08")
        if is_blind and process.row() is not None:
            return  # KB-RMQ-02, KB-RMQ-08: a change of policy was no occasion to look
        if not await process.guard_master():
            await ending.out_of_place(process)
        return
    process.role.limits.update(row)
    if not process.is_blocked:
        process.role.limits.trim()
    if policy.is_mirrored(row) and process.gm is None:
        process.join_ring()
        return
    add, drop = policy.changes(row, process.metadata.running_nodes(), process.env.choose_index)
    process.background(_add_mirrors(process, add, announce))
    for node in drop:
        _drop(process, row, node)
    syncing.maybe_auto_sync(process, None)


def _drop(process: QueueProcess, row: QueueRow, node: str) -> None:
    """Only after the new mirrors were asked for, see policy.changes."""
    for pid in (row.pid, *row.slave_pids):
        if pid is not None and pid.node == node:
            log.info("queue '%s': dropping the process on %s", process.key, node)
            process.send(pid, StopProcess("dropped"))


async def _add_mirrors(process: QueueProcess, nodes: Sequence[str], announce: bool) -> None:
    await asyncio.gather(*(_add_mirror(process, node) for node in nodes))
    if announce and isinstance(process.start, DeclareStart):
        # It may be deleted by now. It was declared nevertheless, and must not be once more.
        row = process.row() or process.declared
        assert row is not None
        process.start.caller.reply(Declared(row, created=True))


async def _add_mirror(process: QueueProcess, node: str) -> None:
    """An unwilling node is no reason to crash: it looks for itself when it is up."""
    try:
        answer = await process.runtime.call(
            Name(node, SUPERVISOR), StartMirror(process.key), timeout_ms=START_MIRROR_TIMEOUT_MS
        )
    except ProcessError as error:
        if isinstance(error, NoProcess) and process.env.has_bug("KB-RMQ-01"):
            # KB-RMQ-01: the node runs and its queue supervisor doesn't yet: {ok, Sup} did not match
            # {error,{queue_supervisor_not_found,[]}}, and the master ended with it.
            raise
        log.warning("queue '%s': will not add a mirror on %s: %s", process.key, node, error)
        return
    if isinstance(answer, Failed):
        log.warning("queue '%s': no mirror on %s: %s", process.key, node, answer.kind)
    else:
        process.emit("set_changed", added=node)


def add_mirrors(process: QueueProcess, nodes: Sequence[str]) -> None:
    if nodes:
        process.background(_add_mirrors(process, nodes, False))


# -- mirrors ---------------------------------------------------------------------------------------


async def _become_mirror(process: QueueProcess) -> None:
    assert isinstance(process.start, MirrorStart)
    found = await process.transact(
        lambda tx: rows.init_mirror(tx, process.key, process.pid, process.runtime.is_alive)
    )
    if found.outcome != "new":
        if process.start.caller is not None:
            process.start.caller.reply(
                Done() if found.outcome == "existing" else Failed(found.outcome)
            )
        log.info("queue '%s': no mirror is started: %s", process.key, found.outcome)
        process.exit(f"not started: {found.outcome}")
    row = found.row
    assert row is not None and row.pid is not None
    for pid in found.stop_first:
        # rmq#802: one that didn't die in time when the master stopped it would block this one.
        await process.runtime.kill(pid)
    queue, discarded = await process.context.storage.open_empty(row)
    process.take_role(Mirror(process, queue, row), master=row.pid.node)
    process.emit("wiped", count=discarded)
    if discarded:
        reason = "L4: a mirror that starts throws away what it had"
        process.emit("discarded", count=discarded, reason=reason)
    process.monitor_peer(row.pid)
    process.send(row.pid, AutoSync(process.pid))
    if process.start.caller is not None:
        process.start.caller.reply(Done())


def follow(process: QueueProcess, mirror: Mirror, master: Pid) -> None:
    mirror.master = master
    process.monitor_peer(master)


async def request_depth(process: QueueProcess) -> None:
    """Once, as soon as the ring would carry it: how much does the master hold?"""
    ready = process.gm is not None and process.gm.is_ready
    if process.depth_requested or not ready or process.role is None:
        return
    process.depth_requested = True
    assert process.gm is not None
    if isinstance(process.role, Master):
        process.role.tell_depth()  # mirrors may have come into the ring, and asked, before it did
        syncing.sync_what_waited(process)
        return
    process.broadcast(ins.RequestDepth(process.pid))
    _report_stale(process, process.gm)


async def _check_place(process: QueueProcess) -> None:
    """A mirror that is in the row no more ends (and starts anew, if it is wanted)."""
    if process.role is None:
        return
    row = process.row()
    if row is None or process.pid not in (row.pid, *row.slave_pids):
        await ending.out_of_place(process)
    elif isinstance(process.role, Mirror) and row.pid != process.role.master:
        assert row.pid is not None
        follow(process, process.role, row.pid)


def _report_stale(process: QueueProcess, ring: GmShell) -> None:
    """Ring members in the queue's row that the group has forgotten, or never knew, are dead."""
    row, view = process.row(), ring.member.view
    group = process.metadata.read(rows.GROUP, process.key)
    if row is None or view is None or not isinstance(group, GroupRow):
        return
    present = [member.pid for member in view.known()]
    # A member may be newer than our view of the ring: it is in the group's row already.
    grouped = [member.id.pid for member in group.members]
    stale = [pid for pid in row.gm_pids if pid not in grouped and pid not in present]
    ring.feed(gm.ValidateMembers((*present, *stale)))
