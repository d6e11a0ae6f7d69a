"""ProcessStates: which faults want a node's process down or paused, so that faults may overlap.

Two faults may want the same node down, or one pause what another kills. Each demands a state of the
node and withdraws its demand when it ends; the node is brought to the state that the demands add up
to: down beats paused beats running. So a fault's end never revives a node that another one still
wants down.

A node whose disk fails may end its own process, which is right of it, and the kernel ends one whose
machine runs out of memory. The demands ``disk`` and ``starve`` say that it may end: found exited,
the node is left alone until the last such demand is withdrawn, and is started then. So a node that
ever had such a fault is looked at before it is believed to run.

A node that can't start from its corrupted disk is left down, for good: an empty disk under its name
would let it vote as if it had never promised anything, and two such nodes lose what a majority had.
Only where all faults that spoilt it say so (``rot-replace``) does it get an empty one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from shalott.cluster.cluster import Cluster

log = logging.getLogger("shalott.nemesis")

# "disk": its disk fails, and it may exit; "rot": the same by corrupted bytes, "rot-replace": and an
# empty disk may replace it; "starve": its machine runs short of something, and it may exit, or be
# ended by the kernel
How = Literal["kill", "stop", "power", "pause", "disk", "rot", "rot-replace", "starve"]
_EXCUSES = ("disk", "rot", "rot-replace", "starve")
_ROTS = ("rot", "rot-replace")
_FOR_GOOD = -1  # in place of a fault's id: it wants the node down because it can't start
DownBy = Literal["kill", "stop", "power"]
State = Literal["running", "paused", "down"]

LOOK_INTERVAL_S = 0.1
# A node whose disk failed may still be about to give up when the disk is sound again.
GIVING_UP_S = 0.5
SERVE_TIMEOUT_S = 30.0  # by when a node started from a corrupted disk serves, or has given up

Serves = Callable[[str], Awaitable[bool]]


@dataclass(slots=True)
class _Node:
    state: State = "running"
    demands: dict[int, How] = field(default_factory=dict)  # by fault
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_dark: bool = False
    taken_by: int | None = None  # the fault that took it out of the cluster for good
    is_suspect: bool = False  # such a fault has, or had, it: it may exit by itself
    is_rotten: bool = False  # its disk holds corrupted bytes
    may_replace: bool = True  # it may get an empty one
    gave_up: bool = False  # it exited by itself and was not started since
    exit_codes: list[int | None] = field(default_factory=list)  # each time that it gave up
    disks_replaced: int = 0

    @property
    def is_excused(self) -> bool:
        """Whether it may be exited now without anybody having ended it."""
        return any(how in _EXCUSES for how in self.demands.values())


class ProcessStates:
    """The processes of one cluster's nodes. All of them run at first.

    ``serves``: whether a node answers; it tells a start from a corrupted disk that went well.
    """

    def __init__(self, cluster: Cluster, serves: Serves) -> None:
        self._cluster = cluster
        self._serves = serves
        self._nodes = {name: _Node() for name in cluster.nodes}
        self._changed = asyncio.Condition()
        self.changes = 0  # how often a node's state changed

    def state(self, name: str) -> State:
        return self._nodes[name].state

    def wanted(self, name: str) -> State:
        """The state that the demands on the node add up to."""
        demands = self._nodes[name].demands.values()
        if any(how in ("kill", "stop", "power") for how in demands):
            return "down"
        return "paused" if "pause" in demands else "running"

    def may_be_exited(self, name: str) -> bool:
        return self._nodes[name].is_excused

    def exit_codes(self, name: str) -> tuple[int | None, ...]:
        """Of each time that the node ended by itself while a disk fault was its excuse."""
        return tuple(self._nodes[name].exit_codes)

    def disks_replaced(self, name: str) -> int:
        """How often the node got an empty disk in place of one that it couldn't start from."""
        return self._nodes[name].disks_replaced

    async def demand(self, fault: int, name: str, how: How) -> None:
        """Note what a fault wants of a node, and bring the node to the state that results."""
        node = self._nodes[name]
        node.demands[fault] = how
        if how in _EXCUSES:
            node.is_suspect = True
            node.is_rotten = node.is_rotten or how in _ROTS
            node.may_replace = node.may_replace and how != "rot"
            return
        await self._settle(name, "kill" if how == "pause" else how)  # type: ignore[arg-type]

    async def withdraw(self, fault: int, name: str) -> None:
        """Take a fault's demand back. Harmless if there is none."""
        self._nodes[name].demands.pop(fault, None)
        await self._settle(name, "kill")

    def take_out(self, fault: int, name: str) -> None:
        """The node is down by that fault's demand, and stays so when the faults are over."""
        self._nodes[name].taken_by = fault

    def is_taken_out(self, name: str) -> bool:
        return self._nodes[name].taken_by is not None

    async def put_back(self, name: str) -> None:
        """End what ``take_out`` began: the node runs again, unless another fault wants it down."""
        node = self._nodes[name]
        if node.taken_by is not None:
            fault, node.taken_by = node.taken_by, None
            if name in self._cluster.left_down:
                self._cluster.left_down.remove(name)
            await self.withdraw(fault, name)

    async def is_gone(self, name: str) -> bool:
        """Whether it is down now. One that exited without an excuse any more is started."""
        if self._nodes[name].is_suspect:
            await self._settle(name, "kill")
        return self.state(name) == "down"

    async def await_up(self, names: Sequence[str], timeout_s: float) -> bool:
        """Whether none of them is down, waiting for it; but for those that were taken out."""

        def up() -> bool:
            nodes = [self._nodes[name] for name in names]
            return all(node.state != "down" or node.taken_by is not None for node in nodes)

        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(up)
        except TimeoutError:
            return False
        return True

    async def start_all(self) -> None:
        """Start each node that does not run and was not taken out: no fault wants anything any
        more."""
        for name, node in self._nodes.items():
            if node.taken_by is not None:
                continue
            async with node.lock:
                status = await self._cluster.processes.status(name)
                if status.state == "running" and node.is_rotten:
                    await self._replace_if_unusable(name, node)
                elif status.state not in ("running", "absent"):
                    await self._start(name, node)

    async def _settle(self, name: str, down_by: DownBy) -> None:
        node = self._nodes[name]
        async with node.lock:
            if node.is_suspect:
                await self._look(name, node)
            await self._bring(name, node, self.wanted(name), down_by)
        async with self._changed:
            self._changed.notify_all()

    async def _look(self, name: str, node: _Node) -> None:
        """Notice that a node has ended by itself."""
        if node.state == "down":
            return
        status = await self._cluster.processes.status(name)
        if status.state == "exited":
            log.info("%s gave itself up with exit code %s", name, status.exit_code)
            node.state, node.gave_up = "down", True
            node.exit_codes.append(status.exit_code)
            self.changes += 1

    async def _bring(self, name: str, node: _Node, wanted: State, down_by: DownBy) -> None:
        if wanted == "down" and down_by == "power" and not node.is_dark:
            # Also where the process is gone already: what it had not synced goes now.
            await self._cluster.processes.power_off(name)
            node.state, node.is_dark = "down", True
            self.changes += 1
            return
        if node.state == wanted or (node.gave_up and node.is_excused):
            return
        if node.state == "paused":
            # A paused process neither hears SIGTERM nor can every backend kill it.
            await self._cluster.processes.resume(name)
            node.state = "running"
        if node.state == "down":
            await self._start(name, node)
            if node.state == "down":
                return  # it can't be started
        if wanted == "down":
            processes = self._cluster.processes
            stop = processes.stop if down_by == "stop" else processes.kill
            await stop(name)
        elif wanted == "paused":
            await self._cluster.processes.pause(name)
        node.state = wanted
        self.changes += 1

    async def _start(self, name: str, node: _Node) -> None:
        await self._cluster.processes.start(name)
        node.state, node.gave_up, node.is_dark = "running", False, False
        if node.is_rotten and not node.is_excused:
            await self._replace_if_unusable(name, node)

    async def _replace_if_unusable(self, name: str, node: _Node) -> None:
        """Leave a node down that ends by itself when it reads its disk, or give it an empty one."""
        deadline_s = asyncio.get_running_loop().time() + SERVE_TIMEOUT_S
        while (await self._cluster.processes.status(name)).state != "exited":
            if await self._serves(name) or asyncio.get_running_loop().time() > deadline_s:
                return
            await asyncio.sleep(LOOK_INTERVAL_S)
        node.exit_codes.append((await self._cluster.processes.status(name)).exit_code)
        if not node.may_replace or "wipe" not in self._cluster.capabilities:
            log.warning("%s can't start from its damaged files: it is left down", name)
            node.state, node.gave_up, node.taken_by = "down", True, _FOR_GOOD
            node.demands[_FOR_GOOD] = "kill"
            self._cluster.left_down.append(name)
            self.changes += 1
            return
        log.info("%s can't use its corrupted disk: it gets an empty one", name)
        await self._cluster.files.wipe(name)
        await self._cluster.processes.start(name)
        node.is_rotten, node.may_replace = False, True
        node.disks_replaced += 1
