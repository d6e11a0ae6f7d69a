"""What a report over many runs costs, by engine, beside DuckDB on the same files.

    python -m benchmarks.spark_scale [--store DIRECTORY] [--quick] [--cluster] [--only NAME,...]

Makes stores of 100 runs of 100,000 operations, of 300, and of one run of 10,000,000 (kept in the
directory, if one is named), and reports on each: with worker processes, with Spark on this machine,
with Spark on a standalone cluster of two workers, and with plain SQL; DuckDB counts the outcomes of
messages alone. Then 74 small runs, without Java. Each measurement is a process of its own, as a
user starts it, without results of earlier ones.

CPU seconds are of the whole process tree, by what /proc says of it every 20 ms; RSS is the peak of
its sum. "start" is a Spark session that is begun and ended: what a report takes beyond it is told.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fleet_runs import write_store
from tests.spark_analysis.cluster import CLUSTER_CONF, Cluster, standalone

REPORT = """
import json, sys
from pathlib import Path
from rich.console import Console
from shalott.spark_analysis.findings import Wanted
from shalott.spark_analysis.report import run_report
if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    wanted = Wanted(engine=told["engine"], master=told["master"], conf=told["conf"])
    report = run_report(told["store"], Path(told["out"]), Console(width=120), wanted)
    lost = sum(line.counts["lost"] for line in report.runs)
    acked = sum(line.counts["acknowledged"] for line in report.runs)
    Path(told["out"], "told.json").write_text(json.dumps([len(report.runs), acked, lost]))
"""
START = """
import json, sys
from pathlib import Path
from shalott.spark_analysis.findings import Wanted, opened
told = json.loads(sys.argv[1])
with opened(Wanted(engine="spark", master=told["master"], conf=told["conf"])) as spark:
    pass
Path(told["out"], "told.json").write_text("[0, 0, 0]")
"""
DUCKDB = """
import glob, json, sys
from pathlib import Path
import duckdb
told = json.loads(sys.argv[1])
duckdb.sql("set threads to 2")
rows = duckdb.sql('''
with messages as (
  select filename, value,
    arg_min(key, "index") filter (f = 'enqueue') as queue,
    arg_min(type, "index") filter (f = 'enqueue') as ack,
    count(*) filter (f = 'dequeue' and type <> 'fail') as delivered,
    count(*) filter (f = 'dequeue' and type <> 'fail' and not coalesce(redelivered, false)) as bare,
    min(complete_ns) filter (f = 'dequeue' and type <> 'fail') as first_end,
    max(invoke_ns) filter (
      f = 'dequeue' and type <> 'fail' and not coalesce(redelivered, false)) as last_bare
  from read_parquet($files, filename = true)
  where process >= 0 and value is not null and f in ('enqueue', 'dequeue')
  group by filename, value)
select filename, queue, count(ack), count(*) filter (ack = 'ok'),
  count(*) filter (ack = 'ok' and delivered = 0),
  count(*) filter (ack <> 'fail' and delivered > 1 and (bare > 1 or last_bare > first_end)),
  count(*) filter (ack = 'fail' and delivered > 0), count(*) filter (ack is null)
from messages group by filename, queue''',
    params={"files": glob.glob(told["store"] + "/**/history.parquet", recursive=True)}).fetchall()
acked, lost = sum(row[3] for row in rows), sum(row[4] for row in rows)
Path(told["out"], "told.json").write_text(
    json.dumps([len({row[0] for row in rows}), acked, lost]))
