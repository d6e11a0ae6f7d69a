"""What each kind of cluster can do where its host lacks nothing.

The simulation always can. What processes on loopback, containers and hosts can is found when they
are asked: it is this or less (no root, no nft, no FUSE, an old kernel). docs/reference/faults.md is
drawn of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from shalott.cluster.base import Capability

PROCESSES: tuple[Capability, ...] = ("kill", "stop", "pause", "wipe")
CUTS: tuple[Capability, ...] = ("cut", "cut-one-way")
SLOW_LINKS: tuple[Capability, ...] = ("delay", "throttle")
DISKS: tuple[Capability, ...] = (
    *("disk-slow", "disk-full", "disk-error", "disk-short", "disk-corrupt"),
)
PACKETS: tuple[Capability, ...] = ("duplicate", "reorder", "corrupt")
RESOURCES: tuple[Capability, ...] = (
    *("limit-cpu", "limit-memory", "limit-files", "limit-processes", "fill-tmp", "stop-process"),
)

MOST: Mapping[str, frozenset[str]] = {
    "sim": frozenset(
        {
            *(*PROCESSES, *CUTS, *SLOW_LINKS, "loss", "jitter", "clock", "power", *DISKS),
            *("trigger-event", "trigger-sync", "cut-clients"),
        }
    ),
    "docker": frozenset(
        {
            *(*PROCESSES, *CUTS, *SLOW_LINKS, "loss", "jitter", *PACKETS, "clock", "power", *DISKS),
            *("upgrade", "trigger-event", "trigger-sync", "cut-clients", *RESOURCES),
        }
    ),
    "ssh": frozenset(
        {
            *(*PROCESSES, *CUTS, *SLOW_LINKS, "loss", "jitter", *PACKETS, "clock", "power", *DISKS),
            *("trigger-event", "trigger-sync", "cut-clients", *RESOURCES),
        }
    ),
    "local": frozenset(
        {*PROCESSES, *CUTS, *SLOW_LINKS, "power", *DISKS, "trigger-event", "trigger-sync"}
    ),
}
