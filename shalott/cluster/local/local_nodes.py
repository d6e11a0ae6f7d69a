"""The parts of the local world: processes of this host, links through relays, plain directories."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shalott.cluster.capabilities import WORLDS, Can, refusal
from shalott.cluster.cut_counts import LinkCounts
from shalott.cluster.disks.node_disks import MountedDisks
from shalott.cluster.local.processes import NodeProcess, Program, launch, run_to_end
from shalott.cluster.local.relay_link import RelayProcess
from shalott.cluster.local.sweep import StartedProcess
from shalott.cluster.node_files import read_from
from shalott.cluster.nodes import CommandResult, Link, LinkShape, NodeExit, NodeSpec, NodeStatus
from shalott.cluster.parts import StatelessPart
from shalott.cluster.stalls import Stall
from shalott.core.errors import HarnessError

PROJECT = Path(__file__).parents[3]  # so that nodes find the broker also when it isn't installed


class LocalNodes:
    """The nodes of one run as files: where each has its own, and what runs there."""

    def __init__(self, nodes: Sequence[str], directory: Path) -> None:
        self.nodes = tuple(nodes)
        self.directory = directory
        self.specs: dict[str, NodeSpec] = {}

    def config_dir(self, node: str) -> Path:
        return self.directory / node / "config"

    def data_dir(self, node: str) -> Path:
        return self.directory / node / "data"

    def output(self, node: str) -> Path:
        return self.directory / node / "output.log"

    def make_directories(self) -> None:
        for node in self.nodes:
            for path in (self.config_dir(node), self.data_dir(node)):
                path.mkdir(parents=True, exist_ok=True)

    def spec(self, node: str) -> NodeSpec:
        if node not in self.specs:
            raise HarnessError(f"{node} is not booted")
        return self.specs[node]

    def write(self, spec: NodeSpec) -> None:
        """Put a node's files in its place."""
        self.specs[spec.name] = spec
        for name, text in spec.files.items():
            path = self.config_dir(spec.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def program(self, node: str, command: Sequence[str]) -> Program:
        """What runs a command in the node's world."""
        return Program(
            command=[self._filled(node, word) for word in command],
            environment=self._environment(node),
            directory=self.data_dir(node),
            output=self.output(node),
        )

    def _filled(self, node: str, text: str) -> str:
        filled = text.replace("{config}", str(self.config_dir(node)))
        return filled.replace("{data}", str(self.data_dir(node))).replace(
            "{python}", sys.executable
        )

    def _environment(self, node: str) -> Mapping[str, str]:
        own = {k: self._filled(node, v) for k, v in self.spec(node).environment.items()}
        path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
        return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **own}


class LocalLinks:
    """See ``Links`` and ``CarriesTraffic``."""

    capabilities = WORLDS["local"]["links"]

    def __init__(self, run: LocalNodes, relays: RelayProcess) -> None:
        self._nodes = run.nodes
        self._relays = relays
        self._counts = LinkCounts()
        self._dark: dict[str, None] = {}  # nodes without power
        self.are_alive: Callable[[Link], bool] = lambda link: False  # both of its ends

    async def cut(self, links: Sequence[Link]) -> None:
        self._counts.cut(links)
        await self._apply_cuts()

    async def mend(self, links: Sequence[Link]) -> None:
        self._counts.mend(links)
        await self._apply_cuts()

    async def set_power(self, node: str, *, is_on: bool) -> None:
        """A node without power is heard no more: its relays say nothing of its end."""
        if is_on and node not in self._dark:
            return
        if is_on:
            del self._dark[node]
        else:
            self._dark[node] = None
        await self._apply_cuts()

    def forget_power(self) -> None:
        """All nodes have ended, and have power when they start."""
        self._dark.clear()

    async def _apply_cuts(self) -> None:
        pairs = [(a, b) for a in self._nodes for b in self._nodes if a != b]
        dark = [link for link in pairs if any(node in self._dark for node in link)]
        await self._relays.cut(tuple(dict.fromkeys((*self._counts.cut_links(), *dark))))

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        self._relays.tell_stalls(tell)

    async def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        delay_ms, rate_bytes_s = shape.delay_ms, shape.rate_bytes_s
        if shape.loss:
            raise refusal("local", "loss")
        if shape != LinkShape(delay_ms=delay_ms, rate_bytes_s=rate_bytes_s):
            raise refusal("local", "packets")
        await self._relays.shape((source, destination), delay_ms / 1000, rate_bytes_s)

    async def shape_of(self, source: str, destination: str) -> LinkShape:
        return await self._relays.shape_of((source, destination))

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        if not self.are_alive((source, destination)):
            return False
        return await self._relays.probe(source, destination, timeout_ms)

    async def heal(self) -> None:
        self._counts.clear()
        await self._apply_cuts()
        await self._relays.restore_shapes()

    async def close(self) -> None:
        self._counts.clear()
        self._dark.clear()
        await self._relays.close()


