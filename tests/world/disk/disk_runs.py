"""Bodies of tests run in virtual time, each with a simulated disk of its own, for many seeds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk, SimFile
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess

T = TypeVar("T")
Body = Callable[[SimLoop, SimDisk], Coroutine[Any, Any, T]]
SEEDS = range(60)


def simulate(body: Body[T], *, knobs: DiskKnobs | None = None) -> T:
    return _simulate(body, knobs, (1,))[0]


def outcomes(body: Body[T], knobs: DiskKnobs | None = None) -> list[T]:
    """Of a disk for each seed, one after another."""
    return _simulate(body, knobs, SEEDS)


def _simulate(body: Body[T], knobs: DiskKnobs | None, seeds: Iterable[int]) -> list[T]:
    loop = SimLoop()

    async def main() -> list[T]:
        return [await body(loop, SimDisk(loop, seed, "n1", knobs)) for seed in seeds]

    return loop.run(main(), SimProcess("n1"))


async def stored(disk: SimDisk, path: str, data: bytes) -> SimFile:
    """A file that a power loss must leave as it is."""
    file = await disk.open(path, create=True)
    assert await file.pwrite(data, 0) == len(data)
    await file.sync()
    parts = path.split("/")[:-1]
    for depth in range(len(parts), -1, -1):
        await disk.sync_dir("/".join(parts[:depth]))
    return file
