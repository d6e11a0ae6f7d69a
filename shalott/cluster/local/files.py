"""What local nodes write: plain directories."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.disks.node_disks import MountedDisks
from shalott.cluster.local.nodes import LocalNodes
from shalott.cluster.local.processes import LocalProcesses
from shalott.cluster.node_files import DirectoriesHere, read_from
from shalott.cluster.nodes import NodeSpec
from shalott.cluster.parts import StatelessPart
from shalott.core.errors import HarnessError


class LocalFiles(DirectoriesHere, StatelessPart):
    """See ``Files``, ``ReadsDataFiles`` and ``ChangesDataFiles``."""

    capabilities = WORLDS["local"]["files"]

    def __init__(self, run: LocalNodes, processes: LocalProcesses, disks: MountedDisks) -> None:
        self._run = run
        self._processes = processes
        self._disks = disks

    async def wipe(self, node: str) -> None:
        if (await self._processes.status(node)).state in ("running", "paused"):
            raise HarnessError(f"{node} runs: its data can't be wiped")
        if self._disks.is_wanted:
            await self._disks.wipe(node)
            return
        await asyncio.to_thread(shutil.rmtree, self._run.data_dir(node))
        self._run.make_directories()

    async def read(self, node: str, path: str, offset: int) -> bytes:
        return await asyncio.to_thread(read_from, self._run.data_dir(node) / path, offset)

    async def place_of(self, node: str) -> Path:
        return self._run.data_dir(node)

    def spared(self, node: str) -> Sequence[str]:
        return self._run.spec(node).collect

    async def output(self, node: str, lines: int = 20) -> str:
        return await asyncio.to_thread(_last_lines, self._run.output(node), lines)

    async def collect(self, into: Path) -> None:
        for node, spec in self._run.specs.items():
            await asyncio.to_thread(self._collect_node, node, spec, into / node)
            await self._disks.report(node, into / node)

    def _collect_node(self, node: str, spec: NodeSpec, into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        if self._run.output(node).is_file():
            shutil.copyfile(self._run.output(node), into / "output.log")
        for name in spec.collect:
            found, target = self._run.data_dir(node) / name, into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if found.is_dir():
                shutil.copytree(found, target, dirs_exist_ok=True)
            elif found.is_file():
                shutil.copyfile(found, target)


def _last_lines(path: Path, lines: int) -> str:
    if not path.is_file():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
