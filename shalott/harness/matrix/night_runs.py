"""The runs of a night: what is due, in which order, and the processes that do it.

Each run is a `shalott test` in a process of its own: a run that crashes, hangs or takes all memory
spoils one cell. A run that shows what its cell does not expect is run again (``deflake`` times),
after all that was due once. Runs start while the machine holds them: ``Capacity`` counts their
cores, containers and memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from shalott.core.errors import UsageError
from shalott.harness.matrix.cells import Cell
from shalott.harness.matrix.definition import Machine
from shalott.harness.matrix.night_journal import LOGS, Journal
from shalott.harness.matrix.run_outcomes import (
    AGAIN,
    ANOMALIES,
    EXPECT,
    FAILED,
    FIRST,
    EarlierNights,
    Outcome,
    outcome_of,
)
from shalott.harness.run.planning import repeat_command
from shalott.harness.run.store import TAGS
from shalott.harness.store.run_files import run_directory_of
from shalott.harness.store.run_row import read_run

GRACE_S = 120  # for an orderly end; then the process is killed
PROGRAM = (sys.executable, "-m", "shalott.harness.cli.matrix_run")
REFUSED = 254  # the exit code of a command that is not run (harness/cli/main.py)
LAST_WORDS = 400  # characters of what a run that came to nothing wrote last
NODE_BYTES = 400 * 2**20  # what a node and its share of the harness take
ANY = 10**6


@dataclass(frozen=True, slots=True)
class Job:
    cell: Cell
    seed: int
    turn: str = FIRST

    @property
    def id(self) -> str:
        return f"{self.cell.key}|{self.seed}|{self.turn}"


def due_once(cells: Sequence[Cell], shard: int, shards: int) -> list[tuple[str, int]]:
    """(cell, seed) of this shard: every ``shards``-th of all, whichever ran before."""
    everything = [(cell.key, seed) for cell in cells for seed in cell.seeds]
    return everything[shard - 1 :: shards]


def in_order(
    cells: Sequence[Cell], due: Sequence[tuple[str, int]], repeat: int, earlier: EarlierNights
) -> list[Job]:
    """Longest-ago first, the age times the cell's weight; what never ran before all else."""
    by_key = {cell.key: cell for cell in cells}
    now_ns = time.time_ns()

    def rank(each: tuple[str, int]) -> tuple[bool, float]:
        last_ns = earlier.last_ns.get(each)
        weight = by_key[each[0]].weight
        return last_ns is not None, -weight * (1 if last_ns is None else now_ns - last_ns)

    ordered = sorted(due, key=rank)
    turns = [FIRST, *(f"repeat {number}" for number in range(2, repeat + 1))]
    return [Job(by_key[key], seed, turn) for turn in turns for key, seed in ordered]


def repeats_due(cells: Sequence[Cell], outcomes: Sequence[Outcome], times: int) -> Iterator[Job]:
    """What is run again because of what it showed. What was refused would be again."""
    by_key = {cell.key: cell for cell in cells}
    asked: dict[str, None] = {}
    for one in outcomes:
        cell = by_key.get(one.cell)
        if cell is None or one.is_again or one.refused:
            continue
        if not cell.surprises(one.verdict, one.kinds):
            continue
        for number in range(1, times + 1):
            job = Job(cell, one.seed, f"{AGAIN} {number}")
            if job.id not in asked:
                asked[job.id] = None
                yield job


