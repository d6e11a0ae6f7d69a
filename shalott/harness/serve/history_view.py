"""A run's history as a table: filtered by columns, a page at a time, however long it is.

A page begins at an operation's index, so that a place deep in ten million operations costs no more
than the first: the file's own statistics say which parts hold nothing of it.
"""

from __future__ import annotations

import os

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from shalott.core.errors import StoreError
from shalott.core.history import HISTORY_SCHEMA
from shalott.core.op import NEMESIS
from shalott.core.recording import recover
from shalott.harness.run.store import HISTORY, RECORDING
from shalott.harness.serve.request import (
    Query,
    Refused,
    RunPath,
    StoreFiles,
    seconds_as_ns,
    whole_number,
)
from shalott.harness.store.columns import Row

PAGE_ROWS = 200
EXTRA_MAX = 400
RECORDING_MAX = 256 << 20
WHOSE = ("all", "clients", "nemesis")
_TYPES = ("ok", "fail", "info")


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Operations from index ``at`` on. ``next``: where the following page begins; None at the end.
    ``total``: of the history, filtered or not."""

    run: str
    total: int
    live: bool
    at: int
    next: int | None
    rows: tuple[Row, ...]
    fs: tuple[str, ...]
    nodes: tuple[str, ...]
    end_ns: int
    asked: dict[str, str]


FIELDS = ("f", "type", "node", "key", "error", "value", "process", "whose", "from_s", "to_s", "op")


def history_page(places: StoreFiles, query: Query) -> HistoryPage:
    """Raises Refused."""
    run = places.run(query.file_name("run"))
    wanted = _expression(query)
    at = query.number("at", 0)
    table, live = read_history(places, run)
    total = table.count_rows()
    scanner = table.scanner(
        columns=HISTORY_SCHEMA.names, filter=wanted & (ds.field("index") >= at), batch_size=8192
    )
    found = scanner.head(PAGE_ROWS + 1)
    rows = [_told(row) for row in found.slice(0, PAGE_ROWS).to_pylist()]
    fs, nodes, end_ns = _values(table)
    return HistoryPage(
        run=run.name,
        total=total,
        live=live,
        at=at,
        next=found["index"][PAGE_ROWS].as_py() if found.num_rows > PAGE_ROWS else None,
        rows=tuple(rows),
        fs=fs,
        nodes=nodes,
        end_ns=end_ns,
        asked={name: query.text(name) for name in FIELDS},
    )


def read_history(places: StoreFiles, run: RunPath) -> tuple[ds.Dataset, bool]:
    """The stored history; of a run that lasts, or was killed, what its recording tells."""
    stored = run.path / HISTORY
    try:
        if stored.is_file():
            with places.opened(run, HISTORY):  # it is inside, and a regular file
                return _conformed(ds.dataset(stored.resolve(), format="parquet")), False
        with places.opened(run, RECORDING) as file:
            if os.fstat(file.fileno()).st_size > RECORDING_MAX:
                raise Refused(
                    413, "The recording is too long to be shown before the run has ended."
                )
        return ds.dataset(recover(run.path / RECORDING).ops), True
    except (OSError, pa.ArrowException, StoreError) as error:
        why = str(error).partition("\n")[0][-200:]
        raise Refused(422, f"The history can't be read: {why}") from error


def _conformed(found: ds.Dataset) -> ds.Dataset:
    """Columns that an older history lacks are null."""
    if "index" not in found.schema.names:
        raise Refused(422, "The history can't be read: it has no index.")
    return found.replace_schema(HISTORY_SCHEMA)


def _expression(query: Query) -> object:
    """The filters as one. Raises Refused."""
    wanted = ds.field("index") >= 0
    for name in ("f", "node", "key"):
        if values := list(filter(None, query.texts(name))):
            wanted &= ds.field(name).isin(values)
    if kinds := list(filter(None, query.texts("type"))):
        if any(kind not in _TYPES for kind in kinds):
            raise Refused(400, f"type must be one of {', '.join(_TYPES)}.")
        wanted &= ds.field("type").isin(kinds)
    if numbers := query.text("op"):
        wanted &= ds.field("index").isin(_numbers("op", numbers))
    for name, column in (("value", "value"), ("process", "process")):
        if text := query.text(name):
            number = whole_number(text)
            if number is None:
                raise Refused(400, f"{name} must be a whole number of 64 bits.")
            wanted &= ds.field(column) == pa.scalar(number, pa.int64())
    if error := query.text("error"):
        wanted &= pc.match_substring(ds.field("error"), error, ignore_case=True)
    whose = query.one_of("whose", WHOSE)
    if whose == "nemesis":
        wanted &= ds.field("process") == NEMESIS
    elif whose == "clients":
        wanted &= ds.field("process") != NEMESIS
    if begin := query.text("from_s"):
        wanted &= ds.field("invoke_ns") >= seconds_as_ns("from_s", begin)
    if end := query.text("to_s"):
        wanted &= ds.field("invoke_ns") <= seconds_as_ns("to_s", end)
    return wanted


def _numbers(name: str, text: str) -> list[int]:
    """One whole number, or several with commas."""
    found = [whole_number(each) for each in text.split(",")]
    if None in found:
        raise Refused(400, f"{name} must be a whole number of 64 bits, or several with commas.")
    return [each for each in found if each is not None]


def _told(row: Row) -> Row:
    """Long texts are cut; the file has them whole."""
    for name in ("extra", "error"):
        text = row[name]
        if text is not None and len(text) > EXTRA_MAX:
            row[name] = f"{text[:EXTRA_MAX]}…"
    return row


def _values(table: ds.Dataset) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """What there is to choose from, of the first million operations, and the last time of them."""
    sample = table.scanner(columns=["f", "node", "invoke_ns"], batch_size=65536).head(1_000_000)
    fs = sorted(filter(None, pc.unique(sample["f"]).to_pylist()))
    nodes = sorted(filter(None, pc.unique(sample["node"]).to_pylist()))
    return tuple(fs[:100]), tuple(nodes[:100]), pc.max(sample["invoke_ns"]).as_py() or 0


def parquet_rows(places: StoreFiles, run: RunPath) -> int | None:
    """How many operations are stored; None if that can't be told."""
    try:
        with places.opened(run, HISTORY) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)
    except (Refused, OSError, pa.ArrowException):
        return None
