"""The history's one schema, and History: the columns that every checker reads.

Used by the recorder, the checkers and the Spark jobs alike. Times are plain int64 nanoseconds (Spark reads no
nanosecond timestamps), ids are signed (no unsigned integers in Spark).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

# (name, Arrow type, nullable, meaning)
COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("index", pa.int64(), False, "position by invocation, dense from 0"),
    ("process", pa.int32(), False, "client process; -1 is the nemesis"),
    ("node", pa.string(), False, "the node that the client talked to"),
    ("f", pa.string(), False, "enqueue, dequeue, drain; fault kinds, probe, observe for process -1"),
    ("key", pa.string(), False, "the queue"),
    ("value", pa.int64(), True, "the message's run-unique id"),
    ("offset", pa.int64(), True, "log systems: the message's offset"),
    ("type", pa.string(), False, "ok, fail or info"),
    ("invoke_ns", pa.int64(), False, "ns from the run's start"),
    ("complete_ns", pa.int64(), True, "ns from the run's start; null if it never completed"),
    ("redelivered", pa.bool_(), True, "the broker's redelivered flag"),
    ("error", pa.string(), True, "why it is fail or info"),
    ("extra", pa.string(), True, "JSON"),
)
HISTORY_SCHEMA = pa.schema([pa.field(name, kind, nullable=null) for name, kind, null, _ in COLUMNS])

EVENT_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("at_ns", pa.int64(), False, "the node's own monotonic clock"),
    ("wall_ns", pa.int64(), False, "the node's wall clock"),
    ("run_ns", pa.int64(), True, "ns from the run's start on the harness's clock, by wall clock"),
    ("node", pa.string(), False, ""),
    ("incarnation", pa.int64(), False, "grows at each start of the node"),
    ("group", pa.string(), False, "queue name; empty for the node itself"),
    ("kind", pa.string(), False, "role, promoted, sync_started, sync_done, acked, ..."),
    ("role", pa.string(), False, "master, mirror, none; running, paused, stopped for the node"),
    ("epoch", pa.int64(), False, "version of the metadata row that gave the role"),
    ("detail", pa.string(), True, "JSON"),
)
EVENT_SCHEMA = pa.schema([pa.field(name, kind, nullable=null) for name, kind, null, _ in EVENT_COLUMNS])


@dataclass(frozen=True, slots=True)
class History:
    """One run's operations (HISTORY_SCHEMA, in order of index) and node events (EVENT_SCHEMA, by run_ns).

    ``complete`` is false when the recording was cut short and operations after the last flush are missing.
    """

    ops: pa.Table
    events: pa.Table
    complete: bool = True
