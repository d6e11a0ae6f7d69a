"""How many small clusters fit on this machine side by side.

A cluster that finds no CPU when it boots or elects is slow, and a harness that finds none stalls;
both spoil what is seen. So the number is what memory and CPUs hold, and one at least.
"""

from __future__ import annotations

import os
from pathlib import Path

from shalott.cluster.systems.record import Footprint

KEPT_SHARE = 0.25  # of what is free, for the harness, the engine and the page cache
MIB = 1024  # in units of /proc/meminfo


def clusters_that_fit(footprint: Footprint, nodes: int) -> int:
    """On this machine, as it is now."""
    return how_many(footprint, nodes, available_mib(), len(os.sched_getaffinity(0)))


def how_many(footprint: Footprint, nodes: int, memory_mib: float, cpus: int) -> int:
    """``memory_mib``: what is free."""
    by_memory = memory_mib * (1 - KEPT_SHARE) / (footprint.memory_mib * nodes)
    by_cpus = cpus / (footprint.cpus * nodes)
    return max(1, int(min(by_memory, by_cpus) + 1e-9))


def available_mib(meminfo: Path = Path("/proc/meminfo")) -> float:
    """What programs can have without swapping; as much as one likes where nobody says."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return float("inf")
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) / MIB if found else float("inf")
