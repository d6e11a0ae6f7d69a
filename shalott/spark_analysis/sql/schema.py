"""The columns of tables as Spark has them, made from the one declaration of each.

What a SQL job returns is cast to its schema here, so that files of different nights can be read as
one. Times are bigint nanoseconds, ids are signed, as in the histories.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 (the name that Spark's own documentation uses)

from shalott.core.history import EVENT_SCHEMA, HISTORY_SCHEMA
from shalott.spark_analysis.kernels import tables

_TYPES: dict[pa.DataType, T.DataType] = {
    pa.int64(): T.LongType(),
    pa.int32(): T.IntegerType(),
    pa.string(): T.StringType(),
    pa.bool_(): T.BooleanType(),
}


def spark_type(schema: pa.Schema) -> T.StructType:
    """A table's columns as Spark's."""
    return T.StructType(
        [T.StructField(field.name, _column(field.type), field.nullable) for field in schema]
    )


def _column(kind: pa.DataType) -> T.DataType:
    if pa.types.is_list(kind):
        return T.ArrayType(_TYPES[kind.value_type])
    return _TYPES[kind]


HISTORY = spark_type(HISTORY_SCHEMA)
EVENTS = spark_type(EVENT_SCHEMA)
LOST_MESSAGES = spark_type(tables.LOST_MESSAGES)
CONSUMED = spark_type(tables.CONSUMED)
DUAL_MASTERS = spark_type(tables.DUAL_MASTERS)
TENURE_TIMES = spark_type(tables.TENURE_TIMES)

MESSAGE_OUTCOMES, EVIDENCE = tables.MESSAGE_OUTCOMES, tables.EVIDENCE
OF_LOGS = tables.OF_LOGS
CONSUMED_COUNTS, CONSUMED_EVIDENCE = tables.CONSUMED_COUNTS, tables.CONSUMED_EVIDENCE

_LONG, _STRING = T.LongType(), T.StringType()


def _struct(*fields: tuple[str, T.DataType]) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields])


# A run: ``path`` is its history file, ``complete`` false if its recording was cut short.
RUNS = _struct(
    ("run", _STRING), ("path", _STRING), ("complete", T.BooleanType()), ("round_ns", _LONG)
)

# What one node said or did as master of one group. ``source``, by the nodes' events: logged (a
# tenure), acted (acknowledged writes), epoch (one of two that acted in one epoch, see
# kernels/masters.py); by the harness's polls: seen (a tenure), polled (one answer), answered
# (writes that clients got acknowledged through it). A queue that was not drained is a row too:
# undrained, with no node.
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
