"""The checkers that workloads share, as a plan's gates and its system's promises configure them.

The invariants of replicated logs are those of docs/protocols.md 2.9. I1 and I3 need
acknowledgements that wait for the copies and for the disks, as the profile ``safe`` sets them.
Without these they are judged and reported, but break no promise (SystemRecord.promises).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shalott.checkers.checker import Checker
from shalott.checkers.mastership.invariants import (
    AckedOnMembers,
    MasterFromSet,
    MasterHasAcked,
    OneMasterAnEpoch,
)
from shalott.checkers.queues.guarantees import ClientGuarantees
from shalott.checkers.runs.standard import common_checkers, standard_checkers
from shalott.cluster.systems.record import SYSTEMS, promises_of
from shalott.core.documented_loss import DocumentedLoss
from shalott.core.plan import Plan, nodes_hosting


def message_checkers(plan: Plan, guarantees: ClientGuarantees) -> Sequence[Checker]:
    """What became of messages in queues, and all that ``run_checkers`` judge."""
    name = plan.system.name
    closed = SYSTEMS.find(name).closes(plan) if SYSTEMS.has(name) else ()
    guarantees = replace(guarantees, documented=documented_losses(plan))
    return standard_checkers(
        plan.gates,
        poll_round_ms=plan.observe_interval_ms,
        guarantees=replace(guarantees, closed=(*guarantees.closed, *closed)),
    )


def documented_losses(plan: Plan) -> tuple[DocumentedLoss, ...]:
    """The ways of loss that the system's record names, and the plan's settings leave open."""
    name = plan.system.name
    return tuple(SYSTEMS.find(name).documented_losses(plan)) if SYSTEMS.has(name) else ()


def run_checkers(plan: Plan) -> Sequence[Checker]:
    """The checkers that do not ask what became of messages: masters, outages, counts."""
    return common_checkers(plan.gates, poll_round_ms=plan.observe_interval_ms)


def invariant_checkers(plan: Plan) -> Sequence[Checker]:
    """I1 to I4; where acknowledgements wait for no SyncStateSet there is no I2, and where masters
    do not tell how far their logs go there is no I3."""
    promises = promises_of(plan)
    from_set = (MasterFromSet(unclean=promises.unclean),) if promises.by_set else ()
    on_members = AckedOnMembers(
        promises.keeps_acknowledged,
        by_set=promises.by_set,
        flushed=promises.flushed,
        nodes=len(nodes_hosting(plan, "broker")),
        copies=promises.copies,
    )
    has_acked = (MasterHasAcked(promises.keeps_acknowledged),) if promises.masters_tell_end else ()
    return (on_members, *from_set, *has_acked, OneMasterAnEpoch())
