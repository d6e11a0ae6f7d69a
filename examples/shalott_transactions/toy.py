"""toy-transactions: a store that does transactions, to try their workloads without containers.

It promises to be strict serializable, and it is under the profile ``safe``. Every other profile
breaks the rule that it is named for (toy_node.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from shalott.api import (
    Endpoint,
    Mop,
    Plan,
    Profile,
    SystemRecord,
    Transactions,
    make_parameters,
)
from shalott_registers.client import ask
from shalott_toys.system import WORLDS, ToySystem, program_of, search_of
from shalott_transactions.toy_node import RULES, Node, NodeConfig, Rule


class ToyParameters(msgspec.Struct, frozen=True):
    breaks: Annotated[Rule, msgspec.Meta(description="The rule that it breaks.")] = "none"


class ToyClient:
    """A transaction is one request: 412 says that it was aborted, no answer says nothing."""

    def __init__(self, host: str, port: int, *, timeout_ms: int) -> None:
        self._at, self._timeout_ms = Endpoint(host, port), timeout_ms

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def transact(self, mops: Sequence[Mop]) -> Sequence[Mop]:
        answer = await ask(self._at, "/txn", {"mops": mops}, self._timeout_ms)
        return [(f, key, value) for f, key, value in answer]


def make(plan: Plan) -> ToySystem:
    own = {
        "breaks": make_parameters(ToyParameters, plan.system.parameters).breaks,
        "seed": plan.seed,
    }
    module = "shalott_transactions.toy_node"
    return ToySystem("toy-transactions", 2381, module, ("/txn", {"mops": []}), own)


PROFILES: Mapping[str, Profile] = {
    "safe" if rule == "none" else rule: Profile(parameters={"breaks": rule}) for rule in RULES
}
SYSTEM = SystemRecord(
    name="toy-transactions",
    summary="one node does all transactions: to try their workloads without containers",
    make=make,
    speaks=("transactions",),
    transactions=lambda plan: Transactions(port="client", make_client=ToyClient),
    workload="list-append",
    profiles=PROFILES,
    parameters=ToyParameters,
    worlds=WORLDS,
    program=program_of(NodeConfig, Node),
    stays_up=True,
    search=search_of(PROFILES),
)
