"""What the ring brings a queue process: it is taken in, others say something, others die, it is
over; and what a process says first when the ring would carry it.
"""

from __future__ import annotations

import logging

from shalott.broker.base.env import pause_ms
from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.metadata.records import GroupRow
from shalott.broker.rabbit.mirrored import log_lines, policy, rows
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.queue_process import ending, mirroring, roles, starting, syncing
from shalott.broker.rabbit.queue_process import ring_events as promotion
from shalott.broker.rabbit.queue_process.queue_shell import QueueShell
from shalott.broker.rabbit.queue_process.ring_shell import GmShell
from shalott.broker.rabbit.queue_process.state import QueueState
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.replica.mirror import Mirror


async def take_all(state: QueueState, shell: QueueShell) -> None:
    """Look at what the ring brought. A mirror that is being synchronised waits with it."""
    ring = state.ring
    while ring.gm is not None and ring.gm.events and state.sync.as_mirror is None:
        event = ring.gm.events.popleft()
        match event:
            case gm.Joined():
                await starting.joined(state, shell)
            case gm.Deliver(origin, payload):
                if origin != shell.pid:
                    instruction = ins.CODEC.decode(payload)
                    assert isinstance(instruction, ins.Instruction)
                    if isinstance(state.role, Mirror) and isinstance(instruction, ins.CONTENTS):
                        mirror = state.role
                        if mirror.queue.messages.in_delta and isinstance(instruction, ins.Dropped):
                            await shell.reading(mirror.drop_from_disk(instruction))
                        else:
                            mirror.apply(instruction)
                        lacks = mirror.depth_delta
                        shell.env.witness("ring.heard", shell.pid, origin, payload, lacks)
                    else:
                        await _hear(state, shell, instruction)
            case gm.Confirmed(token, ok):
                if ok and isinstance(state.role, Master):
                    state.role.confirms.ring_has(token)
            case gm.MembersChanged(_, deaths):
                for pid in deaths:
                    ring.new_mirrors.pop(pid, None)
                if deaths:
                    await promotion.members_died(state, shell, deaths)
            case gm.Stopped(reason):
                await ending.ring_stopped(state, shell, reason)


async def _hear(state: QueueState, shell: QueueShell, instruction: ins.Instruction) -> None:
    match instruction, state.role:
        case ins.DeleteAndTerminate(), _:
            ending.ring_deleted(state, shell)
        case ins.SyncStart(), Mirror():
            syncing.mirror_starts(state, shell, instruction)
        case ins.RequestDepth(mirror), Master() as master:
            state.ring.new_mirrors[mirror] = None
            checks = shell.rules.checks_place_on_newcomers
            if not (checks and await ending.yields(state, shell, stops_mirrors=True)):
                master.hear(instruction)
        case _, Master() as master:
            master.hear(instruction)
        case _, Mirror() as mirror_role:
            mirror_role.apply(instruction)


def request_depth(state: QueueState, shell: QueueShell) -> None:
    """Once, as soon as the ring would carry it: how much does the master hold?"""
    ring = state.ring
    if ring.depth_requested or ring.gm is None or not ring.gm.is_ready or state.role is None:
        return
    ring.depth_requested = True
    if isinstance(state.role, Master):
        state.role.tell_depth()  # mirrors may have come into the ring, and asked, before it did
        syncing.sync_what_waited(state, shell)
        return
    shell.broadcast(ins.RequestDepth(shell.pid))
    _report_stale(state, shell, ring.gm)


def _report_stale(state: QueueState, shell: QueueShell, ring: GmShell) -> None:
    """Ring members in the queue's row that the group has forgotten, or never knew, are dead."""
    row, view = shell.row(), ring.member.ring.view
    group = shell.metadata.read(rows.GROUP, state.key)
    if row is None or view is None or not isinstance(group, GroupRow):
        return
    present = [member.pid for member in view.known()]
    # A member may be newer than our view of the ring: it is in the group's row already.
    grouped = [member.id.pid for member in group.members]
    stale = [pid for pid in row.gm_pids if pid not in grouped and pid not in present]
    ring.feed(gm.ValidateMembers((*present, *stale)))


# -- deaths and promotion --------------------------------------------------------------------------

# What a queue process does when others of its ring died; above all, how a mirror becomes the
# master.
#
# After rabbit/rabbit_mirror_queue_slave.erl (gm_deaths, promote_me) and
# rabbit_mirror_queue_misc.erl (remove_from_queue). Deaths come from the ring, so everything that
# the dead master told has been applied before. The decision is made in a transaction on the row
# (rows.remove_dead): every mirror comes to the same one.

