"""Choosing where and what: the backend and the system of a plan, and sweeping in all backends at
once.

Backends are imported when they are chosen: a local run needs no Docker SDK, and says nothing
about it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.base import Cluster, System
from shalott.harness.core.errors import HarnessError, UsageError
from shalott.harness.core.plan import Plan

log = logging.getLogger("shalott.cluster.select")

BACKENDS = ("auto", "docker", "local", "sim")
SYSTEMS = ("mirrored", "rabbitmq", "master-slave", "dledger", "controller")
LOG_SYSTEMS = ("master-slave", "dledger", "controller")
CONTAINERS_ONLY = ("rabbitmq",)
PING_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend, and a sentence that says which and why."""

    backend: str
    reason: str


def choose_backend(wanted: str, system: str) -> Choice:
    """Resolve ``auto``; check that ``wanted`` can be had. Raises UsageError with what to do."""
    if wanted not in BACKENDS:
        raise UsageError(f"unknown cluster {wanted!r}: choose one of {', '.join(BACKENDS)}")
    if wanted in ("local", "sim") and system in CONTAINERS_ONLY:
        raise UsageError(f"{system} runs in containers only: use --cluster docker")
    if wanted == "sim":
        return Choice("sim", "cluster sim: every node in one process, in virtual time")
    if wanted == "local":
        return Choice("local", "cluster local: one process a node, as asked for")
    obstacle = docker_obstacle()
    if obstacle is None:
        why = "as asked for" if wanted == "docker" else "since the Docker engine answers"
        return Choice("docker", f"cluster docker: one container a node, {why}")
    if wanted == "docker":
        raise UsageError(f"cluster docker can't be used: {obstacle}")
    if system in CONTAINERS_ONLY:
        raise UsageError(f"{system} runs in containers only, and {obstacle}")
    return Choice("local", f"cluster local: one process a node, since {obstacle}")


def docker_obstacle() -> str | None:
    """What keeps the docker backend from working here, with the command that mends it; None if
    nothing does."""
    from shalott.cluster.docker.engine import connect

    try:
        api = connect(timeout_s=PING_TIMEOUT_S)
    except UsageError as error:
        return str(error)
    try:
        system = str(api.info().get("OperatingSystem", ""))
    finally:
        api.close()
    if "Docker Desktop" in system:
        return "Docker Desktop's containers can't be reached from the host: use --cluster local"
    return None


def make_cluster(plan: Plan, run_id: str, work_dir: Path) -> Cluster:
    """The plan's cluster, not booted. ``work_dir`` is the run's own; what is made there is
    removed again."""
    choice = choose_backend(plan.cluster.backend, plan.system.name)
    log.info("%s", choice.reason)
    if choice.backend == "docker":
        from shalott.cluster.docker.backend import DockerCluster

        return DockerCluster(plan.cluster.nodes, run_id, keep=plan.cluster.leave_running)
    if plan.cluster.leave_running:
        raise UsageError(
            "local nodes end with the harness: leave them running with --cluster docker"
        )
    from shalott.cluster.local.backend import LocalCluster

    return LocalCluster(plan.cluster.nodes, run_id, work_dir)


def make_system(plan: Plan) -> System:
    """The plan's system. Raises UsageError if there is none of that name."""
    if plan.system.name == "mirrored":
        from shalott.cluster.systems.rabbit.mirrored import MirroredSystem

        return MirroredSystem(plan.system, plan.seed, durable=plan.workload.durable)
    if plan.system.name == "rabbitmq":
        from shalott.cluster.systems.rabbit.rabbitmq import RabbitmqSystem

        return RabbitmqSystem(plan.system, durable=plan.workload.durable)
    if plan.system.name == "master-slave":
        from shalott.cluster.systems.rocket.master_slave import MasterSlaveSystem

        return MasterSlaveSystem(plan.system, plan.seed)
    if plan.system.name in LOG_SYSTEMS:
        from shalott.cluster.systems.rocket.rocketmq import RocketmqSystem

        return RocketmqSystem(plan.system, plan.seed)
    raise UsageError(f"unknown system {plan.system.name!r}: choose one of {', '.join(SYSTEMS)}")


def sweep_all() -> list[str]:
    """Remove what dead harnesses left, in every backend, and what was left running on purpose.

    What belongs to a live harness stays. One sentence for each thing removed.
    """
    return asyncio.run(_sweep_all())


async def _sweep_all() -> list[str]:
    from shalott.cluster.local.sweep import sweep_local

    sentences = await sweep_local()
    if docker_obstacle() is not None:
        return sentences
    from shalott.cluster.docker.engine import Engine
    from shalott.cluster.docker.sweep import sweep_docker

    engine = Engine()
    try:
        sentences += await sweep_docker(engine, kept=True)
    except HarnessError as error:
        sentences.append(f"Docker could not be swept: {error}")
    finally:
        engine.close()
    return sentences
