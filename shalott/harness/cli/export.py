"""`shalott export`: a history of any format in another one, for other tools and for ours."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer

from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.reading import read_history
from shalott.checkers.reading.edn import encode
from shalott.checkers.reading.edn_export import NemesisEntry, edn_lines, keyword
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.entries_export import TEXTS, as_edn_file, write_store
from shalott.checkers.reading.history_files import (
    FOREIGN,
    JEPSEN,
    KEY_VALUE,
    SHALOTT,
    dialect_of_file,
    file_of,
    unpacked,
)
from shalott.core.errors import UsageError
from shalott.core.history import HISTORY_SCHEMA, History, holds_entries
from shalott.core.history import read_history as read_stored
from shalott.core.recording import recover
from shalott.harness.cli.checking import STORE, locate
from shalott.harness.cli.options import StoreOption
from shalott.harness.run.foreign_run import map_and_results, write_run

_OF_COLUMNS, _DIRECTORIES = ("edn", "porcupine-kv"), ("jepsen", "shalott")
FORMATS = (*_OF_COLUMNS, *(name for name in TEXTS if name != "edn"), *_DIRECTORIES)
_PARQUET_MAGIC = b"PAR1"
_NO_FAULTS = (
    "probe",
    "trigger",
    "observe",
    "phase",
    "operator",
    "stall",
)  # what else the nemesis records


Told = EntrySource | ConcurrentHistory  # what was read, with notes


def add_commands(app: typer.Typer) -> None:
    app.command()(export)


def export(
    file: Annotated[str, typer.Argument(help="A run, latest, or a history.")] = "latest",
    format: Annotated[
        str,
        typer.Option(
            help="edn: Jepsen and Knossos; porcupine-kv: the same with keys beside values; json:"
            " elle-cli; log: history.txt; openchaos; jepsen: a store's directory; shalott: a run's."
        ),
    ] = "edn",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to; else standard output.")
    ] = None,
    keyed: Annotated[
        bool | None,
        typer.Option(
            "--keyed/--plain", help="Values are \\[key value]; else if there are several keys."
        ),
    ] = None,
    nemesis: Annotated[bool, typer.Option("--nemesis", help="With a run's faults.")] = False,
    store: StoreOption = STORE,
) -> None:
    """Write a history in the format of other tools, or in ours."""
    if format not in FORMATS:
        raise UsageError(f"--format {format}: there are {', '.join(FORMATS)}")
    path = file_of(locate(file, store))
    if format in _DIRECTORIES:
        _write_directory(path, format, out)
        return
    if format in _OF_COLUMNS:
        texts, told = _columns_as_edn(path, format, keyed, nemesis)
    else:
        source = EntrySource.of_path(path)
        texts, told = TEXTS[format](source), source
    _write(texts, told, out)


def _write(texts: Iterable[bytes], told: Told, out: Path | None) -> None:
    if out is None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(texts)
        return
    try:
        with out.open("wb") as target:
            target.writelines(texts)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from error
    _echo(out, told)


def _echo(out: Path, told: Told) -> None:
    is_source = isinstance(told, EntrySource)
    count = told.count if isinstance(told, EntrySource) else len(told)
    typer.echo(f"{out} is written: {count} {'entries' if is_source else 'operations'}")
    for note in told.notes:
        typer.echo(f"note: {note}")


def _columns_as_edn(
    path: Path, format: str, keyed: bool | None, nemesis: bool
) -> tuple[Iterator[bytes], Told]:
    """Another's entries as they are; of ours, and where it is asked how values are, what each
    operation means."""
    is_plain = format == "edn" and keyed is None and not nemesis
    with unpacked(path) as plain:
        dialect = dialect_of_file(plain)
        if is_plain and (dialect in (JEPSEN, KEY_VALUE, *FOREIGN) or holds_entries(plain)):
            source = EntrySource.of_path(path)
            return as_edn_file(source), source
        history = read_history(plain)
        stored = stored_history(plain) if history.dialect == SHALOTT else None
    if nemesis and history.dialect != SHALOTT:
        raise UsageError(f"{path} is no run of ours: what its nemesis did is not known")
    faults = nemesis_entries(stored) if nemesis and stored is not None else []
    told = {} if stored is None else told_of(stored)
    keyed = False if format == "porcupine-kv" else keyed
    lines = edn_lines(history, keyed=keyed, nemesis=faults, told=told)
    return (line.encode() for line in lines), history


def _write_directory(path: Path, format: str, out: Path | None) -> None:
    """A store of Jepsen's, or a run of ours that ``shalott report`` takes."""
    if out is None:
        raise UsageError(f"--format {format} is a directory: say which, --out DIRECTORY")
    source = EntrySource.of_path(path)
    try:
        if format == "jepsen":
            test, results = map_and_results(path.parent)
            write_store(out, source, test, results)
        else:
            write_run(out, path.parent, source)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from error
    _echo(out, source)


def stored_history(path: Path) -> History | None:
    """A run's history with all of its columns; None: the file has only what a check reads."""
    with path.open("rb") as begun:
        if begun.read(len(_PARQUET_MAGIC)) != _PARQUET_MAGIC:
            return recover(path)
    names = pq.read_schema(path).names
    return read_stored(path) if set(HISTORY_SCHEMA.names) <= set(names) else None


def nemesis_entries(stored: History) -> list[NemesisEntry]:
    """When each fault was begun and when it was over, in the order of time, with its targets."""
    rows = stored.ops.filter(pc.less(stored.ops["process"], 0))
    entries = []
    for row in rows.select(["f", "invoke_ns", "complete_ns", "extra"]).to_pylist():
        if row["f"] in _NO_FAULTS:
            continue
        told = "" if row["extra"] is None else f":extra {json_as_edn(json.loads(row['extra']))}"
        entries.append(NemesisEntry(row["invoke_ns"], row["f"], "begun", told))
        if row["complete_ns"] is not None:
            entries.append(NemesisEntry(row["complete_ns"], row["f"], "healed", told))
    return sorted(entries, key=lambda entry: entry.at_ns)


def told_of(stored: History) -> dict[int, str]:
    """By index, what a client was told beside the value: where a message stands in a log, which
    records a poll brought, whether a message had been delivered before."""
    told = {}
    wanted = ["index", "process", "offset", "redelivered", "extra"]
    kept = functools.reduce(pc.or_, (pc.is_valid(stored.ops[name]) for name in wanted[2:]))
    for row in stored.ops.filter(kept).select(wanted).to_pylist():
        if row["process"] < 0:
            continue
        fields = []
        if row["offset"] is not None:
            fields.append(f":offset {row['offset']}")
        if row["redelivered"] is not None:
            fields.append(f":redelivered {encode(row['redelivered'])}")
        if row["extra"] is not None:
            fields.append(f":extra {json_as_edn(json.loads(row['extra']))}")
        told[row["index"]] = ", ".join(fields)
    return told


def json_as_edn(value: object) -> str:
    """JSON's values as EDN; an object's keys become keywords where they can be."""
    if isinstance(value, dict):
        pairs = (f"{keyword(key)} {json_as_edn(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{' '.join(map(json_as_edn, value))}]"
    return encode(value)
