"""What ``shalott test`` and ``shalott analyze`` do: plan, choose a world, run, tell.

The bridge between the command line and ``harness.run.run``: it turns signals into an orderly end,
repeats runs for ``--test-count``, and says the verdict in plain words.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import typer

from shalott.checkers.base import Result
from shalott.cluster.capabilities import lacking, refusal
from shalott.cluster.cluster import Cluster
from shalott.cluster.system import System, ports_of
from shalott.core.complaints import Complaints, sentence_of
from shalott.core.doors import loaded_modules
from shalott.core.errors import MissingCapability, ShalottError
from shalott.core.history import Recorder
from shalott.core.plan import Plan, load_plan
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.results import read_results
from shalott.harness.report.stories.catalogue import find_story
from shalott.harness.report.stories.story import Story
from shalott.harness.report.stories.telling import told_as_text
from shalott.harness.report.words import findings, headline, overall, summaries
from shalott.harness.run.detection import faults_too_short
from shalott.harness.run.junit_file import JunitFile
from shalott.harness.run.noting import note_in_table
from shalott.harness.run.planning import (
    Request,
    check_plan,
    make_plan,
    repeat_command,
    store_words,
)
from shalott.harness.run.progress import watch_plainly, watch_terminal
from shalott.harness.run.requirements import check_provided
from shalott.harness.run.run import Outcome, Watch, run
from shalott.harness.run.stage import Nemesis, World
from shalott.harness.run.store import ENDPOINTS, LOG, REPORT, RESULTS, TAGS, RunDirectory, Store
from shalott.harness.run.tested import TestedFacts, versions
from shalott.harness.run.verdict import judge, save_verdict
from shalott.harness.run.watchdog import watch_for_stalls
from shalott.nemesis.requirements import check_system, required_capabilities
from shalott.nemesis.runner import NemesisRunner
from shalott.workloads.record import WORKLOADS

FINDINGS_MAX = 12
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
    first_seed = request.seed if request.seed is not None else int.from_bytes(os.urandom(4))
    story = find_story(request.scenario) if request.scenario else None
    if story is not None:
        request = story.request(request)
    backend, why = _check_and_choose(request, test_count, first_seed)
    repeated = dataclasses.replace(request, cluster=backend)
    file = JunitFile(junit)
    code = 0
    for number in range(test_count):
        seed = first_seed + number
        plan = make_plan(request, backend=backend, seed=seed)
        if story is not None:
            plan = story.staged(plan)
        if number == 0:
            typer.echo(f"{why}.", err=True)
        if test_count > 1:
            typer.echo(f"Run {number + 1} of {test_count}, seed {seed}.", err=True)
        command = repeat_command(repeated, seed, store_root)
        code = run_once(
            plan,
            store_root,
            command,
            notes=(why,),
            iteration=number + 1,
            junit=file,
            story=story,
            tags=tags,
        )
        if code != 0:
            break
    return code


def _check_and_choose(request: Request, test_count: int, seed: int) -> tuple[str, str]:
    """Where the nodes run, and why there. Raises UsageError with all that is wrong."""
    wrong = Complaints()
    if test_count < 1:
        wrong.add(f"--test-count {test_count}: give 1 or more")
    with wrong.gathered():
        make_plan(request, backend=request.cluster, seed=seed)
    chosen = ("", "")
    # To ask for an engine takes longer than to refuse: not where another world would do.
    if not wrong or request.cluster != "auto":
        with wrong.gathered():
            chosen = choose_backend(request)
    wrong.tell()
    return chosen


def run_stored_plan(
    path: Path,
    *,
    test_count: int,
    store_root: Path,
    junit: Path | None = None,
    tags: Mapping[str, str] | None = None,
) -> int:
    """Run a stored plan again, as it is."""
    plan = load_plan(path)
    for note in check_provided(plan):
        typer.echo(note, err=True)
    check_plan(plan)
    words = ["shalott", "test", *(w for name in loaded_modules() for w in ("--load", name))]
    command = shlex.join([*words, "--plan", str(path), *store_words(store_root)])
    file = JunitFile(junit)
    code = 0
    for number in range(test_count):
        code = run_once(plan, store_root, command, iteration=number + 1, junit=file, tags=tags)
        if code != 0:
            break
    return code


def run_once(
    plan: Plan,
    store_root: Path,
    command: str,
    notes: tuple[str, ...] = (),
    iteration: int = 1,
    junit: JunitFile | None = None,
    story: Story | None = None,
    tags: Mapping[str, str] | None = None,
) -> int:
    """One run, from a fresh directory to the last line on the terminal."""
    for note in (warnings := faults_too_short(plan)):
        typer.echo(note, err=True)
    notes = (*notes, *warnings)
    file = junit or JunitFile(None)
    file.begin(plan, command, iteration)
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
            code = _run_simulated(plan, directory, command, notes, iteration, story)
        else:
            world = build_world(plan, directory)  # may refuse; then nothing is left in the store
            begin(directory)
            run_here = _run_until_signalled(
                plan, directory, world, command, notes, iteration, story
            )
            outcome = asyncio.run(run_here)
            tell_outcome(outcome, command)
            code = outcome.exit_code
    except ShalottError as error:
        file.refuse(plan, command, iteration, sentence_of(error))
        raise
    finally:
        if began is not None:
            note_in_table(store_root, began)
    file.end(directory)
    return code


def _run_simulated(
    plan: Plan,
    directory: RunDirectory,
    command: str,
    notes: tuple[str, ...],
    iteration: int,
    story: Story | None,
) -> int:
    from shalott.harness.run.sim_world import run_stored

    outcome, record = run_stored(
        plan,
        directory,
        command,
        versions(plan),
        notes,
        iteration=iteration,
        tested=TestedFacts(plan).facts,
        story=story,
    )
    tell_outcome(outcome, command)
    typer.echo(
        f"Digest: {record.digest} ({record.callbacks} callbacks, {record.segments} segments,"
        f" {record.virtual_ns / 1e9:.1f} virtual seconds)"
    )
    return outcome.exit_code


def build_world(plan: Plan, directory: RunDirectory, cluster: Cluster | None = None) -> World:
    """The plan's cluster, which may be there already, and its system. Raises MissingCapability or
    UsageError for faults that they can't have."""
    from shalott.harness.run import select

    run_id = f"{directory.path.name.replace('.', '').lower()}-{os.getpid()}"
    system = select.make_system(plan)
    check_system(plan.faults, system, plan.cluster.nodes)
    if cluster is None:
        cluster = select.make_cluster(plan, run_id, directory.path / "work")
    missing = sorted(required_capabilities(plan.faults) - cluster.capabilities)
    if missing:
        raise MissingCapability(_why_missing(cluster.backend, missing))
    workload = WORKLOADS.find(plan.workload.name).build(plan)

    async def announce(booted: Cluster, running: System) -> None:
        note_endpoints(directory.path / ENDPOINTS, booted, running)

    def make_nemesis(record: Recorder) -> Nemesis:
        return NemesisRunner(
            cluster,
            system,
            plan,
            record,
            queues=workload.queues,
            client_ports=workload.client_ports,
        )

    return World(
        cluster=cluster,
        system=system,
        make_nemesis=make_nemesis,
        announce=announce,
        watch_stalls=watch_for_stalls,
    )


