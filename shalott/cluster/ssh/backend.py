"""SshCluster: one node a host, on any Linux hosts that are reached over SSH.

An agent of ours on each host (cluster/ssh/agent) does what is asked for and undoes it by itself
when this harness is silent. Nodes listen on their usual ports at the host's own addresses; links
are cut in the receiving host's firewall; a pause is SIGSTOP, a kill SIGKILL to all that a node
started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shalott.cluster.capabilities import DISKS, RESOURCES
from shalott.cluster.cluster import Cluster, Parts, SeenClocks, Software, together
from shalott.cluster.disks.control import FaultDisk, PowerLoss
from shalott.cluster.disks.mounting import names_rule_for
from shalott.cluster.disks.node_disks import NodeDisks
from shalott.cluster.nodes import Endpoint, HelperEnd, NodeExit, NodeSpec, Topology
from shalott.cluster.owner import this_process
from shalott.cluster.ssh.agent_link import AgentEvent, AgentLink
from shalott.cluster.ssh.clocks import BOOT_ID, HostClocks, check_libraries
from shalott.cluster.ssh.facts import CLOCKS, capabilities_of, look, probe_hosts, refuse_unfit
from shalott.cluster.ssh.files import HostFiles
from shalott.cluster.ssh.forwarding import Forwards
from shalott.cluster.ssh.inventory import resolve
from shalott.cluster.ssh.links import HostLinks
from shalott.cluster.ssh.nodes import HostNodes
from shalott.cluster.ssh.processes import HostProcesses
from shalott.cluster.ssh.resources import HostResources
from shalott.cluster.ssh.sweep import agent_command, end_run, sweep_host
from shalott.cluster.ssh.upload import (
    check_program,
    command_line,
    entry_of,
    put_agent,
    put_broker,
    put_disk_program,
    search_path,
)
from shalott.core.errors import HarnessError
from shalott.core.json_value import JsonObject
from shalott.core.plan import SshPlan

log = logging.getLogger("shalott.cluster.ssh")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """What nodes are started for, besides what the plan says of hosts.

    ``seed``, ``disk_seed``, ``power_loss``: as DockerOptions'; without a seed of theirs no disks
    can fail, and the nodes' data lies in plain directories of the hosts. ``clocks``: nodes are
    started so that each can have a clock of its own; ``resources``: in control groups of their
    own, to be made short of something, and ``small_tmp``: with a small /tmp of their own, which
    can be filled. The others can't, and pay nothing.
    """

    seed: int = 0
    clocks: bool = False
    resources: bool = False
    small_tmp: bool = False
    disk_seed: int | None = None
    power_loss: PowerLoss = "torn"


class SshCluster(Cluster):
    """Connects when it is made, to learn what the hosts can; raises UsageError, HarnessError."""

    def __init__(
        self, nodes: Sequence[str], run_id: str, plan: SshPlan, options: SshOptions = SshOptions()
    ) -> None:
        hosts = dict(zip(nodes, plan.hosts, strict=False))
        facts = probe_hosts([*hosts.values()])
        can = capabilities_of(facts, set_time=plan.set_time)
        if options.clocks:
            check_libraries([*hosts.values()], facts, set_time=plan.set_time)
        else:
            can -= {*CLOCKS}
        if not options.resources:
            can -= RESOURCES
        elif not options.small_tmp:
            can -= {"fill-tmp"}
        run = HostNodes(hosts, run_id)
        links = HostLinks(run, can, options.seed)
        disks = NodeDisks("ssh", can & DISKS, options.disk_seed, options.power_loss)
        processes = HostProcesses(run, disks, can)
        clocks = HostClocks(run, can, is_wanted=options.clocks, set_time=plan.set_time)
        super().__init__(
            "ssh",
            nodes,
            SshHosts(run, links, clocks, disks, plan, options, self),
            Parts(
                links=links,
                processes=processes,
                clocks=clocks,
                resources=HostResources(run, can, is_wanted=options.resources),
                disks=disks,
                files=HostFiles(run, processes, disks),
            ),
        )


class SshHosts:
    """The plan's hosts, with an agent on each. See ``Hosts``."""

    def __init__(
        self,
        run: HostNodes,
        links: HostLinks,
        clocks: HostClocks,
        disks: NodeDisks,
        plan: SshPlan,
        options: SshOptions,
        cluster: Cluster,
        services: Mapping[str, JsonObject] | None = None,
    ) -> None:
        self._services = services or {}  # of hosts whose nodes are services of their own
        self._run = run
        self._links = links
        self._clocks = clocks
        self._disks = disks
        self._lease_s = plan.lease_s
        self._options = options
        self._cluster = cluster  # is told of ends
        self._isolated: dict[str, bool] = {}

    async def open(self, software: Software) -> Topology:
        self._run.start_threads()
        self._run.ports = software.ports
        await together(self._open_host(node) for node in self._run.nodes)
        return self._topology()

    async def _open_host(self, node: str) -> None:
        run, host = self._run, self._run.hosts[node]
        if run.threads is None:
            raise HarnessError("the cluster is not booted")
        link = AgentLink(
            *(node, host, self._lease_s, run.threads),
            on_event=lambda event: self._told(node, event),
            on_over=lambda why: self._helper_ended("agent", node, why),
        )
        run.links[node] = link
        connection = await link.connect()
        facts = run.facts[node] = await link.in_thread(lambda: look(connection))
        refuse_unfit(host, facts)
        run.addresses[node] = host.inner or await link.in_thread(lambda: resolve(host))
        agent = run.agents[node] = await link.in_thread(lambda: put_agent(connection, facts))
        for sentence in await link.in_thread(lambda: sweep_host(connection, facts, agent)):
            log.info("%s", sentence)
        settings: JsonObject = {
            "name": run.name(node),
            "run": run.run_id,
            "owner": str(this_process()),
            "directory": run.directory(node),
            "lease_s": self._lease_s,
            "service": self._services.get(node, {}),
        }
        if host.jump:
            run.forwards[node] = Forwards(link)
            await run.forwards[node].open(run.ports)
        await link.open(
            agent_command(host, agent, "open"),
            agent_command(host, agent, "attach", run.name(node)),
            settings,
        )

    def _told(self, node: str, event: AgentEvent) -> None:
        """An event of a node's agent."""
        if "stall_s" in event:
            self._links.stalled(event)
            return
        if "helper" in event:
            why = f"the {event['helper']} of {node} ended (exit code {event['exit_code']})"
            self._helper_ended(event["helper"], node, why)
            return
        self._cluster.on_exit(
            NodeExit(node=node, exit_code=event["exit_code"], out_of_memory=event["out_of_memory"])
        )

    def _helper_ended(self, helper: str, node: str, reason: str) -> None:
        self._cluster.on_helper_end(HelperEnd(helper=helper, node=node, reason=reason))

    def _topology(self) -> Topology:
        nodes, ports, addresses = self._run.nodes, self._run.ports, self._run.addresses
        everywhere = {node: "::" if ":" in at else "0.0.0.0" for node, at in addresses.items()}

        def ports_at(address: str) -> dict[str, Endpoint]:
            return {name: Endpoint(address, number) for name, number in ports.items()}

        return Topology(
            listen={node: ports_at(address) for node, address in everywhere.items()},
            dial={a: {b: ports_at(addresses[b]) for b in nodes if b != a} for a in nodes},
            data_dir={node: f"{self._run.directory(node)}/data" for node in nodes},
            config_dir={node: f"{self._run.directory(node)}/config" for node in nodes},
        )

    async def prepare(self, software: Software, specs: Sequence[NodeSpec]) -> None:
        by_node = {spec.name: spec for spec in specs}
        await together(self._prepare(node, by_node[node]) for node in self._run.nodes)
        self._clocks.check()
        self._run.specs |= by_node
        self._links.open()

    async def _prepare(self, node: str, spec: NodeSpec) -> None:
        """Put on a host what its node needs. Raises BootFailed: a program is not there."""
        run, link, facts = self._run, self._run.links[node], self._run.facts[node]
        connection = run.connection(node)
        library = ""
        if any("{python}" in word for word in spec.command):
            library = await link.in_thread(lambda: put_broker(connection, facts))
        else:
            await link.in_thread(lambda: check_program(connection, spec))
        spec = await self._clocks.prepare(spec)
        environment = {
            "PATH": search_path(spec.image),
            "HOME": f"{run.directory(node)}/data",
            "LANG": "C.UTF-8",
            "PYTHONPATH": library,
            "PYTHONUNBUFFERED": "1",
            **dict(entry_of(spec.image).environment),
            **{name: run.filled(node, value) for name, value in spec.environment.items()},
        }
        made = await link.call(
            "prepare",
            node=node,
            ports=sorted(spec.ports.values()),
            files=dict(spec.files),
            command=[run.filled(node, word) for word in command_line(spec.image, spec.command)],
            environment=environment,
            restart=spec.restart_if_exits,
            hosts=run.addresses,
            resources=self._options.resources,
            small_tmp=self._options.small_tmp,
        )
        self._isolated[node] = made["isolated"]
        if self._disks.is_wanted:
            await self._mount(node, spec)

    async def _mount(self, node: str, spec: NodeSpec) -> None:
        """Put a disk that can fail under a node's data. Raises UsageError, HarnessError."""
        link, facts, connection = (
            self._run.links[node],
            self._run.facts[node],
            self._run.connection(node),
        )
        program = await link.in_thread(lambda: put_disk_program(connection, facts))
        evidence = [word for name in spec.collect for word in ("--evidence", name)]
        options = ["--names", names_rule_for(spec.image), "--allow-other", *evidence]
        await link.call("mount", program=program, options=options)

        async def ask(line: str) -> str:
            return str(await link.call("disk", line=line))

        seed = self._disks.seed_of(self._run.nodes.index(node))
        self._disks.add(node, FaultDisk(ask, node=node, seed=seed))

    async def read_clocks(self, node: str) -> SeenClocks | None:
        if node not in self._run.specs:
            raise HarnessError(f"{node} is not booted")
        if self._run.facts[node].boot_id == BOOT_ID.read_text().strip():
            return None
        monotonic_ns, wall_ns = await self._run.agent(node).call("clocks")
        return SeenClocks(wall_ns, monotonic_ns)

    async def ready(self) -> None:
        await self._links.check()

    async def remove(self) -> None:
        run = self._run
        threads, run.threads = run.threads, None
        if threads is None:
            return
        await asyncio.gather(*(self._close_host(node) for node in run.links))
        # An interrupted boot may have calls out; they find nothing to start any more.
        await asyncio.to_thread(threads.shutdown, wait=True)
        run.forget()

    async def _close_host(self, node: str) -> None:
        """Nothing is raised for a host that can't be reached: its agent does the same."""
        run, link = self._run, self._run.links[node]
        if node in run.forwards:
            await run.forwards.pop(node).close()
        await link.settle()
        await link.end()
        connection, agent = link.connection, run.agents.get(node)
        if connection is not None and agent is not None:

            def end() -> None:
                end_run(connection, agent, run.name(node), run.directory(node))

            try:
                await link.in_thread(end)
            except HarnessError as error:
                log.warning("%s is left to its agent: %s", node, error)
        await link.close()

    def endpoint(self, node: str, port: str) -> Endpoint:
        if node in self._run.forwards:
            return self._run.forwards[node].endpoint(port)
        return Endpoint(self._run.hosts[node].address, self._run.ports[port])

    def describe(self) -> Mapping[str, str]:
        names = "with the nodes' names" if all(self._isolated.values()) else "as the host has them"
        return {
            "backend": "ssh: one host a node, with an agent on each",
            **self._links.describe(),
            "pause": "SIGSTOP to all processes of the node",
            "kill": "SIGKILL to all processes of the node",
            "disks": "a file system with a page cache of its own over each data directory"
            if self._disks.is_wanted
            else "the hosts' own",
            "clocks": self._clocks.described() if self._options.clocks else "the hosts' own",
            "names": f"/etc/hosts {names}",
            "lease": f"a host undoes everything {self._lease_s:g} s after it last heard from here",
        }
