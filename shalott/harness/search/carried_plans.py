"""Plans carried over: what was found in one world, run in another.

A plan that was drawn, and perhaps shrunk, in the simulation has faults and a load that broke a
system of ours. The same faults and the same load may break the original, or our own nodes outside
of the simulation. What is translated is the system (``SystemRecord.carry``), its settings where
both have them, and where it runs; the master when the plan was found is not the master
here, so targets that are roles are found anew. Faults that can't be made there are left out, and
plans that can't be run there; both are told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shalott.cluster.systems.record import SYSTEMS, Drawn, SystemRecord
from shalott.core.errors import UsageError
from shalott.core.parameters import make_parameters, to_plan
from shalott.core.plan import (
    FaultAction,
    GatePlan,
    Plan,
    SystemPlan,
    canonical,
    dump_plan,
    load_plan,
)
from shalott.harness.run.backends import make_system
from shalott.harness.run.plan_checks import check_plan, requirements_of
from shalott.harness.run.request import profile_of
from shalott.harness.run.simulation_record import load_record, plan_as_run
from shalott.harness.search.stretching import stretched
from shalott.nemesis.record import FAULTS
from shalott.nemesis.requirements import check_system, required_capabilities
from shalott.nemesis.targets import is_role

MINIMAL, PLAN = "minimal.json", "plan.json"
OBSERVE_INTERVAL_MS = 500  # in real time; simulated runs look seldom
replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where plans are carried to. ``system`` "": each plan's own. ``profile`` "": each plan's own.
    ``parameters`` and ``policy`` are what the user says of the system. ``can``: what the world can
    do."""

    cluster: str
    can: frozenset[str]
    system: str = ""
    profile: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)
    policy: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CarriedPlan:
    """A plan as it is run now. ``origin``: the file it was."""

    origin: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class CarriedPlans:
    """See ``door.Plans``: one after the other, and again from the first."""

    carried: tuple[CarriedPlan, ...]

    def plan(self, number: int) -> Plan:
        return self.of(number).plan

    def of(self, number: int) -> CarriedPlan:
        return self.carried[(number - 1) % len(self.carried)]

    def __repr__(self) -> str:
        """What a campaign is told apart by."""
        mixed = hashlib.blake2b(digest_size=8)
        for each in self.carried:
            mixed.update(dump_plan(each.plan))
        return f"{len(self.carried)} plans {mixed.hexdigest()}"


def find_plans(places: Sequence[Path]) -> list[Path]:
    """The plans' files, in order of their paths. Of a directory: every plan below it, the minimal
    one where there is one. Raises UsageError where there is none."""
    found: list[Path] = []
    for place in places:
        if place.is_file():
            found.append(place)
            continue
        if not place.is_dir():
            raise UsageError(f"--plans {place}: there is no such file or directory")
        below = sorted(_below(place))
        if not below:
            raise UsageError(f"--plans {place}: there is no plan below it")
        found += below
    return list(dict.fromkeys(found))


def _below(place: Path) -> Iterator[Path]:
    for path in place.rglob("*.json"):
        if path.name == PLAN and path.with_name(MINIMAL).exists():
            continue
        if path.name in (PLAN, MINIMAL) or _is_plan(path):
            yield path


def _is_plan(path: Path) -> bool:
    try:
        load_plan(path)
    except UsageError:
        return False
    return True


def carry_all(paths: Sequence[Path], target: Target) -> tuple[CarriedPlans, list[str]]:
    """What can be run, and a sentence for what can't or is changed. Raises UsageError if no
    plan is left."""
    notes: list[str] = []
    carried: list[CarriedPlan] = []
    for path in paths:
        stored = load_plan(path)
        record = load_record(path)
        try:
            plan, told = carry(stored if record is None else plan_as_run(stored, record), target)
        except UsageError as error:
            notes.append(f"{path} is not carried over: {error}")
            continue
        notes += [f"{path}: {sentence}" for sentence in told]
        carried.append(CarriedPlan(str(path), plan))
    if not carried:
        raise UsageError(f"no plan can be carried over: {'; '.join(notes)}")
    return CarriedPlans(tuple(carried)), notes


