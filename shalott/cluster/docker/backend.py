"""DockerCluster: one container a node on a private network, with fixed addresses and faults by
the kernel.

Volumes outlive a restart, addresses outlive everything. The host talks to the containers'
addresses directly, so nothing is published. Links are cut in the host's bridge, or inside the
nodes where that is out of reach (firewall.py); a pause is the engine's freezer; a kill is SIGKILL
to all of the container. Everything carries the run's labels, and teardown removes what carries
them, also after a boot that broke off.

A run has a private network, a /24 of its own, chosen so that it collides with nothing on this host.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

import docker
import docker.errors
import docker.types

from shalott.cluster.capabilities import NOTHING, POWER, WORLDS
from shalott.cluster.cluster import Cluster, Parts, SeenClocks, Software
from shalott.cluster.disks.control import PowerLoss
from shalott.cluster.disks.mounting import DiskOptions, NamesRule, names_rule_for
from shalott.cluster.disks.node_disks import MountedDisks
from shalott.cluster.docker import containers
from shalott.cluster.docker.clocks import ContainerClocks, shares_kernel, wall_ns_of
from shalott.cluster.docker.containers import CONFIG_DIR, DATA_DIR, Machine
from shalott.cluster.docker.disks import check_mounted, disk_obstacle, place_of_volume
from shalott.cluster.docker.files import ContainerFiles
from shalott.cluster.docker.firewall import list_tables
from shalott.cluster.docker.images import ContainerImages, ensure_container_image, ensure_image
from shalott.cluster.docker.links import ContainerLinks
from shalott.cluster.docker.names import network_name, resource_name
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.docker.processes import ContainerProcesses
from shalott.cluster.docker.resources import SMALL_TMP, ContainerResources, usage_of
from shalott.cluster.docker.room import ROOM, VolumeRoom, keep
from shalott.cluster.docker.services import ServiceContainers, containers_of, with_facts
from shalott.cluster.docker.sweep import remove_run, sweep_docker
from shalott.cluster.nodes import Endpoint, NodeSpec, NodeUsage, Topology
from shalott.cluster.services import HasServices
from shalott.core.errors import BootFailed, UsageError

log = logging.getLogger("shalott.cluster.docker")

FIRST_HOST = 11  # the first node's last address byte


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerOptions:
    """What containers are made for, besides their nodes.

    ``keep``: nothing is removed when the harness ends. ``seed``: of what becomes of single packets.
    ``clocks``: nodes are started so that each can have a clock of its own; the others can't, and
    pay nothing. ``disk_seed``: the nodes' data lies on disks that can fail and lose their power
    (disks.py), by draws of that seed, and ``power_loss`` is what becomes of unsynced data; None: it
    lies on the engine's volumes as they are, which costs nothing. ``small_tmp``: nodes have a small
    /tmp in memory, which a fault can fill. ``images``: what nodes may be made from besides; they
    are found, or built, before the boot.
    """

    keep: bool = False
    seed: int = 0
    clocks: bool = False
    disk_seed: int | None = None
    images: Sequence[str] = ()
    power_loss: PowerLoss = "torn"
    small_tmp: bool = False


class DockerCluster(Cluster):
    """Not booted yet."""

    def __init__(
        self, nodes: Sequence[str], run_id: str, options: DockerOptions = DockerOptions()
    ) -> None:
        can, no_disks = WORLDS["docker"], disk_obstacle() is not None
        run = ContainerNodes(nodes, run_id, keep=options.keep)
        links = ContainerLinks(run, options.seed)
        resources = ContainerResources(run, small_tmp=options.small_tmp)
        disks = MountedDisks(
            "docker",
            NOTHING if no_disks else can["disks"],
            None if no_disks else options.disk_seed,
            options.power_loss,
        )
        processes = ContainerProcesses(
            run,
            links,
            resources,
            disks,
            capabilities=can["processes"] - POWER if no_disks else can["processes"],
            on_exit=lambda ended: self.on_exit(ended),
        )
        disks.on_end = lambda ended: self.on_helper_end(ended)
        processes.tell_helper_ends(disks.on_end)
        links.tell_helper_ends(disks.on_end)
        parts = Parts(
            links=links,
            processes=processes,
            clocks=ContainerClocks(run, links, is_wanted=options.clocks),
            resources=resources,
            disks=VolumeRoom(run) if no_disks else disks,
            files=ContainerFiles(run, links, disks),
            images=ContainerImages(run),
        )
        super().__init__("docker", nodes, DockerHosts(run, parts, disks, options), parts)


class DockerHosts:
    """The containers, volumes and network of one run. See ``Hosts`` and ``ReusableHosts``."""

    def __init__(
        self,
        run: ContainerNodes,
        parts: Parts,
        disks: MountedDisks,
        options: DockerOptions,
    ) -> None:
        links, processes, clocks = parts.links, parts.processes, parts.clocks
        assert isinstance(links, ContainerLinks) and isinstance(processes, ContainerProcesses)
        assert isinstance(clocks, ContainerClocks)
        self._links, self._processes, self._clocks, self._disks = links, processes, clocks, disks
        self._run = run
        self._options = options
        has_room = isinstance(parts.disks, VolumeRoom) and options.disk_seed is not None
        self._room = ROOM if has_room else {}
        self._image = ""  # the system's own, by its tag
        self._printed_since_s: float | None = None
        self._has_made = False  # whether there may be anything to remove
        self._services = ServiceContainers(run)
        self._helpers_at: dict[str, str] = {}  # addresses
        self._has_own_kernel: bool | None = None  # the nodes have: not the harness's

    async def check(self, software: Software) -> None:
        """See ``ChecksFirst``."""
        if not self._options.clocks and not (self._disks.is_wanted and containers_of(software)):
            return
        run = self._run
        try:
            await self._find_image(software)
            run.ports = software.ports
            run.addresses |= {node: f"0.0.0.{number}" for number, node in enumerate(run.nodes)}
            checked: list[tuple[str, Sequence[str]]] = []
            for spec in software.node_specs(self._topology()):
                if spec.container is not None or (spec.image, spec.command) not in checked:
                    machine = await self._machine_for(spec, software)
                    checked.append((spec.image, spec.command))
                    if self._disks.is_wanted and not machine.data:
                        raise UsageError(
                            f"{spec.name} has no volume, so its data can lie on no disk that"
                            " fails: give it one, or choose another --nemesis"
                        )
        finally:
            run.addresses.clear()
            run.engine.close()

    async def open(self, software: Software) -> Topology:
        run, engine = self._run, self._run.engine
        for sentence in await sweep_docker(engine, kept=False):
            log.info("%s", sentence)
        await self._find_image(software)
        for each in self._options.images:
            await ensure_image(engine, each)
        run.ports = software.ports
        self._has_made = True
        network, asked = network_name(run.token), ""
        if isinstance(software, HasServices):
            asked = software.subnet
        subnet = await engine.call(lambda api: create_network(api, network, run.labels, asked))
        everyone = settle_addresses(subnet, run.nodes, software)
        run.addresses |= {node: everyone.pop(node) for node in run.nodes}
        self._helpers_at = everyone
        self._links.set_addresses(run.addresses)
        return self._topology()

    async def _find_image(self, software: Software) -> None:
        """Containers that others describe have their own."""
        if not containers_of(software):
            self._image = await ensure_image(self._run.engine, software.image)

    def _topology(self) -> Topology:
        nodes, ports = self._run.nodes, self._run.ports
        addresses = self._run.addresses
        at = {n: {port: Endpoint(addresses[n], ports[port]) for port in ports} for n in nodes}
        everywhere = {name: Endpoint("0.0.0.0", number) for name, number in ports.items()}
        return Topology(
            listen=dict.fromkeys(nodes, everywhere),
            dial={a: {b: at[b] for b in nodes if b != a} for a in nodes},
            data_dir=dict.fromkeys(nodes, DATA_DIR),
            config_dir=dict.fromkeys(nodes, CONFIG_DIR),
        )

    async def prepare(self, software: Software, specs: Sequence[NodeSpec]) -> None:
        made = {spec.name: await self._machine_for(spec, software) for spec in specs}
        if self._run.machines:
            for machine in made.values():
                await self._make_again(machine)
            return
        self._run.machines |= made
        self._processes.listen()
        if isinstance(software, HasServices):
            await self._make_helpers(software)
        rule = names_rule_for(software.image)
        await asyncio.gather(*(self._create(machine, rule) for machine in made.values()))

    async def _make_helpers(self, software: HasServices) -> None:
        await self._services.make_volumes(software.volumes)
        for each in software.services:
            for spec in () if each.is_node else each.containers.values():
                await self._services.make(await self._machine_for(spec, software))

    async def start_services(
        self, software: HasServices, start_node: Callable[[str], Awaitable[None]]
    ) -> None:
        """See ``StartsServices``."""
        await self._services.start(software.services, start_node)

    async def why_unhealthy(self, node: str) -> str:
        return await self._services.why_unhealthy(node)

    async def _machine_for(self, spec: NodeSpec, software: Software | HasServices) -> Machine:
        run, image, is_node = self._run, self._image, spec.name in self._run.nodes
        if spec.container is not None:
            image = await ensure_container_image(run.engine, spec)
        elif isinstance(software, HasServices) or spec.image != software.image:
            image = await ensure_image(run.engine, spec.image)
        everyone = {**run.addresses, **self._helpers_at}
        machine = Machine(
            spec=spec,
            name=resource_name(run.token, spec.name),
            image=image,
            network=network_name(run.token),
            address=everyone[spec.name],
            hosts={n: a for n, a in everyone.items() if n != spec.name},
            labels=run.labels,
            tmpfs=SMALL_TMP if self._options.small_tmp and is_node else {},
            room=self._room if is_node else {},
            printed_since_s=self._printed_since_s,
            aliases=aliases_of(software, everyone),
            is_node=is_node,
        )
        if spec.container is not None:
            facts = await run.engine.call(lambda api: api.inspect_image(image)["Config"])
            machine = with_facts(machine, facts)
        if not is_node:
            return machine
        return replace(machine, spec=await self._clocks.prepare(machine.spec, image))

    async def _create(self, machine: Machine, names: NamesRule) -> None:
        engine, node = self._run.engine, machine.spec.name
        await engine.call(lambda api: containers.create(api, machine))
        if machine.room:
            await engine.call(lambda api: keep(api, machine))
        if self._disks.is_wanted:
            place = await place_of_volume(engine, machine.name, node)
            options = DiskOptions(names=names, shared=True, evidence=(*machine.spec.collect,))
            await self._disks.mount(node, self._run.nodes.index(node), place, options)

    async def _make_again(self, machine: Machine) -> None:
        """A container that would run something else is made anew."""
        node, run = machine.spec.name, self._run
        old, run.machines[node] = run.machines[node], machine
        past = run.past.pop(node, [])
        await run.engine.call(partial(containers.make_again, old=old, new=machine, past=past))

    async def read_clocks(self, node: str) -> SeenClocks | None:
        """Of the engine's machine, whose monotonic clock it does not tell."""
        if self._has_own_kernel is None:
            self._has_own_kernel = not await shares_kernel(self._run, node)
        if not self._has_own_kernel:
            return None
        told = await self._run.engine.call(lambda api: api.info()["SystemTime"])
        return SeenClocks(wall_ns_of(str(told)))

    async def ready(self) -> None:
        pids = {node: pid for node in self._run.nodes if (pid := self._run.pids.get(node))}
        if self._disks.is_wanted:
            for node, pid in pids.items():
                check_mounted(node, pid, self._run.machine(node).data)
        await self._links.open(pids)

    async def end(self, node: str) -> None:
        """For good, also one that the engine is about to start again."""
        await self._processes.kill(node)
        machine = self._run.machine(node)
        if machine.spec.restart_if_exits:
            await self._run.engine.call(lambda api: api.stop(machine.name, timeout=1))

    async def clear(self) -> None:
        """Containers, volumes, network and addresses stay."""
        await self._processes.settle()
        self._disks.forget_losses()

    async def reopen(self, software: Software) -> Topology:
        await self._find_image(software)
        self._run.ports = software.ports
        self._printed_since_s = await self._run.engine.call(containers.time_of_engine)
        return self._topology()

    async def remove(self) -> None:
        if self._has_made:
            await remove_run(self._run.engine, self._run.token, await list_tables())
        self._run.forget()
        self._printed_since_s = None
        self._has_made = False
        self._run.engine.close()  # perhaps it could not even be reached

    def usage(self, node: str) -> NodeUsage | None:
        """See ``TellsUsage``."""
        pid = self._run.pids.get(node)
        return None if pid is None else usage_of(pid)

    def endpoint(self, node: str, port: str) -> Endpoint:
        return Endpoint(self._run.addresses[node], self._run.port_at(node, port))

    def describe(self) -> Mapping[str, str]:
        return {
            "backend": "docker: one container a node",
            **self._links.describe(),
            "clocks": "libfaketime"
            if self._options.clocks
            else "the host's, as no fault needs others",
            "pause": "the engine's freezer"
            if self._links.enters
            else "SIGSTOP to all processes of the node",
            "kill": "SIGKILL to the whole container",
            "disks": "a file system with a page cache of its own under each volume"
            if self._disks.is_wanted
            else "the engine's volumes",
        }


