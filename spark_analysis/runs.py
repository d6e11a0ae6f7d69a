"""Finding the runs of a store: their histories, what their plans say, and how they were judged.

A run is a directory with a plan and a history, at any depth; ``latest`` links are not followed, and
names that begin with "_" or "." are passed over, as Spark does. Plans are read leniently, so that
runs of older and newer versions stand side by side; what can't be read is named, and does not stop
the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shalott.harness.core.errors import UsageError
from shalott.harness.core.history import ADDED_COLUMNS, HISTORY_SCHEMA
from shalott.spark_analysis.consumer_counts import GROUPS, QUEUES, judged, taking_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What the checker log calls what the checkers of queues call otherwise, or alike.
LOG_COUNTS = {
    "lost-write-count": "lost-count",
    "duplicate-count": "duplicated-count",
    **{
        f"{name}-count": f"{name}-count"
        for name in ("attempt", "acknowledged", "recovered", "phantom", "unexpected", "corrupted")
    },
}
PLAN, HISTORY, RESULTS = "plan.json", "history.parquet", "results.json"
# Spark reads a column that a file lacks as nulls.
_OLDER_SCHEMA = pa.schema([field for field in HISTORY_SCHEMA if field.name not in ADDED_COLUMNS])
CUT_SHORT = "history.incomplete"
_GLOB = re.compile(r"[][{}*?\\]")  # what Spark would take for a pattern


class _System(msgspec.Struct):
    name: str
    profile: str
    partition_mode: str = ""  # where plans of version 1 have it
    parameters: dict[str, Any] = {}


class _Workload(msgspec.Struct, frozen=True):
    name: str = ""
    parameters: dict[str, Any] = {}


class _Plan(msgspec.Struct):
    name: str
    seed: int
    system: _System
    workload: _Workload = _Workload()
    observe_interval_ms: int = 500


class _Result(msgspec.Struct):
    checker: str
    counts: dict[str, float] = {}
    detail: Any = None


class _Results(msgspec.Struct):
    valid: bool | str
    results: list[_Result] = []


@dataclass(frozen=True, slots=True)
class Run:
    """One stored run. ``run`` is its directory, relative to the store."""

    run: str
    history: Path
    name: str
    seed: int
    system: str
    profile: str
    partition_mode: str
    observe_interval_ms: int
    complete: bool
    valid: bool | str | None  # as the harness judged it; None: it did not
    judged: dict[str, int]  # the counts that a report compares
    workload: str = ""
    taking: tuple[str, ...] = ()  # queues from which policies may take messages
    judged_consumers: dict[str, int] = field(default_factory=dict)

    @property
    def has_consumers(self) -> bool:
        return self.workload in (QUEUES, GROUPS)


@dataclass(frozen=True, slots=True)
class Found:
    runs: tuple[Run, ...]
    unreadable: tuple[str, ...]  # sentences


def find_runs(store: Path) -> Found:
    """All runs under ``store``, by name. Raises UsageError if there are none."""
    if not store.is_dir():
        raise UsageError(f"there is no store {store}")
    runs: list[Run] = []
    unreadable: list[str] = []
    for directory in _run_directories(store):
        try:
            runs.append(_read_run(store, directory))
        except (OSError, msgspec.MsgspecError, pa.ArrowException) as error:
            unreadable.append(f"{directory} was left out: {str(error).partition(chr(10))[0]}")
    if not runs:
        why = f" ({unreadable[0]})" if unreadable else ""
        raise UsageError(f"there is no finished run in {store}{why}")
    return Found(tuple(runs), tuple(unreadable))


def _base(store: Path) -> Path:
    """What the names of runs are relative to; the parent if ``store`` is itself a run."""
    resolved = store.resolve()
    return resolved.parent if (resolved / PLAN).is_file() else resolved


def _run_directories(store: Path) -> Iterator[Path]:
    for where, directories, files in os.walk(store):
        directories[:] = sorted(
            name
            for name in directories
            if name[0] not in "_." and not Path(where, name).is_symlink()
        )
        if PLAN in files and HISTORY in files:
            directories.clear()
            yield Path(where)


def _partition_mode(system: _System) -> str:
    """ "" in systems that have none."""
    return str(system.parameters.get("partition_mode", system.partition_mode))


def _read_run(store: Path, directory: Path) -> Run:
    plan = msgspec.json.decode((directory / PLAN).read_bytes(), type=_Plan)
    history = directory / HISTORY
    found = pq.read_schema(history)
    if not found.equals(HISTORY_SCHEMA) and not found.equals(_OLDER_SCHEMA):
        raise pa.ArrowInvalid("its history has other columns than this version's")
    results = _read_results(directory / RESULTS)
    workload = plan.workload
    taking = taking_queues(workload.name, workload.parameters)
    told = [(one.counts, one.detail) for one in results.results] if results else []
    return Run(
        run=str(directory.resolve().relative_to(_base(store))),
        history=history.resolve(),
        name=plan.name,
        seed=plan.seed,
        system=plan.system.name,
        profile=plan.system.profile,
        partition_mode=_partition_mode(plan.system),
        observe_interval_ms=plan.observe_interval_ms,
        complete=not (directory / CUT_SHORT).exists(),
        valid=results.valid if results else None,
        judged=_judged(results) if results else {},
        workload=workload.name,
        taking=taking,
        judged_consumers=judged(workload.name, told, taking),
    )


def _read_results(path: Path) -> _Results | None:
    """None too if it is damaged: the history is what counts, and it is judged anew."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Results)
    except (OSError, msgspec.MsgspecError):
        return None


def _judged(results: _Results) -> dict[str, int]:
    counts: dict[str, Any] = {}
    for result in results.results:
        if result.checker in ("total-queue", "mastership"):
            counts |= result.counts
        if result.checker == "log":
            counts |= {LOG_COUNTS[k]: n for k, n in result.counts.items() if k in LOG_COUNTS}
    return {name: int(value) for name, value in counts.items() if name.endswith("-count")}


def runs_rows(runs: Sequence[Run]) -> list[tuple[str, str, bool, int]]:
    """The runs as rows of schema RUNS."""
    return [
        (run.run, str(run.history), run.complete, run.observe_interval_ms * 1_000_000)
        for run in runs
    ]


def runs_frame(spark: SparkSession, runs: Sequence[Run]) -> DataFrame:
    """The runs as schema RUNS."""
    from shalott.spark_analysis import schema

    return spark.createDataFrame(runs_rows(runs), schema.RUNS)


def read_ops(spark: SparkSession, store: Path, runs: Sequence[Run]) -> DataFrame:
    """The histories of all runs of one store, with the column ``run``; there must be one."""
    from pyspark.sql import functions as F  # noqa: N812

    from shalott.spark_analysis import schema

    files = [_GLOB.sub(r"\\\g<0>", str(run.history)) for run in runs]
    ops = spark.read.schema(schema.HISTORY).parquet(*files)
    # Spark escapes some characters of a path and leaves others; a plus is a plus, not a space.
    escaped = F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))
    path = F.regexp_replace(F.url_decode(escaped), "^file:/+", "/")
    # Position 1 is the first character; between base and run, and before the file, is a slash.
    begin = len(str(_base(store))) + 2
    length = F.length("file") - (begin - 1) - len("/" + HISTORY)
    run = F.col("file").substr(F.lit(begin), length)
    return ops.withColumn("file", path).withColumn("run", run).drop("file")
