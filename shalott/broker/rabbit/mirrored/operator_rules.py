"""What an operator's acts do to queues: the rules, and which known bugs break them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorRules:
    """One field a rule. All hold by default.

    deletes_without_master: a queue whose master can't be reached is deleted nevertheless
    (rmq#1501). Before 3.7.5 only a master could delete its queue (KB-RMQ-21).
    maintenance_leaves_masters: a node that is taken out of service does not move its masters
    (KB-RMQ-25, see maintenance.py).
    """

    deletes_without_master: bool = True
    maintenance_leaves_masters: bool = True


def operator_rules(has_bug: Callable[[str], bool]) -> OperatorRules:
    """The rules of a node with these bugs switched on."""
    return OperatorRules(
        deletes_without_master=not has_bug("KB-RMQ-21"),
        maintenance_leaves_masters=not has_bug("KB-RMQ-25"),
    )
