"""Our mirrored queues and the real RabbitMQ under the same plans, side by side.

    python benchmarks/yardstick.py --out build/yardstick [--only NAME[,NAME]] [--systems
    mirrored,rabbitmq]

Each row is one plan that differs between the two systems in the system's name alone: the loss
windows that replicated queues are known for. Runs go through ``shalott test --plan``, one after the
other; rows that have a result in the output directory already are not run again. Prints a
table as Markdown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shalott.core.plan import (
    ClusterPlan,
    FaultAction,
    GatePlan,
    Plan,
    SystemPlan,
    WorkloadPlan,
    dump_plan,
)

NODES = ("n1", "n2", "n3")
NET_TICK_MS = 8000


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario. ``faults`` are kept short: what happens is the point, not how often."""

    name: str
    text: str
    partition_mode: str
    policy: dict[str, Any]
    faults: tuple[FaultAction, ...]
    time_limit_ms: int = 55_000


def isolate(target: str) -> tuple[FaultAction, ...]:
    """The master, or a named node, alone from second 10, for 25 s: three net ticks."""
    if target == "master":
        kind = "partition-isolate-master"
        return (FaultAction(id=1, at_ms=10_000, duration_ms=25_000, kind=kind, target=target),)
    one = FaultAction(
        id=1,
        at_ms=10_000,
        duration_ms=25_000,
        kind="partition-one",
        target=target,
        nodes=(target,),
    )
    return (one,)


def kill(number: int, at_s: int, node: str, for_s: int) -> FaultAction:
    return FaultAction(
        id=number,
        at_ms=at_s * 1000,
        duration_ms=for_s * 1000,
        kind="kill",
        target=node,
        nodes=(node,),
    )


# Both mirrors come back empty, and then the only node that has the messages dies.
UNSYNCHRONISED = (kill(1, 10, "n2", 3), kill(2, 25, "n3", 3), kill(3, 45, "n1", 20))

AUTOMATIC = {"ha-mode": "all", "ha-sync-mode": "automatic"}
MANUAL = {"ha-mode": "all", "ha-sync-mode": "manual"}
WHEN_SYNCED = {**MANUAL, "ha-promote-on-failure": "when-synced"}

ROWS = (
    Row("ignore-master", "`ignore`, master isolated, its side restarted by the operator", "ignore",
        AUTOMATIC, isolate("master")),
    Row("autoheal-master", "`autoheal`, master isolated", "autoheal", AUTOMATIC, isolate("master")),
    Row("autoheal-mirror", "`autoheal`, a mirror isolated", "autoheal", AUTOMATIC,
        isolate("n3")),
    Row("pause-minority-master", "`pause_minority`, master isolated", "pause_minority", AUTOMATIC,
        isolate("master")),
    Row("unsynchronised-always", "manual sync, both mirrors restarted, master killed", "ignore",
        MANUAL, UNSYNCHRONISED, 70_000),
    Row("unsynchronised-when-synced", "the same, `ha-promote-on-failure: when-synced`", "ignore",
        WHEN_SYNCED, UNSYNCHRONISED, 70_000),
)  # fmt: skip


HEADER = (
    "| plan | system | acknowledged | lost | longest runs of losses | two masters | longest gap |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def plan_for(row: Row, system: str, seed: int) -> Plan:
    """The plan of one row: three publishers, one a node, nothing consumed before the drain."""
    return Plan(
        name=f"yardstick-{row.name}-{system}",
        seed=seed,
        time_limit_ms=row.time_limit_ms,
        cluster=ClusterPlan(backend="docker", nodes=NODES),
        system=SystemPlan(
            name=system,
            profile="upstream",
            parameters={"partition_mode": row.partition_mode, "net_tick_ms": NET_TICK_MS},
            policy=row.policy,
        ),
        workload=WorkloadPlan(
            name="queue",
            rate_hz=120,
            concurrency=3,
            parameters={"queues": 1, "enqueue_fraction": 1.0},
        ),
        gates=GatePlan(),
        faults=row.faults,
    )


def run(row: Row, system: str, seed: int, out: Path) -> dict[str, Any]:
    """Run one plan, or read what an earlier call left."""
    directory = out / f"{row.name}-{system}"
    found = sorted(directory.glob("store/*/2*/results.json"))
    if not found:
        directory.mkdir(parents=True, exist_ok=True)
        plan = directory / "plan.json"
        plan.write_bytes(dump_plan(plan_for(row, system, seed)))
        command = [sys.executable, "-m", "shalott.harness.cli.main", "test", "--plan", str(plan)]
        with (directory / "output.txt").open("wb") as output:
            subprocess.run(
                [*command, "--store", str(directory / "store")],
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        found = sorted(directory.glob("store/*/2*/results.json"))
    if not found:
        return {"verdict": "no result", "output": str(directory / "output.txt")}
    loaded: dict[str, Any] = json.loads(found[-1].read_text())
    return loaded


def checker(results: dict[str, Any], name: str) -> dict[str, Any]:
    """One checker's result out of results.json."""
    for result in results.get("results", results.get("checkers", [])):
        if result["checker"] == name:
            found: dict[str, Any] = result
            return found
    return {"counts": {}, "anomalies": []}


def cells(results: dict[str, Any]) -> list[str]:
    """Acknowledged, lost, where, effective dual masters, longest gap."""
    queue = checker(results, "total-queue")
    counts = queue["counts"]
    acked, lost = counts.get("acknowledged-count", 0), counts.get("lost-count", 0)
    share = f" ({100 * lost / acked:.0f} %)" if acked > lost > 50 else ""
    dual = checker(results, "mastership")["counts"].get("dual-master-effective-count", 0)
    gap_ms = checker(results, "availability")["counts"].get("longest-gap-ms", 0)
    return [
        f"{acked:,}",
        f"**{lost:,}**{share}",
        where(queue["anomalies"]),
        "yes" if dual else "no",
        f"{gap_ms / 1000:.1f} s",
    ]


def where(anomalies: list[dict[str, Any]]) -> str:
    """The longest runs of losses: length, node, time and window."""
    runs = [a["detail"] for a in anomalies if a["kind"] == "lost" and "length" in a["detail"]]
    texts = []
    for run in runs[:2]:
        via = f" through {run['node']}" if run.get("node") else ""
        span = f"{run['begin_ns'] / 1e9:.0f}-{run['end_ns'] / 1e9:.0f} s"
        texts.append(f"{run['length']:,}{via}, {span}, {run.get('cause', '')}")
    return "; ".join(texts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/yardstick"))
    parser.add_argument("--only", default="")
    parser.add_argument("--systems", default="mirrored,rabbitmq")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    wanted = [row for row in ROWS if not options.only or row.name in options.only.split(",")]
    for line in HEADER:
        print(line)
    for row in wanted:
        for system in options.systems.split(","):
            figures = cells(run(row, system, options.seed, options.out))
            print(f"| {row.text} | {system} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
