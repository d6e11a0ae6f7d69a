"""The table of all runs in memory: read when the file changes, in the order of the first page.

Only the columns that lists need are kept, so that ten thousand runs take a few megabytes. A file of
another version is taken as it is: what it lacks is null, what it has besides is passed over, and a
column of another type is cast, or null. While a file can't be read (it is being replaced, or torn)
what was read before is shown, with a sentence that says so.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shalott.harness.store.columns import RUNS_SCHEMA, TABLE, Row

KEPT = (
    *("run", "kind", "name", "started_wall_ns", "elapsed_ns", "commit", "tree", "image", "system"),
    *("profile", "workload", "cluster", "nodes", "seed", "nemesis", "faults_made", "valid"),
    *("failed_checkers", "anomalies", "acknowledged", "lost", "lost_unexplained", "duplicated"),
    *("dual_master_effective", "rto_ms", "unavailable_ms_max", "latency_p50_ms", "latency_p99_ms"),
    *("rate_acknowledged_hz", "harness_failures", "headline", "night", "cell", "campaign"),
    *("seeds_wanted", "seeds_judged", "seeds_valid", "seeds_invalid", "seeds_unknown"),
    *("seeds_not_booted", "unknown_checkers", "command", "tags"),
)
SCHEMA = pa.schema([RUNS_SCHEMA.field(name).with_nullable(True) for name in KEPT])
# The words for people by the table's, the gravest first.
VERDICTS = {"false": "invalid", "unknown": "unknown", "": "no verdict", "true": "valid"}


@dataclass(frozen=True)
class Runs:
    """The table as it was read. ``order``: row numbers, newest night first, red first within one;
    ``group``: the night of each row, or the UTC day of a run that belongs to none."""

    table: pa.Table
    order: npt.NDArray[np.int64]
    group: pa.Array
    notes: tuple[str, ...] = ()
    made: dict[object, Any] = field(default_factory=dict)  # what was computed of it, by name

    def column(self, name: str) -> pa.ChunkedArray:
        return self.table[name]

    def rows(self, numbers: Sequence[int]) -> list[Row]:
        """Some rows as objects, in that order, with ``group``."""
        taken = pa.array(numbers, type=pa.int64())
        found: list[Row] = self.table.take(taken).to_pylist()
        groups = self.group.take(taken).to_pylist()
        return [{**row, "group": group} for row, group in zip(found, groups, strict=True)]

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each run."""
        return {name: at for at, name in enumerate(self.table["run"].to_pylist())}


class RunsFile:
    """STORE/runs.parquet, read again when it has changed. Used by several threads at once."""

    def __init__(self, store: Path) -> None:
        self.path = store / TABLE
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._runs = arranged(SCHEMA.empty_table())

    def current(self) -> Runs:
        with self._lock:
            try:
                stat = self.path.stat()
            except OSError:
                self._seen = None
                self._runs = arranged(
                    SCHEMA.empty_table(), (f"There is no {TABLE} in this store yet.",)
                )
                return self._runs
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen != self._seen:
                self._runs = self._read()
                self._seen = seen
            return self._runs

    def _read(self) -> Runs:
        try:
            with pq.ParquetFile(self.path) as file:
                names = [name for name in KEPT if name in file.schema_arrow.names]
                found = file.read(columns=names)
            table, notes = conformed(found)
        except (OSError, pa.ArrowException) as error:
            why = str(error).partition("\n")[0][:200]
            note = f"{TABLE} can't be read now ({why}); what is shown was read before."
            return Runs(self._runs.table, self._runs.order, self._runs.group, (note,))
        return arranged(table, notes)


def conformed(found: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """The table in SCHEMA, without rows that name no run; sentences about what did not fit."""
    columns, notes = [], []
    for wanted in SCHEMA:
        values = _cast(found, wanted)
        if values is None:
            values = pa.chunked_array([pa.nulls(found.num_rows, wanted.type)])
            if wanted.name in found.column_names:
                notes.append(f"The column {wanted.name} has another type than is known here.")
        columns.append(values)
    table = pa.table(columns, schema=SCHEMA)
    named = pc.and_(pc.is_valid(table["run"]), pc.not_equal(table["run"], ""))
    return table.filter(named).combine_chunks(), tuple(notes)


def _cast(found: pa.Table, wanted: pa.Field) -> pa.ChunkedArray | None:
    if found.column_names.count(wanted.name) != 1:
        return None
    values = found[wanted.name]
    if values.type.equals(wanted.type):
        return values
    if pa.types.is_list(wanted.type) and pa.types.is_struct(wanted.type.value_type):
        return _cast_structs(values, wanted.type)
    try:
        return values.cast(wanted.type, safe=False)
    except pa.ArrowException:
        return None


def _cast_structs(values: pa.ChunkedArray, wanted: pa.ListType) -> pa.ChunkedArray | None:
    """A list of structs that has other fields: by name, what is missing null."""
    names = [wanted.value_type.field(at).name for at in range(wanted.value_type.num_fields)]
    try:
        lists = values.to_pylist()
        kept = [
            None if each is None else [{name: one.get(name) for name in names} for one in each]
            for each in lists
        ]
        return pa.chunked_array([pa.array(kept, type=wanted)])
    except (pa.ArrowException, AttributeError, TypeError):
        return None


def arranged(table: pa.Table, notes: tuple[str, ...] = ()) -> Runs:
    """With the order of the first page: nights by their newest run, then red, then newest."""
    started = pc.fill_null(table["started_wall_ns"], 0).to_numpy().astype(np.int64)
    days = pc.strftime(pa.array(started.astype("datetime64[ns]")), format="%Y-%m-%d")
    nights = pc.fill_null(table["night"], "").combine_chunks()
    group = pc.if_else(pc.equal(nights, ""), days, nights)
    encoded = group.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    newest = np.zeros(len(encoded.dictionary), dtype=np.int64)
    np.maximum.at(newest, codes, started)
    severity = pc.index_in(
        pc.fill_null(table["valid"], ""), value_set=pa.array([*VERDICTS])
    ).fill_null(2)
    order = np.lexsort((-started, severity.to_numpy(), codes, -newest[codes]))
    return Runs(table, order.astype(np.int64), group, notes)
