"""What ``shalott test`` and ``shalott analyze`` do: plan, choose a world, run, tell.

The bridge between the command line and harness/run/run.py: it turns signals into an orderly end,
repeats runs for ``--test-count``, and notes them in the store's table of runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import typer

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import System
from shalott.core.doors import typed_command
from shalott.core.errors import Complaints, ShalottError, UsageError, sentence_of
from shalott.core.plan import Plan, load_plan
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.results import read_results
from shalott.harness.run import backends
from shalott.harness.run.consent import of_its_own, require_consent
from shalott.harness.run.junit_file import JunitFile
from shalott.harness.run.plan_checks import check_plan, check_provided, faults_too_short
from shalott.harness.run.planning import make_plan, repeat_command, store_words
from shalott.harness.run.provenance import Provenance
from shalott.harness.run.request import Request
from shalott.harness.run.run import Outcome, RunContext, Watch, real_clock, run
from shalott.harness.run.simulate import run_stored
from shalott.harness.run.simulation_record import SimulationRecord
from shalott.harness.run.stage import Stage
from shalott.harness.run.startup_race import find_story
from shalott.harness.run.store import (
    JUNIT,
    REPORT,
    RESULTS,
    TAGS,
    RunDirectory,
    RunNameTaken,
    Store,
)
from shalott.harness.run.terminal import tell_outcome, tell_verdict, watch_plainly, watch_terminal
from shalott.harness.run.verdict import judge, save_verdict
from shalott.harness.run.world import World, build_world
from shalott.harness.store.runs_table import note_runs

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_request(
    request: Request,
    *,
    test_count: int,
    store_root: Path,
    junit: Path | None = None,
    tags: Mapping[str, str] | None = None,
) -> int:
    """Plan and run, up to ``test_count`` times or until a run is not valid; the last exit code.

    ``junit``: where one document over all these runs is kept (harness/run/junit_file.py).
    ``tags``: what the runs' rows in the table of runs carry.
    """
    planned = planner(request, test_count, store_root)

    def told(number: int) -> tuple[Plan, RunContext]:
        plan, context = planned(number)
        if number == 0:
            typer.echo(f"{context.notes[0]}.", err=True)
        if test_count > 1:
            typer.echo(f"Run {number + 1} of {test_count}, seed {plan.seed}.", err=True)
        return plan, context

    return _run_series(told, test_count, store_root, JunitFile(junit), tags)


Planner = Callable[[int], tuple[Plan, RunContext]]


def planner(request: Request, test_count: int, store_root: Path) -> Planner:
    """What plans each of so many runs, from 0; the notes begin with why they run where they do.

    Raises UsageError with all that is wrong.
    """
    first_seed = request.seed if request.seed is not None else int.from_bytes(os.urandom(4))
    story = find_story(request.scenario) if request.scenario else None
    if story is not None:
        request = story.request(request)
    choice = _check_and_choose(request, test_count, first_seed)
    repeated = dataclasses.replace(request, cluster=choice.backend)

    def planned(number: int) -> tuple[Plan, RunContext]:
        seed = first_seed + number
        plan = make_plan(request, backend=choice.backend, seed=seed)
        if story is not None:
            plan = story.staged(plan)
        context = RunContext(
            command=repeat_command(repeated, seed, store_root),
            iteration=number + 1,
            notes=(choice.reason,),
            story=story,
            may_break=request.i_may_break_this,
        )
        return plan, context

    return planned


def _check_and_choose(request: Request, test_count: int, seed: int) -> backends.Choice:
    """Where the nodes run, and why there. Raises UsageError with all that is wrong."""
    wrong = Complaints()
    if test_count < 1:
        wrong.add(f"--test-count {test_count}: give 1 or more")
    with wrong.gathered():
        make_plan(request, backend=request.cluster, seed=seed)
    chosen = backends.Choice("", "")
    # To ask for an engine takes longer than to refuse: not where another world would do.
    if not wrong or request.cluster != "auto":
        with wrong.gathered():
            chosen = backends.choose_backend(request.cluster, request.system)
    wrong.tell()
    return chosen


def run_stored_plan(
    path: Path,
    *,
    test_count: int,
    store_root: Path,
    junit: Path | None = None,
    tags: Mapping[str, str] | None = None,
    may_break: bool = False,
) -> int:
    """Run a stored plan again, as it is. ``may_break``: as RunContext's."""
    planned = planner_of_stored(path, store_root, may_break)
    for note in planned(0)[1].notes:
        typer.echo(note, err=True)
    return _run_series(planned, test_count, store_root, JunitFile(junit), tags)


