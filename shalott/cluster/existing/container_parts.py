"""The parts of containers that others made which are not those of our own containers: processes
whose every loss is written down first, files that are theirs, disks that have no file system of
ours under them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import tarfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath

import docker
import docker.errors

from shalott.cluster.capabilities import WORLDS, Can
from shalott.cluster.docker import containers
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.docker.processes import ContainerProcesses
from shalott.cluster.docker.resources import ContainerResources
from shalott.cluster.existing.guard import Guard
from shalott.cluster.existing.ledger import Container, Noted, data_of
from shalott.cluster.filling import FILLER, empty, fill, is_full
from shalott.cluster.node_files import DirectoriesHere, unpack
from shalott.cluster.nodes import PLENTY, CommandResult, NodeStatus, Shortage
from shalott.cluster.parts import StatelessPart
from shalott.core.errors import HarnessError, MissingCapability
from shalott.core.plan import ExistingPlan

REFILL_S = 0.1
NEVER_WIPED = "the data of a node that others made is never wiped"


class GuardedProcesses:
    """See ``Processes``. The guardian starts what was stopped, and resumes what was paused."""

    def __init__(self, run: ContainerNodes, inner: ContainerProcesses, guard: Guard) -> None:
        self.capabilities: Can = WORLDS["existing"]["processes"]
        self._run, self._inner, self._guard = run, inner, guard

    def listen(self) -> None:
        self._inner.listen()

    async def start(self, node: str) -> None:
        await self._inner.start(node)
        await self._note("down", node, False)

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        await self._note("down", node, True)
        await self._inner.stop(node, timeout_ms)

    async def kill(self, node: str) -> None:
        await self._note("down", node, True)
        await self._inner.kill(node)

    async def power_off(self, node: str) -> None:
        raise MissingCapability("the power of a node that others made can't be cut")

    async def pause(self, node: str) -> None:
        await self._note("paused", node, True)
        await self._inner.pause(node)

    async def resume(self, node: str) -> None:
        await self._inner.resume(node)
        await self._note("paused", node, False)

    async def _note(self, what: Noted, node: str, is_so: bool) -> None:
        identity = self._run.machine(node).name
        await self._guard.note(lambda ledger: ledger.noted(what, identity, is_so))

    async def status(self, node: str) -> NodeStatus:
        return await self._inner.status(node)

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        return await self._inner.run_command(node, command, timeout_ms)

    async def heal(self) -> None:
        await self._inner.heal()

    async def close(self) -> None:
        """Start what the run has stopped: the others stand as they stood."""
        for identity in self._guard.ledger.down:
            with contextlib.suppress(HarnessError):  # ``undo`` tries it again, and says why not
                await self.start(self._run.others[identity])
        await self._inner.close()


class GuardedResources:
    """See ``Resources``. The guardian gives back what was taken."""

    def __init__(self, run: ContainerNodes, inner: ContainerResources, guard: Guard) -> None:
        self.capabilities: Can = inner.capabilities & WORLDS["existing"]["resources"]
        self._run, self._inner, self._guard = run, inner, guard

    async def set(self, node: str, shortage: Shortage) -> None:
        if shortage != PLENTY:
            await self._note(node, True)
        await self._inner.set(node, shortage)
        if shortage == PLENTY:
            await self._note(node, False)

    async def _note(self, node: str, is_so: bool) -> None:
        identity = self._run.machine(node).name
        await self._guard.note(lambda ledger: ledger.noted("short", identity, is_so))

    async def seen(self, node: str) -> Shortage:
        return await self._inner.seen(node)

    async def heal(self) -> None:
        await self._inner.heal()
        for identity in self._guard.ledger.short:
            await self._note(self._run.others[identity], False)

    async def close(self) -> None:
        await self._inner.close()


class ForeignFiles(DirectoriesHere, StatelessPart):
    """See ``Files``, ``ReadsDataFiles`` and ``ChangesDataFiles``: what the inventory names, of what
    was written since the run began."""

    capabilities = WORLDS["existing"]["files"]

    def __init__(self, run: ContainerNodes, plan: ExistingPlan) -> None:
        self._run, self._plan = run, plan
        self._begun: dict[tuple[str, str], int] = {}  # sizes of logs by node and path

    async def wipe(self, node: str) -> None:
        raise MissingCapability(NEVER_WIPED)

    async def place_of(self, node: str) -> Path:
        identity, data = self._run.machine(node).name, self._plan.nodes[node].data
        seen = Container(node=node, id=identity, data=data)
        place = await data_of(self._run.engine, seen) if data else None
        if place is None:
            raise HarnessError(f"the data of {node} can't be seen from here now")
        return place

    def spared(self, node: str) -> Sequence[str]:
        own = self._plan.nodes[node]
        return (*own.collect, *below(own.data, own.logs), FILLER)

    async def begin(self) -> None:
        """From now on logs are the run's."""
        for node in self._run.machines:
            for path in self._plan.nodes[node].logs:
                self._begun[node, path] = len(await self._content(node, path))

    async def read(self, node: str, path: str, offset: int) -> bytes:
        own = self._plan.nodes[node]
        if not own.data:
            raise HarnessError(f"the inventory does not say where the data of {node} is (data)")
        return (await self._content(node, f"{own.data}/{path}"))[offset:]

    async def _content(self, node: str, path: str) -> bytes:
        """b"" if there is no such file."""
        name = self._run.machine(node).name
        archive = await self._run.engine.call(lambda api: _archive(api, name, path))
        if archive is None:
            return b""
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            file = next((each for each in opened if each.isreg()), None)
            content = opened.extractfile(file) if file is not None else None
            return content.read() if content is not None else b""

    async def output(self, node: str, lines: int = 20) -> str:
        machine = self._run.machine(node)
        return await self._run.engine.call(lambda api: containers.last_lines(api, machine, lines))

    async def collect(self, into: Path) -> None:
        for node, machine in self._run.machines.items():
            own, place = self._plan.nodes[node], into / node
            await self._run.engine.call(partial(containers.collect, machine=machine, into=place))
            for path in own.logs:
                begun = self._begun.get((node, path), 0)
                content = await self._content(node, path)
                (place / PurePosixPath(path).name).write_bytes(content[begun:])
            for path in own.collect:
                at = f"{own.data}/{path}"
                archive = await self._run.engine.call(partial(_archive, name=machine.name, path=at))
                if archive is not None:
                    (place / path).parent.mkdir(parents=True, exist_ok=True)
                    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
                        unpack(opened, (place / path).parent)


