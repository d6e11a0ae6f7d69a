"""How long ``shalott report`` takes, from the first import to the last file, on a few runs.

    python -m benchmarks.spark_report [RUNS] [OPERATIONS_A_RUN]

Each measurement is a process of its own, as a user starts it: without a class archive, while
writing one, and with it. CPU seconds are of the whole process tree, for on a busy machine they are
the steadier figure (half of them is about the wall time on two free cores). Prints what was
measured.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shalott.core.history import write_events, write_history
from shalott.core.plan import dump_plan
from tests.world.harness.report_run import example_history, example_plan

PROGRAM = """
import sys
from pathlib import Path
from rich.console import Console
from shalott.spark_analysis.report import run_report
run_report(Path(sys.argv[1]), Path(sys.argv[2]), Console(width=120))
"""
SECONDS = 60


@dataclass(frozen=True)
class Measured:
    name: str
    wall_s: float
    cpu_s: float


def store_runs(store: Path, count: int, operations: int) -> None:
    """Runs with losses and dual masters, each of another seed."""
    for seed in range(count):
        directory = store / "run" / f"{seed:04d}"
        directory.mkdir(parents=True)
        history = example_history(SECONDS, operations / SECONDS, seed=seed)
        (directory / "plan.json").write_bytes(dump_plan(example_plan()))
        write_events(history.events, directory / "events.parquet")
        write_history(history.ops, directory / "history.parquet")


def measure(name: str, store: Path, out: Path, cache: Path) -> Measured:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(store), str(out)],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    wall_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(name, wall_s, cpu_s)


def measurements(runs: int, operations: int) -> Iterator[Measured]:
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        store_runs(base / "store", runs, operations)
        no_cache, cache = base / "no-cache", base / "cache"
        no_cache.touch()  # a file where a directory is wanted
        for name, where in (
            ("without an archive", no_cache),
            ("writing an archive", cache),
            ("with the archive", cache),
            ("with the archive, again", cache),
        ):
            yield measure(name, base / "store", base / "out", where)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    operations = int(sys.argv[2]) if len(sys.argv) > 2 else 30_000
    load = os.getloadavg()[0]
    sys.stdout.write(f"{runs} runs of {operations:,} operations, load average {load:.1f}\n")
    for measured in measurements(runs, operations):
        sys.stdout.write(
            f"{measured.name:26} {measured.wall_s:6.1f} s wall {measured.cpu_s:6.1f} s CPU\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
