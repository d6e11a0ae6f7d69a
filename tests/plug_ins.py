"""Plug-ins as a user has them: modules in the working directory, and installed distributions.

``plug_ins`` is a fixture: import it where it is used. What is loaded or found by a test is gone
after it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from shalott.checkers.checker import CHECKERS
from shalott.checkers.models.outside import MODELS
from shalott.cluster.systems.record import SYSTEMS
from shalott.core import doors
from shalott.core.published import FINDINGS
from shalott.nemesis.record import FAULTS
from shalott.workloads.record import WORKLOADS

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


@dataclass(frozen=True)
class PlugIns:
    """Writes them into a directory that Python looks at."""

    place: Path

    def module(self, name: str, text: str) -> None:
        path = self.place.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        importlib.invalidate_caches()

    def distribution(self, name: str, group: str, version: str = "1.2", **entries: str) -> None:
        """What pip leaves of one: its metadata, and what each of its entry points names."""
        folder = self.place / f"{name.replace('-', '_')}-{version}.dist-info"  # as pip names it
        folder.mkdir()
        folder.joinpath("METADATA").write_text(METADATA.format(name=name, version=version))
        lines = [f"[{group}]", *(f"{entry} = {target}" for entry, target in entries.items())]
        folder.joinpath("entry_points.txt").write_text("\n".join(lines) + "\n")
        forget()


def forget() -> None:
    """What the doors have found so far, as in a process that has just begun."""
    doors._offered_entry_points.cache_clear()
    doors._loaded.clear()
    for door in (MODELS, CHECKERS):
        door._installed = None
        door._from_modules.clear()
        door._broken.clear()
    for other in (SYSTEMS, WORKLOADS, FAULTS, FINDINGS):
        other._from_modules.clear()
        other._gathered = None


@pytest.fixture
def plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlugIns]:
    """In the working directory of the test."""
    place = tmp_path / "plug_ins"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    monkeypatch.chdir(place)
    forget()
    yield PlugIns(place)
    written = [path.stem for path in place.iterdir()]
    for name in [name for name in sys.modules if name.partition(".")[0] in written]:
        del sys.modules[name]
    forget()
