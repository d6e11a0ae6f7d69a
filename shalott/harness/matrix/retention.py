"""What is kept of a matrix's runs: by age, by size, and of valid runs the verdict alone.

Only runs of the matrix are touched, and never those of tonight. A deleted run leaves the table of
runs, and with it what later nights could be compared with: an age of several nights is what makes
sense.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shalott.core.parameters import parse_bytes, parse_duration_ms
from shalott.harness.matrix.definition import Retention
from shalott.harness.run.store import JUNIT, PLAN, RESULTS, TAGS
from shalott.harness.store.columns import RUN, Row
from shalott.harness.store.runs_table import forget_runs, read_table

_KEPT_OF_VALID = (PLAN, RESULTS, TAGS, JUNIT, "simulation.json")


def keep_verdict_only(directory: Path) -> None:
    """Remove what is large of a run that needs no second look."""
    for each in sorted(directory.iterdir()):
        if each.name in _KEPT_OF_VALID:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)


def retain(store: Path, matrix: str, tonight: str, rules: Retention) -> tuple[str, ...]:
    """Delete what is too old, then, until the rest is small enough, the oldest valid runs and then
    the oldest others; the runs that are gone."""
    if not rules.age and not rules.size:
        return ()
    rows = [row for row in _runs(store, matrix) if row["night"] != tonight]
    gone: list[str] = []
    if rules.age:
        oldest_ns = time.time_ns() - parse_duration_ms("age", rules.age) * 1_000_000
        gone = [row["run"] for row in rows if row["started_wall_ns"] < oldest_ns]
    if rules.size:
        kept = [row for row in rows if row["run"] not in gone]
        gone += _too_much(store, matrix, kept, parse_bytes("size", rules.size))
    delete_runs(store, gone)
    return tuple(gone)


def delete_runs(store: Path, runs: Sequence[str]) -> None:
    """Directories and rows. Raises StoreError."""
    for run in runs:
        path = store / run
        shutil.rmtree(path, ignore_errors=True)
        for link in (path.parent / "latest", store / "latest"):
            if link.is_symlink() and not link.exists():
                link.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()
    forget_runs(store, runs)


def _runs(store: Path, matrix: str) -> list[Row]:
    """The matrix's, the oldest first."""
    table = read_table(store).select(("run", "kind", "night", "tags", "valid", "started_wall_ns"))
    return [
        row for row in table.to_pylist() if row["kind"] == RUN and _tag(row, "matrix") == matrix
    ]


def _tag(row: Row, name: str) -> str:
    tags: dict[str, str] = msgspec.json.decode(row["tags"]) if row["tags"] else {}
    return tags.get(name, "")


def _too_much(store: Path, matrix: str, rows: list[Row], limit: int) -> list[str]:
    sizes = {row["run"]: _size(store / row["run"]) for row in rows}
    tonight = [row["run"] for row in _runs(store, matrix) if row["run"] not in sizes]
    total = sum(sizes.values()) + sum(_size(store / run) for run in tonight)
    gone = []
    for row in sorted(rows, key=lambda each: (each["valid"] != "true", each["started_wall_ns"])):
        if total <= limit:
            break
        gone.append(row["run"])
        total -= sizes[row["run"]]
    return gone


def _size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if not path.is_dir())
