"""toy-partitions: logs in partitions, to try their workload without containers.

Under the profile ``safe`` it keeps what Kafka promises. Every other profile
breaks the rule that it is named for (toy_node.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Annotated

import msgspec

from shalott.api import (
    Definite,
    Endpoint,
    Partitions,
    Plan,
    Profile,
    SystemRecord,
    make_parameters,
)
from shalott_partitions.toy_node import RULES, Node, NodeConfig, Rule
from shalott_registers.client import ask
from shalott_toys.system import WORLDS, ToySystem, program_of, search_of


class ToyParameters(msgspec.Struct, frozen=True):
    breaks: Annotated[Rule, msgspec.Meta(description="The rule that it breaks.")] = "none"
    groups: Annotated[bool, msgspec.Meta(description="Its clients can be a group.")] = False


class ToyClient:
    """A transaction is one request: 412 says that it was aborted, no answer says nothing."""

    def __init__(self, host: str, port: int, *, timeout_ms: int, numbers: Iterator[int]) -> None:
        self._at, self._timeout_ms = Endpoint(host, port), timeout_ms
        self._keys: Sequence[int] = ()
        self._name = f"{host}-{next(numbers)}"

    async def open(self) -> None: ...

    async def close(self) -> None:
        if self._keys:
            await self.subscribe(())

    async def subscribe(self, keys: Sequence[int]) -> None:
        asked = {"member": self._name, "keys": list(keys)}
        await ask(self._at, "/subscribe", asked, self._timeout_ms)
        self._keys = keys

    async def commit(self, places: Mapping[int, int]) -> None:
        await self._ask("/commit", {"places": places})

    def moved(self) -> Sequence[int]:
        return ()  # a transaction is one request, and the node moves nothing within it

    async def _ask(self, path: str, asked: Mapping[str, object]) -> object:
        member = {"member": self._name} if self._keys else {}
        try:
            return await ask(self._at, path, {**asked, **member}, self._timeout_ms)
        except Definite as refused:
            if "unknown member" in str(refused):
                await self.subscribe(self._keys)
            raise

    async def transact(
        self, mops: Sequence[tuple[object, ...]], places: Mapping[int, int]
    ) -> Sequence[tuple[int, int] | Mapping[int, Sequence[tuple[int, int]]]]:
        answer = await self._ask("/txn", {"mops": mops, "places": places})
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


def partitions(plan: Plan) -> Partitions:
    return Partitions(
        port="client",
        make_client=partial(ToyClient, numbers=count()),
        groups=make_parameters(ToyParameters, plan.system.parameters).groups,
    )


PROFILES: Mapping[str, Profile] = {
    "safe" if rule == "none" else rule: Profile(
        parameters={"breaks": rule, **({"groups": True} if rule == "commits-ahead" else {})}
    )
    for rule in RULES
} | {"groups": Profile(parameters={"groups": True})}
SYSTEM = SystemRecord(
    name="toy-partitions",
    summary="one node keeps all logs: to try the workload partitions without containers",
    make=make,
    speaks=("partitions",),
    partitions=partitions,
    workload="partitions",
    profiles=PROFILES,
    parameters=ToyParameters,
    worlds=WORLDS,
    program=program_of(NodeConfig, Node),
    stays_up=True,
    search=search_of(PROFILES),
)
