"""The services of one run: containers that are nodes and containers that help, in their order.

``ServiceContainers`` makes the helpers, beside the nodes' machines; ``start`` starts each service
when what it waits for is there. Whether a container is well is asked by its own health check, run
in it by the engine when it is wanted, and not every few seconds beside the load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import docker
import msgspec
from tenacity import wait_fixed

from shalott.cluster.cluster import together
from shalott.cluster.docker import containers
from shalott.cluster.docker.containers import Machine
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.names import volume_name
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.nodes import ContainerSpec, Health, NodeStatus
from shalott.cluster.services import COMPLETED, HEALTHY, HasServices, Service
from shalott.cluster.waiting import ask_until
from shalott.core.errors import BootFailed, HarnessError
from shalott.core.json_value import Json

POLL_S = 0.2
QUICK_POLL_S = 0.03
JOB_WITHIN_S = 300.0
QUOTED_LINES = 8
NANO = 1e9


@dataclass(slots=True)
class _Known:
    """What is known of one service."""

    started: asyncio.Event
    is_healthy: asyncio.Task[None] | None = None


class ServiceContainers:
    """``helpers``: machines of the containers that are no nodes, by name."""

    def __init__(self, run: ContainerNodes) -> None:
        self._run = run
        self.helpers: dict[str, Machine] = {}

    async def make_volumes(self, volumes: Sequence[str]) -> None:
        token, labels = self._run.token, self._run.labels
        for each in volumes:
            name = volume_name(token, each)
            await self._run.engine.call(partial(_make_volume, name=name, labels=labels))

    async def make(self, machine: Machine) -> None:
        """A helper's container, in place of an earlier one."""
        old = self.helpers.pop(machine.spec.name, None)
        if old is not None:
            await self._run.engine.call(partial(_remove, name=old.name))
        self.helpers[machine.spec.name] = machine
        await self._run.engine.call(partial(containers.create, machine=machine))

    async def start(
        self, services: Sequence[Service], start_node: Callable[[str], Awaitable[None]]
    ) -> None:
        known = {each.name: _Known(asyncio.Event()) for each in services}
        by_name = {each.name: each for each in services}

        async def start_one(service: Service) -> None:
            for other, condition in service.waits.items():
                await known[other].started.wait()
                if condition == HEALTHY:
                    await self._all_well(by_name[other])
                elif condition == COMPLETED:
                    await self._all_done(by_name[other])
            for name in service.containers:
                if service.is_node:
                    await start_node(name)
                else:
                    helper = self.helpers[name].name
                    await self._run.engine.call(partial(_start, name=helper))
            known[service.name].started.set()
            if service.is_job:
                await self._all_done(service)

        await together(start_one(each) for each in services)

    def machine(self, name: str) -> Machine:
        return self.helpers.get(name) or self._run.machine(name)

    async def why_unhealthy(self, name: str) -> str:
        """See ``StartsServices``."""
        machine = self.machine(name)
        told = machine.spec.container
        if told is None or told.health is None or not told.health.words:
            return ""
        return await ask_health(self._run.engine, machine.name, told.health)

    async def _all_well(self, service: Service) -> None:
        for name in service.containers:
            told = self.machine(name).spec.container
            if told is None or told.health is None or not told.health.words:
                raise BootFailed(
                    f"others wait until {name} is healthy, and neither the file nor its image says"
                    " how to ask it"
                )
            last = ""

            async def is_well(name: str = name) -> bool:
                nonlocal last
                last = await self.why_unhealthy(name)
                return not last or await self._has_ended(name)

            found = await ask_until(is_well, told.health.patience_s, wait_fixed(POLL_S))
            if not found or last:
                raise BootFailed(await self._complaint(name, last or "it is not healthy"))

    async def _all_done(self, service: Service) -> None:
        for name in service.containers:

            async def has_ended(name: str = name) -> bool:
                return await self._has_ended(name)

            if not await ask_until(has_ended, JOB_WITHIN_S, wait_fixed(POLL_S)):
                hint = "a service that goes on wants x-shalott: {job: false}"
                raise BootFailed(
                    await self._complaint(name, f"it has not ended in {JOB_WITHIN_S:g} s; {hint}")
                )
            status = await self._status(name)
            if status.exit_code:
                reason = f"it ended with exit code {status.exit_code}"
                raise BootFailed(await self._complaint(name, reason))

    async def _has_ended(self, name: str) -> bool:
        return (await self._status(name)).state == "exited"

    async def _status(self, name: str) -> NodeStatus:
        container = self.machine(name).name
        return await self._run.engine.call(lambda api: containers.status(api, container))

    async def _complaint(self, name: str, reason: str) -> str:
        machine = self.machine(name)
        printed = await self._run.engine.call(
            lambda api: containers.last_lines(api, machine, QUOTED_LINES)
        )
        return f"{name}: {reason}. It printed:\n{printed.strip() or '(nothing)'}"


