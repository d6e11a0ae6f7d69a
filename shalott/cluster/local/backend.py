"""LocalCluster: one process a node on loopback, every inter-node link through a relay of ours.

No Docker, no root: for a developer's laptop, and the fallback of the docker backend. What the
kernel does to packets there, the relays do to bytes here (relay.py). Clients talk to the nodes
directly. Everything of a run is in one directory, and what runs in it is written down for
``sweep``.

Ports are taken without a race and held for the whole run. A port is taken by binding it
exclusively, and the socket stays bound, without listening, until the run ends. Only then it is
marked reusable: a node that binds with SO_REUSEADDR, as asyncio's servers do, may listen beside it,
again after each restart, while no other program's exclusive bind and no outgoing connection gets
the number.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from shalott.cluster.capabilities import NOTHING, POWER, WORLDS
from shalott.cluster.cluster import Cluster, Parts, SeenClocks, Software
from shalott.cluster.disks.build import why_not
from shalott.cluster.disks.control import PowerLoss
from shalott.cluster.disks.mounting import DiskOptions, names_rule_for
from shalott.cluster.disks.node_disks import MountedDisks
from shalott.cluster.local.files import LocalFiles
from shalott.cluster.local.links import LocalLinks
from shalott.cluster.local.nodes import LocalNodes
from shalott.cluster.local.processes import LocalProcesses
from shalott.cluster.local.relay_link import RelayProcess
from shalott.cluster.local.sweep import (
    MARK,
    RunState,
    StartedProcess,
    remove_directory,
    state_directory,
    sweep_local,
    write_state,
)
from shalott.cluster.nodes import Endpoint, NodeSpec, Stays, Topology
from shalott.cluster.owner import this_process
from shalott.core.errors import HarnessError

log = logging.getLogger("shalott.cluster.local")


class LocalCluster(Cluster):
    """Everything it writes is under ``work_dir``.

    ``disk_seed``, ``power_loss``: as DockerCluster's; without a seed the nodes' data lies in plain
    directories. A loss of power is silence for the other nodes; clients, which talk to nodes
    directly, see their connections reset. ``stays``: of nodes that are no run's.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        run_id: str,
        work_dir: Path,
        *,
        disk_seed: int | None = None,
        power_loss: PowerLoss = "torn",
        stays: Stays | None = None,
    ) -> None:
        can, no_disks = WORLDS["local"], why_not() is not None
        run = LocalNodes(nodes, work_dir.absolute() / "local")
        relays = RelayProcess(nodes)
        links = LocalLinks(run, relays)
        disks = MountedDisks("local", NOTHING if no_disks else can["disks"], disk_seed, power_loss)
        processes = LocalProcesses(
            run,
            links,
            disks,
            capabilities=can["processes"] - POWER if no_disks else can["processes"],
            on_exit=lambda ended: self.on_exit(ended),
        )
        files = LocalFiles(run, processes, disks)
        relays.on_end = disks.on_end = lambda ended: self.on_helper_end(ended)
        super().__init__(
            "local",
            nodes,
            LocalHosts(run, run_id, relays, processes, disks, stays or Stays()),
            Parts(links=links, processes=processes, disks=disks, files=files),
        )


