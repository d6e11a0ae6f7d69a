"""Containers that are short of something: limits of the kernel, set from the host.

Nothing is needed inside, and the engine is not asked. So it takes root and an engine on this host.
A /tmp that can be filled is a small one in memory: nodes are started with it only if a fault of
the plan fills it. What fills it, and what forks, ends with the container or the harness.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from shalott.cluster import forking
from shalott.cluster.capabilities import Capability
from shalott.cluster.cgroups import groups_of, usable_controllers
from shalott.cluster.docker.namespaces import is_root
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.kernel_limits import Lack, Life, Limits, Lives
from shalott.cluster.nodes import NodeUsage, Shortage
from shalott.core.errors import HarnessError

TMP = "/tmp"
SMALL_TMP: Mapping[str, str] = {TMP: "size=16m,mode=1777"}
# The capability for each controller of the kernel's groups.
_OF_CONTROLLERS: Mapping[str, Capability] = {
    "cpu": "limit-cpu",
    "memory": "limit-memory",
    "pids": "limit-processes",
}


def usage_of(pid: int) -> NodeUsage | None:
    """Of the container whose first process this is; None: it has ended, or the engine is
    elsewhere."""
    try:
        groups = groups_of(pid)
        return NodeUsage(life=pid, cpu_s=groups.cpu_used_s(), memory_bytes=groups.memory_in_use())
    except (HarnessError, OSError, ValueError, KeyError):
        return None


def resource_capabilities(small_tmp: bool) -> frozenset[Capability]:
    """What containers of this host can be made short of."""
    if not is_root():
        return frozenset()
    own: set[Capability] = {"limit-files", "stop-process"}
    own |= {_OF_CONTROLLERS[each] for each in usable_controllers()}
    return frozenset(own | ({"fill-tmp"} if small_tmp else set()))


class ContainerResources:
    """See ``Resources``."""

    def __init__(self, run: ContainerNodes, *, small_tmp: bool) -> None:
        self.capabilities = resource_capabilities(small_tmp)
        self._run = run
        self._lives = Lives(_begin)

    async def set(self, node: str, shortage: Shortage) -> None:
        pid = await self._run.pid_of(node)
        await self._lives.set(node, Lack(**msgspec.structs.asdict(shortage)), pid)

    async def seen(self, node: str) -> Shortage:
        seen = await self._lives.seen(node, await self._run.pid_of(node))
        return msgspec.convert(seen, Shortage, from_attributes=True)

    async def started(self, node: str, pid: int | None) -> None:
        """A new process lacks what the node is to lack."""
        await self._lives.started(node, pid)

    async def stopping(self, node: str) -> None:
        """A process that stands still could not end by itself."""
        await self._lives.stopping(node)

    async def heal(self) -> None:
        await self._lives.heal({node: await self._run.pid_of(node) for node in self._run.nodes})

    async def close(self) -> None:
        await self._lives.close()


def _begin(pid: int, limits: Limits) -> Life:
    command = [sys.executable, "-I", "-S", str(forking.__file__)]
    return Life(pid, limits, groups_of(pid), command, lambda: _tmp(pid))


def _tmp(pid: int) -> Path:
    """Raises HarnessError: it is the host's disk that would be filled."""
    mounts = Path(f"/proc/{pid}/mounts").read_text().splitlines()
    if not any(line.split()[1:3] == [TMP, "tmpfs"] for line in mounts):
        raise HarnessError(f"process {pid} has no small {TMP} of its own: the host's is not filled")
    return Path(f"/proc/{pid}/root{TMP}")
