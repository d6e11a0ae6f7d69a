"""The disks of simulated machines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.nodes import (
    DiskFaults,
)
from shalott.cluster.sim.nodes import SimPart
from shalott.core.errors import HarnessError


class SimDisks(SimPart):
    """See ``Disks``."""

    capabilities = WORLDS["sim"]["disks"]

    async def set(self, node: str, faults: DiskFaults | None) -> None:
        self._sim.tell(f"set disk of {node} to {faults}")
        self._sim.machines[node].disk.set_faults(faults)
        self._sim.machines[node].disk_faults = faults or DiskFaults()

    async def faults(self, node: str) -> DiskFaults:
        return self._sim.machines[node].disk_faults

    async def lose_unsynced(self, node: str) -> Mapping[str, int]:
        if self._sim.machines[node].is_alive:
            raise HarnessError(f"{node} runs: it would go on with what is lost")
        self._sim.tell(f"lose what {node} has not synced")
        disk = self._sim.machines[node].disk
        lost = disk.outside.unsynced()
        disk.power_loss("all")
        return lost

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        disk, made = self._sim.machines[node].disk, asyncio.Event()
        last = disk.syncs + count

        def look() -> None:
            if disk.syncs >= last:
                made.set()

        disk.transfers.sync_watchers.append(look)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await made.wait()
        except TimeoutError:
            return False
        finally:
            disk.transfers.sync_watchers.remove(look)
        return True
