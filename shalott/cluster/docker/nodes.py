"""The containers of one run: which there are, and what state they are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from shalott.cluster.docker import containers
from shalott.cluster.docker.containers import Machine
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.names import run_labels, run_token
from shalott.cluster.nodes import CommandResult, NodeStatus
from shalott.cluster.owner import this_process
from shalott.core.errors import HarnessError

NO_NETWORK = "0.0.0"  # what no packet comes from


class ContainerNodes:
    """What the parts share; no container is made at first.

    ``machines``, ``addresses``: by node. ``past``: by node, its former containers. ``pids``: of
    running nodes' first processes, as the host sees them. ``stopped``: nodes that were paused by
    SIGSTOP, for lack of the freezer. Of containers that others made: ``others``, the node by the
    container's id, and ``devices``, the network device by node; those get another address at each
    start, perhaps that of a node that is down.
    """

    def __init__(self, nodes: Sequence[str], run_id: str, *, keep: bool) -> None:
        self.nodes = tuple(nodes)
        self.engine = Engine()
        self.owner = this_process()
        self.token = run_token(run_id)
        self.labels = run_labels(run_id, self.owner, keep)
        self.machines: dict[str, Machine] = {}
        self.past: dict[str, list[str]] = {}
        self.ports: Mapping[str, int] = {}
        self.addresses: dict[str, str] = {}
        self.pids: dict[str, int] = {}
        self.stopped: set[str] = set()
        self.others: dict[str, str] = {}
        self.devices: dict[str, str] = {}

    def forget(self) -> None:
        """The containers were removed."""
        for each in (self.machines, self.past, self.pids, self.stopped):
            each.clear()

    def device(self, node: str) -> str:
        return self.devices.get(node, "eth0")

    def whose(self, container: str, label: str | None) -> str | None:
        """The node of a container, by its id or its label of nodes."""
        return self.others.get(container, label)

    async def readdress(self) -> bool:
        """Whether nodes have other addresses than before. Only those of others get any."""
        if not self.others:
            return False
        names = {node: machine.name for node, machine in self.machines.items()}
        network = next(iter(self.machines.values())).network
        found = await self.engine.call(
            lambda api: {n: containers.address_of(api, name, network) for n, name in names.items()}
        )
        now = {node: address for node, address in found.items() if address}
        for number, node in enumerate(self.nodes):
            if node not in now:  # it is down: its address may be another's by now
                before = self.addresses.get(node, "")
                is_taken = before in now.values() or not before
                now[node] = f"{NO_NETWORK}.{number + 1}" if is_taken else before
        changed = now != self.addresses
        self.addresses |= now
        return changed

    def port_at(self, node: str, port: str) -> int:
        """Its number, which may be another one at each node."""
        own = self.machines[node].spec.ports if node in self.machines else {}
        return own.get(port, self.ports[port])

    def machine(self, node: str) -> Machine:
        if node not in self.machines:
            raise HarnessError(f"there is no container of {node}")
        return self.machines[node]

    async def status(self, node: str) -> NodeStatus:
        if node not in self.machines:
            return NodeStatus(state="absent")
        name = self.machine(node).name
        status = await self.engine.call(lambda api: containers.status(api, name))
        if status.pid is None:
            self.pids.pop(node, None)
        else:
            self.pids[node] = status.pid
        if status.state == "running" and node in self.stopped:
            return NodeStatus(state="paused", pid=status.pid)
        return status

    async def pid_of(self, node: str) -> int | None:
        """Of its first process, as the host sees it, if it runs."""
        return (await self.status(node)).pid

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        # coreutils' timeout: the engine can't end a command that hangs.
        words = ["timeout", "-k", "1", f"{timeout_ms / 1000}", *command]
        return await self.execute(node, words)

    async def execute(self, node: str, words: Sequence[str]) -> CommandResult:
        name = self.machine(node).name
        return await self.engine.call(lambda api: containers.execute(api, name, words))


class EntersNodes(Protocol):
    """``enters``: whether the host can look into the containers' namespaces."""

    enters: bool
