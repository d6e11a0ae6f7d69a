"""``shalott shrink``: run a failing plan, make it minimal (harness/shrinking/shrink.py), and
keep that.

Writes ``minimal.json`` beside the plan, after every pass that gained something, so that an
interrupted one keeps what it has. At the end the minimal plan is run twice more, and must fail in
the same way with the same digest both times.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import typer

from shalott.core.errors import HarnessError, StoreError, UsageError
from shalott.core.plan import FaultAction, Plan, dump_plan, load_plan
from shalott.harness.report.results import Violation, classes, violations
from shalott.harness.run.plan_checks import check_plan, check_provided
from shalott.harness.run.simulate import record_of
from shalott.harness.run.simulation_record import (
    code_fingerprint,
    load_record,
    plan_as_run,
    save_record,
)
from shalott.harness.search.door import Simulate
from shalott.harness.search.replay import SIM, on_backend
from shalott.harness.shrinking.shrink import Shrunk, shrink
from shalott.workloads.record import WORKLOADS

MINIMAL = "minimal.json"


def shrink_plan(
    path: Path, *, budget: int, anomaly: str, out: Path | None, simulate: Simulate
) -> int:
    """Shrink the stored plan; the exit code. Raises UsageError, HarnessError."""
    if budget < 1:
        raise UsageError(f"--budget {budget}: give 1 or more")
    stored = on_backend(load_plan(path), SIM)
    check_provided(stored)
    check_plan(stored)
    plan, violation, sites = _failing(path, stored, anomaly, simulate)
    place = out if out is not None else path.with_name(MINIMAL)
    typer.echo(
        f"It fails by {violation.kind} ({violation.checker}). From {describe(plan)}", err=True
    )

    def tell(name: str, best: Plan, probes: int) -> None:
        _save(place, best)
        typer.echo(f"{probes:4} runs, {name}: {describe(best)}", err=True)

    shrunk = _interruptible(
        lambda: shrink(
            plan,
            lambda candidate: fails_by(candidate, violation, simulate),
            budget=budget,
            sites=sites,
            tell=tell,
        ),
        place,
    )
    _save(place, shrunk.plan)
    _verify(place, shrunk.plan, violation, simulate)
    _tell(plan, shrunk, place)
    return 0


def fails_by(plan: Plan, violation: Violation, simulate: Simulate) -> bool:
    """The oracle: the same checker, the same class. A plan that can't be run has no anomaly."""
    try:
        check_plan(plan)
    except UsageError:
        return False
    outcome = simulate(plan)
    return outcome.error is None and violation in violations(outcome.results)


def _failing(
    path: Path, stored: Plan, anomaly: str, simulate: Simulate
) -> tuple[Plan, Violation, tuple[str, ...]]:
    """A plan that fails, by what, and the buggify sites that fired: the stored one, or if finding
    its targets was a part of the failure, the one as it was run."""
    record = load_record(path)
    seen: tuple[str, ...] = ()
    plans = [stored] if record is None else [stored, plan_as_run(stored, record)]
    for candidate in plans if plans[0] != plans[-1] else plans[:1]:
        outcome = simulate(candidate)
        if outcome.error is not None:
            raise HarnessError(f"the simulation did not come to its end: {outcome.error}")
        found = violations(outcome.results)
        wanted = [one for one in found if not anomaly or one.kind == anomaly]
        if wanted:
            return candidate, wanted[0], tuple(sorted(outcome.buggified))
        seen = seen or classes(found)
    if anomaly and seen:
        raise UsageError(f"{path} does not fail by {anomaly}: it fails by {', '.join(seen)}")
    raise UsageError(f"{path} does not fail here: there is nothing to shrink")


def _interruptible(work: Callable[[], Shrunk], place: Path) -> Shrunk:
    try:
        return work()
    except KeyboardInterrupt:
        kept = f"the smallest plan so far is {place}" if place.exists() else "nothing was gained"
        typer.echo(f"Interrupted; {kept}.", err=True)
        raise typer.Exit(2) from None


def _save(place: Path, plan: Plan) -> None:
    try:
        place.write_bytes(dump_plan(plan))
    except OSError as error:
        raise StoreError(f"cannot write {place}: {error.strerror}") from error


def _verify(place: Path, plan: Plan, violation: Violation, simulate: Simulate) -> None:
    """Two more runs, with one digest. Raises HarnessError."""
    outcomes = [simulate(plan) for _ in range(2)]
    digests = [outcome.digest for outcome in outcomes]
    if digests[0] != digests[1]:
        raise HarnessError(
            f"{place} runs to {digests[0]} and then to {digests[1]}: the simulation is not"
            " deterministic"
        )
    found = violations(outcomes[0].results)
    if violation not in found:
        raise HarnessError(f"{place} failed when it was found and fails no more")
    record = record_of(plan, outcomes[0], classes(found), code=code_fingerprint())
    save_record(place, record)


def _tell(before: Plan, shrunk: Shrunk, place: Path) -> None:
    end = "minimal" if shrunk.whole else "as small as the budget allowed"
    typer.echo(
        f"{len(before.faults)} faults became {len(shrunk.plan.faults)} in {shrunk.probes} runs,"
        f" {end}: {place}"
    )
    for action in shrunk.plan.faults:
        typer.echo(f"  {describe_fault(action)}")
    typer.echo(f"Replay: {shlex.join(['shalott', 'replay', str(place)])}")


def describe(plan: Plan) -> str:
    """A plan in a line."""
    workload = plan.workload
    return (
        f"{len(plan.faults)} faults, {len(plan.cluster.nodes)} nodes,"
        f" {plan.time_limit_ms / 1000:g} s, {workload.rate_hz:g} operations a second of"
        f" {workload.concurrency} clients, {WORKLOADS.find(workload.name).describe(plan)}"
    )


def describe_fault(action: FaultAction) -> str:
    """A fault in a line."""
    if action.links:
        whom = ", ".join(f"{source}->{destination}" for source, destination in action.links)
    else:
        whom = "+".join(action.nodes or ()) or action.target
    amount = f" {action.amount:g}" if action.amount else ""
    begin_s, lasts_s = action.at_ms / 1000, action.duration_ms / 1000
    return f"{action.kind}{amount} {whom} at {begin_s:g} s for {lasts_s:g} s"
