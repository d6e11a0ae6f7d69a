"""The commands of plans: search, replay, shrink, in the simulation and on real nodes.

What a search says at its end, on the terminal: counts, classes, coverage, what to do next.

What a search shows while it lasts: a bar on a terminal, else a plain line every few seconds.
"""

from __future__ import annotations

import logging
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Annotated, TextIO

import typer
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shalott.core.command_options import Argument, Option
from shalott.core.doors import typed_command
from shalott.core.parameters import is_url
from shalott.harness.cli.options import LoadField, LoadOption, StoreField, StoreOption, with_options
from shalott.harness.cli.test import shared_flags
from shalott.harness.run.request import STORE
from shalott.harness.run.simulate import simulate
from shalott.harness.run.store import PLAN, Store
from shalott.harness.run.terminal import pasted
from shalott.harness.search.door import Runs, SimulatedRuns
from shalott.harness.search.failure_rate import Rule
from shalott.harness.search.place import Place
from shalott.harness.search.real_search import plan_real, runs_of
from shalott.harness.search.replay import replay as replay_plan
from shalott.harness.search.run_search import MakePool, Tally, Watch, run_search
from shalott.harness.search.search import SIM, Search, SearchRequest, plan_search
from shalott.harness.search.spark_pool import spark_pools
from shalott.harness.search.summary import RateSummary, RealSummary, Summary, exit_code
from shalott.harness.shrinking.real_shrink import BUDGET, ShrinkRequest, shrink_real
from shalott.harness.shrinking.simulated_shrink import shrink_plan

