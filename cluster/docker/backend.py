"""DockerCluster: one container a node on a private network, with fixed addresses and faults by
the kernel.

Volumes outlive a restart, addresses outlive everything. The host talks to the containers'
addresses directly, so nothing is published. Links are cut in the host's bridge, or inside the
nodes where that is out of reach (firewall.py); a pause is the engine's freezer; a kill is SIGKILL
to all of the container. Everything carries the run's labels, and teardown removes what carries
them, whatever was or wasn't finished.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import docker
import docker.errors

from shalott.cluster.base import (
    CommandResult,
    DiskFaults,
    Endpoint,
    LinkShape,
    NodeExit,
    NodeStatus,
    System,
    Topology,
    ignore_exit,
)
from shalott.cluster.docker import containers
from shalott.cluster.docker.containers import CONFIG_DIR, DATA_DIR, Machine
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.exits import ExitWatch
from shalott.cluster.docker.firewall import BridgeFirewall, ChainFirewall, Firewall, list_tables
from shalott.cluster.docker.images import ensure_image, image_facts
from shalott.cluster.docker.names import (
    network_name,
    resource_name,
    run_labels,
    run_token,
    table_name,
)
from shalott.cluster.docker.namespaces import can_enter, datagram_arrives, run_in_namespace
from shalott.cluster.docker.networks import create_network
from shalott.cluster.docker.probe import datagram_arrives_by_exec
from shalott.cluster.docker.programs import has_program, is_root
from shalott.cluster.docker.shaping import (
    UNSHAPED,
    listing_script,
    qdisc_script,
    read_shape,
    shaping_capabilities,
)
from shalott.cluster.docker.sweep import remove_run, sweep_docker
from shalott.cluster.links import Link, LinkCounts
from shalott.cluster.owner import this_process
from shalott.cluster.refusals import refusal
from shalott.harness.core.errors import HarnessError

log = logging.getLogger("shalott.cluster.docker")

FIRST_HOST = 11  # the first node's last address byte


class DockerCluster:
    """See ``cluster.base.Cluster``. ``keep``: nothing is removed when the harness ends."""

    backend = "docker"

    def __init__(self, nodes: Sequence[str], run_id: str, *, keep: bool = False) -> None:
        self.nodes = tuple(nodes)
        self.capabilities = shaping_capabilities() | {
            *("kill", "stop", "pause", "cut", "cut-one-way", "wipe"),
        }
        self._engine = Engine()
        self._owner = this_process()
        self._token = run_token(run_id)
        self._labels = run_labels(run_id, self._owner, keep)
        self._machines: dict[str, Machine] = {}
        self._ports: Mapping[str, int] = {}
        self._addresses: dict[str, str] = {}
        self._pids: dict[str, int] = {}  # of running nodes' first processes, as the host sees them
        self._counts = LinkCounts()
        self._shapes: dict[Link, LinkShape] = {}
        self._firewall: Firewall | None = None
        self._links_lock = asyncio.Lock()  # one change of the whole set at a time
        self._stopped: set[str] = set()  # paused by SIGSTOP, for lack of the freezer
        self._has_made = False  # whether there may be anything to remove
        self.on_exit: Callable[[NodeExit], None] = ignore_exit
        self._exits = ExitWatch(self._token, self._exited)
        self._asking: dict[asyncio.Task[None], None] = {}  # why a node ended
        self._enters = False  # whether the host can enter the containers' namespaces

    # -- life
    # ----------------------------------------------------------------------------------------------

    async def boot(self, system: System) -> None:
        for sentence in await sweep_docker(self._engine, kept=False):
            log.info("%s", sentence)
        image = await ensure_image(self._engine, system.image)
        self._ports = system.ports
        self._has_made = True
        network = network_name(self._token)
        subnet = await self._engine.call(lambda api: create_network(api, network, self._labels))
        self._addresses = {node: f"{subnet}.{FIRST_HOST + i}" for i, node in enumerate(self.nodes)}
        for spec in system.node_specs(self._topology()):
            others = {n: a for n, a in self._addresses.items() if n != spec.name}
            self._machines[spec.name] = Machine(
                spec=spec,
                name=resource_name(self._token, spec.name),
                image=image if spec.image == system.image else await self._image(spec.image),
                network=network,
                address=self._addresses[spec.name],
                hosts=others,
                labels=self._labels,
            )
        self._exits.open()
        await asyncio.gather(*(self._create_and_start(node) for node in self.nodes))
        self._firewall = await self._choose_firewall()
        log.info("links: %s", self._firewall.describe())

    async def _image(self, name: str) -> str:
        return await ensure_image(self._engine, name)

    async def _create_and_start(self, node: str) -> None:
        machine = self._machines[node]
        await self._engine.call(lambda api: containers.create(api, machine))
        await self._start_container(node)

    async def _choose_firewall(self) -> Firewall:
        """The bridge if its table really sees the nodes' packets, else a chain in each node."""
        pids = list(self._pids.values())
        self._enters = bool(pids) and can_enter(pids[0])
        if self._enters and is_root() and has_program("nft") and len(self.nodes) > 1:
            bridge = BridgeFirewall(table_name(self._token, self._owner), self._addresses)
            source, destination = self.nodes[:2]
            try:
                if await bridge.sees(
                    self._pids[source], self._pids[destination], self._addresses[destination]
                ):
                    return bridge
                await bridge.remove()
            except HarnessError as error:
                log.info("no cuts on the host's bridge: %s", error)
        return ChainFirewall(self._addresses, self._run_network_script)

    async def teardown(self) -> None:
        if not self._has_made:
            self._engine.close()  # perhaps it could not even be reached
            return
        self._exits.close()
        await asyncio.gather(*self._asking)
        # An interrupted boot may have calls out that still make things.
        await self._engine.settle()
        self._counts.clear()
        self._shapes.clear()
        await remove_run(self._engine, self._token, await list_tables())
        self._firewall = None
        self._machines.clear()
        self._pids.clear()
        self._stopped.clear()
        self._has_made = False
        self._engine.close()

    # -- processes
    # -----------------------------------------------------------------------------------------

    async def start(self, node: str) -> None:
        await self._start_container(node)
        if self._firewall is not None:
            await self._firewall.node_started(node)
        if any(source == node for source, _ in self._shapes):
            await self._apply_shapes(node)

    async def _start_container(self, node: str) -> None:
        name = self._machine(node).name
        await self._engine.call(lambda api: api.start(name))
        # The engine answers when the process runs; it may have ended since, which is the node's
        # own affair.
        await self.status(node)

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        name, timeout_s = self._machine(node).name, max(1, round(timeout_ms / 1000))
        if node in self._stopped:
            await self.resume(
                node
            )  # as the engine does with a frozen one: it could not end otherwise
        is_up = (await self.status(node)).pid is not None
        async with self._exits.asked(node, is_up=is_up):
            await self._engine.call(lambda api: api.stop(name, timeout=timeout_s))
        self._pids.pop(node, None)

    async def kill(self, node: str) -> None:
        name = self._machine(node).name

        def kill_and_wait(api: docker.APIClient) -> None:
            try:
                api.kill(name)
            except docker.errors.APIError as error:
                if "is not running" not in str(error):
                    raise
            api.wait(name)

        is_up = (await self.status(node)).pid is not None
        async with self._exits.asked(node, is_up=is_up):
            await self._engine.call(kill_and_wait)
        self._stopped.discard(node)
        self._pids.pop(node, None)

    def _exited(self, node: str, exit_code: int | None) -> None:
        asking = asyncio.create_task(self._tell_exit(node, exit_code))
        self._asking[asking] = None
        asking.add_done_callback(self._asking.pop)

    async def _tell_exit(self, node: str, exit_code: int | None) -> None:
        name = self._machine(node).name
        try:
            starved = await self._engine.call(lambda api: containers.ran_out_of_memory(api, name))
        except HarnessError:
            starved = False  # it is gone
        self.on_exit(NodeExit(node=node, exit_code=exit_code, out_of_memory=starved))

    async def power_off(self, node: str) -> None:
        raise refusal(self.backend, "power")

    async def pause(self, node: str) -> None:
        name = self._machine(node).name
        if self._enters:
            await self._engine.call(lambda api: api.pause(name))
        else:
            # The engine runs nothing in a frozen container, so there links could not be cut from
            # inside. kill -1 spares its caller and the container's first process, which only
            # waits.
            await self._execute(node, ["sh", "-c", "kill -STOP -1"])
            self._stopped.add(node)

    async def resume(self, node: str) -> None:
        name = self._machine(node).name
        if node in self._stopped:
            self._stopped.discard(node)
            await self._execute(node, ["sh", "-c", "kill -CONT -1"])
        else:
            await self._engine.call(lambda api: api.unpause(name))

    async def wipe(self, node: str) -> None:
        if (await self.status(node)).state != "exited":
            raise HarnessError(f"{node} runs: its data can't be wiped")
        machine = self._machine(node)
        await self._engine.call(lambda api: containers.erase_volume(api, machine))

    async def status(self, node: str) -> NodeStatus:
        if node not in self._machines:
            return NodeStatus(state="absent")
        name = self._machine(node).name
        status = await self._engine.call(lambda api: containers.status(api, name))
        if status.pid is None:
            self._pids.pop(node, None)
        else:
            self._pids[node] = status.pid
        if status.state == "running" and node in self._stopped:
            return NodeStatus(state="paused", pid=status.pid)
        return status

    # -- links
    # ---------------------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link]) -> None:
        self._counts.cut(links)
        await self._apply_cuts()

    async def mend(self, links: Sequence[Link]) -> None:
        self._counts.mend(links)
        await self._apply_cuts()

    async def _apply_cuts(self) -> None:
        async with self._links_lock:
            if self._firewall is None:
                raise HarnessError("links can be cut only while the cluster is up")
            await self._firewall.drop(self._counts.cut_links())

    async def shape(
        self,
        source: str,
        destination: str,
        *,
        delay_ms: float = 0,
        rate_bytes_s: int = 0,
        loss: float = 0,
    ) -> None:
        asked = {"delay": delay_ms, "throttle": rate_bytes_s, "loss": loss}
        for name, value in asked.items():
            if value and name not in self.capabilities:
                raise HarnessError(f"this host's kernel lacks {name} for links between containers")
        shape = LinkShape(delay_ms=delay_ms, rate_bytes_s=rate_bytes_s, loss=loss)
        if shape == UNSHAPED:
            self._shapes.pop((source, destination), None)
        else:
            self._shapes[source, destination] = shape
        await self._apply_shapes(source)

    async def link_shape(self, source: str, destination: str) -> LinkShape:
        listing = await self._run_network_script(source, listing_script())
        return read_shape(listing, self._addresses[destination])

    async def _apply_shapes(self, source: str) -> None:
        shapes = {
            self._addresses[b]: shape for (a, b), shape in self._shapes.items() if a == source
        }
        await self._run_network_script(source, qdisc_script(shapes))

    async def heal(self) -> None:
        self._counts.clear()
        if self._firewall is not None:
            await self._apply_cuts()
        shaped = list(dict.fromkeys(source for source, _ in self._shapes))
        self._shapes.clear()
        await asyncio.gather(*(self._heal_node(node, node in shaped) for node in self.nodes))

    async def _heal_node(self, node: str, shaped: bool) -> None:
        state = (await self.status(node)).state
        if state == "paused":
            await self.resume(node)
        if shaped and state in ("running", "paused"):
            await self._apply_shapes(node)

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        states = await asyncio.gather(self.status(source), self.status(destination))
        pids = [status.pid for status in states]
        if pids[0] is None or pids[1] is None:
            return False
        address = self._addresses[destination]
        if self._enters:
            return await asyncio.to_thread(datagram_arrives, pids[0], pids[1], address, timeout_ms)
        return await datagram_arrives_by_exec(
            self.run_command, source, destination, address, timeout_ms
        )

    async def _run_network_script(self, node: str, script: str) -> str:
        """Run a shell script with the node's own network tools, in its network."""
        pid = (await self.status(node)).pid
        if pid is None:
            return ""  # no process, no network; ``start`` puts everything back
        if self._enters:
            return await run_in_namespace(pid, script, own_files=True)
        result = await self.run_command(node, ["sh", "-c", script])
        if result.exit_code != 0:
            raise HarnessError(f"{node}: {result.output.strip()}")
        return result.output

    # -- what only a simulation can do
    # ---------------------------------------------------------------------------------

    async def set_clock(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        raise refusal(self.backend, "clock")

    async def clock_offset_ms(self, node: str) -> float:
        raise refusal(self.backend, "clock")

    async def set_disk(self, node: str, faults: DiskFaults | None) -> None:
        raise refusal(self.backend, "disk")

    async def disk_faults(self, node: str) -> DiskFaults:
        raise refusal(self.backend, "disk")

    # -- reading
    # -------------------------------------------------------------------------------------------

    def endpoint(self, node: str, port: str) -> Endpoint:
        return Endpoint(self._addresses[node], self._ports[port])

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        # coreutils' timeout: the engine can't end a command that hangs.
        words = ["timeout", "-k", "1", f"{timeout_ms / 1000}", *command]
        return await self._execute(node, words)

    async def _execute(self, node: str, words: Sequence[str]) -> CommandResult:
        name = self._machine(node).name

        def execute(api: docker.APIClient) -> CommandResult:
            identity = api.exec_create(name, list(words))["Id"]
            output = api.exec_start(identity)
            code = api.exec_inspect(identity)["ExitCode"]
            return CommandResult(exit_code=code, output=output.decode(errors="replace"))

        return await self._engine.call(execute)

    async def output(self, node: str, lines: int = 20) -> str:
        name = self._machine(node).name
        raw = await self._engine.call(lambda api: api.logs(name, tail=lines))
        return str(raw.decode(errors="replace"))

    async def collect(self, into: Path) -> None:
        async def collect_one(node: str, machine: Machine) -> None:
            await self._engine.call(lambda api: containers.collect(api, machine, into / node))

        await asyncio.gather(*(collect_one(*item) for item in self._machines.items()))

    async def image_facts(self, image: str) -> Mapping[str, str]:
        tags = [each.image for each in self._machines.values() if each.spec.image == image]
        if not tags:
            raise HarnessError(f"no node was made from the image {image}")
        return await image_facts(self._engine, tags[0])

    def describe(self) -> Mapping[str, str]:
        probe = "setns and a datagram" if self._enters else "a datagram sent by exec"
        return {
            "backend": "docker: one container a node",
            "links": self._firewall.describe() if self._firewall else "not booted",
            "probe": f"{probe} from the source's network namespace to the destination's",
            "pause": "the engine's freezer"
            if self._enters
            else "SIGSTOP to all processes of the node",
            "kill": "SIGKILL to the whole container",
        }

    # -- inside
    # --------------------------------------------------------------------------------------------

    def _machine(self, node: str) -> Machine:
        if node not in self._machines:
            raise HarnessError(f"there is no container of {node}")
        return self._machines[node]

    def _topology(self) -> Topology:
        ports = self._ports
        at = {
            node: {name: Endpoint(address, number) for name, number in ports.items()}
            for node, address in self._addresses.items()
        }
        everywhere = {name: Endpoint("0.0.0.0", number) for name, number in ports.items()}
        return Topology(
            listen=dict.fromkeys(self.nodes, everywhere),
            dial={a: {b: at[b] for b in self.nodes if b != a} for a in self.nodes},
            data_dir=dict.fromkeys(self.nodes, DATA_DIR),
            config_dir=dict.fromkeys(self.nodes, CONFIG_DIR),
        )
