"""One run, from the plan to the report: the table of contents of the product.

``run`` reads top to bottom like the run itself. If anything breaks or interrupts it, the history
so far is saved, the faults are healed, the nodes are torn down, and the report is written:
the experiment (harness/run/stage.py) is a task of its own that can be stopped at any moment, and
what follows is a list of steps, each of which is tried even if the one before it failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from shalott.checkers.checker import Result
from shalott.cluster.debian_packages import unpinned
from shalott.cluster.system import AcknowledgesUnlogged, EventRow
from shalott.core.errors import StoreError
from shalott.core.history import EMPTY_EVENTS, History, events_table
from shalott.core.plan import Plan
from shalott.core.timeline import RunStart
from shalott.core.worker import describe
from shalott.harness.report.junit import render_unended
from shalott.harness.report.meta import ReportMeta, Tested
from shalott.harness.report.meta import StoryResult as ToldStory
from shalott.harness.report.results import notes_that_apply
from shalott.harness.run.clock_watch import record_doubts
from shalott.harness.run.provenance import Provenance
from shalott.harness.run.stage import Stage
from shalott.harness.run.startup_race import story_as_text as told_as_text
from shalott.harness.run.store import JUNIT, STORY_JSON, STORY_TEXT, RunDirectory
from shalott.harness.run.story import Story, read_material
from shalott.harness.run.usage import watch_usage
from shalott.harness.run.verdict import judge, save_data, save_verdict
from shalott.harness.run.world import World
from shalott.workloads.record import WORKLOADS

log = logging.getLogger("shalott.run")

STEP_TIMEOUT_S = 120.0  # for each step of cleaning up
Watch = Callable[[Stage], Awaitable[None]]  # shows a run's progress until it is cancelled

INTERRUPTED = "The run was interrupted"  # how the note of one begins


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Why there is this run. ``command`` repeats it; ``iteration``: which of several runs it is;
    ``story``: what to look for in it; ``may_break``: the user's word for what others made."""

    command: str
    iteration: int = 1
    notes: tuple[str, ...] = ()
    story: Story | None = None
    may_break: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClock:
    """Real time since the run began; and when it began, where the recorder's clocks are a
    simulation's."""

    elapsed_ns: Callable[[], int]
    started_wall_ns: int | None = None


def real_clock() -> RunClock:
    """The clock of a run on real nodes that begins now."""
    began_ns = time.monotonic_ns()
    return RunClock(elapsed_ns=lambda: time.monotonic_ns() - began_ns)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known after a run. ``failures`` are the harness's own, never the system's."""

    valid: bool | str
    results: tuple[Result, ...]
    directory: RunDirectory
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    story: ToldStory | None = None

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 2 unknown, 255 the harness failed. Of a story: 0 if it happened, 1 if
        it did not.
        """
        if self.failures:
            return 255
        if self.story is not None:
            return 0 if self.story.happened else 1
        if isinstance(self.valid, bool):
            return 0 if self.valid else 1
        return 2


@dataclass
class Trouble:
    """What went wrong with the harness, collected while everything else still happens."""

    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    def report(self, what: str, error: BaseException) -> None:
        self.failures.append(f"{what}: {describe(_first_cause(error))}")
        log.error("%s failed", what, exc_info=error)