@dataclass
class NightRunner:
    """The runs of one night under way. ``tell``: a line for people. ``after``: called when a run
    ended, with its cell."""

    store: Path
    journal: Journal
    cells: Sequence[Cell]
    jobs: list[Job]  # due, the first first
    room: Capacity
    deflake: int
    timeout_s: float
    budget_s: float | None
    tell: Callable[[str], None]
    after: Callable[[Outcome, Cell], None]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    _running: dict[asyncio.Task[Outcome | None], Job] = field(default_factory=dict)
    _began_s: float = field(default_factory=time.monotonic)

    @property
    def spent_s(self) -> float:
        """At work on this night, commands before this one included."""
        return self._before_s + time.monotonic() - self._began_s

    def __post_init__(self) -> None:
        self._before_s = self.journal.spent_s

    async def work(self) -> str:
        """Until all is done, time is over ("the budget of time was used up"), or it is stopped."""
        stopped = asyncio.create_task(self.stop.wait())
        try:
            while True:
                why = self._start_what_fits()
                if not self._running:
                    return why
                waits = {*self._running, *(() if self.stop.is_set() else (stopped,))}
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for task in done & set(self._running):
                    self._ended(task)
        finally:
            stopped.cancel()

    def _start_what_fits(self) -> str:
        if self.stop.is_set():
            return "it was stopped"
        todo = self._todo()
        if self.budget_s is not None and self.spent_s >= self.budget_s:
            return "the budget of time was used up" if todo else ""
        for job in todo:
            if self.room.has(job.cell):
                self.room.take(job.cell)
                self._running[asyncio.create_task(self._run(job))] = job
        return ""

    def _todo(self) -> list[Job]:
        """All that is neither done nor under way."""
        gone = {f"{one.cell}|{one.seed}|{one.turn}" for one in self.journal.outcomes}
        gone |= {job.id for job in self._running.values()}
        jobs = [*self.jobs, *repeats_due(self.cells, self.journal.outcomes, self.deflake)]
        return [job for job in jobs if job.id not in gone]

    def _ended(self, task: asyncio.Task[Outcome | None]) -> None:
        job = self._running.pop(task)
        self.room.take(job.cell, -1)
        outcome = task.result()
        if outcome is None:
            return  # it was stopped: it will be run when the night is continued
        self.journal.add(outcome, self.spent_s)
        self.after(outcome, job.cell)

    async def _run(self, job: Job) -> Outcome | None:
        """The run in a process; None if it was stopped."""
        command = repeat_command(job.cell.request, job.seed, self.store)
        words = [*shlex.split(command)[1:], *self._tags(job)]
        began = datetime.now(UTC)
        log = self.journal.directory / LOGS / f"{_slug(job.id)}.txt"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(*PROGRAM, str(os.getpid()), str(self.journal.runs_lock), *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            why = await self._await(process)
        if why == "stopped":
            return None
        found = self._find(job, began)
        outcome = None
        if found is not None:
            outcome = outcome_of(found, cell=job.cell.key, seed=job.seed, turn=job.turn)
        code = process.returncode
        if outcome is None or why or code not in (0, 1, 2, 255):
            outcome = _failed(job, outcome, why or _ending(code), log, command)
            outcome = msgspec.structs.replace(outcome, refused=not why and code == REFUSED)
        if not job.cell.surprises(outcome.verdict, outcome.kinds):
            log.unlink(missing_ok=True)
        return outcome

    def _tags(self, job: Job) -> list[str]:
        head = self.journal.head
        tags = {
            "matrix": head.matrix.definition.name,
            "night": head.name,
            "cell": job.cell.key,
            "turn": job.turn,
            "shard": f"{head.shard}/{head.shards}",
            EXPECT: ",".join(job.cell.expect),
            ANOMALIES: ",".join(job.cell.anomalies),
        }
        told = {key: value for key, value in tags.items() if value}
        return [word for key, value in told.items() for word in ("--tag", f"{key}={value}")]

    async def _await(self, process: asyncio.subprocess.Process) -> str:
        """Until it ended; "" if it did so by itself."""
        ended = asyncio.create_task(process.wait())
        stopped = asyncio.create_task(self.stop.wait())
        await asyncio.wait(
            {ended, stopped}, timeout=self.timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        stopped.cancel()
        if ended.done():
            return ""
        why = "stopped" if self.stop.is_set() else f"it took longer than {self.timeout_s:g} s"
        _signal(process.pid, signal.SIGTERM)
        await asyncio.wait({ended}, timeout=GRACE_S)
        if not ended.done():
            _signal(process.pid, signal.SIGKILL)
            await ended
        return why

    def _find(self, job: Job, began: datetime) -> dict[str, object] | None:
        """The row of the run that the process made."""
        request = job.cell.request
        workload = job.cell.key.split("/")[3]
        name = request.name or f"{request.system}-{request.profile}-{workload}"
        first = f"{began:%Y%m%dT%H%M%S}"
        with contextlib.suppress(OSError):
            for directory in sorted((self.store / name).iterdir(), reverse=True):
                if directory.name < first or directory.is_symlink():
                    continue
                if _is_of(directory, job, self.journal.head.name):
                    place = run_directory_of(self.store, directory)
                    return read_run(place) if place is not None else None
        return None


def _is_of(directory: Path, job: Job, night: str) -> bool:
    try:
        tags = msgspec.json.decode((directory / TAGS).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return False
    wanted = {"night": night, "cell": job.cell.key, "turn": job.turn}
    if any(tags.get(name) != value for name, value in wanted.items()):
        return False
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        plan = msgspec.json.decode((directory / "plan.json").read_bytes(), type=_Seed)
        return plan.seed == job.seed
    return False


class _Seed(msgspec.Struct):
    seed: int


def _failed(job: Job, found: Outcome | None, why: str, log: Path, command: str) -> Outcome:
    said = log.read_bytes()[-LAST_WORDS:].decode("utf-8", "replace").strip()
    last = said.splitlines()[-1] if said else ""
    return Outcome(
        cell=job.cell.key,
        seed=job.seed,
        turn=job.turn,
        verdict=FAILED,
        kinds=(FAILED,),
        headline=f"The run has no verdict: {why}{': ' if last else ''}{last}",
        run=found.run if found is not None else "",
        command=command,
    )


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"its process ended by {signal.Signals(-code).name}"
    return f"its process ended with {code}"


def _signal(process_group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process_group, number)


def _slug(text: str) -> str:
    plain = "".join(each if each.isalnum() or each in "+-_." else "-" for each in text)
    return f"{plain[:120]}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


@dataclass(slots=True)
class Capacity:
    """What is free. ``hosts``: one run at a time has the hosts of ``--cluster ssh``."""

    jobs: int
    cores: float
    containers: int
    hosts: int = 1

    def has(self, cell: Cell) -> bool:
        """Whether a run of the cell can begin."""
        jobs, cores, containers, hosts = needs(cell)
        return (
            jobs <= self.jobs
            and cores <= self.cores
            and containers <= self.containers
            and hosts <= self.hosts
        )

    def take(self, cell: Cell, sign: int = 1) -> None:
        """A run begins, or gives back what it had (``sign`` -1)."""
        jobs, cores, containers, hosts = needs(cell)
        self.jobs -= sign * jobs
        self.cores -= sign * cores
        self.containers -= sign * containers
        self.hosts -= sign * hosts


def needs(cell: Cell) -> tuple[int, float, int, int]:
    """(jobs, cores, containers, hosts)."""
    return 1, cell.cores, cell.containers, int(cell.request.cluster == "ssh")


def capacity_of(machine: Machine, cells: tuple[Cell, ...]) -> Capacity:
    """What may be in use. Raises UsageError for a cell that will never fit."""
    cores = machine.cores or float(len(os.sched_getaffinity(0)))
    containers = machine.containers or max(1, _free_bytes() // NODE_BYTES)
    room = Capacity(machine.jobs or ANY, cores, containers)
    for cell in cells:
        if not room.has(cell):
            raise UsageError(
                f"cell {cell.key} needs {cell.cores:g} cores and {cell.containers} containers:"
                f" there are {cores:g} and {containers}, unless [machine] says otherwise"
            )
    return room


def _free_bytes() -> int:
    """Memory that can be had; much, where the system does not say."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return ANY * NODE_BYTES
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return ANY * NODE_BYTES
