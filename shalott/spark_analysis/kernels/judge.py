"""Judging runs: from tasks to the rows of all tables, in any process and on any machine.

Every engine calls ``judge_tasks``; what differs is where the files' bytes come from. A run that
can't be read, or that a checker can't cope with, is a row of ``problems`` and stops nothing. What
only some runs need is imported by them: a worker lives for seconds.

``judge_here`` is the engine without Java and Spark. Its workers are fresh interpreters, one a
core, each with about as many bytes as the others. A few small runs are judged in this process: a
worker costs half a second of processor time to start.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pyarrow as pa

from shalott.core.errors import HarnessError
from shalott.spark_analysis.kernels.masters import (
    availability_rows,
    election_rows,
    master_rows,
    undrained_rows,
)
from shalott.spark_analysis.kernels.message_rows import (
    flat,
    merge_lost,
    merge_redeliveries,
    message_rows,
)
from shalott.spark_analysis.kernels.rules import Task, packed, split
from shalott.spark_analysis.kernels.run_data import RunData, Source, read_run, read_whole
from shalott.spark_analysis.kernels.tables import EVIDENCE, LOST_MESSAGES, TABLES, Row

Rows = dict[str, list[Row]]
Files = tuple[Source, Source | None]  # a run's history and its events

COLLECT_AFTER = 100_000  # new objects
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # mallopt(3)

# Messages of one bucket of values, with evidence by message: not yet a row of LOST_MESSAGES.
PART = "lost_messages_part"
_BY_MESSAGE = {f"{kind}_operations": pa.list_(pa.list_(pa.int64())) for kind in EVIDENCE}
PART_SCHEMA = pa.schema([pa.field(f.name, _BY_MESSAGE.get(f.name, f.type)) for f in LOST_MESSAGES])
HERE_BYTES = 8 << 20  # of histories: about a second
BATCHES_A_WORKER = 4


def prepare_worker() -> None:
    """One thread: the other cores have workers of their own. The system's allocator: it gives the
    memory of one row group to the next, where Arrow's own asks the kernel anew (half of the
    processor time of reading, where page faults are dear), if it is kept from asking, too. Rows are
    made by the hundred thousand and have no cycles: the collector looks at them less often."""
    pa.set_cpu_count(1)
    pa.set_memory_pool(pa.system_memory_pool())
    _keep_freed_memory()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def _keep_freed_memory() -> None:
    """glibc: large blocks come from the heap as well, and its end is not given back."""
    allocator = ctypes.CDLL(None)
    if hasattr(allocator, "mallopt"):
        allocator.mallopt(_M_MMAP_MAX, 0)
        allocator.mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def judge_tasks(tasks: Iterable[tuple[Task, Files]]) -> dict[str, pa.Table]:
    """One table a job, over all tasks: those of TABLES, and PART. Without rows, none."""
    found: Rows = {}
    for task, files in tasks:
        for name, rows in _judged_safely(task, files).items():
            found.setdefault(name, []).extend(rows)
    return {name: as_table(name, rows) for name, rows in found.items() if rows}


def files_here(task: Task) -> Files:
    """The files of a task, on this machine."""
    return task.history, task.events or None


def as_table(name: str, rows: list[Row]) -> pa.Table:
    schema = PART_SCHEMA if name == PART else TABLES[name]
    return pa.Table.from_pylist(rows, schema=schema)


def joined(tables: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """All that tasks found, of all runs; the parts of huge runs put together."""
    pieces: dict[str, list[pa.Table]] = {name: [] for name in (*TABLES, PART)}
    for found in tables:
        for name, table in found.items():
            pieces[name].append(table)
    parts = [row for table in pieces.pop(PART) for row in table.to_pylist()]
    if parts:
        rows = [flat(row) for row in merge_lost(parts)]
        pieces["lost_messages"].append(as_table("lost_messages", rows))
        split = {row["run"] for row in parts}
        pieces["redeliveries"] = [_merged_redeliveries(pieces["redeliveries"], split)]
    return {
        name: pa.concat_tables(own) if own else TABLES[name].empty_table()
        for name, own in pieces.items()
    }


def _merged_redeliveries(tables: list[pa.Table], split: set[str]) -> pa.Table:
    rows = [row for table in tables for row in table.to_pylist()]
    whole = [row for row in rows if row["run"] not in split]
    of_parts = [row for row in rows if row["run"] in split]
    return as_table("redeliveries", [*whole, *merge_redeliveries(of_parts)])


def _judged_safely(task: Task, files: Files) -> Rows:
    try:
        return judge(task, files)
    except Exception as error:  # one run must not end the report of a thousand
        where = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        told = f"{why} ({where.name}, line {where.lineno})"
        return {"problems": [{"run": task.run, "why": told}]}


def judge(task: Task, files: Files) -> Rows:
    """The rows of one run, or of its part. Raises what reading and the checkers raise."""
    if task.part == "messages":
        data = read_run(*files, task.complete, task.bucket, task.buckets)
        lost, again = message_rows(task.run, data)
        return {PART: lost, "redeliveries": again}
    if task.part == "objects":
        data = read_run(*files, task.complete)
        return _objects(task, data)
    data = read_run(*files, task.complete)
    found = dict(_of_every_run(task, data))
    if task.rules.is_plain and "send" not in data.ops.f.names:
        found["undrained"] = list(undrained_rows(task.run, data))
        if task.rules.fifo:
            from shalott.spark_analysis.kernels.order import fifo_rows

            found["order"] = list(fifo_rows(task.run, data))
        if task.part == "all":
            lost, found["redeliveries"] = message_rows(task.run, data)
            found["lost_messages"] = [flat(row) for row in lost]
            found |= _objects(task, data)
        return found
    return found | _of_consumers_and_logs(task, files, data)


def _of_every_run(task: Task, data: RunData) -> Iterator[tuple[str, list[Row]]]:
    run, rules = task.run, task.rules
    dual, times = master_rows(run, data, rules.tolerance_ns, task.round_ns)
    yield "dual_masters", dual
    yield "tenure_times", times
    yield "unavailability", list(availability_rows(run, data))
    if rules.elections:
        yield "elections", list(election_rows(run, data, rules.tolerance_ns))


def _objects(task: Task, data: RunData) -> Rows:
    if not task.rules.objects:
        return {}
    from shalott.spark_analysis.kernels.order import object_rows

    bucket = (task.bucket, task.buckets) if task.part == "objects" else (0, 1)
    rows = [row for each in task.rules.objects for row in object_rows(
        task.run, data.ops, each, *bucket)]  # fmt: skip
    return {"linearizability": rows}


def _of_consumers_and_logs(task: Task, files: Files, data: RunData) -> Rows:
    history = read_whole(*files, task.complete)
    if task.rules.consume is not None:
        from shalott.checkers.consumers.consume_case import read_case
        from shalott.spark_analysis.kernels.consumers import consume_rows

        case = read_case(history, task.rules.consume)
        return consume_rows(task.run, case)
    if task.rules.group is not None:
        from shalott.checkers.groups.group_case import Case as GroupCase
        from shalott.spark_analysis.kernels.groups import group_rows

        return group_rows(task.run, GroupCase(history, task.rules.group), history)
    from shalott.spark_analysis.kernels.logs import log_rows

    lost, order = log_rows(task.run, history, data.around)
    return {"lost_messages": lost, "order": order}


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
