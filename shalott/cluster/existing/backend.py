"""ExistingCluster: nodes that stand already, as containers or as hosts, and stay what they are.

It boots nothing: it finds what the inventory names, refuses what does not run, and has a guardian
(containers) or agents (hosts) undo everything when the harness is gone. Its teardown leaves each
node as it was found, and proves that nothing of ours is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from shalott.cluster.capabilities import NOTHING, WORLDS, Can
from shalott.cluster.cluster import Cluster, Hosts, Parts, Software
from shalott.cluster.disks.node_disks import MountedDisks
from shalott.cluster.docker.links import ContainerLinks
from shalott.cluster.docker.namespaces import is_root
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.docker.processes import ContainerProcesses
from shalott.cluster.docker.resources import ContainerResources
from shalott.cluster.existing.container_parts import (
    FilledContainers,
    ForeignFiles,
    GuardedProcesses,
    GuardedResources,
)
from shalott.cluster.existing.containers import ExistingContainers
from shalott.cluster.existing.full_disks import FullDisks
from shalott.cluster.existing.guard import Guard
from shalott.cluster.existing.inventory import kind_of
from shalott.cluster.existing.ledger import Ledger
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import ExistingPlan

NOTHING_LEFT = (
    "Nothing of the run is left on {nodes}: every node runs as it was found, without a rule, a"
    " packet queue, a process or a file of ours; this was looked at after the run. What clients"
    " made stays there, under names that begin with {prefix}."
)


class ExistingCluster(Cluster):
    """``began`` is called when all nodes are found."""

    def __init__(
        self,
        nodes: Sequence[str],
        hosts: Hosts,
        parts: Parts,
        began: Callable[[], Awaitable[None]],
        prefix: str,
    ) -> None:
        super().__init__("existing", nodes, hosts, parts)
        self.prefix = prefix
        self._began = began
        self._is_booted = False

    async def boot(self, software: Software) -> None:
        """Nothing is started but what the inventory allows to start."""
        self._is_booted = True
        await self.hosts.open(software)
        await self._began()
        await self.hosts.ready()

    async def teardown(self) -> None:
        """Every step is tried, also if the one before it failed. Raises HarnessError: something is
        left, and it is named."""
        if not self._is_booted:
            await self.hosts.remove()
            return
        self._is_booted = False
        steps = [self.heal, self.processes.close]
        steps += [part.close for part in self.parts if part is not self.processes]
        errors = []
        for step in (*steps, self.hosts.remove):
            try:
                await step()
            except HarnessError as error:
                errors.append(str(error))
        if errors:
            raise HarnessError("; ".join(dict.fromkeys(errors)))
        self.notes.append(NOTHING_LEFT.format(nodes=", ".join(self.nodes), prefix=self.prefix))


def make_existing(
    nodes: Sequence[str], run_id: str, plan: ExistingPlan, seed: int, needs: Can
) -> ExistingCluster:
    """Not looked at yet. ``needs``: what the plan's faults need. Raises UsageError."""
    files = needs & WORLDS["existing"]["files"]
    if lacking := [node for node in nodes if files and not plan.nodes[node].data]:
        raise UsageError(
            f"the plan's faults look at or change data files, and the inventory does not say where"
            f" those of {' and '.join(lacking)} are (data)"
        )
    if kind_of(plan) == "hosts":
        from shalott.cluster.existing.hosts import make_hosts

        return make_hosts(nodes, run_id, plan, seed, needs)
    return _of_containers(nodes, run_id, plan, seed, needs)


def _of_containers(
    nodes: Sequence[str], run_id: str, plan: ExistingPlan, seed: int, needs: Can
) -> ExistingCluster:
    run = ContainerNodes(nodes, run_id, keep=False)
    guard = Guard(Ledger(run=run_id, token=run.token, lease_s=plan.lease_s))
    links, resources = ContainerLinks(run, seed), ContainerResources(run, small_tmp=False)
    inner = ContainerProcesses(
        run,
        links,
        resources,
        MountedDisks("existing", NOTHING, None, "torn"),
        capabilities=NOTHING,
        on_exit=lambda ended: cluster.on_exit(ended),
    )
    inner.tell_helper_ends(lambda ended: cluster.on_helper_end(ended))
    links.tell_helper_ends(lambda ended: cluster.on_helper_end(ended))
    links.before_entering = guard.note_shapes
    if not is_root():  # no namespace can be entered, and no rule made
        links.capabilities = NOTHING
    guard.on_end = lambda ended: cluster.on_helper_end(ended)
    files = ForeignFiles(run, plan)
    fills, takes = "disk-full" in needs, bool(needs & WORLDS["existing"]["resources"])
    parts = Parts(
        links=links,
        processes=GuardedProcesses(run, inner, guard),
        disks=FullDisks(FilledContainers(run, guard), is_wanted=fills),
        resources=GuardedResources(run, resources, guard),
        files=files,
    )
    hosts = ExistingContainers(run, plan, parts, guard, fills=fills, takes=takes)
    cluster = ExistingCluster(nodes, hosts, parts, files.begin, plan.prefix)
    return cluster
