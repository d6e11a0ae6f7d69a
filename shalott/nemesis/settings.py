"""OverlappingSettings: what the faults in force add up to on each link, clock, disk and machine.

A backend has one setting for each of them, and the last one stands. So each fault adds a setting of
its own and removes it when it ends, and what the backend is told is their sum: delays, offsets and
drifts add, the narrowest link throttles, each fault loses its share of what the others let through,
and of what runs short the least is left.
Removing them in any order leaves what the rest add up to; removing the last restores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from shalott.cluster.cluster import Cluster
from shalott.cluster.nodes import SOUND_DISK, DiskFaults, LinkShape, Shortage

Link = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ClockSetting:
    """So far off from its beginning on, and gaining from then."""

    offset_ms: float
    drift_ppm: float
    since_ns: int

    def offset_at(self, now_ns: int) -> float:
        return self.offset_ms + self.drift_ppm * (now_ns - self.since_ns) / 1e12


class OverlappingSettings:
    """The settings of one cluster. ``drifts``: by node, of clocks that were never right."""

    def __init__(
        self, cluster: Cluster, now_ns: Callable[[], int], drifts: Mapping[str, float] | None = None
    ) -> None:
        self._cluster = cluster
        self._now_ns = now_ns
        self._drifts = dict(drifts or {})
        self._shapes: dict[Link, dict[int, LinkShape]] = {}
        self._clocks: dict[str, dict[int, ClockSetting]] = {}
        self._bases: dict[str, ClockSetting] = {}  # clocks as they were before any fault
        self._disks: dict[str, dict[int, DiskFaults]] = {}
        self._shortages: dict[str, dict[int, Shortage]] = {}
        self._lock = asyncio.Lock()  # or an earlier sum could be set last

    # -- what they add up to

    def shape(self, link: Link) -> LinkShape:
        return add_shapes(self._shapes.get(link, {}).values())

    def offset_ms(self, node: str) -> float:
        """By how much the node's clock should be ahead now."""
        now_ns = self._now_ns()
        return sum(setting.offset_at(now_ns) for setting in self._clock_settings(node))

    def drift_ppm(self, node: str) -> float:
        return sum(setting.drift_ppm for setting in self._clock_settings(node))

    def disk(self, node: str) -> DiskFaults:
        return add_disks(self._disks.get(node, {}).values())

    def shortage(self, node: str) -> Shortage:
        return add_shortages(self._shortages.get(node, {}).values())

    def _clock_settings(self, node: str) -> list[ClockSetting]:
        base = [self._bases[node]] if node in self._bases else []
        return [*base, *self._clocks.get(node, {}).values()]

    # -- adding and removing; removing what is not there is harmless

    async def add_shape(self, fault: int, link: Link, shape: LinkShape) -> None:
        async with self._lock:
            self._shapes.setdefault(link, {})[fault] = shape
            await self._set_shape(link)

    async def remove_shape(self, fault: int, link: Link) -> None:
        async with self._lock:
            if self._shapes.get(link, {}).pop(fault, None) is not None:
                await self._set_shape(link)

    async def add_clock(
        self, fault: int, node: str, *, offset_ms: float = 0, drift_ppm: float = 0
    ) -> None:
        async with self._lock:
            if node not in self._bases:
                drift = self._drifts.get(node, 0.0)
                was_wrong = node in self._drifts
                ahead_ms = await self._cluster.clocks.offset_ms(node) if was_wrong else 0.0
                self._bases[node] = ClockSetting(ahead_ms, drift, self._now_ns())
            setting = ClockSetting(offset_ms, drift_ppm, self._now_ns())
            self._clocks.setdefault(node, {})[fault] = setting
            await self._set_clock(node)

    async def remove_clock(self, fault: int, node: str) -> None:
        async with self._lock:
            if self._clocks.get(node, {}).pop(fault, None) is not None:
                await self._set_clock(node)

    async def add_disk(self, fault: int, node: str, faults: DiskFaults) -> None:
        async with self._lock:
            self._disks.setdefault(node, {})[fault] = faults
            await self._set_disk(node)

    async def remove_disk(self, fault: int, node: str) -> None:
        async with self._lock:
            if self._disks.get(node, {}).pop(fault, None) is not None:
                await self._set_disk(node)

    async def add_shortage(self, fault: int, node: str, shortage: Shortage) -> None:
        async with self._lock:
            self._shortages.setdefault(node, {})[fault] = shortage
            await self._set_shortage(node)

    async def remove_shortage(self, fault: int, node: str) -> None:
        async with self._lock:
            if self._shortages.get(node, {}).pop(fault, None) is not None:
                await self._set_shortage(node)

    async def _set_shape(self, link: Link) -> None:
        await self._cluster.links.shape(*link, self.shape(link))

    async def _set_clock(self, node: str) -> None:
        await self._cluster.clocks.set(
            node, offset_ms=self.offset_ms(node), drift_ppm=self.drift_ppm(node)
        )

    async def _set_disk(self, node: str) -> None:
        faults = self.disk(node)
        await self._cluster.disks.set(node, None if faults == SOUND_DISK else faults)

    async def _set_shortage(self, node: str) -> None:
        await self._cluster.resources.set(node, self.shortage(node))


def add_shapes(shapes: Collection[LinkShape]) -> LinkShape:
    return LinkShape(
        delay_ms=sum(shape.delay_ms for shape in shapes),
        rate_bytes_s=min((s.rate_bytes_s for s in shapes if s.rate_bytes_s), default=0),
        loss=_any_of(shape.loss for shape in shapes),
        jitter_ms=sum(shape.jitter_ms for shape in shapes),
        duplicate=_any_of(shape.duplicate for shape in shapes),
        reorder=_any_of(shape.reorder for shape in shapes),
        corrupt=_any_of(shape.corrupt for shape in shapes),
        correlation=max((shape.correlation for shape in shapes), default=0),
    )


def _any_of(probabilities: Iterable[float]) -> float:
    """That at least one of several independent things happens."""
    passed = 1.0
    for probability in probabilities:
        passed *= 1 - probability
    return round(1 - passed, 12)


def add_disks(disks: Collection[DiskFaults]) -> DiskFaults:
    return DiskFaults(
        slow_ms=sum(disk.slow_ms for disk in disks),
        full=any(disk.full for disk in disks),
        fail_sync=any(disk.fail_sync for disk in disks),
        short=any(disk.short for disk in disks),
        corrupt_bytes=sum(disk.corrupt_bytes for disk in disks),
    )


def add_shortages(shortages: Collection[Shortage]) -> Shortage:
    """The least that any of them leaves."""

    def least(name: str) -> float:
        return min((value for each in shortages if (value := getattr(each, name))), default=0)

    return Shortage(
        cpu_percent=least("cpu_percent"),
        memory_left_mib=least("memory_left_mib"),
        files_left=int(least("files_left")),
        processes_left=int(least("processes_left")),
        is_tmp_full=any(each.is_tmp_full for each in shortages),
        is_stopped=any(each.is_stopped for each in shortages),
    )
