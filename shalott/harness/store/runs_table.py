"""``STORE/runs.parquet``: one file, a row a run, which DuckDB, polars and Spark read as it is.

A writer holds a lock (``.runs.lock``), reads the table, and replaces the file as a whole: a
reader sees the old table or the new one, also if the writer is killed. What a killed writer did not
get to write is taken in by the next ``refresh``, which compares the table with the directories:
new and changed runs are read, those that are gone leave. A file that can't be read, or has another
format, is set aside with a notice, and the table is made anew from the runs.

Columns that a later version added are kept as they are.

A campaign of the search as a row: its denominators, of all seeds that it ever ran.

``campaign.jsonl`` has a line a seed, and is there also of a search that was killed; summary.json
adds what is not in it: how many seeds were wanted, of which system.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shalott.core.errors import StoreError, UsageError
from shalott.harness.store.columns import CAMPAIGN, RUNS_SCHEMA, SCHEMA_VERSION, TABLE, Row
from shalott.harness.store.run_files import (
    CAMPAIGN_LOG,
    CAMPAIGN_SUMMARY,
    PLAN,
    RunDirectory,
    Unreadable,
    read_json,
    run_directories,
    run_directory_of,
)
from shalott.harness.store.run_row import read_run, table_of, valid_text

LOCK = ".runs.lock"
SET_ASIDE = "unreadable"  # runs.parquet.unreadable-1


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The table after a refresh. ``notes``: sentences on what could not be read."""

    table: pa.Table
    taken_in: int = 0
    removed: int = 0
    notes: tuple[str, ...] = field(default_factory=tuple)


def table_path(store: Path) -> Path:
    return store / TABLE


def read_table(store: Path) -> pa.Table:
    """The table as it is, in today's schema, the oldest run first; empty if there is none.

    Raises UsageError with one sentence if the file can't be read.
    """
    path = table_path(store)
    if not path.exists():
        return RUNS_SCHEMA.empty_table()
    return _read(path)


def note_runs(store: Path, directories: Sequence[Path]) -> tuple[str, ...]:
    """Write the rows of runs that ended, or of campaigns. Sentences on what was wrong with the
    table. Raises StoreError."""
    found = [run_directory_of(store, directory) for directory in directories]
    rows = [_row(place) for place in found if place is not None]
    if not rows:
        return ()
    with _locked(store):
        table, notes = _read_or_set_aside(store)
        _write(store, _with_rows(table, rows))
    return notes


def refresh(store: Path) -> Refreshed:
    """Bring the table up to what is in the store. Raises UsageError (no store) and StoreError."""
    if not store.is_dir():
        raise UsageError(f"there is no store {store}")
    with _locked(store):
        table, notes = _read_or_set_aside(store)
        known = {
            run: (changed, version)
            for run, changed, version in zip(
                table["run"].to_pylist(),
                table["files_changed_ns"].to_pylist(),
                table["schema_version"].to_pylist(),
                strict=True,
            )
        }
        found = {place.run: place for place in run_directories(store)}
        stale = [place for place in found.values() if _is_stale(place, known.get(place.run))]
        gone = [run for run in known if run not in found]
        if not stale and not gone and table_path(store).exists():
            return Refreshed(table, notes=notes)
        rows = [_row(place) for place in stale]
        table = _with_rows(_without(table, gone), rows)
        _write(store, table)
    return Refreshed(table, len(rows), len(gone), notes)


def rows_below(directory: Path) -> Refreshed:
    """The rows of all runs in a directory, named relative to it: a store, a part of one, or a run
    (named relative to its parent then).

    A store's table is brought up to date. Nothing is written into a part of a store, nor where it
    can't be: rows that are missing are read then, and not stored. Raises UsageError.
    """
    directory = directory.resolve()
    is_run = (directory / PLAN).is_file()
    base = directory.parent if is_run else directory
    above = next((each for each in (base, *base.parents) if table_path(each).exists()), None)
    notes: tuple[str, ...] = ()
    if not is_run and above in (None, base):
        try:
            return refresh(base)
        except StoreError as error:
            notes = (f"{error}; what it lacks was read anew.",)
    known: dict[str, Row] = {}
    if above is not None:
        try:
            known = _rows_of_part(read_table(above), base.relative_to(above).as_posix())
        except UsageError as error:
            notes += (str(error),)
    rows = []
    for place in [run_directory_of(base, directory)] if is_run else run_directories(base):
        if place is not None:
            row = known.get(place.run)
            seen = (row["files_changed_ns"], row["schema_version"]) if row else None
            rows.append(_row(place) if row is None or _is_stale(place, seen) else row)
    return Refreshed(_with_rows(RUNS_SCHEMA.empty_table(), rows), notes=notes)


