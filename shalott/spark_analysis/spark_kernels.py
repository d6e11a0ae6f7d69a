"""The kernels in Spark's Python workers: a list of run files goes out, tables come back.

The rows of a history never cross into the JVM. Each row that Spark sees is a batch of tasks, one
partition each; its worker reads the files with pyarrow and calls the kernels. Files that only
Hadoop's file systems can read are read by Spark as they are, compressed, one run a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from shalott.spark_analysis.kernels.judge import (
    Files,
    files_here,
    joined,
    judge_tasks,
    prepare_worker,
)
from shalott.spark_analysis.kernels.rules import Task, packed, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_BYTES = 32 << 20  # of histories: some three seconds, what a lost executor costs at most
BATCHES_A_CORE = 3  # so that no core waits long for the last one
_GLOB = re.compile(r"[][{}*?\\]")  # what Hadoop would take for a pattern
RESULT = "name string, content binary"
_ARROW = pa.schema([pa.field("name", pa.string()), pa.field("content", pa.binary())])


def judge_with_spark(
    spark: SparkSession, tasks: Sequence[Task], elsewhere: bool = False
) -> dict[str, pa.Table]:
    """All tables of these runs. ``elsewhere``: their files are not on the workers' own disks."""
    pieces = [part for task in tasks for part in split(task)]
    judged = _judged_elsewhere(spark, pieces) if elsewhere else _judged_here(spark, pieces)
    found = judged.toArrow().to_pylist()
    return joined({row["name"]: _read_ipc(row["content"])} for row in found)


def _judged_here(spark: SparkSession, pieces: list[Task]) -> DataFrame:
    batches = packed(pieces, batch_count(pieces, _cores(spark)))
    rows = [msgspec.json.encode(batch) for batch in batches]
    table = pa.table({"tasks": pa.array(rows, pa.binary())})
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", str(len(rows)))
    return spark.createDataFrame(table).mapInArrow(judge_batches, RESULT)


def batch_count(pieces: Sequence[Task], cores: int) -> int:
    """How many batches: enough for all cores, and none that takes long."""
    by_size = sum(task.size for task in pieces) // BATCH_BYTES
    return max(cores, min(len(pieces), max(by_size, BATCHES_A_CORE * cores)))


def _cores(spark: SparkSession) -> int:
    """Of all executors, as far as Spark says."""
    return max(1, int(spark.sparkContext.defaultParallelism))


def judge_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker."""
    prepare_worker()
    for batch in batches:
        for text in batch.column("tasks").to_pylist():
            tasks = msgspec.json.decode(text, type=list[Task])
            yield from _results((task, files_here(task)) for task in tasks)


def _results(tasks: Iterable[tuple[Task, Files]]) -> Iterator[pa.RecordBatch]:
    found = judge_tasks(tasks)
    rows = [{"name": name, "content": _ipc(table)} for name, table in found.items()]
    yield from pa.Table.from_pylist(rows, schema=_ARROW).to_batches()


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _read_ipc(content: bytes) -> pa.Table:
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


def _judged_elsewhere(spark: SparkSession, pieces: list[Task]) -> DataFrame:
    """Each run's files as they are, joined with what is to be done with them."""
    from pyspark.sql import functions as F  # noqa: N812

    paths = [name for task in pieces for name in (task.history, task.events) if name]
    # A batch of Arrow is a run: several might be more than a worker can hold.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    content = spark.read.format("binaryFile").load(unglobbed(paths))
    directory = F.regexp_replace("path", "/[^/]*$", "")
    is_history = F.col("path").endswith("history.parquet")
    files = content.groupBy(directory.alias("directory")).agg(
        F.first(F.when(is_history, F.col("content")), ignorenulls=True).alias("history"),
        F.first(F.when(~is_history, F.col("content")), ignorenulls=True).alias("events"),
    )
    rows = [
        {"directory": task.history.rpartition("/")[0], "task": msgspec.json.encode(task)}
        for task in pieces
    ]
    table = pa.Table.from_pylist(
        rows, schema=pa.schema([("directory", pa.string()), ("task", pa.binary())])
    )
    asked = F.broadcast(spark.createDataFrame(table))
    count = batch_count(pieces, _cores(spark))
    both = files.join(asked, "directory").repartition(count, "task")
    return both.select("task", "history", "events").mapInArrow(judge_contents, RESULT)


def unglobbed(paths: Iterable[str]) -> list[str]:
    """Each once, as Hadoop takes it literally."""
    return [_GLOB.sub(r"\\\g<0>", path) for path in sorted(dict.fromkeys(paths))]


def judge_contents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: the rows hold the files' contents."""
    prepare_worker()
    for batch in batches:
        for row in batch.to_pylist():
            task = msgspec.json.decode(row["task"], type=Task)
            yield from _results([(task, (row["history"], row["events"]))])
