"""The properties of each Java machine of a node, and the options of its heap.

Three kinds of properties: who a node is and whom it knows, which no plan sets; sizes and switches
that make a node small and quick to start, which change nothing of what is replicated; and the
plan's settings, by upstream's names, each given to those services that know it.
"""

from __future__ import annotations

from collections.abc import Mapping

from shalott.cluster.nodes import Topology
from shalott.cluster.systems.rocketmq_original.parameters import (
    PORTS,
    addresses,
    controllers_are_jraft,
    nodes_with,
    numbers,
    replication_of,
    services_of,
)
from shalott.cluster.systems.rocketmq_original.settings import settings_of_service
from shalott.core.plan import SystemPlan

CLUSTER = "DefaultCluster"
GROUP = "broker-a"
CONTROLLERS = "controllers"  # the name of their Raft group

# A store of this size begins within a second; the files are the only thing that is smaller.
SMALL: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "60000",
    "mappedFileSizeConsumeQueueExt": str(1 << 20),
    "maxIndexNum": "40000",
    "maxHashSlotNum": "10000",
    "diskMaxUsedSpaceRatio": "99",
    "warmMapedFileEnable": "false",
}
HEAPS: Mapping[str, str] = {
    "HEAP_BROKER": "-Xms64m -Xmx192m",
    "HEAP_NAMESERVER": "-Xms32m -Xmx96m",
    "HEAP_CONTROLLER": "-Xms32m -Xmx96m",
}


def properties_of(plan: SystemPlan, topology: Topology, node: str) -> dict[str, str]:
    """A file for each machine of the node, by its name. Raises UsageError."""
    hosted = services_of(plan, node)
    files = {}
    if "nameserver" in hosted:
        own = _name_server(plan)
        if "controller" in hosted:
            own = {**own, **_controller(plan, topology, node), "enableControllerInNamesrv": "true"}
        files["nameserver.properties"] = own
    elif "controller" in hosted:
        files["controller.properties"] = _controller(plan, topology, node)
    if "broker" in hosted:
        files["broker.properties"] = _broker(plan, topology, node)
    return {name: _lines(own) for name, own in files.items()}


def _lines(properties: Mapping[str, object]) -> str:
    return "".join(f"{name}={_text(value)}\n" for name, value in properties.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name_server(plan: SystemPlan) -> dict[str, object]:
    return {
        "listenPort": PORTS["nameserver"],
        "kvConfigPath": "/data/nameserver/kvConfig.json",
        "configStorePath": "/data/conf/nameserver.properties",
        **settings_of_service(plan, "nameserver"),
    }


def member_ids(plan: SystemPlan, topology: Topology, service: str) -> dict[str, str]:
    """The members of a Raft group by node: n0, n1, ... as DLedger wants them."""
    members = nodes_with(plan, service, tuple(topology.listen))
    return {node: f"n{place}" for place, node in enumerate(members)}


def _peers(plan: SystemPlan, topology: Topology, service: str, port: str) -> str:
    known = addresses(topology)
    ids = member_ids(plan, topology, service)
    return ";".join(f"{member}-{known[node][port]}" for node, member in ids.items())


def _controller(plan: SystemPlan, topology: Topology, node: str) -> dict[str, object]:
    if controllers_are_jraft(plan):
        peers = {
            "jRaftGroupId": CONTROLLERS,
            "jRaftServerId": addresses(topology)[node]["jraft"],
            "jRaftInitConf": ",".join(_all(plan, topology, "controller", "jraft")),
            "jRaftControllerRPCAddr": ",".join(_all(plan, topology, "controller")),
        }
    else:
        peers = {
            "controllerDLegerGroup": CONTROLLERS,
            "controllerDLegerPeers": _peers(plan, topology, "controller", "controller"),
            "controllerDLegerSelfId": member_ids(plan, topology, "controller")[node],
        }
    return {
        **peers,
        "controllerStorePath": "/data/controller",
        "mappedFileSize": str(16 << 20),
        **settings_of_service(plan, "controller"),
    }


def _all(plan: SystemPlan, topology: Topology, service: str, port: str = "") -> list[str]:
    """Addresses of everybody that hosts a service: of its own port, or of another."""
    known = addresses(topology)
    hosting = nodes_with(plan, service, tuple(topology.listen))
    return [known[node][port or service] for node in hosting]


def _broker(plan: SystemPlan, topology: Topology, node: str) -> dict[str, object]:
    address = addresses(topology)[node]["remoting"].rpartition(":")[0]
    identity = {
        "brokerClusterName": CLUSTER,
        "brokerName": GROUP,
        "listenPort": PORTS["remoting"],
        "haListenPort": PORTS["ha"],
        "brokerIP1": address,
        "brokerIP2": address,
        "namesrvAddr": ";".join(_all(plan, topology, "nameserver")),
        "storePathRootDir": "/data/store",
        "storePathCommitLog": "/data/store/commitlog",
    }
    own = settings_of_service(plan, "broker")
    release = numbers(str(plan.parameters["version"]))
    small = dict(SMALL)
    if release >= (5, 1, 0):  # 5.0.0 answers nothing and delivers nothing of POP without it
        small["timerWheelEnable"] = "false"  # 37 MB of its own
    return {**identity, **small, **own, **_place(plan, topology, node, own)}


def _place(
    plan: SystemPlan, topology: Topology, node: str, own: Mapping[str, object]
) -> dict[str, object]:
    """Its part in the replication."""
    replication = replication_of(plan.parameters)
    if replication == "controller":
        return {
            "enableControllerMode": "true",
            "controllerAddr": ";".join(_all(plan, topology, "controller")),
            "brokerId": "-1",
        }
    if replication == "dledger":
        return {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": GROUP,
            "dLegerPeers": _peers(plan, topology, "broker", "raft"),
            "dLegerSelfId": member_ids(plan, topology, "broker")[node],
        }
    place = nodes_with(plan, "broker", tuple(topology.listen)).index(node)
    role = own.get("brokerRole", "ASYNC_MASTER") if place == 0 else "SLAVE"
    return {"brokerId": str(place), "brokerRole": role}
