"""When a cluster has settled: every node runs and agrees with the others on every queue's master
and mirrors.

``why_unsettled`` is a pure function of one round of observations (see ``System.observe``), so
that the report can say what the cluster was still waiting for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from shalott.cluster.systems.partitions import is_known, nodes_to_restart
from shalott.core.errors import ClientError

log = logging.getLogger("shalott.cluster.systems")

POLL_S, LAST_POLL_S = 0.25, 1.0
ROUNDS = 2  # in a row, and alike: a promotion in between would show

Observation = Mapping[str, Any]
Observe = Callable[[str], Awaitable[Observation]]


async def observe_all(observe: Observe, nodes: Sequence[str]) -> dict[str, Observation | None]:
    """Every node's observation at about the same time; None where it can't be asked."""

    async def one(node: str) -> Observation | None:
        try:
            return await observe(node)
        except ClientError:
            return None

    return dict(zip(nodes, await asyncio.gather(*map(one, nodes)), strict=True))


async def smaller_side(observe: Observe, nodes: Sequence[str], timeout_s: float) -> tuple[str, ...]:
    """The nodes that an operator restarts, once every node has noticed what became of the
    others."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while True:
        seen = await observe_all(observe, nodes)
        found = {node: answer for node, answer in seen.items() if answer is not None}
        running = {node: answer["running"] for node, answer in found.items()}
        partitions = {node: answer["partitions"] for node, answer in found.items()}
        if is_known(nodes, running, partitions) or loop.time() > deadline_s:
            return nodes_to_restart(nodes, partitions)
        await asyncio.sleep(POLL_S)


async def await_settled(
    observe: Observe,
    nodes: Sequence[str],
    queues: Sequence[str],
    policy: Mapping[str, Any],
    timeout_ms: int,
    sync_patience_s: float | None = None,
) -> bool:
    """Whether the cluster settled in time; what it was waiting for is logged if not.

    ``sync_patience_s``: for how long nothing but a synchronisation may be missing before that is
    taken for something that won't come.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    only_sync_since: float | None = None
    rounds: list[object] = []
    reason = "nothing was observed"
    poll_s = POLL_S
    while loop.time() < deadline_s:
        seen = await observe_all(observe, nodes)
        reason = why_unsettled(seen, queues, policy)
        if reason and not why_unsettled(seen, queues, {**policy, "ha-sync-mode": "manual"}):
            if only_sync_since is None:
                only_sync_since = loop.time()
            waited_s = loop.time() - only_sync_since
            if sync_patience_s is not None and waited_s >= sync_patience_s:
                log.warning(
                    "taken as settled, although %s: nothing came of it for %.0f s", reason, waited_s
                )
                return True
        else:
            only_sync_since = None
        rounds = [*rounds, _roles(seen)] if not reason else []
        if len(rounds) >= ROUNDS and all(roles == rounds[-1] for roles in rounds[-ROUNDS:]):
            return True
        await asyncio.sleep(poll_s)
        poll_s = min(1.1 * poll_s, LAST_POLL_S)
    log.warning("the cluster has not settled within %d ms: %s", timeout_ms, reason)
    return False


def _roles(seen: Mapping[str, Observation | None]) -> object:
    return {
        node: sorted((claim["group"], claim["role"], claim["master"]) for claim in found["claims"])
        for node, found in seen.items()
        if found is not None
    }


def why_unsettled(
    seen: Mapping[str, Observation | None], queues: Sequence[str], policy: Mapping[str, Any]
) -> str:
    """What is still missing, in one phrase; empty if the cluster has settled."""
    nodes = sorted(seen)
    for node, found in seen.items():
        if found is None:
            return f"{node} can't be asked"
        if sorted(found["running"]) != nodes:
            return f"{node} runs with {', '.join(sorted(found['running'])) or 'nobody'}"
        if found["partitions"]:
            return f"{node} reports a partition from {', '.join(found['partitions'])}"
    for queue in queues:
        reason = _why_queue_unsettled(seen, queue, policy)
        if reason:
            return f"queue {queue}: {reason}"
    return ""


def _why_queue_unsettled(
    seen: Mapping[str, Observation | None], queue: str, policy: Mapping[str, Any]
) -> str:
    claims: dict[str, Mapping[str, Any]] = {}
    for node, found in seen.items():
        assert found is not None
        own = [claim for claim in found["claims"] if claim["group"] == queue]
        if not own:
            return f"{node} doesn't know it"
        claims[node] = own[0]
    masters = sorted({claim["master"] for claim in claims.values()})
    if len(masters) != 1 or masters[0] not in claims:
        return f"its master is {' or '.join(map(str, masters)) or 'nowhere'}"
    rulers = [node for node, claim in claims.items() if claim["role"] == "master"]
    if rulers != masters:
        return f"{', '.join(rulers) or 'no node'} claims it, and the master should be {masters[0]}"
    claim = claims[masters[0]]
    if claim["state"] != "running":
        return f"it is {claim['state']}"
    wanted = mirrors_wanted(policy, sorted(seen), masters[0])
    if len(claim["mirrors"]) < wanted:
        return f"it has {len(claim['mirrors'])} of {wanted} mirrors"
    behind = sorted(set(claim["mirrors"]) - set(claim["synchronised"]))
    if behind and policy.get("ha-sync-mode") == "automatic":
        return f"{', '.join(behind)} is not synchronised"
    return ""


def mirrors_wanted(policy: Mapping[str, Any], nodes: Sequence[str], master: str) -> int:
    """How many mirrors the policy gives a queue when all nodes run."""
    mode, parameters = policy.get("ha-mode"), policy.get("ha-params")
    if mode == "all":
        return len(nodes) - 1
    if mode == "exactly":
        return min(int(parameters or 1), len(nodes)) - 1
    if mode == "nodes":
        return len({name for name in parameters or () if name in nodes} - {master})
    return 0
