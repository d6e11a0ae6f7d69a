"""RabbitMQ and our broker under the same plans of the workload consume, promise by promise.

    python -m benchmarks.consumers_beside [--seeds 1] [--time-limit 40] [--profile safe]

For each nemesis (kill, pause, partition) and seed both systems run in containers with the same
flags. Prints, for each checker of consumers, the verdict and what was found with each; and for each
run its counts of messages and deliveries. Runs are made one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

SYSTEMS = ("rabbitmq", "mirrored")
NEMESES = ("kill", "pause", "partition")
RUN_TIMEOUT_S = 600
WORDS = {True: "holds", False: "**broken**", "unknown": "unknown"}


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of one system. ``results`` by checker, as results.json has them."""

    system: str
    nemesis: str
    seed: int
    headline: str
    results: Mapping[str, Mapping[str, Any]]


def run_one(system: str, nemesis: str, seed: int, arguments: argparse.Namespace) -> Ran:
    where = Path(arguments.store) / f"{system}-{nemesis}-{seed}"
    command = (
        *("test", "--workload", "consume", "--system", system, "--profile", arguments.profile),
        *("--cluster", "docker", "--nemesis", nemesis, "--targets", "master"),
        *("--seed", str(seed), "--time-limit", str(arguments.time_limit)),
        *("--rate", "60", "--net-tick", "4s", "--nemesis-interval", "15"),
        *("--nemesis-duration", "8", "--store", str(where)),
    )
    done = subprocess.run(
        [sys.executable, "-m", "shalott.harness.cli.main", *command],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    found = sorted(where.glob("*/*/results.json"))
    if not found:
        return Ran(system, nemesis, seed, f"exit code {done.returncode}: {done.stderr[-300:]}", {})
    told = json.loads(found[-1].read_text())
    by_checker = {each["checker"]: each for each in told["results"]}
    return Ran(system, nemesis, seed, str(told["headline"]), by_checker)


def told_of(ran: Ran, checker: str) -> str:
    """The verdict, and how often which anomaly was found."""
    result = ran.results.get(checker)
    if result is None:
        return "not judged"
    kinds: dict[str, int] = {}
    for anomaly in result["anomalies"]:
        kinds[anomaly["kind"]] = kinds.get(anomaly["kind"], 0) + 1
    found = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    word = WORDS.get(result["valid"], str(result["valid"]))
    return f"{word}: {found}" if found else word


def print_table(runs: Sequence[Ran], out: Any) -> None:
    for nemesis, seed in dict.fromkeys((ran.nemesis, ran.seed) for ran in runs):
        pair = {r.system: r for r in runs if (r.nemesis, r.seed) == (nemesis, seed)}
        out.write(f"\n{nemesis}, seed {seed}\n\n")
        for system in SYSTEMS:
            out.write(f"- {system}: {pair[system].headline}\n")
        out.write(f"\n| checker | {' | '.join(SYSTEMS)} |\n| --- | --- | --- |\n")
        for checker in dict.fromkeys(c for system in SYSTEMS for c in pair[system].results):
            told = " | ".join(told_of(pair[system], checker) for system in SYSTEMS)
            out.write(f"| `{checker}` | {told} |\n")
        for system in SYSTEMS:
            fates = pair[system].results.get("consumer-fates", {}).get("counts", {})
            some = ", ".join(f"{name} {value}" for name, value in fates.items() if value)
            out.write(f"\n{system}: {some}\n")
        out.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--time-limit", type=int, default=40)
    parser.add_argument("--profile", default="safe")
    parser.add_argument("--nemesis", default=",".join(NEMESES))
    parser.add_argument("--store", default="")
    arguments = parser.parse_args()
    arguments.store = arguments.store or mkdtemp(prefix="shalott-beside-")
    for nemesis in arguments.nemesis.split(","):
        for seed in range(1, arguments.seeds + 1):
            print_table([run_one(s, nemesis, seed, arguments) for s in SYSTEMS], sys.stdout)
    sys.stdout.write(f"\nload {os.getloadavg()[0]:.1f}; runs are in {arguments.store}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
