"""Waiting for nodes to be ready, with a failure that says what each of them was doing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from shalott.cluster.base import Cluster
from shalott.harness.core.errors import BootFailed, ClientError

FIRST_POLL_S, LAST_POLL_S = 0.05, 0.4
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
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    waiting = list(nodes)
    reasons: dict[str, str] = {}
    poll_s = FIRST_POLL_S
    while True:
        for node in list(waiting):
            try:
                reasons[node] = await why_not_ready(node)
            except ClientError as error:
                reasons[node] = str(error)
            if not reasons[node]:
                waiting.remove(node)
            elif not may_exit and (await cluster.status(node)).state == "exited":
                await _fail(cluster, [node], {node: "its process has ended"})
        if not waiting:
            return
        if loop.time() > deadline_s:
            await _fail(cluster, waiting, reasons)
        await asyncio.sleep(poll_s)
        poll_s = min(1.2 * poll_s, LAST_POLL_S)


async def _fail(cluster: Cluster, nodes: Sequence[str], reasons: dict[str, str]) -> None:
    parts = []
    for node in nodes:
        printed = (await cluster.output(node, QUOTED_LINES)).strip()
        parts.append(f"{node} is not ready: {reasons[node]}. It printed:\n{printed or '(nothing)'}")
    raise BootFailed("\n".join(parts))
