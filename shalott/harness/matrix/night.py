"""``shalott matrix``: begins or continues a night, and merges the shards of one."""

from __future__ import annotations

import asyncio
import fcntl
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa

from shalott.core.doors import loaded_modules
from shalott.core.errors import UsageError
from shalott.core.parameters import parse_duration_ms
from shalott.harness.matrix.cells import Cell, expand
from shalott.harness.matrix.definition import Matrix, read_matrix
from shalott.harness.matrix.night_files import (
    NightView,
    chosen_cells,
    delete_runs,
    keep_verdict_only,
    nights_before,
    notify,
    retain,
    summary_of,
    write_files,
)
from shalott.harness.matrix.night_journal import (
    NIGHT,
    NIGHTS,
    SUMMARY,
    Journal,
    NightHead,
    begin_night,
    nights_of,
    open_night,
    read_night,
)
from shalott.harness.matrix.night_runs import NightRunner, capacity_of, due_once, in_order
from shalott.harness.matrix.night_summary import NightSummary, summary_lines
from shalott.harness.matrix.run_outcomes import FAILED, Outcome
from shalott.harness.run.provenance import source_of_project
from shalott.harness.store.columns import RUN
from shalott.harness.store.runs_table import refresh

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
        return _run_night(request, matrix, journal, tell)
    finally:
        journal.close()


def _run_night(
    request: MatrixRequest, matrix: Matrix, journal: Journal, tell: Callable[[str], None]
) -> int:
    head, night = journal.head, matrix.definition.night
    expanded = expand(matrix.definition, head.name)
    for sentence in expanded.skipped:
        tell(f"Left out: {sentence}")
    cells = chosen_cells(expanded.cells, head.only)
    machine = matrix.definition.machine
    if request.jobs is not None:
        machine = msgspec.structs.replace(machine, jobs=request.jobs)
    room = capacity_of(machine, cells)
    _clear_unfinished_runs(request.store, journal, tell)
    table = refresh(request.store).table
    earlier = nights_before(table, [head], night.compare_with)
    due = tuple(due_once(cells, head.shard, head.shards))
    view = NightView(head, cells, due, earlier, source_of_project().commit, request.store)
    budget = request.budget or night.budget
    keep = night.keep_failures if request.keep_failures is None else request.keep_failures
    files = _Files(view, journal, request.command, keep, tell)
    at_work = NightRunner(
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
        _clear_unfinished_runs(request.store, journal, tell)
        files.write(at_work.spent_s)
        tell("Stopped: the same command goes on with the night.")
        return EXIT_INTERRUPTED
    journal.end(why, at_work.spent_s)
    summary = files.write(at_work.spent_s)
    rules = matrix.definition.retention
    for gone in retain(request.store, head.matrix.definition.name, head.name, rules):
        tell(f"Deleted, as the file says: {gone}")
    for line in summary_lines(summary):
        tell(line)
    tell(f"Summary: {journal.directory / SUMMARY}")
    notify(request.notify, summary, tell)
    return summary.exit_code


async def _until_signalled(at_work: NightRunner, tell: Callable[[str], None]) -> str:
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
        view: NightView,
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
        ended = sum(not one.is_again for one in self._journal.outcomes)
        kinds = cell.surprises(outcome.verdict, outcome.kinds)
        word = outcome.verdict if outcome.verdict == FAILED or not kinds else ", ".join(kinds)
        if outcome.refused:
            word = outcome.headline
        turn = "" if outcome.turn == "first" else f", {outcome.turn}"
        self._tell(f"[{ended}/{self._total}] {outcome.cell} seed {outcome.seed}{turn}: {word}")
        if self._keep_failures and not kinds and outcome.run:
            keep_verdict_only(self._view.store / outcome.run)
        if time.monotonic() - self._written_s > WRITTEN_EVERY_S:
            self.write(self._journal.spent_s)

    def write(self, spent_s: float) -> NightSummary:
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
        if found.is_over and not request.night:
            break
        if _is_same(found.head, head):
            tell(f"Going on with the night {found.head.name}: {len(found.outcomes)} runs are done.")
            return open_night(directory)
        if found.is_over:
            break
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


def _clear_unfinished_runs(store: Path, journal: Journal, tell: Callable[[str], None]) -> None:
    """Runs of this night whose end was not seen: wait until they are gone, and delete them."""
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


def merge_shards(
    stores: Sequence[Path], out: Path, notify_command: str, tell: Callable[[str], None]
) -> int:
    """The shards of one night, each in a store of its own or all in one, as one summary; the exit
    code. Raises UsageError if they do not belong together or one is missing."""
    journals, tables = [], []
    for store in stores:
        newest = _newest(store)
        journals += newest
        tables.append(refresh(store).table)
    heads = [journal.head for journal in journals]
    _check_shards(heads)
    head = heads[0]
    night = head.matrix.definition.night
    cells = chosen_cells(expand(head.matrix.definition, head.name).cells, head.only)
    table = _distinct_runs(tables)
    view = NightView(
        head=head,
        cells=cells,
        due=tuple(due_once(cells, 1, 1)),
        earlier=nights_before(table, heads, night.compare_with),
        commit=source_of_project().commit,
        store=out,
    )
    summary = summary_of(view, journals, sum(journal.spent_s for journal in journals))
    outcomes = [one for journal in journals for one in journal.outcomes]
    write_files(out, summary, cells, outcomes, "shalott matrix --merge")
    for line in summary_lines(summary):
        tell(line)
    tell(f"Summary: {out / SUMMARY}")
    notify(notify_command, summary, tell)
    return summary.exit_code


def _newest(store: Path) -> list[Journal]:
    """The shards of the night that was begun last in a store."""
    found = [read_night(path.parent) for path in (store / NIGHTS).glob(f"*/{NIGHT}")]
    if not found:
        raise UsageError(f"{store} holds no night")
    last = max(found, key=lambda journal: journal.head.started_wall_ns).head
    return [
        journal
        for journal in found
        if (journal.head.name, journal.head.matrix.digest) == (last.name, last.matrix.digest)
    ]


def _check_shards(heads: Sequence[NightHead]) -> None:
    first = heads[0]
    for head in heads[1:]:
        if (head.matrix.digest, head.shards, head.only, head.repeat, head.deflake) != (
            *(first.matrix.digest, first.shards, first.only, first.repeat, first.deflake),
        ):
            raise UsageError(
                f"nights {first.name} and {head.name} are no shards of one: they were begun with"
                " another file or other flags"
            )
        if head.name != first.name and any(axes.new_seeds for axes in head.matrix.definition.cells):
            raise UsageError("shards with new seeds need one --night: theirs differ")
    shards = sorted(head.shard for head in heads)
    missing = [str(n) for n in range(1, first.shards + 1) if n not in shards]
    if missing:
        raise UsageError(f"shard {', '.join(missing)} of {first.shards} is missing")
    if len(dict.fromkeys(shards)) < len(shards):
        raise UsageError(f"there are several of a shard: {', '.join(map(str, shards))}")


def _distinct_runs(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables; stores that were copies of one share runs."""
    joined = pa.concat_tables(tables, promote_options="default")
    first: dict[tuple[str, str], int] = {}
    for place, key in enumerate(
        zip(joined["run"].to_pylist(), joined["night"].to_pylist(), strict=True)
    ):
        first.setdefault(key, place)
    return joined.take(pa.array(list(first.values()), pa.int64()))
