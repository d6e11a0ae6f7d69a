"""Which invariants of a replicated log are judged, and which of them a plan's settings promise.

The invariants are in docs/protocols.md 2.9. I1 and I3 need acknowledgements that wait for the
copies and for the disks, as the profile ``safe`` sets them. Without these they are judged and told,
but break no promise. What a system promises under a plan's settings is said by its record
(SystemRecord.promises).
"""

from __future__ import annotations

from collections.abc import Sequence

from shalott.checkers.checker import Checker
from shalott.checkers.mastership.invariants import (
    AckedOnMembers,
    MasterFromSet,
    MasterHasAcked,
    OneMasterAnEpoch,
)
from shalott.cluster.systems.record import promises_of
from shalott.core.plan import Plan, nodes_hosting


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
