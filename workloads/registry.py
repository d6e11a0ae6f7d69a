"""Every workload by its name: how it is built from a plan, and what judges it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from checkers.base import Checker
from checkers.compose import standard_checkers
from harness.errors import UsageError
from harness.plan import Plan
from harness.workload import Workload
from workloads.queue import client_habits, queue_workload


@dataclass(frozen=True, slots=True)
class Recipe:
    """One workload: both parts are functions of the plan, so a stored run can be judged again."""

    build: Callable[[Plan], Workload]
    checkers: Callable[[Plan], Sequence[Checker]]


def queue_checkers(plan: Plan) -> Sequence[Checker]:
    """The queue workload's judges, as the plan's gates configure them."""
    return standard_checkers(
        delivery=plan.gates.delivery,
        min_acked=plan.gates.min_acked,
        max_rto_ms=plan.gates.max_rto_ms,
        poll_round_ms=plan.observe_interval_ms,
        habits=client_habits(plan.workload),
        strict=plan.gates.one_master,
        must_settle=plan.gates.must_settle,
        must_not_crash=plan.gates.must_not_crash,
        crash_text=plan.gates.crash_text,
        must_converge=plan.gates.must_converge,
    )


WORKLOADS: Mapping[str, Recipe] = {"queue": Recipe(build=queue_workload, checkers=queue_checkers)}


def recipe_of(name: str) -> Recipe:
    """Raises UsageError, naming the known ones."""
    if name not in WORKLOADS:
        raise UsageError(f"unknown workload {name}: choose one of {', '.join(sorted(WORKLOADS))}")
    return WORKLOADS[name]
