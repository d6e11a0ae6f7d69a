"""Where a node's services listen, and who hosts what: the layouts are those of our own brokers.

The numbers are those of RocketMQ's manual. A broker also serves requests two ports below its own,
and a controller needs one port for its peers and for brokers, but with jRaft, which has its own for
peers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shalott.cluster.nodes import Topology
from shalott.cluster.systems.rocket import layout
from shalott.cluster.systems.rocket.config import advertised
from shalott.core.plan import SystemPlan

PORTS: Mapping[str, int] = {
    "remoting": 10911,
    "fast": 10909,
    "ha": 10912,
    "raft": 40911,
    "nameserver": 9876,
    "controller": 9878,
    "jraft": 9880,
}
JRAFT = "jRaft"  # controllerType: since 5.2.0 controllers may have SOFAJRaft for their Raft
_OF_BROKER: Mapping[str, tuple[str, ...]] = {
    "master-slave": ("remoting", "fast", "ha"),
    "dledger": ("remoting", "fast", "raft"),
    "controller": ("remoting", "fast", "ha"),
}


def replication_of(parameters: Mapping[str, Any]) -> str:
    return str(parameters.get("replication", "controller"))


def controllers_are_jraft(plan: SystemPlan) -> bool:
    of_all = plan.policy.get("controllerType")
    return bool(plan.policy.get("controller.controllerType", of_all) == JRAFT)


def services_of(plan: SystemPlan, node: str) -> tuple[str, ...]:
    """What a node hosts: all that its replication has, unless the plan says who hosts what."""
    if plan.services:
        return plan.services[node]
    return layout.SERVICES[replication_of(plan.parameters)]


def hosted_ports(plan: SystemPlan, node: str) -> tuple[str, ...]:
    """The names of the ports that somebody listens on at a node."""
    hosted = services_of(plan, node)
    broker = _OF_BROKER[replication_of(plan.parameters)] if "broker" in hosted else ()
    peers = ("jraft",) if "controller" in hosted and controllers_are_jraft(plan) else ()
    return tuple(name for name in PORTS if name in (*broker, *peers, *hosted))


def machines_of(services: Sequence[str]) -> tuple[str, ...]:
    """The Java machines of a node: a name server has the controller of its node in it, as
    enableControllerInNamesrv has it."""
    own = [name for name in ("nameserver", "controller", "broker") if name in services]
    if "nameserver" in own and "controller" in own:
        own.remove("controller")
    return tuple(own)


def nodes_with(plan: SystemPlan, service: str, nodes: Sequence[str]) -> tuple[str, ...]:
    return tuple(node for node in nodes if service in services_of(plan, node))


def addresses(topology: Topology) -> dict[str, dict[str, str]]:
    """By node and port, how it is called in messages: "10.1.2.3:9876"."""
    return {node: advertised(topology, node) for node in topology.listen}
