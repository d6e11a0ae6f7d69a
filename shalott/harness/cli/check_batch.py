"""Which files `shalott check` is to judge, where it is given directories: every history in them.

A run's directory, ours or one of Jepsen's store, is one history. Every other directory is walked: a
file in it is a history if it begins like one, or is named like one.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from shalott.checkers.reading.history_files import GZIP_MAGIC, file_of, told_dialect
from shalott.core.errors import UnreadableHistory

_NAMED: Final = (".edn", ".jsonl", ".parquet", ".jepsen")
_NOT: Final = (
    ".md", ".rst", ".html", ".htm", ".css", ".js", ".png", ".jpg", ".svg", ".gif", ".pdf", ".csv",
    ".tsv", ".py", ".clj", ".sh", ".zip", ".tar", ".yaml", ".yml", ".toml", ".xml", ".sum",
)  # fmt: skip
_SAMPLE_BYTES: Final = 1 << 16


def histories(files: Iterable[str]) -> Iterator[str]:
    """What is given, and in place of a directory that is no run the histories in it."""
    for file in files:
        path = Path(file)
        if not path.is_dir() or is_run(path):
            yield file
        else:
            yield from _walked(path)


def is_run(directory: Path) -> bool:
    try:
        file_of(directory)
    except UnreadableHistory:
        return False
    return True


def _walked(directory: Path) -> Iterator[str]:
    for entry in sorted(directory.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from [os.fspath(entry)] if is_run(entry) else _walked(entry)
        elif entry.is_file() and entry.suffix not in _NOT and _is_history(entry):
            yield os.fspath(entry)


def _is_history(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            sample = file.read(_SAMPLE_BYTES)
        if sample.startswith(GZIP_MAGIC):
            with gzip.open(path) as file:
                sample = file.read(_SAMPLE_BYTES)
        told_dialect(path, sample)
    except (OSError, EOFError, UnreadableHistory):
        return path.suffix in _NAMED
    return True
