"""`shalott export`: a history as EDN, for the tools of Jepsen."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Annotated

import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer

from shalott.checkers.reading import read_history
from shalott.checkers.reading.edn import encode
from shalott.checkers.reading.edn_export import NemesisEntry, edn_lines, keyword
from shalott.checkers.reading.history_files import file_of, unpacked
from shalott.core.errors import UsageError
from shalott.core.history import HISTORY_SCHEMA, History
from shalott.core.history import read_history as read_stored
from shalott.core.recording import recover
from shalott.harness.cli.checking import STORE, locate
from shalott.harness.cli.options import StoreOption

_PARQUET_MAGIC = b"PAR1"
_NO_FAULTS = (
    "probe",
    "trigger",
    "observe",
    "phase",
    "operator",
    "stall",
)  # what else the nemesis records


def add_commands(app: typer.Typer) -> None:
    app.command()(export)


def export(
    file: Annotated[str, typer.Argument(help="A run, latest, or a history.")] = "latest",
    format: Annotated[str, typer.Option(help="edn: what Jepsen and Knossos read.")] = "edn",
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
    """Write a history as EDN, for Jepsen's and Knossos's own tools."""
    if format != "edn":
        raise UsageError(f"--format {format}: there is edn")
    path = file_of(locate(file, store))
    with unpacked(path) as plain:
        history = read_history(plain)
        stored = stored_history(plain) if history.dialect == "shalott" else None
    if nemesis and history.dialect != "shalott":
        raise UsageError(f"{path} is no run of ours: what its nemesis did is not known")
    faults = nemesis_entries(stored) if nemesis and stored is not None else []
    told = {} if stored is None else told_of(stored)
    lines = edn_lines(history, keyed=keyed, nemesis=faults, told=told)
    if out is None:
        sys.stdout.writelines(lines)
        return
    try:
        with out.open("w", encoding="utf-8") as target:
            target.writelines(lines)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from error
    typer.echo(f"{out} is written: {len(history)} operations")
    for note in history.notes:
        typer.echo(f"note: {note}")


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
