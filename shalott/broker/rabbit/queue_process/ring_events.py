"""What the ring brings a queue process: it is taken in, others say something, others die, it is
over; and what a process says first when the ring would carry it.
"""

from __future__ import annotations

from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.metadata.records import GroupRow
from shalott.broker.rabbit.mirrored import rows
from shalott.broker.rabbit.queue_process import ending, promotion, starting, syncing
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
                        if mirror.queue.pager.in_delta and isinstance(instruction, ins.Dropped):
                            await shell.reading(mirror.drop_from_disk(instruction))
                        else:
                            mirror.apply(instruction)
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
    row, view = shell.row(), ring.member.view
    group = shell.metadata.read(rows.GROUP, state.key)
    if row is None or view is None or not isinstance(group, GroupRow):
        return
    present = [member.pid for member in view.known()]
    # A member may be newer than our view of the ring: it is in the group's row already.
    grouped = [member.id.pid for member in group.members]
    stale = [pid for pid in row.gm_pids if pid not in grouped and pid not in present]
    ring.feed(gm.ValidateMembers((*present, *stale)))
