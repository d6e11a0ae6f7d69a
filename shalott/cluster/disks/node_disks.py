"""The disks of one run's nodes: however each is reached, and those mounted on this host."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from shalott.cluster.capabilities import Can, refusal
from shalott.cluster.disks.control import DiskStatus, FaultDisk, Lost, PowerLoss
from shalott.cluster.disks.mounting import DiskMount, DiskOptions, make_place, mount_disk
from shalott.cluster.nodes import DiskFaults, HelperEnd
from shalott.cluster.owner import this_process
from shalott.core.errors import BootFailed, HarnessError

log = logging.getLogger("shalott.cluster.disks")

REPORT = "disk.json"


class DiskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ``disk.json`` of a node says: its disk at the end, and what each power loss took."""

    status: DiskStatus
    losses: list[Lost]


class NodeDisks:
    """See ``Disks``. Those of one run's nodes, however each is reached; none is there at first.

    ``seed``: of what power losses take. None: the nodes' data lies on no disk of ours, so that each
    fault is refused. ``power_loss``: what becomes of unsynced data.
    """

    def __init__(
        self, backend: str, capabilities: Can, seed: int | None, power_loss: PowerLoss
    ) -> None:
        self.capabilities = capabilities
        self.is_wanted = seed is not None
        self._seed = seed or 0
        self._backend = backend
        self._power_loss = power_loss
        self._disks: dict[str, FaultDisk] = {}
        self._losses: dict[str, list[Lost]] = {}

    def seed_of(self, number: int) -> int:
        """The seed of one node's disk."""
        return self._seed * 1_000 + number

    def add(self, node: str, disk: FaultDisk) -> None:
        self._disks[node] = disk
        self._losses[node] = []

    async def close(self) -> None:
        self._disks.clear()

    def forget_losses(self) -> None:
        """What was lost until now was another run's."""
        self._losses = {node: [] for node in self._losses}

    def check(self, what: str = "disks") -> None:
        """Raise MissingCapability if there is no disk of ours."""
        if not self._disks:
            raise refusal(self._backend, what)

    async def power(self, node: str) -> None:
        """Lose what is not synced. The node's processes must be dead."""
        await self._lose(node, self._power_loss)

    async def lose_unsynced(self, node: str) -> Mapping[str, int]:
        self.check("power")
        lost = await self._lose(node, "all")
        return {"files": lost.lost_files, "bytes": lost.lost_bytes, "names": lost.lost_names}

    async def _lose(self, node: str, loss: PowerLoss) -> Lost:
        lost = (await self._disks[node].power(loss)).lost
        self._losses[node].append(lost)
        log.info(
            "%s lost its power: %d bytes of %d files, and %d operations on names, were not synced"
            " and are gone",
            node,
            lost.lost_bytes,
            lost.lost_files,
            lost.lost_names,
        )
        return lost

    async def set(self, node: str, faults: DiskFaults | None) -> None:
        self.check()
        others = [disk for name, disk in self._disks.items() if name != node]
        await self._disks[node].set_faults(faults, others=others)

    async def faults(self, node: str) -> DiskFaults:
        self.check()
        return await self._disks[node].faults()

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        self.check()
        return await self._disks[node].await_syncs(count, timeout_ms)

    async def heal(self) -> None:
        await asyncio.gather(*(disk.heal() for disk in self._disks.values()))

    async def wipe(self, node: str) -> None:
        await self._disks[node].wipe()

    async def report(self, node: str, into: Path) -> None:
        """Write ``disk.json``; nothing of a disk whose server is gone."""
        if node not in self._disks:
            return
        try:
            status = await self._disks[node].status()
        except HarnessError as error:
            log.warning("%s", error)
            return
        said = DiskReport(status=status, losses=self._losses[node])
        text = msgspec.json.format(msgspec.json.encode(said)) + b"\n"
        await asyncio.to_thread(_write, into / REPORT, text)


class MountedDisks(NodeDisks):
    """Disks that are mounted on this host, each over the directory that it backs."""

    def __init__(
        self, backend: str, capabilities: Can, seed: int | None, power_loss: PowerLoss
    ) -> None:
        super().__init__(backend, capabilities, seed, power_loss)
        self.on_end: Callable[[HelperEnd], None] = _log_end
        self._mounts: list[DiskMount] = []
        self._watching: list[asyncio.Task[None]] = []  # one for each server
        self._place: Path | None = None

    async def mount(self, node: str, number: int, directory: Path, options: DiskOptions) -> None:
        """Put a disk under a node's data. Raises BootFailed."""
        owner = this_process()
        if self._place is None:
            self._place = make_place(owner)
        try:
            mount = await mount_disk(
                directory,
                directory,
                self._place / f"{number}",
                node=node,
                seed=self.seed_of(number),
                owner=owner,
                options=options,
            )
        except HarnessError as error:
            raise BootFailed(str(error)) from error
        self._mounts.append(mount)
        self._watching.append(asyncio.create_task(self._watch(node, mount)))
        self.add(node, mount.disk)

    async def _watch(self, node: str, mount: DiskMount) -> None:
        code = await mount.server.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        reason = f"the process behind the disk of {node} ended ({how})"
        self.on_end(HelperEnd(helper="file system", node=node, reason=reason))

    async def close(self) -> None:
        """Abandon them: what still uses them meets errors."""
        for watch in self._watching:
            watch.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        self._watching.clear()
        await asyncio.gather(*(mount.abandon() for mount in self._mounts))
        self._mounts.clear()
        await super().close()
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)
            self._place = None


def _log_end(ended: HelperEnd) -> None:
    log.error("%s", ended.reason)


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
