"""A night's directory, ``STORE/_nights/<night>/``: what it runs and what it has run so far.

    night.json      the matrix, the shard, the seeds' night: written when it begins
    journal.jsonl   a line a run that ended, append-only; a torn last line is cut off
    logs/           what each run wrote to the terminal
    summary.json, summary.txt, junit.xml   written again and again, complete when it is over

The command that works on a night holds a lock on its journal; runs hold a shared lock on
``runs.lock``, so that the command that continues a killed night can wait until what it had started
is gone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shalott.core.errors import StoreError, UsageError
from shalott.harness.matrix.definition import Matrix
from shalott.harness.matrix.run_outcomes import Outcome
from shalott.harness.run.atomic_file import write_atomically

NIGHTS = "_nights"
NIGHT, JOURNAL, LOGS, RUNS_LOCK = "night.json", "journal.jsonl", "logs", "runs.lock"
SUMMARY, SUMMARY_TEXT, NIGHT_JUNIT = "summary.json", "summary.txt", "junit.xml"


class NightHead(msgspec.Struct, frozen=True, kw_only=True):
    """night.json. ``name`` decides the new seeds; shards of one night share it."""

    name: str
    matrix: Matrix
    shard: int = 1
    shards: int = 1
    only: tuple[str, ...] = ()
    repeat: int = 1
    deflake: int = 0
    started_wall_ns: int = 0
    loads: tuple[str, ...] = ()


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended. ``spent_s``: how long the night had been worked on then."""

    outcome: Outcome
    spent_s: float = 0.0


class Over(msgspec.Struct, frozen=True, kw_only=True):
    """The night is over; ``why`` if not all was run."""

    over: bool = True
    why: str = ""
    spent_s: float = 0.0


class _AnyLine(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome | None = None
    over: bool = False
    why: str = ""
    spent_s: float = 0.0


@dataclass
class Journal:
    directory: Path
    head: NightHead
    outcomes: list[Outcome] = field(default_factory=list)
    spent_s: float = 0.0
    is_over: bool = False
    why: str = ""
    _file: int = -1

    def add(self, outcome: Outcome, spent_s: float) -> None:
        """Remember a run; durable when this returns."""
        self._append(Line(outcome=outcome, spent_s=round(spent_s, 3)))
        self.outcomes.append(outcome)

    def end(self, why: str, spent_s: float) -> None:
        self._append(Over(why=why, spent_s=round(spent_s, 3)))
        self.is_over, self.why = True, why

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)  # and with it the lock
            self._file = -1

    def _append(self, line: Line | Over) -> None:
        try:
            os.write(self._file, msgspec.json.encode(line) + b"\n")
            os.fdatasync(self._file)
        except OSError as error:
            place = self.directory / JOURNAL
            raise StoreError(f"cannot write {place}: {error.strerror}") from error

    @property
    def runs_lock(self) -> Path:
        return self.directory / RUNS_LOCK


def begin_night(store: Path, head: NightHead) -> Journal:
    """A new night. Raises StoreError, UsageError if there is one of this name."""
    directory = store / NIGHTS / head.name
    if head.shards > 1:
        directory = directory.with_name(f"{head.name}.{head.shard}-of-{head.shards}")
    if (directory / NIGHT).exists():
        raise UsageError(f"there is a night {directory.name} in {store} already: --night OTHER")
    try:
        (directory / LOGS).mkdir(parents=True, exist_ok=True)
        (directory / RUNS_LOCK).touch()
    except OSError as error:
        raise StoreError(f"cannot write {directory}: {error.strerror}") from error
    write_atomically(directory / NIGHT, msgspec.json.format(msgspec.json.encode(head)))
    return open_night(directory)


def open_night(directory: Path) -> Journal:
    """Go on with a night. Raises UsageError if another command works on it."""
    journal = Journal(directory, read_head(directory))
    path = directory / JOURNAL
    try:
        journal._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        fcntl.flock(journal._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)
    except BlockingIOError as error:
        journal.close()
        raise UsageError(f"another command is at work on {directory}") from error
    except OSError as error:
        journal.close()
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    _fill(journal, data[:whole])
    return journal


def read_night(directory: Path) -> Journal:
    """A night to look at. Raises UsageError."""
    journal = Journal(directory, read_head(directory))
    path = directory / JOURNAL
    data = path.read_bytes() if path.exists() else b""
    _fill(journal, data[: data.rfind(b"\n") + 1])
    return journal


def read_head(directory: Path) -> NightHead:
    """Raises UsageError with one sentence."""
    try:
        return msgspec.json.decode((directory / NIGHT).read_bytes(), type=NightHead)
    except OSError as error:
        raise UsageError(f"{directory} holds no night: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{directory / NIGHT} can't be read: {error}") from error


def nights_of(store: Path, matrix_name: str) -> Iterator[Path]:
    """The directories of a matrix's nights, the newest first."""
    found = []
    for path in (store / NIGHTS).glob(f"*/{NIGHT}"):
        try:
            head = read_head(path.parent)
        except UsageError:
            continue
        if head.matrix.definition.name == matrix_name:
            found.append((head.started_wall_ns, path.parent))
    yield from (directory for _, directory in sorted(found, reverse=True))


def _fill(journal: Journal, data: bytes) -> None:
    decoder = msgspec.json.Decoder(_AnyLine)
    for number, text in enumerate(data.splitlines(), 1):
        try:
            line = decoder.decode(text)
        except msgspec.MsgspecError as error:
            place = journal.directory / JOURNAL
            raise UsageError(f"{place}, line {number}, can't be read: {error}") from error
        journal.spent_s = max(journal.spent_s, line.spent_s)
        journal.is_over, journal.why = line.over, line.why
        if line.outcome is not None:
            journal.outcomes.append(line.outcome)
