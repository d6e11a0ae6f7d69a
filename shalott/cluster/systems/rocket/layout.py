"""Layouts: which services each node hosts, in RocketMQ's systems.

A node hosts any of a broker, a name server and a controller. *together*: every node hosts all that
its system has, as small installations do. *separate*: brokers have nodes of their own, and the
others are name servers, each with a controller in it where the system has controllers. *standalone*
(``controller`` only): brokers, name servers and controllers have nodes of their own. Brokers are
the first nodes, controllers the last. What comes out stands in the plan, a node each; so a stored
plan may lay them out in any other way that makes a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.core.errors import UsageError

LAYOUTS = ("together", "separate", "standalone")

Hosted = tuple[str, ...]
Services = dict[str, Hosted]

BROKER: Hosted = ("broker",)
NAME_SERVER: Hosted = ("nameserver",)
CONTROLLER: Hosted = ("controller",)
SERVICES: Mapping[str, Hosted] = {
    "master-slave": (*BROKER, *NAME_SERVER),
    "dledger": (*BROKER, *NAME_SERVER),
    "controller": (*BROKER, *NAME_SERVER, *CONTROLLER),
}
CONTROLLERS = 3  # of which one may be lost; a small cluster has one, as upstream's quick start
# Two copies of each message; three where a majority decides, so that one may be lost.
BROKERS_MIN: Mapping[str, int] = {"master-slave": 2, "dledger": 3, "controller": 2}


def lay_out(system: str, layout: str, nodes: Sequence[str]) -> Services:
    """Who hosts what; empty if everybody hosts everything. Raises UsageError."""
    if layout == "together":
        return {}
    if system not in SERVICES:
        raise UsageError(
            f"{system} has no services to lay out on its nodes: leave out --layout, or use"
            " --system controller"
        )
    if layout == "standalone" and system != "controller":
        raise UsageError(f"{system} has no controllers to stand alone: use --layout separate")
    least = BROKERS_MIN[system] + (2 if layout == "standalone" else 1)
    if len(nodes) < least:
        raise UsageError(
            f"--layout {layout} of {system} needs at least {least} nodes,"
            f" {BROKERS_MIN[system]} of them brokers, and the plan has {len(nodes)}: use --nodes"
            f" {best_count(system, layout)}"
        )
    others = _others(system, layout, len(nodes))
    hosted = [BROKER] * (len(nodes) - len(others)) + others
    return dict(zip(nodes, hosted, strict=True))


def best_count(system: str, layout: str) -> int:
    """Of nodes: three brokers, and as many of the others as survive the loss of one."""
    return {"separate": 6, "standalone": 7}[layout] if system == "controller" else 5


def _others(system: str, layout: str, count: int) -> list[Hosted]:
    """What the nodes host that are no brokers, of so many nodes in all."""
    if system != "controller":  # an odd number of brokers is left, if there are more than two
        return [NAME_SERVER] * (1 if count == 3 or count % 2 == 0 else 2)
    brokers = BROKERS_MIN[system]
    if layout == "separate":
        controllers = CONTROLLERS if count >= CONTROLLERS + brokers else 1
        return [(*NAME_SERVER, *CONTROLLER)] * controllers
    controllers = CONTROLLERS if count >= CONTROLLERS + 1 + brokers else 1
    name_servers = 2 if count >= CONTROLLERS + 2 + brokers + 1 else 1
    return [NAME_SERVER] * name_servers + [CONTROLLER] * controllers


def check_services(system: str, nodes: Sequence[str], services: Mapping[str, Hosted]) -> None:
    """What a stored plan may get wrong. Raises UsageError."""
    if not services:
        return
    known = SERVICES.get(system)
    if known is None:
        raise UsageError(f"{system} has no services to lay out on its nodes: leave them out")
    for node in services:
        if node not in nodes:
            raise UsageError(f"the plan's services name {node}, which is no node of the plan")
    for node in nodes:
        if not services.get(node):
            raise UsageError(f"the plan does not say what {node} hosts: {', '.join(known)}")
        for service in services[node]:
            if service not in known:
                raise UsageError(
                    f"{node} can't host the service {service}: {system} has {', '.join(known)}"
                )
    missing = what_is_missing(system, services)
    if missing:
        raise UsageError(f"no node of the plan hosts the service {missing}, which {system} needs")


def what_is_missing(system: str, services: Mapping[str, Hosted]) -> str:
    """The first service that no node hosts; "" if none is missing."""
    hosted = [service for own in services.values() for service in own]
    return next((service for service in SERVICES[system] if service not in hosted), "")
