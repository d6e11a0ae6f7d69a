"""Where the runs of a store are, and what their files say, read leniently.

A run is a directory that holds a run's file, at any depth. ``latest`` links are not followed, and
names that begin with "_" or "." are passed over, as Spark does. Below a run nothing is looked for,
so that a scan reads one directory a run.

Runs of older and newer versions stand side by side: only what the table needs is declared, what
else a file holds is passed over, and what it lacks has a default that means "not said".
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shalott.core.errors import StoreError
from shalott.core.sums import SUMS, check_sum

PLAN, RESULTS, TAGS = "plan.json", "results.json", "tags.json"
HISTORY, RECORDING = "history.parquet", "history.jsonl"
LATEST = "latest"
T = TypeVar("T")
READ = (PLAN, RESULTS, TAGS, HISTORY)  # a row is made of these
LATENCIES = ("process", "type", "invoke_ns", "complete_ns", "due_ns")
CAMPAIGN_LOG, CAMPAIGN_SUMMARY, FINDINGS = "campaign.jsonl", "summary.json", "findings"
_OF_A_RUN = (PLAN, RESULTS, HISTORY, RECORDING)
_TOLD_BY = (PLAN, RESULTS, TAGS)  # what a row depends on, besides a history that never changes


class Fault(msgspec.Struct):
    kind: str = ""


class Cluster(msgspec.Struct):
    backend: str | None = None
    nodes: list[str] | None = None


class System(msgspec.Struct):
    name: str | None = None
    profile: str | None = None
    parameters: dict[str, object] = {}
    policy: dict[str, object] = {}
    bugs: list[str] = []
    services: dict[str, object] = {}


class Workload(msgspec.Struct):
    name: str | None = None
    rate_hz: float | None = None
    concurrency: int | None = None
    parameters: dict[str, object] = {}


class Plan(msgspec.Struct):
    name: str | None = None
    seed: int | None = None
    time_limit_ms: int | None = None
    cluster: Cluster = msgspec.field(default_factory=Cluster)
    system: System = msgspec.field(default_factory=System)
    workload: Workload = msgspec.field(default_factory=Workload)
    gates: dict[str, object] = {}
    faults: list[Fault] = []


class Anomaly(msgspec.Struct):
    kind: str = ""
    detail: object = None


class Result(msgspec.Struct):
    checker: str
    valid: object = None
    counts: dict[str, object] = {}
    anomalies: list[Anomaly] = []
    notes: list[str] = []
    detail: object = None

    def part(self, name: str) -> object:
        """A part of the detail; None if there is none."""
        return self.detail.get(name) if isinstance(self.detail, dict) else None


class Results(msgspec.Struct):
    name: str | None = None
    seed: int | None = None
    system: str | None = None
    profile: str | None = None
    workload: str | None = None
    started_wall_ns: int | None = None
    virtual_started_ns: int | None = None
    complete: bool | None = None
    valid: object = None
    headline: str | None = None
    command: str | None = None
    tested: dict[str, object] | None = None
    elapsed_ns: int | None = None
    iteration: int | None = None
    failures: list[str] = []
    results: list[Result] = []


class Unreadable(Exception):
    """One sentence: which file, and why."""


def read_json(path: Path, kind: type[T]) -> T | None:
    """The file as ``kind``; None if there is none. Raises Unreadable."""
    try:
        refuse_strange(path)
        check_sum(path)
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except StoreError as error:
        why = f"{path.name} is damaged, or was changed: {SUMS} has another sum"
        raise Unreadable(why) from error
    except OSError as error:
        raise Unreadable(f"{path.name} can't be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path.name} can't be read: {error}") from error


def read_latencies(path: Path) -> pa.Table | None:
    """The columns of a history that latencies are told from; None if there is no history.

    Raises Unreadable. Columns beside those that are known don't matter.
    """
    try:
        refuse_strange(path)
        check_sum(path)
        with (
            path.open("rb") as raw,  # a name may be no UTF-8
            pq.ParquetFile(raw, page_checksum_verification=True) as file,
        ):
            names = [name for name in LATENCIES if name in file.schema_arrow.names]
            return file.read(columns=names)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, StoreError, UnicodeDecodeError) as error:
        why = str(error).partition("\n")[0]
        raise Unreadable(f"{path.name} can't be read: {why}") from error


def refuse_strange(path: Path) -> None:
    """Raises Unreadable for what is no file, such as a pipe, whose end may never come, and
    FileNotFoundError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise Unreadable(f"{path.name} can't be read: it is no file")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A directory that becomes a row. ``run``: its path, relative to the store.

    ``changed_ns``: when the newest of its files was written. ``campaign``: of a finding, whose.
    """

    path: Path
    run: str
    changed_ns: int
    plan_changed_ns: int
    campaign: str = ""
    is_campaign: bool = False


def run_directories(store: Path) -> Iterator[RunDirectory]:
    """All of them, by name."""
    yield from _below(store, store, "")


def run_directory_of(store: Path, directory: Path) -> RunDirectory | None:
    """The one place that ``directory`` is; None if it holds nothing of a run, or lies in another
    store. Either may be told from the working directory on, or through links."""
    store, directory = store.resolve(), directory.resolve()
    if not directory.is_relative_to(store):
        return None
    parents = directory.parents
    campaign = ""
    if directory.parent.name == FINDINGS and (parents[1] / CAMPAIGN_LOG).exists():
        campaign = parents[1].name
    return _place(store, directory, campaign)


def _below(store: Path, directory: Path, campaign: str) -> Iterator[RunDirectory]:
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return  # removed meanwhile, or not ours to read
    names = {entry.name: None for entry in entries}
    if CAMPAIGN_LOG in names or any(name in names for name in _OF_A_RUN):
        place = _place(store, directory, campaign)
        if place is not None:
            yield place
        if CAMPAIGN_LOG not in names:
            return
        campaign = directory.name
    for entry in entries:
        if entry.name == LATEST:
            continue  # a link; some archives copy what it leads to in its place
        if entry.name[0] not in "_." and entry.is_dir(follow_symlinks=False):
            inherited = campaign if entry.name == FINDINGS or directory.name == FINDINGS else ""
            yield from _below(store, Path(entry.path), inherited)


def _place(store: Path, directory: Path, campaign: str) -> RunDirectory | None:
    if (directory / CAMPAIGN_LOG).is_file():
        logged, summed_up = (
            _changed(directory / CAMPAIGN_LOG),
            _changed(directory / CAMPAIGN_SUMMARY),
        )
        run = _relative(store, directory)
        return RunDirectory(directory, run, max(logged, summed_up), logged, is_campaign=True)
    changed = [_changed(directory / name) for name in (*_TOLD_BY, HISTORY, RECORDING)]
    if not any(_changed(directory / name) for name in _OF_A_RUN):
        return None
    plan_changed = changed[0] or max(changed)
    newest = max(changed[: len(_TOLD_BY)]) or max(changed)
    return RunDirectory(directory, _relative(store, directory), newest, plan_changed, campaign)


def _relative(store: Path, directory: Path) -> str:
    """ "." if the store is itself a run."""
    path = directory.relative_to(store).as_posix()
    return os.fsencode(path).decode("utf-8", "replace")


def _changed(path: Path) -> int:
    """ns since the epoch; 0 if there is no such file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