"""


@dataclass
class Tree:
    """The processes of some sessions: their time so far, and their memory now."""

    sessions: set[int]
    ticks: dict[int, int] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    peak_bytes: int = 0

    def look(self) -> None:
        resident = 0
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                text = Path(entry.path, "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            cells = text.rpartition(")")[2].split()
            if int(cells[3]) in self.sessions:
                self.ticks[int(entry.name)] = int(cells[11]) + int(cells[12])
                resident += int(cells[21]) * os.sysconf("SC_PAGE_SIZE")
        self.peak_bytes = max(self.peak_bytes, resident)

    @property
    def cpu_s(self) -> float:
        ticks = sum(now - self.before.get(pid, 0) for pid, now in self.ticks.items())
        return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    cpu_s: float
    wall_s: float
    peak_bytes: int
    told: tuple[int, int, int]  # runs, acknowledged, lost


def measure(
    program: str, store: Path, cluster: Cluster | None = None, engine: str = "spark"
) -> Measured:
    """One program, with what the daemons of the cluster took for it."""
    daemons = [] if cluster is None else [cluster.master, *cluster.workers]
    tree = Tree({process.pid for process in daemons if process is not None})
    tree.look()
    tree.before, tree.peak_bytes = dict(tree.ticks), 0
    with tempfile.TemporaryDirectory() as out:
        told = {
            "store": str(store), "out": out, "engine": engine,
            "master": cluster.url if cluster else "", "conf": CLUSTER_CONF if cluster else {},
        }  # fmt: skip
        script = Path(out, "program.py")
        script.write_text(program)
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(told)],
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        tree.sessions.add(process.pid)
        over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(tree, over))
        watcher.start()
        code = process.wait()
        wall_s = time.perf_counter() - began
        over.set()
        watcher.join()
        if code:
            raise SystemExit(f"{engine} on {store} ended with {code}")
        counts = tuple(json.loads(Path(out, "told.json").read_text()))
    return Measured(tree.cpu_s, wall_s, tree.peak_bytes, counts)  # type: ignore[arg-type]


def _watch(tree: Tree, over: threading.Event) -> None:
    while not over.wait(0.02):
        tree.look()


STORES = {"100 runs": (100, 100_000), "300 runs": (300, 100_000), "one run": (1, 10_000_000)}
QUICK = {"100 runs": (10, 100_000), "300 runs": (30, 100_000), "one run": (1, 8_000_000)}
SMALL = (74, 3_000)


def line(name: str, engine: str, found: Measured, start: Measured | None, duck: Measured) -> str:
    beyond = found.cpu_s - (start.cpu_s if start else 0)
    agrees = "" if found.told[1:] == duck.told[1:] else f" DIFFERS: {found.told} {duck.told}"
    return (
        f"{name:9} {engine:8} {found.cpu_s:7.1f} s CPU, {beyond:6.1f} beyond the start,"
        f" {beyond / duck.cpu_s:5.1f} x DuckDB, {found.wall_s:6.1f} s wall,"
        f" {found.peak_bytes / 2**30:5.2f} GiB, load {os.getloadavg()[0]:4.1f}{agrees}\n"
    )


def measurements(base: Path, stores: dict[str, tuple[int, int]], engines: Sequence[str],
                 cluster: Cluster | None) -> Iterator[str]:  # fmt: skip
    start = None
    if "spark" in engines:
        # A user's first report leaves a class archive with all that later ones need.
        measure(REPORT, small_store(base))
        start = measure(START, base)
        yield f"start     spark    {start.cpu_s:7.1f} s CPU, {start.wall_s:6.1f} s wall\n"
    on_cluster = measure(START, base, cluster) if cluster else None
    if on_cluster:
        yield f"start     cluster  {on_cluster.cpu_s:7.1f} s CPU\n"
    for name, (runs, operations) in stores.items():
        store = base / f"{runs}-{operations}"
        if not store.is_dir():
            write_store(store, runs, operations)
        duck = measure(DUCKDB, store)
        yield line(name, "duckdb", duck, None, duck)
        for engine in engines:
            found = measure(REPORT, store, engine=engine)
            yield line(name, engine, found, None if engine == "local" else start, duck)
        if cluster:
            yield line(name, "cluster", measure(REPORT, store, cluster), on_cluster, duck)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--store", type=Path, help="where stores are made and kept")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster too")
    parser.add_argument("--sql", action="store_true", help="plain SQL too, which is slow")
    parser.add_argument("--only", default="", help="of the stores: 100 runs,300 runs,one run,small")
    told = parser.parse_args()
    stores = QUICK if told.quick else STORES
    only = told.only.split(",") if told.only else [*stores, "small"]
    engines = ["local", "spark", *(["sql"] if told.sql else [])]
    with tempfile.TemporaryDirectory() as scratch:
        base = told.store or Path(scratch)
        base.mkdir(parents=True, exist_ok=True)
        with (
            standalone(Path(tempfile.mkdtemp(dir=scratch)))
            if told.cluster
            else nullcontext() as cluster
        ):
            chosen = {name: size for name, size in stores.items() if name in only}
            for text in measurements(base, chosen, engines if chosen else [], cluster):
                sys.stdout.write(text)
                sys.stdout.flush()
        if "small" in only:
            sys.stdout.write(small_runs(base))


def small_store(base: Path) -> Path:
    store = base / f"{SMALL[0]}-{SMALL[1]}"
    if not store.is_dir():
        write_store(store, *SMALL)
    return store


def small_runs(base: Path) -> str:
    store = small_store(base)
    measure(REPORT, store, engine="local")
    found = measure(REPORT, store, engine="local")
    return (
        f"{SMALL[0]} small runs without Java, warm: {found.wall_s:.1f} s wall, {found.cpu_s:.1f} s"
        f" CPU, {found.peak_bytes / 2**30:.2f} GiB, load {os.getloadavg()[0]:.1f}\n"
    )


if __name__ == "__main__":
    main()
