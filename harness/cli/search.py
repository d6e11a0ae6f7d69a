"""The commands of the simulation: search, replay, shrink."""

from __future__ import annotations

import logging
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

STORE = Path("store")
StoreOption = Annotated[Path, typer.Option("--store", help="Where runs are kept.")]
LoadOption = Annotated[
    list[str] | None,
    typer.Option("--load", help="A module whose systems, workloads, faults are offered too."),
]
PlanArgument = Annotated[Path, typer.Argument(help="A plan.json, or a minimal.json.")]


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


def add_search_commands(app: typer.Typer) -> None:
    """Register them."""
    for command in (search, replay, shrink):
        app.command()(command)


def search(
    system: Annotated[str, _option("What runs on the nodes: mirrored, if not given.")] = "",
    profile: Annotated[str, _option("safe (the default) or upstream.")] = "",
    workload: Annotated[
        str, _option("What clients do; else the system's own.", "--workload", "-w")
    ] = "",
    nemesis: Annotated[str, _option("Faults to draw from: a,b; else all it survives.")] = "",
    seeds: Annotated[str, _option("How many, or a range: 1000, 5000-5999.")] = "",
    jobs: Annotated[int, _option("Processes; 0: one for each CPU.", "--jobs", "-j")] = 0,
    bug: Annotated[str, _option("Look for this known bug: see `shalott bugs`.")] = "",
    scenario: Annotated[str, _option("Look for this loss window, or bug: L1, KB-RMQ-02.")] = "",
    time_limit: Annotated[str, _option("No new seed after so long: 90s, 30m.")] = "",
    keep: Annotated[int, _option("Findings kept of each class.")] = 3,
    fresh: Annotated[bool, _option("Begin anew; what there is is set aside.", "--fresh")] = False,
    load: LoadOption = None,
    store: StoreOption = STORE,
) -> None:
    """Run thousands of simulated clusters, each drawn from a seed, and keep what fails.

    The same command goes on where it was stopped.
    """
    from shalott.harness.run.simulate import simulate
    from shalott.harness.search.progress import make_watch
    from shalott.harness.search.search import SearchRequest, plan_search, run_search
    from shalott.harness.search.summary import closing_lines, exit_code

    request = SearchRequest(
        system=system, profile=profile, workload=workload, nemesis=nemesis,
        seeds=seeds, jobs=jobs, bug=bug, scenario=scenario,
        time_limit=time_limit, keep=keep, fresh=fresh, store=store,
    )  # fmt: skip
    planned = plan_search(request)
    with make_watch() as watch:
        summary, place = run_search(
            planned, request, simulate, watch, command=_command("search", request)
        )
    for line in closing_lines(summary, place):
        typer.echo(line)
    raise typer.Exit(exit_code(summary))


def replay(
    plan: PlanArgument,
    cluster: Annotated[str, _option("sim, docker, local or ssh; else the plan's own.")] = "",
    drop_unsupported: Annotated[
        bool, _option("Leave out faults that the cluster can't make.", "--drop-unsupported")
    ] = False,
    trials: Annotated[int, _option("Runs, where runs differ: docker, local, ssh.")] = 1,
    load: LoadOption = None,
    store: StoreOption = STORE,
) -> None:
    """Run a stored plan again: in the simulation to the last byte, or elsewhere."""
    from shalott.harness.run.simulate import simulate
    from shalott.harness.search.replay import replay as run_again

    _keep_logs_quiet()
    code = run_again(
        plan,
        cluster=cluster,
        drop_unsupported=drop_unsupported,
        trials=trials,
        store_root=store,
        simulate=simulate,
    )
    raise typer.Exit(code)


def shrink(
    plan: PlanArgument,
    budget: Annotated[int, _option("Runs at most.")] = 500,
    anomaly: Annotated[str, _option("The class to keep; else the gravest: lost.")] = "",
    out: Annotated[Path | None, _option("Where to; else minimal.json beside the plan.")] = None,
    load: LoadOption = None,
) -> None:
    """Make a failing plan minimal: fewer faults, fewer operations, weaker, shorter, calmer."""
    from shalott.harness.run.simulate import simulate
    from shalott.harness.search.shrinking.session import shrink_plan

    _keep_logs_quiet()
    code = shrink_plan(plan, budget=budget, anomaly=anomaly, out=out, simulate=simulate)
    raise typer.Exit(code)


def _keep_logs_quiet() -> None:
    """What a stage logs goes to the file of a run that has one; simulated by the hundred, it is
    noise between the lines that tell how far things are."""
    logging.getLogger().addHandler(logging.NullHandler())


def _command(name: str, request: Any) -> str:
    """The command as it was given, without what stands for a default."""
    words = ["shalott", name]
    for field in fields(request):
        value = getattr(request, field.name)
        if value == field.default or value is False:
            continue
        flag = f"--{field.name.replace('_', '-')}"
        words += [flag] if value is True else [flag, str(value)]
    return shlex.join(words)
