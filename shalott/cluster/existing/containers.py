"""Containers that others made, as the machines of a run: found, looked at, and left as they were.

Nothing is created or removed. Links are cut and shaped as those of our own containers
(cluster/docker), from the host. Each container is known by its id: one that is made anew meanwhile
is another.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import docker
import docker.errors
import msgspec

from shalott.cluster.cluster import Parts, Software
from shalott.cluster.docker import containers
from shalott.cluster.docker.containers import Machine
from shalott.cluster.docker.firewall import list_tables
from shalott.cluster.docker.links import ContainerLinks
from shalott.cluster.docker.names import table_name
from shalott.cluster.docker.namespaces import can_enter, has_program, is_root, run_in_namespace
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.existing.container_parts import GuardedProcesses
from shalott.cluster.existing.guard import Guard, guardians, sweep_ledgers
from shalott.cluster.existing.had import had_by
from shalott.cluster.existing.inventory import client_endpoint
from shalott.cluster.existing.ledger import (
    Container,
    data_of,
    place_of,
    queue_of,
    remains,
    tables_in,
    undo,
)
from shalott.cluster.existing.project import PROJECT, SERVICE
from shalott.cluster.nodes import Endpoint, NodeSpec, Topology
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import ExistingNode, ExistingPlan

replace = msgspec.structs.replace

log = logging.getLogger("shalott.cluster.existing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A container as the engine tells of it. ``addresses``: by network."""

    id: str
    name: str
    image: str
    state: str
    restarts: bool
    addresses: Mapping[str, str]


class ExistingContainers:
    """See ``Hosts``. ``fills``: whether the plan fills disks; ``takes``: whether it makes nodes
    short of anything."""

    def __init__(
        self,
        run: ContainerNodes,
        plan: ExistingPlan,
        parts: Parts,
        guard: Guard,
        *,
        fills: bool,
        takes: bool,
    ) -> None:
        links, processes = parts.links, parts.processes
        assert isinstance(links, ContainerLinks) and isinstance(processes, GuardedProcesses)
        self._run, self._plan, self._guard = run, plan, guard
        self._fills, self._takes = fills, takes
        self._links, self._processes = links, processes
        self._found: dict[str, Found] = {}
        self._is_open = False

    async def look(self, software: Software) -> Sequence[str]:
        """See ``StandsAlready``."""
        try:
            await self._find()
            return [self._touched(node, software) for node in self._run.nodes]
        finally:
            self._run.engine.close()

    def _touched(self, node: str, software: Software) -> str:
        found, own = self._found[node], self._plan.nodes[node]
        at = ", ".join(address for address in found.addresses.values() if address)
        clients = ", ".join(
            f"{port} at {each.host}:{each.port}"
            for port in software.ports
            for each in [client_endpoint(self._plan, node, port, at, software.ports[port])]
        )
        files = "; ".join((*([own.data] if own.data else []), *own.logs)) or "none"
        return (
            f"{node}: the container {found.name} ({found.image}, {found.state}, at"
            f" {at or 'no address'}), clients {clients}, files {files}"
        )

    async def _find(self) -> None:
        engine = self._run.engine
        for node in self._run.nodes:
            own = self._plan.nodes[node]
            self._found[node] = await engine.call(
                partial(find, node=node, own=own, project=self._plan.project)
            )
        ids = [each.id for each in self._found.values()]
        if len({*ids}) < len(ids):
            raise UsageError("the inventory names one container twice: each node is one of its own")
        down = [node for node, each in self._found.items() if each.state != "running"]
        if down and not (self._plan.start_down and await self._may_start(down)):
            told = " and ".join(f"{node} ({self._found[node].state})" for node in down)
            raise UsageError(
                f"{told} does not run: start it, leave it out with --nodes, or allow to start it"
                " (start_down = true in the inventory)"
            )

    async def _may_start(self, down: Sequence[str]) -> bool:
        return all(self._found[node].state == "exited" for node in down)

    async def open(self, software: Software) -> Topology:
        for sentence in await sweep_ledgers():
            log.info("%s", sentence)
        run, engine = self._run, self._run.engine
        await self._find()
        network = self._network()
        run.ports = software.ports
        run.others = {self._found[node].id: node for node in run.nodes}
        now_s = await engine.call(containers.time_of_engine)
        for node, found in self._found.items():
            run.machines[node] = _machine(node, found, network, software, now_s)
        await self._guard.start()
        self._is_open = True
        self._processes.listen()
        for node, found in self._found.items():
            if found.state != "running":
                log.warning("%s is down, and is started as the inventory allows", node)
                await engine.call(partial(_start, identity=found.id))
        await run.readdress()
        self._links.set_addresses(run.addresses)
        return Topology(listen={}, dial={}, data_dir={}, config_dir={})

    def _network(self) -> str:
        """The network that all have, in which links are."""
        names = [set(each.addresses) for each in self._found.values()]
        common = sorted(set.intersection(*names)) if names else []
        wanted = self._plan.network
        if wanted and wanted not in common:
            raise UsageError(f"not all nodes are in the network {wanted}: they have {common}")
        if not wanted and len(common) != 1:
            which = (
                f"have several networks in common ({', '.join(common)})"
                if common
                else ("have no network in common")
            )
            raise UsageError(f"the nodes {which}: name one in the inventory (network)")
        return wanted or common[0]

    async def prepare(self, software: Software, specs: Sequence[NodeSpec]) -> None:
        """What the nodes need is theirs."""

    async def ready(self) -> None:
        run = self._run
        pids = {node: pid for node in run.nodes if (pid := await run.pid_of(node))}
        nodes = []
        for node in run.nodes:
            nodes.append(await self._seen(node, pids.get(node)))
            run.devices[node] = nodes[-1].device or "eth0"
        table = table_name(run.token, run.owner) if is_root() and has_program("nft") else ""
        await self._guard.note(lambda ledger: replace(ledger, table=table, nodes=tuple(nodes)))
        await self._links.open(pids)

    async def _seen(self, node: str, pid: int | None) -> Container:
        """As it is before anything is done to it."""
        found, own = self._found[node], self._plan.nodes[node]
        seen = Container(node=node, id=found.id, data=own.data if self._fills else "")
        if self._fills:
            place = await data_of(self._run.engine, seen) if seen.data else None
            if place is None:
                raise UsageError(f"say where the data of {node} is (data), or fill no disk")
            root = await self._run.engine.call(lambda api: str(api.info()["DockerRootDir"]))
            if not own.fill and is_shared(place, root):
                raise UsageError(
                    f"the data of {node} lies where other things of this machine lie: a full disk"
                    " would hit them, too; allow it (fill = true), or fill no disk"
                )
        if pid is not None and self._takes:
            seen = replace(seen, had=await asyncio.to_thread(had_by, pid))
        if pid is None or not is_root() or not can_enter(pid):
            return seen
        script = "ip -o -4 addr show"
        listed = await run_in_namespace(pid, script, own_files=False)
        at = self._run.addresses[node]
        devices = [line.split()[1] for line in listed.splitlines() if f" {at}/" in line]
        device = devices[0] if devices else ""
        tables = tuple(await tables_in(pid))
        queue = await queue_of(pid, device) if device else ""
        return replace(seen, device=device, tables=tables, queue=queue)

    async def remove(self) -> None:
        """Nothing of theirs is: undo what is left, and prove it. Raises HarnessError: something of
        ours is there."""
        if not self._is_open:
            self._run.engine.close()
            return
        self._is_open = False
        try:
            await undo(self._guard.ledger)
            left = await remains(self._guard.ledger)
        finally:
            self._run.forget()
            self._run.engine.close()
        if left:  # the guardian goes on, and undoes it
            await self._guard.abandon()
            raise HarnessError(f"of the run there is left: {'; '.join(left)}")
        await self._guard.end()
        late = [f"the guardian {pid}" for pid in guardians(self._guard.ledger.run)]
        late += [f"the file {path}" for path in [place_of(self._run.token)] if path.exists()]
        late += [
            f"the firewall table {each}" for each in await list_tables() if self._run.token in each
        ]
        if late:
            raise HarnessError(f"of the run there is left: {'; '.join(late)}")

    def endpoint(self, node: str, port: str) -> Endpoint:
        usual = self._run.ports[port]
        return client_endpoint(self._plan, node, port, self._run.addresses[node], usual)

    def describe(self) -> Mapping[str, str]:
        return {
            "backend": "existing: containers that others made",
            **self._links.describe(),
            "pause": "the engine's freezer",
            "kill": "SIGKILL to the whole container",
            "guardian": f"undoes everything when the harness is gone, or silent for"
            f" {self._plan.lease_s:g} s",
        }


