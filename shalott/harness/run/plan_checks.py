"""What a plan must be before it is run: well formed, possible, and made of what is here.

``check_plan`` judges plans that were made and plans that were stored. ``requirements_of`` says
which records a plan names and who provided them, ``check_provided`` whether they are here.
``faults_too_short`` says before the run, and in its report, that a system can't notice the plan's
faults: a link that is mended, or a node that goes on, before the others miss it has changed nothing
that they act on. Whether they did notice is judged after the run (checkers/runs/fault_effects.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shalott.checkers.checker import CHECKERS
from shalott.checkers.runs.compose import extra_requirements
from shalott.cluster.systems.record import (
    PARTITIONS,
    SYSTEMS,
    TRANSACTIONS,
    SystemRecord,
    serving_nodes,
)
from shalott.core.doors import Door, Requirement, check_requirements
from shalott.core.errors import UsageError
from shalott.core.parameters import make_parameters
from shalott.core.plan import PARAMETERS_1, Effect, FaultAction, Plan
from shalott.harness.report.results import MAY_CHANGE_NOTHING
from shalott.harness.run.backends import existing_of, hosts_of, make_system
from shalott.harness.run.request import parse_nodes
from shalott.nemesis.permission import check_permission
from shalott.nemesis.record import FAULTS
from shalott.nemesis.requirements import check_actions, check_system, required_protocols
from shalott.workloads.programs import SPOKEN
from shalott.workloads.record import WORKLOADS, WorkloadRecord

DOORS: tuple[Door[Any], ...] = (SYSTEMS, WORKLOADS, FAULTS, CHECKERS)
# Workloads, and protocols of workloads, that give what they make no prefix (``names_prefix``).
NAMES_OF_THEIR_OWN = ("rocketmq-remoting", "metadata", "consume")
SILENT: tuple[Effect, ...] = ("cuts-links", "suspends")  # a killed process ends its connections


def check_plan(plan: Plan) -> None:
    """What a well-formed plan may still get wrong, stored plans included. Raises UsageError."""
    workload, nodes = plan.workload, plan.cluster.nodes
    record, system = WORKLOADS.find(workload.name), SYSTEMS.find(plan.system.name)
    check_pairing(system, record, plan)
    _check_parameters(system.parameters, plan.system.parameters, f"system {system.name}")
    _check_parameters(record.parameters, workload.parameters, f"workload {record.name}")
    parse_nodes(",".join(nodes))
    if plan.system.services and system.layouts is None and system.places is None:
        raise UsageError(
            f"{system.name} has no services to lay out on its nodes: leave them out of the plan"
        )
    system.check(plan)
    serving = len(serving_nodes(plan))
    if workload.concurrency < serving:
        raise UsageError(
            f"a concurrency of {workload.concurrency} leaves some of the {serving} nodes without"
            f" a client to drain it: use at least {serving}, or 1n"
        )
    rules = (
        (plan.time_limit_ms > 0, "the time limit must be above 0"),
        (workload.rate_hz > 0, "the rate must be above 0"),
        (
            0 < (1 if plan.gates.min_rate_share is None else plan.gates.min_rate_share) <= 1,
            "the least share of the rate (--min-rate-share) must be above 0 and at most 1",
        ),
        (workload.op_timeout_ms > 0, "the operation timeout must be above 0"),
        (plan.observe_interval_ms > 0, "the observe interval must be above 0"),
        (
            plan.gates.max_rto_ms is None or plan.gates.max_rto_ms > 0,
            "the longest outage still valid (--max-rto) must be above 0",
        ),
        (plan.gates.min_acked >= 0, "the fewest operations (--min-acked) must not be below 0"),
        (
            all(0 <= code <= 255 for code in plan.gates.orderly_exits),
            "exit codes of an orderly end lie between 0 and 255",
        ),
        (plan.quiet_ms >= 0, "the quiet time before the first fault must not be below 0"),
        (plan.settle_timeout_ms >= 0, "the time to settle must not be below 0"),
        *_of_simulation(plan),
    )
    for holds, sentence in rules:
        if not holds:
            raise UsageError(sentence)
    record.check(plan)
    check_actions(plan.faults, nodes)
    if plan.cluster.backend == "ssh":
        hosts_of(plan)
    if plan.cluster.backend == "existing":
        existing_of(plan)
        check_permission(plan)
        if not _names_are_its_own(plan, system, record):
            raise UsageError(
                f"the workload {record.name} makes things on {system.name} whose names may be"
                " others' too: in a cluster of others run another one"
            )
    if required_protocols(plan.faults) or any(action.triggers for action in plan.faults):
        check_system(plan.faults, make_system(plan), nodes)


def _names_are_its_own(plan: Plan, system: SystemRecord, workload: WorkloadRecord) -> bool:
    """Whether all that clients make there has the run's prefix. A program's keys have it."""
    if {workload.name, *workload.needs} & {*NAMES_OF_THEIR_OWN}:
        return False
    if plan.workload.client:
        return True
    partitions, transactions = system.partitions(plan), system.transactions(plan)
    ways = {PARTITIONS: partitions, TRANSACTIONS: transactions}
    return all(way.prefixes for need in workload.needs if (way := ways.get(need)) is not None)


def _of_simulation(plan: Plan) -> list[tuple[bool, str]]:
    if plan.sim is None:
        return []
    network, disk = plan.sim.network, plan.sim.disk
    times = (network.latency_us, network.jitter_us, network.link_spread_us)
    return [
        (all(time_us >= 0 for time_us in times), "times of the network must not be below 0"),
        (0 <= network.loss < 1, "the network's loss must be 0 or more, and below 1"),
        (
            all(0 <= low <= high for low, high in (disk.call_us, disk.sync_us)),
            "times of the disk are ranges from 0 up",
        ),
        (
            plan.sim.schedule is msgspec.UNSET
            or min(plan.sim.schedule.window_us, *plan.sim.schedule.points, 0) == 0,
            "a schedule's window and points must not be below 0",
        ),
        (plan.sim.callback_cost_ns >= 0, "the cost of a callback must not be below 0"),
    ]


def _check_parameters(struct: type[msgspec.Struct], values: Mapping[str, object], of: str) -> None:
    """Values that the struct takes, and no others; what plans of version 1 all had may stay."""
    make_parameters(struct, values)
    for name in values:
        if name not in struct.__struct_fields__ and name not in PARAMETERS_1:
            raise UsageError(f"the {of} has no parameter {name}")


def check_pairing(system: SystemRecord, workload: WorkloadRecord, plan: Plan) -> None:
    """Refuse a workload whose clients the system does not understand, or that no program can be a
    client of. Raises UsageError."""
    if plan.workload.client:
        if plan.cluster.backend == "sim":
            raise UsageError("--client: a program has real clocks and sockets, and sim has none")
        if not workload.fits(SPOKEN):
            able = [each.name for each in WORKLOADS.records() if each.fits(SPOKEN)]
            raise UsageError(
                f"--client: no program is a client of {workload.name}: choose --workload"
                f" {', '.join(able)}"
            )
        return
    if not system.speaks:
        raise UsageError(f"{system.name} has no clients of its own: give it one with --client")
    if not workload.fits(system.speaks):
        fitting = [each.name for each in SYSTEMS.records() if workload.fits(each.speaks)]
        raise UsageError(
            f"the workload {workload.name} is for {', '.join(fitting) or 'no system that is here'},"
            f" and not for {system.name}: leave out --workload for the one that fits"
        )


def requirements_of(plan: Plan) -> tuple[Requirement, ...]:
    """The records that a plan uses, with who provides them here. Raises UsageError."""
    return tuple(_requirements(plan))


def _requirements(plan: Plan) -> Iterable[Requirement]:
    yield SYSTEMS.requirement(plan.system.name)
    yield WORKLOADS.requirement(plan.workload.name)
    for kind in dict.fromkeys(action.kind for action in plan.faults):
        yield FAULTS.requirement(kind)
    yield from extra_requirements(plan)  # checkers of others: the same verdict needs them again


def check_provided(plan: Plan) -> list[str]:
    """Whether all of it is here; modules that the plan names are loaded if they can be found.

    Returns a sentence for each provider that is here in another version. Raises UsageError that
    says what to install.
    """
    return check_requirements(plan.requires, DOORS)


def faults_too_short(plan: Plan) -> tuple[str, ...]:
    """One sentence if every fault of the plan only makes nodes silent, and none for long enough;
    otherwise nothing."""
    needed_ms = SYSTEMS.find(plan.system.name).notices_after_ms(plan)
    if not plan.faults or not all(_is_shorter(action, needed_ms) for action in plan.faults):
        return ()
    longest_ms = max(action.duration_ms for action in plan.faults)
    return (
        f"No fault of this plan lasts longer than {longest_ms / 1000:g} s, and {plan.system.name}"
        f" notices that a node is silent after up to {needed_ms / 1000:g} s: {MAY_CHANGE_NOTHING}."
        " Make them longer (--nemesis-duration), or the system quicker.",
    )


def _is_shorter(action: FaultAction, needed_ms: float) -> bool:
    makes_silent = any(effect in SILENT for effect in FAULTS.find(action.kind).effects)
    return makes_silent and action.duration_ms < needed_ms
