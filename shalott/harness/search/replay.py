"""``shalott replay``: a stored plan runs again.

In the simulation the run must be the same to the last byte: its digest is compared with the one
that was kept beside the plan, and when they differ the first event that does is named. On other
clusters the same faults are made as far as that world can make them; there the oracle is how often
of several runs the plan fails, each at the pace of real nodes (stretching.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import typer

from shalott.cluster.sim.loop.trace import differing_chunk, first_difference
from shalott.core.doors import typed_command
from shalott.core.errors import HarnessError, MissingCapability, UsageError
from shalott.core.plan import FaultAction, Plan, load_plan
from shalott.harness.run import backends
from shalott.harness.run.plan_checks import check_plan, check_provided
from shalott.harness.run.run import RunContext
from shalott.harness.run.session import note_in_table, run_once
from shalott.harness.run.simulate import run_stored
from shalott.harness.run.simulation_record import (
    SimulationRecord,
    code_fingerprint,
    load_record,
    plan_as_run,
    plan_digest,
)
from shalott.harness.run.store import REPORT, Store
from shalott.harness.run.terminal import tell_outcome, tell_verdict
from shalott.harness.search.door import Simulate
from shalott.harness.search.findings import evidence_of, save_evidence
from shalott.harness.search.stretching import stretched, timed
from shalott.nemesis.requirements import required_capabilities
from shalott.nemesis.sequence import relinked

SIM = "sim"
CLUSTERS = ("sim", "docker", "local", "ssh")


def replay(
    path: Path,
    *,
    cluster: str,
    drop_unsupported: bool,
    trials: int,
    store_root: Path,
    simulate: Simulate,
) -> int:
    """Run the plan again; the exit code. Raises UsageError, HarnessError."""
    plan = load_plan(path)
    backend = cluster or plan.cluster.backend
    if backend not in CLUSTERS:
        raise UsageError(f"unknown cluster {backend}: choose one of {', '.join(CLUSTERS)}")
    if trials < 1:
        raise UsageError(f"--trials {trials}: give 1 or more")
    for note in check_provided(plan):
        typer.echo(note, err=True)
    check_plan(plan)
    if backend == SIM:
        return _in_simulation(path, plan, store_root, simulate)
    there = _on(timed(plan), backend, drop_unsupported)
    dropped = ["--drop-unsupported"] if drop_unsupported else []
    command = typed_command("replay", str(path), "--cluster", backend, *dropped)
    return run_trials(there, trials, store_root, command)


# -- in the simulation -----------------------------------------------------------------------------


def _in_simulation(path: Path, plan: Plan, store_root: Path, simulate: Simulate) -> int:
    record = load_record(path)
    command = typed_command("replay", str(path))
    if record is not None and record.way == "test":
        return _as_test(path, plan, record, store_root, command)
    as_run = plan if record is None else plan_as_run(plan, record)
    as_run = on_backend(as_run, SIM)
    outcome = simulate(as_run)
    if outcome.error is not None:
        raise HarnessError(f"the simulation did not come to its end: {outcome.error}")
    evidence = evidence_of(as_run, outcome, code=code_fingerprint())
    place = Store(store_root).create(plan.name)
    save_evidence(evidence, place, command)
    note_in_table(store_root, place)
    tell_verdict(outcome.results)
    typer.echo(f"Report: {place.path / REPORT}")
    _tell_digest(evidence.record)
    if record is not None:
        again = evidence.record
        compare(path, plan, record, again, lambda: _parting(as_run, again, simulate))
    if isinstance(outcome.valid, bool):
        return 0 if outcome.valid else 1
    return 2


def _as_test(
    path: Path, plan: Plan, record: SimulationRecord, store_root: Path, command: str
) -> int:
    """Again what ``shalott test --cluster sim`` did, with all that a run writes."""
    place = Store(store_root).create(plan.name)
    outcome, again = run_stored(plan_as_run(plan, record), place, RunContext(command=command))
    note_in_table(store_root, place)
    tell_outcome(outcome, command)
    _tell_digest(again)
    if not outcome.failures:
        compare(path, plan, record, again, lambda: "")
    return outcome.exit_code


def _tell_digest(record: SimulationRecord) -> None:
    typer.echo(
        f"Digest: {record.digest} ({record.callbacks:,} callbacks, {record.segments:,} segments,"
        f" {record.virtual_ns / 1e9:.1f} virtual seconds)"
    )


def compare(
    path: Path,
    plan: Plan,
    stored: SimulationRecord,
    again: SimulationRecord,
    parting: Callable[[], str],
) -> None:
    """Say that the digests agree, or that the stored one is of another kind and can't be compared.
    Raises HarnessError, in one sentence, if they do not agree.

    ``parting`` names the first event in which two runs of now differ; "" if they do not.
    """
    if stored.digest_version != again.digest_version:
        kind = "an older" if stored.digest_version < again.digest_version else "a newer"
        typer.echo(
            f"The stored digest is of {kind} kind (version {stored.digest_version}, this Shalott"
            f" makes version {again.digest_version}), so it does not say whether the runs are"
            " equal."
        )
        return
    if stored.digest == again.digest:
        typer.echo("The digest is the one that was stored.")
        return
    differ = f"the digest is {again.digest}, stored was {stored.digest}"
    raise HarnessError(f"{path} did not replay: {differ}: {_why(plan, stored, again, parting)}")


def _why(
    plan: Plan, stored: SimulationRecord, again: SimulationRecord, parting: Callable[[], str]
) -> str:
    if stored.plan and stored.plan != plan_digest(plan):
        return "the plan has been edited since it was stored"
    event = parting()
    if event:
        return f"two runs of now differ too, and that is a fault of the simulation; {event}"
    if stored.code and stored.code != again.code:
        return "the code has changed since it was stored"
    if plan.sim is not None and plan.sim.callback_cost_ns and stored.python != again.python:
        return (
            f"in this plan callbacks take time, and Python {again.python} may need other callbacks"
            f" than {stored.python}, which stored it"
        )
    chunk = differing_chunk(stored.checkpoints, again.checkpoints)
    where = f" in chunk {chunk} of its trace" if chunk is not None else ""
    pythons = ""
    if stored.python != again.python:
        pythons = f"; it was stored by Python {stored.python}, this is {again.python}"
    return f"two runs of now are alike, and the stored one went another way{where}{pythons}"


def _parting(plan: Plan, first: SimulationRecord, simulate: Simulate) -> str:
    """The first event in which a second run differs from the first one; "" if none does."""
    second = simulate(plan)
    if second.digest == first.digest:
        return ""
    chunk = differing_chunk(
        first.checkpoints,
        [mark.hex() for mark in second.trace.checkpoints] if second.trace is not None else (),
    )
    if chunk is None:
        return "no event can be named"
    traces = [simulate(plan, label_chunk=chunk).trace for _ in range(2)]
    labels = [trace.labels if trace is not None else [] for trace in traces]
    return first_difference(*labels)


# -- elsewhere -------------------------------------------------------------------------------------


def on_backend(plan: Plan, backend: str) -> Plan:
    """The plan for another cluster. Only a simulation can look into its nodes, so nothing else is
    asked whether the replicas are equal.
    """
    replace = msgspec.structs.replace
    gates = plan.gates if backend == SIM else replace(plan.gates, must_converge=False)
    return replace(plan, cluster=replace(plan.cluster, backend=backend), gates=gates)


def _on(plan: Plan, backend: str, drop_unsupported: bool) -> Plan:
    """The plan for another cluster. Raises MissingCapability unless the rest may be left out."""
    there = on_backend(plan, backend)
    unsupported = unsupported_faults(plan.faults, _capabilities(there))
    if unsupported and not drop_unsupported:
        raise MissingCapability(refusal(backend, unsupported, len(plan.faults)))
    if unsupported:
        gone = {action.id: None for action in unsupported}
        kept = tuple(action for action in plan.faults if action.id not in gone)
        there = msgspec.structs.replace(there, faults=relinked(plan.faults, kept))
        names = ", ".join(f"{action.kind} at {action.at_ms / 1000:g} s" for action in unsupported)
        typer.echo(f"Left out, for {backend} can't do it: {names}.", err=True)
    return there


def _capabilities(plan: Plan) -> frozenset[str]:
    """What the plan's cluster can do here."""
    with tempfile.TemporaryDirectory() as work:
        cluster = backends.make_cluster(plan, "replay", Path(work))
        return frozenset(cluster.capabilities)


def unsupported_faults(
    faults: Sequence[FaultAction], capabilities: frozenset[str]
) -> tuple[FaultAction, ...]:
    """Those that need what a world lacks."""
    return tuple(action for action in faults if required_capabilities((action,)) - capabilities)


def refusal(backend: str, unsupported: Sequence[FaultAction], of: int) -> str:
    """One sentence."""
    kinds = ", ".join(sorted({action.kind for action in unsupported}))
    return (
        f"the {backend} cluster can't make {len(unsupported)} of the plan's {of} faults ({kinds}):"
        " leave them out with --drop-unsupported, or replay with --cluster sim"
    )


def run_trials(plan: Plan, trials: int, store_root: Path, command: str) -> int:
    """Up to ``trials`` runs; the gravest exit code, and how many were invalid."""
    context = RunContext(command=command)
    codes = [run_once(stretched(plan, trial), store_root, context) for trial in range(trials)]
    if trials > 1:
        typer.echo(f"Invalid in {codes.count(1)} of {trials} runs.")
    return next((code for code in (255, 1, 2) if code in codes), 0)
