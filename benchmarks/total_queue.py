"""How fast total-queue judges a large history: ``python benchmarks/total_queue.py [operations]``.

The history is built column by column: enqueues and dequeues of four queues through five nodes,
half a percent of the acknowledged messages lost in contiguous stretches, some enqueues info, some
deliveries repeated. Prints the seconds of the check alone and the process's peak memory.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import pyarrow as pa

from shalott.checkers.queues.total_queue import TotalQueue
from shalott.core.history import EVENT_SCHEMA, HISTORY_SCHEMA, History

STEP_NS = 20_000


def build(operations: int, seed: int = 1) -> tuple[History, int]:
    """A history of about ``operations`` client operations, and how many messages it loses."""
    rng = np.random.default_rng(seed)
    messages = operations // 2
    ids = rng.permutation(np.arange(messages, dtype=np.int64)) * 7919 + (1 << 40)
    queue = rng.integers(0, 4, messages)
    kind = rng.choice(np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 2]), messages)  # ok, seldom info
    lost = (np.arange(messages) % 20_000 < 100) & (kind == 0)
    delivered = np.flatnonzero(~lost & ((kind == 0) | (rng.random(messages) < 0.5)))
    again = rng.choice(delivered, messages - len(delivered))
    taken = np.concatenate((delivered, again))
    repeated = np.arange(len(taken)) >= len(delivered)
    begun = np.concatenate((np.arange(messages) * 2, taken * 2 + 2001 + repeated * 500)) * STEP_NS
    order = np.argsort(begun, kind="stable")
    count = len(order)
    is_dequeue = np.concatenate((np.zeros(messages, bool), np.ones(len(taken), bool)))[order]
    message = np.concatenate((np.arange(messages), taken))[order]
    flagged = np.concatenate((np.zeros(messages, bool), repeated))[order]
    types = np.where(is_dequeue, 0, kind[message])
    columns = {
        "index": pa.array(np.arange(count)),
        "process": pa.array(rng.integers(0, 50, count).astype(np.int32)),
        "node": _words(rng.integers(0, 5, count), ["n1", "n2", "n3", "n4", "n5"]),
        "f": _words(is_dequeue.astype(np.int32), ["enqueue", "dequeue"]),
        "key": _words(queue[message], ["q0", "q1", "q2", "q3"]),
        "value": pa.array(ids[message]),
        "offset": pa.nulls(count, pa.int64()),
        "type": _words(types, ["ok", "fail", "info"]),
        "invoke_ns": pa.array(begun[order]),
        "complete_ns": pa.array(begun[order] + 1_000_000),
        "redelivered": pa.array(flagged, mask=~is_dequeue),
        "error": pa.nulls(count, pa.string()),
        "extra": pa.nulls(count, pa.string()),
        "due_ns": pa.nulls(count, pa.int64()),
    }
    table = pa.Table.from_arrays([columns[n] for n in HISTORY_SCHEMA.names], schema=HISTORY_SCHEMA)
    return History(ops=table, events=EVENT_SCHEMA.empty_table()), int(lost.sum())


def _words(codes: np.ndarray, names: list[str]) -> pa.Array:
    dictionary = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names))
    return dictionary.cast(pa.string())


def main() -> None:
    operations = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    history, lost = build(operations)
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begun, cpu = time.perf_counter(), time.process_time()
    result = TotalQueue().check(history)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert result.counts["lost-count"] == lost, (result.counts, lost)
    print(f"total-queue: {history.ops.num_rows:,} operations in {seconds:.2f} s ({cpu:.2f} s CPU)")
    print(f"peak memory {peak_mb:.0f} MiB, of which {before_mb:.0f} MiB before the check")
    print(f"lost {lost:,}; {len(result.anomalies)} anomalies; valid {result.valid}")


if __name__ == "__main__":
    main()
