"""Choosing where a plan runs, making its system there, and sweeping in all backends at once.

Backends are imported when they are chosen: a local run needs no Docker SDK, and says nothing
about it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec

from shalott.cluster.capabilities import DISK_CAPABILITIES, RESOURCES
from shalott.cluster.cluster import Cluster
from shalott.cluster.docker.reachable import socket_obstacle
from shalott.cluster.existing.inventory import check as check_inventory
from shalott.cluster.nodes import Stays
from shalott.cluster.owner import this_process
from shalott.cluster.ssh.inventory import check_hosts
from shalott.cluster.system import System
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import HarnessError, MissingHere, UsageError
from shalott.core.plan import ExistingPlan, Plan, PowerLoss, SshPlan
from shalott.nemesis.requirements import required_capabilities
from shalott.nemesis.rolling import images_told

log = logging.getLogger("shalott.run.select")

BACKENDS = ("auto", "docker", "local", "ssh", "sim", "existing")
WHY = {
    "sim": "every node in one process, in virtual time",
    "local": "one process a node",
    "docker": "one container a node",
    "ssh": "one host a node",
    "existing": "nodes that stand already",
}
PING_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend, and a sentence that says which and why."""

    backend: str
    reason: str


def choose_backend(wanted: str, system: str) -> Choice:
    """Resolve ``auto``; check that ``wanted`` can be had. Raises UsageError with what to do."""
    if wanted not in BACKENDS:
        raise UsageError(f"unknown cluster {wanted}: choose one of {', '.join(BACKENDS)}")
    worlds = SYSTEMS.find(system).worlds
    check_world(wanted, system)
    if wanted == "ssh" and find_spec("paramiko") is None:
        raise MissingHere("--cluster ssh needs the package paramiko: pip install 'shalott[ssh]'")
    if wanted in ("sim", "local", "ssh", "existing"):
        return Choice(wanted, f"cluster {wanted}: {WHY[wanted]}, as asked for")
    obstacle = docker_obstacle() if "docker" in worlds else f"{system} does not run in containers"
    if obstacle is None:
        why = "as asked for" if wanted == "docker" else "since the Docker engine answers"
        return Choice("docker", f"cluster docker: {WHY['docker']}, {why}")
    if wanted == "docker":
        raise MissingHere(f"cluster docker can't be used: {obstacle}")
    for other in ("local", "sim"):
        if other in worlds:
            return Choice(other, f"cluster {other}: {WHY[other]}, since {obstacle}")
    if "ssh" in worlds:
        raise MissingHere(
            f"{system} runs in containers or on hosts over SSH (--cluster ssh) only, and {obstacle}"
        )
    raise MissingHere(f"{system} runs in containers only, and {obstacle}")


def check_world(backend: str, system: str) -> None:
    """Raises UsageError for a backend where the system does not run."""
    worlds = SYSTEMS.find(system).worlds
    if backend == "auto" or backend in worlds:
        return
    if backend == "existing":
        if worlds == ("sim",):
            raise UsageError(f"{system} has no nodes outside of the simulation: use --cluster sim")
        return
    if worlds == ("docker",):
        raise UsageError(f"{system} runs in containers only: use --cluster docker")
    raise UsageError(f"{system} does not run there: use --cluster {' or '.join(worlds)}")


def docker_obstacle() -> str | None:
    """What keeps the docker backend from working here, with the command that mends it; None if
    nothing does."""
    if find_spec("docker") is None:
        return "the package docker is not installed: pip install 'shalott[docker]'"
    if (obstacle := socket_obstacle()) is not None:
        return obstacle
    from shalott.cluster.docker.engine import connect

    try:
        connect(timeout_s=PING_TIMEOUT_S).close()
    except UsageError as error:
        return str(error)
    return None


