"""NodeDisks: the disks of one run's nodes, however each is reached, and what they report."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec

from shalott.cluster.base import Capability, DiskFaults
from shalott.cluster.disks.control import DiskStatus, FaultDisk, Lost, PowerLoss
from shalott.core.errors import HarnessError

log = logging.getLogger("shalott.cluster.disks")

DISK_CAPABILITIES: frozenset[Capability] = frozenset(
    {
        *("power", "disk-slow", "disk-full", "disk-error", "disk-short", "disk-corrupt"),
        "trigger-sync",
    }
)
REPORT = "disk.json"


class DiskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ``disk.json`` of a node says: its disk at the end, and what each power loss took."""

    status: DiskStatus
    losses: list[Lost]


class NodeDisks:
    """Empty at first. ``power_loss``: what becomes of unsynced data."""

    def __init__(self, power_loss: PowerLoss) -> None:
        self._power_loss = power_loss
        self._disks: dict[str, FaultDisk] = {}
        self._losses: dict[str, list[Lost]] = {}

    def add(self, node: str, disk: FaultDisk) -> None:
        self._disks[node] = disk
        self._losses[node] = []

    def clear(self) -> None:
        self._disks.clear()

    def forget_losses(self) -> None:
        """What was lost until now was another run's."""
        self._losses = {node: [] for node in self._losses}

    async def power(self, node: str) -> None:
        """The node's processes must be dead."""
        lost = (await self._disks[node].power(self._power_loss)).lost
        self._losses[node].append(lost)
        log.info(
            "%s lost its power: %d bytes of %d files, and %d operations on names, were not synced"
            " and are gone",
            node,
            lost.lost_bytes,
            lost.lost_files,
            lost.lost_names,
        )

    async def set(self, node: str, faults: DiskFaults | None) -> None:
        others = [disk for name, disk in self._disks.items() if name != node]
        await self._disks[node].set_faults(faults, others=others)

    async def faults(self, node: str) -> DiskFaults:
        return await self._disks[node].faults()

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        """Whether so many syncs were done from now on, within the time."""
        return await self._disks[node].await_syncs(count, timeout_ms)

    async def heal(self) -> None:
        await asyncio.gather(*(disk.heal() for disk in self._disks.values()))

    async def wipe(self, node: str) -> None:
        await self._disks[node].wipe()

    async def report(self, node: str, into: Path) -> None:
        """Write ``disk.json``; nothing of a disk whose server is gone."""
        if node not in self._disks:
            return
        try:
            status = await self._disks[node].status()
        except HarnessError as error:
            log.warning("%s", error)
            return
        said = DiskReport(status=status, losses=self._losses[node])
        text = msgspec.json.format(msgspec.json.encode(said)) + b"\n"
        await asyncio.to_thread(_write, into / REPORT, text)


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