class LocalHosts:
    """The directories, ports and relays of one run. See ``Hosts`` and ``ReusableHosts``."""

    def __init__(
        self,
        run: LocalNodes,
        run_id: str,
        relays: RelayProcess,
        processes: LocalProcesses,
        disks: MountedDisks,
        stays: Stays,
    ) -> None:
        self._run = run
        self._stays = stays
        self._run_id = run_id
        directory = run.directory.parent
        self._token = hashlib.sha256(f"{run_id}\0{directory}".encode()).hexdigest()[:16]
        self._relays = relays
        self._processes = processes
        processes.on_start = self._write_state
        self._disks = disks
        self._state_path: Path | None = None
        self._holders: dict[tuple[str, str], socket.socket] = {}  # (node, port) -> its reservation

    async def open(self, software: Software) -> Topology:
        for sentence in await sweep_local():
            log.info("%s", sentence)
        self._state_path = state_directory() / f"{self._token}.json"
        self._write_state()
        self._run.directory.mkdir(parents=True, exist_ok=True)
        if not self._stays.keep:
            (self._run.directory / MARK).touch()
        self._run.make_directories()
        for node in self._run.nodes:
            is_usual = self._stays.usual_ports and node == self._run.nodes[0]
            for port, number in software.ports.items():
                self._holders[node, port] = reserve_port(number if is_usual else 0)
        await self._relays.start(self._run.directory / "relays.log")
        self._write_state()
        topology = self._listen(software)
        await self._relays.open(topology)
        return self._topology(topology)

    def _listen(self, software: Software) -> dict[str, dict[str, Endpoint]]:
        nodes, ports = self._run.nodes, software.ports
        return {node: {port: self.endpoint(node, port) for port in ports} for node in nodes}

    def _topology(self, listen: Mapping[str, Mapping[str, Endpoint]]) -> Topology:
        def dialled(source: str, node: str) -> dict[str, Endpoint]:
            return {port: self._relays.endpoint(source, node, port) for port in listen[node]}

        nodes = self._run.nodes
        return Topology(
            listen=listen,
            dial={a: {b: dialled(a, b) for b in nodes if b != a} for a in nodes},
            data_dir={node: str(self._run.data_dir(node)) for node in nodes},
            config_dir={node: str(self._run.config_dir(node)) for node in nodes},
        )

    async def prepare(self, software: Software, specs: Sequence[NodeSpec]) -> None:
        for spec in specs:
            is_new = spec.name not in self._run.specs
            self._run.write(spec)
            if self._disks.is_wanted and is_new:
                options = DiskOptions(names=names_rule_for(spec.image), evidence=(*spec.collect,))
                number = self._run.nodes.index(spec.name)
                await self._disks.mount(spec.name, number, self._run.data_dir(spec.name), options)

    async def ready(self) -> None:
        """Relays are open before the first node starts."""

    async def read_clocks(self, node: str) -> SeenClocks | None:
        return None

    async def end(self, node: str) -> None:
        await self._processes.kill(node)

    async def clear(self) -> None:
        """Relays, ports and directories stay."""
        await self._processes.forget()
        self._disks.forget_losses()
        for node in self._run.nodes:
            await asyncio.to_thread(shutil.rmtree, self._run.config_dir(node))
            self._run.output(node).unlink(missing_ok=True)
        self._run.make_directories()

    async def reopen(self, software: Software) -> Topology:
        if dict.fromkeys(software.ports) != dict.fromkeys(port for _, port in self._holders):
            raise HarnessError(f"{software.name} wants other ports than the system before it")
        return self._topology(self._listen(software))

    async def remove(self) -> None:
        for holder in self._holders.values():
            holder.close()
        self._holders.clear()
        self._run.specs.clear()
        remove_directory(self._run.directory)
        if self._state_path is not None:
            self._state_path.unlink(missing_ok=True)
            self._state_path = None

    def _write_state(self) -> None:
        if self._state_path is None:
            return
        started = self._processes.started()
        relays = self._relays.identity
        state = RunState(
            run=self._run_id,
            owner=str(this_process()),
            directory=str(self._run.directory),
            processes=(*started, StartedProcess("relays", *relays)) if relays else started,
        )
        write_state(self._state_path, state)

    def endpoint(self, node: str, port: str) -> Endpoint:
        return Endpoint(HOST, port_of(self._holders[node, port]))

    def describe(self) -> Mapping[str, str]:
        return {
            "backend": "local: one process a node on loopback",
            "links": "a relay for each ordered pair of nodes, in a process of their own",
            "probe": "a byte through the relay's listener and the cut it would meet",
            "pause": "SIGSTOP to the node's process group",
            "kill": "SIGKILL to the node's process group",
            "disks": "a file system with a page cache of its own over each data directory"
            if self._disks.is_wanted
            else "this host's own",
        }


HOST = "127.0.0.1"


def reserve_port(wished: int = 0) -> socket.socket:
    """A bound socket that holds a free port: the one that is ``wished``, if nothing listens there.
    Raises HarnessError if there is none."""
    if wished:
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Closed connections of a node that was there before keep no other from it.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            holder.bind((HOST, wished))
            return holder
        holder.close()
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.bind((HOST, 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        holder.close()
        raise HarnessError(f"no free port on {HOST}: {error.strerror}") from error
    return holder


def port_of(holder: socket.socket) -> int:
    return int(holder.getsockname()[1])
