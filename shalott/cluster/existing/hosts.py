"""Hosts whose nodes are services of their own: a unit of systemd, or what commands start and stop.

The agent (cluster/ssh/agent) is put on each, with its dead man's switch: it undoes everything and
removes itself when the harness is gone. Links, clocks and processes are those of cluster/ssh.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath

from shalott.cluster.capabilities import NOTHING, WORLDS, Can
from shalott.cluster.cluster import Parts, SeenClocks, Software, together
from shalott.cluster.disks.node_disks import NodeDisks
from shalott.cluster.existing.backend import ExistingCluster
from shalott.cluster.existing.container_parts import NEVER_WIPED, below
from shalott.cluster.existing.full_disks import FullDisks
from shalott.cluster.existing.inventory import client_endpoint, hosts_of
from shalott.cluster.filling import FILLER
from shalott.cluster.node_files import tail
from shalott.cluster.nodes import Endpoint, NodeSpec, Topology
from shalott.cluster.ssh.agent.firewall import chain_of, table_of
from shalott.cluster.ssh.backend import SshHosts, SshOptions
from shalott.cluster.ssh.clocks import HostClocks
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.facts import capabilities_of, probe_hosts
from shalott.cluster.ssh.files import HostFiles, bring
from shalott.cluster.ssh.inventory import title_of
from shalott.cluster.ssh.links import HostLinks
from shalott.cluster.ssh.nodes import HostNodes
from shalott.cluster.ssh.processes import HostProcesses
from shalott.cluster.ssh.sweep import AS_ROOT
from shalott.core.errors import HarnessError, MissingCapability, ShalottError, UsageError
from shalott.core.json_value import JsonObject
from shalott.core.plan import ExistingNode, ExistingPlan, SshPlan

log = logging.getLogger("shalott.cluster.existing")

CUTS_AND_SHAPES = WORLDS["existing"]["links"]


def make_hosts(
    nodes: Sequence[str], run_id: str, plan: ExistingPlan, seed: int, needs: Can
) -> ExistingCluster:
    """Connects, to learn what the hosts can. Raises UsageError, HarnessError."""
    hosts = {node: host for node, host in hosts_of(plan).items() if node in nodes}
    can = capabilities_of(probe_hosts([*hosts.values()]), set_time=plan.set_time)
    # What no fault needs is not tried: no datagram has to pass where no link is cut.
    can = (can - CUTS_AND_SHAPES) | (can & needs)
    if not plan.set_time:
        can -= {"clock"}
    if not all(own.unit or own.pids for own in (plan.nodes[node] for node in nodes)):
        can -= {"kill", "pause"}
    run = HostNodes(hosts, run_id)
    links = HostLinks(run, can, seed)
    disks = NodeDisks("existing", NOTHING, None, "torn")
    clocks = HostClocks(run, can, is_wanted="clock" in needs, set_time=plan.set_time)
    processes = HostProcesses(run, disks, can & WORLDS["existing"]["processes"])
    files = HostedFiles(run, processes, plan)
    filled = FilledHosts(run, plan)
    full = FullDisks(filled, is_wanted="disk-full" in needs)
    parts = Parts(links=links, processes=processes, clocks=clocks, disks=full, files=files)
    services = {node: _service(plan.nodes[node]) for node in nodes}
    found = ExistingHosts(run, plan, parts, filled, files)
    cluster = ExistingCluster(nodes, found, parts, found.adopt, plan.prefix)
    # A run's own hosts, but for what they start.
    found.inner = SshHosts(
        *(run, links, clocks, disks),
        SshPlan(hosts=tuple(hosts.values()), lease_s=plan.lease_s, set_time=plan.set_time),
        SshOptions(),
        cluster,
        services,
    )
    return cluster


def _service(own: ExistingNode) -> JsonObject:
    """What the agent is told of a node."""
    unit = shlex.quote(own.unit)
    return {
        "unit": own.unit,
        "start": f"systemctl start {unit}" if own.unit else own.start,
        "stop": f"systemctl stop {unit}" if own.unit else own.stop,
        "status": own.status,
        "pids": own.pids,
        "logs": "\n".join(own.logs),
    }


class ExistingHosts:
    """See ``Hosts``. ``inner``: the same hosts with their agents, as those of a run of our own."""

    inner: SshHosts

    def __init__(
        self,
        run: HostNodes,
        plan: ExistingPlan,
        parts: Parts,
        disks: FilledHosts,
        files: HostedFiles,
    ) -> None:
        links, clocks, full = parts.links, parts.clocks, parts.disks
        assert isinstance(links, HostLinks) and isinstance(clocks, HostClocks)
        assert isinstance(full, FullDisks)
        self._full = full
        self._run, self._plan, self._parts = run, plan, parts
        self._links, self._clocks, self._disks, self._files = links, clocks, disks, files
        self._opened: dict[str, str] = {}  # directories of runs by node, once there are agents
        self._software: Software | None = None

    async def look(self, software: Software) -> Sequence[str]:
        """See ``StandsAlready``."""
        nodes = self._run.nodes
        with ThreadPoolExecutor(len(nodes), thread_name_prefix="ssh-look") as threads:
            loop = asyncio.get_running_loop()
            looks = [loop.run_in_executor(threads, self._state_of, node) for node in nodes]
            states = dict(zip(nodes, await asyncio.gather(*looks), strict=True))
        down = [node for node, state in states.items() if state != "runs"]
        if down and not self._plan.start_down:
            raise UsageError(
                f"{' and '.join(down)} does not run: start it, leave it out with --nodes, or allow"
                " to start it (start_down = true in the inventory)"
            )
        return [self._touched(node, states[node], software) for node in nodes]

    def _state_of(self, node: str) -> str:
        """Blocks. Raises HarnessError."""
        own = self._plan.nodes[node]
        connection = Connection(self._run.hosts[node])
        try:
            return "runs" if _as_root(connection, runs_script(own)) == "0" else "is down"
        finally:
            connection.close()

    def _touched(self, node: str, state: str, software: Software) -> str:
        own, host = self._plan.nodes[node], self._run.hosts[node]
        what = f"the unit {own.unit}" if own.unit else f"what `{own.start}` starts"
        clients = ", ".join(
            f"{port} at {each.host}:{each.port}"
            for port in software.ports
            for each in [
                client_endpoint(self._plan, node, port, host.address, software.ports[port])
            ]
        )
        files = "; ".join((*([own.data] if own.data else []), *own.logs)) or "none"
        return (
            f"{node}: {what} on {title_of(host)} ({state}), clients {clients}, files {files}; an"
            f" agent of ours in {host.directory}"
        )

    async def open(self, software: Software) -> Topology:
        self._software = software
        topology = await self.inner.open(software)
        for node in self._run.nodes:
            self._opened[node] = self._run.directory(node)
        return topology

    async def adopt(self) -> None:
        """The agents look at what runs there. Raises UsageError: a node does not run."""
        await together(self._adopt(node) for node in self._run.nodes)
        if self._clocks.capabilities and self._clocks.is_wanted:
            for node in self._run.nodes:
                self._clocks.adopt(node)
            self._clocks.check()
        self._links.open()

    async def _adopt(self, node: str) -> None:
        own, agent = self._plan.nodes[node], self._run.agent(node)
        seen = await agent.call("adopt", logs=list(own.logs), data=own.data)
        assert self._software is not None
        ports = dict(self._software.ports)
        self._run.specs[node] = NodeSpec(
            name=node,
            image="",
            command=(),
            ports=ports,
            collect=(*own.collect, *below(own.data, own.logs), FILLER),
        )
        self._files.began_s[node] = int(seen["began_s"])
        self._files.sizes |= {(node, path): size for path, size in seen["sizes"].items()}
        if seen["state"] != "running":
            if not self._plan.start_down:
                raise UsageError(f"{node} is {seen['state']}: start it, or say start_down = true")
            log.warning("%s is down, and is started as the inventory allows", node)
            await agent.call("start")
        if "disk-full" in self._full.capabilities:
            await self._disks.check(node)

    async def prepare(self, software: Software, specs: Sequence[NodeSpec]) -> None:
        """What the nodes need is theirs."""

    async def ready(self) -> None:
        await self.inner.ready()

    async def remove(self) -> None:
        """Start what is down, end the agents, and prove that nothing of ours is left. Raises
        HarnessError: something is, or can't be looked at."""
        opened, self._opened = self._opened, {}
        names = {node: self._run.name(node) for node in opened}
        directories = dict(opened)
        await self.inner.remove()
        left: list[str] = []
        for node, name in names.items():
            look = partial(self._remains, node, name, directories[node])
            left += [f"{node}: {what}" for what in await asyncio.to_thread(look)]
        if left:
            raise HarnessError(f"of the run there is left: {'; '.join(left)}")

    def _remains(self, node: str, name: str, directory: str) -> list[str]:
        """Blocks."""
        own = self._plan.nodes[node]
        try:
            connection = Connection(self._run.hosts[node])
        except ShalottError as error:
            return [f"it can't be looked at: {error}"]
        try:
            script = _remains_script(name, directory, own)
            found = _said_as_root(connection, script).splitlines()
            return found if found and found.pop() == "looked" else ["it could not be looked at"]
        finally:
            connection.close()

    def endpoint(self, node: str, port: str) -> Endpoint:
        if node in self._run.forwards:
            return self.inner.endpoint(node, port)
        address, usual = self._run.hosts[node].address, self._run.ports[port]
        return client_endpoint(self._plan, node, port, address, usual)

    async def read_clocks(self, node: str) -> SeenClocks | None:
        return await self.inner.read_clocks(node)

    def describe(self) -> Mapping[str, str]:
        return {
            "backend": "existing: services of hosts, with an agent on each",
            **self._links.describe(),
            "pause": "SIGSTOP to all processes of the service",
            "kill": "SIGKILL to all processes of the service, which is then kept down",
            "lease": f"a host undoes everything {self._plan.lease_s:g} s after it last heard",
        }


