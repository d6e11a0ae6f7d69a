"""Runs a plan of the ladder as ``shalott test`` and ``shalott search`` do; reads its verdict."""

from __future__ import annotations

import shlex
from pathlib import Path

from shalott.core.plan import Plan, dump_plan
from shalott.harness.report.results import RunResults, read_results
from shalott.harness.run.atomic_file import write_atomically
from shalott.harness.run.run import INTERRUPTED
from shalott.harness.run.session import run_once
from shalott.harness.run.simulate import simulate
from shalott.harness.run.store import RESULTS, Store


def run_in_store(plan: Plan, store_root: Path) -> tuple[RunResults, Path | None]:
    """One run from boot to verdict. Raises KeyboardInterrupt if it was interrupted, and
    ShalottError for a run that could not begin."""
    if plan.cluster.backend == "sim":
        return _simulated(plan), None
    file = store_root / "plans" / f"{plan.name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, dump_plan(plan))
    command = shlex.join(["shalott", "test", "--plan", str(file), "--store", str(store_root)])
    run_once(plan, store_root, command)
    directory = Store(store_root).find(plan.name).path
    results = read_results(directory / RESULTS)
    if any(note.startswith(INTERRUPTED) for note in results.notes):
        raise KeyboardInterrupt
    return results, directory


def _simulated(plan: Plan) -> RunResults:
    outcome = simulate(plan)
    return RunResults(
        name=plan.name, seed=plan.seed, system=plan.system.name, profile=plan.system.profile,
        workload=plan.workload.name, started_wall_ns=0, complete=outcome.error is None,
        valid=outcome.valid, headline="", command="", elapsed_ns=int(outcome.wall_s * 1e9),
        failures=() if outcome.error is None else (outcome.error,), results=outcome.results,
    )  # fmt: skip