class LocalProcesses:
    """See ``Processes``. ``on_start``: called when a process was started."""

    def __init__(
        self,
        run: LocalNodes,
        links: LocalLinks,
        disks: MountedDisks,
        *,
        capabilities: Can,
        on_exit: Callable[[NodeExit], None],
    ) -> None:
        self.capabilities = capabilities
        self.on_start: Callable[[], None] = lambda: None
        self._run = run
        self._links = links
        links.are_alive = self._are_alive
        self._disks = disks
        self._on_exit = on_exit
        self._processes: dict[str, NodeProcess] = {}
        self._watching: dict[asyncio.Task[None], None] = {}  # one for each process that runs

    async def start(self, node: str) -> None:
        running = self._processes.get(node)
        if running is not None and running.is_alive:
            return
        await self._links.set_power(node, is_on=True)
        process = await launch(self._run.program(node, self._run.spec(node).command))
        self._processes[node] = process
        self.on_start()
        watch = asyncio.create_task(self._watch(node, process))
        self._watching[watch] = None
        watch.add_done_callback(self._watching.pop)

    async def _watch(self, node: str, process: NodeProcess) -> None:
        status = await process.wait()
        if not process.end_asked:
            self._on_exit(NodeExit(node=node, exit_code=status.exit_code))

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        await self._process(node).stop(timeout_ms)

    async def kill(self, node: str) -> None:
        await self._process(node).kill()

    async def power_off(self, node: str) -> None:
        self._disks.check("power")
        await self._links.set_power(node, is_on=False)
        await self._process(node).kill()
        await self._disks.power(node)

    async def pause(self, node: str) -> None:
        await self._process(node).pause()

    async def resume(self, node: str) -> None:
        self._process(node).resume()

    async def status(self, node: str) -> NodeStatus:
        process = self._processes.get(node)
        return NodeStatus(state="absent") if process is None else process.status()

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        return await run_to_end(self._run.program(node, command), timeout_ms)

    def started(self) -> tuple[StartedProcess, ...]:
        """Those that run."""
        return tuple(
            StartedProcess(node, process.pid, process.start_ticks)
            for node, process in self._processes.items()
            if process.is_alive
        )

    def _are_alive(self, link: Link) -> bool:
        return all(self._process(node).is_alive for node in link)

    def _process(self, node: str) -> NodeProcess:
        if node not in self._processes:
            raise HarnessError(f"{node} was never started")
        return self._processes[node]

    async def heal(self) -> None:
        for process in self._processes.values():
            if process.paused:
                process.resume()

    async def forget(self) -> None:
        """All have ended: wait until that was told."""
        await asyncio.gather(*self._watching)
        self._links.forget_power()

    async def close(self) -> None:
        await asyncio.gather(*(process.kill() for process in self._processes.values()))
        await asyncio.gather(*self._watching)
        self._processes.clear()


class LocalFiles(StatelessPart):
    """See ``Files`` and ``ReadsDataFiles``."""

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
