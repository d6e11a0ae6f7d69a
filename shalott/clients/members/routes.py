"""Routes as a client keeps them: asked for again after a while, and kept if nobody answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from shalott.broker.rocket.remoting.route_data import PERM_READ, TopicRoute
from shalott.clients.rocketmq import NotSent, Queue, RocketClient, RocketError


@dataclass(slots=True)
class _Kept:
    route: TopicRoute
    until_s: float


class Routes:
    """Of one client, by topic."""

    def __init__(self, client: RocketClient, poll_ms: float) -> None:
        self._client = client
        self._poll_ms = poll_ms
        self._kept: dict[str, _Kept] = {}

    async def get(self, topic: str) -> TopicRoute:
        """Raises RocketError if there never was one."""
        now_s = asyncio.get_running_loop().time()
        kept = self._kept.get(topic)
        if kept is not None and now_s < kept.until_s:
            return kept.route
        try:
            route = await self._client.route(topic)
        except RocketError:
            if kept is None:
                raise
            return kept.route
        self._kept[topic] = _Kept(route, now_s + self._poll_ms / 1000)
        return route

    def forget(self, topic: str) -> None:
        """Ask again the next time, as what it says seems to be wrong."""
        kept = self._kept.get(topic)
        if kept is not None:
            kept.until_s = 0.0

    async def queues(self, topic: str) -> list[Queue]:
        """Those that may be read, in the order in which all members see them. Raises
        RocketError."""
        route = await self.get(topic)
        return [
            Queue(topic, data.broker_name, queue_id)
            for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
            if data.perm & PERM_READ
            for queue_id in range(data.read_queue_nums)
        ]

    async def address(self, queue: Queue, broker_id: int | None = 0) -> str:
        """Of the queue's broker with that id; None: of its master, or else of any. Raises
        RocketError."""
        route = await self.get(queue.topic)
        for data in route.broker_datas:
            if data.broker_name == queue.broker_name:
                wanted = 0 if broker_id is None else broker_id
                if wanted in data.broker_addrs:
                    return data.broker_addrs[wanted]
                if broker_id is None and data.broker_addrs:
                    return data.broker_addrs[min(data.broker_addrs)]
        self.forget(queue.topic)
        raise NotSent(f"{queue.topic} has no such broker now")

    async def brokers(self, topics: Sequence[str]) -> list[str]:
        """The addresses of all brokers that have one of the topics, masters first. Raises
        RocketError if none of the topics has a route."""
        found: dict[str, int] = {}
        failed: RocketError | None = None
        for topic in topics:
            try:
                route = await self.get(topic)
            except RocketError as error:
                failed = error
                continue
            for data in route.broker_datas:
                found |= {address: broker_id for broker_id, address in data.broker_addrs.items()}
        if not found and failed is not None:
            raise failed
        return sorted(found, key=lambda address: (found[address] != 0, address))
