"""The same in plain SQL over the rows of all histories: a second opinion, slower by far.

What it knows are the tables BY_SQL; all others stay empty. It is the cross-check of the kernels:
``shalott report --engine sql``, and the tests. The jobs of sql/ make columns while they are
imported, which needs a session: so they are imported by the functions that have one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from shalott.spark_analysis.consumer_counts import GROUPS, QUEUES
from shalott.spark_analysis.kernels.tables import TABLES
from shalott.spark_analysis.stored_runs import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS_A_TASK = 8  # a Python worker costs more to start than so many runs to read
_GLOB = re.compile(r"[][{}*?\\]")  # what Spark would take for a pattern


def judge_with_sql(spark: SparkSession, runs: Sequence[Run]) -> dict[str, pa.Table]:
    """Tables of these runs, whose files are where the workers can read them."""
    from shalott.spark_analysis.sql import schema
    from shalott.spark_analysis.sql.dual_masters import (
        UNDRAINED,
        claims,
        claims_here,
        dual_masters,
        tenure_times,
    )

    with ThreadPoolExecutor(1) as beside:
        # Python reads while the JVM is at work on the other job.
        if len(runs) <= RUNS_A_TASK:
            reading = beside.submit(claims_here, runs_rows(runs))
        else:
            tasks = -(-len(runs) // RUNS_A_TASK)
            reading = beside.submit(claims(runs_frame(spark, runs), tasks).toArrow)
        lost = _lost(spark, [run for run in runs if not run.has_consumers])
        consumed = _consumed(spark, [run for run in runs if run.has_consumers])
        claimed = reading.result()
    undrained = claimed.filter(pc.equal(claimed["source"], UNDRAINED)).to_pylist()
    rows = [{"run": row["run"], "queue": row["group"], "why": None} for row in undrained]
    # Small from here on: a row for each claim, not for each operation.
    dual = dual_masters(spark.createDataFrame(claimed, schema.CLAIMS)).toArrow()
    times = tenure_times(spark.createDataFrame(dual, schema.DUAL_MASTERS)).toArrow()
    found = {
        "lost_messages": lost,
        "consumed_messages": consumed,
        "dual_masters": dual,
        "tenure_times": times,
        "undrained": pa.Table.from_pylist(rows, schema=TABLES["undrained"]),
    }
    empty = {name: each.empty_table() for name, each in TABLES.items() if name not in found}
    return {name: table.cast(TABLES[name]) for name, table in (found | empty).items()}


def runs_rows(runs: Sequence[Run]) -> list[tuple[str, str, bool, int]]:
    return [
        (run.run, run.files.history, run.complete, run.observe_interval_ms * 1_000_000)
        for run in runs
    ]


def runs_frame(spark: SparkSession, runs: Sequence[Run]) -> DataFrame:
    from shalott.spark_analysis.sql import schema

    return spark.createDataFrame(runs_rows(runs), schema.RUNS)


def read_ops(spark: SparkSession, runs: Sequence[Run]) -> DataFrame:
    """The histories of all runs, with the column ``run``; there must be one."""
    from pyspark.sql import functions as F  # noqa: N812

    from shalott.spark_analysis.sql import schema

    files = [_GLOB.sub(r"\\\g<0>", run.files.history) for run in runs]
    ops = spark.read.schema(schema.HISTORY).parquet(*files)
    # Spark escapes some characters of a path and leaves others; a plus is a plus, not a space.
    escaped = F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))
    path = F.regexp_replace(F.url_decode(escaped), "^file:/+", "/")
    names = spark.createDataFrame(
        pa.table({
            "history": pa.array([run.files.history for run in runs], pa.string()),
            "run": pa.array([run.run for run in runs], pa.string()),
        })
    )  # fmt: skip
    return ops.withColumn("history", path).join(F.broadcast(names), "history").drop("history")


def _lost(spark: SparkSession, runs: Sequence[Run]) -> pa.Table:
    from shalott.spark_analysis.sql.lost_messages import log_messages, lost_messages

    if not runs:
        return TABLES["lost_messages"].empty_table()
    ops = read_ops(spark, runs)
    return lost_messages(ops).unionByName(log_messages(ops)).toArrow()


def _consumed(spark: SparkSession, runs: Sequence[Run]) -> pa.Table:
    from shalott.spark_analysis.sql import schema
    from shalott.spark_analysis.sql.consumed_messages import consumed_messages
    from shalott.spark_analysis.sql.group_messages import group_messages

    found = spark.createDataFrame([], schema.CONSUMED)
    queues = [run for run in runs if run.workload == QUEUES]
    if queues:
        rows = [(run.run, queue) for run in queues for queue in run.taking]
        taking = spark.createDataFrame(rows, "run string, queue string")
        found = found.unionByName(consumed_messages(read_ops(spark, queues), taking))
    groups = [run for run in runs if run.workload == GROUPS]
    if groups:
        found = found.unionByName(group_messages(read_ops(spark, groups)))
    return found.toArrow()
