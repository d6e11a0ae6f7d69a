"""Runs rows of the ladder, one run after the other, and keeps each as soon as it is over.

A row becomes plans: on a release, on the control's, and on our own broker. Each is run as
``shalott test`` and ``shalott search`` do, and its verdict is read.

A side of a row (the release with the bug, the control) stops when it has ``repeat`` sound runs, or
when its answer can't change any more: the release with the bug after it was found ``ENOUGH`` times
running, the control when it showed the bug, which a reader must look at; unless every run is
wanted, to compare their numbers. Runs that are void are made again, at most as often as was asked
for in one command: what made them void may be gone by the next one. What was kept counts: a ladder
that was killed goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from shalott.core.doors import typed_command
from shalott.core.json_value import Json
from shalott.core.plan import Plan, dump_plan
from shalott.harness.originals.evidence import (
    SIDES,
    KeptLooks,
    Look,
    Side,
    keep_look,
    load_looks,
    look_at,
    tally,
)
from shalott.harness.originals.row import Row, Setup, text_of
from shalott.harness.report.results import RunResults, read_results
from shalott.harness.run.atomic_file import write_atomically
from shalott.harness.run.plan_checks import check_plan, requirements_of
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.run import INTERRUPTED, RunContext
from shalott.harness.run.session import run_once
from shalott.harness.run.simulate import simulate
from shalott.harness.run.store import RESULTS, Store

ENOUGH = 3
SYSTEM = "rocketmq"
SEED = 18_000  # plans differ by their faults; repetitions by this and what follows


class RunPlan(Protocol):
    def __call__(self, plan: Plan) -> tuple[RunResults, Path | None]:
        """The verdict, and where the run's files are, if it has any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRequest:
    """``version``: run the plan on this release instead of the row's, and nothing else.
    ``every``: also those that can't change the answer."""

    repeat: int = 1
    every: bool = False
    version: str = ""
    sides: tuple[Side, ...] = SIDES


def run_ladder(
    rows: Sequence[Row],
    asked: LadderRequest,
    run_plan: RunPlan,
    directory: Path,
    tell: Callable[[Row, Look], None],
) -> KeptLooks:
    """Raises StoreError, and what a run raises that is no verdict."""
    for row in rows:
        for side in asked.sides:
            looks = list(load_looks(directory).get(row.id, ()))
            for plan, release in _missing(row, side, asked, looks):
                results, where = run_plan(plan)
                look = look_at(row, side, release, results, where, os.getloadavg()[0])
                looks.append(look)
                keep_look(directory, row.id, look)
                tell(row, look)
    return load_looks(directory)


def _missing(
    row: Row, side: Side, asked: LadderRequest, looks: Sequence[Look]
) -> Iterator[tuple[Plan, str]]:
    """The plans that are still to be run; looks are added to ``looks`` meanwhile."""
    release = release_of(row, side, asked.version)
    if not release:
        return
    before = len(looks)
    while not is_done(
        side,
        [look for look in looks if look.release == release],
        asked,
        sum(bool(look.void) and look.side == side for look in looks[before:]),
    ):
        number = sum(look.side == side and look.release == release for look in looks)
        if side in ("with", "control"):
            yield plan_of(row, release, number, is_control=side == "control"), release
        else:
            yield plan_of_ours(row, number, is_on=side == "ours-on"), release


def release_of(row: Row, side: Side, version: str = "") -> str:
    """On what the side is run; "" if it is not."""
    if row.setup is None:
        return ""
    if side.startswith("ours"):
        return "" if row.ours is None or version else row.ours.system
    if version:
        is_free = version in row.free
        return version if (side == "control") == is_free else ""
    if side == "with":
        return row.run_on
    return row.control_on or (row.run_on if row.control_words else "")


def is_done(side: Side, looks: Sequence[Look], asked: LadderRequest, voids: int) -> bool:
    """``looks``: of the row, on the side's release. ``voids``: runs of this command that proved
    nothing."""
    own = [look for look in looks if look.side == side]
    counted = tally(own, side)
    if counted.runs >= asked.repeat or voids > asked.repeat:
        return True
    if asked.every:
        return False
    sound = [look for look in own if not look.void]
    if side == "with" and len(sound) >= ENOUGH and all(look.found for look in sound[-ENOUGH:]):
        return True
    return side == "control" and counted.found > 0


