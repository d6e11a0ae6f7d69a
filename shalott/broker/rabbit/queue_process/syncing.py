"""Synchronisation, as the queue processes go through it: when it starts, who is blocked, what ends
it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.mirrored import log_lines, policy, rows
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
from shalott.broker.rabbit.processes.messages import Done, Failed, Message, Pid
from shalott.broker.rabbit.queue_process import ending
from shalott.broker.rabbit.queue_process.queue_shell import QueueShell
from shalott.broker.rabbit.queue_process.state import MirrorSync, QueueState
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.replica.mirror import Mirror
from shalott.broker.rabbit.replica.sync import MasterSync, Outcome

log = logging.getLogger("shalott.broker.mirrored")

# In the words of rabbit_mirror_queue_master:sync_mirrors.
_OUTCOMES: Mapping[Outcome, str] = {
    "complete": "complete",
    "already synchronised": "all slaves already synced",
    "cancelled": " synchronisation cancelled ",
    "no mirrors left": "all slaves already synced",
}


# -- the master ------------------------------------------------------------------------------------


def handle_call(state: QueueState, shell: QueueShell, request: Message) -> Message | None:
    """The operator's requests; None if ``request`` is something else."""
    match request:
        case SyncQueue():
            if not isinstance(state.role, Master):
                return Failed("not_master")
            if state.sync.as_master is not None:
                return Failed("syncing")
            if state.ring.gm is None:
                return Failed("not_mirrored")
            _start(state, shell, _unsynchronised(shell, None))
            return Done()
        case CancelSync():
            if state.sync.as_master is None:
                return Failed("not_syncing")
            state.sync.as_master.cancel()
            return Done()
    return None


def maybe_auto_sync(state: QueueState, shell: QueueShell, mirror: Pid | None) -> None:
    """If the policy says automatic and some mirror is behind. ``mirror`` may be newer than the row
    we see.
    """
    row = shell.row()
    if not isinstance(state.role, Master) or state.ring.gm is None or row is None:
        return
    if not policy.syncs_automatically(row):
        return
    if state.sync.as_master is not None or not state.ring.gm.is_ready:
        state.sync.again = True
        return
    mirrors = _unsynchronised(shell, mirror)
    if mirrors and state.ring.gm.member.ring.is_alone:
        # Mirrors enter the ring first: these are in another one, or dead. They would not hear that
        # a synchronisation begins, and all would wait for them.
        state.ring.gm.feed(gm.CheckMembership())
    elif mirrors:
        _start(state, shell, mirrors)


def _unsynchronised(shell: QueueShell, mirror: Pid | None) -> tuple[Pid, ...]:
    row = shell.row()
    if row is None:
        return ()
    mirrors = row.slave_pids if mirror is None else tuple(dict.fromkeys((*row.slave_pids, mirror)))
    return tuple(pid for pid in mirrors if pid not in row.sync_slave_pids)


def _start(state: QueueState, shell: QueueShell, mirrors: tuple[Pid, ...]) -> None:
    row, master = shell.row(), state.role
    assert row is not None and isinstance(master, Master)
    if not mirrors:
        log.info(log_lines.synchronising(state.key, "all slaves already synced"))
        return
    master.confirms.flush()
    # Small batches leave more moments at which a synchronisation can be interrupted.
    one_each = shell.env.buggify("sync.batch_of_one")
    batch_size = 1 if one_each else policy.sync_batch_size(row, shell.config.sync_batch_size)
    ref = shell.env.rng.getrandbits(62)
    sync = MasterSync(
        shell, master.queue, mirrors, batch_size, ref, lambda outcome: _ended(state, shell, outcome)
    )
    state.sync.as_master = sync
    log.info(log_lines.synchronising(state.key, f"{sync.total} messages to synchronise"))
    log.info(log_lines.synchronising(state.key, f"batch size: {batch_size}"))
    shell.env.witness("sync.began", shell.pid, ref)
    sync.start()


def _ended(state: QueueState, shell: QueueShell, outcome: Outcome) -> None:
    log.info(log_lines.synchronising(state.key, _OUTCOMES[outcome]))
    state.sync.as_master = None
    sync_what_waited(state, shell)


