"""toy-partitions: logs in partitions, to try their workload without containers.

Under the profile ``safe`` it keeps what Kafka promises. Every other profile
breaks the rule that it is named for (toy_node.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from shalott.api import (
    Endpoint,
    Partitions,
    Plan,
    Profile,
    SystemRecord,
    make_parameters,
)
from shalott_etcd.client import ask
from shalott_partitions.toy_node import RULES, Node, NodeConfig, Rule
from shalott_toys.system import WORLDS, ToySystem, program_of, search_of


class ToyParameters(msgspec.Struct, frozen=True):
    breaks: Annotated[Rule, msgspec.Meta(description="The rule that it breaks.")] = "none"


class ToyClient:
    """A transaction is one request: 412 says that it was aborted, no answer says nothing."""

    def __init__(self, host: str, port: int, *, timeout_ms: int) -> None:
        self._at, self._timeout_ms = Endpoint(host, port), timeout_ms

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def transact(
        self, mops: Sequence[tuple[object, ...]], places: Mapping[int, int]
    ) -> Sequence[tuple[int, int] | Mapping[int, Sequence[tuple[int, int]]]]:
        asked = {"mops": mops, "places": places}
        answer = await ask(self._at, "/txn", asked, self._timeout_ms)
        return msgspec.convert(
            answer, list[tuple[int, int] | dict[int, list[tuple[int, int]]]], strict=False
        )


def make(plan: Plan) -> ToySystem:
    own = {
        "breaks": make_parameters(ToyParameters, plan.system.parameters).breaks,
        "seed": plan.seed,
    }
    module = "shalott_partitions.toy_node"
    return ToySystem("toy-partitions", 2382, module, ("/txn", {"mops": []}), own)


PROFILES: Mapping[str, Profile] = {
    "safe" if rule == "none" else rule: Profile(parameters={"breaks": rule}) for rule in RULES
}
SYSTEM = SystemRecord(
    name="toy-partitions",
    summary="one node keeps all logs: to try the workload partitions without containers",
    make=make,
    speaks=("partitions",),
    partitions=lambda plan: Partitions(port="client", make_client=ToyClient),
    workload="partitions",
    profiles=PROFILES,
    parameters=ToyParameters,
    worlds=WORLDS,
    program=program_of(NodeConfig, Node),
    stays_up=True,
    search=search_of(PROFILES),
)