PREFIX = "10.213"  # little used; docker's own networks start at 172.17
ATTEMPTS = 32


def create_network(
    api: docker.APIClient, name: str, labels: Mapping[str, str], asked: str = ""
) -> IPv4Network:
    """Make the network: the one that is ``asked`` for, or any. Blocks."""
    error: Exception | None = None
    # Which subnet it is decides nothing in a run, so this need not be seeded.
    some = (f"{PREFIX}.{third}.0/24" for third in random.sample(range(256), ATTEMPTS))
    for subnet in map(IPv4Network, [asked] if asked else some):
        if not asked and _is_routed(str(subnet[0]).removesuffix(".0")):
            continue
        pool = docker.types.IPAMPool(subnet=str(subnet), gateway=str(subnet[1]))
        try:
            api.create_network(
                name,
                driver="bridge",
                ipam=docker.types.IPAMConfig(pool_configs=[pool]),
                labels=dict(labels),
                check_duplicate=True,
            )
        except docker.errors.APIError as refused:
            if "overlap" not in str(refused):
                raise
            error = refused
            continue
        return subnet
    raise BootFailed(f"no free subnet in {asked or f'{PREFIX}.0.0/16'}: {error}")


def settle_addresses(
    subnet: IPv4Network, nodes: Sequence[str], software: Software
) -> dict[str, str]:
    """By container, the nodes first; those of the software's own choice are as it says."""
    specs = {
        name: spec
        for each in (software.services if isinstance(software, HasServices) else ())
        for name, spec in each.containers.items()
    }
    told = {name: spec.container.address for name, spec in specs.items() if spec.container}
    taken, number = set(told.values()), FIRST_HOST
    found: dict[str, str] = {}
    for name in dict.fromkeys((*nodes, *specs)):
        while str(subnet[number]) in taken:
            number += 1
        found[name] = told.get(name) or str(subnet[number])
        taken.add(found[name])
    return found


def aliases_of(software: Software | HasServices, at: Mapping[str, str]) -> tuple[str, ...]:
    """NAME:ADDRESS of every name that a container goes by besides its own."""
    return tuple(
        f"{alias}:{at[name]}"
        for each in (software.services if isinstance(software, HasServices) else ())
        for name, spec in each.containers.items()
        for alias in (spec.container.names if spec.container is not None else ())
        if alias != name
    )


def _is_routed(subnet: str) -> bool:
    """Whether the host has a route into this /24 already: a VPN's, say."""
    try:
        lines = Path("/proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return False
    wanted = _number(f"{subnet}.0")
    for fields in (line.split() for line in lines):
        destination, mask = (int.from_bytes(bytes.fromhex(fields[i]), "little") for i in (1, 7))
        if mask and (wanted & mask) == destination:
            return True
        if mask > 0xFFFFFF00 and (destination & 0xFFFFFF00) == wanted:
            return True
    return False


def _number(address: str) -> int:
    return int.from_bytes(bytes(int(part) for part in address.split(".")), "big")
