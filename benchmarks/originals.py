"""The original RocketMQ under each fault, in each replication of each release: what became of it.

    python benchmarks/originals.py [--only WORD[,WORD]] [--time-limit 20s] [--store DIRECTORY]
                                   [--profile safe|upstream|both] [--cpus N] [--out FILE]

One run of `shalott test --cluster docker` a line: three nodes with all services, workload ``log``.
A line has the verdict, what it was judged by if it is not valid, how long the boot took on the
clock, the CPU and the resident memory that the three nodes had taken when the boot was over, the
most memory that they had, and how many containers the run left, which must be none. ``--only``:
runs whose name has all of the words of one of them ("5.3.3+controller+kill"). The load of the
machine before the run is told, since boot times depend on it. ``--cpus``: of each node, from the
load on: releases before 5.4.0 have slaves that keep a core busy, and on a small machine starve the
harness (docs/evidence/analyses/rocketmq-5.3.3.md).

The runs without a fault under ``safe`` come first: one that is not valid accuses an unbroken
cluster, and the program exits with 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker
import msgspec
import pyarrow.parquet as pq

from shalott.cluster.docker.names import LABEL_RUN

ROOT: Final = Path(__file__).resolve().parent.parent
RELEASES: Final = {
    "4.9.7": ("master-slave", "dledger"),
    "5.3.3": ("master-slave", "dledger", "controller"),
    "5.5.0": ("master-slave", "dledger", "controller"),
}
NONE: Final = "none"
FAULTS: Final = (
    *("kill", "pause", "partition-isolate-master", "partition-halves", "partition-random-halves"),
    *("partition-one", "partition-majorities-ring", "partition-bridge", "partition-one-way"),
    *("rolling-restart", "restart-all"),
)
ONLY_MASTER_SLAVE: Final = ("failover",)
ONLY_CONTROLLER: Final = ("replace-node",)
SAMPLE_S: Final = 2.0
RUN_LIMIT_S: Final = 420
MB: Final = 1 << 20
PERIOD_US: Final = 100_000


@dataclass(frozen=True, slots=True)
class Case:
    release: str
    replication: str
    profile: str
    fault: str

    @property
    def name(self) -> str:
        return f"{self.release} {self.replication} {self.profile} {self.fault}"


@dataclass(slots=True)
class Row:
    """What one run showed."""

    case: Case
    verdict: str = "no verdict"
    why: str = ""
    boot_s: float | None = None
    boot_cpu_s: float = 0.0
    boot_mb: float = 0.0
    most_mb: float = 0.0
    left: int = 0
    load: float = 0.0

    def __str__(self) -> str:
        boot = "-" if self.boot_s is None else f"{self.boot_s:.0f} s, CPU {self.boot_cpu_s:.0f} s"
        memory = f"{self.boot_mb:.0f} / {self.most_mb:.0f}"
        cells = (
            self.case.name,
            self.verdict,
            self.why,
            boot,
            memory,
            self.left,
            f"{self.load:.0f}",
        )
        return "| " + " | ".join(str(cell) for cell in cells) + " |"


HEAD: Final = (
    "| run | verdict | judged by | boot | MB after boot / most | left | load |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


def cases(profiles: tuple[str, ...]) -> Iterator[Case]:
    """Controls first."""
    for release, replications in RELEASES.items():
        for replication in replications:
            yield Case(release, replication, "safe", NONE)
    for release, replications in RELEASES.items():
        for replication in replications:
            own = ONLY_MASTER_SLAVE if replication == "master-slave" else ()
            own += ONLY_CONTROLLER if replication == "controller" else ()
            for fault in (*FAULTS, *own):
                for profile in profiles:
                    yield Case(release, replication, profile, fault)


class Watch:
    """Samples what the containers of one run take, while it lasts."""

    def __init__(self, pid: int, log: Path, cpus: float) -> None:
        self._api = docker.APIClient()
        self._pid = pid
        self._log, self._cpus = log, cpus  # the run's log; the nodes' CPUs under load, 0: all
        self._began_s = time.time()
        self._done = threading.Event()
        self._samples: list[tuple[float, float, float]] = []  # when, CPU s, MB
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self._limit()
            cpu_s = mb = 0.0
            for container in containers_of(self._api, self._pid):
                try:
                    stats = self._api.stats(container["Id"], stream=False, one_shot=True)
                except (docker.errors.DockerException, ValueError):  # it is gone meanwhile
                    continue
                cpu_s += stats["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9
                mb += resident(stats["memory_stats"]) / MB
            self._samples.append((time.time(), cpu_s, mb))

    def _limit(self) -> None:
        """Once the load has begun."""
        if not self._cpus or not self._log.is_file():
            return
        is_own = self._log.stat().st_mtime > self._began_s  # and not of an earlier run
        if is_own and "phase load" in self._log.read_text():
            for container in containers_of(self._api, self._pid):
                quota = round(self._cpus * PERIOD_US)
                self._api.update_container(container["Id"], cpu_period=PERIOD_US, cpu_quota=quota)
            self._cpus = 0.0

    def at(self, when_s: float) -> tuple[float, float]:
        """CPU and memory at the first sample after that moment."""
        found = [(cpu, mb) for at, cpu, mb in self._samples if at >= when_s and mb]
        return found[0] if found else (0.0, 0.0)

    def most_mb(self) -> float:
        return max((mb for _, _, mb in self._samples), default=0.0)


def resident(stats: dict[str, Any]) -> float:
    """Anonymous memory and mapped files; of the page cache only what is mapped."""
    found = stats.get("stats") or {}
    anonymous = found.get("rss", found.get("anon", 0))
    return float(anonymous) + float(found.get("mapped_file", found.get("file_mapped", 0)))


def containers_of(api: docker.APIClient, pid: int) -> list[dict[str, Any]]:
    """Of a run by the process that made it, with which the run's id ends."""
    every: list[dict[str, Any]] = api.containers(all=True, filters={"label": LABEL_RUN})
    return [one for one in every if str(one["Labels"][LABEL_RUN]).endswith(f"-{pid}")]