def below(directory: str, paths: Sequence[str]) -> list[str]:
    """Those of the paths that lie there, by their places there."""
    first = f"{directory.rstrip('/')}/"
    return [path.removeprefix(first) for path in paths if path.startswith(first)]


def _archive(api: docker.APIClient, name: str, path: str) -> bytes | None:
    """None if there is nothing. Blocks."""
    try:
        chunks, _ = api.get_archive(name, path)
    except docker.errors.NotFound:
        return None
    return b"".join(chunks)


class FilledContainers:
    """See ``FillsDirectories``."""

    def __init__(self, run: ContainerNodes, guard: Guard) -> None:
        self._run, self._guard = run, guard
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def fill(self, node: str) -> None:
        seen = self._seen(node)
        await self._guard.note(lambda ledger: ledger.noted("filled", seen.id, True))
        await asyncio.to_thread(fill, await self._place(seen))
        if node not in self._tasks:
            self._tasks[node] = asyncio.create_task(self._keep_full(seen))

    async def empty(self, node: str) -> None:
        seen, task = self._seen(node), self._tasks.pop(node, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(empty, await self._place(seen))
        await self._guard.note(lambda ledger: ledger.noted("filled", seen.id, False))

    async def is_full(self, node: str) -> bool:
        return await asyncio.to_thread(is_full, await self._place(self._seen(node)))

    async def close(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_full(self, seen: Container) -> None:
        while True:
            await asyncio.sleep(REFILL_S)
            with contextlib.suppress(HarnessError, OSError):  # a node that is just down
                place = await self._place(seen)
                if not await asyncio.to_thread(is_full, place):
                    await asyncio.to_thread(fill, place)

    def _seen(self, node: str) -> Container:
        return self._guard.ledger.of(self._run.machine(node).name)

    async def _place(self, seen: Container) -> Path:
        place = await data_of(self._run.engine, seen)
        if place is None:
            raise HarnessError(f"the data of {seen.node} can't be seen from here now")
        return place
