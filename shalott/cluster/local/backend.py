"""LocalCluster: one process a node on loopback, every inter-node link through a relay of ours.

No Docker, no root: for a developer's laptop, and the fallback of the docker backend. What the
kernel does to packets there, the relays do to bytes here (relay.py). Clients talk to the nodes
directly. Everything of a run is in one directory, and who runs in it is written down for
``sweep``.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shalott.cluster.base import (
    CommandResult,
    DiskFaults,
    Endpoint,
    LinkShape,
    NodeExit,
    NodeSpec,
    NodeStatus,
    System,
    Topology,
    ignore_exit,
)
from shalott.cluster.capabilities import MOST
from shalott.cluster.disks.build import why_not
from shalott.cluster.disks.control import PowerLoss
from shalott.cluster.disks.of_nodes import DISK_CAPABILITIES
from shalott.cluster.following import read_from
from shalott.cluster.links import Link, LinkCounts
from shalott.cluster.local.disks import LocalDisks
from shalott.cluster.local.ports import HOST, port_of, reserve_port
from shalott.cluster.local.processes import NodeProcess, Program, launch, run_to_end
from shalott.cluster.local.relaying import RelayProcess
from shalott.cluster.local.sweep import (
    MARK,
    RunState,
    StartedProcess,
    remove_directory,
    state_directory,
    sweep_local,
    write_state,
)
from shalott.cluster.owner import this_process
from shalott.cluster.refusals import refusal
from shalott.cluster.stalls import Stall
from shalott.core.errors import HarnessError

log = logging.getLogger("shalott.cluster.local")

PROJECT = Path(__file__).parents[3]  # so that nodes find the broker also when it isn't installed


class LocalCluster:
    """See ``cluster.base.Cluster``. Everything it writes is under ``work_dir``.

    ``disk_seed``, ``power_loss``: as DockerCluster's; without a seed the nodes' data lies in plain
    directories. A loss of power is silence for the other nodes; clients, which talk to nodes
    directly, see their connections reset.
    """

    backend = "local"

    def __init__(
        self,
        nodes: Sequence[str],
        run_id: str,
        work_dir: Path,
        *,
        disk_seed: int | None = None,
        power_loss: PowerLoss = "torn",
    ) -> None:
        self.nodes = tuple(nodes)
        self.capabilities = MOST["local"]
        if why_not() is not None:
            self.capabilities -= DISK_CAPABILITIES
        self._disk_seed = disk_seed
        self._disks = LocalDisks(power_loss)
        self._dark: dict[str, None] = {}  # nodes without power
        self._run_id = run_id
        self._token = hashlib.sha256(f"{run_id}\0{work_dir.absolute()}".encode()).hexdigest()[:16]
        self._directory = work_dir.absolute() / "local"
        self._state_path: Path | None = None
        self._specs: dict[str, NodeSpec] = {}
        self._listen: Mapping[str, Mapping[str, Endpoint]] = {}
        self._processes: dict[str, NodeProcess] = {}
        self._holders: dict[tuple[str, str], socket.socket] = {}  # (node, port) -> its reservation
        self._relays = RelayProcess(self.nodes)
        self._counts = LinkCounts()
        self.on_exit: Callable[[NodeExit], None] = ignore_exit
        self._watching: dict[asyncio.Task[None], None] = {}  # one for each process that runs

    # -- life
    # ----------------------------------------------------------------------------------------------

    async def boot(self, system: System) -> None:
        for sentence in await sweep_local():
            log.info("%s", sentence)
        self._state_path = state_directory() / f"{self._token}.json"
        self._write_state()
        for node in self.nodes:
            self._make_directories(node)
        for node in self.nodes:
            for port in system.ports:
                self._holders[node, port] = reserve_port()
        listen = {
            node: {port: self.endpoint(node, port) for port in system.ports} for node in self.nodes
        }
        await self._relays.start(self._directory / "relays.log")
        self._write_state()
        await self._relays.open(listen)
        self._listen = listen
        self._configure(system)
        if self._disk_seed is not None:
            for node, spec in self._specs.items():
                seed = self._disk_seed * 1_000 + self.nodes.index(node)
                await self._disks.mount(spec, self._data_dir(node), seed)
        await asyncio.gather(*(self.start(node) for node in self.nodes))

    def _configure(self, system: System) -> None:
        for spec in system.node_specs(self._topology(self._listen)):
            self._specs[spec.name] = spec
            for path, text in spec.files.items():
                _write_file(self._config_dir(spec.name) / path, text)

    async def clear(self) -> None:
        """See ``KeepsMachines``: relays, ports and directories stay."""
        await self.heal()
        await asyncio.gather(*(process.kill() for process in self._processes.values()))
        await asyncio.gather(*self._watching)
        self._dark.clear()
        await asyncio.gather(*(self.wipe(node) for node in self.nodes))
        self._disks.nodes.forget_losses()
        for node in self.nodes:
            await asyncio.to_thread(shutil.rmtree, self._config_dir(node))
            self._make_directories(node)
            self._output(node).unlink(missing_ok=True)

    async def boot_again(self, system: System) -> None:
        """See ``KeepsMachines``."""
        if dict.fromkeys(system.ports) != dict.fromkeys(port for _, port in self._holders):
            raise HarnessError(f"{system.name} wants other ports than the system before it")
        self._configure(system)
        await asyncio.gather(*(self.start(node) for node in self.nodes))

    def _make_directories(self, node: str) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / MARK).touch()
        for path in (self._config_dir(node), self._data_dir(node)):
            path.mkdir(parents=True, exist_ok=True)

    async def teardown(self) -> None:
        await asyncio.gather(*(process.kill() for process in self._processes.values()))
        await asyncio.gather(*self._watching)
        await self._disks.remove()
        await self._relays.close()
        for holder in self._holders.values():
            holder.close()
        self._holders.clear()
        self._processes.clear()
        self._specs.clear()
        self._counts.clear()
        self._dark.clear()
        remove_directory(self._directory)
        if self._state_path is not None:
            self._state_path.unlink(missing_ok=True)
            self._state_path = None

    def _write_state(self) -> None:
        if self._state_path is None:
            return
        started = tuple(
            StartedProcess(node, process.pid, process.start_ticks)
            for node, process in self._processes.items()
            if process.is_alive
        )
        relays = self._relays.identity
        state = RunState(
            run=self._run_id,
            owner=str(this_process()),
            directory=str(self._directory),
            processes=(*started, StartedProcess("relays", *relays)) if relays else started,
        )
        write_state(self._state_path, state)

    # -- processes
    # -----------------------------------------------------------------------------------------

    async def start(self, node: str) -> None:
        running = self._processes.get(node)
        if running is not None and running.is_alive:
            return
        if node in self._dark:
            del self._dark[node]
            await self._apply_cuts()
        process = await launch(self._program(node, self._spec(node).command))
        self._processes[node] = process
        self._write_state()
        watch = asyncio.create_task(self._watch(node, process))
        self._watching[watch] = None
        watch.add_done_callback(self._watching.pop)

    async def _watch(self, node: str, process: NodeProcess) -> None:
        status = await process.wait()
        if not process.end_asked:
            self.on_exit(NodeExit(node=node, exit_code=status.exit_code))

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        await self._process(node).stop(timeout_ms)

    async def kill(self, node: str) -> None:
        await self._process(node).kill()

    async def power_off(self, node: str) -> None:
        self._check_disks("power")
        self._dark[node] = None  # its relays say nothing of its end
        await self._apply_cuts()
        await self._process(node).kill()
        await self._disks.nodes.power(node)

    async def pause(self, node: str) -> None:
        await self._process(node).pause()

    async def resume(self, node: str) -> None:
        self._process(node).resume()

    async def wipe(self, node: str) -> None:
        if self._process(node).is_alive:
            raise HarnessError(f"{node} runs: its data can't be wiped")
        if self._disk_seed is not None:
            await self._disks.nodes.wipe(node)
            return
        await asyncio.to_thread(shutil.rmtree, self._data_dir(node))
        self._make_directories(node)

    async def status(self, node: str) -> NodeStatus:
        process = self._processes.get(node)
        return NodeStatus(state="absent") if process is None else process.status()

    # -- links
    # ---------------------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link]) -> None:
        self._counts.cut(links)
        await self._apply_cuts()

    async def mend(self, links: Sequence[Link]) -> None:
        self._counts.mend(links)
        await self._apply_cuts()

    async def _apply_cuts(self) -> None:
        pairs = [(a, b) for a in self.nodes for b in self.nodes if a != b]
        dark = [link for link in pairs if any(node in self._dark for node in link)]
        await self._relays.cut(tuple(dict.fromkeys((*self._counts.cut_links(), *dark))))

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        """See ``CarriesTraffic``."""
        self._relays.tell_stalls(tell)

    async def shape(
        self,
        source: str,
        destination: str,
        *,
        delay_ms: float = 0,
        rate_bytes_s: int = 0,
        loss: float = 0,
    ) -> None:
        if loss:
            raise refusal(self.backend, "loss")
        await self._relays.shape((source, destination), delay_ms / 1000, rate_bytes_s)

    async def link_shape(self, source: str, destination: str) -> LinkShape:
        return await self._relays.shape_of((source, destination))

    async def heal(self) -> None:
        self._counts.clear()
        for process in self._processes.values():
            if process.paused:
                process.resume()
        await self._apply_cuts()
        await self._relays.restore_shapes()
        await self._disks.nodes.heal()

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        if not (self._process(source).is_alive and self._process(destination).is_alive):
            return False
        return await self._relays.probe(source, destination, timeout_ms)

    # -- disks, and what only other worlds can do
    # -----------------------------------------------------------------------

    async def set_disk(self, node: str, faults: DiskFaults | None) -> None:
        self._check_disks("disk")
        await self._disks.nodes.set(node, faults)

    async def disk_faults(self, node: str) -> DiskFaults:
        self._check_disks("disk")
        return await self._disks.nodes.faults(node)

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        """See ``CountsSyncs``."""
        self._check_disks("disk")
        return await self._disks.nodes.await_syncs(node, count, timeout_ms)

    def _check_disks(self, what: str) -> None:
        if self._disk_seed is None:
            raise refusal(self.backend, what)

    async def set_clock(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        raise refusal(self.backend, "clock")

    async def clock_offset_ms(self, node: str) -> float:
        raise refusal(self.backend, "clock")

    # -- reading
    # -------------------------------------------------------------------------------------------

    def endpoint(self, node: str, port: str) -> Endpoint:
        return Endpoint(HOST, port_of(self._holders[node, port]))

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        return await run_to_end(self._program(node, command), timeout_ms)

    async def read_data(self, node: str, path: str, offset: int) -> bytes:
        """See ``ReadsDataFiles``."""
        return await asyncio.to_thread(read_from, self._data_dir(node) / path, offset)

    async def output(self, node: str, lines: int = 20) -> str:
        return await asyncio.to_thread(_last_lines, self._output(node), lines)

    async def collect(self, into: Path) -> None:
        for node, spec in self._specs.items():
            await asyncio.to_thread(self._collect_node, node, spec, into / node)
            await self._disks.nodes.report(node, into / node)

    def _collect_node(self, node: str, spec: NodeSpec, into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        if self._output(node).is_file():
            shutil.copyfile(self._output(node), into / "output.log")
        for name in spec.collect:
            found, target = self._data_dir(node) / name, into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if found.is_dir():
                shutil.copytree(found, target, dirs_exist_ok=True)
            elif found.is_file():
                shutil.copyfile(found, target)

    def describe(self) -> Mapping[str, str]:
        return {
            "backend": "local: one process a node on loopback",
            "links": "a relay for each ordered pair of nodes, in a process of their own",
            "probe": "a byte through the relay's listener and the cut it would meet",
            "pause": "SIGSTOP to the node's process group",
            "kill": "SIGKILL to the node's process group",
            "disks": "this host's own"
            if self._disk_seed is None
            else "a file system with a page cache of its own over each data directory",
        }

    # -- inside
    # --------------------------------------------------------------------------------------------

    def _spec(self, node: str) -> NodeSpec:
        if node not in self._specs:
            raise HarnessError(f"{node} is not booted")
        return self._specs[node]

    def _process(self, node: str) -> NodeProcess:
        if node not in self._processes:
            raise HarnessError(f"{node} was never started")
        return self._processes[node]

    def _config_dir(self, node: str) -> Path:
        return self._directory / node / "config"

    def _data_dir(self, node: str) -> Path:
        return self._directory / node / "data"

    def _output(self, node: str) -> Path:
        return self._directory / node / "output.log"

    def _fill_placeholders(self, node: str, text: str) -> str:
        filled = text.replace("{config}", str(self._config_dir(node)))
        return filled.replace("{data}", str(self._data_dir(node))).replace(
            "{python}", sys.executable
        )

    def _program(self, node: str, command: Sequence[str]) -> Program:
        return Program(
            command=[self._fill_placeholders(node, word) for word in command],
            environment=self._environment(node),
            directory=self._data_dir(node),
            output=self._output(node),
        )

    def _environment(self, node: str) -> dict[str, str]:
        own = {k: self._fill_placeholders(node, v) for k, v in self._spec(node).environment.items()}
        path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
        return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **own}

    def _topology(self, listen: Mapping[str, Mapping[str, Endpoint]]) -> Topology:
        dial = {
            source: {
                destination: {
                    port: self._relays.endpoint(source, destination, port) for port in ports
                }
                for destination, ports in listen.items()
                if destination != source
            }
            for source in self.nodes
        }
        return Topology(
            listen=listen,
            dial=dial,
            data_dir={node: str(self._data_dir(node)) for node in self.nodes},
            config_dir={node: str(self._config_dir(node)) for node in self.nodes},
        )


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _last_lines(path: Path, lines: int) -> str:
    if not path.is_file():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