# -- plans ---------------------------------------------------------------------------------------


def plan_of(row: Row, release: str, number: int = 0, *, is_control: bool = False) -> Plan:
    """The row's plan on a release. Raises UsageError for a release that can't run it."""
    setup = _setup(row)
    closes = is_control and not row.control_on
    own = row.control_policy if closes else {}
    given = {
        "replication": setup.replication, "version": release,
        "topic-made-at": setup.topic_made_at, **setup.told, **(row.control_told if closes else {}),
    }  # fmt: skip
    kind = "control" if is_control else "with"
    return _plan(
        row, f"{row.id}-{kind}-{release}".lower(), number, SYSTEM, "docker",
        {**setup.policy, **own}, given,
    )  # fmt: skip


def plan_of_ours(row: Row, number: int = 0, *, is_on: bool) -> Plan:
    """The same faults and load on our broker in simulation, with the bug on or off."""
    setup, ours = _setup(row), row.ours
    assert ours is not None
    policy = {**setup.policy, **ours.policy, **({} if is_on else ours.closed)}
    kept = {name: value for name, value in policy.items() if value is not None}
    return _plan(
        row, f"{row.id}-ours-{'on' if is_on else 'off'}".lower(), number, ours.system, "sim", kept,
        dict(setup.told), bugs=(ours.bug,) if is_on and ours.bug else (),
    )  # fmt: skip


def _setup(row: Row) -> Setup:
    assert row.setup is not None, f"{row.id} has no plan"
    return row.setup


def _plan(
    row: Row,
    name: str,
    number: int,
    system: str,
    backend: str,
    policy: Mapping[str, Json],
    given: Mapping[str, str],
    bugs: tuple[str, ...] = (),
) -> Plan:
    setup = _setup(row)
    request = Request(
        workload=setup.workload, system=system, profile=setup.profile, cluster=backend,
        nodes=",".join(setup.nodes), concurrency=f"{setup.clients_a_node}n", rate=setup.rate_hz,
        time_limit=f"{setup.time_limit_ms}ms", op_timeout=f"{setup.op_timeout_ms}ms",
        nemesis="none", policy=tuple(f"{key}={text_of(value)}" for key, value in policy.items()),
        bug=bugs, max_rto=f"{setup.max_rto_ms}ms" if setup.max_rto_ms else "", name=name,
        power_loss=setup.power_loss, given=given, min_acked=10,
    )  # fmt: skip
    plan = make_plan(request, backend=backend, seed=SEED + number)
    system_plan = msgspec.structs.replace(plan.system, services=dict(setup.services))
    gates = msgspec.structs.replace(
        plan.gates, must_settle=setup.must_settle, must_converge=setup.must_converge
    )
    plan = msgspec.structs.replace(
        plan, faults=row.faults, gates=gates, system=system_plan, quiet_ms=setup.quiet_ms,
        settle_timeout_ms=setup.settle_timeout_ms,
        observe_interval_ms=setup.observe_interval_ms,
    )  # fmt: skip
    plan = msgspec.structs.replace(plan, requires=requirements_of(plan))
    check_plan(plan)
    return plan


# -- one run -------------------------------------------------------------------------------------


def run_in_store(plan: Plan, store_root: Path) -> tuple[RunResults, Path | None]:
    """As ``run_stored``, but what is simulated is not stored."""
    if plan.cluster.backend == "sim":
        return _simulated(plan), None
    return run_stored(plan, store_root)


def run_stored(plan: Plan, store_root: Path) -> tuple[RunResults, Path]:
    """One run from boot to verdict. Raises KeyboardInterrupt if it was interrupted, and
    ShalottError for a run that could not begin."""
    file = store_root / "plans" / f"{plan.name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, dump_plan(plan))
    command = typed_command("test", "--plan", str(file), "--store", str(store_root))
    run_once(plan, store_root, RunContext(command=command))
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
