"""disconnect: every connection between nodes ends at once, for the moment that a new one takes.

As a network's blip of a few milliseconds does that resets connections: no node is silent for so
long that others would act on silence. It is done by Erlang's own ``disconnect_node``, on one node
for all pairs. Nodes connect again at the next message, so that it takes nothing away, and a release
that bears it need not notice it.
"""

from __future__ import annotations

from shalott.api import Check, FaultAction, FaultContext, FaultRecord, status_checks

TOOL_TIMEOUT_MS = 60_000
# Says how many pairs were parted. The casts go out first, over the connections that end then.
PART = """
Others = nodes(),
[rpc:cast(A, erlang, disconnect_node, [B]) || A <- Others, B <- Others, A < B],
timer:sleep(5),
length([N || N <- Others, true =:= erlang:disconnect_node(N)]).
"""


async def inject(ctx: FaultContext, action: FaultAction) -> None:
    (node,) = action.nodes or ctx.nodes[:1]
    words = ["rabbitmqctl", "eval", " ".join(PART.split())]
    done = await ctx.cluster.processes.run_command(node, words, TOOL_TIMEOUT_MS)
    ctx.left["parted"] = done.output.strip().splitlines()[-1:] == [str(len(ctx.nodes) - 1)]
    ctx.told["said"] = done.output.strip()[-200:]


async def heal(ctx: FaultContext, action: FaultAction) -> None:
    """Nodes connect again by themselves, at the next message."""


def parted(ctx: FaultContext, action: FaultAction) -> list[Check]:
    (node,) = action.nodes or ctx.nodes[:1]

    async def look() -> bool:
        return bool(ctx.left.get("parted"))

    return [Check(node, "every other node was disconnected", look, lambda: True)]


FAULT = FaultRecord(
    name="disconnect",
    summary="every connection between nodes ends at once, and new ones are made (RabbitMQ)",
    inject=inject, heal=heal, effective=parted, healed=status_checks,
    is_single=True, takes="nothing", lane="links", strength=20,
)  # fmt: skip
