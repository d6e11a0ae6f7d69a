"""What nodes write in their containers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.data_files import Place
from shalott.cluster.disks.node_disks import MountedDisks
from shalott.cluster.docker import containers
from shalott.cluster.docker.containers import DATA_DIR, Machine
from shalott.cluster.docker.disks import place_of_volume
from shalott.cluster.docker.namespaces import is_root
from shalott.cluster.docker.nodes import ContainerNodes, EntersNodes
from shalott.cluster.docker.volume_files import VolumeFiles
from shalott.cluster.node_files import DirectoriesHere, read_as_process, tail
from shalott.cluster.parts import StatelessPart
from shalott.core.errors import HarnessError


class ContainerFiles(DirectoriesHere, StatelessPart):
    """See ``Files``, ``ReadsDataFiles`` and ``ChangesDataFiles``: of volumes on this host as files,
    of others through a container."""

    capabilities = WORLDS["docker"]["files"]

    def __init__(self, run: ContainerNodes, links: EntersNodes, disks: MountedDisks) -> None:
        self._run = run
        self._links = links
        self._disks = disks
        self._is_near: bool | None = None  # whether this host can change what is on the volumes

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

    async def place_of(self, node: str) -> Path:
        return await place_of_volume(self._run.engine, self._run.machine(node).name, node)

    def spared(self, node: str) -> Sequence[str]:
        return self._run.machine(node).spec.collect

    async def find(self, node: str, pattern: str) -> Mapping[str, int]:
        far = await self._far(node)
        return await far.find(pattern) if far else await super().find(node, pattern)

    async def read_places(
        self, node: str, path: str, places: Sequence[tuple[int, int]]
    ) -> Sequence[bytes]:
        far = await self._far(node)
        if far:
            return await far.read_places(path, places)
        return await super().read_places(node, path, places)

    async def flip_bits(
        self, node: str, path: str, places: Sequence[Place]
    ) -> Sequence[tuple[int, int]]:
        far = await self._far(node)
        if far:
            return await far.flip_bits(path, places)
        return await super().flip_bits(node, path, places)

    async def cut_file(self, node: str, path: str, size: int) -> None:
        far = await self._far(node)
        await (far.cut_file(path, size) if far else super().cut_file(node, path, size))

    async def _far(self, node: str) -> VolumeFiles | None:
        """The way through a container, where it takes one."""
        if self._is_near is None:
            self._is_near = is_root() and await self._sees(node)
        return None if self._is_near else VolumeFiles(self._run.engine, self._run.machine(node))

    async def _sees(self, node: str) -> bool:
        try:
            await self.place_of(node)
        except HarnessError:
            return False
        return True

    async def output(self, node: str, lines: int = 20) -> str:
        machine = self._run.machine(node)
        return await self._run.engine.call(lambda api: containers.last_lines(api, machine, lines))

    async def collect(self, into: Path) -> None:
        async def collect_one(node: str, machine: Machine) -> None:
            past, place = self._run.past.get(node, ()), into / node
            await self._run.engine.call(lambda api: containers.collect(api, machine, place, past))
            await self._disks.report(node, into / node)

        await asyncio.gather(*(collect_one(*item) for item in self._run.machines.items()))
