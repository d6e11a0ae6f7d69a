"""A checkout whose broker is broken on purpose, and the command line run from it.

The copy has the broker's sources as files of its own and links to every other room. The command
line that is started with the copy first on its path runs the simulation on the broken broker, makes
the containers' image of it (the image is built of the package's sources), and hands the path on to
local nodes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.runs import ROOT, Done, shalott


@dataclass(frozen=True, slots=True)
class Edit:
    """``old``, which occurs once in ``file`` (a path below the checkout), becomes ``new``."""

    file: str
    old: str
    new: str

    def applied_to(self, text: str) -> str:
        count = text.count(self.old)
        assert count == 1, f"{self.file} has {count} times what is to be replaced:\n{self.old}"
        return text.replace(self.old, self.new)


def mutated_checkout(edits: Sequence[Edit], directory: Path) -> Path:
    """Make the copy; returns the directory that goes on the import path."""
    package = directory / "shalott"
    package.mkdir(parents=True)
    original = ROOT / "shalott"
    shutil.copy(original / "__init__.py", package)
    for room in original.iterdir():
        if room.name == "broker":
            shutil.copytree(room, package / room.name)  # compiled files keep their sources' times
        elif room.is_dir() and room.name != "__pycache__":
            (package / room.name).symlink_to(room.resolve())
    for edit in edits:
        path = directory / edit.file
        path.write_text(edit.applied_to(path.read_text()))
    return package.parent


def run_mutant(edits: Sequence[Edit], arguments: Sequence[str], directory: Path) -> Done:
    """Run ``shalott`` with these arguments on the broken broker."""
    path = mutated_checkout(edits, directory / "checkout")
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return shalott(arguments, directory / "run", environment=environment)
