"""From a run's history to what the linearizability checkers take: its clients' operations, ranked.

Times of the run's one clock become ranks; an info may take effect at any later time, or never. One
column holds the value of an operation, so argument and result are both that column, and each model
reads the one that its f means. A dequeue that failed because the queue was empty is an observation:
it becomes an ok that found nothing. What came back corrupted is an
ok of unknown content: it counts as without an answer.
"""

from __future__ import annotations

import numpy as np

from shalott.checkers.engine import new_budget, ranks
from shalott.checkers.history.columns import NEVER as NO_TIME
from shalott.checkers.history.columns import Bools, Ints, Operations
from shalott.checkers.history.concurrent import (
    FAIL,
    INFO,
    INTEGER,
    NEVER,
    NOTHING,
    OK,
    ConcurrentHistory,
    Values,
)

EMPTY = "empty"
CORRUPTED = "corrupted"


def concurrent_history(ops: Operations, rows: Bools) -> ConcurrentHistory:
    """The operations ``rows`` in the order of their invocations. ``place`` is the history's index.

    Raises MemoryError if the machine has not enough memory to rank them.
    """
    picked = np.flatnonzero(rows)
    picked = picked[np.argsort(ops.invoke_ns[picked], kind="stable")]
    kinds = _types(ops, picked)
    invoke_ns = np.ascontiguousarray(ops.invoke_ns[picked])
    ended = kinds != INFO
    complete_ns = np.where(ended, ops.complete_ns[picked], NO_TIME)
    call, ret, _ = ranks(invoke_ns, complete_ns, new_budget())
    values = _values(ops, picked)
    return ConcurrentHistory(
        f=ops.f.take(picked),
        key=ops.key.take(picked),
        argument=values,
        result=values,
        type=kinds,
        process=np.ascontiguousarray(ops.process[picked], dtype=np.int32),
        call=call,
        ret=np.where(ended, ret, np.int32(NEVER)),
        call_ns=invoke_ns,
        ret_ns=np.where(ended, complete_ns, -1),
        place=np.ascontiguousarray(ops.index[picked]),
        dialect="shalott",
    )


def _types(ops: Operations, picked: Ints) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    kinds = np.full(len(picked), INFO, dtype=np.uint8)
    kinds[ops.type.equal("ok")[picked]] = OK
    failed = ops.type.equal("fail")[picked]
    kinds[failed] = FAIL
    found_nothing = ops.f.equal("dequeue") & ops.error.equal(EMPTY)
    kinds[failed & found_nothing[picked]] = OK
    kinds[ops.error.equal(CORRUPTED)[picked]] = INFO
    return kinds


def _values(ops: Operations, picked: Ints) -> Values:
    present = ops.has_value[picked]
    return Values(
        kind=np.where(present, INTEGER, NOTHING).astype(np.uint8),
        number=np.where(present, ops.value[picked], 0).astype(np.int64),
    )
