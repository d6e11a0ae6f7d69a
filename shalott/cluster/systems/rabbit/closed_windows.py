"""Which documented windows of loss a plan of mirrored queues rules out, by its settings.

The windows are those of docs/evidence/loss-windows.md, and so is what closes each.
"""

from __future__ import annotations

from collections.abc import Iterator

from shalott.core.plan import Plan


def closed_by_policy(plan: Plan) -> Iterator[str]:
    """What RabbitMQ's manual says of its policies."""
    policy = plan.system.policy
    if policy.get("ha-promote-on-failure") == "when-synced":
        yield from ("L1", "L2", "L4")
    if policy.get("ha-promote-on-shutdown", "when-synced") == "when-synced":
        yield "L8"  # that is the default


def closed_by_quorum(plan: Plan) -> Iterator[str]:
    """What ours does beyond that: who is out of the majority confirms nothing, and a queue comes
    back from its last recorded master's disk only (docs/explanation/limits.md)."""
    yield from closed_by_policy(plan)
    if plan.system.parameters.get("partition_mode") == "pause_minority":
        yield from ("L3", "L11", "L12")
