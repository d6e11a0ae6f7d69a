"""How a queue process takes its role: it becomes a master, or a mirror, and enters the ring."""

from __future__ import annotations

from collections.abc import Mapping

from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import policy, rows
from shalott.broker.rabbit.mirrored.messages import DurableAdvanced
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.queue_process.queue_shell import QueueShell
from shalott.broker.rabbit.queue_process.ring_shell import GmShell
from shalott.broker.rabbit.queue_process.state import QueueState
from shalott.broker.rabbit.replica.confirms import Inheritance
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.replica.mirror import Mirror
from shalott.broker.rabbit.storage.backing_queue import BackingQueue


def become_master(
    state: QueueState,
    shell: QueueShell,
    queue: BackingQueue,
    row: QueueRow,
    heritage: Inheritance,
    *,
    started_as: str,
) -> Master:
    """``started_as``: declared, recovered or promoted."""
    master = Master(shell, queue, row, heritage)
    state.identity.first_row = row
    if shell.context.dead_letters is not None:
        master.limits.dead_letters = shell.context.dead_letters(row)
    _take_role(state, shell, master, {"started_as": started_as, "depth": queue.messages.depth})
    if policy.is_mirrored(row) and state.ring.gm is None:
        join_ring(state, shell)
    return master


def become_mirror(
    state: QueueState, shell: QueueShell, queue: BackingQueue, row: QueueRow, master: Pid
) -> None:
    """``row`` names ``master``."""
    _take_role(state, shell, Mirror(shell, queue, row), {"master": master.node})


def _take_role(
    state: QueueState, shell: QueueShell, role: Master | Mirror, detail: Mapping[str, object]
) -> None:
    state.role = role
    state.epoch = shell.metadata.version(rows.QUEUE, state.key)
    role.queue.index.on_durable(lambda mark: _tell_durable(state, shell))
    role.queue.on_failure(shell.storage_failed)
    shell.emit("role", **detail)
    is_master = isinstance(role, Master)
    shell.env.witness("queue.role", state.key, str(shell.pid), is_master, role.queue.directory)
    shell.env.witness("replica", shell.pid, role.queue.messages.outline)
    if role.queue.index.durable_mark:
        _tell_durable(state, shell)


def _tell_durable(state: QueueState, shell: QueueShell) -> None:
    """The journal calls this outside the process: the process hears it from its mailbox."""
    if not state.durable_told:
        state.durable_told = True
        shell.deliver(DurableAdvanced())


def durable_advanced(state: QueueState) -> None:
    state.durable_told = False
    if state.role is not None:
        state.role.confirms.durable_advanced()


def join_ring(state: QueueState, shell: QueueShell) -> None:
    state.ring.gm = GmShell(shell, shell.env, shell.metadata, state.key)
    state.ring.gm.feed(gm.Join())


def join_another_ring(state: QueueState, shell: QueueShell) -> None:
    """The former one was this process alone, and the group has forgotten it."""
    if state.sync.as_master is not None:
        state.sync.as_master.cancel()
    state.ring.depth_requested = False
    join_ring(state, shell)


def follow(shell: QueueShell, mirror: Mirror, master: Pid) -> None:
    """``master`` is the one that is recorded now."""
    mirror.master = master
    shell.monitor_peer(master)
