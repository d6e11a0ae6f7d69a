"""What a plan needs to be here: which records it names, and who provided them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shalott.checkers.checker import CHECKERS
from shalott.checkers.runs.compose import extra_requirements
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.doors import Door, Requirement, check_requirements
from shalott.core.plan import Plan
from shalott.nemesis.record import FAULTS
from shalott.workloads.record import WORKLOADS

DOORS: tuple[Door[Any], ...] = (SYSTEMS, WORKLOADS, FAULTS, CHECKERS)


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
