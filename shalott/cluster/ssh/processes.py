"""The processes of nodes on hosts: their agents start and end them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shalott.cluster.capabilities import WORLDS, Can
from shalott.cluster.disks.node_disks import NodeDisks
from shalott.cluster.nodes import CommandResult, NodeStatus
from shalott.cluster.ssh.nodes import HostNodes


class HostProcesses:
    """See ``Processes``. A pause is SIGSTOP to all that a node started."""

    def __init__(self, run: HostNodes, disks: NodeDisks, capabilities: Can) -> None:
        self.capabilities = capabilities & WORLDS["ssh"]["processes"]
        self._run = run
        self._disks = disks

    async def start(self, node: str) -> None:
        await self._run.agent(node).call("start")

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        await self._run.agent(node).call("stop", timeout_s=timeout_ms / 1000)

    async def kill(self, node: str) -> None:
        await self._run.agent(node).call("kill")

    async def power_off(self, node: str) -> None:
        self._disks.check("power")
        peers = [address for name, address in self._run.addresses.items() if name != node]
        ports = sorted(self._run.specs[node].ports.values())
        await self._run.agent(node).call("darken", peers=peers, ports=ports)
        await self._disks.power(node)

    async def pause(self, node: str) -> None:
        await self._run.agent(node).call("pause")

    async def resume(self, node: str) -> None:
        await self._run.agent(node).call("resume")

    async def status(self, node: str) -> NodeStatus:
        if node not in self._run.specs:
            return NodeStatus(state="absent")
        return NodeStatus(**await self._run.agent(node).call("status"))

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        done = await self._run.agent(node).call(
            "command", command=list(command), timeout_s=timeout_ms / 1000
        )
        return CommandResult(done["exit_code"], done["output"])

    async def heal(self) -> None:
        await asyncio.gather(*(self._resume_paused(node) for node in self._run.specs))

    async def _resume_paused(self, node: str) -> None:
        if (await self.status(node)).state == "paused":
            await self.resume(node)

    async def close(self) -> None:
        """The agents end them with the rest."""
