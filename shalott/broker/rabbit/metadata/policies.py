"""Which policies are in force for a queue or an exchange, and what they say together. Pure.

One policy applies: the matching one of highest priority; policies are not merged with one another.
It is merged with the operator policy that applies: of a number that both name, the smaller is in
force (rabbit/rabbit_policy.erl, merge_operator_definitions; rabbit_policies.erl,
merge_policy_value).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from shalott.broker.rabbit.metadata.records import PolicyRow, Record

POLICY = "policy"
OPERATOR_POLICY = "operator_policy"
POLICIES = (POLICY, OPERATOR_POLICY)  # tables

Kind = Literal["queues", "exchanges"]


class Rows(Protocol):
    """Tables, or a node's view of them."""

    def rows(self, table: str) -> Sequence[tuple[str, Record]]: ...


@dataclass(frozen=True, slots=True)
class InForce:
    """For one queue or exchange: the names of its policies, and the definition that results."""

    policy: str | None = None
    operator_policy: str | None = None
    definition: Mapping[str, object] | None = None

    @property
    def effective(self) -> dict[str, object]:
        return dict(self.definition or {})


def policy_rows(tables: Rows, table: str = POLICY) -> list[PolicyRow]:
    return [row for _, row in tables.rows(table) if isinstance(row, PolicyRow)]


def match(policies: Iterable[PolicyRow], vhost: str, name: str, kind: Kind) -> PolicyRow | None:
    """The one that applies to what is called ``name``."""
    matching = [
        policy
        for policy in policies
        if policy.vhost == vhost
        and policy.apply_to in ("all", kind)
        and re.search(policy.pattern, name) is not None
    ]
    return max(matching, key=lambda policy: (policy.priority, policy.name), default=None)


def in_force(tables: Rows, vhost: str, name: str, kind: Kind = "queues") -> InForce:
    own = match(policy_rows(tables), vhost, name, kind)
    operators = match(policy_rows(tables, OPERATOR_POLICY), vhost, name, kind)
    return InForce(
        policy=None if own is None else own.name,
        operator_policy=None if operators is None else operators.name,
        definition=merged(
            {} if own is None else own.definition, {} if operators is None else operators.definition
        ),
    )


def merged(own: Mapping[str, object], operators: Mapping[str, object]) -> dict[str, object]:
    """What a definition and an operator's say together."""
    together = {**own, **operators}
    for key in own:
        if key not in operators:
            continue
        mine, theirs = own[key], operators[key]
        if type(mine) is int and type(theirs) is int:
            together[key] = min(mine, theirs)
    return together
