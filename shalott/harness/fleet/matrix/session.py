"""``shalott matrix``: a night begun or gone on with, and shards of one put together."""

from __future__ import annotations

import asyncio
import fcntl
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from shalott.core.doors import loaded_modules
from shalott.core.errors import UsageError
from shalott.core.quantities import parse_duration_ms
from shalott.harness.fleet.matrix.cells import Cell, expand
from shalott.harness.fleet.matrix.definition import Matrix, read_matrix
from shalott.harness.fleet.matrix.journal import (
    SUMMARY,
    Journal,
    NightHead,
    begin_night,
    nights_of,
    open_night,
    read_night,
)
from shalott.harness.fleet.matrix.machine import room_of
from shalott.harness.fleet.matrix.outcome import FAILED, Outcome
from shalott.harness.fleet.matrix.retention import delete_runs, keep_verdict_only, retain
from shalott.harness.fleet.matrix.running import NightAtWork, due_once, in_order
from shalott.harness.fleet.matrix.summary import NightSummary, told
from shalott.harness.fleet.matrix.written import (
    View,
    before,
    chosen,
    notify,
    summary_of,
    write_files,
)
from shalott.harness.fleet.runs.columns import RUN
from shalott.harness.fleet.runs.table import refresh
from shalott.harness.run.provenance import source_of_project

WRITTEN_EVERY_S = 10.0  # summary and JUnit, while runs end
NOTIFY_TIMEOUT_S = 120
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRequest:
    """The command line. None: as the file says. ``only``: patterns of cells' keys."""

    file: Path
    store: Path
    night: str = ""
    shard: str = ""
    only: tuple[str, ...] = ()
    repeat: int | None = None
    deflake: int | None = None
    budget: str = ""
    jobs: int | None = None
    keep_failures: bool | None = None
    fresh: bool = False
    notify: str = ""
    command: str = "shalott matrix"


def run_matrix(request: MatrixRequest, tell: Callable[[str], None]) -> int:
    """Run a night, or go on with it; the exit code. Raises UsageError, StoreError."""
    matrix = read_matrix(request.file)
    journal = _open(request, matrix, tell)
    try:
        return _at_work(request, matrix, journal, tell)
    finally:
        journal.close()


def _at_work(
    request: MatrixRequest, matrix: Matrix, journal: Journal, tell: Callable[[str], None]
) -> int:
    head, night = journal.head, matrix.definition.night
    expanded = expand(matrix.definition, head.name)
    for sentence in expanded.skipped:
        tell(f"Left out: {sentence}")
    cells = chosen(expanded.cells, head.only)
    machine = matrix.definition.machine
    if request.jobs is not None:
        machine = msgspec.structs.replace(machine, jobs=request.jobs)
    room = room_of(machine, cells)
    _clear_what_was_under_way(request.store, journal, tell)
    table = refresh(request.store).table
    earlier = before(table, [head], night.compare_with)
    due = tuple(due_once(cells, head.shard, head.shards))
    view = View(head, cells, due, earlier, source_of_project().commit, request.store)
    budget = request.budget or night.budget
    keep = night.keep_failures if request.keep_failures is None else request.keep_failures
    files = _Files(view, journal, request.command, keep, tell)
    at_work = NightAtWork(
        store=request.store,
        journal=journal,
        cells=cells,
        jobs=in_order(cells, due, head.repeat, earlier),
        room=room,
        deflake=head.deflake,
        timeout_s=parse_duration_ms("run_timeout", night.run_timeout) / 1000,
        budget_s=parse_duration_ms("--budget", budget) / 1000 if budget else None,
        tell=tell,
        after=files.after,
    )
    files.write(at_work.spent_s)
    why = asyncio.run(_until_signalled(at_work, tell))
    if at_work.stop.is_set():
        _clear_what_was_under_way(request.store, journal, tell)
        files.write(at_work.spent_s)
        tell("Stopped: the same command goes on with the night.")
        return EXIT_INTERRUPTED
    journal.end(why, at_work.spent_s)
    summary = files.write(at_work.spent_s)
    rules = matrix.definition.retention
    for gone in retain(request.store, head.matrix.definition.name, head.name, rules):
        tell(f"Deleted, as the file says: {gone}")
    for line in told(summary):
        tell(line)
    tell(f"Summary: {journal.directory / SUMMARY}")
    notify(request.notify, summary, tell)
    return summary.exit_code


