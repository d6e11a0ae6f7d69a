"""The disks of simulated machines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.data_files import chosen
from shalott.cluster.nodes import (
    DiskFaults,
)
from shalott.cluster.parts import TellMoment
from shalott.cluster.sim.nodes import SimPart
from shalott.core.errors import HarnessError

# What a disk says that it does (disk/disk.py), and of which files.
_CALLS: Mapping[str, re.Pattern[str]] = {
    "write": re.compile(r"write (.*) at \d+"),
    "sync": re.compile(r"sync (?:of directory )?(.*)"),
    "rename": re.compile(r"rename (.*) to (.*)"),
}


class SimDisks(SimPart):
    """See ``Disks`` and ``WatchesCalls``."""

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

    def watch_calls(
        self, node: str, moment: str, what: str, files: str, tell: TellMoment
    ) -> Callable[[], None]:
        after = moment == "after"

        def watch(call: str, is_done: bool) -> bool:
            found = _CALLS[what].fullmatch(call) if is_done is after else None
            if found is None or (files and not any(chosen(p, files, ()) for p in found.groups())):
                return False
            return tell(f"{call} of {node}, {'done' if after else 'under way'}")

        watches = self._sim.machines[node].disk.calls.watches
        watches.append(watch)
        return lambda: watches.remove(watch)

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
