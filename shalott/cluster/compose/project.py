"""A compose file as a project of one run: which containers there are, and which of them are nodes.

A service is a node if its ``x-shalott.node`` says so. Where no service says it, the nodes are the
services with ports that share one image, or are built alike, and are the most such; two groups of
one size are refused. A service that others wait for to complete is none. The rest helps: it is run,
waited for as the file says, and never broken.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import msgspec

from shalott.cluster.compose.document import (
    Document,
    Environment,
    environment_beside,
    read_document,
)
from shalott.cluster.compose.joining import read_joined
from shalott.cluster.compose.service import (
    Surroundings,
    container_of,
    dependencies_of,
    networks_of,
    ports_of,
    whole,
)
from shalott.cluster.compose.service_file import (
    ContentFile,
    NetworkFile,
    ProjectFile,
    ServiceFile,
    VolumeFile,
)
from shalott.cluster.nodes import NodeSpec
from shalott.cluster.services import COMPLETED, Condition, Service
from shalott.core.errors import UsageError
from shalott.core.json_value import Json

NODE = re.compile(r"[a-z][a-z0-9-]{0,30}")
OWN = "x-shalott"
# Entries of these parts, by name.
PARTS: Mapping[str, type] = {
    "services": ServiceFile,
    "networks": NetworkFile,
    "volumes": VolumeFile,
    "secrets": ContentFile,
    "configs": ContentFile,
}
T = TypeVar("T")
CLIENT = "client"  # the port that clients use
NESTED = ("build", "deploy", "healthcheck", "logging")  # keys of a service that have keys of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """See ``HasServices``."""

    services: tuple[Service, ...]
    volumes: tuple[str, ...] = ()
    subnet: str = ""  # where containers must have addresses of their own choice

    @property
    def nodes(self) -> dict[str, NodeSpec]:
        """By name, in the file's order."""
        nodes = (each.containers for each in self.services if each.is_node)
        return {name: spec for each in nodes for name, spec in each.items()}


def options_in(path: Path, environment: Environment) -> dict[str, str | bool | tuple[str, ...]]:
    """The options of `shalott test` that the file gives in its own ``x-shalott``, by name; a client
    that lies beside the file is found there. Raises UsageError."""
    told = read_document(path, environment_beside(path, environment)).get(OWN) or {}
    if not isinstance(told, Mapping):
        raise UsageError(f"--compose {path}: {OWN}: give OPTION: VALUE, as of `shalott test`")
    found: dict[str, str | bool | tuple[str, ...]] = {}
    for name, value in told.items():
        if value is None or isinstance(value, Mapping):
            raise UsageError(f"--compose {path}: {OWN}.{name} is no value of an option")
        if isinstance(value, list):
            found[name] = tuple(str(each) for each in value)
        else:
            found[name] = value if isinstance(value, bool) else str(value)
    client = found.get("client")
    if isinstance(client, str):
        beside = ((word, path.parent / word) for word in shlex.split(client))
        found["client"] = shlex.join(str(at) if at.is_file() else word for word, at in beside)
    return found


def read_project(path: Path, environment: Environment) -> Project:
    """Raises UsageError, naming what is wrong or not honoured."""
    document, known = read_joined(path, environment)
    if "services" not in document:
        raise UsageError(f"--compose {path}: it has no services")
    try:
        return _project(_convert(_without_extensions(document)), path.parent, known)
    except UsageError as error:
        raise UsageError(f"--compose {path}: {error}") from error


def _convert(document: Mapping[str, Json]) -> ProjectFile:
    """Raises UsageError that names the entry and the key."""
    for part, kind in PARTS.items():
        entries = document.get(part, {})
        for name, told in entries.items() if isinstance(entries, Mapping) else ():
            if told is not None:
                _as(kind, told, f"{part}.{name}")
    return _as(ProjectFile, document, "")


def _as(kind: type[T], told: Json, where: str) -> T:
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        place = where + path.rstrip("`")
        unknown = re.fullmatch(r"Object contains unknown field `(.+)`", reason)
        if unknown is None:
            raise UsageError(f"{place.lstrip('.') or 'the file'}: {reason}") from error
        name = f"{place}.{unknown[1]}".lstrip(".")
        raise UsageError(f"{name} is not honoured: take it out") from error


