"""What ``shalott test`` and ``shalott analyze`` do: plan, choose a world, run, tell.

The bridge between the command line and ``harness.run.run``: it turns signals into an orderly end,
repeats runs for ``--test-count``, and says the verdict in plain words.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import typer

from shalott.checkers.base import Result
from shalott.cluster.base import Cluster, System, ports_of
from shalott.harness.core.errors import MissingCapability, UsageError
from shalott.harness.core.history import Recorder
from shalott.harness.core.plan import Plan, load_plan
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.results import read_results
from shalott.harness.report.words import findings, headline, overall, summaries
from shalott.harness.run.detection import faults_too_short
from shalott.harness.run.planning import Request, check_plan, make_plan, repeat_command
from shalott.harness.run.progress import watch_plainly, watch_terminal
from shalott.harness.run.requirements import check_provided
from shalott.harness.run.run import Outcome, Watch, run
from shalott.harness.run.stage import Nemesis, World
from shalott.harness.run.store import ENDPOINTS, LOG, REPORT, RESULTS, RunDirectory, Store
from shalott.harness.run.verdict import judge, save_verdict
from shalott.harness.run.watchdog import watch_for_stalls
from shalott.nemesis.requirements import check_system, required_capabilities
from shalott.nemesis.runner import NemesisRunner
from shalott.workloads.record import WORKLOADS

FINDINGS_MAX = 12
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_request(request: Request, *, test_count: int, store_root: Path) -> int:
    """Plan and run, up to ``test_count`` times or until a run is not valid; the last exit code."""
    if test_count < 1:
        raise UsageError(f"--test-count {test_count}: give 1 or more")
    first_seed = request.seed if request.seed is not None else int.from_bytes(os.urandom(4))
    make_plan(request, backend=request.cluster, seed=first_seed)  # refuse before asking engines
    backend, why = choose_backend(request)
    code = 0
    for number in range(test_count):
        seed = first_seed + number
        plan = make_plan(request, backend=backend, seed=seed)
        if number == 0:
            typer.echo(f"{why}.", err=True)
        if test_count > 1:
            typer.echo(f"Run {number + 1} of {test_count}, seed {seed}.", err=True)
        code = run_once(plan, store_root, repeat_command(request, seed), notes=(why,))
        if code != 0:
            break
    return code


def run_stored_plan(path: Path, *, test_count: int, store_root: Path) -> int:
    """Run a stored plan again, as it is."""
    plan = load_plan(path)
    for note in check_provided(plan):
        typer.echo(note, err=True)
    check_plan(plan)
    command = f"shalott test --plan {path}"
    code = 0
    for _ in range(test_count):
        code = run_once(plan, store_root, command)
        if code != 0:
            break
    return code


def run_once(plan: Plan, store_root: Path, command: str, notes: tuple[str, ...] = ()) -> int:
    """One run, from a fresh directory to the last line on the terminal."""
    for note in (warnings := faults_too_short(plan)):
        typer.echo(note, err=True)
    notes = (*notes, *warnings)
    store = Store(store_root)
    directory = store.name_run(plan.name)
    if plan.cluster.backend == "sim":
        store.begin(directory)
        return _run_simulated(plan, directory, command, notes)
    world = build_world(plan, directory)  # may refuse; then nothing is left in the store
    store.begin(directory)
    outcome = asyncio.run(_run_until_signalled(plan, directory, world, command, notes))
    tell_outcome(outcome, command)
    return outcome.exit_code


def _run_simulated(
    plan: Plan, directory: RunDirectory, command: str, notes: tuple[str, ...]
) -> int:
    from shalott.harness.run.sim_world import run_stored

    outcome, record = run_stored(plan, directory, command, versions(plan), notes)
    tell_outcome(outcome, command)
    typer.echo(
        f"Digest: {record.digest} ({record.callbacks} callbacks, {record.segments} segments,"
        f" {record.virtual_ns / 1e9:.1f} virtual seconds)"
    )
    return outcome.exit_code


def build_world(plan: Plan, directory: RunDirectory) -> World:
    """The plan's cluster and system. Raises MissingCapability or UsageError for faults that they
    can't have."""
    from shalott.harness.run import select

    run_id = f"{directory.path.name.replace('.', '').lower()}-{os.getpid()}"
    system = select.make_system(plan)
    check_system(plan.faults, system)
    cluster = select.make_cluster(plan, run_id, directory.path / "work")
    missing = sorted(required_capabilities(plan.faults) - cluster.capabilities)
    if missing:
        raise MissingCapability(
            f"the {cluster.backend} backend can't {', '.join(missing)} here, which the plan's"
            " faults need: choose another --cluster or --nemesis; see `shalott doctor`"
        )
    queues = WORKLOADS.find(plan.workload.name).build(plan).queues

    def make_nemesis(record: Recorder) -> Nemesis:
        return NemesisRunner(cluster, system, plan, record, queues=queues)

    return World(
        cluster=cluster,
        system=system,
        make_nemesis=make_nemesis,
        announce=partial(note_endpoints, directory.path / ENDPOINTS),
        watch_stalls=watch_for_stalls,
    )


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
    save_verdict(plan, history, verdict, _stored_meta(directory), directory)
    tell_verdict(verdict.results)
    typer.echo(f"Report: {directory.path / REPORT}")
    return _exit_code(verdict.valid)


def tell_outcome(outcome: Outcome, command: str) -> None:
    """The last lines of a run."""
    for note in outcome.notes:
        typer.echo(note)
    tell_verdict(outcome.results)
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
    plan: Plan, directory: RunDirectory, world: World, command: str, notes: tuple[str, ...]
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
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        return await run(
            plan,
            directory,
            world,
            command=command,
            versions=versions(plan),
            notes=notes,
            interrupt=interrupt,
            watch=_watch(),
        )
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


def versions(plan: Plan) -> dict[str, str]:
    """What a report says it was made with."""
    providers = {
        needed.provider: needed.version for needed in plan.requires if not needed.is_module
    }
    return {
        "shalott": importlib.metadata.version("shalott"),
        **{name: version for name, version in sorted(providers.items()) if name != "shalott"},
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
    }


def _watch() -> Watch:
    return watch_terminal if sys.stderr.isatty() else partial(watch_plainly, stream=sys.stderr)


def choose_backend(request: Request) -> tuple[str, str]:
    """Where the nodes run, and why there."""
    from shalott.harness.run import select

    choice = select.choose_backend(request.cluster, request.system)
    return choice.backend, choice.reason


def _stored_meta(directory: RunDirectory) -> ReportMeta:
    """What the run's own report said of it; for a run that never got so far, the little we know."""
    if (directory.path / RESULTS).exists():
        stored = read_results(directory.path / RESULTS)
        return ReportMeta(
            command=stored.command,
            started_wall_ns=stored.started_wall_ns,
            versions=stored.versions,
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
