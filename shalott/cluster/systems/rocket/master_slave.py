"""MasterSlaveSystem: RocketMQ brokers whose master an operator replaces.

It can be asked what only a system without elections can be asked: to fail over (``FailsOver``), and
to take a report at its HA port (``TakesReports``); cluster/system.py has both protocols.

The operator promotes the slave whose log goes furthest, and asks all of them first: one that can't
be asked may have what was acknowledged. The others are told to follow it, in the new epoch, and so
is the old master when it is back: until then it takes itself for the master, as its files say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from tenacity import retry_if_exception_type, wait_fixed

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import Claim
from shalott.cluster.systems.management import RETRY_S, management
from shalott.cluster.systems.rocket.config import brokers_of
from shalott.cluster.systems.rocket.rocketmq import RocketmqSystem
from shalott.cluster.waiting import retrying
from shalott.core.errors import ClientError, Definite, Indefinite

WITHIN_S = 10.0  # a node that has just been started answers by then
ALL_THERE_COULD_BE = (1 << 62).to_bytes(8, "big")  # a slave's report is eight bytes: its offset
CONNECT_S = 3.0

Ask = Callable[[str], Awaitable[Claim]]


class MasterSlaveSystem(RocketmqSystem):
    """A ``RocketmqSystem`` that is a ``FailsOver`` and a ``TakesReports`` as well."""

    async def fail_over(self, cluster: Cluster, old: str, restarted: list[str]) -> None:
        self._check_broker(old)
        brokers = brokers_of(self._plan, cluster.nodes)
        await fail_over(cluster, self._asker(cluster), old, brokers)

    async def rejoin(self, cluster: Cluster, node: str) -> None:
        self._check_broker(node)
        await rejoin(cluster, self._asker(cluster), node)

    async def report_nonsense(self, cluster: Cluster, node: str) -> Callable[[], None]:
        self._check_broker(node)
        return await report_nonsense(cluster, node)

    def _check_broker(self, node: str) -> None:
        """Raises Definite for a node without a broker."""
        if not brokers_of(self._plan, (node,)):
            raise Definite(f"{node} hosts no broker")

    def _asker(self, cluster: Cluster) -> Ask:
        async def ask(node: str) -> Claim:
            claims = (await self.observe(cluster, node))["claims"]
            if not claims:
                raise Definite(f"{node} has no broker yet")
            claim: Claim = claims[0]
            return claim

        return ask


async def fail_over(cluster: Cluster, ask: Ask, old: str, brokers: Sequence[str]) -> str:
    """Put another one of the brokers into the place of ``old``, and say which.

    Raises ClientError.
    """
    claims = {node: await ask(node) for node in brokers if node != old}
    for node, claim in claims.items():
        if claim["role"] == "master":
            raise Definite(f"{node} is the master")
    whole = {node: claim for node, claim in claims.items() if claim.get("agreed", True)}
    if not whole:
        raise Definite("no slave knows where its log agrees with its master's")
    new = max(whole, key=lambda node: (int(whole[node]["end_offset"]), node))
    epoch = 1 + max(int(claim.get("epoch") or 0) for claim in claims.values())
    await management(cluster, new).post("/api/shalott/promote", {"epoch": epoch})
    for node in claims:
        if node != new:
            await _follow(cluster, node, new, epoch)
    return new


async def rejoin(cluster: Cluster, ask: Ask, node: str) -> None:
    """Tell a node that is back whom to follow. Raises ClientError if it does not listen."""
    masters: list[tuple[int, str]] = []
    for other in cluster.nodes:
        with contextlib.suppress(ClientError):
            claim = await ask(other) if other != node else {"role": ""}
            if claim["role"] == "master":
                masters.append((int(claim.get("epoch") or 0), other))
    if not masters:
        return  # there is no master to follow: it is the master still
    epoch, master = max(masters)
    following = retrying(WITHIN_S, wait_fixed(RETRY_S), retry_if_exception_type(ClientError))
    await following(_follow, cluster, node, master, epoch)


async def _follow(cluster: Cluster, node: str, master: str, epoch: int) -> None:
    body = {"master": master, "epoch": epoch}
    await management(cluster, node).post("/api/shalott/follow", body)


async def report_nonsense(cluster: Cluster, node: str) -> Callable[[], None]:
    """Report all there could be at the HA port of ``node``. What is returned hangs up.

    Raises Indefinite.
    """
    endpoint = cluster.endpoint(node, "ha")
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except (OSError, TimeoutError) as error:
        raise Indefinite(f"{node} takes no connection: {error}") from error
    writer.write(ALL_THERE_COULD_BE)

    def hang_up() -> None:
        writer.transport.abort()  # a writer without a reference would do so by itself, and at once

    return hang_up
