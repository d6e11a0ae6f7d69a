"""Workers of a search in the test's own process, in the worst order that processes could choose."""

from __future__ import annotations

from collections.abc import Callable

from shalott.harness.search.door import Lane, Runner
from shalott.harness.search.workers import Answer, Job, Task, run_task


class Backwards:
    """It answers only when all workers are busy or nothing is left to hand out, the last task
    first."""

    def __init__(self, job: Job, jobs: int) -> None:
        self._job = job
        self._numbers = list(range(jobs))
        self._tasks: dict[int, Task] = {}
        self._runner: Runner = job.runs.open(Lane(0, job.code, -1))

    def __enter__(self) -> Backwards:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    @property
    def busy(self) -> int:
        return len(self._tasks)

    def hand_out(self, choose: Callable[[int], Task | None]) -> None:
        for number in self._numbers:
            if number not in self._tasks and (task := choose(number)) is not None:
                self._tasks[number] = task

    def renew(self) -> None:
        self._numbers = [number + 1000 for number in self._numbers]

    def answers(self, timeout_s: float) -> list[Answer]:
        done = sorted(self._tasks.items(), key=lambda item: -item[1].seed)
        self._tasks.clear()
        found = []
        for number, task in done:
            ran = run_task(task, self._job, self._runner)
            found.append(Answer(task, number, ran.report, ran.evidence))
        return found
