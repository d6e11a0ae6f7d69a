"""Finding the runs of a store: their files, what their plans say, and how they were judged.

A run is a directory with a plan and a history, at any depth; ``latest`` links are not followed, and
names that begin with "_" or "." are passed over, as Spark does. Plans are read leniently, so that
runs of older and newer versions stand side by side; what can't be read is named, and does not stop
the rest. Stores elsewhere than on this machine: spark_analysis/hadoop_store.py.

The rules that the harness's own checkers would have come from the workload's record, through the
public door; of a plan that this version can't read, or of a workload that is not installed, only
what the plan's text says is known.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shalott.checkers.consumers.consume_rules import ConsumeRules
from shalott.checkers.groups.group_rules import GroupRules
from shalott.checkers.linearizability.run_checker import Linearizability
from shalott.checkers.logs.replicated_log import ReplicatedLog
from shalott.checkers.mastership.elections import Elections
from shalott.checkers.mastership.mastership import MS, Mastership
from shalott.checkers.queues.fifo_order import FifoOrder
from shalott.core.errors import StoreError, UsageError
from shalott.core.history import HISTORY_SCHEMA
from shalott.core.plan import Plan, decode_plan
from shalott.core.sums import check_sum
from shalott.spark_analysis.consumer_counts import GROUPS, QUEUES, judged, taking_queues
from shalott.spark_analysis.kernels.rules import ObjectRules, Rules, Task
from shalott.spark_analysis.kernels.run_data import refuse_strange
from shalott.spark_analysis.kernels.tables import Row

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
EVENTS = "events.parquet"
CUT_SHORT = "history.incomplete"


class _System(msgspec.Struct):
    name: str
    profile: str
    partition_mode: str = ""  # where plans of version 1 have it
    parameters: dict[str, object] = {}


class _Workload(msgspec.Struct, frozen=True):
    name: str = ""
    parameters: dict[str, object] = {}


class _Plan(msgspec.Struct):
    name: str
    seed: int
    system: _System
    workload: _Workload = _Workload()
    observe_interval_ms: int = 500


class _Result(msgspec.Struct):
    checker: str
    valid: bool | str = "unknown"
    counts: dict[str, float] = {}
    detail: object = None


class _Results(msgspec.Struct):
    valid: bool | str
    results: list[_Result] = []


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """How the harness judged a run. ``counts``: those of ``total-queue``, ``mastership`` and
    ``log``; ``consumed``: those of the checkers of consumers; ``failed``: checkers that say
    false."""

    valid: bool | str
    counts: dict[str, int] = {}
    consumed: dict[str, int] = {}
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Files:
    """A run's files: paths or URIs, and what would be another if one of them changed."""

    history: str
    events: str  # "": there is none
    complete: bool
    size: int  # bytes of the history
    stamp: str


@dataclass(frozen=True, slots=True)
class Run:
    """One stored run. ``run`` is its directory, relative to the store."""

    run: str
    files: Files
    name: str
    seed: int
    system: str
    profile: str
    partition_mode: str
    observe_interval_ms: int
    valid: bool | str | None  # as the harness judged it; None: it did not
    judged: dict[str, int]  # the counts that a report compares
    workload: str = ""
    taking: tuple[str, ...] = ()  # queues from which policies may take messages
    judged_consumers: dict[str, int] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    rules: Rules = Rules()

    @property
    def complete(self) -> bool:
        return self.files.complete

    @property
    def has_consumers(self) -> bool:
        return self.workload in (QUEUES, GROUPS)

    @property
    def task(self) -> Task:
        """The run, for the kernels."""
        return Task(
            run=self.run,
            history=self.files.history,
            events=self.files.events,
            complete=self.complete,
            round_ns=self.observe_interval_ms * 1_000_000,
            rules=self.rules,
            size=self.files.size,
        )

    @property
    def fingerprint(self) -> str:
        """Of all that its results depend on but the kernels."""
        key = (self.run, self.files.stamp, self.complete, self.observe_interval_ms)
        text = repr(key).encode() + msgspec.json.encode(self.rules)
        return hashlib.sha256(text).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Found:
    runs: tuple[Run, ...]
    unreadable: tuple[str, ...]  # sentences


def find_runs(store: Path) -> Found:
    """All runs under ``store``, by name; of none a sentence says so. Raises UsageError."""
    if not store.is_dir():
        raise UsageError(f"there is no store {store}")
    runs: list[Run] = []
    unreadable: list[str] = []
    base = _base(store)
    for directory in _run_directories(store):
        try:
            runs.append(_read_run(base, directory))
        except (OSError, ValueError, msgspec.MsgspecError, pa.ArrowException) as error:
            shown = os.fsencode(directory).decode("utf-8", "replace")
            unreadable.append(f"{shown} was left out: {str(error).partition(chr(10))[0]}")
    if not runs:
        unreadable.append(f"There is no finished run in {store}.")
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


