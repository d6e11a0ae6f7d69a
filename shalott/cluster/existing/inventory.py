"""The inventory of a cluster that stands already: a TOML file with the fields of ``ExistingPlan``.

    project = "shop"                 # the containers of a compose project
    services = ["redis1", "redis2"]
    faults = ["kill", "partition"]
    [nodes.n1]                       # or nodes one by one: a container ...
    container = "shop-redis1-1"
    [nodes.n2]                       # ... or a host and its unit
    ssh = { address = "192.0.2.12" }
    unit = "redis-server.service"

A table ``ssh`` holds what is said of all hosts. Nodes are all containers or all hosts: no link runs
between the two. Relative paths of keys and of known_hosts are relative to the inventory.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from shalott.cluster.nodes import Endpoint
from shalott.cluster.ssh.inventory import LEAST_LEASE_S, PATHS, check_hosts
from shalott.core.errors import UsageError
from shalott.core.plan import ExistingNode, ExistingPlan, HostPlan

Kind = Literal["containers", "hosts"]
HOST_DIRECTORY = ".shalott"  # in the user's home; removed at the end


@dataclass(frozen=True, slots=True)
class ContainerOfProject:
    """A container that a compose project has."""

    name: str
    service: str
    number: int


def read_inventory(path: Path) -> ExistingPlan:
    """Raises UsageError with one sentence that says what to do."""
    try:
        with path.open("rb") as file:
            said = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"cannot read the inventory {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no inventory: {error}") from error
    usual = said.pop("ssh", {})
    nodes = said.get("nodes", {})
    if not isinstance(usual, dict) or not isinstance(nodes, dict):
        raise UsageError(f"{path} is no inventory: ssh and nodes are tables")
    for node in nodes.values():
        if isinstance(node, dict) and isinstance(node.get("ssh"), dict):
            node["ssh"] = _host({"directory": HOST_DIRECTORY, **usual, **node["ssh"]}, path.parent)
    try:
        plan = msgspec.convert(said, ExistingPlan)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from error
    check(plan, str(path))
    return plan


def _host(said: dict[str, object], beside: Path) -> dict[str, object]:
    for each in PATHS:
        if each in said:
            said[each] = str(beside / Path(str(said[each])).expanduser())
    return said


def check(plan: ExistingPlan, where: str) -> None:
    """Raises UsageError: a node of which it is not said what it is, or of two kinds."""
    if plan.lease_s < LEAST_LEASE_S:
        raise UsageError(f"{where}: lease_s must be {LEAST_LEASE_S:g} seconds or more")
    if not plan.nodes and not plan.project:
        raise UsageError(f"{where}: give a table [nodes.NAME] for each node, or a compose project")
    for name, node in plan.nodes.items():
        ways = [node.container, node.label, node.service]
        if sum(map(bool, ways)) + (node.ssh is not msgspec.UNSET) != 1:
            raise UsageError(
                f"{where}: say of {name} one of container, label and service, or ssh with a unit"
            )
        if node.service and not plan.project:
            raise UsageError(f"{where}: {name} is a service: name the compose project of it")
        if node.label and "=" not in node.label:
            raise UsageError(f"{where}: label = {node.label!r} of {name}: give KEY=VALUE")
        commands = node.start and node.stop and (node.status or node.pids)
        if node.ssh is not msgspec.UNSET and not (node.unit or commands):
            raise UsageError(
                f"{where}: say of {name} its unit, or the commands start, stop and status (or pids)"
            )
        for port in {**plan.ports, **node.ports}.values():
            _parse_port(port)
    if len({node.ssh is msgspec.UNSET for node in plan.nodes.values()}) > 1:
        raise UsageError(f"{where}: nodes are all containers or all hosts; run them apart")
    if kind_of(plan) == "hosts":
        check_hosts([*hosts_of(plan).values()], 1)


def kind_of(plan: ExistingPlan) -> Kind:
    is_hosts = any(node.ssh is not msgspec.UNSET for node in plan.nodes.values())
    return "hosts" if is_hosts else "containers"


def hosts_of(plan: ExistingPlan) -> dict[str, HostPlan]:
    """By node. ``address`` of a node is where the others reach it, as a host's ``inner``."""
    return {
        name: msgspec.structs.replace(node.ssh, inner=node.address or node.ssh.inner)
        for name, node in plan.nodes.items()
        if node.ssh is not msgspec.UNSET
    }


def completed(
    plan: ExistingPlan, list_containers: Callable[[str], Sequence[ContainerOfProject]]
) -> ExistingPlan:
    """With all nodes by name, and all that is said of all of them; ``list_containers``: those of a
    compose project. Raises UsageError."""
    nodes = plan.nodes or _nodes_of_project(plan, list_containers(plan.project))
    told = {
        name: msgspec.structs.replace(
            node,
            data=node.data or plan.data,
            logs=node.logs or plan.logs,
            collect=node.collect or plan.collect,
        )
        for name, node in nodes.items()
    }
    return msgspec.structs.replace(plan, nodes=told)


def _nodes_of_project(
    plan: ExistingPlan, containers: Sequence[ContainerOfProject]
) -> Mapping[str, ExistingNode]:
    """Its containers, each called as its service, with the container's number where there are
    several. Raises UsageError."""
    own = [each for each in containers if not plan.services or each.service in plan.services]
    lacking = [name for name in plan.services if name not in [each.service for each in own]]
    if lacking or not own:
        raise UsageError(
            f"the compose project {plan.project} has no container of {', '.join(lacking) or 'any'}"
            " service: name services that it has, or start it"
        )
    found: dict[str, ExistingNode] = {}
    for each in sorted(own, key=lambda one: (one.service, one.number)):
        is_alone = len([one for one in own if one.service == each.service]) == 1
        name = each.service.lower().replace("_", "-").replace(".", "-")
        found[name if is_alone else f"{name}-{each.number}"] = ExistingNode(container=each.name)
    return found


def client_endpoint(plan: ExistingPlan, node: str, port: str, address: str, usual: int) -> Endpoint:
    """Where clients reach a node's port; ``usual``: its number if nothing else is said."""
    own = plan.nodes[node].ports
    host, number = _parse_port(own.get(port) or plan.ports.get(port) or str(usual))
    return Endpoint(host or address, number)


def _parse_port(text: str) -> tuple[str, int]:
    host, _, number = text.rpartition(":")
    if not number.isdigit() or not 0 < int(number) < 65536:
        raise UsageError(f"the inventory's port {text!r} is neither a number nor host:port")
    return host.strip("[]"), int(number)