def _start(api: docker.APIClient, identity: str) -> None:
    api.start(identity)


def find(api: docker.APIClient, node: str, own: ExistingNode, project: str) -> Found:
    """The container of a node. Blocks. Raises UsageError: there is none, or there are several."""
    if own.container:
        what, names = f"container {own.container}", [own.container]
    else:
        label = own.label
        labels = [label] if label else [f"{PROJECT}={project}", f"{SERVICE}={own.service}"]
        what = f"container with {label}" if label else f"service {own.service} in {project}"
        listed = api.containers(all=True, filters={"label": labels})
        names = [str(each["Id"]) for each in listed]
        if len(names) > 1:
            numbers = [each["Names"][0].lstrip("/") for each in listed]
            raise UsageError(f"{node}: there are several of the {what}: {', '.join(numbers)}")
    try:
        if not names:
            raise docker.errors.NotFound("")
        told = api.inspect_container(names[0])
    except docker.errors.NotFound:
        raise UsageError(
            f"{node}: there is no {what}: start it, or correct the inventory"
        ) from None
    networks = told["NetworkSettings"]["Networks"]
    return Found(
        id=str(told["Id"]),
        name=str(told["Name"]).lstrip("/"),
        image=str(told["Config"]["Image"]),
        state="paused" if told["State"]["Paused"] else str(told["State"]["Status"]),
        restarts=str(told["HostConfig"]["RestartPolicy"]["Name"]) not in ("", "no"),
        addresses={name: str(each["IPAddress"]) for name, each in networks.items()},
    )


def _machine(node: str, found: Found, network: str, software: Software, now_s: float) -> Machine:
    return Machine(
        spec=NodeSpec(
            name=node,
            image=found.image,
            command=(),
            ports=software.ports,
            restart_if_exits=found.restarts,
        ),
        name=found.id,
        image=found.image,
        network=network,
        address="",
        hosts={},
        labels={},
        tmpfs={},
        printed_since_s=now_s,
    )


def is_shared(place: Path, root: str) -> bool:
    """Whether a directory lies on the file system of the machine or of its engine."""
    own = os.statvfs(place)
    for other in (Path("/"), Path(root)):
        if not other.is_dir():
            continue
        there = os.statvfs(other)
        # What lies over another file system has its size, and another number.
        if (own.f_blocks, own.f_frsize) == (there.f_blocks, there.f_frsize):
            return True
    return False