def _read_run(base: Path, directory: Path) -> Run:
    """Raises what reading raises, and ValueError: its history is none of ours, or it has a name
    that no table can hold."""
    name = str(directory.resolve().relative_to(base))
    if name != os.fsencode(name).decode("utf-8", "replace"):
        raise ValueError("its name is no UTF-8")
    history, events = directory.resolve() / HISTORY, directory.resolve() / EVENTS
    refuse_strange(pq.read_schema(history), HISTORY_SCHEMA)
    told = [history.stat(), *([events.stat()] if events.is_file() else [])]
    files = Files(
        history=str(history),
        events=str(events) if events.is_file() else "",
        complete=not (directory / CUT_SHORT).exists(),
        size=told[0].st_size,
        stamp=repr([(each.st_size, each.st_mtime_ns) for each in told]),
    )
    try:
        for file in (PLAN, RESULTS):
            check_sum(directory / file)
    except StoreError as error:
        raise ValueError(str(error)) from error
    stored = None
    if (directory / RESULTS).is_file():
        stored = read_stored((directory / RESULTS).read_bytes())
    return make_run(name, files, (directory / PLAN).read_bytes(), stored)


def make_run(name: str, files: Files, plan_text: bytes, stored: Stored | None) -> Run:
    """A run of its files' content. Raises msgspec's errors: it has no plan that can be read."""
    plan = msgspec.json.decode(plan_text, type=_Plan)
    workload = plan.workload
    return Run(
        run=name,
        files=files,
        name=plan.name,
        seed=plan.seed,
        system=plan.system.name,
        profile=plan.system.profile,
        partition_mode=_partition_mode(plan.system),
        observe_interval_ms=plan.observe_interval_ms,
        valid=stored.valid if stored else None,
        judged=stored.counts if stored else {},
        workload=workload.name,
        taking=taking_queues(workload.name, workload.parameters),
        judged_consumers=stored.consumed if stored else {},
        failed=stored.failed if stored else (),
        rules=rules_of(plan_text),
    )


def _partition_mode(system: _System) -> str:
    """ "" in systems that have none."""
    return str(system.parameters.get("partition_mode", system.partition_mode))


def read_stored(text: bytes) -> Stored | None:
    """Of a results.json; None if it is damaged: the history is what counts."""
    try:
        results = msgspec.json.decode(text, type=_Results)
    except msgspec.MsgspecError:
        return None
    return Stored(
        valid=results.valid,
        counts=_judged(results),
        consumed=judged((one.counts, one.detail) for one in results.results),
        failed=tuple(one.checker for one in results.results if one.valid is False),
    )


def _judged(results: _Results) -> dict[str, int]:
    counts: Row = {}
    for result in results.results:
        if result.checker in ("total-queue", "mastership"):
            counts |= result.counts
        if result.checker == "log":
            counts |= {LOG_COUNTS[k]: n for k, n in result.counts.items() if k in LOG_COUNTS}
    return {name: int(value) for name, value in counts.items() if name.endswith("-count")}


def by_name(runs: Sequence[Run]) -> Mapping[str, Run]:
    return {run.run: run for run in runs}


def rules_of(text: bytes) -> Rules:
    try:
        plan = decode_plan(text, "the plan")
        return _asked(plan)
    except (UsageError, msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return _guessed(msgspec.json.decode(text))


def _asked(plan: Plan) -> Rules:
    from shalott.workloads.consume import consume_rules
    from shalott.workloads.group_parameters import rules_of as group_rules
    from shalott.workloads.record import WORKLOADS

    workload = plan.workload.name
    checkers = WORKLOADS.find(workload).checkers(plan)
    tolerances = [each.tolerance_ms for each in checkers if isinstance(each, Mastership)]
    return Rules(
        consume=consume_rules(plan) if workload == QUEUES else None,
        group=group_rules(plan) if workload == GROUPS else None,
        log=any(isinstance(each, ReplicatedLog) for each in checkers),
        fifo=any(isinstance(each, FifoOrder) for each in checkers),
        elections=workload == GROUPS or any(isinstance(each, Elections) for each in checkers),
        objects=tuple(
            ObjectRules(model=each.model, fs=each.fs, exactly_once=each.exactly_once)
            for each in checkers
            if isinstance(each, Linearizability) and isinstance(each.model, str)
        ),
        tolerance_ns=(tolerances[0] if tolerances else 100) * MS,
    )


def _guessed(plan: object) -> Rules:
    told = plan.get("workload") if isinstance(plan, Mapping) else None
    name = told.get("name", "") if isinstance(told, Mapping) else ""
    return Rules(
        consume=ConsumeRules(queues=()) if name == QUEUES else None,
        group=GroupRules(groups=(), queues=(), levels_ms=(1000,)) if name == GROUPS else None,
        log=name == "log",
        elections=name in ("log", "elections", GROUPS),
    )
