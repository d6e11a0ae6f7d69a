"""How long a cluster takes no writes after its master is killed, and whether that loses any.

    python -m benchmarks.failover [--systems controller,dledger] [--kills 20] [--cluster docker]
                                  [--profile safe] [--policy KEY=VALUE ...] [--store DIR]

One run of ``shalott test`` a system: load at 50 operations a second, and the master killed again
and again, with time to come back in between. Prints, for each system, the verdict on lost messages
and the times from a kill to the next send that was acknowledged after it: median, worst, and each.
For real clusters: in a simulation only the timers would show, and no cost of any work.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

INTERVAL_S, DOWN_S, QUIET_S = 14, 5, 8
RATE_HZ = 50
EXITS = {0: "valid", 1: "INVALID", 2: "unknown"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: its verdict, and seconds from each kill to the next acknowledged send."""

    verdict: str
    acknowledged: int
    lost: int
    gaps_s: tuple[float, ...]
    unanswered: int  # kills after which no send was acknowledged any more


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--systems", default="controller,dledger")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--cluster", default="docker")
    parser.add_argument("--profile", default="safe")
    parser.add_argument("--policy", action="append", default=[], help="over the profile's")
    parser.add_argument("--nodes", default="3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", type=Path, default=Path("build/failover"))
    arguments = parser.parse_args()
    print("| system | verdict | acknowledged | lost | kills | median s | worst s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    good = True
    for system in arguments.systems.split(","):
        found = measure(system, arguments)
        gaps = found.gaps_s
        median = f"{statistics.median(gaps):.2f}" if gaps else "-"
        worst = f"{max(gaps):.2f}" if gaps and not found.unanswered else "-"
        print(
            f"| {system} | {found.verdict} | {found.acknowledged} | {found.lost} |"
            f" {len(gaps) + found.unanswered} | {median} | {worst} |"
        )
        print(f"each, in order: {', '.join(f'{gap:.2f}' for gap in gaps)}", flush=True)
        good &= found.verdict == "valid"
    return 0 if good else 1


def measure(system: str, arguments: argparse.Namespace) -> Outcome:
    """Run it and read what was recorded."""
    limit_s = QUIET_S + INTERVAL_S * arguments.kills
    command = [
        *(sys.executable, "-m", "shalott.harness.cli.main", "test", "--system", system),
        *("--profile", arguments.profile, "--cluster", arguments.cluster),
        *("--nodes", arguments.nodes, "--rate", str(RATE_HZ), "--time-limit", str(limit_s)),
        *("--nemesis", "kill", "--targets", "master", "--seed", str(arguments.seed)),
        *("--nemesis-interval", str(INTERVAL_S), "--nemesis-duration", str(DOWN_S)),
        *("--name", f"failover-{system}", "--store", str(arguments.store)),
        *(word for setting in arguments.policy for word in ("--policy", setting)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in EXITS:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    run = arguments.store / f"failover-{system}" / "latest"
    results = json.loads((run / "results.json").read_text())["results"]
    counts = next(each["counts"] for each in results if each["checker"] == "log")
    rows = pq.read_table(run / "history.parquet").to_pylist()
    gaps_s, unanswered = gaps(rows)
    return Outcome(
        EXITS[done.returncode], counts["acknowledged-count"], counts["lost-write-count"],
        gaps_s, unanswered,
    )  # fmt: skip


def gaps(rows: Sequence[dict[str, Any]]) -> tuple[tuple[float, ...], int]:
    """(seconds from each kill that hit to the completion of the first send that was called after it
    and acknowledged; kills without any)."""
    sends = sorted(
        (row["invoke_ns"], row["complete_ns"])
        for row in rows
        if row["f"] == "send" and row["type"] == "ok"
    )
    found, unanswered = [], 0
    for row in rows:
        if row["f"] != "kill" or row["process"] != -1:
            continue
        fault = json.loads(row["extra"] or "{}")
        if "skipped" in fault:
            continue
        killed_ns = fault["effective_ns"]
        after = [end for begin, end in sends if begin >= killed_ns]
        if after:
            found.append((min(after) - killed_ns) / 1e9)
        else:
            unanswered += 1
    return tuple(found), unanswered


if __name__ == "__main__":
    sys.exit(main())