def with_facts(machine: Machine, facts: Mapping[str, Json]) -> Machine:
    """What the compose file leaves to the image: where its volume is, and how it is asked."""
    told = machine.spec.container
    if told is None:
        return machine
    places, check = facts.get("Volumes"), facts.get("Healthcheck")
    others = {*told.volumes, *told.shared, *told.binds, *_keys(told.host.get("Tmpfs"))}
    free = [place.rstrip("/") for place in _keys(places) if place.rstrip("/") not in others]
    data = told.data or next(iter(free), "")
    more = tuple(place for place in free if place not in (data, *told.volumes))
    container = msgspec.structs.replace(
        told,
        data=data,
        volumes=(*told.volumes, *more),
        health=told.health or _health(check),
    )
    return replace(machine, spec=msgspec.structs.replace(machine.spec, container=container))


def _keys(told: Json) -> tuple[str, ...]:
    return tuple(told) if isinstance(told, Mapping) else ()


def _health(check: Json) -> Health | None:
    """Of an image's HEALTHCHECK."""
    test = check.get("Test") if isinstance(check, Mapping) else None
    if not isinstance(check, Mapping) or not isinstance(test, list) or len(test) < 2:
        return None
    kind, *rest = (str(word) for word in test)
    words = ("/bin/sh", "-c", *rest) if kind == "CMD-SHELL" else tuple(rest)
    timeout_s = float(str(check.get("Timeout") or 0)) / NANO
    return Health(words=words, timeout_s=timeout_s or 30.0) if kind != "NONE" else None


async def ask_health(engine: Engine, container: str, health: Health) -> str:
    """Run the check in the container; "" if it ends with 0. It needs no tools there."""

    def begin(api: docker.APIClient) -> str:
        identity = str(api.exec_create(container, list(health.words))["Id"])
        api.exec_start(identity, detach=True)
        return identity

    words = " ".join(health.words)
    try:
        identity = await engine.call(begin)
        async with asyncio.timeout(health.timeout_s):
            while True:
                seen = await engine.call(lambda api: api.exec_inspect(identity))
                if not seen["Running"] and seen["ExitCode"] is not None:
                    break
                await asyncio.sleep(QUICK_POLL_S)
    except TimeoutError:
        return f"its health check ({words}) takes longer than {health.timeout_s:g} s"
    except HarnessError as error:
        return f"its health check ({words}) can't be run: {error}"
    code = seen["ExitCode"]
    return f"its health check ({words}) ends with {code}" if code else ""


def _make_volume(api: docker.APIClient, name: str, labels: Mapping[str, str]) -> None:
    api.create_volume(name, labels=dict(labels))


def _remove(api: docker.APIClient, name: str) -> None:
    api.remove_container(name, force=True, v=True)


def _start(api: docker.APIClient, name: str) -> None:
    api.start(name)


def containers_of(software: object) -> tuple[ContainerSpec, ...]:
    """Of all services that the software has, if it has some."""
    services = software.services if isinstance(software, HasServices) else ()
    specs = (spec for each in services for spec in each.containers.values())
    return tuple(spec.container for spec in specs if spec.container is not None)
