"""A mounted disk as tests of the contract of disks use it: ``OsDisk`` on the mountpoint, so every
call is a system call, with the crashes and faults of ``SimDisk`` beside it.

One file system serves many disks, one after another: each begins wiped, healed, and with a seed of
its own. What asks the server runs on an event loop of its own, in a thread: a test's body calls it
as it calls SimDisk, without awaiting.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shalott.broker.base.disk import OsDisk, OsFile
from shalott.cluster.disks.build import why_not
from shalott.cluster.disks.control import DiskStatus, DurableFiles, FaultDisk, PowerLoss
from shalott.cluster.disks.mounting import DiskMount, DiskOptions, asking, mount_disk
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.owner import this_process

T = TypeVar("T")

CALL_WITHIN_S = 60


class MountWorld:
    """A file system mounted in a temporary directory, until ``close``. Skips the test where this
    machine can't mount, unless SHALOTT_REQUIRE_DOCKER says that it must."""

    def __init__(self, options: DiskOptions | None = None) -> None:
        reason = why_not()
        if reason is not None:
            if os.environ.get("SHALOTT_REQUIRE_DOCKER") == "1":
                pytest.fail(reason)
            pytest.skip(reason)
        self.directory = Path(tempfile.mkdtemp(prefix="shalott-disk-"))
        self.backing = self.directory / "backing"
        self.root = self.directory / "mount"
        self.socket = self.directory / "control"
        self.options = DiskOptions() if options is None else options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.backing.mkdir()
        self.root.mkdir()
        self.mounted = self.mount()

    def mount(self) -> DiskMount:
        self.mounted = self.run(
            mount_disk(
                self.backing,
                self.root,
                self.socket,
                node="n1",
                seed=1,
                owner=this_process(),
                options=self.options,
            )
        )
        return self.mounted

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(CALL_WITHIN_S)

    def unmount(self) -> None:
        self.run(self.mounted.unmount())

    def close(self) -> None:
        self.unmount()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self.directory)

    def fresh(self, seed: int) -> FaultDisk:
        """The same file system, as a new disk."""
        disk = FaultDisk(asking(self.socket), node="n1", seed=seed)
        self.run(disk.wipe())
        self.run(disk.heal())
        return disk


class MountedDisk:
    """broker.base.disk.Disk on a mount, and what SimDisk has beside it."""

    def __init__(self, world: MountWorld, seed: int, loss: PowerLoss = "torn") -> None:
        self.disk = world.fresh(seed)
        self._world = world
        self._loss: PowerLoss = loss
        self._os = OsDisk(world.root)
        self._files: list[OsFile] = []

    # -- Disk --------------------------------------------------------------------------------------

    async def open(self, path: str, *, create: bool) -> OsFile:
        file = await self._os.open(path, create=create)
        self._files.append(file)
        return file

    async def rename(self, source: str, target: str) -> None:
        await self._os.rename(source, target)

    async def remove(self, path: str) -> None:
        await self._os.remove(path)

    async def sync_dir(self, path: str) -> None:
        await self._os.sync_dir(path)

    async def listdir(self, path: str) -> list[str]:
        return await self._os.listdir(path)

    async def free_bytes(self) -> int:
        return await self._os.free_bytes()

    # -- crashes and faults ------------------------------------------------------------------------

    def kill(self) -> None:
        """What the kernel does for a program that died: it closes what was open."""
        for file in self._files:
            if not file._closed:
                file._closed = True
                os.close(file._descriptor)
        self._files.clear()

    def power_loss(self) -> None:
        self.kill()
        self._world.run(self.disk.power(self._loss))

    def set_faults(self, faults: DiskFaults | None) -> None:
        self._world.run(self.disk.set_faults(faults))

    async def close(self) -> None:
        self.kill()
        await self._os.close()

    # -- looking -----------------------------------------------------------------------------------

    def files(self) -> list[str]:
        root = self._world.root
        return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())

    def read_all(self, path: str) -> bytes:
        return (self._world.root / path).read_bytes()

    def status(self) -> DiskStatus:
        return self._world.run(self.disk.status())

    def durable_files(self) -> DurableFiles:
        return self._world.run(self.disk.durable_files())

    @property
    def rotten_bytes(self) -> Mapping[str, int]:
        return self.durable_files().rotten
