"""Holds: which faults keep a node's process down or paused, so that overlapping faults compose.

Two faults may want the same node down, or one pause what another kills. Each lays a hold on the
node and takes it off when it ends; the node is brought to the state that its holds add up to: down
beats paused beats running. So a fault's end never revives a node that another one still holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from cluster.base import Cluster

How = Literal["kill", "stop", "pause"]
State = Literal["running", "paused", "down"]


@dataclass(slots=True)
class _Node:
    state: State = "running"
    holds: dict[int, How] = field(default_factory=dict)  # by fault
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Holds:
    """The processes of one cluster's nodes. All of them run at first."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = {name: _Node() for name in cluster.nodes}
        self._changed = asyncio.Condition()
        self.changes = 0  # how often a node's state changed

    def state(self, name: str) -> State:
        return self._nodes[name].state

    def wanted(self, name: str) -> State:
        """The state that the node's holds add up to."""
        holds = self._nodes[name].holds.values()
        if "kill" in holds or "stop" in holds:
            return "down"
        return "paused" if holds else "running"

    async def hold(self, fault: int, name: str, how: How) -> None:
        """Lay a fault's hold on a node and bring the node to its state."""
        self._nodes[name].holds[fault] = how
        await self._settle(name, "stop" if how == "stop" else "kill")

    async def release(self, fault: int, name: str) -> None:
        """Take it off. Harmless if it is not on."""
        self._nodes[name].holds.pop(fault, None)
        await self._settle(name, "kill")

    async def await_up(self, names: Sequence[str], timeout_s: float) -> bool:
        """Whether none of them is down, waiting for it."""

        def up() -> bool:
            return all(self._nodes[name].state != "down" for name in names)

        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(up)
        except TimeoutError:
            return False
        return True

    async def _settle(self, name: str, down_by: Literal["kill", "stop"]) -> None:
        node = self._nodes[name]
        async with node.lock:
            await self._bring(name, node, self.wanted(name), down_by)
        async with self._changed:
            self._changed.notify_all()

    async def _bring(
        self, name: str, node: _Node, wanted: State, down_by: Literal["kill", "stop"]
    ) -> None:
        if node.state == wanted:
            return
        if node.state == "paused":
            # A paused process neither hears SIGTERM nor can every backend kill it.
            await self._cluster.resume(name)
            node.state = "running"
        if node.state == "down":
            await self._cluster.start(name)
            node.state = "running"
        if wanted == "down":
            stop = self._cluster.stop if down_by == "stop" else self._cluster.kill
            await stop(name)
        elif wanted == "paused":
            await self._cluster.pause(name)
        node.state = wanted
        self.changes += 1