log = logging.getLogger("shalott.broker.mirrored")

PROMOTION_LATE_MS = 500


async def master_down(state: QueueState, shell: QueueShell, master: Pid) -> None:
    """The master that this mirror follows is dead or out of reach."""
    # The ring is lazy: without some traffic its members wouldn't hear of the death. It tells the
    # death when all that the master said has come round. Who took it for dead before that, on the
    # occasion of another death, would be promoted without what others hold already.
    shell.broadcast(ins.ProcessDeath())
    assert state.ring.gm is not None
    view = state.ring.gm.member.ring.view
    if view is None or all(member.pid != master for member in view.known()):
        # It never got into the ring, or is out of it already: the ring will not report it.
        await members_died(state, shell, (master,))


async def members_died(state: QueueState, shell: QueueShell, deaths: tuple[Pid, ...]) -> None:
    if state.role is None:
        return
    if shell.env.buggify("promotion.late"):  # others may have decided by then
        await pause_ms(shell.env.rng.random() * PROMOTION_LATE_MS)
    # All that ever died: a master that stays recorded because no mirror may replace it is still
    # dead.
    state.ring.known_dead.update(dict.fromkeys(deaths))
    shell.env.witness("deaths", shell.pid, deaths)
    dead = tuple(state.ring.known_dead)
    unsynced = not shell.rules.obeys_promote_on_failure
    removal = await shell.transactions.transact(
        lambda tx: rows.remove_dead(tx, state.key, shell.pid, dead, promotes_unsynced=unsynced)
    )
    is_master = isinstance(state.role, Master)
    log.info(log_lines.saw_deaths(state.key, shell.pid, deaths, is_master=is_master))
    if isinstance(state.role, Master) and not shell.rules.expects_other_masters:
        recorded = shell.pid if removal.row is None else removal.row.pid
        assert recorded == shell.pid, f"case_clause in gm_deaths: {recorded} is the master"
    match removal.outcome:
        case "gone" | "not_member":
            await ending.out_of_place(state, shell)
        case "not_synced":
            # ha-promote-on-failure=when-synced: the queue waits for its old master instead.
            assert isinstance(state.role, Mirror)
            shell.emit("not_promoted", depth=state.role.queue.messages.depth)
            await shell.context.storage.wipe(state.key)
            shell.exit("shutdown")
        case "same":
            assert removal.row is not None
            shell.env.witness("stays", shell.pid, removal.row.pid)
            if isinstance(state.role, Master):
                if await ending.yields(state, shell, stops_mirrors=True):
                    return
                shell.emit("set_changed", removed=[pid.node for pid in deaths])
            mirroring.replace_dead(state, shell, removal.row, deaths)
        case "other":
            _follow(state, shell, removal)
        case "promoted":
            _promote(state, shell, removal)
            assert removal.row is not None
            mirroring.replace_dead(state, shell, removal.row, deaths)


def _follow(state: QueueState, shell: QueueShell, removal: rows.Removal) -> None:
    if not isinstance(state.role, Mirror):
        shell.exit("shutdown")
    assert removal.master is not None
    roles.follow(shell, state.role, removal.master)
    shell.broadcast(ins.ProcessDeath())


def _promote(state: QueueState, shell: QueueShell, removal: rows.Removal) -> None:
    mirror, row = state.role, removal.row
    if isinstance(mirror, Master):
        return  # it is the master already, and was just put back into the row
    assert mirror is not None and row is not None
    log.info(log_lines.promoting(state.key, shell.pid))
    mirror.confirms.flush()
    obliged = not policy.promotes_unsynced_on_failure(row)
    shell.env.witness("promoted", state.key, str(shell.pid), obliged)
    master = roles.become_master(
        state, shell, mirror.queue, row, mirror.confirms.inheritance(), started_as="promoted"
    )
    shell.emit(
        "promoted",
        synchronised=removal.was_synchronised,
        master_was=None if removal.master_was is None else removal.master_was.node,
        depth=master.queue.messages.depth,
        reason="" if removal.was_synchronised else "L1: an unsynchronised mirror was promoted",
    )
    master.requeue_all()
    master.tell_depth()
    master.take_deliveries()
    told = shell.pid, master.confirms.owed_ids, master.queue.messages.flags
    shell.env.witness("succeeded", *told)
    syncing.maybe_auto_sync(state, shell, None)
