"""A run made up for the tests of reports: faults, losses, dual masters, all at known times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from shalott.core.history import EVENT_SCHEMA, HISTORY_SCHEMA, History
from shalott.core.plan import (
    ClusterPlan,
    FaultAction,
    GatePlan,
    Plan,
    SystemPlan,
    WorkloadPlan,
)

NODES = ("n1", "n2", "n3")
QUEUES = ("orders", "payments")
S = 1_000_000_000
MS = 1_000_000

# id, kind, target, nodes, links, begin s, end s
FAULTS: tuple[tuple[int, str, str, tuple[str, ...], tuple[tuple[str, str], ...], int, int], ...] = (
    (0, "partition-isolate-master", "master", ("n1",),
     (("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1")), 8, 18),
    (1, "kill", "one", ("n2",), (), 24, 28),
    (2, "pause", "one", ("n3",), (), 34, 38),
    (3, "partition-halves", "", ("n1",), (("n1", "n2"), ("n1", "n3")), 36, 46),
)  # fmt: skip


def example_plan(seconds: int = 60, rate_hz: float = 500) -> Plan:
    return Plan(
        name="queue-mirrored-partition",
        seed=7,
        time_limit_ms=seconds * 1000,
        cluster=ClusterPlan(backend="docker", nodes=NODES),
        system=SystemPlan(
            name="mirrored",
            profile="upstream",
            parameters={"partition_mode": "autoheal", "net_tick_ms": 4000},
            policy={"ha-mode": "all", "ha-sync-mode": "manual"},
        ),
        workload=WorkloadPlan(
            name="queue", rate_hz=rate_hz, concurrency=15, parameters={"queues": 2}
        ),
        gates=GatePlan(),
        faults=tuple(
            FaultAction(
                id=id,
                at_ms=begin * 1000,
                duration_ms=(end - begin) * 1000,
                kind=kind,
                target=target,
            )
            for id, kind, target, _, _, begin, end in FAULTS
        ),
    )


@dataclass
class _Rows:
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, f: str, begin_ns: int, end_ns: int | None, **cells: Any) -> None:
        extra = cells.pop("extra", None)
        self.rows.append(
            {
                "process": -1, "node": "", "f": f, "key": "", "type": "info",
                "invoke_ns": begin_ns, "complete_ns": end_ns,
                "extra": None if extra is None else json.dumps(extra), **cells,
            }
        )  # fmt: skip


def example_history(
    seconds: int = 60, rate_hz: float = 500, seed: int = 7, node_events: bool = True
) -> History:
    """Losses: what n1 acknowledged of ``orders`` while it was alone, from 8 s to 18 s."""
    rng = np.random.default_rng(seed)
    rows = _Rows()
    _surroundings(rows, seconds)
    _clients(rows, rng, seconds, rate_hz)
    rows.rows.sort(key=lambda row: row["invoke_ns"])
    for index, row in enumerate(rows.rows):
        row["index"] = index
    events = _events(seconds) if node_events else []
    return History(
        ops=pa.Table.from_pylist(rows.rows, schema=HISTORY_SCHEMA),
        events=pa.Table.from_pylist(events, schema=EVENT_SCHEMA),
    )


def _surroundings(rows: _Rows, seconds: int) -> None:
    phases = [("boot", 0, 1), ("load", 1, seconds), ("heal", seconds, seconds + 0.6),
              ("settle", seconds + 0.6, seconds + 3), ("drain", seconds + 3, seconds + 5),
              ("end", seconds + 5, seconds + 5.5)]  # fmt: skip
    for name, begin, end in phases:
        rows.add("phase", int(begin * S), int(end * S), extra={"phase": name})
    for id, kind, target, nodes, links, begin, end in FAULTS:
        effective, healed = begin * S + 40 * MS, end * S + 150 * MS
        rows.add(
            kind, begin * S, healed,
            extra={"fault": id, "kind": kind, "target": target, "nodes": nodes, "links": links,
                   "effective_ns": effective, "healed_ns": healed, "proved_effective": True,
                   "proved_healed": id != 3},
        )  # fmt: skip
        checks = [f"reach {a}->{b}" for a, b in links] or [f"status {node}" for node in nodes]
        for phase, at in (("effective", effective), ("healed", healed)):
            for check in checks:
                expected = phase == "healed"
                seen = expected if (id, phase) != (3, "healed") else not expected
                extra = {"fault": id, "phase": phase, "check": check}
                extra |= {"expected": expected, "seen": seen}
                outcome = "ok" if seen == expected else "info"
                rows.add("probe", at, at + 5 * MS, type=outcome, extra=extra)
    for tick in range(2 * seconds):
        at = S + tick * S // 2
        for node in NODES:
            _observe(rows, node, at)


def _observe(rows: _Rows, node: str, at: int) -> None:
    down = node == "n2" and 24 * S < at < 28 * S or node == "n3" and 34 * S < at < 38 * S
    if down:
        rows.add("observe", at, at + 400 * MS, node=node, error="timeout")
        return
    claims = [
        {"group": queue, "role": _role(queue, node, at), "epoch": 1 + (at > 13 * S) + (at > 26 * S)}
        for queue in QUEUES
    ]
    rows.add("observe", at, at + 20 * MS, node=node, type="ok", extra={"claims": claims})


def _role(queue: str, node: str, at: int) -> str:
    """Of orders: n1 to 18 s; n2 too from 12 s, and to its death at 24 s; then n3."""
    if queue == "payments":
        return "master" if node == "n3" else "mirror"
    if node == "n1":
        return "master" if at < 18 * S else "mirror"
    if node == "n2":
        return "master" if 12 * S <= at < 24 * S else "mirror"
    return "master" if at >= 25 * S else "mirror"


def _clients(rows: _Rows, rng: np.random.Generator, seconds: int, rate_hz: float) -> None:
    count = int((seconds - 1) * rate_hz)
    at = np.sort(rng.uniform(S, seconds * S, count)).astype(np.int64)
    latency = (rng.lognormal(0.9, 0.55, count) * MS).astype(np.int64)
    is_enqueue = rng.random(count) < 0.6
    ready: dict[str, list[int]] = {queue: [] for queue in QUEUES}
    for number in range(count):
        begin, node = int(at[number]), NODES[rng.integers(3)]
        queue = QUEUES[rng.integers(2)]
        process = int(rng.integers(15))
        end, kind, error = _outcome(begin, int(latency[number]), node, float(rng.random()))
        cells = {"process": process, "node": node, "key": queue, "type": kind, "error": error}
        if is_enqueue[number]:
            rows.add("enqueue", begin, end, value=1000 + number, **cells)
            lost = node == "n1" and queue == "orders" and 8 * S < begin < 18 * S
            if kind == "ok" and not lost or kind == "info" and rng.random() < 0.5:
                ready[queue].append(1000 + number)
        elif kind == "ok" and ready[queue]:
            value = ready[queue].pop(0)
            rows.add("dequeue", begin, end, value=value, redelivered=False, **cells)
        elif kind == "ok":
            rows.add("dequeue", begin, end, **(cells | {"type": "fail", "error": "empty"}))
        else:
            rows.add("dequeue", begin, end, **cells)
    _drain(rows, ready, (seconds + 3) * S)


def _outcome(begin: int, latency: int, node: str, luck: float) -> tuple[int, str, str | None]:
    if node == "n2" and 24 * S < begin < 28 * S:
        return begin + latency // 4, "fail", "connection refused"
    if node == "n3" and 34 * S < begin < 38 * S:
        return begin + 5 * S, "info", "confirm timed out"
    if 8 * S < begin < 12 * S and node != "n1":
        return (
            (begin + 5 * S, "info", "confirm timed out")
            if luck < 0.5
            else (begin + 30 * latency, "ok", None)
        )
    if 36 * S < begin < 46 * S:
        latency *= 12
    return begin + latency, "ok", None


def _drain(rows: _Rows, ready: dict[str, list[int]], at: int) -> None:
    for queue, values in ready.items():
        step = (S + S // 2) // max(1, len(values))
        for number, value in enumerate(values):
            begin = at + number * step
            rows.add("dequeue", begin, begin + step // 2 + 1, value=value, process=number % 15,
                     node=NODES[number % 3], key=queue, type="ok", redelivered=False)  # fmt: skip
        for process, node in enumerate(NODES):
            begin = at + S + 3 * S // 4
            cells = {"process": process, "node": node, "key": queue, "type": "fail"}
            rows.add("dequeue", begin, begin + MS, error="empty", **cells)


def _events(seconds: int) -> list[dict[str, Any]]:
    changes: list[tuple[float, str, str, str, str, int, Any]] = [
        (0.4, node, "", "role", "running", 0, None) for node in NODES
    ]
    for queue, master in (("orders", "n1"), ("payments", "n3")):
        for node in NODES:
            changes.append(
                (0.8, node, queue, "role", "master" if node == master else "mirror", 1, None)
            )
    changes += [
        (12.0, "n2", "orders", "promoted", "master", 2, {"synchronised": True}),
        (12.0, "n2", "orders", "role", "master", 2, None),
        (18.3, "n1", "orders", "discarded", "none", 2, {"reason": "autoheal", "count": 240}),
        (18.3, "n1", "orders", "role", "none", 2, None),
        (18.9, "n1", "orders", "role", "mirror", 2, None),
        (25.0, "n3", "orders", "role", "master", 3, None),
        (28.2, "n2", "", "role", "running", 0, None),
        (28.6, "n2", "orders", "role", "mirror", 3, None),
        (28.6, "n2", "payments", "role", "mirror", 1, None),
        (46.2, "n1", "", "role", "paused", 0, None),
        (47.5, "n1", "", "role", "running", 0, None),
    ]
    for tenth in range(10, seconds * 10):
        at = tenth / 10
        for node in NODES:
            if _role("orders", node, int(at * S)) == "master" and not (node == "n1" and at > 17.5):
                ns = int(at * S)
                detail = {"first_ns": ns - 90 * MS, "last_ns": ns - MS, "count": 9}
                epoch = 1 if node == "n1" else 2 if node == "n2" else 3
                changes.append((at, node, "orders", "acked", "master", epoch, detail))
    return _event_rows(sorted(changes, key=lambda change: change[0]))


def _event_rows(
    changes: Sequence[tuple[float, str, str, str, str, int, Any]],
) -> list[dict[str, Any]]:
    return [
        {
            "at_ns": int(at * S), "wall_ns": int(at * S), "run_ns": int(at * S), "node": node,
            "incarnation": 2 if node == "n2" and at > 28 else 1, "group": group, "kind": kind,
            "role": role, "epoch": epoch, "detail": None if detail is None else json.dumps(detail),
        }
        for at, node, group, kind, role, epoch, detail in changes
    ]  # fmt: skip
