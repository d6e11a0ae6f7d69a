"""What hosts take from their nodes: processor, memory, files, processes."""

from __future__ import annotations

import asyncio

import msgspec

from shalott.cluster.capabilities import WORLDS, Can
from shalott.cluster.nodes import PLENTY, Shortage
from shalott.cluster.ssh.nodes import HostNodes


class HostResources:
    """See ``Resources``. ``is_wanted``: nodes run in control groups of their own."""

    def __init__(self, run: HostNodes, capabilities: Can, *, is_wanted: bool) -> None:
        self.capabilities = capabilities & WORLDS["ssh"]["resources"]
        self._run = run
        self._is_wanted = is_wanted

    async def set(self, node: str, shortage: Shortage) -> None:
        told = msgspec.structs.asdict(shortage)
        await self._run.agent(node).call("shortage", shortage=told)

    async def seen(self, node: str) -> Shortage:
        return msgspec.convert(await self._run.agent(node).call("read_shortage"), Shortage)

    async def heal(self) -> None:
        if self._is_wanted:
            await asyncio.gather(*(self.set(node, PLENTY) for node in self._run.specs))

    async def close(self) -> None:
        """The agents undo it with the rest."""
