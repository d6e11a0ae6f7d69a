"""The history: its one schema, how it is recorded as it happens, and how it is stored and read.

The schema is used by the recorder, the checkers and the Spark jobs alike. Times are plain int64
nanoseconds (Spark reads no nanosecond timestamps), ids are signed (no unsigned integers in Spark).
A run is recorded as it happens (core/recording.py); afterwards its history is one row an
operation, stored as Parquet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shalott.core.errors import StoreError
from shalott.core.op import Completion, Invocation
from shalott.core.sums import check_sum

# (name, Arrow type, nullable, meaning)
COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("index", pa.int64(), False, "position by invocation, dense from 0"),
    ("process", pa.int32(), False, "client process; -1 is the nemesis"),
    ("node", pa.string(), False, "the node that the client talked to"),
    (
        "f",
        pa.string(),
        False,
        "enqueue, dequeue; for process -1 fault kinds, probe, observe, phase",
    ),
    ("key", pa.string(), False, "the queue"),
    ("value", pa.int64(), True, "the message's run-unique id"),
    ("offset", pa.int64(), True, "log systems: the message's offset"),
    ("type", pa.string(), False, "ok, fail or info"),
    ("invoke_ns", pa.int64(), False, "ns from the run's start"),
    ("complete_ns", pa.int64(), True, "ns from the run's start; null if it never completed"),
    ("redelivered", pa.bool_(), True, "the broker's redelivered flag"),
    ("error", pa.string(), True, "why it is fail or info"),
    ("extra", pa.string(), True, "JSON"),
    (
        "due_ns",
        pa.int64(),
        True,
        "ns from the run's start: when the schedule wanted it; null if no schedule paced it",
    ),
)
HISTORY_SCHEMA = pa.schema([pa.field(name, kind, nullable=null) for name, kind, null, _ in COLUMNS])

EVENT_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("at_ns", pa.int64(), False, "the node's own monotonic clock"),
    ("wall_ns", pa.int64(), False, "the node's wall clock"),
    (
        "run_ns",
        pa.int64(),
        True,
        "ns from the run's start on the harness's clock; null if it can't be placed",
    ),
    ("node", pa.string(), False, ""),
    ("incarnation", pa.int64(), False, "grows at each start of the node"),
    ("group", pa.string(), False, "queue name; empty for the node itself"),
    ("kind", pa.string(), False, "role, promoted, sync_started, sync_done, acked, ..."),
    ("role", pa.string(), False, "master, mirror, none; running, paused, stopped for the node"),
    ("epoch", pa.int64(), False, "version of the metadata row that gave the role"),
    ("detail", pa.string(), True, "JSON"),
)
EVENT_SCHEMA = pa.schema(
    [pa.field(name, kind, nullable=null) for name, kind, null, _ in EVENT_COLUMNS]
)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class History:
    """One run's operations (HISTORY_SCHEMA, by index) and node events (EVENT_SCHEMA, by run_ns).

    ``complete`` is false when the recording was cut short and operations after the last flush are
    missing. ``damage``: what of it can't be read, or is not what was written, as sentences.
    """

    ops: pa.Table
    events: pa.Table
    complete: bool = True
    damage: tuple[str, ...] = ()


EMPTY_EVENTS = pa.Table.from_batches([], EVENT_SCHEMA)  # empty_table() would import pandas


class Recorder(Protocol):
    """How anything that happens in a run gets into its history. Never blocks and never raises."""

    def now_ns(self) -> int:
        """ns from the run's start."""
        ...

    def invoke(
        self, process: int, node: str, invocation: Invocation, due_ns: int | None = None
    ) -> int:
        """Record that an operation begins now; returns its index. ``due_ns``: when it should
        have begun, where a schedule says so."""
        ...

    def complete(self, index: int, completion: Completion) -> None:
        """Record its end, once."""
        ...

    def happened(self, process: int, node: str, f: str, completion: Completion) -> None:
        """Record what no process asked for and what is over now, as a delivery: one row, ok, that
        begins and ends at one moment."""
        ...


# Grows when a column changes its meaning or goes; a new one comes without it.
SCHEMA_VERSION = 1
ENTRIES_KEY = b"shalott.entries"  # of rows whose ``extra`` holds the entries of another's history
_KIND_KEY, _RUN_KEY, _VERSION_KEY = b"shalott.file", b"shalott.run", b"shalott.schema_version"


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """What a Parquet file says of itself in its key-value metadata. Of files that say
    nothing, ``kind`` and ``run`` are "" and ``schema_version`` is 0."""

    kind: str  # history, events
    run: str  # the run's name and directory: "log-dledger/20260101T000000.000Z"
    schema_version: int


def write_history(table: pa.Table, path: Path, run: str = "") -> None:
    """One row an operation, as Parquet. The caller sees to atomic renames."""
    more = (ENTRIES_KEY,) if ENTRIES_KEY in (table.schema.metadata or {}) else ()
    _write_parquet(table.cast(HISTORY_SCHEMA), path, "history", run, more)


def write_events(table: pa.Table, path: Path, run: str = "") -> None:
    _write_parquet(table.cast(EVENT_SCHEMA), path, "events", run)


def read_origin(path: Path) -> FileOrigin:
    """Of which run a file is, and in which version of its columns. Raises StoreError."""
    try:
        told = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    version = told.get(_VERSION_KEY, b"0")
    return FileOrigin(
        kind=told.get(_KIND_KEY, b"").decode(),
        run=told.get(_RUN_KEY, b"").decode(),
        schema_version=int(version) if version.isdigit() else 0,
    )


def holds_entries(path: Path) -> bool:
    """Whether a file is Parquet, and of rows that were made of another's entries."""
    try:
        return ENTRIES_KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        return False


def read_history(
    history_path: Path,
    events_path: Path | None = None,
    *,
    complete: bool = True,
    damage: tuple[str, ...] = (),
) -> History:
    """Read what ``write_history`` and ``write_events`` wrote; no events file is no events."""
    ops = _read_parquet(history_path, HISTORY_SCHEMA)
    events = EMPTY_EVENTS
    if events_path is not None and events_path.exists():
        events = _read_parquet(events_path, EVENT_SCHEMA)
    return History(ops=ops, events=events, complete=complete, damage=damage)


def events_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Node events, as ``System.read_events`` gives them, sorted. ``detail`` may be an object."""
    flat = [
        {
            **row,
            "detail": detail
            if isinstance(detail, str | None)
            else msgspec.json.encode(detail).decode(),
        }
        for row in rows
        for detail in (row.get("detail"),)
    ]
    table = pa.Table.from_pylist(flat, schema=EVENT_SCHEMA)
    return table.sort_by([("run_ns", "ascending"), ("node", "ascending"), ("at_ns", "ascending")])


def _write_parquet(
    table: pa.Table, path: Path, kind: str, run: str, more: Sequence[bytes] = ()
) -> None:
    told = {_KIND_KEY: kind, _RUN_KEY: run, _VERSION_KEY: str(SCHEMA_VERSION)}
    table = table.replace_schema_metadata(told | dict.fromkeys(more, ""))
    strings = [field.name for field in table.schema if pa.types.is_string(field.type)]
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    try:
        pq.write_table(
            table,
            path,
            compression="zstd",
            compression_level=3,
            use_dictionary=strings,
            column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
            write_page_checksum=True,
        )
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error


def _read_parquet(path: Path, schema: pa.Schema) -> pa.Table:
    check_sum(path)
    try:
        return pq.read_table(path, schema=schema, page_checksum_verification=True)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        why = str(error).partition("\n")[0]
        raise StoreError(f"cannot read {path}: {why}") from error
