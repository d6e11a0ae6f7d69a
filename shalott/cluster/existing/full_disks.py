"""Disks that have no file system of ours under them: a file of ours takes all the room there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from shalott.cluster.capabilities import NOTHING, WORLDS, Can
from shalott.cluster.nodes import DiskFaults
from shalott.core.errors import MissingCapability

ONLY_FULL = (
    "the disk of a node that others made can be filled at most: what else disks do takes a file"
    " system of ours under them"
)


class FillsDirectories(Protocol):
    """How the room of a node's data directory is taken, and given back."""

    async def fill(self, node: str) -> None:
        """All of it, and what becomes free later, until it is emptied."""
        ...

    async def empty(self, node: str) -> None: ...

    async def is_full(self, node: str) -> bool: ...

    async def close(self) -> None: ...


class FullDisks:
    """See ``Disks``."""

    def __init__(self, way: FillsDirectories, *, is_wanted: bool) -> None:
        self.capabilities: Can = WORLDS["existing"]["disks"] if is_wanted else NOTHING
        self._way = way
        self._full: dict[str, None] = {}

    async def set(self, node: str, faults: DiskFaults | None) -> None:
        wanted = faults or DiskFaults()
        if wanted not in (DiskFaults(), DiskFaults(full=True)):
            raise MissingCapability(ONLY_FULL)
        if wanted.full:
            self._full[node] = None
            await self._way.fill(node)
        elif node in self._full:
            await self._way.empty(node)
            self._full.pop(node)

    async def faults(self, node: str) -> DiskFaults:
        return DiskFaults(full=await self._way.is_full(node))

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        raise MissingCapability(ONLY_FULL)

    async def lose_unsynced(self, node: str) -> Mapping[str, int]:
        raise MissingCapability(ONLY_FULL)

    async def heal(self) -> None:
        for node in list(self._full):
            await self.set(node, None)

    async def close(self) -> None:
        self._full.clear()
        await self._way.close()