def _without_extensions(document: Document) -> Mapping[str, Json]:
    """Keys without a value are as if they were not there; those that begin with x- are others'.
    What an entry's own mappings hold may be called anything."""
    found = {key: value for key, value in _stripped(document).items() if key != OWN}
    for part in PARTS:
        entries = found.get(part)
        if isinstance(entries, Mapping):
            found[part] = {
                name: _stripped(told) if isinstance(told, Mapping) else told
                for name, told in entries.items()
            }
    return found


def _stripped(told: Mapping[str, Json]) -> Document:
    kept: Document = {
        key: value
        for key, value in told.items()
        if value is not None and (not key.startswith("x-") or key == OWN)
    }
    for key in NESTED:
        inner = kept.get(key)
        if isinstance(inner, Mapping):
            kept[key] = _stripped(inner)
    return kept


def _project(file: ProjectFile, directory: Path, environment: Environment) -> Project:
    profiles = [each for each in environment.get("COMPOSE_PROFILES", "").split(",") if each]
    chosen = {
        name: told
        for name, told in file.services.items()
        if not told.profiles or {*told.profiles} & {*profiles, *(["*"] if "*" in profiles else [])}
    }
    counts = {name: _count(name, told) for name, told in chosen.items()}
    chosen = {name: told for name, told in chosen.items() if counts[name]}
    waits = {name: _waits(name, told, chosen, file) for name, told in chosen.items()}
    _check_order(waits)
    _check_networks(file, chosen)
    shared = tuple(_shared(file, chosen, counts))
    around = Surroundings(
        directory=directory.resolve(),
        environment=environment,
        volumes=tuple(file.volumes),
        shared=shared,
        secrets=file.secrets,
        configs=file.configs,
        aliases=_aliases(chosen),
    )
    nodes = choose_nodes(chosen, waits)
    services = tuple(
        _service(name, told, around, waits[name], counts[name], is_node=name in nodes)
        for name, told in chosen.items()
    )
    names = [each for service in services for each in service.containers]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"two services' containers would be called {twice}")
    read_only = {each.removesuffix(":ro") for each in _mounted(services)}
    return Project(
        services=services,
        volumes=tuple(dict.fromkeys((*shared, *sorted(read_only)))),
        subnet=_subnet(file, services),
    )


def _mounted(services: Sequence[Service]) -> Iterator[str]:
    for service in services:
        for spec in service.containers.values():
            assert spec.container is not None
            yield from spec.container.shared.values()


def _service(
    name: str,
    told: ServiceFile,
    around: Surroundings,
    waits: Mapping[str, Condition],
    count: int,
    *,
    is_node: bool,
) -> Service:
    where, stem = f"service {name}", re.sub(r"[_.]", "-", name.lower())
    if not told.image and told.build is None:
        raise UsageError(f"{where} has neither an image nor a build")
    container = container_of(name, told, around)
    if count > 1 and (container.address or told.container_name):
        raise UsageError(f"{where}: {count} replicas can't have one address or name")
    names = [stem] if count == 1 else [f"{stem}-{number}" for number in range(1, count + 1)]
    for each in names:
        if not NODE.fullmatch(each):
            raise UsageError(f"{where}: it can't be called so: use letters, digits and '-'")
    own, ports = told.own, ports_of(where, told)
    port = own.port if own.port is not None else next(iter(ports), None)
    if is_node and port is None:
        raise UsageError(
            f"{where} is a node and publishes no port: say x-shalott: {{port: N}}, or false for one"
            " that no client connects to"
        )
    is_lasting = bool(ports) or told.healthcheck is not None or told.restart != "no"
    return Service(
        name=name,
        containers={
            each: NodeSpec(
                name=each,
                image=told.image,
                command=(),
                ports={CLIENT: int(port)} if is_node and port else {},
                collect=(),
                restart_if_exits=told.restart != "no",
                container=container,
            )
            for each in names
        },
        waits=waits,
        is_node=is_node,
        is_job=not is_node and (own.job if own.job is not None else not is_lasting),
    )


