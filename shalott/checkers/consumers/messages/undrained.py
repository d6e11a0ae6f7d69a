"""Queues of which nobody knows that they were empty when the run was over."""

from __future__ import annotations

import numpy as np

from shalott.checkers.consumers.case.case import Case
from shalott.checkers.history.columns import NEVER

NO_QUEUE = ("404", "not found", "not_found", "no queue")  # what a queue that is gone answers


def undrained_queues(case: Case) -> dict[str, str]:
    """Each with the reason; as checkers/queues/total_queue.py has it."""
    rows = case.rows
    codes = np.union1d(rows.published.queue, rows.deliveries.queue)
    queues = [rows.queues[int(code)] for code in codes if code >= 0]
    drain = case.around.phase("drain")
    if not case.complete:
        return dict.fromkeys(queues, "the recording was cut short")
    if drain is None:
        return dict.fromkeys(queues, "there was no drain")
    if drain.end_ns is None:
        return dict.fromkeys(queues, "the drain did not end")
    nodes = [node for node in rows.nodes if node and node not in case.around.left_out]
    silent: dict[str, str] = {}
    for queue in queues:
        heard = _heard(case, queue, drain.begin_ns)
        missing = [node for node in nodes if node not in heard]
        if missing and not _may_be_gone(case, queue):
            silent[queue] = f"{', '.join(missing)} never said that it was empty"
    return silent


def _heard(case: Case, queue: str, since_ns: int) -> set[str]:
    code = case.rows.queues.index(queue)
    if code not in case.rows.emptied:
        return set()
    late = case.rows.emptied[code] >= since_ns
    said = np.unique(case.rows.emptied_by[code][late])
    return {case.ops.node.names[each] for each in said}


def _may_be_gone(case: Case, queue: str) -> bool:
    """Whether it was deleted, or may have been, and was not declared again for sure: then there is
    nothing to drain, if an answer says so."""
    code = case.rows.queues.index(queue)
    expires = case.queue_rules(code).expires_ms > 0
    last = [each for each in case.rows.changes if each.queue == code and not each.failed]
    if not expires and not (last and (last[-1].gone or last[-1].end_ns == NEVER)):
        return False
    ops = case.ops
    asked = ops.f.equal("dequeue") & ops.key.equal(queue) & ops.type.equal("fail")
    errors = {ops.error.names[each] for each in np.unique(ops.error.codes[asked])}
    return any(text in error.lower() for error in errors for text in NO_QUEUE)
