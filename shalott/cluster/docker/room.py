"""Disks that run full where no disk of ours can be had: no root, no FUSE, an engine elsewhere.

A plan whose only disk fault is ``disk-full`` has its volumes in memory there, with a bound of their
own: the host's disk is never filled. A container of the base image keeps each volume, which would
be empty else when its node ends, and takes what room there is, as often as the node frees some.
"""

from __future__ import annotations

from collections.abc import Mapping

import docker

from shalott.cluster.capabilities import Can, refusal
from shalott.cluster.docker import containers
from shalott.cluster.docker.containers import DATA_DIR, Machine
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.nodes import SOUND_DISK, DiskFaults
from shalott.core.errors import HarnessError

ROOM: Mapping[str, str] = {"type": "tmpfs", "device": "tmpfs", "o": "size=256m"}
CAN: Can = frozenset({"disk-full"})
FILLER = f"{DATA_DIR}/.shalott-takes-all-room"
MARK = "/run/full"  # while it is there, in the keeper
KEEP = f"""while :; do
  if [ -e {MARK} ]; then cat /dev/zero >> {FILLER} 2>/dev/null; else rm -f {FILLER}; fi
  sleep 0.05
done"""
FULL, SOUND = f"touch {MARK}", f"rm -f {MARK}"
LOOK = f"[ -e {FILLER} ] && stat -f -c %a {DATA_DIR}"
AWAIT_FULL = f'until [ "$({LOOK})" = 0 ]; do sleep 0.02; done'
AWAIT_SOUND = f"while [ -e {FILLER} ]; do sleep 0.02; done"


class VolumeRoom:
    """See ``Disks``; of those that can be full, and nothing else."""

    capabilities = CAN

    def __init__(self, run: ContainerNodes) -> None:
        self._run = run

    async def set(self, node: str, faults: DiskFaults | None) -> None:
        wanted = faults or SOUND_DISK
        if wanted != DiskFaults(full=wanted.full):
            raise refusal("docker", "disks")
        steps = (FULL, AWAIT_FULL) if wanted.full else (SOUND, AWAIT_SOUND)
        for step in steps:
            await self._ask(node, step)

    async def faults(self, node: str) -> DiskFaults:
        left = await self._ask(node, LOOK, fails=True)
        return DiskFaults(full=left.strip() == "0")

    async def lose_unsynced(self, node: str) -> Mapping[str, int]:
        raise refusal("docker", "power")

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        raise refusal("docker", "disks")

    async def heal(self) -> None:
        for node, machine in self._run.machines.items():
            if machine.room:
                await self.set(node, None)

    async def close(self) -> None:
        """The keepers are removed with the rest of the run."""

    async def _ask(self, node: str, script: str, *, fails: bool = False) -> str:
        machine = self._run.machine(node)
        if not machine.room:
            raise refusal("docker", "disks")
        name, words = keeper_of(machine), ["timeout", "10", "sh", "-c", script]
        done = await self._run.engine.call(lambda api: containers.execute(api, name, words))
        if not done.is_whole or (done.exit_code != 0 and not fails):
            raise HarnessError(f"the room of {node} can't be changed: {done.output.strip()}")
        return done.output


def keeper_of(machine: Machine) -> str:
    return f"{machine.name}-room"


def keep(api: docker.APIClient, machine: Machine) -> None:
    """Start what holds a node's volume. Blocks."""
    api.start(containers.create_beside(api, machine, ["sh", "-c", KEEP], keeper_of(machine)))
