"""Worker processes that run seeds, handed out one at a time.

Every worker is a fresh interpreter (spawned, so with a hash seed of its own) that draws a seed's
plan, runs it through the campaign's door (door.py), and sends back what to remember, and of a
violation the evidence. A worker that has done enough is replaced, which bounds what it may have
gathered, and lets a repeated run take place in another process even if there is only one. A worker
that dies or hangs is replaced too, and its seed is reported as failed. One whose runs leave
something behind is told to end by its end of the pipe, also when the campaign itself is killed.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from shalott.core.doors import load_module
from shalott.core.errors import HarnessError
from shalott.core.plan import Plan
from shalott.harness.run.simulation_record import code_fingerprint
from shalott.harness.search.changed_code import ChangedModule, call_changed
from shalott.harness.search.door import Evidence, Lane, Plans, Ran, Runner, Runs
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.probes import call_probed

SEEDS_A_WORKER = 200
STOP_TIMEOUT_S = 5.0

_spawn = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker does with a number. ``changes``: code that is other than the sources."""

    plans: Plans
    runs: Runs
    code: str  # what the sources must be
    modules: tuple[str, ...] = ()  # that were loaded by name: a worker loads them too
    changes: tuple[ChangedModule, ...] = ()
    is_probed: bool = False  # its runs say what they came to (probes.py)


@dataclass(frozen=True, slots=True)
class Task:
    """``again``: no evidence is wanted. ``plan``: what to run in place of the number's own plan."""

    seed: int
    again: bool = False
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a task. ``worker`` is unique to one process."""

    task: Task
    worker: int
    report: SeedReport
    evidence: Evidence | None = None


class _Worker:
    def __init__(self, number: int, job: Job) -> None:
        self.number = number
        self._closes_within_s = job.runs.closes_within_s
        self.connection, theirs = _spawn.Pipe()
        self.process: SpawnProcess = _spawn.Process(
            target=call_probed if job.is_probed else call_changed,
            args=(job.changes, pickle.dumps((_work, (job, number))), theirs),
            name=f"shalott-seeds-{number}",
            daemon=True,
        )
        self.process.start()
        theirs.close()
        self.task: Task | None = None
        self.since_s = self.cpu_before_s = 0.0
        self.done = 0

    def give(self, task: Task) -> None:
        self.task, self.since_s, self.cpu_before_s = task, time.monotonic(), self.cpu_s()
        with contextlib.suppress(OSError):  # a dead worker is seen when its answer is awaited
            self.connection.send(task)

    def cpu_s(self) -> float:
        """What it has used so far; 0 if it is gone."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def tell_to_end(self) -> None:
        """It hears of it at once, also while it runs a plan."""
        self.connection.close()

    def stop(self) -> None:
        """End it: killed at once, if it has nothing to put in order."""
        self.tell_to_end()
        if self._closes_within_s:
            self.process.join(self._closes_within_s)
        self.process.kill()
        self.process.join(STOP_TIMEOUT_S)


class WorkerPool:
    """``jobs`` workers. Use as a context manager."""

    def __init__(
        self,
        job: Job,
        jobs: int,
        *,
        seeds_a_worker: int = SEEDS_A_WORKER,
        seed_limit_s: float | None = None,
    ) -> None:
        self._job = job
        self._seeds_a_worker = seeds_a_worker
        self._seed_limit_s = job.runs.limit_s if seed_limit_s is None else seed_limit_s
        self._started = 0
        self._workers = [self._start() for _ in range(jobs)]

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.tell_to_end()  # all of them, before any is waited for
        for worker in self._workers:
            worker.stop()

    @property
    def busy(self) -> int:
        return sum(worker.task is not None for worker in self._workers)

    def hand_out(self, choose: Callable[[int], Task | None]) -> None:
        """Ask ``choose`` for a task for each idle worker, by the worker's number."""
        for place, worker in enumerate(self._workers):
            if worker.task is not None:
                continue
            task = choose(worker.number)
            if task is None:
                continue
            if worker.done >= self._seeds_a_worker:
                worker = self._replace(place)
            worker.give(task)

    def renew(self) -> None:
        """New processes in the place of idle ones."""
        for place, worker in enumerate(self._workers):
            if worker.task is None:
                self._replace(place)

    def answers(self, timeout_s: float) -> list[Answer]:
        """What has come by then; returns at once when something does."""
        handles: dict[Connection | int, int] = {}
        for place, worker in enumerate(self._workers):
            if worker.task is not None:
                handles[worker.connection] = place
                handles[worker.process.sentinel] = place
        ready = wait(list(handles), timeout_s) if handles else []
        places = dict.fromkeys(handles[handle] for handle in ready)  # type: ignore[index]
        found = [self._receive(place) for place in places]
        return [answer for answer in (*found, *self._overdue()) if answer is not None]

    def _start(self) -> _Worker:
        self._started += 1
        return _Worker(self._started, self._job)

    def _replace(self, place: int) -> _Worker:
        self._workers[place].stop()
        self._workers[place] = self._start()
        return self._workers[place]

    def _receive(self, place: int) -> Answer | None:
        worker = self._workers[place]
        task = worker.task
        assert task is not None
        try:
            if not worker.connection.poll():
                raise EOFError
            received = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join(STOP_TIMEOUT_S)
            return self._failed(place, f"its process died (exit code {worker.process.exitcode})")
        if isinstance(received, str):
            raise HarnessError(received)
        worker.task, worker.done = None, worker.done + 1
        return Answer(task, worker.number, received.report, received.evidence)

    def _overdue(self) -> list[Answer]:
        now_s = time.monotonic()
        return [
            self._failed(place, f"it had not ended after {self._seed_limit_s:g} s")
            for place, worker in enumerate(self._workers)
            if worker.task is not None and now_s - worker.since_s > self._seed_limit_s
        ]

    def _failed(self, place: int, why: str) -> Answer:
        worker = self._workers[place]
        assert worker.task is not None
        took_s = round(max(0.0, worker.cpu_s() - worker.cpu_before_s), 4)
        report = SeedReport(seed=worker.task.seed, valid="unknown", error=why, wall_s=took_s)
        answer = Answer(worker.task, worker.number, report)
        self._replace(place)
        return answer


def _work(connection: Connection, job: Job, number: int) -> None:
    """A worker's whole life: until it is told to end, or the campaign is gone."""
    # Ctrl-C reaches the whole group; the parent decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if job.runs.closes_within_s:
        for others in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(others, signal.SIG_IGN)
    logging.getLogger().addHandler(logging.NullHandler())
    if code_fingerprint() != job.code:
        connection.send("the sources changed while the search ran: start it again")
        return
    for name in job.modules:
        load_module(name)
    runner = job.runs.open(Lane(number, job.code, connection.fileno()))
    try:
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            connection.send(run_task(connection.recv(), job, runner))
            gc.freeze()  # all modules are loaded: no collection need look at them again
            while True:
                connection.send(run_task(connection.recv(), job, runner))
    finally:
        runner.close()


def run_task(task: Task, job: Job, runner: Runner) -> Ran:
    """One run. What goes wrong in the harness is part of the report."""
    try:
        plan = job.plans.plan(task.seed) if task.plan is None else task.plan
        return runner.run(task.seed, plan, again=task.again)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        sentence = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        return Ran(SeedReport(seed=task.seed, valid="unknown", error=sentence))