def planner_of_stored(path: Path, store_root: Path, may_break: bool = False) -> Planner:
    """The same of a stored plan; the notes say who provides what now. Raises UsageError."""
    plan = load_plan(path)
    notes = tuple(check_provided(plan))
    check_plan(plan)
    command = typed_command("test", "--plan", str(path), *store_words(store_root))

    def planned(number: int) -> tuple[Plan, RunContext]:
        context = RunContext(
            command=command, iteration=number + 1, notes=notes, may_break=may_break
        )
        return plan, context

    return planned


def _run_series(
    planned: Planner,
    count: int,
    store_root: Path,
    junit: JunitFile,
    tags: Mapping[str, str] | None,
) -> int:
    """So many runs, or until one is not valid; the last exit code."""
    code = 0
    for number in range(count):
        plan, context = planned(number)
        code = run_once(plan, store_root, context, junit=junit, tags=tags)
        if code != 0:
            break
    return code


def run_once(
    plan: Plan,
    store_root: Path,
    context: RunContext,
    *,
    junit: JunitFile | None = None,
    tags: Mapping[str, str] | None = None,
) -> int:
    """One run, from a fresh directory to the last line on the terminal."""
    for note in faults_too_short(plan):
        typer.echo(note, err=True)
    file = junit or JunitFile(None)
    file.begin(plan, context.command, context.iteration)
    try:
        outcome, record = perform(plan, store_root, context, tags=tags, watch=progress())
    except ShalottError as error:
        file.refuse(plan, context.command, context.iteration, sentence_of(error))
        raise
    tell_outcome(outcome, context.command)
    if record is not None:
        typer.echo(
            f"Digest: {record.digest} ({record.callbacks} callbacks, {record.segments} segments,"
            f" {record.virtual_ns / 1e9:.1f} virtual seconds)"
        )
    file.end(outcome.directory.path / JUNIT)
    return outcome.exit_code


def perform(
    plan: Plan,
    store_root: Path,
    context: RunContext,
    *,
    tags: Mapping[str, str] | None = None,
    watch: Watch | None = None,
) -> tuple[Outcome, SimulationRecord | None]:
    """One run in a fresh directory of the store, of which nothing is told but by ``watch``."""
    while True:
        with contextlib.suppress(RunNameTaken):  # nothing is started yet
            return _perform(plan, store_root, context, tags, watch)


def _perform(
    plan: Plan,
    store_root: Path,
    context: RunContext,
    tags: Mapping[str, str] | None,
    watch: Watch | None,
) -> tuple[Outcome, SimulationRecord | None]:
    context = dataclasses.replace(context, notes=(*context.notes, *faults_too_short(plan)))
    plan = of_its_own(plan)
    store = Store(store_root)
    began: RunDirectory | None = None

    def begin(directory: RunDirectory) -> None:
        nonlocal began
        store.begin(directory)
        began = directory
        if tags:
            directory.save_bytes(TAGS, msgspec.json.encode(tags, order="sorted"))

    try:
        directory = store.name_run(plan.name)
        if plan.cluster.backend == "sim":
            begin(directory)
            return run_stored(plan, directory, context)
        world = build_world(plan, directory)  # may refuse; then nothing is left in the store
        # With a factory the caller's own event loop stays the current one.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(_check(plan, world, context))  # may refuse, too
            begin(directory)
            return runner.run(_run_until_signalled(plan, directory, world, context, watch)), None
    finally:
        if began is not None:
            note_in_table(store_root, began)


