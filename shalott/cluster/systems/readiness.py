"""Waiting for nodes to be ready, with a failure that says what each of them was doing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tenacity import wait_exponential

from shalott.cluster.cluster import Cluster
from shalott.cluster.waiting import ask_until
from shalott.core.errors import BootFailed, ClientError

POLLS = wait_exponential(multiplier=0.05, exp_base=1.2, max=0.4)  # s
QUOTED_LINES = 8


async def await_nodes(
    cluster: Cluster,
    nodes: Sequence[str],
    why_not_ready: Callable[[str], Awaitable[str]],
    timeout_ms: int,
    *,
    may_exit: bool = False,
) -> None:
    """Return when ``why_not_ready`` is empty for every node.

    Raises BootFailed at the deadline, or as soon as a node's process has ended unless it
    ``may_exit``.
    """
    waiting = list(nodes)
    reasons: dict[str, str] = {}

    async def are_ready() -> bool:
        for node in list(waiting):
            try:
                reasons[node] = await why_not_ready(node)
            except ClientError as error:
                reasons[node] = str(error)
            if not reasons[node]:
                waiting.remove(node)
            elif not may_exit and (await cluster.processes.status(node)).state == "exited":
                await _fail(cluster, [node], {node: "its process has ended"})
        return not waiting

    if not await ask_until(are_ready, timeout_ms / 1000, POLLS):
        await _fail(cluster, waiting, reasons)


async def _fail(cluster: Cluster, nodes: Sequence[str], reasons: dict[str, str]) -> None:
    parts = []
    for node in nodes:
        printed = (await cluster.files.output(node, QUOTED_LINES)).strip()
        parts.append(f"{node} is not ready: {reasons[node]}. It printed:\n{printed or '(nothing)'}")
    raise BootFailed("\n".join(parts))
