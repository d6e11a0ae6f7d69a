"""toy-queues: queues to try their workload without containers.

Under the profile ``safe`` it loses nothing. Every other profile breaks the rule that it is named
for (toy_node.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from shalott.api import (
    Endpoint,
    Plan,
    Profile,
    Queues,
    Received,
    SystemRecord,
    make_parameters,
)
from shalott_queues.toy_node import RULES, Node, NodeConfig, Rule
from shalott_registers.client import ask
from shalott_toys.system import WORLDS, ToySystem, program_of, search_of


class ToyParameters(msgspec.Struct, frozen=True):
    breaks: Annotated[Rule, msgspec.Meta(description="The rule that it breaks.")] = "none"


class ToyClient:
    """See ``core.queued.Queued``. 412 says that it was refused, no answer says nothing."""

    def __init__(self, host: str, port: int, *, timeout_ms: int) -> None:
        self._at, self._timeout_ms = Endpoint(host, port), timeout_ms

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def send(self, queue: str, body: bytes) -> None:
        await self._ask("/send", {"queue": queue, "body": body.hex()})

    async def receive(self, queue: str) -> Received | None:
        told = await self._ask("/receive", {"queue": queue})
        if not told:
            return None
        token = {"queue": queue, "token": told["token"]}
        return Received(bytes.fromhex(told["body"]), told["redelivered"], token)

    async def settle(self, received: Received) -> None:
        await self._ask("/settle", received.token)

    async def _ask(self, path: str, asked: object) -> Any:
        return await ask(self._at, path, asked, self._timeout_ms)


def make(plan: Plan) -> ToySystem:
    breaks = make_parameters(ToyParameters, plan.system.parameters).breaks
    own = {"breaks": breaks, "seed": plan.seed}
    return ToySystem("toy-queues", 2384, "shalott_queues.toy_node", ("/status", {}), own)


PROFILES: Mapping[str, Profile] = {
    "safe" if rule == "none" else rule: Profile(parameters={"breaks": rule}) for rule in RULES
}
SYSTEM = SystemRecord(
    name="toy-queues",
    summary="one node keeps all queues: to try the workload queue without containers",
    make=make,
    speaks=("queues",),
    queues=lambda plan: Queues(port="client", make_client=ToyClient),
    workload="queue",
    profiles=PROFILES,
    parameters=ToyParameters,
    worlds=WORLDS,
    program=program_of(NodeConfig, Node),
    stays_up=True,
    search=search_of(PROFILES),
)
