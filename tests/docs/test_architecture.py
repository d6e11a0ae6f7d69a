"""The four walks and the table of worlds in docs/architecture.md are those of the code.

A walk is a list of functions, each with its file. A small run in the simulation is traced, and
every function must be entered behind the one before it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from shalott.cluster.capabilities import WORLDS
from shalott.harness.cli.main import main
from tests.tidy.sources import ROOT

ARCHITECTURE = ROOT / "docs" / "architecture.md"
PRODUCT = f"{ROOT / 'shalott'}/"
FILES_MAX = 10
STEP = re.compile(r"^\d+\. `(shalott/[\w/]+\.py)` `([\w.]+)`", re.MULTILINE)
OPTIMIZED = 1  # of a code object: a function's, not a module's or a class's
RUN = (
    *("test", "--cluster", "sim", "--system", "mirrored", "--profile", "safe", "--seed", "7"),
    *("--time-limit", "4", "--rate", "40", "--nemesis", "kill"),
    *("--nemesis-interval", "2", "--nemesis-duration", "1"),
)
# What every operation of this run goes through besides its walk: plain values and draws.
LEAVES = ("core/rng.py",)

Call = tuple[str, str]


def walks() -> Mapping[str, list[Call]]:
    """(file, function) of each step, by the walk's name."""
    section = ARCHITECTURE.read_text().partition("### Four walks\n")[2].partition("\n## ")[0]
    parts = section.split("\n**")[1:]
    return {part.partition(".**")[0]: STEP.findall(part) for part in parts}


@contextmanager
def calls_traced() -> Iterator[list[Call]]:
    """Every call of a function of the product, in order."""
    found: list[Call] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & OPTIMIZED and code.co_filename.startswith(PRODUCT):
            found.append((f"shalott/{code.co_filename.removeprefix(PRODUCT)}", code.co_qualname))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.mark.unit
def test_each_walk_has_few_files() -> None:
    found = walks()
    assert [*found] == ["A run", "An operation", "A fault", "A verdict"]
    for name, steps in found.items():
        files = dict.fromkeys(file for file, _ in steps)
        assert 5 <= len(files) <= FILES_MAX, f"{name}: {len(files)} files"


@pytest.mark.unit
def test_the_table_of_worlds_is_the_code_s() -> None:
    rows = re.findall(
        r"^\| (\w+) \| [^|]*((?:\| *(?:yes)? *){5})\|$", ARCHITECTURE.read_text(), re.M
    )
    worlds = ("sim", "local", "docker", "ssh", "existing")
    shown = {
        part: [
            world for world, cell in zip(worlds, cells.split("|")[1:], strict=True) if cell.strip()
        ]
        for part, cells in rows
    }
    parts = {part for cells in WORLDS.values() for part in cells}
    assert shown == {part: [w for w in worlds if part in WORLDS[w]] for part in parts}


@pytest.mark.sim
def test_a_run_goes_the_four_walks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with calls_traced() as calls, pytest.raises(SystemExit) as left:
        main(RUN)
    assert left.value.code == 0
    for name, steps in walks().items():
        rest = iter(calls)
        for step in steps:
            assert step in rest, f"{name}: {step} is not entered behind the step before it"
    ended = ("shalott/core/queue_generator.py", "QueueMix.update")
    under_load = calls[calls.index(walks()["An operation"][0]) : _last(calls, ended)]
    operations = under_load.count(ended)
    assert operations > 100
    entered = Counter(file for file, _ in under_load)
    often = {
        file
        for file, count in entered.items()
        if count >= operations and file.startswith(("shalott/core/", "shalott/clients/"))
    }
    on_the_way = {file for file, _ in walks()["An operation"]}
    assert sorted(often - on_the_way) == [f"shalott/{leaf}" for leaf in LEAVES]


def _last(calls: list[Call], wanted: Call) -> int:
    return max(place for place, call in enumerate(calls) if call == wanted)
