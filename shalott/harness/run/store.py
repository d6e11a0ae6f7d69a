"""The store: where runs are kept, one directory a run, readable at every moment.

``store/<name>/<yyyyMMddTHHmmss.SSSZ>/`` holds, in the order in which they are written:

    plan.json           before anything happens; it runs again with ``shalott test --plan``
    junit.xml           with it, as an error; replaced when there is a verdict
    tags.json           with it, if there are any: what --tag said
    endpoints.json      when the nodes have been started: where they listen, for `shalott ctl`
    history.jsonl       the recording while the run lasts, replaced by history.parquet after it
    log.txt             what the harness did and why
    nodes/<node>/...    the nodes' own logs and event files
    history.parquet     one row an operation
    events.parquet      one row a node event
    SHA256SUMS          what these files and the next are, so that damage is seen
    results.json        every checker's verdict, counts and anomalies
    report.html

``store/latest`` and ``store/<name>/latest`` point to the newest run. A file appears whole or not at
all: it is written beside its place, made durable and renamed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from shalott.core.errors import StoreError, UsageError
from shalott.core.history import History, read_history, write_events, write_history
from shalott.core.plan import Plan, dump_plan, load_plan
from shalott.core.recording import recover
from shalott.core.run_id import run_of_id
from shalott.core.sums import SUMS, check_sum, sums_text
from shalott.harness.store.run_files import run_directories

LATEST = "latest"
PLAN = "plan.json"
TAGS = "tags.json"  # what --tag said
ENDPOINTS = "endpoints.json"  # where the nodes listen, by node and port
RECORDING = "history.jsonl"
HISTORY = "history.parquet"
EVENTS = "events.parquet"
RESULTS = "results.json"
REPORT = "report.html"
JUNIT = "junit.xml"
STORY_TEXT = "story.txt"
STORY_JSON = "story.json"
LOG = "log.txt"
NODES = "nodes"
CUT_SHORT = "history.incomplete"  # marks a history that was recovered from a torn recording
DAMAGED = "history.damaged"  # what of a recording could not be read, a sentence a line
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    path: Path

    @property
    def recording(self) -> Path:
        return self.path / RECORDING

    @property
    def nodes(self) -> Path:
        return self.path / NODES

    @property
    def started_wall_ns(self) -> int:
        """When the run began, by its directory's name; 0 if the directory was renamed."""
        try:
            began = datetime.strptime(self.path.name, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
        except ValueError:
            return 0
        return round(began.timestamp() * 1000) * 1_000_000

    def save_plan(self, plan: Plan) -> None:
        self.save_bytes(PLAN, dump_plan(plan))
        if (self.path / SUMS).exists():
            self.sum_up(PLAN)

    def load_plan(self) -> Plan:
        return load_plan(self.path / PLAN)

    def save_history(self, history: History) -> None:
        """Store what was recorded as Parquet; only then is the recording given up."""
        self._write(EVENTS, lambda path: write_events(history.events, path, self.run))
        if not history.complete:
            self.save_bytes(CUT_SHORT, b"operations after the last flush are missing\n")
        if history.damage:
            self.save_text(DAMAGED, "".join(f"{sentence}\n" for sentence in history.damage))
        self._write(HISTORY, lambda path: write_history(history.ops, path, self.run))
        self.recording.unlink(missing_ok=True)
        self.sum_up(PLAN, TAGS, HISTORY, EVENTS, CUT_SHORT, DAMAGED)

    def sum_up(self, *names: str) -> None:
        """Write down what these files are now (core/sums.py)."""
        try:
            self.save_text(SUMS, sums_text(self.path, names))
        except OSError as error:
            raise StoreError(f"cannot sum up {self.path}: {_reason(error)}") from error

    @property
    def plan_damage(self) -> tuple[str, ...]:
        """What is to be said of a plan that is not the one that was run."""
        try:
            check_sum(self.path / PLAN)
        except StoreError as error:
            return (f"{error}; if the change was meant, remove {SUMS}",)
        return ()

    def load_history(self) -> History:
        """The stored history, or, after a crash of the harness, what its recording still tells."""
        stored = self.path / HISTORY
        if stored.is_file():
            complete = not (self.path / CUT_SHORT).exists()
            damaged = self.path / DAMAGED
            told = damaged.read_text(errors="replace").splitlines() if damaged.is_file() else ()
            damage = (*told, *self.plan_damage)
            return read_history(stored, self.path / EVENTS, complete=complete, damage=damage)
        if self.recording.is_file():
            recovered = recover(self.recording)
            return dataclasses.replace(recovered, damage=(*recovered.damage, *self.plan_damage))
        raise UsageError(f"{self.path} holds no history: it is not a run, or it never started")

    @property
    def run(self) -> str:
        path = self.path.absolute()
        return f"{path.parent.name}/{path.name}"

    def files(self) -> tuple[str, ...]:
        """What lies in it, by path below it; links are not followed. Nothing hidden."""
        found = (path for path in self.path.rglob("*") if path.is_file() and not path.is_symlink())
        names = (path.relative_to(self.path).as_posix() for path in found)
        return tuple(sorted(name for name in names if not name.startswith(".")))

    def save_bytes(self, name: str, data: bytes) -> None:
        self._write(name, lambda path: _write_bytes(path, data))

    def save_text(self, name: str, text: str) -> None:
        self.save_bytes(name, text.encode())

    @contextlib.contextmanager
    def logging(self) -> Iterator[None]:
        """While it lasts, what anybody logs goes to log.txt."""
        logger = logging.getLogger()
        handler = _RunLog(self.path / LOG)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
            handler.close()

    def _write(self, name: str, write: Callable[[Path], None]) -> None:
        """Write beside its place, make durable, rename."""
        place = self.path / name
        beside = place.with_name(f".{name}.part")
        try:
            write(beside)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
            beside.replace(place)
        except (OSError, pa.ArrowException, StoreError) as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise StoreError(f"cannot write {place}: {_reason(error)}") from error


class RunNameTaken(StoreError):
    """Two processes named their runs in the same millisecond."""


@dataclass(frozen=True, slots=True)
class Store:
    root: Path

    def create(self, name: str) -> RunDirectory:
        """A fresh directory for a run that begins now."""
        while True:
            with contextlib.suppress(RunNameTaken):
                self.begin(directory := self.name_run(name))
                return directory

    def name_run(self, name: str) -> RunDirectory:
        """The directory of a run that may begin now; nothing is made yet."""
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} can't name a run: use letters, digits, '.', '_' and '-'")
        now = datetime.now(UTC)
        while (path := self.root / name / _stamp(now)).exists():
            now += timedelta(milliseconds=1)
        return RunDirectory(path)

    def begin(self, directory: RunDirectory) -> None:
        """Raises RunNameTaken if another process has begun a run of that name."""
        path = directory.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir()
            except FileExistsError as error:
                raise RunNameTaken(f"there is a run {path} already") from error
            _point(path.parent / LATEST, Path(path.name))
            _point(self.root / LATEST, Path(path.parent.name) / path.name)
        except OSError as error:
            raise StoreError(f"cannot store runs in {self.root}: {_reason(error)}") from error

    def find(self, run: str | None) -> RunDirectory:
        """A run by its directory, its short id, its name (the latest of that name), or the latest
        of all."""
        candidates = [self.root / LATEST] if run is None else []
        if run is not None:
            candidates = [Path(run), self.root / run, self.root / run / LATEST]
        for path in candidates:
            if (path / PLAN).is_file():
                return RunDirectory(path.resolve())
        if run is not None and (named := self.of_id(run)) is not None:
            return RunDirectory(named.resolve())
        what = "no run yet" if run is None else f"no run {run}"
        raise UsageError(f"there is {what} in {self.root}: give a run's directory, or --store")

    def of_id(self, word: str) -> Path | None:
        """The directory of the run that has this short id. Raises UsageError: several have it."""
        runs = (place.run for place in run_directories(self.root))
        found = run_of_id(word, runs)
        return None if found is None else self.root / found


class _RunLog(logging.Handler):
    """Appends to a file and never fails: a full disk must not break what the log is about."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {_reason(error)}") from error

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            os.write(self._file, f"{self.format(record)}\n".encode())

    def close(self) -> None:
        os.close(self._file)
        super().close()


def _stamp(now: datetime) -> str:
    return f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}Z"


def _point(link: Path, target: Path) -> None:
    """Make ``link`` point to ``target``, atomically."""
    beside = link.with_name(f".{link.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target, target_is_directory=True)
    beside.replace(link)


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