SIMULATED_BUDGET = 500
UNENTERED_MAX = 20  # named on the terminal
PLAN_HELP = "A plan.json, a minimal.json, or a stored run, as `analyze` takes it."


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
    """Run clusters drawn from seeds, simulated or real, and keep what fails.

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
    command = _command("search", request)
    with make_watch() as watch, pools(request.spark, request.store, request.jobs) as make_pool:
        summary, place = run_search(
            planned, request, runs, watch, command=command, make_pool=make_pool
        )
    for line in closing_lines(summary, place):
        typer.echo(line)
    raise typer.Exit(exit_code(summary))


@contextmanager
def pools(spark: str, store: str, jobs: int) -> Iterator[MakePool | None]:
    """Where workers are, if not here."""
    if not spark:
        yield None
        return
    here = STORE if is_url(store) else Path(store)  # Spark's log is of this machine
    here.mkdir(parents=True, exist_ok=True)
    with spark_pools(spark, here / "spark.log", jobs) as make_pool:
        yield make_pool


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
        _plan_of(plan, store),
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
    store: StoreField = STORE


def shrink(asked: ShrinkOptions, loading: Loading) -> None:
    """Make a failing plan minimal: fewer faults, fewer operations, weaker, shorter, calmer.

    On real nodes, where a run may pass that failed before, each plan is run until it is clear how
    often it fails. The same command goes on where it was stopped.
    """
    _keep_logs_quiet()
    path = _plan_of(asked.plan, asked.store)
    if asked.cluster != SIM:
        request = ShrinkRequest(
            path=path, cluster=asked.cluster, anomaly=asked.anomaly, out=asked.out,
            budget=asked.budget or BUDGET, time_limit=asked.time_limit, jobs=asked.jobs,
            rule=Rule(least_rate=asked.rate, sure=asked.sure, most=asked.repeat),
        )  # fmt: skip
        raise typer.Exit(shrink_real(request))
    code = shrink_plan(
        path,
        budget=asked.budget or SIMULATED_BUDGET,
        anomaly=asked.anomaly,
        out=asked.out,
        simulate=simulate,
    )
    raise typer.Exit(code)


def _plan_of(plan: Path, store: Path) -> Path:
    """The file that was named, or that of the stored run that was. Raises UsageError."""
    if plan.is_file() or plan.suffix == ".json":
        return plan
    return Store(store).find(str(plan)).path / PLAN


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


SHOWN_MAX = 5


def closing_lines(summary: Summary, place: Place) -> Iterator[str]:
    """Of a search in the simulation, or on real nodes."""
    return _of_real(summary, summary.real, place) if summary.real else _of_simulated(summary, place)


def _of_simulated(summary: Summary, place: Place) -> Iterator[str]:
    if summary.scenario:
        yield _found(summary)
    rate = summary.virtual_s / summary.cpu_s if summary.cpu_s else 0.0
    yield (
        f"{summary.ran:,} of {summary.wanted:,} seeds: {summary.valid:,} valid,"
        f" {summary.invalid:,} invalid, {summary.unknown:,} unknown,"
        f" {len(summary.errors):,} failed; {rate:,.0f} virtual seconds a CPU second."
    )
    for kind, found in summary.classes.items():
        seeds = ", ".join(map(str, found.seeds[:5])) + (", ..." if found.count > 5 else "")
        yield f"  {kind}: {found.count:,} of the seeds ({seeds})"
    for seed, reasons in list(summary.unknown_seeds.items())[:3]:
        yield f"  unknown: seed {seed}: {reasons[0] if reasons else 'no reason given'}"
    for seed, error in list(summary.errors.items())[:3]:
        yield f"  failed: seed {seed}: {error}"
    for seed, (first, second) in summary.mismatches.items():
        yield f"  not deterministic: seed {seed} ran to {first}, and repeated to {second}"
    if summary.repeated and not summary.mismatches:
        yield f"The digests of {summary.repeated:,} repeated seeds are equal."
    if summary.never:
        yield f"Never seen: {', '.join(summary.never)}."
    elif summary.sometimes:
        yield "Every event that a campaign wants to see was seen."
    if summary.corpus:
        yield (
            f"{summary.corpus:,} plans show all that was shown. Of the broker's functions"
            f" {summary.explained:,} were never entered for a reason, {len(summary.unentered):,}"
            " for none: see summary.json."
        )
        yield from (f"  never entered: {name}" for name in summary.unentered[:UNENTERED_MAX])
        for name in summary.outdated:
            yield f"  has a reason, yet was entered: {name}"
    kept = [name for found in summary.classes.values() for name in found.kept]
    if kept and place.path is None:
        yield f"To replay or shrink a finding, copy it here: {place}/{kept[0]}"
    elif kept:
        plan = f"{place}/{kept[0]}/{PLAN}"
        yield f"Replay: {pasted(typed_command('replay', plan))}"
        yield f"Shrink: {pasted(typed_command('shrink', plan))}"


def _found(summary: Summary) -> str:
    if summary.found_after is not None:
        return (
            f"{summary.scenario}: found after {summary.found_after:,} seeds"
            f" ({summary.anomaly} in seed {summary.found_seed})."
        )
    return f"{summary.scenario}: {summary.anomaly} was not found in {summary.ran:,} seeds."


def _of_real(summary: Summary, real: RealSummary, place: Place) -> Iterator[str]:
    starved = len(real.starved)
    yield (
        f"{summary.ran:,} plans: {summary.valid:,} valid, {summary.invalid:,} invalid,"
        f" {summary.unknown:,} unknown; {starved:,} starved and {len(summary.errors):,} failed,"
        " which count for nothing."
    )
    yield from _times(real)
    for kind, found in summary.classes.items():
        seeds = ", ".join(map(str, found.seeds[:SHOWN_MAX]))
        more = ", ..." if found.count > SHOWN_MAX else ""
        yield f"  {kind}: {found.count:,} of the plans ({seeds}{more})"
    for seed, rate in real.rates.items():
        yield f"  seed {seed} again: {rate.kind} in {_rate_words(rate)}"
    for origin, rate in real.plans.items():
        kind = f"{rate.kind} and the like in " if rate.kind else ""
        yield f"  {origin}: {kind}{_rate_words(rate)}"
    for seed, reason in list(real.starved.items())[:SHOWN_MAX]:
        yield f"  starved: seed {seed}: {reason}"
    for seed, reasons in list(summary.unknown_seeds.items())[:SHOWN_MAX]:
        yield f"  unknown: seed {seed}: {reasons[0] if reasons else 'no reason given'}"
    for seed, error in list(summary.errors.items())[:SHOWN_MAX]:
        yield f"  failed: seed {seed}: {error}"
    if summary.never:
        yield f"Never seen: {', '.join(summary.never)}."
    kept = [name for found in summary.classes.values() for name in found.kept]
    if kept:
        plan = f"{place}/{kept[0]}/{PLAN}"
        yield f"Replay: {pasted(typed_command('replay', plan))}"
        shrink = typed_command("shrink", plan, "--cluster", summary.cluster)
        yield f"Shrink: {pasted(shrink)}"


def _times(real: RealSummary) -> Iterator[str]:
    cold = "" if real.cold_boot_ms is None else f", {real.cold_boot_ms / 1000:.1f} s on new ones"
    warm = "" if real.warm_boot_ms is None else f"{real.warm_boot_ms / 1000:.1f} s on warm machines"
    whole = "" if real.run_ms is None else f"; a run took {real.run_ms / 1000:.1f} s"
    if real.warm or real.cold:
        booted = (warm + cold).removeprefix(", ")
        again = f" {real.again} runs were begun anew." if real.again else ""
        yield (
            f"{real.warm:,} runs on warm machines, {real.cold:,} on new ones; ready after"
            f" {booted or 'an unknown time'}{whole} (medians).{again}"
        )


def _rate_words(rate: RateSummary) -> str:
    """k of n with Wilson's interval, and what that says."""
    void = f", {rate.void} proved nothing" if rate.void else ""
    words = {True: "often enough", False: "too seldom", None: "not clear"}[rate.often]
    return f"{rate.failed} of {rate.ran} runs ({rate.low:.2f} to {rate.high:.2f}{void}): {words}"


