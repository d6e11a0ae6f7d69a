"""When nodes are ready, and when a cluster has settled: every node runs and agrees with the others
on every queue's master and mirrors.

``why_unsettled`` is a pure function of one round of observations (see ``System.observe``), so
that the report can say what the cluster was still waiting for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import combinations

from tenacity import wait_exponential

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import Claim, Observation
from shalott.cluster.systems.record import Parameters
from shalott.cluster.waiting import ask_until
from shalott.core.errors import BootFailed, ClientError

log = logging.getLogger("shalott.cluster.systems")

POLL_S, LAST_POLL_S = 0.25, 1.0
ROUNDS = 2  # in a row, and alike: a promotion in between would show

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
    policy: Parameters,
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
    seen: Mapping[str, Observation | None], queues: Sequence[str], policy: Parameters
) -> str:
    """What is still missing, in one phrase; empty if the cluster has settled."""
    nodes = sorted(seen)
    for node, found in seen.items():
        if found is None:
            return f"{node} can't be asked"
        if sorted(found["running"]) != nodes:
            return f"{node} runs with {', '.join(sorted(found['running'])) or 'no node'}"
        if found["partitions"]:
            return f"{node} reports a partition from {', '.join(found['partitions'])}"
    for queue in queues:
        reason = _why_queue_unsettled(seen, queue, policy)
        if reason:
            return f"queue {queue}: {reason}"
    return ""


def _why_queue_unsettled(
    seen: Mapping[str, Observation | None], queue: str, policy: Parameters
) -> str:
    claims: dict[str, Claim] = {}
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


def mirrors_wanted(policy: Parameters, nodes: Sequence[str], master: str) -> int:
    """How many mirrors the policy gives a queue when all nodes run."""
    mode, parameters = policy.get("ha-mode"), policy.get("ha-params")
    if mode == "all":
        return len(nodes) - 1
    if mode == "exactly":
        return min(int(parameters or 1), len(nodes)) - 1
    if mode == "nodes":
        return len({name for name in parameters or () if name in nodes} - {master})
    return 0


def nodes_to_restart(
    nodes: Sequence[str], partitions: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """The nodes that an operator restarts after a partition. ``partitions[a]``: those from which
    ``a`` says that it is partitioned.

    Partitions need not be clean: behind a bridge a node may agree with both sides while these
    disagree with each other. What must be restarted is every node outside the largest set without a
    reported partition inside it (the smallest vertex cover of the quarrels). Clusters have a
    handful of nodes, so all sets are tried. Of two sets of one size the one with the earlier names
    is kept.
    """
    quarrels = [(a, b) for a, others in partitions.items() for b in others if a != b]
    ordered = sorted(nodes)
    for size in range(len(ordered), 0, -1):
        for kept in combinations(ordered, size):
            if not any(a in kept and b in kept for a, b in quarrels):
                return tuple(node for node in ordered if node not in kept)
    raise AssertionError("one node has no quarrel with itself")


def is_known(
    nodes: Sequence[str],
    running: Mapping[str, Sequence[str]],
    partitions: Mapping[str, Sequence[str]],
) -> bool:
    """Whether every node has made up its mind about every other: it runs with it, or is parted
    from it."""
    return all(
        other in running.get(node, ()) or other in partitions.get(node, ())
        for node in nodes
        for other in nodes
        if other != node
    )


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
