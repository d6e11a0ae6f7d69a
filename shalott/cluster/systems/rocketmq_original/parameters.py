"""What the original RocketMQ can be told besides its settings, which releases there are, and where
a node's services listen.

Port numbers are those of RocketMQ's manual, layouts those of our own brokers. A broker also serves
requests two ports below its own, and a controller needs one port for its peers and for brokers, but
with jRaft, which has its own for peers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from shalott.cluster.nodes import Topology
from shalott.cluster.systems.rocket import layout
from shalott.cluster.systems.rocket.config import advertised
from shalott.core.plan import SystemPlan

Replication = Literal["master-slave", "dledger", "controller"]
# Of which all jars can be had.
Release = Literal[
    "4.9.4", "4.9.7", "5.0.0", "5.1.0", "5.1.1", "5.1.4", "5.2.0", "5.3.3", "5.4.0", "5.5.0"
]


class RocketmqParameters(msgspec.Struct, frozen=True, kw_only=True):
    """``topic_made_at``: brokers of the original copy their tables from the master 60 s after they
    have started and every 60 s then, so a topic that was made at the master alone is unknown to a
    slave that takes over before. "all" makes it at every broker, as if it had been made long ago.
    """

    replication: Annotated[
        Replication, msgspec.Meta(description="How brokers copy their log, and who elects.")
    ] = "controller"
    version: Annotated[Release, msgspec.Meta(description="Release of RocketMQ.")] = "5.3.3"
    topic_made_at: Annotated[
        Literal["all", "master"],
        msgspec.Meta(description="Which brokers know the topic when the load begins."),
    ] = "all"


def numbers(release: str) -> tuple[int, ...]:
    """For comparing: (5, 3, 3)."""
    return tuple(int(number) for number in release.split("."))


def has_controllers(release: str) -> bool:
    return numbers(release) >= (5, 0, 0)


_FLUSHED = {"flushDiskType": "SYNC_FLUSH"}


def safe_settings(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """The profile ``safe``: what RocketMQ's manual recommends against loss, for each replication.

    Its chapters on master and slaves recommend synchronous double writes and synchronous flushing;
    those on controllers, acknowledgements by the whole SyncStateSet, a least number of replicas in
    it, and no unclean elections; with DLedger a majority has each entry in any case. The profile
    ``upstream`` sets nothing: it is what a release does by default.
    """
    replication = replication_of(parameters)
    if replication == "dledger":
        return _FLUSHED
    if replication == "controller":
        return {
            **_FLUSHED,
            "allAckInSyncStateSet": True,
            "inSyncReplicas": 2,
            "minInSyncReplicas": 2,
            "enableElectUncleanMaster": False,
        }
    copies = {} if numbers(str(parameters["version"])) < (5, 0, 0) else {"inSyncReplicas": 2}
    return {**_FLUSHED, "brokerRole": "SYNC_MASTER", **copies}


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


def replication_of(parameters: Mapping[str, object]) -> str:
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
    """The names of the ports that a service listens on at a node."""
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
