"""A directory that Jepsen or Maelstrom left of a test: store/NAME/TIME, and what its test map says.

The map is read from test.jepsen, test.fressian or test.edn, the first that is there; the results
from test.jepsen or results.edn. Where there is no map, the directory's names say name and time.
"""

from __future__ import annotations

from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final

from shalott.checkers.reading.edn import EdnMap
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.fressian import FressianError, Reader
from shalott.checkers.reading.jepsen_file import JepsenFile
from shalott.core.errors import UnreadableHistory

_OURS: Final = ("plan.json", "history.parquet", "history.jsonl")
_THEIRS: Final = ("test.jepsen", "test.fressian", "test.edn", "history.edn")


@dataclass(frozen=True, slots=True)
class StoredTest:
    """``map``: the whole test map, without the history. ``results``: None: there are none."""

    name: str
    started: str  # 20260101T000000.000Z
    nodes: tuple[str, ...]
    concurrency: int
    time_limit_s: float
    workload: str
    map: EdnMap
    results: EdnMap | None


def is_store(path: Path) -> bool:
    """Whether a directory is a test of Jepsen's, and no run of ours."""
    if not path.is_dir() or any((path / name).exists() for name in _OURS):
        return False
    return any((path / name).exists() for name in _THEIRS)


def read_store(path: Path) -> StoredTest:
    """Raises UnreadableHistory."""
    found, results = _maps(path)
    where = path.resolve()
    nodes = found.get("nodes")
    limit, concurrency = found.get("time-limit"), found.get("concurrency")
    return StoredTest(
        name=str(found.get("name") or where.parent.name),
        started=str(found.get("start-time") or where.name),
        nodes=tuple(map(str, nodes)) if isinstance(nodes, tuple) else (),
        concurrency=concurrency if isinstance(concurrency, int) else 0,
        time_limit_s=float(limit) if isinstance(limit, int | float) else 0.0,
        workload=str(found.get("workload") or found.get("name") or where.parent.name),
        map=found,
        results=results,
    )


def _maps(path: Path) -> tuple[EdnMap, EdnMap | None]:
    found, results = EdnMap(), None
    if (path / "test.jepsen").exists():
        file = JepsenFile(path / "test.jepsen")
        found, results = file.test(), file.results()
    elif (path / "test.fressian").exists():
        found = _of_fressian(path / "test.fressian")
        told = found.pop("results", None)
        results = told if isinstance(told, EdnMap) else None
    elif (path / "test.edn").exists():
        found = map_of_edn(path / "test.edn")
    if results is None and (path / "results.edn").exists():
        results = map_of_edn(path / "results.edn")
    return found, results


def _of_fressian(path: Path) -> EdnMap:
    with path.open("rb") as file:
        data = mmap(file.fileno(), 0, access=ACCESS_READ)
    try:
        return Reader(memoryview(data)).map_without("history")
    except FressianError as error:
        raise UnreadableHistory(f"{path}, {error}") from error


def map_of_edn(path: Path) -> EdnMap:
    """The one map that a file holds. Raises UnreadableHistory."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableHistory(f"cannot read {path}: {error.strerror}") from error
    as_value = b"{:process :nemesis :type :info :f :test :value " + content + b"\n}"
    values = [each.value for each in EntrySource.of_text(as_value, name=str(path)).entries()]
    if len(values) != 1 or not isinstance(values[0], EdnMap):
        raise UnreadableHistory(f"{path} is no map")
    return values[0]
