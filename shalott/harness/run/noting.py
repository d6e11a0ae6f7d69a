"""What the table of a store's runs (harness/fleet/runs) is told when runs end, and their tags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from shalott.core.errors import ShalottError, UsageError, sentence_of
from shalott.harness.run.store import RunDirectory
from shalott.harness.store.runs_table import note_runs


def read_tags(words: Sequence[str]) -> dict[str, str]:
    """``--tag KEY=VALUE``. Raises UsageError."""
    tags = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise UsageError(f"--tag {word}: give KEY=VALUE")
        tags[key] = value
    return tags


def note_in_table(store_root: Path, *directories: RunDirectory) -> None:
    """Rows in the store's table of runs. The next look at the table makes good for one that can't
    be written, so no run fails because of it."""
    try:
        notes = note_runs(store_root, [directory.path for directory in directories])
    except ShalottError as error:
        notes = (f"{sentence_of(error)} `shalott runs` will take in what is missing.",)
    for note in notes:
        typer.echo(note, err=True)
