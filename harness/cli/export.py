"""`shalott export`: a history as EDN, for the tools of Jepsen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pyarrow.compute as pc

from shalott.checkers.reading import read_history
from shalott.checkers.reading.edn_export import NemesisEntry, edn_lines
from shalott.checkers.reading.files import file_of
from shalott.harness.cli.checking import locate
from shalott.harness.core.errors import UsageError
from shalott.harness.core.history import History
from shalott.harness.core.history import read_history as read_stored
from shalott.harness.core.recording import recover

_NO_FAULTS = ("probe", "observe", "phase", "operator", "stall")  # what else the nemesis records


def export_history(
    file: str,
    *,
    format: str,
    out: Path | None,
    keyed: bool | None,
    with_nemesis: bool,
    store: Path,
    echo: Callable[[str], None],
) -> None:
    """Writes ``file`` in another format. Raises UsageError."""
    if format != "edn":
        raise UsageError(f"--format {format}: there is edn")
    path = file_of(locate(file, store))
    history = read_history(path)
    if with_nemesis and history.dialect != "shalott":
        raise UsageError(f"{path} is no run of ours: what its nemesis did is not known")
    nemesis = nemesis_entries(path) if with_nemesis else []
    lines = edn_lines(history, keyed=keyed, nemesis=nemesis)
    if out is None:
        _write(sys.stdout, lines)
        return
    try:
        with out.open("w", encoding="utf-8") as target:
            _write(target, lines)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from error
    echo(f"{out} is written: {len(history)} operations")
    for note in history.notes:
        echo(f"note: {note}")


def _write(target: TextIO, lines: object) -> None:
    target.writelines(lines)  # type: ignore[arg-type]


def nemesis_entries(path: Path) -> list[NemesisEntry]:
    """When each fault was begun and when it was over, in the order of time."""
    stored: History = recover(path) if path.suffix == ".jsonl" else read_stored(path)
    rows = stored.ops.filter(pc.less(stored.ops["process"], 0))
    entries = []
    for row in rows.select(["f", "invoke_ns", "complete_ns"]).to_pylist():
        if row["f"] in _NO_FAULTS:
            continue
        entries.append(NemesisEntry(row["invoke_ns"], row["f"], "begun"))
        if row["complete_ns"] is not None:
            entries.append(NemesisEntry(row["complete_ns"], row["f"], "healed"))
    return sorted(entries, key=lambda entry: entry.at_ns)