async def _until_signalled(at_work: NightAtWork, tell: Callable[[str], None]) -> str:
    def stop() -> None:
        tell("Stopping: what runs is ended in order, and will be run again.")
        at_work.stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    return await at_work.work()


class _Files:
    """Keeps a night's summary and JUnit file up to date, and its progress told."""

    def __init__(
        self,
        view: View,
        journal: Journal,
        command: str,
        keep_failures: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._view, self._journal, self._command = view, journal, command
        self._keep_failures, self._tell = keep_failures, tell
        self._written_s = 0.0
        self._total = len(view.due) * view.head.repeat

    def after(self, outcome: Outcome, cell: Cell) -> None:
        """A run ended."""
        ended = sum(not one.is_again for one in self._journal.outcomes)
        kinds = cell.surprises(outcome.verdict, outcome.kinds)
        word = outcome.verdict if outcome.verdict == FAILED or not kinds else ", ".join(kinds)
        turn = "" if outcome.turn == "first" else f", {outcome.turn}"
        self._tell(f"[{ended}/{self._total}] {outcome.cell} seed {outcome.seed}{turn}: {word}")
        if self._keep_failures and not kinds and outcome.run:
            keep_verdict_only(self._view.store / outcome.run)
        if time.monotonic() - self._written_s > WRITTEN_EVERY_S:
            self.write(self._journal.spent_s)

    def write(self, spent_s: float) -> NightSummary:
        """Everything that there is to say by now."""
        summary = summary_of(self._view, [self._journal], spent_s)
        write_files(
            self._journal.directory,
            summary,
            self._view.cells,
            self._journal.outcomes,
            self._command,
        )
        self._written_s = time.monotonic()
        return summary


def _open(request: MatrixRequest, matrix: Matrix, tell: Callable[[str], None]) -> Journal:
    """The night to go on with, or a new one."""
    shard, shards = parse_shard(request.shard)
    night = matrix.definition.night
    head = NightHead(
        name=request.night or f"{matrix.definition.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}",
        matrix=matrix,
        shard=shard,
        shards=shards,
        only=request.only,
        repeat=night.repeat if request.repeat is None else request.repeat,
        deflake=night.deflake if request.deflake is None else request.deflake,
        started_wall_ns=time.time_ns(),
        loads=loaded_modules(),
    )
    if head.repeat < 1 or head.deflake < 0:
        raise UsageError("--repeat needs 1 or more, --deflake 0 or more")
    for directory in [] if request.fresh else nights_of(request.store, matrix.definition.name):
        found = read_night(directory)
        if (found.head.shard, found.head.shards) != (shard, shards):
            continue
        if request.night and found.head.name != request.night:
            continue
        if found.is_over:
            break
        if _is_same(found.head, head):
            tell(f"Going on with the night {found.head.name}: {len(found.outcomes)} runs are done.")
            return open_night(directory)
        tell(f"The night {found.head.name} is not over, and was of another file or other flags.")
        break
    return begin_night(request.store, head)


def _is_same(stored: NightHead, asked: NightHead) -> bool:
    neutral = {"name": "", "started_wall_ns": 0}
    return msgspec.structs.replace(stored, **neutral) == msgspec.structs.replace(asked, **neutral)


def parse_shard(text: str) -> tuple[int, int]:
    """``2/5``. Raises UsageError."""
    if not text:
        return 1, 1
    first, _, last = text.partition("/")
    if not (first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise UsageError(f"--shard {text}: give which of how many, such as 2/5")
    return int(first), int(last)


def _clear_what_was_under_way(store: Path, journal: Journal, tell: Callable[[str], None]) -> None:
    """Runs of this night that nobody saw the end of: wait until they are gone, and delete them."""
    with journal.runs_lock.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("Waiting for runs of the killed night to end.")
            fcntl.flock(file, fcntl.LOCK_EX)
    seen = {one.run: None for one in journal.outcomes}
    rows = refresh(store).table.select(("run", "kind", "night", "tags")).to_pylist()
    head = journal.head
    shard = f"{head.shard}/{head.shards}"
    left = [
        row["run"]
        for row in rows
        if row["kind"] == RUN and row["night"] == head.name and row["run"] not in seen
        if msgspec.json.decode(row["tags"] or "{}").get("shard") == shard
    ]
    delete_runs(store, left)
