"""The commands of plans: search, replay, shrink, in the simulation and on real nodes."""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from shalott.core.command_options import Argument, Option
from shalott.harness.cli.options import LoadField, LoadOption, StoreOption, with_options
from shalott.harness.cli.record_flags import shared_flags
from shalott.harness.run.request import STORE
from shalott.harness.run.simulate import simulate
from shalott.harness.search.closing_lines import closing_lines
from shalott.harness.search.door import Runs, SimulatedRuns
from shalott.harness.search.failure_rate import Rule
from shalott.harness.search.real_search import plan_real, runs_of
from shalott.harness.search.replay import replay as replay_plan
from shalott.harness.search.run_search import run_search
from shalott.harness.search.search import SIM, Search, SearchRequest, plan_search
from shalott.harness.search.search_progress import make_watch
from shalott.harness.search.summary import exit_code
from shalott.harness.shrinking.real_shrink import BUDGET, ShrinkRequest, shrink_real
from shalott.harness.shrinking.simulated_shrink import shrink_plan

SIMULATED_BUDGET = 500
PLAN_HELP = "A plan.json, or a minimal.json."


def add_commands(app: typer.Typer) -> None:
    """Register them. A search takes its system's parameters too."""
    app.command("search")(with_options(search, shared_flags(workloads=False)))
    app.command()(replay)
    app.command()(with_options(shrink))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Modules that a command loads before it reads its options (harness/cli/commands.py)."""

    load: LoadField = ()


def search(request: SearchRequest, loading: Loading) -> None:
    """Run clusters that are drawn from seeds, thousands of simulated ones or real ones within a
    time, and keep what fails.

    The same command goes on where it was stopped.
    """
    planned: Search
    runs: Runs
    if request.cluster == SIM:
        planned, runs = plan_search(request), SimulatedRuns(simulate)
    else:
        planned = real = plan_real(request)
        for note in real.notes:
            typer.echo(note, err=True)
        runs = runs_of(real, request)
    with make_watch() as watch:
        summary, place = run_search(
            planned, request, runs, watch, command=_command("search", request)
        )
    for line in closing_lines(summary, place):
        typer.echo(line)
    raise typer.Exit(exit_code(summary))


def replay(
    plan: Annotated[Path, typer.Argument(help=PLAN_HELP)],
    cluster: Annotated[
        str, typer.Option(help="sim, docker, local or ssh; else the plan's own.")
    ] = "",
    drop_unsupported: Annotated[
        bool,
        typer.Option("--drop-unsupported", help="Leave out faults that the cluster can't make."),
    ] = False,
    trials: Annotated[int, typer.Option(help="Runs, where runs differ: docker, local, ssh.")] = 1,
    load: LoadOption = None,
    store: StoreOption = STORE,
) -> None:
    """Run a stored plan again: in the simulation to the last byte, or elsewhere."""
    _keep_logs_quiet()
    code = replay_plan(
        plan,
        cluster=cluster,
        drop_unsupported=drop_unsupported,
        trials=trials,
        store_root=store,
        simulate=simulate,
    )
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkOptions:
    """Which plan is made small, where, and what a real run must show for it."""

    plan: Annotated[Path, Argument(PLAN_HELP)]
    budget: Annotated[int, Option("Runs at most; 0: 500, or 60 on real nodes.")] = 0
    anomaly: Annotated[str, Option("The class to keep; else the gravest: lost.")] = ""
    out: Annotated[Path | None, Option("Where to; else minimal.json beside the plan.")] = None
    cluster: Annotated[str, Option("Where: sim; docker or local, by repetition.")] = SIM
    time_limit: Annotated[str, Option("No new run on real nodes after so long: 2h.")] = ""
    jobs: Annotated[
        int, Option("Real clusters side by side; 0: as many as fit.", ("--jobs", "-j"))
    ] = 0
    rate: Annotated[float, Option("In how many of its real runs it must fail.")] = 0.5
    sure: Annotated[float, Option("How sure one must be of that.")] = 0.9
    repeat: Annotated[int, Option("Real runs of one plan, at most.")] = 8


def shrink(asked: ShrinkOptions, loading: Loading) -> None:
    """Make a failing plan minimal: fewer faults, fewer operations, weaker, shorter, calmer.

    On real nodes, where a run may pass that failed before, each plan is run until it is clear how
    often it fails. The same command goes on where it was stopped.
    """
    _keep_logs_quiet()
    if asked.cluster != SIM:
        request = ShrinkRequest(
            path=asked.plan, cluster=asked.cluster, anomaly=asked.anomaly, out=asked.out,
            budget=asked.budget or BUDGET, time_limit=asked.time_limit, jobs=asked.jobs,
            rule=Rule(least_rate=asked.rate, sure=asked.sure, most=asked.repeat),
        )  # fmt: skip
        raise typer.Exit(shrink_real(request))
    code = shrink_plan(
        asked.plan,
        budget=asked.budget or SIMULATED_BUDGET,
        anomaly=asked.anomaly,
        out=asked.out,
        simulate=simulate,
    )
    raise typer.Exit(code)


def _keep_logs_quiet() -> None:
    """What a stage logs goes to the file of a run that has one; simulated by the hundred, it is
    noise between the lines that tell how far things are."""
    logging.getLogger().addHandler(logging.NullHandler())


def _command(name: str, request: SearchRequest) -> str:
    """The command as it was given, without what stands for a default."""
    words = ["shalott", name]
    for field in fields(request):
        value = getattr(request, field.name)
        if field.name == "given" or value == field.default or value is False:
            continue
        flag = f"--{field.name.replace('_', '-')}"
        several = value if isinstance(value, tuple) else (value,)
        words += [flag] if value is True else [w for each in several for w in (flag, str(each))]
    for name, value in request.given.items():
        words += [f"--{name}", str(value)]
    return shlex.join(words)
