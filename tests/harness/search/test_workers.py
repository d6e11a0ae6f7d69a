"""Workers whose runs leave something behind: they end in order, also when nobody asks them to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shalott.harness.run.simulation_record import code_fingerprint
from shalott.harness.scenarios.swarm import Subject
from shalott.harness.search.door import DrawnPlans
from shalott.harness.search.workers import Job, Task, WorkerPool
from tests.world.harness.toy_real import OrderlyRuns
from tests.world.waiting import until

pytestmark = pytest.mark.explore

ROOT = Path(__file__).resolve().parents[3]

CHILD = """
import sys, time
from pathlib import Path
from tests.harness.search.test_workers import answer_one, make_pool
if __name__ == "__main__":
    pool = make_pool(Path(sys.argv[1]))
    answer_one(pool)
    print("working", flush=True)
    time.sleep(60)
"""


def make_pool(place: Path) -> WorkerPool:
    return WorkerPool(Job(DrawnPlans(Subject()), OrderlyRuns(place), code_fingerprint()), 1)


def answer_one(pool: WorkerPool) -> None:
    tasks = [Task(1)]
    pool.hand_out(lambda worker: tasks.pop() if tasks else None)
    while not (answers := pool.answers(1.0)):
        pass
    assert answers[0].report.error is None, answers[0].report.error


def test_a_worker_closes_what_it_opened(tmp_path: Path) -> None:
    with make_pool(tmp_path) as pool:
        answer_one(pool)
    assert (tmp_path / "closed-1").read_text() == "closed"


def test_a_campaign_that_is_killed_leaves_workers_that_end_by_themselves(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(CHILD)
    with subprocess.Popen(
        [sys.executable, str(child), str(tmp_path)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"working\n"
        process.send_signal(signal.SIGKILL)
    until((tmp_path / "closed-1").exists, "the worker closed what it had opened")
