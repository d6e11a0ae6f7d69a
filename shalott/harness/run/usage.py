"""What a run's nodes take of their machine, where it can be told: by the kernel's control groups.

A group ends with its container, and its counter with it, so the nodes are asked all the time, and
what they had counted before adds up; what a node computes between the last look and its end, less
than the time between two looks, is not counted.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from shalott.cluster.cluster import Cluster, TellsUsage
from shalott.cluster.nodes import MIB, NodeUsage
from shalott.harness.report.meta import Usage

EVERY_S: Final = 0.5


@dataclass
class UsageWatch:
    """``hosts``: whose nodes they are."""

    hosts: TellsUsage
    nodes: Sequence[str]
    _last: dict[str, NodeUsage] = field(default_factory=dict)
    _of_the_dead_s: float = 0.0
    _memory: list[int] = field(default_factory=list)  # of all nodes at once, while all ran

    async def keep_watching(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(EVERY_S)

    def look(self) -> None:
        seen = {node: self.hosts.usage(node) for node in self.nodes}
        running = {node: usage for node, usage in seen.items() if usage is not None}
        for node, usage in running.items():
            before = self._last.get(node)
            if before is not None and before.life != usage.life:
                self._of_the_dead_s += before.cpu_s
            self._last[node] = usage
        if len(running) == len(self.nodes):
            self._memory.append(sum(usage.memory_bytes for usage in running.values()))

    def told(self) -> Usage | None:
        """None: nothing was ever told."""
        if not self._last:
            return None
        cpu_s = self._of_the_dead_s + sum(usage.cpu_s for usage in self._last.values())
        median = statistics.median(self._memory) if self._memory else 0
        return Usage(
            nodes=len(self.nodes),
            cpu_s=round(cpu_s, 2),
            memory_mib=round(median / MIB, 1),
        )


def watch_usage(cluster: Cluster) -> UsageWatch | None:
    """None: its world does not tell."""
    hosts = cluster.hosts
    return UsageWatch(hosts, cluster.nodes) if isinstance(hosts, TellsUsage) else None
