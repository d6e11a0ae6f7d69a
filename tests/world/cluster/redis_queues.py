"""A plug-in for trials of clusters that stand already: Redis with replicas, lists as queues.

Its clients ask the node which is the master, and do everything there. A list forgets what it gave
away: nothing is settled. It makes no cluster of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from shalott.api import (
    BootFailed,
    Cluster,
    Definite,
    EventRow,
    Indefinite,
    NodeSpec,
    Observation,
    Plan,
    Profile,
    Queues,
    Received,
    SystemRecord,
    Topology,
    Unreachable,
    await_nodes,
)

PORT = 6379
REFUSED = ("READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "MISCONF", "OOM")


class RedisQueues:
    """A Queued."""

    def __init__(self, host: str, port: int, *, timeout_ms: int) -> None:
        self._at = host, port
        self._timeout_s = timeout_ms / 1000
        self._redis: redis.asyncio.Redis | None = None

    def _connect(self, host: str, port: int) -> redis.asyncio.Redis:
        """It asks once: of two RPOPs for one receive, the first one's message would be gone."""
        limit_s = self._timeout_s
        return redis.asyncio.Redis(
            host=host,
            port=port,
            socket_timeout=limit_s,
            socket_connect_timeout=limit_s,
            retry=Retry(NoBackoff(), 0),
        )

    async def open(self) -> None:
        first = self._connect(*self._at)
        try:
            found = await first.info("replication")
        except (RedisError, OSError) as error:
            raise Unreachable(str(error)) from error
        finally:
            await first.aclose()
        at = self._at
        if found["role"] != "master":
            at = str(found["master_host"]), int(found["master_port"])
        self._redis = self._connect(*at)

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()

    async def _ask(self, *words: str | bytes) -> object:
        assert self._redis is not None
        try:
            return await self._redis.execute_command(*words)
        except ResponseError as error:
            # The client takes some refusals' first word away.
            is_refused = type(error) is not ResponseError or str(error).startswith(REFUSED)
            raise (Definite if is_refused else Indefinite)(str(error)) from error
        except (RedisError, OSError) as error:
            raise Indefinite(str(error)) from error

    async def send(self, queue: str, body: bytes) -> None:
        await self._ask("LPUSH", queue, body)

    async def receive(self, queue: str) -> Received | None:
        found = await self._ask("RPOP", queue)
        if found is None:
            return None
        assert isinstance(found, bytes)
        return Received(found)

    async def settle(self, received: Received) -> None:
        """Nothing is settled."""


class RedisSystem:
    name = "redis-there"
    image = "redis"
    ports: Mapping[str, int] = MappingProxyType({"redis": PORT})

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        raise BootFailed("this one is never made")

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            found = await self._info(cluster, node)
            is_up = found.get("role") == "master" or found.get("master_link_status") == "up"
            return "" if is_up else "it follows no master yet" if found else "it does not answer"

        await await_nodes(cluster, nodes, why_not, timeout_ms)

    async def _info(self, cluster: Cluster, node: str) -> Mapping[str, object]:
        """{} if it does not answer."""
        at = cluster.endpoint(node, "redis")
        asked = redis.asyncio.Redis(
            host=at.host, port=at.port, socket_timeout=1, socket_connect_timeout=1
        )
        try:
            return dict(await asked.info("replication"))
        except (RedisError, OSError):
            return {}
        finally:
            await asked.aclose()

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None:
        """A list is there as soon as something is in it."""

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        found = await self._info(cluster, node)
        if not found:
            raise Indefinite(f"{node} does not answer")
        is_master = found["role"] == "master"
        claim = {
            "group": "redis",
            "role": "master" if is_master else "mirror",
            "epoch": 0,
            "master": node if is_master else "",
            "mirrors": [],
            "synchronised": [],
            "state": "running",
        }
        return {"running": [node], "partitions": [], "claims": [claim]}

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        try:
            await self.await_ready(cluster, cluster.nodes, timeout_ms)
        except BootFailed:
            return False
        return True

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[EventRow]:
        return ()


def queues(plan: Plan) -> Queues:
    return Queues(port="redis", make_client=RedisQueues, acknowledges=False)


SYSTEM = SystemRecord(
    name="redis-there",
    summary="Redis that stands already, with lists as queues",
    make=lambda plan: RedisSystem(),
    speaks=("queues",),
    workload="queue",
    profiles={"default": Profile()},
    queues=queues,
)
