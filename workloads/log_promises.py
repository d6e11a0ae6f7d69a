"""Which invariants of a replicated log are judged, and which of them a plan's settings promise.

The invariants are in docs/protocols.md 2.9. I1 and I3 need acknowledgements that wait for the
copies and for the disks: what the profile ``safe`` sets (harness/core/profiles.py). Without these
they are judged and told.
"""

from __future__ import annotations

from collections.abc import Sequence

from shalott.checkers.base import Checker
from shalott.checkers.mastership.elections.invariants import (
    AckedOnMembers,
    MasterFromSet,
    MasterHasAcked,
    OneMasterAnEpoch,
)
from shalott.harness.core.plan import Plan, nodes_hosting


def invariant_checkers(plan: Plan) -> Sequence[Checker]:
    """I1 to I4; without controllers there are no sets, and so no I2."""
    promised, by_set = keeps_acknowledged(plan), plan.system.name == "controller"
    from_set = (MasterFromSet(unclean=allows_unclean(plan)),) if by_set else ()
    nodes = len(nodes_hosting(plan, "broker"))
    # HAService's slaves acknowledge what is written; the others' copies count when flushed.
    on_members = AckedOnMembers(
        promised,
        by_set=by_set,
        flushed=plan.system.name != "master-slave",
        nodes=nodes,
        copies=copies_promised(plan),
    )
    return (
        on_members,
        *from_set,
        MasterHasAcked(promised),
        OneMasterAnEpoch(),
    )


def allows_unclean(plan: Plan) -> bool:
    """Whether a master may come from outside of the SyncStateSet."""
    return bool(plan.system.policy.get("controller.enable_elect_unclean_master", False))


def keeps_acknowledged(plan: Plan) -> bool:
    """Whether what is acknowledged is on the disks of all who may be master next."""
    policy = plan.system.policy
    match plan.system.name:
        case "dledger":
            return policy.get("raft.flush_interval_ms") == 0
        case "controller":
            waits = bool(policy.get("ha.all_ack_in_sync_state_set")) and not allows_unclean(plan)
        case _:
            waits = policy.get("broker.role") == "SYNC_MASTER"
    return waits and policy.get("store.flush") == "sync"


def copies_promised(plan: Plan) -> int:
    """On how many nodes it is, whoever these are; a set says more."""
    match plan.system.name:
        case "dledger":
            return len(nodes_hosting(plan, "broker")) // 2 + 1
        case "master-slave" if plan.system.policy.get("broker.role") == "SYNC_MASTER":
            return max(2, int(plan.system.policy.get("ha.in_sync_replicas", 1)))
    return 1
