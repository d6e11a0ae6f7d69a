"""The checkers that most workloads share, as a plan's gates configure them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shalott.checkers.checker import Checker
from shalott.checkers.queues.guarantees import ClientGuarantees
from shalott.checkers.runs.standard import common_checkers, standard_checkers
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.plan import Plan


def message_checkers(plan: Plan, guarantees: ClientGuarantees) -> Sequence[Checker]:
    """What became of messages in queues, and all that ``run_checkers`` judge."""
    name = plan.system.name
    closed = SYSTEMS.find(name).closes(plan) if SYSTEMS.has(name) else ()
    return standard_checkers(
        plan.gates,
        poll_round_ms=plan.observe_interval_ms,
        guarantees=replace(guarantees, closed=tuple(closed)),
    )


def run_checkers(plan: Plan) -> Sequence[Checker]:
    """The checkers that do not ask what became of messages: masters, outages, counts."""
    return common_checkers(plan.gates, poll_round_ms=plan.observe_interval_ms)
