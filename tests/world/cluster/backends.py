"""Clusters of fake nodes on every backend, each with the event loop that it lives on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import pytest

from shalott.cluster.cluster import Cluster
from shalott.cluster.docker import clocks as docker_clocks
from shalott.cluster.docker import links as docker_links
from shalott.cluster.docker.backend import DockerCluster, DockerOptions
from shalott.cluster.local.backend import LocalCluster
from shalott.cluster.sim.backend import HARNESS, SimCluster
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.ssh.backend import SshCluster, SshOptions
from shalott.core.plan import SimPlan, SshPlan
from tests.world.cluster.fake_program import fake_program
from tests.world.cluster.fake_system import NODES, FakeSystem
from tests.world.cluster.ssh_hosts import ssh_hosts

T = TypeVar("T")
SERIAL = itertools.count(1)
READY_MS = 20000


def fresh_run_id() -> str:
    return f"contract-{os.getpid()}-{next(SERIAL)}"


HOSTS = "SHALOTT_TEST_SSH_HOSTS"  # the hosts' plan as JSON, for processes that tests start


def make(backend: str, run_id: str, work_dir: Path, *, clocks: bool = False) -> Cluster:
    """``clocks``: with nodes that can have clocks of their own, where there are such.

    ``local-disks``, ``docker-disks``, ``ssh-disks``: with data on disks that can fail.
    ``docker-all``, ``ssh-all``: with everything that a fault may need; ``ssh-clocks``: with
    ``clocks``; ``ssh-resources``: with nodes that can be short of something.
    """
    is_all = backend.endswith("-all")
    clocks = clocks or is_all or backend.endswith("-clocks")
    disk_seed = 1 if is_all or backend.endswith("-disks") else None
    if backend.startswith("local"):
        return LocalCluster(NODES, run_id, work_dir, disk_seed=disk_seed)
    if backend.startswith("ssh"):
        plan = msgspec.json.decode(os.environ[HOSTS], type=SshPlan)
        return SshCluster(
            NODES,
            run_id,
            plan,
            SshOptions(
                clocks=clocks,
                resources=is_all or backend.endswith("-resources"),
                small_tmp=is_all or backend.endswith("-resources"),
                disk_seed=disk_seed,
            ),
        )
    return DockerCluster(
        NODES, run_id, DockerOptions(clocks=clocks, disk_seed=disk_seed, small_tmp=is_all)
    )


class Runner(Protocol):
    """What runs coroutines on one event loop, one after the other."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T: ...


class SimRunner:
    """Parts of one simulation."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._harness = SimProcess(HARNESS, fenced=False)
        loop.add_process(self._harness)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_part(coroutine, self._harness)


class World:
    """A booted cluster and the event loop that it lives on."""

    def __init__(self, runner: Runner, cluster: Cluster, backend: str) -> None:
        self.backend = backend  # as ``booted_world`` has it
        self._runner = runner
        self.cluster = cluster
        self.system = FakeSystem()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    async def make_whole(self) -> None:
        """Heal, start what is down, wait until all answer."""
        await self.cluster.heal()
        for node in NODES:
            if (await self.cluster.processes.status(node)).state != "running":
                await self.cluster.processes.start(node)
        await self.system.await_ready(self.cluster, NODES, READY_MS)


@contextlib.contextmanager
def booted_world(backend: str, work_dir: Path) -> Iterator[World]:
    """A cluster of fake nodes on ``sim``, ``local``, ``ssh``, ``docker``, ``*-disks`` (see
    ``make``), or ``docker-exec``: that is what a user without root gets, chains and probes through
    exec."""
    if backend == "sim":
        yield from _booted_in_simulation()
        return
    with (
        contextlib.ExitStack() as stack,
        pytest.MonkeyPatch.context() as patch,
        asyncio.Runner() as runner,
    ):
        if backend.startswith("ssh"):
            hosts = stack.enter_context(ssh_hosts(work_dir / "hosts", len(NODES)))
            patch.setenv(HOSTS, msgspec.json.encode(hosts.plan()).decode())
        if backend == "docker-exec":
            for module in (docker_clocks, docker_links):
                patch.setattr(module, "can_enter", lambda pid: False)
        cluster = make(backend, fresh_run_id(), work_dir)
        world = World(runner, cluster, backend)
        try:
            runner.run(cluster.boot(world.system))
            yield world
        finally:
            runner.run(cluster.teardown())


def _booted_in_simulation() -> Iterator[World]:
    loop = SimLoop()
    cluster = SimCluster(NODES, loop, SimPlan(seed=1), fake_program)
    world = World(SimRunner(loop), cluster, "sim")
    try:
        world.run(cluster.boot(world.system))
        yield world
    finally:
        world.run(cluster.teardown())
        loop.dismantle()
