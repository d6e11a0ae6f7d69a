"""The containers of one run: which there are, what state they are in, and their files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.disks.build import why_not
from shalott.cluster.disks.node_disks import MountedDisks
from shalott.cluster.docker import containers
from shalott.cluster.docker.containers import DATA_DIR, Machine
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.names import run_labels, run_token
from shalott.cluster.docker.namespaces import is_root
from shalott.cluster.node_files import read_as_process, tail
from shalott.cluster.nodes import CommandResult, NodeStatus
from shalott.cluster.owner import this_process
from shalott.cluster.parts import StatelessPart
from shalott.core.errors import BootFailed, HarnessError


class ContainerNodes:
    """What the parts share; no container is made at first.

    ``machines``, ``addresses``: by node. ``past``: by node, its former containers. ``pids``: of
    running nodes' first processes, as the host sees them. ``stopped``: nodes that were paused by
    SIGSTOP, for lack of the freezer.
    """

    def __init__(self, nodes: Sequence[str], run_id: str, *, keep: bool) -> None:
        self.nodes = tuple(nodes)
        self.engine = Engine()
        self.owner = this_process()
        self.token = run_token(run_id)
        self.labels = run_labels(run_id, self.owner, keep)
        self.machines: dict[str, Machine] = {}
        self.past: dict[str, list[str]] = {}
        self.ports: Mapping[str, int] = {}
        self.addresses: dict[str, str] = {}
        self.pids: dict[str, int] = {}
        self.stopped: set[str] = set()

    def forget(self) -> None:
        """The containers were removed."""
        for each in (self.machines, self.past, self.pids, self.stopped):
            each.clear()

    def machine(self, node: str) -> Machine:
        if node not in self.machines:
            raise HarnessError(f"there is no container of {node}")
        return self.machines[node]

    async def status(self, node: str) -> NodeStatus:
        if node not in self.machines:
            return NodeStatus(state="absent")
        name = self.machine(node).name
        status = await self.engine.call(lambda api: containers.status(api, name))
        if status.pid is None:
            self.pids.pop(node, None)
        else:
            self.pids[node] = status.pid
        if status.state == "running" and node in self.stopped:
            return NodeStatus(state="paused", pid=status.pid)
        return status

    async def pid_of(self, node: str) -> int | None:
        """Of its first process, as the host sees it, if it runs."""
        return (await self.status(node)).pid

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        # coreutils' timeout: the engine can't end a command that hangs.
        words = ["timeout", "-k", "1", f"{timeout_ms / 1000}", *command]
        return await self.execute(node, words)

    async def execute(self, node: str, words: Sequence[str]) -> CommandResult:
        name = self.machine(node).name
        return await self.engine.call(lambda api: containers.execute(api, name, words))


class EntersNodes(Protocol):
    """``enters``: whether the host can look into the containers' namespaces."""

    enters: bool


class ContainerFiles(StatelessPart):
    """See ``Files`` and ``ReadsDataFiles``."""

    capabilities = WORLDS["docker"]["files"]

    def __init__(self, run: ContainerNodes, links: EntersNodes, disks: MountedDisks) -> None:
        self._run = run
        self._links = links
        self._disks = disks

    async def wipe(self, node: str) -> None:
        if (await self._run.status(node)).state != "exited":
            raise HarnessError(f"{node} runs: its data can't be wiped")
        machine = self._run.machine(node)
        if self._disks.is_wanted:
            await self._disks.wipe(node)
        else:
            await self._run.engine.call(lambda api: containers.erase_volume(api, machine))

    async def read(self, node: str, path: str, offset: int) -> bytes:
        """By the first process's own view where this host may look into it, else by a command in
        the container, which takes longer."""
        pid, place = self._run.pids.get(node), f"{DATA_DIR}/{path}"
        if pid is not None and self._links.enters:
            found = await asyncio.to_thread(read_as_process, pid, place, offset)
            if found is None:
                raise HarnessError(f"{node} does not run any more")
            return found
        return await tail(self._run.run_command, node, place, offset)

    async def output(self, node: str, lines: int = 20) -> str:
        machine = self._run.machine(node)
        return await self._run.engine.call(lambda api: containers.last_lines(api, machine, lines))

    async def collect(self, into: Path) -> None:
        async def collect_one(node: str, machine: Machine) -> None:
            past, place = self._run.past.get(node, ()), into / node
            await self._run.engine.call(lambda api: containers.collect(api, machine, place, past))
            await self._disks.report(node, into / node)

        await asyncio.gather(*(collect_one(*item) for item in self._run.machines.items()))


# -- Disks that fail and lose their power, under the volumes of a run's containers.
#
# The file system of cluster/disks runs on the host and is mounted over the volume's own directory
# before the container starts; the engine binds what it finds there. So it outlives its container,
# as
# a machine's page cache outlives a process: in the container, a kill would be a power loss. It
# needs
# root, and an engine that sees this host's mounts, which is looked at after the start. Nodes need
# neither privileges nor devices, and their images nothing.
def disk_obstacle() -> str | None:
    """Why this host's containers can have no such disks, or None. Builds nothing."""
    if not is_root():
        return "only root mounts disks for containers"
    return why_not()


async def place_of_volume(engine: Engine, volume: str, node: str) -> Path:
    """The directory of this host where the engine keeps a volume. Raises BootFailed."""
    found = await engine.call(lambda api: api.inspect_volume(volume))
    place = Path(found["Mountpoint"])
    if not await asyncio.to_thread(place.is_dir):
        raise BootFailed(
            f"the engine keeps the volume of {node} in {place}, which is not on this host:"
            " power and disk faults need an engine on this one"
        )
    return place


def check_mounted(node: str, pid: int, directory: str) -> None:
    """Whether a container really lies on its disk. Raises BootFailed."""
    try:
        table = Path(f"/proc/{pid}/mounts").read_text()
    except OSError:
        return  # it has ended already, which is the node's own affair
    if not any(line.split()[1:3] == [directory, "fuse.shalott"] for line in table.splitlines()):
        raise BootFailed(
            f"the engine does not see what is mounted on this host: {node} would have an"
            " ordinary disk, without power and disk faults"
        )
