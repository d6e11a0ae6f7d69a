"""How fast `shalott serve` shows a store: python -m benchmarks.serve_store STORE.

Makes a synthetic store (unless STORE is one): 10,000 rows of 60 nights and 30 cells, of which some
hundred runs have directories, copies of runs that are simulated first; a search with findings. Then
it starts the server as a process of its own and measures its first answer (cold), the same again
(warm, the median of 20), a filtered page, a night and a run, and the server's memory.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shalott.harness.store.columns import RUNS_SCHEMA, TABLE

ENTRY = "from shalott.harness.cli.main import main; main()"
START_NS = 1_790_000_000_000_000_000
DAY_NS = 86_400_000_000_000
NIGHTS = 60
SYSTEMS = ("mirrored", "dledger", "controller", "master-slave", "rabbitmq")
NEMESES = (("kill",), ("partition",), ("kill", "partition"), ("pause",), ("power",), ("disk-slow",))
WORKLOADS = {"mirrored": "queue", "rabbitmq": "queue"}
ANOMALIES = ("lost", "dual-master-effective", "duplicated", "stale-read")
REPEATS = 20
PLACES = {
    "first page": "",
    "text and verdict": "?text=lost&verdict=invalid",
    "nemesis, oldest first": "?nemesis=pause&order=oldest&page=20",
    "night": "night",
    "nights": "nights",
    "JSON of the first page": "api/runs",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--directories", type=int, default=300)
    parser.add_argument("--make", action="store_true", help="Make the store and measure nothing.")
    asked = parser.parse_args()
    if not (asked.store / TABLE).exists():
        make_store(asked.store, asked.runs, asked.directories)
    if not asked.make:
        measure(asked.store)


def make_store(store: Path, runs: int, directories: int) -> None:
    """Rows first; the newest of them get directories."""
    templates = simulated(store)
    draw = random.Random(1)
    rows = [_row(number, draw) for number in range(runs)]
    for row in rows[-directories:]:
        source = templates["red" if row["valid"] == "false" else "green"]
        shutil.copytree(source, store / row["run"])
    _search(store, templates["red"])
    for source in templates.values():
        shutil.rmtree(source.parent)
    pq.write_table(pa.Table.from_pylist(rows, schema=RUNS_SCHEMA), store / TABLE)


def simulated(store: Path) -> dict[str, Path]:
    """Two runs, one that loses and one that keeps what it acknowledged."""
    common = ["test", "--cluster", "sim", "--time-limit", "20", "--store", str(store)]
    for name, words in (
        ("red", ["--profile", "upstream", "--nemesis", "partition", "--seed", "5"]),
        ("green", ["--profile", "safe", "--nemesis", "kill", "--seed", "6"]),
    ):
        subprocess.run(
            [sys.executable, "-c", ENTRY, *common, "--name", name, *words],
            capture_output=True, check=False,
        )  # fmt: skip
    for link in ("latest", "red/latest", "green/latest"):
        (store / link).unlink(missing_ok=True)
    return {name: next((store / name).iterdir()) for name in ("red", "green")}


def _row(number: int, draw: random.Random) -> dict[str, Any]:
    night = number * NIGHTS // 10_000
    cell = number % (len(SYSTEMS) * len(NEMESES))
    system, nemesis = list(itertools.product(SYSTEMS, NEMESES))[cell]
    is_weak = system == "mirrored" and "partition" in nemesis or system == "master-slave"
    luck = draw.random() + (0.06 if is_weak and night > NIGHTS // 2 else 0)
    valid = "false" if luck > 0.995 - 0.1 * is_weak else "unknown" if luck < 0.01 else "true"
    workload = WORKLOADS.get(system, "log")
    kind, count = draw.choice(ANOMALIES), draw.randrange(1, 400)
    anomalies = [{"checker": "total-queue", "kind": kind, "count": count, "broken": True}]
    started = START_NS + night * DAY_NS + number % 200 * 60_000_000_000
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(started // 1_000_000_000))
    headline = {
        "true": "Valid: every acknowledged message came out.",
        "false": f"Invalid: {count} acknowledged messages: {kind}.",
        "unknown": "Unknown: too few operations were acknowledged after a heal.",
    }[valid]
    return {
        "run": f"{system}-{workload}/{stamp}.{number % 1000:03d}Z", "kind": "run", "name": system,
        "started_wall_ns": started, "elapsed_ns": 90_000_000_000, "system": system,
        "commit": f"{night * 7919:08x}" * 5, "tree": "clean", "profile": "upstream", "nodes": 3,
        "workload": workload, "cluster": ("docker", "sim")[cell % 2], "seed": number,
        "nemesis": list(nemesis), "faults_made": 4, "valid": valid, "headline": headline,
        "anomalies": anomalies if valid == "false" else [], "acknowledged": 12_000,
        "failed_checkers": ["total-queue"] if valid == "false" else [],
        "lost": count if valid == "false" and kind == "lost" else 0,
        "rto_ms": draw.uniform(200, 9000), "unavailable_ms_max": draw.uniform(200, 12_000),
        "latency_p50_ms": draw.uniform(1, 4), "latency_p99_ms": draw.uniform(5, 90),
        "night": f"night-{night:03d}", "cell": f"{system}/{'+'.join(nemesis)}", "campaign": "",
        "parameters": "{}", "tested": "{}", "command": f"shalott test --seed {number}",
        "unreadable": [], "files_changed_ns": started, "schema_version": 1,
    }  # fmt: skip


def _search(store: Path, red: Path) -> None:
    place = store / "search" / "mirrored-upstream-queue"
    for seed in (50_007, 50_031):
        shutil.copytree(red, place / "findings" / f"seed-{seed}")
    plan = msgspec.json.decode((red / "plan.json").read_bytes())
    minimal = {**plan, "faults": plan["faults"][:1], "time_limit_ms": 2000}
    (place / "findings" / "seed-50007" / "minimal.json").write_bytes(msgspec.json.encode(minimal))
    summary = {
        "command": "shalott search --profile upstream --seeds 50000-50199",
        "wanted": 200, "ran": 200, "valid": 171, "invalid": 27, "unknown": 2,
        "classes": {"lost": {"count": 27, "seeds": [50_007, 50_031], "kept": []}},
    }  # fmt: skip
    (place / "summary.json").write_bytes(msgspec.json.encode(summary))


def measure(store: Path) -> None:
    words = [sys.executable, "-c", ENTRY, "serve", str(store), "--port", "0"]
    begun = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+/", server.stdout.readline())
            assert found is not None
            address = found.group()
            print(f"{store}: {pq.read_metadata(store / TABLE).num_rows:,} rows")
            print(f"from the command to its address: {time.monotonic() - begun:.2f} s")
            print(f"memory before the first question: {memory_mb(server.pid):.0f} MB")
            print(f"first page, cold: {1000 * timed(address):.0f} ms")
            for name, place in PLACES.items():
                told = [1000 * timed(address + place) for _ in range(REPEATS)]
                print(f"{name}: {statistics.median(told):.0f} ms (at most {max(told):.0f})")
            print(f"memory then: {memory_mb(server.pid):.0f} MB")
        finally:
            server.terminate()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def timed(address: str) -> float:
    begun = time.perf_counter()
    with urllib.request.urlopen(address, timeout=60) as answer:
        answer.read()
    return time.perf_counter() - begun


def memory_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    told = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert told is not None
    return int(told.group(1)) / 1000


if __name__ == "__main__":
    main()
