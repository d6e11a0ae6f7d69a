"""What a night leaves behind: its summary, its JUnit file, and the notice of its end.

In the JUnit document the class of a case is its cell, its name the seed. A run that shows what its
cell does not expect is a failure; one that can't be judged, or whose harness failed, is an error.
What is flaky says so. A night that is not over has a case that is an error; what was not run has
no case.

What is kept of a matrix's runs: by age, by size, and of valid runs the verdict alone.

Only runs of the matrix are touched, and never those of tonight. A deleted run leaves the table of
runs, and with it what later nights could be compared with: an age of several nights is what makes
sense.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pyarrow as pa

from shalott.core.errors import StoreError, UsageError
from shalott.core.parameters import parse_bytes, parse_duration_ms
from shalott.harness.matrix.cells import Cell
from shalott.harness.matrix.definition import Retention
from shalott.harness.matrix.night_findings import FLAKY
from shalott.harness.matrix.night_journal import (
    NIGHT_JUNIT,
    SUMMARY,
    SUMMARY_TEXT,
    Journal,
    NightHead,
)
from shalott.harness.matrix.night_summary import NightSummary, summarise, summary_lines
from shalott.harness.matrix.run_outcomes import (
    FAILED,
    FIRST,
    EarlierNights,
    Outcome,
    earlier_nights,
)
from shalott.harness.report.junit import (
    add_case,
    add_error,
    add_property,
    make_suite,
    render_suites,
    spoken,
)
from shalott.harness.run.atomic_file import write_atomically
from shalott.harness.run.store import JUNIT, PLAN, RESULTS, TAGS
from shalott.harness.store.columns import RUN, Row
from shalott.harness.store.runs_table import forget_runs, read_table

NOTIFY_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class NightView:
    head: NightHead
    cells: tuple[Cell, ...]
    due: tuple[tuple[str, int], ...]
    earlier: EarlierNights
    commit: str
    store: Path


def write_files(
    directory: Path,
    summary: NightSummary,
    cells: Sequence[Cell],
    outcomes: Sequence[Outcome],
    command: str,
) -> None:
    """summary.json, summary.txt, junit.xml. Raises StoreError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {directory}: {error.strerror}") from error
    data = msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
    write_atomically(directory / SUMMARY, data)
    write_atomically(
        directory / SUMMARY_TEXT, "".join(f"{x}\n" for x in summary_lines(summary)).encode()
    )
    write_atomically(directory / NIGHT_JUNIT, render_night(summary, cells, list(outcomes), command))


def summary_of(view: NightView, journals: Sequence[Journal], spent_s: float) -> NightSummary:
    definition = view.head.matrix.definition
    facts = summarise(
        view.cells,
        [one for journal in journals for one in journal.outcomes],
        view.earlier,
        repeat=view.head.repeat,
        due=view.due,
        fail_on=definition.night.fail_on,
    )
    return msgspec.convert(
        {
            "matrix": definition.name,
            "night": view.head.name,
            "digest": view.head.matrix.digest,
            "shards": tuple(sorted(journal.head.shard for journal in journals)),
            "of_shards": view.head.shards,
            "started_wall_ns": min(journal.head.started_wall_ns for journal in journals),
            "spent_s": round(spent_s, 3),
            "over": all(journal.is_over for journal in journals),
            "why": "; ".join(dict.fromkeys(j.why for j in journals if j.why)),
            "commit": view.commit,
            "store": str(view.store),
            **facts,
        },
        NightSummary,
        from_attributes=True,
    )


def chosen_cells(cells: tuple[Cell, ...], patterns: Sequence[str]) -> tuple[Cell, ...]:
    chosen_cells = tuple(
        cell for cell in cells if not patterns or any(fnmatchcase(cell.key, p) for p in patterns)
    )
    if not chosen_cells:
        raise UsageError(f"--only {' '.join(patterns)}: no cell is called so")
    return chosen_cells


def nights_before(table: pa.Table, heads: Sequence[NightHead], at_most: int) -> EarlierNights:
    return earlier_nights(
        table,
        heads[0].matrix.definition.name,
        but=[head.name for head in heads],
        before_ns=min(head.started_wall_ns for head in heads),
        at_most=at_most,
    )


def notify(command: str, summary: NightSummary, tell: Callable[[str], None]) -> None:
    """Run it with summary.json on its standard input; what goes wrong is told, no more."""
    if not command:
        return
    data = msgspec.json.encode(summary)
    environment = {**os.environ, "SHALOTT_EXIT_CODE": str(summary.exit_code)}
    try:
        done = subprocess.run(
            command, shell=True, input=data, timeout=NOTIFY_TIMEOUT_S, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        tell(f"--notify failed: {error}")
        return
    if done.returncode != 0:
        tell(f"--notify failed: the command ended with {done.returncode}")


def render_night(
    summary: NightSummary, cells: Sequence[Cell], outcomes: Sequence[Outcome], command: str
) -> bytes:
    suite = make_suite(
        summary.matrix, summary.started_wall_ns, round(summary.spent_s * 1e9), command
    )
    add_property(suite, "night", summary.night)
    by_key = {cell.key: cell for cell in cells}
    repeated: dict[tuple[str, int], list[Outcome]] = {}
    for one in outcomes:
        if one.is_again:
            repeated.setdefault((one.cell, one.seed), []).append(one)
    for one in sorted(outcomes, key=lambda each: (each.cell, each.seed, each.turn)):
        cell = by_key.get(one.cell)
        if cell is not None and not one.is_again:
            _case(suite, cell, one, repeated.get((one.cell, one.seed), []), summary)
    if not summary.over:
        case = add_case(suite, "night", summary.matrix, 0)
        add_error(case, "unended", "The night did not end: it was stopped, or it still runs.")
    return render_suites([suite])


def _case(
    suite: ElementTree.Element,
    cell: Cell,
    one: Outcome,
    again: Sequence[Outcome],
    summary: NightSummary,
) -> None:
    turn = "" if one.turn == FIRST else f", {one.turn}"
    case = add_case(suite, f"seed {one.seed}{turn}", one.cell, round(one.elapsed_s * 1e9))
    kinds = cell.surprises(one.verdict, one.kinds)
    lines = [one.headline, one.run, one.command]
    if again:
        same = sum(bool(cell.surprises(each.verdict, each.kinds)) for each in again)
        lines.append(f"Run again, it failed {same} of {len(again)} times.")
    text = spoken("\n".join(line for line in lines if line))
    if not kinds:
        if one.verdict != "valid":
            ElementTree.SubElement(case, "system-out").text = spoken(f"As expected: {text}")
        return
    flaky = [f.kind for f in summary.findings if f.status == FLAKY and f.cell == one.cell]
    words = [f"{kind} (flaky)" if kind in flaky else kind for kind in kinds]
    tag = "failure" if one.verdict not in ("unknown", FAILED) else "error"
    message = spoken(f"{', '.join(words)}: {one.headline}")
    ElementTree.SubElement(case, tag, message=message, type=one.verdict).text = text


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
