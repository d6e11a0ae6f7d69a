"""``shalott shrink --cluster docker``: make a plan small that fails now and then on real nodes.

The plan is run until it is clear that it fails often enough (failure_rate.py); the run that found
it is not counted, for it was chosen because it failed. Then the same passes as in the simulation
(shrink.py) try smaller plans, and a plan is kept only if it still fails that often. As many a
candidate has its luck, the smallest one is run anew at the end, and only those runs say how often
it fails. All runs are in a ledger (oracle.py): the same command goes on after a kill.
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec
import typer

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.doors import loaded_modules
from shalott.core.errors import HarnessError, StoreError, UsageError
from shalott.core.parameters import parse_duration_ms
from shalott.core.plan import Plan, dump_plan, load_plan
from shalott.harness.report.results import classes, read_results, violations
from shalott.harness.run import backends
from shalott.harness.run.plan_checks import check_provided
from shalott.harness.run.simulation_record import code_fingerprint
from shalott.harness.run.store import RESULTS
from shalott.harness.scenarios.swarm import Subject
from shalott.harness.search.carried_plans import Target, carry_all
from shalott.harness.search.door import DrawnPlans, Runs
from shalott.harness.search.failure_rate import Rule, Trials
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.real_capacity import capabilities_of, clusters_that_fit
from shalott.harness.search.real_runs import RealRuns
from shalott.harness.search.workers import Job, WorkerPool
from shalott.harness.shrinking.oracle import Ledger, LedgerHeader, Oracle, digest_of, open_ledger
from shalott.harness.shrinking.shrink import BudgetSpent, Shrunk, shrink
from shalott.harness.shrinking.simulated_shrink import MINIMAL, describe, describe_fault
from shalott.nemesis.requirements import required_capabilities

CUT_STEP_MS = 5000
BUDGET = 60  # runs, by default
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkRequest:
    """``shalott shrink``'s flags of real nodes. ``jobs`` 0: what fits."""

    path: Path
    cluster: str
    anomaly: str = ""
    out: Path | None = None
    budget: int = BUDGET
    time_limit: str = ""
    jobs: int = 0
    rule: Rule = Rule()


class ShrinkSummary(msgspec.Struct, frozen=True, kw_only=True):
    """``minimal.trials.json``. ``before`` and ``after`` do not count runs that chose a plan."""

    anomaly: str
    cluster: str
    least_rate: float
    sure: float
    most: int
    before: Trials
    before_interval: tuple[float, float]
    after: Trials
    after_interval: tuple[float, float]
    often: bool | None  # whether the smallest plan fails often enough
    runs: int
    whole: bool


def shrink_real(request: ShrinkRequest, runs: Runs | None = None) -> int:
    """Shrink the stored plan; the exit code: 0, or 2 if the smallest plan did not fail again as
    often as it should. ``runs``: a test's own. Raises UsageError, HarnessError."""
    request.rule.check()
    if request.budget < 1:
        raise UsageError(f"--budget {request.budget}: give 1 or more")
    plan = _plan_there(request)
    place = request.out if request.out is not None else request.path.with_name(MINIMAL)
    header = LedgerHeader(plan=digest_of(plan), anomaly=_anomaly(request), code=code_fingerprint())
    ledger = open_ledger(place.with_suffix(".trials.jsonl"), header)
    if ledger.went_on:
        typer.echo(f"{ledger.went_on} runs were made before; going on.", err=True)
    record = SYSTEMS.find(plan.system.name)
    jobs = request.jobs or clusters_that_fit(record.footprint, len(plan.cluster.nodes))
    needs = tuple(sorted(required_capabilities(plan.faults)))
    own = RealRuns(place=place.with_suffix(".runs"), needs=needs)
    job = Job(DrawnPlans(Subject()), runs or own, header.code, loaded_modules())
    limit_s = (
        parse_duration_ms("--time-limit", request.time_limit) / 1000 if request.time_limit else None
    )
    with _ends_in_order(), WorkerPool(job, jobs) as pool:
        oracle = Oracle(
            pool,
            ledger,
            request.rule,
            budget=request.budget,
            until_s=None if limit_s is None else time.monotonic() + limit_s,
            tell=_tell_run,
        )
        return _shrink(plan, place, oracle, request)


def _plan_there(request: ShrinkRequest) -> Plan:
    """The stored plan for the cluster, without what can't be there. Raises UsageError."""
    stored = load_plan(request.path)
    check_provided(stored)
    backends.choose_backend(request.cluster, stored.system.name)
    on_it = msgspec.structs.replace(
        stored, cluster=msgspec.structs.replace(stored.cluster, backend=request.cluster), faults=()
    )
    target = Target(cluster=request.cluster, can=capabilities_of(on_it))
    carried, notes = carry_all([request.path], target)
    for note in notes:
        typer.echo(note, err=True)
    return carried.plan(1)


