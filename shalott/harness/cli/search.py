"""The commands of plans: search, replay, shrink, in the simulation and on real nodes."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from shalott.harness.search.search import SearchRequest

STORE = Path("store")
StoreOption = Annotated[Path, typer.Option("--store", help="Where runs are kept.")]
LoadOption = Annotated[
    list[str] | None,
    typer.Option("--load", help="A module whose systems, workloads, faults are offered too."),
]
PlanArgument = Annotated[Path, typer.Argument(help="A plan.json, or a minimal.json.")]


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


def add_search_commands(app: typer.Typer, words: Sequence[str] = ()) -> None:
    """Register them. ``words`` is the command line: a search takes its system's parameters too."""
    if not words or words[0] == "search":
        from shalott.harness.cli.parameter_flags import shared_flags, with_parameter_flags

        app.command("search")(with_parameter_flags(search, shared_flags(workloads=False), {}))
    else:
        app.command("search", help=search.__doc__)(lambda: None)
    for command in (replay, shrink):
        app.command()(command)


def search(
    system: Annotated[str, _option("What runs on the nodes: mirrored, if not given.")] = "",
    profile: Annotated[str, _option("safe (the default) or upstream.")] = "",
    workload: Annotated[
        str, _option("What clients do; else the system's own.", "--workload", "-w")
    ] = "",
    nemesis: Annotated[str, _option("Faults to draw from: a,b; else all it survives.")] = "",
    seeds: Annotated[str, _option("How many, or a range: 1000, 5000-5999.")] = "",
    jobs: Annotated[
        int,
        _option("Processes; 0: one for each CPU, or as many clusters as fit.", "--jobs", "-j"),
    ] = 0,
    bug: Annotated[str, _option("Look for this known bug: see `shalott bugs`.")] = "",
    scenario: Annotated[str, _option("Look for this loss window, or bug: L1, KB-RMQ-02.")] = "",
    time_limit: Annotated[str, _option("No new seed after so long: 90s, 30m.")] = "",
    keep: Annotated[int, _option("Findings kept of each class.")] = 3,
    fresh: Annotated[bool, _option("Begin anew; what there is is set aside.", "--fresh")] = False,
    cluster: Annotated[
        str,
        _option("Where nodes run: sim; docker or local, on clusters kept warm.", "--cluster"),
    ] = "sim",
    nodes: Annotated[int, _option("Nodes of a real cluster; 0: three.")] = 0,
    plans: Annotated[
        list[Path] | None,
        _option("Stored plans to run on real nodes, or a directory.", "--plans"),
    ] = None,
    policy: Annotated[
        list[str] | None, _option("A setting of a real system: KEY=VALUE.", "--policy")
    ] = None,
    repeat: Annotated[
        int, _option("Runs, at most, to see how often a real finding comes again.")
    ] = 5,
    load: LoadOption = None,
    store: StoreOption = STORE,
    given: Any = None,
) -> None:
    """Run clusters that are drawn from seeds, thousands of simulated ones or real ones within a
    time, and keep what fails.

    The same command goes on where it was stopped.
    """
    from shalott.harness.search.search import SearchRequest

    request = SearchRequest(
        system=system, profile=profile, workload=workload, nemesis=nemesis,
        seeds=seeds, jobs=jobs, bug=bug, scenario=scenario,
        time_limit=time_limit, keep=keep, fresh=fresh, store=store,
        cluster=cluster, nodes=nodes, plans=tuple(plans or ()), policy=tuple(policy or ()),
        repeat=repeat, given=dict(given or {}),
    )  # fmt: skip
    raise typer.Exit(_search(request) if cluster == "sim" else _search_real(request))


def _search(request: SearchRequest) -> int:
    from shalott.harness.run.simulate import simulate
    from shalott.harness.search.closing_lines import closing_lines
    from shalott.harness.search.door import SimulatedRuns
    from shalott.harness.search.run_search import run_search
    from shalott.harness.search.search import plan_search
    from shalott.harness.search.search_progress import make_watch
    from shalott.harness.search.summary import exit_code

    planned = plan_search(request)
    with make_watch() as watch:
        summary, place = run_search(
            planned, request, SimulatedRuns(simulate), watch, command=_command("search", request)
        )
    for line in closing_lines(summary, place):
        typer.echo(line)
    return exit_code(summary)


def _search_real(request: SearchRequest) -> int:
    from shalott.harness.search.closing_lines import closing_lines
    from shalott.harness.search.real_search import plan_real, runs_of
    from shalott.harness.search.run_search import run_search
    from shalott.harness.search.search_progress import make_watch
    from shalott.harness.search.summary import exit_code

    planned = plan_real(request)
    for note in planned.notes:
        typer.echo(note, err=True)
    runs = runs_of(planned, request)
    with make_watch() as watch:
        summary, place = run_search(
            planned, request, runs, watch, command=_command("search", request)
        )
    for line in closing_lines(summary, place):
        typer.echo(line)
    return exit_code(summary)


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
    budget: Annotated[int, _option("Runs at most; 0: 500, or 60 on real nodes.")] = 0,
    anomaly: Annotated[str, _option("The class to keep; else the gravest: lost.")] = "",
    out: Annotated[Path | None, _option("Where to; else minimal.json beside the plan.")] = None,
    cluster: Annotated[str, _option("Where: sim; docker or local, by repetition.")] = "sim",
    time_limit: Annotated[str, _option("No new run on real nodes after so long: 2h.")] = "",
    jobs: Annotated[
        int, _option("Real clusters side by side; 0: as many as fit.", "--jobs", "-j")
    ] = 0,
    rate: Annotated[float, _option("In how many of its real runs it must fail.")] = 0.5,
    sure: Annotated[float, _option("How sure one must be of that.")] = 0.9,
    repeat: Annotated[int, _option("Real runs of one plan, at most.")] = 8,
    load: LoadOption = None,
) -> None:
    """Make a failing plan minimal: fewer faults, fewer operations, weaker, shorter, calmer.

    On real nodes, where a run may pass that failed before, each plan is run until it is clear how
    often it fails. The same command goes on where it was stopped.
    """
    _keep_logs_quiet()
    if cluster != "sim":
        from shalott.harness.search.failure_rate import Rule
        from shalott.harness.shrinking.real_shrink import BUDGET, ShrinkRequest, shrink_real

        request = ShrinkRequest(
            path=plan, cluster=cluster, anomaly=anomaly, out=out, budget=budget or BUDGET,
            time_limit=time_limit, jobs=jobs,
            rule=Rule(least_rate=rate, sure=sure, most=repeat),
        )  # fmt: skip
        raise typer.Exit(shrink_real(request))
    from shalott.harness.run.simulate import simulate
    from shalott.harness.shrinking.simulated_shrink import shrink_plan

    code = shrink_plan(plan, budget=budget or 500, anomaly=anomaly, out=out, simulate=simulate)
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
        if field.name == "given" or value == field.default or value is False:
            continue
        flag = f"--{field.name.replace('_', '-')}"
        several = value if isinstance(value, tuple) else (value,)
        words += [flag] if value is True else [w for each in several for w in (flag, str(each))]
    for name, value in request.given.items():
        words += [f"--{name}", str(value)]
    return shlex.join(words)