def _why_missing(backend: str, missing: Sequence[str]) -> str:
    if "upgrade" in missing:
        return str(refusal(backend, "images"))
    sentence = (
        f"the {backend} backend can't {lacking(missing)} here, which the plan's faults need:"
        " choose another --cluster or --nemesis"
    )
    # What the doctor examines; it knows nothing of what a backend never can.
    examined = backend == "docker" and all(each in ("delay", "throttle") for each in missing)
    return f"{sentence}; `shalott doctor` says what installs it" if examined else sentence


def note_endpoints(path: Path, cluster: Cluster, system: System) -> None:
    """Where each node's ports can be reached from here: what ``shalott ctl`` reads."""
    noted = {
        node: {port: cluster.endpoint(node, port) for port in ports_of(system, node)}
        for node in cluster.nodes
    }
    found = {
        node: {port: (at.host, at.port) for port, at in ports.items()}
        for node, ports in noted.items()
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


def analyze(run_name: str | None, store_root: Path) -> int:
    """Judge a stored run again and write its verdict anew; the exit code."""
    directory = Store(store_root).find(run_name)
    plan = directory.load_plan()
    check_provided(plan)
    history = directory.load_history()
    verdict = judge(plan, history)
    save_verdict(plan, history, verdict, _stored_meta(directory, plan), directory)
    note_in_table(store_root, directory)
    tell_verdict(verdict.results)
    typer.echo(f"Report: {directory.path / REPORT}")
    return _exit_code(verdict.valid)


def tell_outcome(outcome: Outcome, command: str) -> None:
    """The last lines of a run."""
    for note in outcome.notes:
        typer.echo(note)
    tell_verdict(outcome.results)
    if outcome.story is not None:
        typer.echo(told_as_text(outcome.story))
    if outcome.failures:
        more = len(outcome.failures) - 1
        rest = f" (and {more} more, see {outcome.directory.path / LOG})" if more else ""
        sentence = f"the harness failed, which is no verdict on the broker: {outcome.failures[0]}"
        typer.secho(f"shalott: {sentence}{rest}", err=True, fg="red")
    if (outcome.directory.path / REPORT).exists():
        typer.echo(f"Report: {outcome.directory.path / REPORT}")
    else:
        typer.echo(f"What there is: {outcome.directory.path}")
    typer.echo(f"Repeat: {command}")


def tell_verdict(results: Sequence[Result]) -> None:
    valid = overall(results)
    colour = {True: "green", False: "red"}.get(valid, "yellow") if isinstance(valid, bool) else None
    typer.secho(headline(results), fg=colour or "yellow", bold=True)
    lines = [f"  {checker}: {sentence}" for _, checker, sentence in findings(results)]
    for line in dict.fromkeys(lines[:FINDINGS_MAX]):
        typer.echo(line)
    if len(lines) > FINDINGS_MAX:
        typer.echo(f"  and {len(lines) - FINDINGS_MAX} more in the report")
    for summary in summaries(results):
        typer.echo(summary)


async def _run_until_signalled(
    plan: Plan,
    directory: RunDirectory,
    world: World,
    command: str,
    notes: tuple[str, ...],
    iteration: int,
    story: Story | None,
) -> Outcome:
    """The run, ended in order by the first Ctrl-C, SIGTERM or SIGHUP."""
    interrupt = asyncio.Event()
    began_ns = time.monotonic_ns()
    facts = TestedFacts(plan)

    async def announce(cluster: Cluster, system: System) -> None:
        if world.announce is not None:
            await world.announce(cluster, system)
        await facts.look(cluster, system)

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
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        return await run(
            plan,
            directory,
            dataclasses.replace(world, announce=announce),
            command=command,
            versions=versions(plan),
            notes=notes,
            iteration=iteration,
            elapsed_ns=lambda: time.monotonic_ns() - began_ns,
            tested=facts.facts,
            interrupt=interrupt,
            watch=_watch(),
            story=story,
        )
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


def _watch() -> Watch:
    return watch_terminal if sys.stderr.isatty() else partial(watch_plainly, stream=sys.stderr)


def choose_backend(request: Request) -> tuple[str, str]:
    """Where the nodes run, and why there."""
    from shalott.harness.run import select

    choice = select.choose_backend(request.cluster, request.system)
    return choice.backend, choice.reason


def _stored_meta(directory: RunDirectory, plan: Plan) -> ReportMeta:
    """What the run's own report said of it; for a run that never got so far, the little we know."""
    if (directory.path / RESULTS).exists():
        stored = read_results(directory.path / RESULTS)
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
        command=f"shalott test --plan {directory.path / 'plan.json'}",
        started_wall_ns=directory.started_wall_ns,
        notes=("The harness was killed in this run; this is what it had recorded.",),
        directory=str(directory.path),
    )


def _exit_code(valid: bool | str) -> int:
    if isinstance(valid, bool):
        return 0 if valid else 1
    return 2
