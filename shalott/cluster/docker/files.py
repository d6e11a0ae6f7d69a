"""What nodes write in their containers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.disks.node_disks import MountedDisks
from shalott.cluster.docker import containers
from shalott.cluster.docker.containers import Machine
from shalott.cluster.docker.nodes import ContainerNodes, EntersNodes
from shalott.cluster.node_files import read_as_process, tail
from shalott.cluster.parts import StatelessPart
from shalott.core.errors import HarnessError


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
        pid, place = self._run.pids.get(node), f"{self._run.machine(node).data}/{path}"
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
