"""Whether a system can notice the faults of a plan at all: said before the run, and in its report.

A link that is mended, or a node that goes on, before the others miss it has changed nothing that
they act on. Whether anybody noticed is judged after the run (checkers/runs/fault_effects.py).
"""

from __future__ import annotations

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.plan import Effect, FaultAction, Plan
from shalott.nemesis.record import FAULTS

SILENT: tuple[Effect, ...] = ("cuts-links", "suspends")  # a killed process ends its connections


def faults_too_short(plan: Plan) -> tuple[str, ...]:
    """One sentence if every fault of the plan only makes nodes silent, and none for long enough;
    otherwise nothing."""
    needed_ms = SYSTEMS.find(plan.system.name).notices_after_ms(plan)
    if not plan.faults or not all(_is_shorter(action, needed_ms) for action in plan.faults):
        return ()
    longest_ms = max(action.duration_ms for action in plan.faults)
    return (
        f"No fault of this plan lasts longer than {longest_ms / 1000:g} s, and {plan.system.name}"
        f" notices that a node is silent after up to {needed_ms / 1000:g} s: the faults may change"
        " nothing. Make them longer (--nemesis-duration), or the system quicker.",
    )


def _is_shorter(action: FaultAction, needed_ms: float) -> bool:
    makes_silent = any(effect in SILENT for effect in FAULTS.find(action.kind).effects)
    return makes_silent and action.duration_ms < needed_ms
