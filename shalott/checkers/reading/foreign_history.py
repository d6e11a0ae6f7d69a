"""Histories of others' formats as columns: they become EDN (formats.py), which is read as such."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.history_files import JEPSEN
from shalott.checkers.reading.text_history import read_text
from shalott.core.errors import UnreadableHistory


def read_foreign(path: Path, dialect: str, keyed: bool) -> ConcurrentHistory:
    """The history that a plain file holds; what it counts are entries, not lines. Raises
    UnreadableHistory."""
    source = EntrySource.of_path(path, dialect)
    try:
        with source.as_edn() as text:
            history = read_text(path, JEPSEN, keyed, file=text)
    except UnreadableHistory as error:
        raise UnreadableHistory(str(error).replace(f"{path}, line ", f"{path}, entry ")) from error
    return replace(
        history,
        dialect=dialect,
        place_name="entry",
        notes=(*source.notes, *history.notes),
        cut=source.cut or history.cut,
    )
