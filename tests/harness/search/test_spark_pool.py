"""A search's workers on a Spark cluster: the same runs as here, though an executor is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from shalott.core.errors import HarnessError
from shalott.harness.run.simulation_record import code_fingerprint
from shalott.harness.search.campaign import LOG
from shalott.harness.search.door import SimulatedRuns
from shalott.harness.search.place import Place
from shalott.harness.search.repeats import is_repeated
from shalott.harness.search.run_search import Tally, run_search
from shalott.harness.search.search import SearchRequest, plan_search
from shalott.harness.search.spark_pool import BATCH, SparkPool, run_batch
from shalott.harness.search.summary import Summary
from shalott.harness.search.workers import Job, Task
from tests.spark_analysis.cluster import Cluster, standalone
from tests.world.harness.toy_simulation import simulate_toy


class Quiet:
    def show(self, tally: Tally) -> None:
        return

    def say(self, line: str) -> None:
        return


def search(store: Path, seeds: str, *, by_batches: bool) -> tuple[Summary, Place]:
    request = SearchRequest(system="dledger", seeds=seeds, jobs=2, store=str(store))

    one_at_a_time = threading.Lock()  # as in a process of Spark's

    def run(batch: bytes) -> bytes:
        with one_at_a_time:
            return run_batch(batch)

    def pool(job: Job, jobs: int) -> SparkPool:
        return SparkPool(job, jobs, run)

    return run_search(
        plan_search(request),
        request,
        SimulatedRuns(simulate_toy),
        Quiet(),
        command="search",
        make_pool=pool if by_batches else None,
    )


@pytest.mark.explore
def test_batches_come_to_what_single_seeds_come_to(tmp_path: Path) -> None:
    there, _ = search(tmp_path / "there", "40", by_batches=True)
    here, _ = search(tmp_path / "here", "40", by_batches=False)
    seeds = [{name: found.seeds for name, found in of.classes.items()} for of in (there, here)]
    assert seeds[0] == seeds[1] and seeds[0]["lost"]  # which are kept depends on who ends first
    assert there.valid == here.valid and not there.errors
    drawn = sum(map(is_repeated, range(1, 41)))  # beside those that are kept
    assert min(there.repeated, here.repeated) >= drawn > 0 and not there.mismatches


@pytest.mark.unit
def test_a_batch_that_spark_gives_up_ends_the_search_in_one_sentence() -> None:
    def run(batch: bytes) -> bytes:
        raise RuntimeError("Job aborted due to stage failure\nat scala...")

    search = plan_search(SearchRequest(system="dledger", seeds="9"))
    job = Job(search.plans, SimulatedRuns(simulate_toy), code_fingerprint())
    left = [Task(seed) for seed in range(1, 10)]
    with SparkPool(job, 2, run) as pool:
        pool.hand_out(lambda _: left.pop(0) if left else None)
        assert pool.busy == 2 and len(left) == 9 - 2 * BATCH
        with pytest.raises(HarnessError, match=r"could not run a batch: Job aborted .* failure$"):
            for _ in range(2):
                pool.answers(10)


# -- on a cluster ----------------------------------------------------------------------------------

PROGRAM = "from shalott.harness.cli.main import main; main()"


def digests(store: Path) -> dict[int, str]:
    (log,) = store.rglob(LOG)
    told = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
    reports = [each["report"] for each in told if each["line"] == "seed"]
    return {report["seed"]: report["digest"] for report in reports}


def command(store: Path, *words: str) -> list[str]:
    return [
        *(sys.executable, "-c", PROGRAM, "search", "--system", "dledger", "--seeds", "24"),
        *("--store", str(store), *words),
    ]


@pytest.mark.spark
@pytest.mark.nightly("a minute of runs, twice")
def test_a_worker_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with standalone(tmp_path) as cluster:
        words = command(tmp_path / "there", "--spark", cluster.url)
        there = subprocess.Popen(words, env=environment)
        kill_when_some_are_done(cluster, tmp_path / "there")
        assert there.wait(timeout=280) in (0, 2)
        assert cluster.workers[0].wait(timeout=10) != 0
    subprocess.run(command(tmp_path / "here"), check=False, timeout=280)
    assert digests(tmp_path / "there") == digests(tmp_path / "here")
    assert len(digests(tmp_path / "there")) == 24


def kill_when_some_are_done(cluster: Cluster, store: Path) -> None:
    deadline = time.monotonic() + 120
    while not any(b'"line":"seed"' in log.read_bytes() for log in store.rglob(LOG)):
        assert time.monotonic() < deadline, "no run has ended"
        time.sleep(0.05)  # another program's file can't be waited for
    cluster.kill_worker(0)
