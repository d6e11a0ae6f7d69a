"""Synchronisation, as the queue processes go through it: when it starts, who is blocked, what ends
it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shalott.broker.rabbit.mirrored import ending, policy, rows
from shalott.broker.rabbit.mirrored import instructions as ins
from shalott.broker.rabbit.mirrored.master import Master
from shalott.broker.rabbit.mirrored.messages import (
    AutoSync,
    CancelSync,
    SyncAborted,
    SyncAnswer,
    SyncBatch,
    SyncComplete,
    SyncNext,
    SyncQueue,
    UpdateMirroring,
)
from shalott.broker.rabbit.mirrored.mirror import Mirror
from shalott.broker.rabbit.mirrored.sync import MasterSync, Outcome
from shalott.broker.rabbit.processes.messages import Done, Failed, Message, Pid

if TYPE_CHECKING:
    from shalott.broker.rabbit.mirrored.process import QueueProcess

log = logging.getLogger("shalott.broker.mirrored")


@dataclass(slots=True)
class MirrorSync:
    """A mirror that is being synchronised by ``syncer``."""

    ref: int
    syncer: Pid


# -- the master ------------------------------------------------------------------------------------


async def handle_call(process: QueueProcess, request: Message) -> Message | None:
    """The operator's requests; None if ``request`` is something else."""
    match request:
        case SyncQueue():
            if not isinstance(process.role, Master):
                return Failed("not_master")
            if process.sync is not None:
                return Failed("syncing")
            if process.gm is None:
                return Failed("not_mirrored")
            _start(process, _unsynchronised(process, None))
            return Done()
        case CancelSync():
            if process.sync is None:
                return Failed("not_syncing")
            process.sync.cancel()
            return Done()
    return None


def maybe_auto_sync(process: QueueProcess, mirror: Pid | None) -> None:
    """If the policy says automatic and some mirror is behind. ``mirror`` may be newer than the row
    we see.
    """
    row = process.row()
    if not isinstance(process.role, Master) or process.gm is None or row is None:
        return
    if not policy.syncs_automatically(row):
        return
    if process.sync is not None or not process.gm.is_ready:
        process.sync_again = True
        return
    mirrors = _unsynchronised(process, mirror)
    if mirrors:
        _start(process, mirrors)


def _unsynchronised(process: QueueProcess, mirror: Pid | None) -> tuple[Pid, ...]:
    row = process.row()
    if row is None:
        return ()
    mirrors = row.slave_pids if mirror is None else tuple(dict.fromkeys((*row.slave_pids, mirror)))
    return tuple(pid for pid in mirrors if pid not in row.sync_slave_pids)


def _start(process: QueueProcess, mirrors: tuple[Pid, ...]) -> None:
    row, master = process.row(), process.role
    assert row is not None and isinstance(master, Master)
    if not mirrors:
        log.info("queue '%s': synchronising: all mirrors already synchronised", process.key)
        return
    master.flush()
    process.sync = MasterSync(
        process,
        master.queue,
        mirrors,
        # Small batches leave more moments at which a synchronisation can be interrupted.
        1
        if process.env.buggify("sync.batch_of_one")
        else policy.sync_batch_size(row, process.config.sync_batch_size),
        process.env.rng.getrandbits(62),
        lambda outcome: _ended(process, outcome),
    )
    log.info("queue '%s': synchronising: %d messages", process.key, process.sync.total)
    process.sync.start()


def _ended(process: QueueProcess, outcome: Outcome) -> None:
    log.info("queue '%s': synchronising: %s", process.key, outcome)
    process.sync = None
    sync_what_waited(process)


def sync_what_waited(process: QueueProcess) -> None:
    """A mirror came while another synchronisation ran, or while this master was still waiting for
    the ring, which may have been made by its mirrors, to take it in.
    """
    if process.sync_again:
        process.sync_again = False
        process.deliver(AutoSync())


async def handle(process: QueueProcess, message: Message) -> bool:
    """Whether ``message`` is about a synchronisation."""
    match message:
        case SyncAnswer():
            if process.sync is not None:
                process.sync.answered(message)
            else:
                process.send(message.mirror, SyncAborted(message.ref))
        case SyncNext():
            if process.sync is not None:
                process.sync.taken(message)
        case SyncBatch() | SyncComplete() | SyncAborted():
            _mirror_handle(process, message)
        case _:
            return False
    return True


# -- mirrors ---------------------------------------------------------------------------------------


def mirror_starts(process: QueueProcess, start: ins.SyncStart) -> None:
    mirror = process.role
    assert isinstance(mirror, Mirror)
    if process.pid not in start.mirrors:
        return
    wanted = not mirror.is_synchronised
    process.send(start.syncer, SyncAnswer(process.pid, start.ref, wanted))
    if wanted:
        process.emit("sync_started", discarded=mirror.queue.depth)
        mirror.begin_sync()
        process.mirror_sync = MirrorSync(start.ref, start.syncer)
        process.monitor_peer(start.syncer)


def _mirror_handle(process: QueueProcess, message: SyncBatch | SyncComplete | SyncAborted) -> None:
    mirror, sync = process.role, process.mirror_sync
    if sync is None or sync.ref != message.ref:
        return
    assert isinstance(mirror, Mirror)
    match message:
        case SyncBatch(ref, messages):
            mirror.take_synced(messages)
            process.send(sync.syncer, SyncNext(process.pid, ref))
        case SyncComplete():
            process.mirror_sync = None
            mirror.finish_sync()
            process.emit("sync_done", outcome="complete", messages=mirror.queue.depth)
        case SyncAborted():
            _abort(process, "cancelled", master_lives=True)


def syncer_down(process: QueueProcess, pid: Pid) -> None:
    if process.mirror_sync is not None and process.mirror_sync.syncer == pid:
        _abort(process, "the master died", master_lives=False)


def _abort(process: QueueProcess, outcome: str, *, master_lives: bool) -> None:
    assert isinstance(process.role, Mirror)
    process.mirror_sync = None
    process.emit("sync_done", outcome=outcome, discarded=process.role.queue.depth)
    process.role.abort_sync(master_lives=master_lives)


async def record_synchronised(process: QueueProcess) -> None:
    """Once in ``sync_slave_pids``, this mirror may be promoted under when-synced."""
    mirror = process.role
    assert isinstance(mirror, Mirror)
    mirror.has_flags = False
    row = await process.transact(lambda tx: rows.record_synchronised(tx, process.key, process.pid))
    if row is None:
        await ending.out_of_place(process)
    process.emit("synchronised", depth=mirror.queue.depth)
    if mirror.master is not None:
        # The policy may have waited for this to move the master elsewhere.
        process.send(mirror.master, UpdateMirroring())
