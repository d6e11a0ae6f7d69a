"""What a queue process does when others of its ring died; above all, how a mirror becomes the
master.

After rabbit/rabbit_mirror_queue_slave.erl (gm_deaths, promote_me) and rabbit_mirror_queue_misc.erl
(remove_from_queue). Deaths come from the ring, so everything that the dead master told has been
applied before. The decision is made in a transaction on the row (rows.remove_dead): every mirror
comes to the same one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shalott.broker.base.env import pause_ms
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import ending, policy, rows, starting, syncing
from shalott.broker.rabbit.mirrored import instructions as ins
from shalott.broker.rabbit.mirrored.master import Master
from shalott.broker.rabbit.mirrored.mirror import Mirror
from shalott.broker.rabbit.processes.messages import Pid

if TYPE_CHECKING:
    from shalott.broker.rabbit.mirrored.process import QueueProcess

log = logging.getLogger("shalott.broker.mirrored")

PROMOTION_LATE_MS = 500


async def master_down(process: QueueProcess, master: Pid) -> None:
    """The master that this mirror follows is dead or out of reach."""
    # The ring is lazy: without some traffic its members wouldn't hear of the death. It tells the
    # death when all that the master said has come round. Who took it for dead before that, on the
    # occasion of another death, would be promoted without what others hold already.
    process.broadcast(ins.ProcessDeath())
    assert process.gm is not None
    view = process.gm.member.view
    if view is None or all(member.pid != master for member in view.known()):
        # It never got into the ring, or is out of it already: the ring will not report it.
        await members_died(process, (master,))


async def members_died(process: QueueProcess, deaths: tuple[Pid, ...]) -> None:
    if process.role is None:
        return
    if process.env.buggify("promotion.late"):  # others may have decided by then
        await pause_ms(process.env.rng.random() * PROMOTION_LATE_MS)
    # All that ever died: a master that stays recorded because nobody may replace it is still dead.
    process.known_dead.update(dict.fromkeys(deaths))
    dead = tuple(process.known_dead)
    # KB-RMQ-22: before 3.7.5 there was no ha-promote-on-failure, and any mirror that was left
    # became master.
    unsynced = process.env.has_bug("KB-RMQ-22")
    removal = await process.transact(
        lambda tx: rows.remove_dead(tx, process.key, process.pid, dead, promotes_unsynced=unsynced)
    )
    log.info("queue '%s': saw deaths of %s: %s", process.key, deaths, removal.outcome)
    if isinstance(process.role, Master) and process.env.has_bug("KB-RMQ-08"):
        # KB-RMQ-08: the coordinator's gm_deaths had a clause for its own master and one for a queue
        # that is gone. Another master fitted neither, and the queue process ended with it.
        recorded = process.pid if removal.row is None else removal.row.pid
        assert recorded == process.pid, f"case_clause in gm_deaths: {recorded} is the master"
    match removal.outcome:
        case "gone" | "not_member":
            await ending.out_of_place(process)
        case "not_synced":
            # ha-promote-on-failure=when-synced: the queue waits for its old master instead.
            assert isinstance(process.role, Mirror)
            process.emit("not_promoted", depth=process.role.queue.depth)
            await process.context.storage.wipe(process.key)
            process.exit("shutdown")
        case "same":
            assert removal.row is not None
            if isinstance(process.role, Master):
                if await process.guard_master(stops_mirrors=True):
                    return
                process.emit("set_changed", removed=[pid.node for pid in deaths])
            _replace_dead(process, removal.row, deaths)
        case "other":
            _follow(process, removal)
        case "promoted":
            _promote(process, removal)
            assert removal.row is not None
            _replace_dead(process, removal.row, deaths)


def _follow(process: QueueProcess, removal: rows.Removal) -> None:
    if not isinstance(process.role, Mirror):
        process.exit("shutdown")
        return
    assert removal.master is not None
    starting.follow(process, process.role, removal.master)
    process.broadcast(ins.ProcessDeath())


def _promote(process: QueueProcess, removal: rows.Removal) -> None:
    mirror, row = process.role, removal.row
    if isinstance(mirror, Master):
        return  # it is the master already, and was just put back into the row
    assert mirror is not None and row is not None
    log.info("queue '%s': promoting the mirror on %s to master", process.key, process.env.node_id)
    mirror.flush()
    master = starting.become_master(
        process, mirror.queue, row, mirror.inheritance(), started_as="promoted"
    )
    process.emit(
        "promoted",
        synchronised=removal.was_synchronised,
        master_was=None if removal.master_was is None else removal.master_was.node,
        depth=master.queue.depth,
        reason="" if removal.was_synchronised else "L1: an unsynchronised mirror was promoted",
    )
    master.requeue_all()
    master.tell_depth()
    master.take_deliveries()
    syncing.maybe_auto_sync(process, None)


def _replace_dead(process: QueueProcess, row: QueueRow, deaths: tuple[Pid, ...]) -> None:
    """With ha-mode exactly or nodes there may be nodes that shall mirror instead."""
    if not isinstance(process.role, Master):
        return
    dead_nodes = [pid.node for pid in deaths]
    running = [n for n in process.metadata.running_nodes() if n not in dead_nodes]
    add, _ = policy.changes(row, running, process.env.choose_index)
    starting.add_mirrors(process, add)
