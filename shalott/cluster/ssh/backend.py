"""SshCluster: one node a host, on any Linux hosts that are reached over SSH.

An agent of ours on each host (cluster/ssh/agent) does what is asked for and undoes it by itself
when this harness is silent. Nodes listen on their usual ports at the host's own addresses; links
are cut in the receiving host's firewall; a pause is SIGSTOP, a kill SIGKILL to all that a node
started.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from shalott.cluster.base import (
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
from shalott.cluster.capabilities import RESOURCES
from shalott.cluster.disks.control import FaultDisk, PowerLoss
from shalott.cluster.disks.mounting import names_rule_for
from shalott.cluster.disks.of_nodes import NodeDisks
from shalott.cluster.following import tail
from shalott.cluster.links import Link
from shalott.cluster.owner import this_process
from shalott.cluster.refusals import refusal
from shalott.cluster.resources import PLENTY, Shortage
from shalott.cluster.ssh.clocks import HostClocks, check_libraries
from shalott.cluster.ssh.collecting import bring
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.facts import (
    CLOCKS,
    HostFacts,
    capabilities_of,
    look,
    probe_hosts,
    refuse_unfit,
)
from shalott.cluster.ssh.forwarding import Forwards
from shalott.cluster.ssh.inventory import resolve
from shalott.cluster.ssh.link import AgentLink
from shalott.cluster.ssh.links import HostLinks
from shalott.cluster.ssh.programs import check_program, command_line, entry_of, search_path
from shalott.cluster.ssh.sweep import agent_command, end_run, sweep_host
from shalott.cluster.ssh.upload import put_agent, put_broker, put_disk_program
from shalott.cluster.stalls import Stall
from shalott.core.errors import HarnessError
from shalott.core.plan import SshPlan

log = logging.getLogger("shalott.cluster.ssh")

THREADS_A_HOST = 4


class SshCluster:
    """See ``cluster.base.Cluster``. Connects when it is made, to learn what the hosts can; raises
    UsageError, HarnessError.

    ``seed``, ``disk_seed``, ``power_loss``: as DockerCluster's; without a seed of theirs no disks
    can fail, and the nodes' data lies in plain directories of the hosts. ``clocks``: nodes are
    started so that each can have a clock of its own; ``resources``: in control groups of their
    own, to be made short of something, and ``small_tmp``: with a small /tmp of their own, which
    can be filled. The others can't, and pay nothing.
    """

    backend = "ssh"
    clock_error_ms = 5.0  # see ``ReadsClocksRoughly``: a drift is made of steps

    def __init__(
        self,
        nodes: Sequence[str],
        run_id: str,
        plan: SshPlan,
        *,
        seed: int = 0,
        clocks: bool = False,
        resources: bool = False,
        small_tmp: bool = False,
        disk_seed: int | None = None,
        power_loss: PowerLoss = "torn",
    ) -> None:
        self.nodes = tuple(nodes)
        self._disk_seed = disk_seed
        self._disks = NodeDisks(power_loss)
        self._hosts = dict(zip(nodes, plan.hosts, strict=False))
        self._has_clocks = clocks
        self._clocks = HostClocks(plan.set_time)
        hosts = list(self._hosts.values())
        facts = probe_hosts(hosts)
        self.capabilities: frozenset[str] = capabilities_of(facts, set_time=plan.set_time)
        if clocks:
            check_libraries(hosts, facts, set_time=plan.set_time)
        else:
            self.capabilities -= {*CLOCKS}
        self._has_resources, self._small_tmp = resources, small_tmp
        if not resources:
            self.capabilities -= {*RESOURCES}
        elif not small_tmp:
            self.capabilities -= {"fill-tmp"}
        self.on_exit: Callable[[NodeExit], None] = ignore_exit
        self._run_id = run_id
        self._lease_s = plan.lease_s
        self._token = hashlib.sha256(run_id.encode()).hexdigest()[:12]
        self._threads: ThreadPoolExecutor | None = None
        self._links: dict[str, AgentLink] = {}
        self._forwards: dict[str, Forwards] = {}  # of hosts behind a jump host
        self._facts: dict[str, HostFacts] = {}
        self._agents: dict[str, str] = {}  # paths on the hosts
        self._specs: dict[str, NodeSpec] = {}
        self._ports: Mapping[str, int] = {}
        self._addresses: dict[str, str] = {}  # at which the other nodes reach one
        self._isolated: dict[str, bool] = {}
        self._net = HostLinks(nodes, self._addresses, self._link, self.capabilities, seed)

    # -- life
    # ----------------------------------------------------------------------------------------------

    async def boot(self, system: System) -> None:
        self._threads = ThreadPoolExecutor(
            THREADS_A_HOST * len(self.nodes), thread_name_prefix="ssh"
        )
        self._ports = system.ports
        await _together(self._open_host(node) for node in self.nodes)
        specs = {spec.name: spec for spec in system.node_specs(self._topology())}
        await _together(self._prepare(node, specs[node]) for node in self.nodes)
        self._clocks.check(self._facts)
        self._specs = specs
        self._net.open(self._facts)
        await _together(self.start(node) for node in self.nodes)
        await self._net.check()

    async def _open_host(self, node: str) -> None:
        host = self._hosts[node]
        link = AgentLink(
            node, host, self._lease_s, self._executor, lambda event: self._told(node, event)
        )
        self._links[node] = link
        connection = await link.connect()
        facts = self._facts[node] = await link.in_thread(lambda: look(connection))
        refuse_unfit(host, facts)
        self._addresses[node] = host.inner or await link.in_thread(lambda: resolve(host))
        agent = self._agents[node] = await link.in_thread(lambda: put_agent(connection, facts))
        for sentence in await link.in_thread(lambda: sweep_host(connection, facts, agent)):
            log.info("%s", sentence)
        settings = {
            "name": self._name(node),
            "run": self._run_id,
            "owner": str(this_process()),
            "directory": self._directory(node),
            "lease_s": self._lease_s,
        }
        if host.jump:
            self._forwards[node] = Forwards(link)
            await self._forwards[node].open(self._ports)
        await link.open(
            agent_command(host, agent, "open"),
            agent_command(host, agent, "attach", self._name(node)),
            settings,
        )

    async def _prepare(self, node: str, spec: NodeSpec) -> None:
        """Put on a host what its node needs. Raises BootFailed: a program is not there."""
        link, facts = self._links[node], self._facts[node]
        connection = self._connection(node)
        library = ""
        if any("{python}" in word for word in spec.command):
            library = await link.in_thread(lambda: put_broker(connection, facts))
        else:
            await link.in_thread(lambda: check_program(connection, spec))
        if self._has_clocks:
            words = [self._fill(node, word) for word in spec.command]
            given = spec
            spec = await link.in_thread(
                lambda: self._clocks.prepare(connection, facts, given, words)
            )
        environment = {
            "PATH": search_path(spec.image),
            "HOME": f"{self._directory(node)}/data",
            "LANG": "C.UTF-8",
            "PYTHONPATH": library,
            "PYTHONUNBUFFERED": "1",
            **dict(entry_of(spec.image).environment),
            **{name: self._fill(node, value) for name, value in spec.environment.items()},
        }
        made = await link.call(
            "prepare",
            node=node,
            ports=sorted(spec.ports.values()),
            files=dict(spec.files),
            command=[self._fill(node, word) for word in command_line(spec.image, spec.command)],
            environment=environment,
            restart=spec.restart_if_exits,
            hosts=self._addresses,
            resources=self._has_resources,
            small_tmp=self._small_tmp,
        )
        self._isolated[node] = made["isolated"]
        if self._disk_seed is not None:
            await self._mount(node, spec, self._disk_seed)

    async def _mount(self, node: str, spec: NodeSpec, seed: int) -> None:
        """Put a disk that can fail under a node's data. Raises UsageError, HarnessError."""
        link, facts, connection = self._links[node], self._facts[node], self._connection(node)
        program = await link.in_thread(lambda: put_disk_program(connection, facts))
        evidence = [word for name in spec.collect for word in ("--evidence", name)]
        options = ["--names", names_rule_for(spec.image), "--allow-other", *evidence]
        await link.call("mount", program=program, options=options)

        async def ask(line: str) -> str:
            return str(await link.call("disk", line=line))

        number = self.nodes.index(node)
        self._disks.add(node, FaultDisk(ask, node=node, seed=seed * 1_000 + number))

    async def teardown(self) -> None:
        threads, self._threads = self._threads, None
        if threads is None:
            return
        await asyncio.gather(*(self._close_host(node, threads) for node in self._links))
        # An interrupted boot may have calls out; they find nothing to start any more.
        await asyncio.to_thread(threads.shutdown, wait=True)
        for each in (self._links, self._facts, self._agents, self._specs):
            each.clear()
        self._net.close()
        self._disks.clear()
        self._clocks.clear()

    async def _close_host(self, node: str, threads: ThreadPoolExecutor) -> None:
        """Nothing is raised for a host that can't be reached: its agent does the same."""
        link = self._links[node]
        if node in self._forwards:
            await self._forwards.pop(node).close()
        await link.settle()
        await link.end()
        connection, agent = link.connection, self._agents.get(node)
        if connection is not None and agent is not None:

            def end() -> None:
                end_run(connection, agent, self._name(node), self._directory(node))

            try:
                await link.in_thread(end)
            except HarnessError as error:
                log.warning("%s is left to its agent: %s", node, error)
        await link.close()

    # -- processes
    # -----------------------------------------------------------------------------------------

    async def start(self, node: str) -> None:
        await self._link(node).call("start")

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        await self._link(node).call("stop", timeout_s=timeout_ms / 1000)

    async def kill(self, node: str) -> None:
        await self._link(node).call("kill")

    def _told(self, node: str, event: Mapping[str, Any]) -> None:
        if "stall_s" in event:
            self._net.stalled(event)
            return
        ended = NodeExit(
            node=node, exit_code=event["exit_code"], out_of_memory=event["out_of_memory"]
        )
        self.on_exit(ended)

    async def power_off(self, node: str) -> None:
        self._check_disks("power")
        peers = [address for name, address in self._addresses.items() if name != node]
        ports = sorted(self._specs[node].ports.values())
        await self._link(node).call("darken", peers=peers, ports=ports)
        await self._disks.power(node)

    async def pause(self, node: str) -> None:
        await self._link(node).call("pause")

    async def resume(self, node: str) -> None:
        await self._link(node).call("resume")

    async def wipe(self, node: str) -> None:
        if self._disk_seed is None:
            await self._link(node).call("wipe")
        elif (await self.status(node)).pid is not None:
            raise HarnessError(f"{node} runs: its data can't be wiped")
        else:
            await self._disks.wipe(node)

    async def status(self, node: str) -> NodeStatus:
        if node not in self._specs:
            return NodeStatus(state="absent")
        return NodeStatus(**await self._link(node).call("status"))

    # -- links
    # ---------------------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link]) -> None:
        await self._net.cut(links)

    async def mend(self, links: Sequence[Link]) -> None:
        await self._net.mend(links)

    async def set_client_cuts(self, links: Sequence[Link], ports: Sequence[str]) -> None:
        """See ``CutsClients``."""
        await self._net.set_client_cuts(links, [self._ports[port] for port in ports])

    async def client_cuts(self) -> list[Link]:
        return await self._net.client_cuts()

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
        await self._net.shape(source, destination, shape)

    async def shape_packets(self, source: str, destination: str, shape: LinkShape) -> None:
        await self._net.shape(source, destination, shape)

    async def link_shape(self, source: str, destination: str) -> LinkShape:
        return await self._net.shape_of(source, destination)

    async def measure_packets(self, source: str, destination: str, count: int) -> PacketsSeen:
        return await self._net.measure(source, destination, count)

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        """See ``CarriesTraffic``."""
        self._net.tell_stalls(tell)

    async def heal(self) -> None:
        await self._net.heal()
        if self._has_resources:
            await asyncio.gather(*(self.set_shortage(node, PLENTY) for node in self._specs))
        await asyncio.gather(*(self._resume_paused(node) for node in self._specs))
        await self._clocks.heal()
        await self._disks.heal()

    async def _resume_paused(self, node: str) -> None:
        if (await self.status(node)).state == "paused":
            await self.resume(node)

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        states = await asyncio.gather(self.status(source), self.status(destination))
        if any(status.pid is None for status in states):
            return False
        return await self._net.datagram(source, destination, timeout_ms)

    # -- clocks, disks and resources
    # -----------------------------------------------------------------------------------

    async def set_clock(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        """Of the wall clock only: the monotonic one never drifts here."""
        self._check_clock()
        await self._clocks.set(self._link(node), offset_ms, drift_ppm)

    async def clock_offset_ms(self, node: str) -> float:
        self._check_clock()
        return await self._clocks.offset_ms(self._link(node))

    def _check_clock(self) -> None:
        if not self._has_clocks:
            raise refusal(self.backend, "clock")

    async def set_disk(self, node: str, faults: DiskFaults | None) -> None:
        self._check_disks("disk")
        await self._disks.set(node, faults)

    async def disk_faults(self, node: str) -> DiskFaults:
        self._check_disks("disk")
        return await self._disks.faults(node)

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        """See ``CountsSyncs``."""
        self._check_disks("disk")
        return await self._disks.await_syncs(node, count, timeout_ms)

    async def set_shortage(self, node: str, shortage: Shortage) -> None:
        """See ``LimitsResources``."""
        told = msgspec.structs.asdict(shortage)
        await self._link(node).call("shortage", shortage=told)

    async def shortage(self, node: str) -> Shortage:
        return msgspec.convert(await self._link(node).call("read_shortage"), Shortage)

    def _check_disks(self, what: str) -> None:
        if self._disk_seed is None:
            raise refusal(self.backend, what)

    # -- reading
    # -------------------------------------------------------------------------------------------

    def endpoint(self, node: str, port: str) -> Endpoint:
        if node in self._forwards:
            return self._forwards[node].endpoint(port)
        return Endpoint(self._hosts[node].address, self._ports[port])

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        done = await self._link(node).call(
            "command", command=list(command), timeout_s=timeout_ms / 1000
        )
        return CommandResult(done["exit_code"], done["output"])

    async def read_data(self, node: str, path: str, offset: int) -> bytes:
        """See ``ReadsDataFiles``: a command of the agent's."""
        return await tail(self.run_command, node, f"{self._directory(node)}/data/{path}", offset)

    async def output(self, node: str, lines: int = 20) -> str:
        return str(await self._link(node).call("output", lines=lines))

    async def collect(self, into: Path) -> None:
        collected = await asyncio.gather(
            *(self._collect_one(node, spec, into / node) for node, spec in self._specs.items()),
            return_exceptions=True,
        )
        for error in collected:
            if isinstance(error, BaseException):
                raise error  # when the others' files are there

    async def _collect_one(self, node: str, spec: NodeSpec, into: Path) -> None:
        connection, directory = self._connection(node), self._directory(node)
        await self._links[node].in_thread(lambda: bring(connection, directory, spec.collect, into))
        await self._disks.report(node, into)

    def describe(self) -> Mapping[str, str]:
        names = "with the nodes' names" if all(self._isolated.values()) else "as the host has them"
        return {
            "backend": "ssh: one host a node, with an agent on each",
            **self._net.describe(),
            "pause": "SIGSTOP to all processes of the node",
            "kill": "SIGKILL to all processes of the node",
            "disks": "the hosts' own"
            if self._disk_seed is None
            else "a file system with a page cache of its own over each data directory",
            "clocks": self._clocks.described() if self._has_clocks else "the hosts' own",
            "names": f"/etc/hosts {names}",
            "lease": f"a host undoes everything {self._lease_s:g} s after it last heard from here",
        }

    # -- inside
    # --------------------------------------------------------------------------------------------

    @property
    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            raise HarnessError("the cluster is not booted")
        return self._threads

    def _link(self, node: str) -> AgentLink:
        if node not in self._links:
            raise HarnessError(f"{node} is not booted")
        return self._links[node]

    def _connection(self, node: str) -> Connection:
        connection = self._links[node].connection if node in self._links else None
        if connection is None:
            over = self._links[node].why_over if node in self._links else ""
            raise HarnessError(over or f"there is no connection to {node}")
        return connection

    def _name(self, node: str) -> str:
        return f"{self._token}-{node}"

    def _directory(self, node: str) -> str:
        return f"{self._facts[node].directory}/runs/{self._name(node)}"

    def _fill(self, node: str, text: str) -> str:
        filled = text.replace("{config}", f"{self._directory(node)}/config")
        filled = filled.replace("{data}", f"{self._directory(node)}/data")
        return filled.replace("{python}", self._hosts[node].python)

    def _topology(self) -> Topology:
        at = {
            node: {name: Endpoint(address, number) for name, number in self._ports.items()}
            for node, address in self._addresses.items()
        }
        listen = {
            node: {
                name: Endpoint("::" if ":" in address else "0.0.0.0", number)
                for name, number in self._ports.items()
            }
            for node, address in self._addresses.items()
        }
        return Topology(
            listen=listen,
            dial={a: {b: at[b] for b in self.nodes if b != a} for a in self.nodes},
            data_dir={node: f"{self._directory(node)}/data" for node in self.nodes},
            config_dir={node: f"{self._directory(node)}/config" for node in self.nodes},
        )


async def _together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them at once; what the first one raises ends the others before it is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