def _rows_of_part(table: pa.Table, part: str) -> dict[str, Row]:
    """The rows below a directory of the store, by their names there. ``part``: "." is all."""
    if part != ".":
        table = table.filter(pc.starts_with(table["run"], f"{part}/"))
    prefix = "" if part == "." else f"{part}/"
    rows = ({**row, "run": row["run"].removeprefix(prefix)} for row in table.to_pylist())
    return {row["run"]: row for row in rows}


def forget_runs(store: Path, runs: Sequence[str]) -> None:
    """Take out the rows of runs whose directories were deleted. Raises StoreError."""
    if not runs or not table_path(store).exists():
        return
    with _locked(store):
        table, _ = _read_or_set_aside(store)
        _write(store, _without(table, runs))


def _is_stale(place: RunDirectory, known: tuple[int, int] | None) -> bool:
    if known is None:
        return True
    changed_ns, version = known
    return changed_ns != place.changed_ns or version < SCHEMA_VERSION


def _row(place: RunDirectory) -> Row:
    return read_campaign(place) if place.is_campaign else read_run(place)


def _with_rows(table: pa.Table, rows: Sequence[Row]) -> pa.Table:
    """Rows of the same runs are replaced; the oldest run is first."""
    if not rows:
        return table
    rest = _without(table, [row["run"] for row in rows])
    joined = pa.concat_tables([rest, table_of(list(rows))], promote_options="default")
    return joined.sort_by([("started_wall_ns", "ascending"), ("run", "ascending")])


def _without(table: pa.Table, runs: Sequence[str]) -> pa.Table:
    if not runs or not len(table):
        return table
    return table.filter(pc.invert(pc.is_in(table["run"], pa.array(runs, pa.string()))))


