"""A search's workers on the executors of a Spark cluster.

Seeds are independent, so a few of them are one task of Spark's, which knows how to place it, and to
run it again elsewhere when an executor is lost: a run is a function of its plan, so it comes to the
same. Executors hold nothing: they draw a seed's plan, or it comes with the task; reports and
evidence go back, and the campaign is written where the command runs. At an executor each seed runs
as it does on one machine, in a process of its own pool (workers.py), kept for the next task.

Executors need this project's libraries; its code is sent (spark_analysis/spark_session.py).
"""

from __future__ import annotations

import hashlib
import os
import pickle
import queue
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from shalott.core.errors import HarnessError
from shalott.harness.search.workers import Answer, Job, Task, WorkerPool
from shalott.spark_analysis.spark_session import Session, spark_session

BATCH = 4  # seeds a task: a task costs some 50 ms of its own, a seed more than a second
LOOK_S = 1.0
ROOMS = (
    *("core", "broker", "cluster", "checkers", "clients", "workloads", "nemesis"),
    *("spark_analysis", "harness"),
)
Run = Callable[[bytes], bytes]  # ``run_batch`` at an executor


@dataclass(slots=True)
class _Slot:
    """``number`` names it to who chooses tasks; ``tasks``: what is under way."""

    number: int
    tasks: list[Task] = field(default_factory=list)


class SparkPool:
    """As ``WorkerPool``: so many batches at once as there are slots. Use as a context manager."""

    def __init__(self, job: Job, slots: int, run: Run) -> None:
        self._job = job
        self._run = run
        self._slots = [_Slot(-number) for number in range(1, slots + 1)]
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="shalott-spark")
        self._done: queue.Queue[tuple[_Slot, Future[bytes]]] = queue.Queue()

    def __enter__(self) -> SparkPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def busy(self) -> int:
        return sum(bool(slot.tasks) for slot in self._slots)

    def hand_out(self, choose: Callable[[int], Task | None]) -> None:
        for slot in self._slots:
            if slot.tasks:
                continue
            chosen = [task for _ in range(BATCH) if (task := choose(slot.number)) is not None]
            if chosen:
                slot.tasks = chosen
                batch = self._threads.submit(self._run, pickle.dumps((self._job, chosen)))
                batch.add_done_callback(partial(self._ended, slot))

    def renew(self) -> None:
        """What is run again is run in a new process anyhow."""
        for slot in self._slots:
            slot.number -= len(self._slots)

    def answers(self, timeout_s: float) -> list[Answer]:
        """Raises HarnessError if Spark gave a batch up."""
        found: list[Answer] = []
        wait_s = timeout_s if self.busy else 0.0
        while True:
            try:
                slot, batch = self._done.get(timeout=wait_s) if wait_s else self._done.get_nowait()
            except queue.Empty:
                return found
            slot.tasks, wait_s = [], 0.0
            error = batch.exception()
            if error is not None:
                reason = str(error).strip().partition("\n")[0]
                raise HarnessError(f"Spark could not run a batch: {reason}") from error
            found += pickle.loads(batch.result())

    def _ended(self, slot: _Slot, batch: Future[bytes]) -> None:
        if not batch.cancelled():
            self._done.put((slot, batch))


@contextmanager
def spark_pools(master: str, log: Path, jobs: int) -> Iterator[Callable[[Job, int], SparkPool]]:
    """Makes pools on that cluster, of ``jobs`` slots, or of as many as it has cores. Raises
    UsageError if Java or pyspark is missing, HarnessError if Spark does not come up."""
    with spark_session(Session(log=log, master=master, rooms=ROOMS)) as session:
        context = session.sparkContext
        slots = jobs or context.defaultParallelism

        def run(batch: bytes) -> bytes:
            (answer,) = context.parallelize([batch], 1).map(run_batch).collect()
            return bytes(answer)

        try:
            yield lambda job, _: SparkPool(job, slots, run)
        finally:
            context.cancelAllJobs()


# -- at an executor --------------------------------------------------------------------------------

_pools: dict[bytes, WorkerPool] = {}  # of this process of Spark's: one, of the job that ran last


def run_batch(batch: bytes) -> bytes:
    """The answers to a batch, one seed after the other."""
    job, tasks = pickle.loads(batch)
    pool = _pool_of(job)
    return pickle.dumps([answer for task in tasks for answer in _run_one(pool, task)])


def _run_one(pool: WorkerPool, task: Task) -> Iterator[Answer]:
    if task.again:
        pool.renew()
    waiting = [task]
    pool.hand_out(lambda _: waiting.pop() if waiting else None)
    while pool.busy:
        for answer in pool.answers(LOOK_S):
            yield replace(answer, worker=_worker_number(answer.worker))


def _pool_of(job: Job) -> WorkerPool:
    key = hashlib.blake2b(pickle.dumps(job), digest_size=16).digest()
    if key not in _pools:
        for other in _pools.values():
            other.__exit__()
        _pools.clear()
        _pools[key] = WorkerPool(job, 1)
    return _pools[key]


def _worker_number(number: int) -> int:
    """Unique among the processes of all executors."""
    name = f"{socket.gethostname()} {os.getpid()} {number}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=6).digest())
