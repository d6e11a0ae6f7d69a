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
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from shalott.cluster.base import (
    Capability,
    CommandResult,
    DiskFaults,
    Endpoint,
    LinkShape,
    NodeExit,
    NodeSpec,
    NodeStatus,
    PacketsSeen,
    System,
    Topology,
    ignore_exit,
)
from shalott.cluster.disks.control import PowerLoss
from shalott.cluster.disks.mounting import DiskOptions, names_rule_for
from shalott.cluster.disks.of_nodes import DISK_CAPABILITIES, NodeDisks
from shalott.cluster.docker import containers
from shalott.cluster.docker.clocks import (
    Clocks,
    check_image,
    read_offset_ms,
    write_in_place,
)
from shalott.cluster.docker.containers import CONFIG_DIR, DATA_DIR, Machine
from shalott.cluster.docker.disks import ContainerDisks, disk_obstacle, find_volume
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.exits import ExitWatch
from shalott.cluster.docker.firewall import list_tables
from shalott.cluster.docker.images import ensure_image, find_image, image_facts, image_id
from shalott.cluster.docker.links import ContainerLinks
from shalott.cluster.docker.names import (
    network_name,
    resource_name,
    run_labels,
    run_token,
)
from shalott.cluster.docker.namespaces import can_enter
from shalott.cluster.docker.networks import create_network
from shalott.cluster.docker.programs import is_root
from shalott.cluster.docker.resources import (
    SMALL_TMP,
    ContainerResources,
    resource_capabilities,
)
from shalott.cluster.docker.sweep import remove_run, sweep_docker
from shalott.cluster.faketime import FILE as CLOCK_FILE
from shalott.cluster.faketime import environment as clock_environment
from shalott.cluster.faketime import file_text
from shalott.cluster.following import read_as_process, tail
from shalott.cluster.links import Link
from shalott.cluster.owner import this_process
from shalott.cluster.refusals import refusal
from shalott.cluster.resources import Shortage
from shalott.cluster.stalls import Stall
from shalott.core.errors import HarnessError

log = logging.getLogger("shalott.cluster.docker")

FIRST_HOST = 11  # the first node's last address byte