def runs_script(own: ExistingNode) -> str:
    """A shell script that succeeds if the service runs."""
    if own.unit:
        return f"systemctl is-active -q {shlex.quote(own.unit)}"
    return own.status or (
        f"for pid in $({own.pids}); do"
        " grep '^State:' /proc/$pid/status 2>/dev/null | grep -qv 'Z (' && exit 0; done; exit 1"
    )


def _remains_script(name: str, directory: str, own: ExistingNode) -> str:
    """Prints what there is of a run, a line each, and then that it was looked at."""
    place = shlex.quote(directory)
    filler = f"ls -d {shlex.quote(own.data)}/{FILLER} 2>/dev/null;" if own.data else ""
    agents = f"{PurePosixPath(directory).parent.parent}/agent-"
    return f"""PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
nft list tables 2>/dev/null | grep -F {table_of(name)}
for table in filter mangle; do
    iptables -w -t $table -S 2>/dev/null | grep -F -e {chain_of(name)} -e SHALOTTP-
done
ls -d /run/shalott/{name}* {place} 2>/dev/null
{filler}
[ -d $(dirname {place}) ] || ls -d $(dirname $(dirname {place}))/agent-*.pyz 2>/dev/null
own={shlex.quote(agents[:-1])}; own="$own{agents[-1]}"  # not as one word, which this shell has
for each in /proc/[0-9]*; do
    tr '\\0' ' ' <$each/cmdline 2>/dev/null | grep -F -e "$own"
done
tc qdisc show 2>/dev/null | grep 'qdisc htb 1: '
({runs_script(own)}) >/dev/null 2>&1 || echo "the node does not run"
echo looked
"""


