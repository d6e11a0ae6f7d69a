"""The kernels in this process, or in worker processes of this machine: no Java, no Spark.

Workers are fresh interpreters, one a core, and each is given about as many bytes as the others. A
few small runs are judged where we are: a worker costs half a second of processor time to start.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pyarrow as pa

from shalott.core.errors import HarnessError
from shalott.spark_analysis.kernels.judge import files_here, joined, judge_tasks, prepare_worker
from shalott.spark_analysis.kernels.rules import Task, packed, split

HERE_BYTES = 8 << 20  # of histories: about a second
BATCHES_A_WORKER = 4


def judge_here(tasks: Sequence[Task], workers: int | None = None) -> dict[str, pa.Table]:
    """All tables of these runs. ``workers``: how many processes; None: as many as there are cores.

    Raises HarnessError: a worker died.
    """
    pieces = [part for task in tasks for part in split(task)]
    workers = workers or len(os.sched_getaffinity(0))
    if workers == 1 or len(pieces) == 1 or sum(task.size for task in pieces) <= HERE_BYTES:
        return joined([judge_batch(pieces)])
    batches = packed(pieces, workers * BATCHES_A_WORKER)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(workers, len(batches)), context) as pool:
            return joined(pool.map(judge_batch, batches))
    except BrokenProcessPool as error:
        raise HarnessError(
            "a worker that judged runs died; `shalott report --engine spark` may tell of which"
        ) from error


def judge_batch(tasks: Sequence[Task]) -> dict[str, pa.Table]:
    """One after the other, by one thread."""
    prepare_worker()
    return judge_tasks((task, files_here(task)) for task in tasks)
