"""Heartbeats to all controllers, whoever leads, so that a new leader knows who lives.

After broker/controller/ReplicasManager.java (sendHeartbeatToController); docs/protocols.md 3.5.
Each controller has a loop of its own: one that does not answer delays nobody. Upstream once asked
one after the other, in the thread that did everything else (KB-RKT-31).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shalott.broker.base.env import Env
from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.controller.messages import Heartbeat


class Heartbeats:
    """``make`` says what this broker is worth now. ``busy`` is held by all else that the broker
    does with controllers, and only matters with KB-RKT-31.
    """

    def __init__(
        self,
        env: Env,
        client: ControllerClient,
        make: Callable[[], Heartbeat],
        *,
        interval_ms: float,
        busy: asyncio.Lock,
    ) -> None:
        self._env = env
        self._client = client
        self._make = make
        self._interval_s = interval_ms / 1000
        self._busy = busy

    async def run(self) -> None:
        """Until cancelled."""
        if self._env.has_bug("KB-RKT-31"):
            await self._one_after_the_other()
            return
        async with asyncio.TaskGroup() as loops:
            for address in self._client.controllers:
                loops.create_task(self._to(address), name=f"heartbeats to {address}")

    async def _to(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            next_at = loop.time() + self._interval_s
            await self._beat(address)
            await asyncio.sleep(max(0.0, next_at - loop.time()))

    async def _one_after_the_other(self) -> None:
        """KB-RKT-31: blocking_heartbeat."""
        while True:
            async with self._busy:
                for address in self._client.controllers:
                    await self._beat(address)
            await asyncio.sleep(self._interval_s)

    async def _beat(self, address: str) -> None:
        try:
            await self._client.heartbeat(address, self._make())
        except BrokerError:
            return  # the next one may arrive
