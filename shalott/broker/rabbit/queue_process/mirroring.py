"""Whom a master mirrors to, by the policy and the running nodes; and whether a mirror still has its
place.

After rabbit/rabbit_mirror_queue_misc.erl (update_mirrors, add_mirrors, drop_mirrors). The requests
for mirrors run beside the mailbox: a master never waits for another queue process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from shalott.broker.base.errors import NoProcess, ProcessError
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import log_lines, policy, rows
from shalott.broker.rabbit.mirrored.messages import (
    SUPERVISOR,
    Declared,
    DeclareStart,
    StartMirror,
    StopProcess,
)
from shalott.broker.rabbit.processes.messages import Failed, Name, Pid, atom
from shalott.broker.rabbit.queue_process import ending, roles, syncing
from shalott.broker.rabbit.queue_process.queue_shell import QueueShell
from shalott.broker.rabbit.queue_process.state import Identity, QueueState
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.replica.mirror import Mirror

log = logging.getLogger("shalott.broker.mirrored")

START_MIRROR_TIMEOUT_MS = 10_000


async def update(state: QueueState, shell: QueueShell, *, announce: bool = False) -> None:
    """Bring the mirrors in line with the policy; or see that this process isn't wanted any more.

    ``announce``: then tell who declared the queue that it is there.
    """
    if not isinstance(state.role, Master):
        await _check_place(state, shell)
        return
    row = await shell.transactions.transact(lambda tx: rows.update_policy(tx, state.key, shell.pid))
    if row is None:
        if not shell.rules.checks_place_on_policy and shell.row() is not None:
            return
        if not await ending.yields(state, shell):
            await ending.out_of_place(state, shell)
        return
    state.role.limits.update(row)
    state.role.queue.pager.set_lazy(policy.is_lazy(row))
    if not state.is_blocked:
        state.role.limits.trim()
    if policy.is_mirrored(row) and state.ring.gm is None:
        roles.join_ring(state, shell)
        return
    add, drop = policy.changes(row, shell.metadata.running_nodes(), shell.env.choose_index)
    shell.tasks.start(_add_mirrors(shell, add, state.identity if announce else None))
    for node in drop:
        _drop(shell, row, node)
    syncing.maybe_auto_sync(state, shell, None)


def replace_dead(
    state: QueueState, shell: QueueShell, row: QueueRow, deaths: Sequence[Pid]
) -> None:
    """With ha-mode exactly or nodes there may be nodes that shall mirror instead."""
    if not isinstance(state.role, Master):
        return
    dead_nodes = [pid.node for pid in deaths]
    running = [n for n in shell.metadata.running_nodes() if n not in dead_nodes]
    add, _ = policy.changes(row, running, shell.env.choose_index)
    if add:
        shell.tasks.start(_add_mirrors(shell, add, None))


def _drop(shell: QueueShell, row: QueueRow, node: str) -> None:
    """Only after the new mirrors were asked for, see policy.changes."""
    for pid in (row.pid, *row.slave_pids):
        if pid is not None and pid.node == node:
            log.info(log_lines.mirrored(shell.key, f"Dropping queue mirror on node {atom(node)}"))
            shell.send(pid, StopProcess("dropped"))


async def _add_mirrors(shell: QueueShell, nodes: Sequence[str], announced: Identity | None) -> None:
    await asyncio.gather(*(_add_mirror(shell, node) for node in nodes))
    if announced is not None and isinstance(announced.start, DeclareStart):
        # It may be deleted by now. It was declared nevertheless, and must not be once more.
        row = shell.row() or announced.declared
        assert row is not None
        announced.start.caller.reply(Declared(row, created=True))


async def _add_mirror(shell: QueueShell, node: str) -> None:
    """An unwilling node is no reason to crash: it looks for itself when it is up."""
    try:
        answer = await shell.runtime.call(
            Name(node, SUPERVISOR), StartMirror(shell.key), timeout_ms=START_MIRROR_TIMEOUT_MS
        )
    except ProcessError as error:
        if isinstance(error, NoProcess) and not shell.rules.survives_missing_supervisors:
            raise
        log.warning(log_lines.no_supervisor(shell.key, node, str(error)))
        return
    if isinstance(answer, Failed):
        log.warning("%s: no mirror on %s: %s", log_lines.queue_of(shell.key), node, answer.kind)
    else:
        mirror = next((pid for pid in shell.mirrors() if pid.node == node), None)
        if mirror is not None:  # it may have had one all the time
            log.info(log_lines.adding_mirror(shell.key, node, mirror, shell.runtime.node))
        shell.emit("set_changed", added=node)


async def _check_place(state: QueueState, shell: QueueShell) -> None:
    """A mirror that is in the row no more ends (and starts anew, if it is wanted)."""
    if state.role is None:
        return
    row = shell.row()
    if row is None or shell.pid not in (row.pid, *row.slave_pids):
        await ending.out_of_place(state, shell)
    state.role.queue.pager.set_lazy(policy.is_lazy(row))
    if isinstance(state.role, Mirror) and row.pid != state.role.master:
        assert row.pid is not None
        roles.follow(shell, state.role, row.pid)