def _read(path: Path) -> pa.Table:
    """Raises UsageError."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} can't be read: it is no file")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            found = file.read()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        why = str(error).partition("\n")[0]
        raise UsageError(f"{path} can't be read: {why}") from error
    missing = [name for name in ("run", "kind") if name not in found.column_names]
    if missing:
        raise UsageError(f"{path} is no table of runs: it has no column {missing[0]}")
    columns, fields = [], []
    for each in RUNS_SCHEMA:
        fields.append(each)
        if each.name in found.column_names:
            try:
                columns.append(found[each.name].cast(each.type))
            except pa.ArrowException as error:
                raise UsageError(f"{path} has another kind of column {each.name}") from error
        else:
            columns.append(_absent(each, len(found)))
    for each in found.schema:
        if each.name not in RUNS_SCHEMA.names:
            fields.append(each)
            columns.append(found[each.name])
    schema = pa.schema(fields, metadata=RUNS_SCHEMA.metadata)
    return pa.Table.from_arrays(columns, schema=schema)


def _absent(each: pa.Field, length: int) -> pa.Array:
    """A column that an older table lacks; its rows are read again, since their version is 0."""
    if each.nullable:
        return pa.nulls(length, each.type)
    if pa.types.is_list(each.type):
        return pa.array([[]] * length, each.type)
    return pa.array(["" if pa.types.is_string(each.type) else 0] * length, each.type)


def _read_or_set_aside(store: Path) -> tuple[pa.Table, tuple[str, ...]]:
    path = table_path(store)
    try:
        return read_table(store), ()
    except UsageError as error:
        number = 1
        while (aside := path.with_name(f"{TABLE}.{SET_ASIDE}-{number}")).exists():
            number += 1
        try:
            path.rename(aside)
        except OSError as failure:
            raise StoreError(f"cannot set {path} aside: {failure.strerror}") from failure
        note = f"{error}; it is set aside as {aside.name}, and the table is made anew."
        rows = [_row(place) for place in run_directories(store)]
        return _with_rows(RUNS_SCHEMA.empty_table(), rows), (note,)


def _write(store: Path, table: pa.Table) -> None:
    """Beside its place, durable, renamed: under the lock. Raises StoreError."""
    path = table_path(store)
    beside = path.with_name(f".{TABLE}.part")
    try:
        pq.write_table(table, beside, compression="zstd", write_page_checksum=True)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except (OSError, pa.ArrowException) as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise StoreError(f"cannot write {path}: {why}") from error


@contextlib.contextmanager
def _locked(store: Path) -> Iterator[None]:
    """One writer at a time; the kernel lets go of the lock of who is killed."""
    try:
        file = os.open(store / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"cannot write the table of runs in {store}: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


class _Report(msgspec.Struct):
    seed: int
    valid: object = None
    violations: list[str] = []
    error: str | None = None


class _Line(msgspec.Struct):
    line: str = ""
    report: _Report | None = None
    code: str = ""
    python: str = ""


class _Summary(msgspec.Struct):
    command: str | None = None
    wanted: int | None = None
    system: str | None = None
    profile: str | None = None
    workload: str | None = None
    wall_s: float | None = None
    started_wall_ns: int | None = None
    cluster: str = "sim"


def read_campaign(place: RunDirectory) -> Row:
    """The row; never raises for what is damaged."""
    trouble: list[str] = []
    lines = _lines(place, trouble)
    own = [line.report for line in lines if line.line == "seed" and line.report is not None]
    reports = {report.seed: report for report in own}
    try:
        summary = read_json(place.path / CAMPAIGN_SUMMARY, _Summary) or _Summary()
    except Unreadable as error:
        trouble.append(str(error))
        summary = _Summary()
    verdicts = Counter(_verdict(report) for report in reports.values())
    header = next((line for line in lines if line.line == "campaign"), _Line())
    valid, invalid, unknown = (verdicts[each] for each in ("true", "false", "unknown"))
    return {
        "run": place.run,
        "kind": CAMPAIGN,
        "name": place.path.name,
        "campaign": place.path.name,
        "started_wall_ns": summary.started_wall_ns or place.plan_changed_ns,
        "elapsed_ns": None if summary.wall_s is None else round(summary.wall_s * 1e9),
        "system": summary.system,
        "profile": summary.profile,
        "workload": summary.workload,
        "cluster": summary.cluster,
        "backend": summary.cluster,
        "command": summary.command,
        "tested": msgspec.json.encode({"code": header.code, "python": header.python}).decode(),
        "valid": "false" if invalid else "unknown" if unknown or not valid else "true",
        "anomalies": _anomalies(reports.values()),
        "headline": (
            f"{len(reports):,} seeds: {valid:,} valid, {invalid:,} invalid, {unknown:,} unknown,"
            f" {verdicts['error']:,} not booted or broken off."
        ),
        "seeds_wanted": summary.wanted,
        "seeds_judged": valid + invalid + unknown,
        "seeds_valid": valid,
        "seeds_invalid": invalid,
        "seeds_unknown": unknown,
        "seeds_not_booted": verdicts["error"],
        "night": "",
        "cell": "",
        "unreadable": trouble,
        "files_changed_ns": place.changed_ns,
        "schema_version": SCHEMA_VERSION,
    }


def _lines(place: RunDirectory, trouble: list[str]) -> list[_Line]:
    decoder = msgspec.json.Decoder(_Line)
    found, damaged = [], 0
    try:
        data = (place.path / CAMPAIGN_LOG).read_bytes()
    except OSError as error:
        trouble.append(f"{CAMPAIGN_LOG} can't be read: {error.strerror}")
        return []
    for line in data[: data.rfind(b"\n") + 1].splitlines():  # a torn last line is no line
        try:
            found.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            damaged += 1
    if damaged:
        trouble.append(f"{damaged} lines of {CAMPAIGN_LOG} can't be read")
    return found


def _verdict(report: _Report) -> str:
    return "error" if report.error is not None else valid_text(report.valid) or "unknown"


def _anomalies(reports: Iterable[_Report]) -> list[dict[str, object]]:
    """Of each class in how many seeds it was found."""
    seeds = Counter(
        kind for report in reports if _verdict(report) == "false" for kind in report.violations
    )
    return [
        {"checker": "", "kind": kind, "count": count, "broken": True}
        for kind, count in sorted(seeds.items())
    ]
