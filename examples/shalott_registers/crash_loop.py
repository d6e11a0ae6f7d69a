"""crash-loop: a node that is killed soon after each start, as one with a bad disk or too little
memory is; it stays up when the fault ends."""

from typing import Annotated

import msgspec

from shalott.api import (
    FaultAction,
    FaultContext,
    FaultRecord,
    make_parameters,
    release,
    status_checks,
)


class Loop(msgspec.Struct, frozen=True):
    times: Annotated[int, msgspec.Meta(ge=1, description="How often it is killed.")] = 3
    up_ms: Annotated[int, msgspec.Meta(ge=1, description="How long it lives each time.")] = 500


async def inject(ctx: FaultContext, action: FaultAction) -> None:
    loop = make_parameters(Loop, action.parameters)

    async def crash(node: str) -> None:
        await ctx.processes.demand(action.id, node, "kill")
        for _ in range(loop.times - 1):
            await ctx.processes.withdraw(action.id, node)
            await ctx.wait_ms(loop.up_ms)
            await ctx.processes.demand(action.id, node, "kill")

    await ctx.at_once(crash(node) for node in action.nodes or ())


FAULT = FaultRecord(
    name="crash-loop", summary="a kill soon after each start, several times over",
    needs=("kill",), parameters=Loop, choices={"times": (2, 3, 5), "up_ms": (200, 1000)},
    inject=inject, heal=release, effective=status_checks, healed=status_checks,
    effects=("ends-processes",), takes="copies", lane="process", strength=55,
)  # fmt: skip