def run(case: Case, store: Path, time_limit: str, seed: int, cpus: float) -> Row:
    name = f"{case.release}-{case.replication}-{case.profile}-{case.fault}"
    row = Row(case, load=os.getloadavg()[0])
    words = [
        *(sys.executable, "-c", "from shalott.harness.cli.main import main; main()", "test"),
        *("--system", "rocketmq", "--version", case.release, "--replication", case.replication),
        *("--profile", case.profile, "--cluster", "docker", "--nodes", "3", "--name", name),
        *("--workload", "log", "--rate", "50", "--time-limit", time_limit, "--seed", str(seed)),
        *("--nemesis", case.fault, "--nemesis-interval", "4s", "--nemesis-duration", "8s"),
        *("--store", str(store)),
    ]
    running = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with Watch(running.pid, store / name / "latest" / "log.txt", cpus) as watch:
        try:
            said, _ = running.communicate(timeout=RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            running.terminate()  # it tears down what it made
            said, _ = running.communicate()
            row.why = f"not over after {RUN_LIMIT_S} s; "
    read_results(row, store / name / "latest", said, watch)
    row.left = len(containers_of(docker.APIClient(), running.pid))
    row.most_mb = watch.most_mb()
    return row


def read_results(row: Row, directory: Path, said: str, watch: Watch) -> None:
    file = directory / "results.json"
    if not file.is_file():
        row.why = (said.strip().splitlines() or ["it said nothing"])[-1][:160]
        return
    results = msgspec.json.decode(file.read_bytes())
    row.verdict = {True: "Valid", False: "Invalid"}.get(results["valid"], "Unknown")
    bad = [one for one in results["results"] if one["valid"] is not True]
    told = [
        one["checker"]
        + "".join(f": {kind}" for kind in dict.fromkeys(a["kind"] for a in one["anomalies"]))
        for one in bad
    ]
    row.why = "; ".join(told) or ("; ".join(results["failures"])[:160])
    boot = pq.read_table(directory / "history.parquet", filters=[("f", "==", "phase")]).to_pylist()
    own = [phase for phase in boot if '"boot"' in (phase["extra"] or "")]
    if own and own[0]["complete_ns"] is not None:
        row.boot_s = (own[0]["complete_ns"] - own[0]["invoke_ns"]) / 1e9
        row.boot_cpu_s, row.boot_mb = watch.at(
            (results["started_wall_ns"] + own[0]["complete_ns"]) / 1e9
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--time-limit", default="20s")
    parser.add_argument("--store", default="store/originals")
    parser.add_argument("--profile", default="safe", choices=("safe", "upstream", "both"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpus", type=float, default=0.0)
    parser.add_argument("--out", default="")
    arguments = parser.parse_args()
    profiles = ("safe", "upstream") if arguments.profile == "both" else (arguments.profile,)
    wanted = [word.split("+") for word in arguments.only.split(",") if word]
    print(HEAD, flush=True)
    accused = False
    for case in cases(profiles):
        words = case.name.split()
        if wanted and not any(all(part in words for part in parts) for parts in wanted):
            continue
        store = Path(arguments.store)
        row = run(case, store, arguments.time_limit, arguments.seed, arguments.cpus)
        print(row, flush=True)
        if arguments.out:
            with Path(arguments.out).open("a") as file:
                print(row, file=file)
        accused |= case.fault == NONE and row.verdict != "Valid"
    sys.exit(int(accused))


if __name__ == "__main__":
    main()
