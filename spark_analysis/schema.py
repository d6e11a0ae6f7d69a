"""The Spark jobs' columns: those of histories, made from the harness's table, and their own.

A job's output schema is a constant here: what a job returns is cast to it, so that files of
different nights can be read as one. Times are bigint nanoseconds, ids are signed, as in the
histories.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 (the name that Spark's own documentation uses)

from shalott.harness.core.history import COLUMNS, EVENT_COLUMNS

_TYPES: dict[pa.DataType, T.DataType] = {
    pa.int64(): T.LongType(),
    pa.int32(): T.IntegerType(),
    pa.string(): T.StringType(),
    pa.bool_(): T.BooleanType(),
}


def spark_type(columns: Sequence[tuple[str, pa.DataType, bool, str]]) -> T.StructType:
    """The harness's table of columns as Spark's."""
    return T.StructType(
        [T.StructField(name, _TYPES[kind], nullable) for name, kind, nullable, _ in columns]
    )


HISTORY = spark_type(COLUMNS)
EVENTS = spark_type(EVENT_COLUMNS)

_LONG, _STRING = T.LongType(), T.StringType()
_LONGS, _STRINGS = T.ArrayType(_LONG), T.ArrayType(_STRING)


def _struct(*fields: tuple[str, T.DataType]) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields])


# A run: ``path`` is its history file, ``complete`` false if its recording was cut short.
RUNS = _struct(
    ("run", _STRING), ("path", _STRING), ("complete", T.BooleanType()), ("round_ns", _LONG)
)

# Outcomes of messages are those of checkers/queues/outcomes.py.
MESSAGE_OUTCOMES = (
    *("delivered_once", "recovered", "lost", "duplicated", "redelivered", "phantom"),
    "not_enqueued",
)
EVIDENCE = ("lost", "duplicated", "phantom", "unexpected")

# One row a run and queue that any message or delivery names.
LOST_MESSAGES = _struct(
    ("run", _STRING),
    ("queue", _STRING),
    ("attempts", _LONG),
    ("acknowledged", _LONG),
    *((outcome, _LONG) for outcome in MESSAGE_OUTCOMES),
    ("unexpected", _LONG),
    ("corrupted", _LONG),
    ("too_early", _LONG),
    *((f"{kind}_operations", _LONGS) for kind in EVIDENCE),
)

# Of runs with consumers: one row a run and queue (kind consume) or consumer group (kind group).
CONSUMED_COUNTS = (
    *("attempts", "acknowledged", "deliveries", "again", "again_unflagged"),
    *("consumed", "drained", "dead_lettered", "unsure", "skipped", "gone", "lost"),
)
CONSUMED_EVIDENCE = ("lost", "skipped", "again")
CONSUMED = _struct(
    ("run", _STRING),
    ("kind", _STRING),
    ("lane", _STRING),
    *((name, _LONG) for name in CONSUMED_COUNTS),
    *((f"{name}_operations", _LONGS) for name in CONSUMED_EVIDENCE),
)

# What one node said or did as master of one group. ``source``, by the nodes' events: logged (a
# tenure), acted (acknowledged writes), epoch (one of two that acted in one epoch, see claims.py);
# by the harness's polls: seen (a tenure), polled (one answer), answered (writes that clients got
# acknowledged through it). A queue that was not drained is a row too: undrained, with no node.
CLAIMS = _struct(
    ("run", _STRING),
    ("source", _STRING),
    ("group", _STRING),
    ("node", _STRING),
    ("begin_ns", _LONG),
    ("end_ns", _LONG),
    ("epoch", _LONG),
    ("evidence", _LONG),  # row of the events, or index of the operation
    ("round_ns", _LONG),  # how often the run polled
)

# One row for two nodes that were masters of one group at once; times are null where only the epoch
# is shared.
DUAL_MASTERS = _struct(
    ("run", _STRING),
    ("group", _STRING),
    ("kind", _STRING),  # claimed, effective
    ("witness", _STRING),  # events, observed, epoch
    ("nodes", _STRINGS),
    ("begin_ns", _LONG),
    ("end_ns", _LONG),
    ("epoch", _LONG),
    ("evidence", _LONGS),
)

# One row a run, group and kind: how often, and how long without counting any instant twice.
TENURE_TIMES = _struct(
    ("run", _STRING),
    ("group", _STRING),
    ("kind", _STRING),
    ("overlaps", _LONG),
    ("stretches", _LONG),
    ("total_ns", _LONG),
)
