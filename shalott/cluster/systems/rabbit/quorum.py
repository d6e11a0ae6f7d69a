"""Quorum queues of RabbitMQ 3.10, as the harness declares, asks after and judges them.

A quorum queue is a Raft group (rabbitmq.com/quorum-queues.html): its leader is what a mirrored
queue's master is, its other members are its mirrors. Policies of mirrors do not apply to it, and
members that are behind are kept from leading by the election itself, so every member counts as one
that may lead. The management API knows no terms; the log does (rabbitmq_log.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.cluster.system import Claim
from shalott.cluster.systems.record import Parameters
from shalott.core.errors import UsageError
from shalott.core.json_value import JsonObject
from shalott.core.plan import Plan

ARGUMENTS: JsonObject = {"x-queue-type": "quorum"}
# What mirrors lose by, and quorum queues do not have: unsynchronised promotions (L1, L2, L4, L8),
# a losing side that is discarded (L3), a suspended master that acknowledges alone (L11), and a
# first starter that has less than the last to stop (L12). docs/evidence/loss-windows.md has them.
CLOSED = ("L1", "L2", "L3", "L4", "L8", "L11", "L12")
WORKLOADS = ("queue", "fifo")  # whose queues the harness declares, durable and not exclusive


def is_quorum(parameters: Parameters) -> bool:
    return parameters.get("queue_type") == "quorum"


def check_quorum(plan: Plan) -> None:
    """Raises UsageError for a plan that quorum queues can't carry out."""
    if not is_quorum(plan.system.parameters):
        return
    if plan.workload.name not in WORKLOADS:
        raise UsageError(
            f"quorum queues have no workload {plan.workload.name}: use {' or '.join(WORKLOADS)},"
            " or --queue-type classic"
        )
    if not plan.workload.parameters.get("durable", True):
        raise UsageError("quorum queues are always durable: leave out --no-durable")


def arguments(nodes: Sequence[str]) -> JsonObject:
    """Of the declaration: a member on each node."""
    return {**ARGUMENTS, "x-quorum-initial-group-size": len(nodes)}


def claim_of(node: str, queue: Claim, names: Mapping[str, str]) -> Claim:
    """What a listed quorum queue says of ``node``'s role, as ``node`` answered.

    ``names`` makes RabbitMQ's node names ours. A leader that is not known is None.
    """
    members = sorted(names.get(name, name) for name in queue.get("members", ()))
    leader = names.get(queue.get("leader") or "")
    online = sorted(names.get(name, name) for name in queue.get("online", ()))
    followers = [member for member in members if member != leader]
    role = "master" if node == leader else "mirror" if node in members else "none"
    return {
        "group": queue["name"],
        "role": role,
        "epoch": 0,
        "master": leader,
        "mirrors": followers,
        "synchronised": followers,
        "online": online,
        "by_majority": True,  # a stale leader passes on what it is given, and acknowledges nothing
        "state": _state(queue, members, online),
    }


def _state(queue: Claim, members: Sequence[str], online: Sequence[str]) -> str:
    if queue.get("state") not in ("running", "live"):
        return str(queue.get("state"))
    return "running" if 2 * len(online) > len(members) else "minority"