class DockerCluster:
    """See ``cluster.base.Cluster``. ``keep``: nothing is removed when the harness ends.

    ``seed``: of what becomes of single packets. ``clocks``: nodes are started so that each can have
    a clock of its own; the others can't, and pay nothing.
    ``disk_seed``: the nodes' data lies on disks that can fail and lose their power (disks.py), by
    draws of that seed, and ``power_loss`` is what becomes of unsynced data; None: it lies on the
    engine's volumes as they are, which costs nothing.
    ``small_tmp``: nodes have a small /tmp in memory, which a fault can fill.
    ``images``: what nodes may be made from besides; they are found, or built, before the boot.
    """

    backend = "docker"

    def __init__(
        self,
        nodes: Sequence[str],
        run_id: str,
        *,
        keep: bool = False,
        seed: int = 0,
        clocks: bool = False,
        disk_seed: int | None = None,
        images: Sequence[str] = (),
        power_loss: PowerLoss = "torn",
        small_tmp: bool = False,
    ) -> None:
        self.nodes = tuple(nodes)
        self._tmpfs = SMALL_TMP if small_tmp else {}
        self._resources = ContainerResources()
        self._has_clocks = clocks
        self._clocks = Clocks(self._write_clock)
        self._disk_seed = disk_seed
        self._power_loss = power_loss
        self._disks: ContainerDisks | None = None
        self._engine = Engine()
        self._owner = this_process()
        self._token = run_token(run_id)
        self._labels = run_labels(run_id, self._owner, keep)
        self._images = tuple(images)
        self._machines: dict[str, Machine] = {}
        self._past: dict[str, list[str]] = {}  # by node, its former containers
        self._ports: Mapping[str, int] = {}
        self._addresses: dict[str, str] = {}
        self._pids: dict[str, int] = {}  # of running nodes' first processes, as the host sees them
        self._links = ContainerLinks(self._owner, self._token, seed, self._pid_of, self.run_command)
        own: frozenset[Capability] = frozenset(
            {"kill", "stop", "pause", "wipe", "upgrade", "trigger-event"}
        )
        self.capabilities = self._links.capabilities | own | resource_capabilities(small_tmp)
        if clocks and is_root() and can_enter(os.getpid()):
            self.capabilities |= {"clock"}
        if disk_obstacle() is None:
            self.capabilities |= DISK_CAPABILITIES
        self._stopped: set[str] = set()  # paused by SIGSTOP, for lack of the freezer
        self._has_made = False  # whether there may be anything to remove
        self.on_exit: Callable[[NodeExit], None] = ignore_exit
        self._exits = ExitWatch(self._token, self._exited, self._started)
        self._asking: dict[asyncio.Task[None], None] = {}  # of ends and starts

    # -- life
    # ----------------------------------------------------------------------------------------------

    async def boot(self, system: System) -> None:
        for sentence in await sweep_docker(self._engine, kept=False):
            log.info("%s", sentence)
        image = await ensure_image(self._engine, system.image)
        for each in self._images:
            await find_image(self._engine, each)
        self._ports = system.ports
        self._has_made = True
        if self._disk_seed is not None:
            options = DiskOptions(names=names_rule_for(system.image), shared=True)
            self._disks = ContainerDisks(self._owner, self._disk_seed, options, self._power_loss)
        network = network_name(self._token)
        subnet = await self._engine.call(lambda api: create_network(api, network, self._labels))
        self._addresses = {node: f"{subnet}.{FIRST_HOST + i}" for i, node in enumerate(self.nodes)}
        self._links.set_addresses(self._addresses)
        for spec in system.node_specs(self._topology()):
            self._machines[spec.name] = await self._machine_for(spec, system, image)
        self._exits.open()
        await asyncio.gather(*(self._create_and_start(node) for node in self.nodes))
        await self._links.open(
            {node: self._pids[node] for node in self.nodes if node in self._pids}
        )

    async def _machine_for(self, spec: NodeSpec, system: System, image: str) -> Machine:
        """``image``: the system's own, by its tag."""
        others = {n: a for n, a in self._addresses.items() if n != spec.name}
        is_own = spec.image == system.image
        tag = image if is_own else await ensure_image(self._engine, spec.image)
        return Machine(
            spec=await self._with_clock(spec, tag),
            name=resource_name(self._token, spec.name),
            image=tag,
            network=network_name(self._token),
            address=self._addresses[spec.name],
            hosts=others,
            labels=self._labels,
            tmpfs=self._tmpfs,
        )

    async def _with_clock(self, spec: NodeSpec, image: str) -> NodeSpec:
        """As it is started if nodes have clocks of their own. Raises UsageError if it can't."""
        if not self._has_clocks:
            return spec
        command = [containers.fill_placeholders(word) for word in spec.command]
        await self._engine.call(lambda api: check_image(api, image, command, spec.name))
        return msgspec.structs.replace(
            spec,
            files={**spec.files, CLOCK_FILE: file_text(0)},
            environment={**spec.environment, **clock_environment(CONFIG_DIR)},
        )

    async def _create_and_start(self, node: str) -> None:
        machine = self._machines[node]
        await self._engine.call(lambda api: containers.create(api, machine))
        if self._disks is not None:
            volume = await self._engine.call(lambda api: find_volume(api, machine.name))
            number = self.nodes.index(node)
            await self._disks.mount(node, volume, number, machine.spec.collect)
        await self._start_container(node)
        if self._disks is not None:
            self._disks.check(node, self._pids.get(node), DATA_DIR)

    async def clear(self) -> None:
        """See ``KeepsMachines``: containers, volumes, network and addresses stay."""
        await self.heal()
        await asyncio.gather(*(self._end(node) for node in self.nodes))
        await asyncio.gather(*self._asking)
        await asyncio.gather(*(self.wipe(node) for node in self.nodes))
        if self._disks is not None:
            self._disks.disks.forget_losses()

    async def _end(self, node: str) -> None:
        """For good, also one that the engine is about to start again."""
        await self.kill(node)
        machine = self._machine(node)
        if machine.spec.restart_if_exits:
            await self._engine.call(lambda api: api.stop(machine.name, timeout=1))

    async def boot_again(self, system: System) -> None:
        """See ``KeepsMachines``. A container that would run something else is made anew."""
        image = await ensure_image(self._engine, system.image)
        self._ports = system.ports
        now_s = await self._engine.call(containers.time_of_engine)
        for spec in system.node_specs(self._topology()):
            machine = replace(await self._machine_for(spec, system, image), printed_since_s=now_s)
            old, self._machines[spec.name] = self._machines[spec.name], machine
            past = self._past.pop(spec.name, [])
            await self._engine.call(partial(containers.make_again, old=old, new=machine, past=past))
        await asyncio.gather(*(self.start(node) for node in self.nodes))

    async def teardown(self) -> None:
        await self._links.close()
        await self._clocks.close()
        await self._resources.close()
        if not self._has_made:
            self._engine.close()  # perhaps it could not even be reached
            return
        self._exits.close()
        await asyncio.gather(*self._asking)
        # An interrupted boot may have calls out that still make things.
        await self._engine.settle()
        if self._disks is not None:
            await self._disks.remove()  # or their volumes could not be removed
            self._disks = None
        await remove_run(self._engine, self._token, await list_tables())
        self._machines.clear()
        self._past.clear()
        self._pids.clear()
        self._stopped.clear()
        self._has_made = False
        self._engine.close()

    # -- processes
    # -----------------------------------------------------------------------------------------

    async def start(self, node: str) -> None:
        await self._start_container(node)
        await self._bring_back(node)

    async def _bring_back(self, node: str) -> None:
        """What a new life of a node's lacks or can't reach, as the one before."""
        await self._links.node_started(node)
        await self._resources.started(node, self._pids.get(node))

    def _started(self, node: str) -> None:
        """By whomever. One that the engine starts by itself is not the old one either."""
        if self._machine(node).spec.restart_if_exits:
            bringing = asyncio.create_task(self._bring_back_restarted(node))
            self._asking[bringing] = None
            bringing.add_done_callback(self._asking.pop)

    async def _bring_back_restarted(self, node: str) -> None:
        try:
            if (await self.status(node)).pid is not None:
                await self._bring_back(node)
        except HarnessError as error:
            log.warning("%s was started by the engine, without its faults: %s", node, error)

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
        await self._resources.stopping(node)
        is_up = (await self.status(node)).pid is not None
        async with self._exits.asked(node, is_up=is_up):
            await self._engine.call(lambda api: api.stop(name, timeout=timeout_s))
        self._pids.pop(node, None)

    async def kill(self, node: str) -> None:
        name = self._machine(node).name
        is_up = (await self.status(node)).pid is not None
        async with self._exits.asked(node, is_up=is_up):
            await self._engine.call(lambda api: containers.kill_and_wait(api, name))
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
        disks = self._mounted_disks("power")
        # Its end must not be heard: a machine without power closes no connection.
        await self._links.run_script(node, "ip link set eth0 down")
        await self.kill(node)
        await disks.power(node)

    async def pause(self, node: str) -> None:
        name = self._machine(node).name
        if self._links.enters:
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
        if self._disks is not None:
            await self._disks.disks.wipe(node)
        else:
            await self._engine.call(lambda api: containers.erase_volume(api, machine))

    async def image_id(self, image: str) -> str:
        found = await image_id(self._engine, await find_image(self._engine, image))
        assert found is not None, f"{image} was there a moment ago"
        return found

    async def change_image(self, node: str, image: str) -> None:
        """Its output goes on in the same file; its container is another one."""
        if (await self.status(node)).state != "exited":
            raise HarnessError(f"{node} runs: its image can't be changed")
        old, tag = self._machine(node), await find_image(self._engine, image)
        new = replace(old, image=tag)
        past = self._past.setdefault(node, [])
        name = f"{old.name}-{len(past) + 1}"
        await self._engine.call(lambda api: containers.replace_container(api, old, new, name))
        past.append(name)
        self._machines[node] = new

    async def made_from(self, node: str) -> str:
        name = self._machine(node).name
        return await self._engine.call(lambda api: containers.image_of(api, name))

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
        await self._links.cut(links)

    async def mend(self, links: Sequence[Link]) -> None:
        await self._links.mend(links)

    async def shape(
        self,
        source: str,
        destination: str,
        *,
        delay_ms: float = 0,
        rate_bytes_s: int = 0,
        loss: float = 0,
    ) -> None:
        shape = LinkShape(delay_ms=delay_ms, rate_bytes_s=rate_bytes_s, loss=loss)
        await self._links.shape(source, destination, shape)

    async def shape_packets(self, source: str, destination: str, shape: LinkShape) -> None:
        await self._links.shape(source, destination, shape)

    async def link_shape(self, source: str, destination: str) -> LinkShape:
        return await self._links.shape_of(source, destination)

    async def measure_packets(self, source: str, destination: str, count: int) -> PacketsSeen:
        return await self._links.measure(source, destination, count)

    async def set_client_cuts(self, links: Sequence[Link], ports: Sequence[str]) -> None:
        """See ``CutsClients``. Between the host and the nodes, at these ports only."""
        await self._links.set_client_cuts(links, [self._ports[port] for port in ports])

    async def client_cuts(self) -> Sequence[Link]:
        return await self._links.client_cuts()

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        """See ``CarriesTraffic``."""
        self._links.tell_stalls(tell)

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        return await self._links.reach(source, destination, timeout_ms)

    async def heal(self) -> None:
        await asyncio.gather(*(self._resume_paused(node) for node in self.nodes))
        await self._links.heal(self._is_up)
        await self._clocks.heal()
        await self._resources.heal({node: await self._pid_of(node) for node in self.nodes})
        if self._disks is not None:
            await self._disks.disks.heal()

    async def _resume_paused(self, node: str) -> None:
        if (await self.status(node)).state == "paused":
            await self.resume(node)

    async def _is_up(self, node: str) -> bool:
        return (await self.status(node)).pid is not None

    async def _pid_of(self, node: str) -> int | None:
        return (await self.status(node)).pid

    # -- clocks, disks and resources
    # ------------------------------------------------------------------------

    clock_error_ms = 5.0  # see ``ReadsClocksRoughly``: a drift is made of steps

    async def set_clock(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        """Of the wall clock only: the monotonic one never drifts here."""
        self._check_clock()
        await self._clocks.set(node, offset_ms, drift_ppm)

    async def clock_offset_ms(self, node: str) -> float:
        self._check_clock()
        pid = (await self.status(node)).pid
        if pid is None:
            raise HarnessError(f"{node} does not run, so nobody sees its clock")
        return await read_offset_ms(pid)

    def _check_clock(self) -> None:
        if not (self._has_clocks and self._links.enters):
            raise refusal(self.backend, "clock")

    async def _write_clock(self, node: str, text: str) -> None:
        machine, pid = self._machine(node), self._pids.get(node)
        path = f"{CONFIG_DIR}/{CLOCK_FILE}"
        try:
            if pid is not None:
                write_in_place(pid, path, text)
                return
        except OSError:
            pass  # it has ended meanwhile
        files = {CLOCK_FILE: text}
        await self._engine.call(lambda api: containers.put_files(api, machine, files))

    async def set_disk(self, node: str, faults: DiskFaults | None) -> None:
        await self._mounted_disks("disk").set(node, faults)

    async def disk_faults(self, node: str) -> DiskFaults:
        return await self._mounted_disks("disk").faults(node)

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        """See ``CountsSyncs``."""
        return await self._mounted_disks("disk").await_syncs(node, count, timeout_ms)

    async def set_shortage(self, node: str, shortage: Shortage) -> None:
        """See ``LimitsResources``."""
        await self._resources.set(node, shortage, await self._pid_of(node))

    async def shortage(self, node: str) -> Shortage:
        return await self._resources.seen(node, await self._pid_of(node))

    def _mounted_disks(self, what: str) -> NodeDisks:
        if self._disks is None:
            raise refusal(self.backend, what)
        return self._disks.disks

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
        return await self._engine.call(lambda api: containers.execute(api, name, words))

    async def read_data(self, node: str, path: str, offset: int) -> bytes:
        """See ``ReadsDataFiles``. By the first process's own view where this host may look into it,
        else by a command in the container, which takes longer."""
        pid, place = self._pids.get(node), f"{DATA_DIR}/{path}"
        if pid is not None and self._links.enters:
            found = await asyncio.to_thread(read_as_process, pid, place, offset)
            if found is None:
                raise HarnessError(f"{node} does not run any more")
            return found
        return await tail(self.run_command, node, place, offset)

    async def output(self, node: str, lines: int = 20) -> str:
        machine = self._machine(node)
        return await self._engine.call(lambda api: containers.last_lines(api, machine, lines))

    async def collect(self, into: Path) -> None:
        async def collect_one(node: str, machine: Machine) -> None:
            past, place = self._past.get(node, ()), into / node
            await self._engine.call(lambda api: containers.collect(api, machine, place, past))
            if self._disks is not None:
                await self._disks.disks.report(node, into / node)

        await asyncio.gather(*(collect_one(*item) for item in self._machines.items()))

    async def image_facts(self, image: str) -> Mapping[str, str]:
        tags = [each.image for each in self._machines.values() if each.spec.image == image]
        if not tags:
            raise HarnessError(f"no node was made from the image {image}")
        return await image_facts(self._engine, tags[0])

    def describe(self) -> Mapping[str, str]:
        return {
            "backend": "docker: one container a node",
            **self._links.describe(),
            "clocks": "libfaketime" if self._has_clocks else "the host's, as no fault needs others",
            "pause": "the engine's freezer"
            if self._links.enters
            else "SIGSTOP to all processes of the node",
            "kill": "SIGKILL to the whole container",
            "disks": "a file system with a page cache of its own under each volume"
            if self._disks is not None
            else "the engine's volumes",
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
