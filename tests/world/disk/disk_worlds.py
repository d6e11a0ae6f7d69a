"""The disks that hold the contract of crashes and faults, each as a world of many: one for each
seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from shalott.broker.base.disk import Disk, File
from shalott.cluster.disks.control import PowerLoss
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.disk.mounted_disk import MountedDisk, MountWorld

T = TypeVar("T")
SEEDS = range(60)


class CrashDisk(Disk, Protocol):
    """A Disk that can lose its programs and its power."""

    def kill(self) -> None: ...

    def power_loss(self) -> None: ...

    def set_faults(self, faults: DiskFaults | None) -> None: ...

    def files(self) -> list[str]: ...

    def read_all(self, path: str) -> bytes: ...

    @property
    def rotten_bytes(self) -> Mapping[str, int]: ...


Body = Callable[[CrashDisk], Coroutine[Any, Any, T]]


class DiskWorld(Protocol):
    def outcomes(
        self, body: Body[T], *, loss: PowerLoss = "torn", seeds: Iterable[int] = SEEDS
    ) -> list[T]:
        """What ``body`` returns of a disk for each seed."""
        ...


class SimWorld:
    """Simulated disks, in virtual time."""

    def outcomes(
        self, body: Body[T], *, loss: PowerLoss = "torn", seeds: Iterable[int] = SEEDS
    ) -> list[T]:
        loop = SimLoop()
        knobs = DiskKnobs(power_loss=loss)

        async def main() -> list[T]:
            return [await body(SimDisk(loop, seed, "n1", knobs)) for seed in seeds]

        return loop.run(main(), SimProcess("n1"))


class MountedWorld:
    """One file system, mounted, and wiped for each seed."""

    def __init__(self, mount: MountWorld) -> None:
        self.mount = mount

    def outcomes(
        self, body: Body[T], *, loss: PowerLoss = "torn", seeds: Iterable[int] = SEEDS
    ) -> list[T]:
        async def one(seed: int) -> T:
            disk = MountedDisk(self.mount, seed, loss)
            try:
                return await body(disk)
            finally:
                await disk.close()

        async def main() -> list[T]:
            return [await one(seed) for seed in seeds]

        return asyncio.run(main())


async def stored(disk: CrashDisk, path: str, data: bytes) -> File:
    """A file that a power loss must leave as it is."""
    file = await disk.open(path, create=True)
    assert await file.pwrite(data, 0) == len(data)
    await file.sync()
    parts = path.split("/")[:-1]
    for depth in range(len(parts), -1, -1):
        await disk.sync_dir("/".join(parts[:depth]))
    return file
