"""Who may be broken and how: what the inventory of a cluster that stands already allows.

A fault may hit a node that may meet it, by the fault's name or its group's. A link may be hit if
both its ends may be: what a cut takes is taken from both. Everywhere else all is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shalott.core.errors import UsageError
from shalott.core.plan import ExistingPlan, FaultAction, Plan
from shalott.nemesis.record import FAULTS, check_nemesis


def may_meet(existing: ExistingPlan | msgspec.UnsetType, node: str, kind: str) -> bool:
    """Whether the inventory lets a node meet faults of that kind."""
    if existing is msgspec.UNSET:
        return True
    own = existing.nodes[node].faults if node in existing.nodes else msgspec.UNSET
    allowed = (existing.faults or None) if own is msgspec.UNSET else own
    return allowed is None or kind in allowed or (FAULTS.find(kind).group or kind) in allowed


def allowed_nodes(
    existing: ExistingPlan | msgspec.UnsetType, nodes: Sequence[str], kind: str
) -> tuple[str, ...]:
    return tuple(node for node in nodes if may_meet(existing, node, kind))


def spared(existing: ExistingPlan | msgspec.UnsetType, action: FaultAction) -> FaultAction:
    """The action without links between nodes that must not meet it."""
    if existing is msgspec.UNSET or action.links is None:
        return action
    links = [
        link for link in action.links if all(may_meet(existing, end, action.kind) for end in link)
    ]
    return msgspec.structs.replace(action, links=tuple(links))


def why_not(plan: Plan, action: FaultAction) -> str:
    """Why an action must not happen; "" if it may."""
    existing = plan.cluster.existing
    if existing is msgspec.UNSET:
        return ""
    ends = [end for link in action.links or () for end in link]
    for node in dict.fromkeys((*(action.nodes or ()), *ends)):
        if not may_meet(existing, node, action.kind):
            return f"the inventory does not let {node} meet {action.kind}"
    return ""


def check_permission(plan: Plan) -> None:
    """Raises UsageError: the inventory names what is no fault, or forbids a fault of the plan."""
    existing = plan.cluster.existing
    if existing is msgspec.UNSET:
        return
    own = [node.faults for node in existing.nodes.values() if node.faults is not msgspec.UNSET]
    for names in (existing.faults, *own):
        for name in names:
            check_nemesis(name)
    for action in plan.faults:
        if reason := why_not(plan, action):
            raise UsageError(f"{reason}: choose another --nemesis or --targets")
    if plan.reread and not all(may_meet(existing, node, "stop") for node in plan.cluster.nodes):
        raise UsageError(
            "the nodes' disks are read again by a stop of every node, which the inventory does not"
            " allow: leave out --reread and faults that damage data"
        )