def _anomaly(request: ShrinkRequest) -> str:
    """The class to keep: what was asked for, or the gravest of the stored run; "": the first
    failure says."""
    stored = request.path.with_name(RESULTS)
    if request.anomaly or not stored.exists():
        return request.anomaly
    found = classes(violations(read_results(stored).results))
    return found[0] if found else ""


def _shrink(plan: Plan, place: Path, oracle: Oracle, request: ShrinkRequest) -> int:
    ledger, rule = oracle.ledger, request.rule
    try:
        before = _base(plan, oracle)
    except BudgetSpent:
        raise HarnessError(
            "the budget was spent before it was clear how often the plan fails: give more --budget"
            " or --time-limit; the runs so far are kept"
        ) from None
    if not before.ran:
        raise HarnessError(f"nothing is known: of {before.void} runs none proved anything")
    if rule.verdict(before) is not True:
        raise UsageError(
            f"it fails by {ledger.anomaly or 'nothing'} in {before} runs, which is not clearly"
            f" {rule.least_rate:g} of them or more: give a lower --rate or more --repeat"
        )
    typer.echo(f"It fails by {ledger.anomaly} in {before} runs. From {describe(plan)}", err=True)

    def tell(name: str, best: Plan, probes: int) -> None:
        _save(place, best)
        typer.echo(f"{ledger.runs:4} runs, {name}: {describe(best)}", err=True)

    shrunk = shrink(plan, oracle.fails, budget=1_000_000, tell=tell, cut_step_ms=CUT_STEP_MS)
    _save(place, shrunk.plan)
    after = _confirm(shrunk.plan, oracle)
    summary = _summary(request, ledger, before, after, shrunk)
    place.with_suffix(".trials.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
    )
    for line in _closing(plan, shrunk, summary, place):
        typer.echo(line)
    return 0 if summary.often else 2


def _base(plan: Plan, oracle: Oracle) -> Trials:
    """How often the plan fails; by what, if that is not known yet. Raises BudgetSpent,
    UsageError."""
    while not oracle.ledger.anomaly:
        if oracle.ledger.runs >= oracle.rule.most:
            raise UsageError(f"the plan did not fail in {oracle.ledger.runs} runs here")
        report = oracle.once(plan, "look")
        if report.violations and report.error is None:
            oracle.ledger.choose(report.violations[0])
    return oracle.settle(plan, "base")


def _confirm(plan: Plan, oracle: Oracle) -> Trials:
    """Runs that had no part in the choice, even if the budget is spent: without them it is not
    known what was found."""
    oracle.budget, oracle.until_s = oracle.ledger.runs + 3 * oracle.rule.most, None
    with contextlib.suppress(BudgetSpent):
        return oracle.settle(plan, "minimal")
    return oracle.ledger.trials(plan, "minimal")


def _summary(
    request: ShrinkRequest, ledger: Ledger, before: Trials, after: Trials, shrunk: Shrunk
) -> ShrinkSummary:
    rule = request.rule
    return ShrinkSummary(
        anomaly=ledger.anomaly,
        cluster=request.cluster,
        least_rate=rule.least_rate,
        sure=rule.sure,
        most=rule.most,
        before=before,
        before_interval=before.interval,
        after=after,
        after_interval=after.interval,
        often=rule.verdict(after),
        runs=ledger.runs,
        whole=shrunk.whole,
    )


def _closing(plan: Plan, shrunk: Shrunk, summary: ShrinkSummary, place: Path) -> Iterator[str]:
    end = "minimal" if shrunk.whole else "as small as the budget allowed"
    faults = f"{len(plan.faults)} faults became {len(shrunk.plan.faults)}"
    yield f"{faults} in {summary.runs} runs, {end}: {place}"
    for action in shrunk.plan.faults:
        yield f"  {describe_fault(action)}"
    words = {True: "often enough", False: "too seldom now", None: "not clear"}[summary.often]
    yield f"Before: {summary.anomaly} in {summary.before} runs."
    yield f"After: {summary.anomaly} in {summary.after} new runs: {words}."
    yield f"Replay: {shlex.join(['shalott', 'replay', str(place), '--trials', '5'])}"


def _tell_run(plan: Plan, of: str, report: SeedReport, trials: Trials) -> None:
    real = report.real
    warm = "" if real is None else f", boot {real.phases_ms.get('boot', 0) / 1000:.0f} s"
    kinds = ", ".join(report.violations) or report.error or str(report.valid)
    typer.echo(f"     {of}: {kinds} ({report.wall_s:.0f} s{warm}); {trials}", err=True)


def _save(place: Path, plan: Plan) -> None:
    try:
        place.write_bytes(dump_plan(plan))
    except OSError as error:
        raise StoreError(f"cannot write {place}: {error.strerror}") from error


@contextlib.contextmanager
def _ends_in_order() -> Iterator[None]:
    """A signal ends it as Ctrl-C does: clusters are torn down, and the ledger stays."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in END_SIGNALS}
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("Interrupted; the same command goes on.", err=True)
        raise typer.Exit(2) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
