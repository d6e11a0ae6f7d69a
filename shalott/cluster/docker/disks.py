"""Disks that fail and lose their power, under the volumes of a run's containers.

The file system of cluster/disks runs on the host and is mounted over the volume's own directory
before the container starts; the engine binds what it finds there. So it outlives its container, as
a machine's page cache outlives a process: in the container, a kill would be a power loss. It needs
root, and an engine that sees this host's mounts, which is looked at after the start. Nodes need
neither privileges nor devices, and their images nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from shalott.cluster.disks.build import why_not
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.namespaces import is_root
from shalott.core.errors import BootFailed


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
