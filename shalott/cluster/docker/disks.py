"""Disks that fail and lose their power, under the volumes of a run's containers.

The file system of cluster/disks runs on the host and is mounted over the volume's own directory
before the container starts; the engine binds what it finds there. So it outlives its container, as
a machine's page cache outlives a process: in the container, a kill would be a power loss. It needs
root, and an engine that sees this host's mounts, which is looked at after the start. Nodes need
neither privileges nor devices, and their images nothing.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import docker

from shalott.cluster.disks.build import why_not
from shalott.cluster.disks.control import PowerLoss
from shalott.cluster.disks.mounting import DiskMount, DiskOptions, make_place, mount_disk
from shalott.cluster.disks.of_nodes import NodeDisks
from shalott.cluster.docker.programs import is_root
from shalott.cluster.owner import Owner
from shalott.core.errors import BootFailed, HarnessError


def disk_obstacle() -> str | None:
    """Why this host's containers can have no such disks, or None. Builds nothing."""
    if not is_root():
        return "only root mounts disks for containers"
    return why_not()


class ContainerDisks:
    """The disks of one run's containers; none is mounted yet. ``seed``: of what power losses
    take; ``disks``: their faults, by node."""

    def __init__(
        self, owner: Owner, seed: int, options: DiskOptions, power_loss: PowerLoss
    ) -> None:
        self.disks = NodeDisks(power_loss)
        self._owner = owner
        self._seed = seed
        self._options = options
        self._mounts: list[DiskMount] = []
        self._directory: Path | None = None

    async def mount(
        self, node: str, volume: Mapping[str, str], number: int, evidence: Sequence[str]
    ) -> None:
        """Over a volume's directory, as the engine describes it. Raises BootFailed.

        ``evidence``: what ``collect`` will bring.
        """
        place = Path(volume["Mountpoint"])
        if not await asyncio.to_thread(place.is_dir):
            raise BootFailed(
                f"the engine keeps the volume of {node} in {place}, which is not on this host:"
                " power and disk faults need an engine on this one"
            )
        if self._directory is None:
            self._directory = make_place(self._owner)
        try:
            mount = await mount_disk(
                place,
                place,
                self._directory / f"{number}",
                node=node,
                seed=self._seed * 1_000 + number,
                owner=self._owner,
                options=replace(self._options, evidence=tuple(evidence)),
            )
        except HarnessError as error:
            raise BootFailed(str(error)) from error
        self._mounts.append(mount)
        self.disks.add(node, mount.disk)

    def check(self, node: str, pid: int | None, directory: str) -> None:
        """Whether the container really lies on it. Raises BootFailed."""
        try:
            table = Path(f"/proc/{pid}/mounts").read_text()
        except OSError:
            return  # it has ended already, which is the node's own affair
        if not any(line.split()[1:3] == [directory, "fuse.shalott"] for line in table.splitlines()):
            raise BootFailed(
                f"the engine does not see what is mounted on this host: {node} would have an"
                " ordinary disk, without power and disk faults"
            )

    async def remove(self) -> None:
        """For good: what still uses them meets errors."""
        await asyncio.gather(*(mount.abandon() for mount in self._mounts))
        self._mounts.clear()
        self.disks.clear()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def find_volume(api: docker.APIClient, name: str) -> Mapping[str, str]:
    """What the engine knows of a volume. Blocks."""
    found: Mapping[str, str] = api.inspect_volume(name)
    return found
