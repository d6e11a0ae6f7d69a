"""locks: whether the locks of a run were of use at all: acquired often enough, and not lost.

Whether two clients held one at once is the linearizability checker's business. A lock is one
message; if that is lost no client gets the lock again. It is known to be lost if after the heal,
when all holders had let go or their connections were gone, no attempt got it or ended without an
answer, and every node answered at least twice that there was nothing to get.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.history.columns import Operations, client_operations
from shalott.checkers.history.faults import Surroundings, read_surroundings
from shalott.core.history import History

EMPTY = "empty"
REFUSALS_WANTED = 2  # of each node

NO_FENCING = (
    "No fencing token is used: what a lock protects can't tell a late holder from the present one."
)


@dataclass(frozen=True, slots=True)
class Locks:
    """``min_acquired``: fewer acquisitions in the whole run prove nothing."""

    min_acquired: int = 25
    name: str = "locks"

    def check(self, history: History) -> Result:
        ops = client_operations(history)
        acquires, releases = ops.f.equal("acquire"), ops.f.equal("release")
        ok = ops.type.equal("ok")
        acquired = int((acquires & ok).sum())
        lost = lost_locks(ops, read_surroundings(history)) if history.complete else {}
        few = acquired < self.min_acquired
        doubt = (
            f"Only {acquired} locks were acquired; fewer than {self.min_acquired} prove nothing."
        )
        return Result(
            checker=self.name,
            valid=False if lost else ("unknown" if few else True),
            counts={
                "attempt-count": int(acquires.sum()),
                "acquired-count": acquired,
                "refused-count": int((acquires & ops.error.equal(EMPTY)).sum()),
                "unanswered-acquire-count": int((acquires & ops.type.equal("info")).sum()),
                "released-count": int((releases & ok).sum()),
                "broken-hold-count": int((releases & ops.type.equal("info")).sum()),
                "lost-lock-count": len(lost),
            },
            anomalies=tuple(
                Anomaly(
                    kind="lost-lock",
                    summary=f"no client could acquire {lock} after the heal, and none held it",
                    operations=refusals[:OPERATIONS_MAX],
                    detail={"queue": lock},
                )
                for lock, refusals in lost.items()
            ),
            notes=((doubt,) if few else ()) + (NO_FENCING,),
        )


def lost_locks(ops: Operations, around: Surroundings) -> dict[str, tuple[int, ...]]:
    """Locks whose message is gone, each with the refusals that show it."""
    drain = around.phase("drain")
    if drain is None or drain.end_ns is None:
        return {}
    late = ops.f.equal("acquire") & (ops.invoke_ns >= drain.begin_ns)
    refused = late & ops.type.equal("fail") & ops.error.equal(EMPTY)
    taken = late & (ops.type.equal("ok") | ops.type.equal("info"))
    nodes = np.unique(ops.node.codes)
    lost = {}
    for code in np.unique(ops.key.codes[ops.f.equal("acquire")]):
        of_lock = ops.key.codes == code
        times = np.bincount(ops.node.codes[refused & of_lock], minlength=int(nodes.max()) + 1)
        if not (taken & of_lock).any() and (times[nodes] >= REFUSALS_WANTED).all():
            rows = np.flatnonzero(refused & of_lock)
            lost[ops.key.names[code]] = tuple(int(index) for index in ops.index[rows])
    return lost
