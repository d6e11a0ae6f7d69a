"""Disks that fail and lose their power, over the data directories of a run's local nodes.

The file system of cluster/disks is mounted by this user: as root, or by fusermount3, which Debian
installs so that every user may.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from shalott.cluster.base import NodeSpec
from shalott.cluster.disks.control import PowerLoss
from shalott.cluster.disks.mounting import (
    DiskMount,
    DiskOptions,
    find_mounts,
    make_place,
    mount_disk,
    names_rule_for,
    remove_mount,
)
from shalott.cluster.disks.of_nodes import NodeDisks
from shalott.cluster.owner import this_process
from shalott.core.errors import BootFailed, HarnessError


class LocalDisks:
    """Of one run; none is mounted at first. ``nodes``: their faults, by node."""

    def __init__(self, power_loss: PowerLoss) -> None:
        self.nodes = NodeDisks(power_loss)
        self._mounts: list[DiskMount] = []
        self._place: Path | None = None

    async def mount(self, spec: NodeSpec, directory: Path, seed: int) -> None:
        """Over a node's data directory. Raises BootFailed."""
        owner = this_process()
        if self._place is None:
            self._place = make_place(owner)
        options = DiskOptions(names=names_rule_for(spec.image), evidence=tuple(spec.collect))
        try:
            mount = await mount_disk(
                directory,
                directory,
                self._place / f"{len(self._mounts)}",
                node=spec.name,
                seed=seed,
                owner=owner,
                options=options,
            )
        except HarnessError as error:
            raise BootFailed(str(error)) from error
        self._mounts.append(mount)
        self.nodes.add(spec.name, mount.disk)

    async def remove(self) -> None:
        """For good: what still uses them meets errors."""
        await asyncio.gather(*(mount.abandon() for mount in self._mounts))
        self._mounts.clear()
        self.nodes.clear()
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)
            self._place = None


async def unmount_below(directory: Path) -> None:
    """Whatever disk of ours lies below a directory, before that is removed."""
    for mount in find_mounts():
        if mount.mountpoint.is_relative_to(directory):
            await remove_mount(mount)