async def run(
    plan: Plan,
    directory: RunDirectory,
    world: World,
    context: RunContext,
    *,
    clock: RunClock | None = None,
    provenance: Provenance | None = None,
    interrupt: asyncio.Event | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Do everything that ``plan`` says in ``world``, and judge it.

    ``provenance`` is asked at the end, when it has looked at what runs on the nodes.
    """
    directory.save_plan(plan)
    meta = ReportMeta(
        command=context.command,
        started_wall_ns=directory.started_wall_ns,
        iteration=context.iteration,
        versions={} if provenance is None else provenance.versions(),
        directory=str(directory.path),
    )
    # A CI that finds no file sees no run: until there is a verdict, there is an error.
    directory.save_bytes(JUNIT, render_unended(plan, meta))
    trouble = Trouble(notes=list(context.notes))
    started_wall_ns = None if clock is None else clock.started_wall_ns
    with directory.logging():
        record = world.make_recorder(directory.recording)
        stage = Stage(
            plan,
            world,
            WORKLOADS.find(plan.workload.name).build(plan),
            record,
            world.make_nemesis(record),
        )
        _log_times(started_wall_ns, record.start_wall_ns)
        background = [asyncio.create_task(record.keep_flushed())]
        clocks = None if world.watch_clocks is None else world.watch_clocks(world.cluster, record)
        if clocks is not None:
            background.append(asyncio.create_task(clocks.keep_watching()))
        usage = watch_usage(world.cluster)
        if usage is not None:
            background.append(asyncio.create_task(usage.keep_watching()))
        if watch is not None:
            background.append(asyncio.create_task(_watched(watch, stage)))
        await _experiment(stage, background[0], interrupt or asyncio.Event(), trouble)
        await _clean_up(stage, directory, trouble)
        await _stop(background)
        _save_resolved_plan(stage, directory, trouble)
        start = record.start_wall_ns if clocks is None else clocks.start()
        rows = _read_events(stage, directory, start, trouble)
        history = _save_history(stage, directory, rows, trouble)
        meta = msgspec.structs.replace(
            meta,
            started_wall_ns=record.start_wall_ns if started_wall_ns is None else started_wall_ns,
            virtual_started_ns=None if started_wall_ns is None else record.start_wall_ns,
            elapsed_ns=record.now_ns() if clock is None else clock.elapsed_ns(),
            tested=Tested() if provenance is None else provenance.tested(),
            usage=None if usage is None else usage.told(),
        )
        trouble.notes.extend(unpinned(meta.tested.packages, meta.tested.pinned))
        if context.story is not None:
            meta = _tell(context.story, history, directory, meta, start, trouble)
        return _conclude(history, stage, directory, meta, trouble)


async def _experiment(
    stage: Stage, flusher: asyncio.Task[None], interrupt: asyncio.Event, trouble: Trouble
) -> None:
    """The experiment until it ends, fails, is interrupted, or can't be recorded any more."""
    experiment = asyncio.create_task(stage.perform())
    interrupted = asyncio.create_task(interrupt.wait())
    try:
        await asyncio.wait((experiment, flusher, interrupted), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # the run shall end; it ends in order
        interrupt.set()
    interrupted.cancel()
    if not experiment.done():
        experiment.cancel()
        await asyncio.wait((experiment,))
    if interrupt.is_set():
        trouble.interrupted = True
        trouble.notes.append(f"{INTERRUPTED} in the phase {stage.phase}.")
    if flusher.done() and not flusher.cancelled() and (error := flusher.exception()) is not None:
        trouble.report("recording", error)
    if not experiment.cancelled() and (error := experiment.exception()) is not None:
        trouble.report(f"the phase {stage.phase}", error)


async def _clean_up(stage: Stage, directory: RunDirectory, trouble: Trouble) -> None:
    """Heal, bring the nodes' files, tear down: each step, even if one before it failed."""
    cluster, leave_running = stage.world.cluster, stage.plan.cluster.leave_running
    stage.show("stop")
    if not stage.healed:
        # Nodes about to be torn down need no start; nodes left running need it.
        await _attempt("healing", stage.heal if leave_running else stage.nemesis.heal, trouble)
        await _attempt("healing the cluster", cluster.heal, trouble)
    await _attempt("writing down who died", stage.stop_watching, trouble)
    await _attempt("collecting logs", lambda: cluster.files.collect(directory.nodes), trouble)
    if not leave_running:
        await _attempt("tearing down", stage.world.teardown or cluster.teardown, trouble)
    trouble.notes.extend(cluster.notes)


async def _attempt(what: str, step: Callable[[], Awaitable[None]], trouble: Trouble) -> None:
    """One step, bounded; if the run is cancelled meanwhile, the step is finished first."""

    async def bounded() -> None:
        async with asyncio.timeout(STEP_TIMEOUT_S):
            await step()

    log.info("%s", what)
    task = asyncio.create_task(bounded())
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            trouble.interrupted = True
    if task.cancelled():
        trouble.failures.append(f"{what}: cancelled")
    elif (error := task.exception()) is not None:
        trouble.report(what, error)


def _save_resolved_plan(stage: Stage, directory: RunDirectory, trouble: Trouble) -> None:
    """Write the targets that faults found when they fired back into the plan."""
    resolved = stage.nemesis.resolved_actions
    if resolved == stage.plan.faults:
        return
    try:
        directory.save_plan(msgspec.structs.replace(stage.plan, faults=resolved))
    except StoreError as error:
        trouble.report("storing the plan", error)


def _read_events(
    stage: Stage, directory: RunDirectory, start: int, trouble: Trouble
) -> Sequence[EventRow]:
    """The nodes' own, placed on the run's clock; what can't be is a row of the history."""
    try:
        rows = stage.world.system.read_events(directory.nodes, start)
    except Exception as error:
        trouble.report("reading the nodes' events", error)
        return ()
    if isinstance(start, RunStart):
        record_doubts(stage.record, start.reasons())
    return rows


def _save_history(
    stage: Stage, directory: RunDirectory, rows: Sequence[EventRow], trouble: Trouble
) -> History:
    """Close the recording, add the nodes' events, store both."""
    events = EMPTY_EVENTS
    try:
        stage.record.close()
    except StoreError as error:
        if not any(str(error) in failure for failure in trouble.failures):
            trouble.report("recording", error)
    try:
        system = stage.world.system
        events = events_table(rows)
        if isinstance(system, AcknowledgesUnlogged):
            told = system.acknowledged_events(stage.record.history(events), rows)
            events = events_table([*rows, *told])
    except Exception as error:
        trouble.report("reading the nodes' events", error)
    history = stage.record.history(events)
    try:
        directory.save_history(history)
    except StoreError as error:
        trouble.report("storing the history", error)
    return history


def _log_times(true_ns: int | None, recorded_ns: int) -> None:
    """The head of log.txt. Nodes of a simulation write virtual time, which began elsewhere."""
    began = datetime.fromtimestamp((recorded_ns if true_ns is None else true_ns) / 1e9, UTC)
    virtual = datetime.fromtimestamp(recorded_ns / 1e9, UTC)
    clock = "" if true_ns is None else f"; the simulated clocks began at {virtual:%FT%TZ}"
    log.info("the run began at %s%s", f"{began:%FT%TZ}", clock)


def _tell(
    story: Story,
    history: History,
    directory: RunDirectory,
    meta: ReportMeta,
    start: int,
    trouble: Trouble,
) -> ReportMeta:
    """The story's steps beside what happened, stored for itself and in the report."""
    try:
        told = story.tell(read_material(history, directory.nodes, start))
        directory.save_text(STORY_TEXT, told_as_text(told) + "\n")
        directory.save_bytes(STORY_JSON, msgspec.json.format(msgspec.json.encode(told), indent=2))
    except Exception as error:
        trouble.report(f"telling the story {story.name}", error)
        return meta
    return msgspec.structs.replace(meta, story=told)


def _conclude(
    history: History, stage: Stage, directory: RunDirectory, meta: ReportMeta, trouble: Trouble
) -> Outcome:
    verdict = judge(stage.plan, history, trouble.failures)
    told = notes_that_apply((*trouble.notes, *stage.notes), verdict.results)
    try:
        save_verdict(stage.plan, history, verdict, _with_trouble(meta, told, trouble), directory)
    except Exception as error:
        trouble.report("writing the report", error)
        verdict = judge(stage.plan, history, trouble.failures)  # files say what the exit code does
        with contextlib.suppress(Exception):
            save_data(stage.plan, history, verdict, _with_trouble(meta, told, trouble), directory)
    return Outcome(
        valid=verdict.valid,
        results=verdict.results,
        directory=directory,
        failures=tuple(trouble.failures),
        notes=told,
        interrupted=trouble.interrupted,
        story=meta.story,
    )


def _with_trouble(meta: ReportMeta, told: Sequence[str], trouble: Trouble) -> ReportMeta:
    notes = (*told, *(f"The harness failed: {f}" for f in trouble.failures))
    return msgspec.structs.replace(meta, notes=notes, failures=tuple(trouble.failures))


async def _watched(watch: Watch, stage: Stage) -> None:
    """Show progress; a display that breaks is no reason to break the run."""
    try:
        await watch(stage)
    except Exception as error:
        log.error("the progress display failed", exc_info=error)


async def _stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _first_cause(error: BaseException) -> BaseException:
    """What is inside groups of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
