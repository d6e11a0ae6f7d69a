"""Order and linearizability of a run's objects, by the checkers that its plan names."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from shalott.checkers.history.client_history import concurrent_history
from shalott.checkers.history.columns import Operations
from shalott.checkers.linearizability.checking import check
from shalott.checkers.linearizability.run_checker import repeated_deliveries
from shalott.checkers.queues.fifo_order import queue_order
from shalott.spark_analysis.kernels.rules import ObjectRules
from shalott.spark_analysis.kernels.run_data import RunData
from shalott.spark_analysis.kernels.tables import OPERATIONS_MAX, Row

TIME_LIMIT_S = 60.0  # for one object: what takes longer is unknown
MEMORY_LIMIT_BYTES = 1 << 30


def fifo_rows(run: str, data: RunData) -> Iterator[Row]:
    ops = data.ops
    for code in np.unique(ops.key.codes):
        name = ops.key.names[code]
        if not name:
            continue
        order = queue_order(ops, name)
        found = order.answer.valid is False
        proof = [int(order.judged.place[row]) for row in order.answer.operations] if found else []
        yield {
            "run": run, "kind": "fifo", "lane": name, "breach": "order" if found else "",
            "judged": order.compared, "count": order.overtaken if found else 0,
            "operations": proof[:OPERATIONS_MAX],
        }  # fmt: skip


def object_rows(
    run: str, ops: Operations, rules: ObjectRules, bucket: int = 0, buckets: int = 1
) -> Iterator[Row]:
    """Rows of LINEARIZABILITY; of a huge run those objects whose names fall into the bucket."""
    if rules.exactly_once and (repeated := repeated_deliveries(ops)):
        if bucket == 0:
            why = f"{repeated} messages were delivered again"
            yield _object_row(run, "", rules.model, "unknown", "", why, 0, [])
        return
    wanted = ops.f.among(rules.fs)
    for code in np.unique(ops.key.codes[wanted]):
        name = ops.key.names[code]
        if zlib.crc32(name.encode()) % buckets != bucket:
            continue
        history = concurrent_history(ops, wanted & (ops.key.codes == code))
        verdict = check(
            history,
            rules.model,
            time_limit_s=TIME_LIMIT_S,
            memory_limit_bytes=MEMORY_LIMIT_BYTES,
            threads=1,  # of the engine: other tasks have the other cores
        )
        violation = verdict.violation
        proof = [int(history.place[row]) for row in violation.operations] if violation else []
        reason = violation.reason if violation else verdict.cause or ""
        valid = str(verdict.valid).lower()
        yield _object_row(
            run, name, rules.model, valid, verdict.how, reason, len(history), proof
        )  # fmt: skip


def _object_row(
    run: str, name: str, model: str, valid: str, how: str, reason: str, judged: int,
    proof: list[int],
) -> Row:  # fmt: skip
    return {
        "run": run, "object": name, "model": model, "valid": valid, "how": how,
        "reason": reason, "judged": judged, "operations": proof[:OPERATIONS_MAX],
    }  # fmt: skip
