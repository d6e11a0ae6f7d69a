"""What the jobs found in a store, independent of the engine that found it: plain tables.

``find`` is the one entrance to what happened over many runs:

    found = find("store", Wanted())
    found.tables["unavailability"]        a pyarrow table, as columns/tables.py has it
    found.runs[0].run, .valid, .failed    what plans and stored verdicts say of each run

docs/how-to/report-on-many-runs.md tells each table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from shalott.core.errors import UsageError
from shalott.spark_analysis.engine_choice import (
    ENGINES,
    Engine,
    choose,
    is_elsewhere,
    local_path,
    require_spark,
)
from shalott.spark_analysis.hadoop_store import find_runs_through
from shalott.spark_analysis.kernels.judge import judge_here
from shalott.spark_analysis.kernels.rules import Task
from shalott.spark_analysis.kernels.tables import sort_table
from shalott.spark_analysis.results_cache import ResultsCache, concatenated
from shalott.spark_analysis.spark_kernels import judge_with_spark
from shalott.spark_analysis.spark_session import Session, cache_directory, spark_session
from shalott.spark_analysis.sql_engine import judge_with_sql
from shalott.spark_analysis.stored_runs import Found, Run, find_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How to find it. ``keep``: where results are kept from one call to the next; None: nowhere.

    ``master``, ``conf`` and ``packages`` are Spark's. ``log``: what the JVM has to say goes there.
    """

    engine: str = "auto"
    master: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    keep: Path | None = None
    log: Path | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(f"there is no engine {self.engine}: one of {', '.join(ENGINES)}")


def settings_of(words: Iterable[str]) -> dict[str, str]:
    """Of KEY=VALUE. Raises UsageError."""
    pairs = [word.partition("=") for word in words]
    if wrong := [key for key, equals, _ in pairs if not (key and equals)]:
        raise UsageError(f"a setting is KEY=VALUE, not {wrong[0]!r}")
    return {key: value for key, _, value in pairs}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFindings:
    """``tables``: all of TABLES, sorted, by name; by the engine ``sql`` some of them are empty.

    ``unreadable``: sentences about runs that were left out. ``judged``: so many runs were judged
    now; of the others the results were kept.
    """

    store: str
    runs: tuple[Run, ...]
    tables: Mapping[str, pa.Table]
    unreadable: tuple[str, ...]
    engine: Engine
    judged: int

    def of(self, run: str) -> dict[str, list[dict[str, object]]]:
        """The rows of one run, of every table."""
        return {
            name: table.filter(pc.equal(table["run"], run)).to_pylist()
            for name, table in self.tables.items()
        }


def find(store: str | Path, wanted: Wanted = Wanted()) -> FleetFindings:  # noqa: B008 (frozen)
    """Judge every run of a store, or take what is known of it.

    Raises UsageError: there is no such store, or Spark is wanted and not there;
    StoreError: it can't be read; HarnessError: Spark did not start, or a worker died.
    """
    store = local_path(str(store))
    if is_elsewhere(store) or wanted.engine in ("spark", "sql"):
        return _with_spark(store, wanted)
    found = find_runs(Path(store))
    if choose(wanted.engine, wanted.master, _bytes(found.runs)) == "spark":
        return _with_spark(store, wanted, found)
    return collect(store, found, wanted.keep, "local", judge_here)


def _bytes(runs: Sequence[Run]) -> int:
    return sum(run.files.size for run in runs)


@contextmanager
def opened(wanted: Wanted, bytes_in_jvm: int = 0) -> Iterator[SparkSession]:
    """A session as it is wanted. Raises UsageError, HarnessError."""
    require_spark()
    with tempfile.TemporaryDirectory(prefix="shalott-report-") as scratch:
        log = wanted.log or Path(scratch) / "spark.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        session = Session(
            log=log,
            master=wanted.master,
            conf=wanted.conf,
            packages=wanted.packages,
            cache=cache_directory(),
            bytes_in_jvm=bytes_in_jvm,
        )
        with spark_session(session) as spark:
            yield spark


def _with_spark(store: str, wanted: Wanted, found: Found | None = None) -> FleetFindings:
    elsewhere, is_sql = is_elsewhere(store), wanted.engine == "sql"
    if is_sql and elsewhere:
        raise UsageError("the engine sql reads stores of this machine alone")
    require_spark()
    if found is None and not elsewhere:
        found = find_runs(Path(store))
    size = _bytes(found.runs) if found else 0
    with opened(wanted, size if is_sql else 0) as spark:
        found = found or list_through(spark, store)
        return judge_found(spark, store, found, wanted)


def list_through(spark: SparkSession, store: str) -> Found:
    """The runs of a store, by Hadoop's file systems if it is elsewhere."""
    return find_runs_through(spark, store) if is_elsewhere(store) else find_runs(Path(store))


def judge_found(spark: SparkSession, store: str, found: Found, wanted: Wanted) -> FleetFindings:
    """By Spark, in a session that is there."""

    def by_sql(tasks: Sequence[Task]) -> Mapping[str, pa.Table]:
        asked = {task.run for task in tasks}
        return judge_with_sql(spark, [run for run in found.runs if run.run in asked])

    def by_kernels(tasks: Sequence[Task]) -> Mapping[str, pa.Table]:
        return judge_with_spark(spark, tasks, is_elsewhere(store))

    if wanted.engine == "sql":
        return collect(store, found, None, "sql", by_sql)
    return collect(store, found, wanted.keep, "spark", by_kernels)


def collect(
    store: str,
    found: Found,
    keep: Path | None,
    engine: Engine,
    judge: Callable[[Sequence[Task]], Mapping[str, pa.Table]],
) -> FleetFindings:
    """What is known of these runs, and what ``judge`` finds of the others."""
    marks = {run.run: run.fingerprint for run in found.runs}
    kept = ResultsCache.beside(keep) if keep else None
    known_tables, known = kept.read(marks) if kept else ({}, frozenset[str]())
    todo = [run for run in found.runs if run.run not in known]
    fresh = judge([run.task for run in todo]) if todo else None
    every = [each for each in (known_tables, fresh) if each]
    tables = {name: sort_table(name, table) for name, table in concatenated(every).items()}
    if kept and fresh:
        kept.add(fresh, {run.run: marks[run.run] for run in todo})
        kept.compact(marks)
    broken = {row["run"]: row["why"] for row in tables["problems"].to_pylist()}
    return FleetFindings(
        store=store,
        runs=tuple(run for run in found.runs if run.run not in broken),
        tables=_without(tables, broken),
        unreadable=(
            *found.unreadable,
            *(f"{run} was left out: {why}" for run, why in sorted(broken.items())),
        ),
        engine=engine,
        judged=len(todo),
    )


def _without(tables: Mapping[str, pa.Table], broken: Mapping[str, str]) -> Mapping[str, pa.Table]:
    """Half of a run tells nothing: its other parts go too."""
    if not broken:
        return tables
    gone = pa.array(list(broken), pa.string())
    return {
        name: table if name == "problems" else table.filter(pc.invert(pc.is_in(table["run"], gone)))
        for name, table in tables.items()
    }