def carry(plan: Plan, target: Target) -> tuple[Plan, list[str]]:
    """The plan for another world, and what of it could not come along. Raises UsageError."""
    record = SYSTEMS.find(target.system or plan.system.name)
    began_ms = {action.id: action.at_ms for action in plan.faults}
    plan = stretched(plan)
    there = replace(
        plan,
        cluster=replace(plan.cluster, backend=target.cluster),
        system=_system(plan.system, record, target),
        gates=plan.gates if _was_real(plan, record) else _gates(plan.gates, record),
        faults=tuple(_anew(action) for action in plan.faults),
        observe_interval_ms=OBSERVE_INTERVAL_MS,
    )
    notes = []
    if plan.system.bugs and record.name != plan.system.name:
        bugs = ", ".join(plan.system.bugs)
        notes.append(f"{record.name} has no switches for known bugs; left out: {bugs}")
    there, gone = _possible(there, target)
    if gone:
        names = ", ".join(f"{each.kind} at {began_ms[each.id] / 1000:g} s" for each in gone)
        notes.append(f"left out, for it can't be made on {target.cluster}: {names}")
    if plan.faults and not there.faults:
        raise UsageError("none of its faults can be made there")
    there = replace(there, requires=requirements_of(there))
    check_plan(there)
    return canonical(there), notes


def _system(plan: SystemPlan, record: SystemRecord, target: Target) -> SystemPlan:
    """Raises UsageError for a system that is not the plan's, nor its original."""
    is_same = record.name == plan.name
    here = Drawn(parameters=plan.parameters, policy=plan.policy) if is_same else None
    found = here or record.carry(plan, target.parameters)
    if found is None:
        raise UsageError(f"it is a plan of {plan.name}, which is no rebuild of {record.name}")
    name = target.profile or plan.profile
    profile = profile_of(record, name)
    values = {**profile.parameters, **found.parameters, **target.parameters}
    parameters = to_plan(make_parameters(record.parameters, values))
    policy = {**found.policy, **profile.settings(parameters), **target.policy}
    return SystemPlan(
        name=record.name,
        profile=name,
        parameters=parameters,
        policy={key: value for key, value in policy.items() if value is not None},
        bugs=plan.bugs if is_same else (),
        services=plan.services,
    )


def _was_real(plan: Plan, record: SystemRecord) -> bool:
    """Whether what it asks for was asked of this system on real nodes: then it is asked again."""
    return plan.cluster.backend != "sim" and plan.system.name == record.name


def _gates(gates: GatePlan, record: SystemRecord) -> GatePlan:
    """The harness does not look into real nodes, and how long they take to settle is the machine's
    affair."""
    return replace(
        gates,
        max_rto_ms=None,
        must_settle=False,
        must_converge=False,
        must_not_crash=record.stays_up,
        must_stay_up=record.stays_up,
        orderly_exits=record.orderly_exits,
    )


def _anew(action: FaultAction) -> FaultAction:
    """With targets that are roles as if the fault had never fired."""
    record = FAULTS.find(action.kind) if FAULTS.has(action.kind) else None
    target = action.target if record is None or record.target is None else record.target
    return replace(action, nodes=None, links=None) if is_role(target) else action


def _possible(plan: Plan, target: Target) -> tuple[Plan, list[FaultAction]]:
    """Without the faults that the world or the system can't have."""
    system = make_system(plan)
    kept: list[FaultAction] = []
    gone: list[FaultAction] = []
    for action in plan.faults:
        try:
            possible = not required_capabilities((action,)) - target.can
            check_system((action,), system, plan.cluster.nodes)
        except UsageError:
            possible = False
        (kept if possible else gone).append(action)
    return replace(plan, faults=tuple(kept)), gone