PLAIN_INTERVAL_S = 10.0
BAR_COLUMNS = 24


def tally_text(tally: Tally) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{tally.done:,}/{tally.wanted:,} seeds", style="bold")
    if tally.virtual_ns:
        text.append(f"  {tally.seeds_a_second:.1f}/s")
        text.append(f"  {tally.virtual_ns / 1e9:,.0f} virtual s", style="dim")
    elif tally.run_now:
        text.append(f"  {1 / tally.seeds_a_second:.0f} s a plan")
    if tally.classes:
        found = ", ".join(f"{kind} {count:,}" for kind, count in sorted(tally.classes.items()))
        text.append(f"  {found}", style="red")
    else:
        text.append("  no finding", style="green")
    if tally.unknown:
        text.append(f"  unknown {tally.unknown:,}", style="yellow")
    if tally.starved:
        text.append(f"  starved {tally.starved:,}", style="yellow")
    if tally.failed:
        text.append(f"  failed {tally.failed:,}", style="bold red")
    text.append(f"  events {len(tally.seen)} of {len(tally.wanted_events)}", style="cyan")
    if tally.repeated:
        text.append(f"  repeated {tally.repeated:,}", style="dim")
    return text


class PlainWatch:
    def __init__(self, stream: TextIO, interval_s: float = PLAIN_INTERVAL_S) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._due_s = time.monotonic() + interval_s

    def show(self, tally: Tally) -> None:
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self._interval_s
            self.say(tally_text(tally).plain)

    def say(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        return


class TerminalWatch:
    """A bar on standard error that leaves no trace; lines above it stay."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def show(self, tally: Tally) -> None:
        bar = ProgressBar(total=tally.wanted, completed=tally.done, width=BAR_COLUMNS)
        line = Table.grid(padding=(0, 1))
        line.add_row(bar, tally_text(tally))
        self._live.update(line, refresh=True)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Watch:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)


def make_watch() -> PlainWatch | TerminalWatch:
    return TerminalWatch() if sys.stderr.isatty() else PlainWatch(sys.stderr)