def _said_as_root(connection: Connection, script: str) -> str:
    words = ["sh", "-c", script]
    if connection.host.sudo:
        words = ["sh", "-c", AS_ROOT, "sh", *words]
    return connection.run(shlex.join(words)).output.decode(errors="replace")


def _as_root(connection: Connection, script: str) -> str:
    """The exit code of a script, as text."""
    wrapped = f"({script}) >/dev/null 2>&1; echo $?"
    return _said_as_root(connection, wrapped).strip()


class HostedFiles(HostFiles):
    """See ``Files``, ``ReadsDataFiles`` and ``ChangesDataFiles``: what the inventory names, of what
    was written since the run began."""

    capabilities = WORLDS["existing"]["files"]

    def __init__(self, run: HostNodes, processes: HostProcesses, plan: ExistingPlan) -> None:
        super().__init__(run, processes, NodeDisks("existing", NOTHING, None, "torn"))
        self._plan = plan
        self.sizes: dict[tuple[str, str], int] = {}  # of logs when the run began
        self.began_s: dict[str, int] = {}  # by the hosts' clocks

    async def wipe(self, node: str) -> None:
        raise MissingCapability(NEVER_WIPED)

    async def read(self, node: str, path: str, offset: int) -> bytes:
        own = self._plan.nodes[node]
        if not own.data:
            raise HarnessError(f"the inventory does not say where the data of {node} is (data)")
        return await tail(self._processes.run_command, node, f"{own.data}/{path}", offset)

    async def output(self, node: str, lines: int = 20) -> str:
        return str(await self._run.agent(node).call("output", lines=lines))

    async def collect(self, into: Path) -> None:
        await asyncio.gather(*(self._collect(node, into / node) for node in self._run.specs))

    async def _collect(self, node: str, into: Path) -> None:
        own, link = self._plan.nodes[node], self._run.links[node]
        connection = self._run.connection(node)
        await asyncio.to_thread(into.mkdir, parents=True, exist_ok=True)
        scripts = {
            PurePosixPath(path).name: f"tail -c +{self.sizes.get((node, path), 0) + 1}"
            f" {shlex.quote(path)}"
            for path in own.logs
        }
        if own.unit:
            since = f"--since @{self.began_s[node]}"
            scripts["output.log"] = f"journalctl -q -o cat -u {shlex.quote(own.unit)} {since}"
        for name, script in scripts.items():
            content = await link.in_thread(partial(_said_as_root, connection, script))
            await asyncio.to_thread((into / name).write_text, content)
        if own.collect:
            await link.in_thread(partial(bring, connection, f"{own.data}/..", own.collect, into))