def make_cluster(
    plan: Plan,
    run_id: str,
    work_dir: Path,
    *,
    needs: Collection[str] = (),
    stays: Stays | None = None,
) -> Cluster:
    """The plan's cluster, not booted. ``work_dir`` is the run's own; what is made there is
    removed again. ``needs``: what it must be able to do besides what the plan's faults need.
    ``stays``: of local nodes that are no run's."""
    choice = choose_backend(plan.cluster.backend, plan.system.name)
    log.info("%s", choice.reason)
    if choice.backend == "existing":
        return _make_existing(plan, run_id)
    needs = frozenset(needs) | required_capabilities(plan.faults)
    needs_disks = bool(needs & DISK_CAPABILITIES)
    told = plan.cluster.power_loss
    power_loss: PowerLoss = "torn" if told is msgspec.UNSET else told
    if choice.backend == "docker":
        from shalott.cluster.docker.backend import DockerCluster, DockerOptions

        if needs_disks and plan.cluster.leave_running:
            raise UsageError(
                "disks that can fail end with the harness, so such nodes can't be left running:"
                " choose another --nemesis"
            )
        return DockerCluster(
            plan.cluster.nodes,
            run_id,
            DockerOptions(
                keep=plan.cluster.leave_running,
                seed=plan.seed,
                clocks="clock" in needs,
                small_tmp="fill-tmp" in needs,
                disk_seed=plan.seed if needs_disks else None,
                images=images_told(plan.faults),
                power_loss=power_loss,
            ),
        )
    if plan.cluster.leave_running:
        raise UsageError(
            f"{choice.backend} nodes end with the harness: leave them running with --cluster docker"
        )
    if choice.backend == "ssh":
        from shalott.cluster.ssh.backend import SshCluster, SshOptions

        return SshCluster(
            plan.cluster.nodes,
            run_id,
            hosts_of(plan),
            SshOptions(
                seed=plan.seed,
                clocks="clock" in needs,
                resources=bool(needs & RESOURCES),
                small_tmp="fill-tmp" in needs,
                disk_seed=plan.seed if needs_disks else None,
                power_loss=power_loss,
            ),
        )
    from shalott.cluster.local.backend import LocalCluster

    return LocalCluster(
        plan.cluster.nodes,
        run_id,
        work_dir,
        disk_seed=plan.seed if needs_disks else None,
        power_loss=power_loss,
        stays=stays,
    )


def _make_existing(plan: Plan, run_id: str) -> Cluster:
    from shalott.cluster.existing.backend import make_existing

    if plan.cluster.leave_running:
        raise UsageError("nodes that stand already are left running: leave --leave-db-running out")
    needs = required_capabilities(plan.faults)
    return make_existing(plan.cluster.nodes, run_id, existing_of(plan), plan.seed, needs)


def hosts_of(plan: Plan) -> SshPlan:
    """The plan's hosts. Raises UsageError if it names none, or too few."""
    ssh, nodes = plan.cluster.ssh, plan.cluster.nodes
    if ssh is msgspec.UNSET:
        raise UsageError(
            "the plan names no hosts: --cluster ssh takes them from --ssh-hosts or --ssh-inventory"
        )
    check_hosts(ssh.hosts, len(nodes))
    return ssh


def existing_of(plan: Plan) -> ExistingPlan:
    """What the plan says of a cluster that stands already. Raises UsageError if it says nothing,
    or not of all its nodes."""
    existing = plan.cluster.existing
    if existing is msgspec.UNSET:
        raise UsageError("the plan names no cluster that stands: give --inventory FILE")
    check_inventory(existing, "the plan")
    if unknown := [node for node in plan.cluster.nodes if node not in existing.nodes]:
        raise UsageError(f"the plan does not say where {' and '.join(unknown)} may be found")
    return existing


def make_system(plan: Plan) -> System:
    """The plan's system. Raises UsageError if there is none of that name."""
    return SYSTEMS.find(plan.system.name).make(plan)


NOT_SWEPT = "containers were not looked at"


@contextmanager
def staying(name: str, directory: Path, *, is_temporary: bool) -> Iterator[None]:
    """While it lasts, ``sweep_all`` ends this process in order; if the process is killed, the next
    sweep removes the directory, where that ``is_temporary``."""
    from shalott.cluster.local.sweep import MARK, RunState, state_directory, write_state

    if is_temporary:
        (directory / MARK).touch()
    path = state_directory() / f"up-{os.getpid()}.json"
    owner = str(this_process())
    write_state(path, RunState(run=name, owner=owner, directory=str(directory), stays=True))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def sweep_all(ssh: SshPlan | None = None, *, kept: bool = False) -> list[str]:
    """Remove what dead harnesses left, in every backend; ``kept``: also what was left running on
    purpose.

    What belongs to a live harness stays, unless it is a cluster of ``shalott up``. ``ssh``: the
    hosts that are swept too, of what was uploaded as well. One sentence for each thing removed.
    """
    sentences = asyncio.run(_sweep_all(kept))
    if ssh is not None:
        from shalott.cluster.ssh.sweep import sweep_hosts

        sentences += sweep_hosts(ssh.hosts)
    return sentences


async def _sweep_all(kept: bool) -> list[str]:
    from shalott.cluster.disks.mounting import sweep_disks
    from shalott.cluster.local.sweep import end_staying, sweep_local

    sentences = [*await end_staying(), *await sweep_local()]
    if (obstacle := docker_obstacle()) is not None:
        sentences += await sweep_disks()
        return [*sentences, f"{NOT_SWEPT}: {obstacle}"]
    from shalott.cluster.docker.engine import Engine
    from shalott.cluster.docker.sweep import sweep_docker
    from shalott.cluster.existing.guard import sweep_ledgers

    sentences += await sweep_ledgers()
    engine = Engine()
    try:
        sentences += await sweep_docker(engine, kept=kept, tell_kept=True)
    except HarnessError as error:
        sentences.append(f"{NOT_SWEPT}: {error}")
    finally:
        engine.close()
    return sentences
