"""Reports on a standalone cluster, through another file system, by spark-submit, and followed.

Each is a program of its own, as a user starts it. The workers of the cluster have this project's
libraries but are told nothing of where its code lies: what judges there is what was sent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.fleet_runs import write_store
from shalott.spark_analysis.findings import Wanted
from shalott.spark_analysis.report import make_report, write_report
from shalott.spark_analysis.report_rows import FleetReport
from tests.spark_analysis.cluster import CLUSTER_CONF, Cluster, standalone
from tests.spark_analysis.conftest import broken_history, store_run

pytestmark = pytest.mark.spark

NIGHTLY = pytest.mark.nightly("takes most of a minute")
PROGRAM = """
import sys
from shalott.harness.cli.main import main
main()
"""
FOLLOW = """
import sys
from pathlib import Path
from rich.console import Console
from shalott.spark_analysis.findings import Wanted
from shalott.spark_analysis.store_stream import follow_store
from tests.spark_analysis.conftest import broken_history, store_run
store, seen = Path(sys.argv[1]), []
def until(report):
    seen.append(len(report.runs))
    if len(seen) == 1:
        store_run(store, "run/later", broken_history(5), b'{"valid": false, "results": []}')
    return "run/later" in [line.run for line in report.runs]
report = follow_store(str(store), None, Console(width=100), Wanted(), until)
print(seen, report.judged)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("store")
    for seed in range(6):
        store_run(base, f"run/{seed}", broken_history(seed))
    return base


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def lines_here(store: Path, out: Path) -> list[Any]:
    """What the report says without Spark."""
    from shalott.spark_analysis.findings import find

    return lines(write_report(find(store, Wanted(engine="local")), out))


def lines(report: FleetReport) -> list[Any]:
    return [msgspec.to_builtins(line) for line in report.runs]


def written(out: Path) -> list[Any]:
    return lines(msgspec.json.decode((out / "report.json").read_bytes(), type=FleetReport))


def conf_words() -> list[str]:
    return [word for pair in CLUSTER_CONF.items() for word in ("--conf", "=".join(pair))]


def run(*words: str, **environment: str) -> None:
    done = subprocess.run(
        list(words), env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_report_on_a_cluster_says_what_it_says_here(
    store: Path, cluster: Cluster, tmp_path: Path
) -> None:
    run(
        sys.executable, "-c", PROGRAM, "report", str(store), "--out", str(tmp_path / "there"),
        "--master", cluster.url, *conf_words(),
    )  # fmt: skip
    assert written(tmp_path / "there") == lines_here(store, tmp_path / "here")


@NIGHTLY
def test_spark_submit_reports(store: Path, cluster: Cluster, tmp_path: Path) -> None:
    import pyspark

    import shalott.spark_analysis.submit as program

    run(
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.url,
        *conf_words(), str(program.__file__), str(store), "--out", str(tmp_path / "there"),
        PYSPARK_PYTHON=sys.executable, PYTHONPATH="",
    )  # fmt: skip
    assert written(tmp_path / "there") == lines_here(store, tmp_path / "here")


@NIGHTLY
def test_a_worker_that_is_killed_costs_time_alone(cluster: Cluster, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_store(store, 40, 150_000)
    words = [
        sys.executable, "-c", PROGRAM, "report", str(store), "--out", str(tmp_path / "there"),
        "--master", cluster.url, *conf_words(),
    ]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        while not _judges(cluster.workers[0].pid):
            assert process.poll() is None, "it was over before a worker could be killed"
            time.sleep(0.02)  # nothing tells when another program's child has begun
        cluster.kill_worker(0)
        assert process.wait(timeout=280) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert cluster.workers[0].wait(timeout=10) != 0
    assert written(tmp_path / "there") == lines_here(store, tmp_path / "here")


def _judges(session: int) -> bool:
    """Whether a Python worker runs among the processes of a daemon."""
    for entry in Path("/proc").iterdir():
        try:
            is_own = entry.name.isdigit() and os.getsid(int(entry.name)) == session
            if is_own and b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


@NIGHTLY
def test_a_store_in_another_file_system_is_read_through_hadoop(store: Path, tmp_path: Path) -> None:
    """viewfs is none that Python could read: listings and contents come from the JVM."""
    link = f"spark.hadoop.fs.viewfs.mounttable.fleet.link./nights={store.as_uri()}"
    run(
        sys.executable, "-c", PROGRAM, "report", "viewfs://fleet/nights", "--conf", link,
        "--out", str(tmp_path / "there"),
        XDG_CACHE_HOME=str(no_cache(tmp_path)),
    )  # fmt: skip
    assert written(tmp_path / "there") == lines_here(store, tmp_path / "here")


def no_cache(base: Path) -> Path:
    """A file where a directory is wanted: writing a class archive takes longer than all else."""
    (base / "no-cache").touch()
    return base / "no-cache"


def test_a_store_is_followed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store_run(store, "run/0", broken_history(1))
    run(
        sys.executable, "-c", FOLLOW, str(store), XDG_CACHE_HOME=str(no_cache(tmp_path)),
        PYTHONPATH=os.pathsep.join(sys.path),
    )  # fmt: skip
    told = written(store / "_report")
    assert [line["run"] for line in told] == ["run/0", "run/later"]
    assert told[1]["valid"] is False
    assert told == lines_here(store, tmp_path / "here")


def test_make_report_needs_no_spark(store: Path) -> None:
    from shalott.spark_analysis.findings import find

    found = find(store, Wanted(engine="local"))
    assert len(make_report(found).runs) == len(found.runs) == 6