def choose_nodes(
    services: Mapping[str, ServiceFile], waits: Mapping[str, Mapping[str, Condition]]
) -> frozenset[str]:
    """The names of the services that are nodes. Raises UsageError where that can't be told."""
    said = {name: told.own.node for name, told in services.items()}
    if any(said.values()):
        return frozenset(name for name, is_node in said.items() if is_node)
    jobs = {name for each in waits.values() for name, how in each.items() if how == COMPLETED}
    left = {
        name: told
        for name, told in services.items()
        if said[name] is None and name not in jobs and not told.own.job
    }
    with_ports = {name: told for name, told in left.items() if ports_of("", told) or told.own.port}
    groups: dict[object, list[str]] = {}
    for name, told in (with_ports or left).items():
        build = msgspec.json.encode(told.build) if told.build is not None else b""
        alike = build or told.image
        groups.setdefault(alike, []).extend([name] * max(1, _count(name, told)))
    largest = sorted(groups.values(), key=len, reverse=True)
    if not largest:
        raise UsageError("none of its services can be a node: say x-shalott: {node: true} of them")
    if len(largest) > 1 and len(largest[0]) == len(largest[1]):
        raise UsageError(
            f"its nodes may be {' and '.join(dict.fromkeys(largest[0]))} or"
            f" {' and '.join(dict.fromkeys(largest[1]))}: say x-shalott: {{node: true}} of those"
            " that are"
        )
    return frozenset(largest[0])


def _count(name: str, told: ServiceFile) -> int:
    scale = whole(f"service {name}", "scale", told.scale)
    return scale if scale != 1 else whole(f"service {name}", "replicas", told.deploy.replicas)


def _waits(
    name: str, told: ServiceFile, chosen: Mapping[str, ServiceFile], file: ProjectFile
) -> dict[str, Condition]:
    waits: dict[str, Condition] = {}
    for other, how in dependencies_of(told).items():
        if other in chosen:
            waits[other] = how.condition
        elif other not in file.services or how.required:
            raise UsageError(f"service {name} depends on {other}, which is not there")
    return waits


def _aliases(services: Mapping[str, ServiceFile]) -> dict[str, list[str]]:
    """What others call a service by their links; on the one network of a run, all do."""
    found: dict[str, list[str]] = {}
    for told in services.values():
        for link in told.links:
            name, _, alias = link.partition(":")
            found.setdefault(name, []).extend([alias] if alias else [])
    return found


def _check_order(waits: Mapping[str, Mapping[str, Condition]]) -> None:
    """Raises UsageError: services wait for each other."""
    left = {name: set(each) for name, each in waits.items()}
    while left:
        free = [name for name, each in left.items() if not each & set(left)]
        if not free:
            raise UsageError(f"services wait for each other: {', '.join(left)}")
        for name in free:
            del left[name]


def _check_networks(file: ProjectFile, services: Mapping[str, ServiceFile]) -> None:
    """All containers of a run are on one network. Raises UsageError where a file keeps some of
    them apart."""
    used = {name: set(networks_of(told)) for name, told in services.items()}
    for name, own in used.items():
        unknown = own - {"default", *file.networks}
        if unknown:
            raise UsageError(f"service {name}: the file's networks have no {sorted(unknown)[0]}")
    for one, other in combinations(used, 2):
        if not used[one] & used[other]:
            raise UsageError(
                f"services {one} and {other} share no network, and a run has one for all: put them"
                " on one"
            )


def _shared(
    file: ProjectFile, services: Mapping[str, ServiceFile], counts: Mapping[str, int]
) -> Iterator[str]:
    """The named volumes that several containers mount."""
    for volume in file.volumes:
        users = 0
        for name, told in services.items():
            for each in told.volumes:
                source = each.partition(":")[0] if isinstance(each, str) else each.source
                users += counts[name] * (source == volume)
        if users > 1:
            yield volume


def _subnet(file: ProjectFile, services: Sequence[Service]) -> str:
    """ "" unless a container must have an address of its own choice."""
    fixed = [
        spec.container.address
        for service in services
        for spec in service.containers.values()
        if spec.container is not None and spec.container.address
    ]
    if not fixed:
        return ""
    pools = [pool.subnet for each in file.networks.values() if each for pool in each.ipam.config]
    for pool in filter(None, pools):
        try:
            if all(IPv4Address(address) in IPv4Network(pool) for address in fixed):
                return pool
        except ValueError as error:
            raise UsageError(str(error)) from error
    raise UsageError(f"no network of the file has a subnet for {', '.join(fixed)}")
