"""The hosts of one run: each node's agent, and what its parts ask of it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shlex
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import paramiko

from shalott.cluster.capabilities import WORLDS, Can
from shalott.cluster.disks.node_disks import NodeDisks
from shalott.cluster.node_files import tail, unpack
from shalott.cluster.nodes import PLENTY, CommandResult, NodeSpec, NodeStatus, Shortage
from shalott.cluster.parts import StatelessPart
from shalott.cluster.ssh.agent_link import AgentLink
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.facts import HostFacts
from shalott.cluster.ssh.forwarding import Forwards
from shalott.cluster.ssh.inventory import title_of
from shalott.core.errors import HarnessError
from shalott.core.plan import HostPlan

THREADS_A_HOST = 4


class HostNodes:
    """What the parts share; no host is connected at first.

    ``hosts``: of the plan, by node. ``links``: to their agents. ``forwards``: of hosts behind a
    jump host. ``agents``: paths on the hosts. ``addresses``: at which the other nodes reach one.
    """

    def __init__(self, hosts: Mapping[str, HostPlan], run_id: str) -> None:
        self.nodes = tuple(hosts)
        self.hosts = hosts
        self.run_id = run_id
        self._token = hashlib.sha256(run_id.encode()).hexdigest()[:12]
        self.threads: ThreadPoolExecutor | None = None
        self.links: dict[str, AgentLink] = {}
        self.forwards: dict[str, Forwards] = {}
        self.facts: dict[str, HostFacts] = {}
        self.agents: dict[str, str] = {}
        self.specs: dict[str, NodeSpec] = {}
        self.ports: Mapping[str, int] = {}
        self.addresses: dict[str, str] = {}

    def start_threads(self) -> ThreadPoolExecutor:
        self.threads = ThreadPoolExecutor(
            THREADS_A_HOST * len(self.nodes), thread_name_prefix="ssh"
        )
        return self.threads

    def forget(self) -> None:
        """All connections are closed."""
        for each in (self.links, self.facts, self.agents, self.specs):
            each.clear()

    def agent(self, node: str) -> AgentLink:
        if node not in self.links:
            raise HarnessError(f"{node} is not booted")
        return self.links[node]

    def connection(self, node: str) -> Connection:
        connection = self.links[node].connection if node in self.links else None
        if connection is None:
            over = self.links[node].why_over if node in self.links else ""
            raise HarnessError(over or f"there is no connection to {node}")
        return connection

    def name(self, node: str) -> str:
        return f"{self._token}-{node}"

    def directory(self, node: str) -> str:
        return f"{self.facts[node].directory}/runs/{self.name(node)}"

    def filled(self, node: str, text: str) -> str:
        filled = text.replace("{config}", f"{self.directory(node)}/config")
        filled = filled.replace("{data}", f"{self.directory(node)}/data")
        return filled.replace("{python}", self.hosts[node].python)


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


class HostFiles(StatelessPart):
    """See ``Files`` and ``ReadsDataFiles``."""

    capabilities = WORLDS["ssh"]["files"]

    def __init__(self, run: HostNodes, processes: HostProcesses, disks: NodeDisks) -> None:
        self._run = run
        self._processes = processes
        self._disks = disks

    async def wipe(self, node: str) -> None:
        if not self._disks.is_wanted:
            await self._run.agent(node).call("wipe")
        elif (await self._processes.status(node)).pid is not None:
            raise HarnessError(f"{node} runs: its data can't be wiped")
        else:
            await self._disks.wipe(node)

    async def read(self, node: str, path: str, offset: int) -> bytes:
        """By a command of the agent's."""
        place = f"{self._run.directory(node)}/data/{path}"
        return await tail(self._processes.run_command, node, place, offset)

    async def output(self, node: str, lines: int = 20) -> str:
        return str(await self._run.agent(node).call("output", lines=lines))

    async def collect(self, into: Path) -> None:
        specs = self._run.specs
        collected = await asyncio.gather(
            *(self._collect_one(node, spec, into / node) for node, spec in specs.items()),
            return_exceptions=True,
        )
        for error in collected:
            if isinstance(error, BaseException):
                raise error  # when the others' files are there

    async def _collect_one(self, node: str, spec: NodeSpec, into: Path) -> None:
        connection, directory = self._run.connection(node), self._run.directory(node)
        await self._run.links[node].in_thread(
            lambda: bring(connection, directory, spec.collect, into)
        )
        await self._disks.report(node, into)


class HostResources:
    """See ``Resources``. ``is_wanted``: nodes run in control groups of their own."""

    def __init__(self, run: HostNodes, capabilities: Can, *, is_wanted: bool) -> None:
        self.capabilities = capabilities & WORLDS["ssh"]["resources"]
        self._run = run
        self._is_wanted = is_wanted

    async def set(self, node: str, shortage: Shortage) -> None:
        told = msgspec.structs.asdict(shortage)
        await self._run.agent(node).call("shortage", shortage=told)

    async def seen(self, node: str) -> Shortage:
        return msgspec.convert(await self._run.agent(node).call("read_shortage"), Shortage)

    async def heal(self) -> None:
        if self._is_wanted:
            await asyncio.gather(*(self.set(node, PLENTY) for node in self._run.specs))

    async def close(self) -> None:
        """The agents undo it with the rest."""


# -- Bringing a node's output and files: one stream of tar, written to disk as it comes.
CHUNK = 1 << 18
TIMEOUT_S = 60.0  # without a byte


def bring(connection: Connection, directory: str, names: Sequence[str], into: Path) -> None:
    """The node's ``output.log`` and what there is of ``names`` under its data directory, to
    ``into``. Raises HarnessError."""
    into.mkdir(parents=True, exist_ok=True)
    words = " ".join(shlex.quote(f"data/{name}") for name in names)
    # What is missing is left out; what grows while it is read is brought as far as it was.
    script = (
        f"cd {shlex.quote(directory)} 2>/dev/null || exit 0; set --;"
        f' for name in output.log {words}; do [ -e "$name" ] && set -- "$@" "$name"; done;'
        ' [ $# = 0 ] || tar -czf - "$@" 2>/dev/null'
    )
    with tempfile.TemporaryFile() as file:
        with contextlib.closing(connection.session(f"sh -c {shlex.quote(script)}")) as channel:
            channel.settimeout(TIMEOUT_S)
            try:
                while data := channel.recv(CHUNK):
                    file.write(data)
            except (OSError, EOFError, paramiko.SSHException) as error:
                title = title_of(connection.host)
                raise HarnessError(f"the files of {title} don't come: {error}") from error
        if not file.tell():
            return
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            unpack(archive, into, without="data/")