async def _check(plan: Plan, world: World, context: RunContext) -> None:
    """Raises UsageError; nothing is started yet."""
    cluster, system = world.cluster, world.system
    await cluster.check(system)
    await require_consent(plan, cluster, system, context.may_break, _tell)


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def analyze(run_name: str | None, store_root: Path) -> int:
    """Judge a stored run again and write its verdict anew; the exit code."""
    directory = Store(store_root).find(run_name)
    plan = directory.load_plan()
    check_provided(plan)
    history = directory.load_history()
    meta = _stored_meta(directory, plan)
    verdict = judge(plan, history, meta.failures)
    save_verdict(plan, history, verdict, meta, directory)
    note_in_table(store_root, directory)
    for note in meta.notes:
        typer.echo(note, err=True)
    tell_verdict(verdict.results)
    typer.echo(f"Report: {directory.path / REPORT}")
    return _exit_code(verdict.valid)


async def _run_until_signalled(
    plan: Plan, directory: RunDirectory, world: World, context: RunContext, watch: Watch | None
) -> Outcome:
    """The run, ended in order by the first Ctrl-C, SIGTERM or SIGHUP."""
    interrupt = asyncio.Event()

    def stop() -> None:
        again = interrupt.is_set()
        interrupt.set()
        typer.echo(
            "Still healing and tearing down; it ends by itself."
            if again
            else "Stopping: faults are healed, logs collected, nodes torn down.",
            err=True,
        )

    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in STOP_SIGNALS:  # before all that takes time
        loop.add_signal_handler(number, stop)
    clock = real_clock()
    provenance = Provenance(plan)

    async def announce(cluster: Cluster, system: System) -> None:
        if world.announce is not None:
            await world.announce(cluster, system)
        await provenance.look(cluster, system)

    try:
        return await run(
            plan,
            directory,
            dataclasses.replace(world, announce=announce),
            context,
            clock=clock,
            provenance=provenance,
            interrupt=interrupt,
            watch=watch,
        )
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def progress() -> Watch:
    """What shows a run's progress on standard error, on a terminal or elsewhere."""
    return watch_terminal if sys.stderr.isatty() else _watch_plainly


async def _watch_plainly(stage: Stage) -> None:
    await watch_plainly(stage, stream=sys.stderr)


def _stored_meta(directory: RunDirectory, plan: Plan) -> ReportMeta:
    """What the run's own report said of it; for a run that never got so far, the little we know."""
    try:
        stored = read_results(directory.path / RESULTS)
    except UsageError as error:
        if (directory.path / RESULTS).exists():
            note = f"{error}; this is judged by the history alone."
        else:
            note = "The harness was killed in this run; this is what it had recorded."
    else:
        started_ns, virtual_ns = stored.started_wall_ns, stored.virtual_started_ns
        if plan.cluster.backend == "sim" and virtual_ns is None:
            # Stored when a simulated run was dated by its own clock alone.
            started_ns, virtual_ns = directory.started_wall_ns or started_ns, started_ns
        return ReportMeta(
            command=stored.command,
            started_wall_ns=started_ns,
            virtual_started_ns=virtual_ns,
            elapsed_ns=stored.elapsed_ns,
            iteration=stored.iteration,
            versions=stored.versions,
            tested=stored.tested,
            failures=stored.failures,
            notes=stored.notes,
            directory=str(directory.path),
        )
    return ReportMeta(
        command=typed_command("test", "--plan", str(directory.path / "plan.json")),
        started_wall_ns=directory.started_wall_ns,
        notes=(note,),
        directory=str(directory.path),
    )


def _exit_code(valid: bool | str) -> int:
    if isinstance(valid, bool):
        return 0 if valid else 1
    return 2


def note_in_table(store_root: Path, *directories: RunDirectory) -> None:
    """Rows in the store's table of runs. The next look at the table makes good for one that can't
    be written, so no run fails because of it."""
    try:
        notes = note_runs(store_root, [directory.path for directory in directories])
    except ShalottError as error:
        notes = (f"{sentence_of(error)} `shalott runs` will take in what is missing.",)
    for note in notes:
        typer.echo(note, err=True)