def sync_what_waited(state: QueueState, shell: QueueShell) -> None:
    """A mirror came while another synchronisation ran, or while this master was still waiting for
    the ring, which may have been made by its mirrors, to take it in.
    """
    if state.sync.again:
        state.sync.again = False
        shell.deliver(AutoSync())


def handle(state: QueueState, shell: QueueShell, message: Message) -> bool:
    """Whether ``message`` is about a synchronisation."""
    match message:
        case SyncAnswer():
            sync = state.sync.as_master
            if sync is not None and sync.ref == message.ref:
                sync.answered(message)
            else:  # that one was cancelled, and another may have begun since
                shell.send(message.mirror, SyncAborted(message.ref))
        case SyncNext():
            if state.sync.as_master is not None:
                state.sync.as_master.taken(message)
        case SyncBatch() | SyncComplete() | SyncAborted():
            _mirror_handle(state, shell, message)
        case _:
            return False
    return True


def peer_down(state: QueueState, shell: QueueShell, pid: Pid) -> None:
    """Another process of the queue ended, which may have a part in a synchronisation."""
    if state.sync.as_master is not None:
        state.sync.as_master.process_down(pid)
    if isinstance(state.role, Mirror):
        _syncer_down(state, shell, pid)


# -- mirrors ---------------------------------------------------------------------------------------


def mirror_starts(state: QueueState, shell: QueueShell, start: ins.SyncStart) -> None:
    mirror = state.role
    assert isinstance(mirror, Mirror)
    if shell.pid not in start.mirrors:
        return
    wanted = not mirror.is_synchronised
    shell.send(start.syncer, SyncAnswer(shell.pid, start.ref, wanted))
    if wanted:
        shell.emit("sync_started", discarded=mirror.queue.messages.depth)
        mirror.begin_sync()
        state.sync.as_mirror = MirrorSync(start.ref, start.syncer)
        shell.monitor_peer(start.syncer)


def _mirror_handle(
    state: QueueState, shell: QueueShell, message: SyncBatch | SyncComplete | SyncAborted
) -> None:
    mirror, sync = state.role, state.sync.as_mirror
    if sync is None or sync.ref != message.ref:
        return
    assert isinstance(mirror, Mirror)
    match message:
        case SyncBatch(ref, messages):
            mirror.take_synced(messages)
            shell.send(sync.syncer, SyncNext(shell.pid, ref))
        case SyncComplete(ref):
            state.sync.as_mirror = None
            mirror.finish_sync()
            shell.env.witness("sync.ended", shell.pid, ref, True, mirror.depth_delta)
            shell.emit("sync_done", outcome="complete", messages=mirror.queue.messages.depth)
        case SyncAborted():
            _abort(state, shell, "cancelled", master_lives=True)


def _syncer_down(state: QueueState, shell: QueueShell, pid: Pid) -> None:
    if state.sync.as_mirror is not None and state.sync.as_mirror.syncer == pid:
        _abort(state, shell, "the master died", master_lives=False)


def _abort(state: QueueState, shell: QueueShell, outcome: str, *, master_lives: bool) -> None:
    assert isinstance(state.role, Mirror)
    sync = state.sync.as_mirror
    assert sync is not None
    state.sync.as_mirror = None
    shell.emit("sync_done", outcome=outcome, discarded=state.role.queue.messages.depth)
    state.role.abort_sync(master_lives=master_lives)
    shell.env.witness("sync.ended", shell.pid, sync.ref, False, state.role.depth_delta)


async def record_synchronised(state: QueueState, shell: QueueShell) -> None:
    """Once in ``sync_slave_pids``, this mirror may be promoted under when-synced."""
    mirror = state.role
    assert isinstance(mirror, Mirror)
    mirror.has_flags = False
    row = await shell.transactions.transact(
        lambda tx: rows.record_synchronised(tx, state.key, shell.pid)
    )
    if row is None:
        await ending.out_of_place(state, shell)
    shell.emit("synchronised", depth=mirror.queue.messages.depth)
    if mirror.master is not None:
        # The policy may have waited for this to move the master elsewhere.
        shell.send(mirror.master, UpdateMirroring())
