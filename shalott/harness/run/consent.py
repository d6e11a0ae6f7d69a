"""Before a cluster of others is touched: what a run would do to it is told, and the user must have
said that it may.

The word is the inventory's (``may_break = true``) or the command line's (``--i-may-break-this``);
no plan keeps the latter. All that a run makes there has names that begin with a prefix of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence

import msgspec

from shalott.cluster.cluster import Cluster, StandsAlready
from shalott.cluster.system import System
from shalott.core.errors import UsageError
from shalott.core.plan import Plan
from shalott.nemesis.permission import may_meet


def of_its_own(plan: Plan) -> Plan:
    """The plan with a prefix that no other run has, if it makes anything in a cluster of others."""
    existing = plan.cluster.existing
    if existing is msgspec.UNSET:
        return plan
    existing = msgspec.structs.replace(existing, prefix=f"shalott-{secrets.token_hex(4)}-")
    cluster = msgspec.structs.replace(plan.cluster, existing=existing)
    return msgspec.structs.replace(plan, cluster=cluster)


async def require_consent(
    plan: Plan, cluster: Cluster, system: System, may_break: bool, tell: Callable[[str], None]
) -> None:
    """``tell`` is called with each line of what would be touched. Raises UsageError: a node is not
    there, or it was not said that all this may be done."""
    existing = plan.cluster.existing
    if existing is msgspec.UNSET or not isinstance(cluster.hosts, StandsAlready):
        return
    for line in _told(plan, await cluster.hosts.look(system)):
        tell(line)
    if not (may_break or existing.may_break):
        raise UsageError(
            "nothing was touched: say --i-may-break-this, or may_break = true in the inventory, if"
            " all that is named above may be broken"
        )


def _told(plan: Plan, nodes: Sequence[str]) -> Iterator[str]:
    existing = plan.cluster.existing
    yield "This run touches a cluster that stands already:"
    yield from (f"  {line}" for line in nodes)
    yield "  faults:" if plan.faults else "  faults: none"
    for kind in dict.fromkeys(action.kind for action in plan.faults):
        may = [node for node in plan.cluster.nodes if may_meet(existing, node, kind)]
        count = sum(action.kind == kind for action in plan.faults)
        yield f"    {kind}, {count} of them, on {', '.join(may)}"
    spared = [
        node
        for node in plan.cluster.nodes
        if not any(may_meet(existing, node, action.kind) for action in plan.faults)
    ]
    if spared and plan.faults:
        yield f"  never broken: {', '.join(spared)}"
    if existing is not msgspec.UNSET:
        yield f"  names of what it makes begin with {existing.prefix}"
        yield (
            f"  all is undone at its end, or {existing.lease_s:g} s after the harness is gone;"
            " data is never wiped"
        )
