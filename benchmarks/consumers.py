"""How fast the checkers of ``consume`` judge: ``python benchmarks/consumers.py [deliveries]``.

The history is built column by column: as many publishes, deliveries and acknowledgements, through
eight queues and forty consumers with windows of 50, a hundredth acknowledged with ``multiple`` and
a hundredth requeued and delivered again, and a loss in a thousand. Values count up, as generators
give them. Prints the seconds of all
checkers together, those of each, the machine's load, and the process's peak memory.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

from shalott.checkers.consumers.consume_rules import ConsumeRules, QueueRules
from shalott.checkers.consumers.consumer_checkers import consumer_checkers
from shalott.core.history import HISTORY_SCHEMA, History, events_table

QUEUES, CONSUMERS, WINDOW = 8, 40, 50
STEP_NS = 100_000
LATENCY_NS = 2_000_000


def build(count: int) -> tuple[History, ConsumeRules, int]:
    """A history of ``count`` messages, its rules, and how many messages it loses."""
    value = np.arange(count, dtype=np.int64) + (1 << 40)
    queue = np.arange(count) % QUEUES
    lost = np.arange(count) % 1000 == 500
    published_ns = 2_000_000_000 + np.arange(count) * STEP_NS
    given = np.flatnonzero(~lost)
    requeued = np.arange(len(given)) % 100 == 50
    again = given[requeued]
    message = np.concatenate((given, again))
    # A queue's messages go round its five consumers; what comes again comes to the same one.
    consumer = (message % QUEUES) + QUEUES * ((message // QUEUES) % (CONSUMERS // QUEUES))
    came_ns = np.concatenate(
        (published_ns[given] + LATENCY_NS, published_ns[again] + 3 * LATENCY_NS)
    )
    order = np.argsort(came_ns, kind="stable")
    message, consumer, came_ns = message[order], consumer[order], came_ns[order]
    is_again = (np.arange(len(order)) >= len(given))[order]
    gives_back = np.concatenate((requeued, np.zeros(len(again), bool)))[order]
    by_consumer = np.argsort(consumer, kind="stable")
    begin = np.concatenate(([0], np.cumsum(np.bincount(consumer, minlength=CONSUMERS))))[:-1]
    tag = np.empty(len(order), dtype=np.int64)
    tag[by_consumer] = np.arange(len(order)) - begin[consumer[by_consumer]] + 1
    names = [f"c{number}" for number in range(CONSUMERS)]
    delivered = [
        f'{{"consumer":"{names[c]}","channel":"{names[c]}","tag":{t}}}'
        for c, t in zip(consumer.tolist(), tag.tolist(), strict=True)
    ]
    several = (np.arange(len(order)) % 100 == 7) & ~gives_back
    endings = {(True, False): ',"multiple":true', (False, True): ',"requeue":true'}
    settled = [
        f'{{"channel":"{names[c]}","{"upto" if m else "tag"}":{t}{endings.get((m, g), "")}}}'
        for c, t, m, g in zip(
            consumer.tolist(), tag.tolist(), several.tolist(), gives_back.tolist(), strict=True
        )
    ]
    routes = [f'{{"to":["q{number}"]}}' for number in range(QUEUES)]
    routed = pa.array(routes).take(pa.array(queue))
    end_ns = int(came_ns.max()) + 10_000_000_000
    parts = [
        _part("enqueue", queue, value, published_ns, LATENCY_NS // 2, routed),
        _part("deliver", queue[message], value[message], came_ns, 0, pa.array(delivered), is_again),
        _part("ack", queue[message], value[message], came_ns + LATENCY_NS, LATENCY_NS // 2,
              pa.array(settled), gives_back=gives_back),
        *_consumers(end_ns),
        *_surroundings(end_ns),
    ]  # fmt: skip
    table = pa.concat_tables(parts).sort_by("invoke_ns")
    table = table.set_column(0, "index", pa.array(np.arange(table.num_rows)))
    rules = ConsumeRules(queues=tuple(QueueRules(name=f"q{n}") for n in range(QUEUES)))
    return History(ops=table.cast(HISTORY_SCHEMA), events=_events(end_ns)), rules, int(lost.sum())


def _part(
    f: str,
    queue: Any,
    value: Any,
    invoke_ns: Any,
    took_ns: int,
    extra: pa.Array,
    flagged: Any = None,
    gives_back: Any = None,
) -> pa.Table:
    size = len(queue)
    names = [f"q{number}" for number in range(QUEUES)]
    fs = pa.array([f] * 1).take(pa.array(np.zeros(size, np.int32)))
    if gives_back is not None:
        fs = pa.array(["ack", "nack"]).take(pa.array(gives_back.astype(np.int32)))
    columns = {
        "index": pa.array(np.zeros(size, np.int64)),
        "process": pa.array((queue % 50).astype(np.int32)),
        "node": pa.array(["n1", "n2", "n3"]).take(pa.array((np.arange(size) % 3).astype(np.int32))),
        "f": fs,
        "key": pa.array(names).take(pa.array(queue.astype(np.int32))),
        "value": pa.array(value),
        "offset": pa.nulls(size, pa.int64()),
        "type": pa.array(["ok"]).take(pa.array(np.zeros(size, np.int32))),
        "invoke_ns": pa.array(invoke_ns),
        "complete_ns": pa.array(invoke_ns + took_ns),
        "redelivered": pa.nulls(size, pa.bool_()) if flagged is None else pa.array(flagged),
        "error": pa.nulls(size, pa.string()),
        "extra": extra,
        "due_ns": pa.nulls(size, pa.int64()),
    }
    return pa.Table.from_arrays([columns[n] for n in HISTORY_SCHEMA.names], schema=HISTORY_SCHEMA)


def _row(process: int, f: str, key: str, begin: int, end: int, **more: Any) -> dict[str, Any]:
    row = dict.fromkeys(HISTORY_SCHEMA.names)
    row |= {"index": 0, "process": process, "node": "n1", "f": f, "key": key, "type": "ok"}
    return row | {"invoke_ns": begin, "complete_ns": end} | more


def _consumers(end_ns: int) -> list[pa.Table]:
    rows = []
    for number in range(CONSUMERS):
        said = {"consumer": f"c{number}", "channel": f"c{number}", "prefetch": 50 * WINDOW}
        said |= {"active_ns": 1_100_000_000, "leaving_ns": end_ns - 1, "ended": "cancelled"}
        key = f"q{number % QUEUES}"
        rows.append(_row(number, "consumer", key, 1_000_000_000, end_ns, extra=json.dumps(said)))
        over = {"channel": f"c{number}", "ended": "closed"}
        rows.append(_row(number, "channel", "", 900_000_000, end_ns, extra=json.dumps(over)))
    return [pa.Table.from_pylist(rows, HISTORY_SCHEMA)]


def _surroundings(end_ns: int) -> list[pa.Table]:
    names = ("load", "heal", "settle", "drain")
    at = [0, end_ns, end_ns + 10, end_ns + 20, end_ns + 1_000_000_000]
    rows = [
        _row(-1, "phase", "", at[n], at[n + 1], extra=json.dumps({"phase": name}))
        for n, name in enumerate(names)
    ]
    for queue in range(QUEUES):
        for node in ("n1", "n2", "n3"):
            row = _row(0, "dequeue", f"q{queue}", at[3] + 5, at[3] + 9, type="fail", error="empty")
            rows.append(row | {"node": node})
    return [pa.Table.from_pylist(rows, HISTORY_SCHEMA)]


def _events(end_ns: int) -> pa.Table:
    def event(queue: int, at_ns: int, kind: str) -> dict[str, Any]:
        return {"at_ns": at_ns, "wall_ns": at_ns, "run_ns": at_ns, "node": "n1", "incarnation": 1,
                "group": f"q{queue}", "kind": kind, "role": "master", "epoch": 1,
                "detail": {"started_as": "declared"}}  # fmt: skip

    rows = [event(queue, 100_000_000, "role") for queue in range(QUEUES)]
    rows += [event(queue, end_ns + 1_000_000_000, "acked") for queue in range(QUEUES)]
    return events_table(rows)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    history, rules, lost = build(count)
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begun, cpu = time.perf_counter(), time.process_time()
    parts: list[str] = []
    for checker in consumer_checkers(rules):
        since = time.perf_counter()
        result = checker.check(history)
        parts.append(f"{checker.name} {time.perf_counter() - since:.2f}")
        expected = checker.name != "consumer-fates"
        assert result.valid is expected, (checker.name, result.notes, result.anomalies)
        if not expected:
            assert result.counts["lost-count"] == lost, result.counts
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"consume: {history.ops.num_rows:,} rows in {seconds:.2f} s ({cpu:.2f} s CPU)")
    print("seconds:", ", ".join(parts))
    print(f"peak memory {peak_mb:.0f} MiB, of which {before_mb:.0f} MiB before the checks")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