class FilledHosts:
    """See ``FillsDirectories``: by a file of the agent's."""

    def __init__(self, run: HostNodes, plan: ExistingPlan) -> None:
        self._run, self._plan = run, plan

    async def check(self, node: str) -> None:
        """Raises UsageError: a full disk would hit more than the node."""
        own = self._plan.nodes[node]
        if not own.data:
            raise UsageError(f"say where the data of {node} is (data), or fill no disk")
        script = f"stat -c %d {shlex.quote(own.data)} / | sort -u | wc -l"
        connection = self._run.connection(node)
        said = await self._run.links[node].in_thread(partial(_said_as_root, connection, script))
        if said.strip() != "2" and not own.fill:
            raise UsageError(
                f"the data of {node} lies where its host's own files lie: a full disk would hit"
                " them, too; allow it (fill = true), or fill no disk"
            )

    async def fill(self, node: str) -> None:
        directory = self._plan.nodes[node].data
        await self._run.agent(node).call("fill", directory=directory, is_full=True)

    async def empty(self, node: str) -> None:
        directory = self._plan.nodes[node].data
        await self._run.agent(node).call("fill", directory=directory, is_full=False)

    async def is_full(self, node: str) -> bool:
        directory = self._plan.nodes[node].data
        return bool(await self._run.agent(node).call("is_full", directory=directory))

    async def close(self) -> None:
        """The agents undo it with the rest."""
