"""Whether a report over runs of all systems counts what each run's own results.json counts.

    python -m benchmarks.fleet_agreement [RUNS] [STORE]

Makes so many short simulated runs (of every system, workload and profile in turn, with kills,
partitions and pauses, seeds rising), reports on them, and tells how many figures were compared and
which differ: verdicts, losses, dual masters, all other counts and times of report.json
(benchmarks/figures_held.py), and sums of the page. Exit code 1 if any does. Of 0 runs the store is
reported on as it is.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.figures_held import hold, hold_page
from shalott.harness.fleet.index_page import ALL_ROWS
from shalott.harness.fleet.page_builder import page_of
from shalott.spark_analysis.findings import Wanted, find
from shalott.spark_analysis.report import write_report
from shalott.spark_analysis.report_rows import FleetReport

QUEUES, LOGS = ("mirrored",), ("master-slave", "dledger", "controller")
WORKLOADS = {
    **dict.fromkeys(("queue", "consume", "lock", "fifo", "metadata"), QUEUES),
    **dict.fromkeys(("log", "group"), LOGS),
    "elections": ("dledger", "controller"),
}
CELLS = [(system, workload) for workload, systems in WORKLOADS.items() for system in systems]
NEMESES = ("partition", "kill", "pause")
PROFILES = ("upstream", "safe")


def commands(runs: int, store: Path) -> Iterator[list[str]]:
    cells = itertools.cycle(itertools.product(PROFILES, NEMESES, CELLS))
    for seed, (profile, nemesis, (system, workload)) in zip(range(runs), cells, strict=False):
        yield [
            "test", "--system", system, "--workload", workload, "--profile", profile,
            "--cluster", "sim", "--nemesis", nemesis, "--seed", str(seed), "--time-limit", "8",
            "--nemesis-interval", "3", "--nemesis-duration", "2", "--rate", "60",
            "--store", str(store),
        ]  # fmt: skip


def make_runs(runs: int, store: Path, workers: int | None = None) -> list[int]:
    """The exit code of each."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers or len(os.sched_getaffinity(0))) as pool:
        return pool.map(_run, commands(runs, store), chunksize=1)


def _run(words: list[str]) -> int:
    from shalott.harness.cli.main import run_command

    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        return run_command(words)


def report_on(store: Path, out: Path) -> tuple[FleetReport, int, list[str]]:
    """The report, how many of its figures and of its page's there were to compare, and sentences
    on those that differ."""
    found = find(store, Wanted(engine="local"))
    report = write_report(found, out)
    page, _ = page_of(found, report, ALL_ROWS)
    compared, differing = hold(out, store)
    sums, wrong = hold_page(page, store)
    return report, compared + sums, [*differing, *wrong]


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(scratch, "store")
        codes = make_runs(runs, store)
        console = Console()
        refused = sum(code > 2 for code in codes)
        report, compared, differing = report_on(store, Path(scratch, "report"))
        invalid = sum(line.valid is False for line in report.runs)
        console.print(
            f"{len(report.runs)} runs ({invalid} invalid, {refused} not made), {compared:,} figures"
            f" compared, {len(differing)} differ"
        )
        for sentence in (*differing[:20], *report.unreadable):
            console.print(sentence)
    sys.exit(1 if differing or report.unreadable else 0)


if __name__ == "__main__":
    main()
