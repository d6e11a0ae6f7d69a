"""Each node's configuration of a RocketMQ system: who it is, whom it knows, and the settings.

A node is *advertised* under the address by which everybody knows it in messages, and *dialled*
where the topology says: in the local world those differ, since links run through relays. Where a
node listens on all of its interfaces, it is known by the address at which another one dials it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from shalott.broker.rocket.config import RocketConfig
from shalott.cluster.nodes import Endpoint, Topology
from shalott.cluster.systems.rocket.layout import SERVICES
from shalott.cluster.systems.rocket.settings import by_section
from shalott.core.errors import UsageError
from shalott.core.plan import SystemPlan

ANY_HOST = "0.0.0.0"  # noqa: S104 - as a topology writes "all interfaces"
_NUMBERS = {  # those of RocketMQ's manual where it has them
    "remoting": 10911,
    "ha": 10912,
    "raft": 40911,
    "nameserver": 9876,
    "controller": 9877,
    "management": 15672,
}


def _numbers(*names: str) -> Mapping[str, int]:
    return {name: _NUMBERS[name] for name in names}


PORTS: Mapping[str, Mapping[str, int]] = {
    "master-slave": _numbers("remoting", "ha", "nameserver", "management"),
    "dledger": _numbers("remoting", "raft", "nameserver", "management"),
    "controller": _numbers("remoting", "ha", "raft", "nameserver", "controller", "management"),
}
# The ports of which a service has need; the log's members and the controllers both have one "raft".
_PORTS_OF: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "master-slave": {"broker": ("remoting", "ha")},
    "dledger": {"broker": ("remoting", "raft")},
    "controller": {"broker": ("remoting", "ha"), "controller": ("raft", "controller")},
}


def node_config(plan: SystemPlan, topology: Topology, node: str, seed: int) -> RocketConfig:
    """One node's. Raises UsageError for settings that can't be."""
    listen, dial = topology.listen[node], topology.dial[node]
    hosted = hosted_ports(plan, node)
    sections = by_section(plan.policy)
    fields = {
        "system": plan.name,
        "name": node,
        "data_dir": topology.data_dir[node],
        "services": services_of(plan, node),
        "ports": {port: at.port for port, at in listen.items() if port in hosted},
        "advertised": _only(hosted, advertised(topology, node)),
        "peers": [_peer(plan, topology, peer, dial[peer]) for peer in sorted(dial)],
        "bind_host": listen["management"].host,
        "bugs": plan.bugs,
        "seed": _node_seed(seed, node),
        **sections.pop("", {}),
        **sections,
    }
    # Workloads read at every broker; upstream's slaves answer no pulls unless they are told to.
    own = sections.get("broker", {})
    broker = {"slave_read_enable": True, **own, **_place(plan, topology, node)}
    if plan.name == "master-slave" and node == master_of(plan, topology):
        broker["role"] = own.get("role", "ASYNC_MASTER")
    fields["broker"] = broker
    try:
        return msgspec.convert(fields, RocketConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"the plan's system can't be configured: {error}") from error


def services_of(plan: SystemPlan, node: str) -> tuple[str, ...]:
    """What a node hosts: all that its system has, unless the plan says who hosts what."""
    return plan.services[node] if plan.services else SERVICES[plan.name]


def hosted_ports(plan: SystemPlan, node: str) -> tuple[str, ...]:
    """The names of the ports that a service listens on at a node."""
    of_service = _PORTS_OF[plan.name]
    wanted = [p for name in services_of(plan, node) for p in of_service.get(name, (name,))]
    return tuple(port for port in PORTS[plan.name] if port in (*wanted, "management"))


def _only(hosted: tuple[str, ...], addresses: Mapping[str, str]) -> dict[str, str]:
    return {port: address for port, address in addresses.items() if port in hosted}


def _peer(
    plan: SystemPlan, topology: Topology, peer: str, dial: Mapping[str, Endpoint]
) -> dict[str, object]:
    """What another node is told of this one."""
    hosted = hosted_ports(plan, peer)
    return {
        "name": peer,
        "services": services_of(plan, peer),
        "advertised": _only(hosted, advertised(topology, peer)),
        "dial": _only(hosted, {port: _address(at) for port, at in sorted(dial.items())}),
    }


def brokers_of(plan: SystemPlan, nodes: Iterable[str]) -> tuple[str, ...]:
    """Those of the nodes that host a broker, in their order."""
    return tuple(node for node in nodes if "broker" in services_of(plan, node))


def _place(plan: SystemPlan, topology: Topology, node: str) -> dict[str, object]:
    """With master and slaves: the first broker is the master, the others count from 1."""
    brokers = brokers_of(plan, topology.listen)
    if plan.name != "master-slave" or node not in brokers:
        return {}
    return {"broker_id": brokers.index(node), "role": "SLAVE"}


def master_of(plan: SystemPlan, topology: Topology) -> str:
    """The node that is configured to be the master, where that is configured."""
    return brokers_of(plan, topology.listen)[0]


def advertised(topology: Topology, node: str) -> dict[str, str]:
    """How a node's ports are called in messages."""
    listen = topology.listen[node]
    known = listen
    if any(at.host == ANY_HOST for at in listen.values()):
        others = [source for source in topology.dial if source != node]
        alone = {port: Endpoint("127.0.0.1", at.port) for port, at in listen.items()}
        known = topology.dial[others[0]][node] if others else alone
    return {port: _address(at) for port, at in sorted(known.items())}


def _address(at: Endpoint) -> str:
    return f"{at.host}:{at.port}"


def _node_seed(seed: int, node: str) -> int:
    """Another one for each node; never 0, which would mean: draw one."""
    digest = hashlib.sha256(f"{seed}/{node}".encode()).digest()
    return 1 + int.from_bytes(digest[:6], "big")


def to_toml(config: RocketConfig) -> str:
    """The configuration as ``broker.rabbit.config.load_config`` reads it. JSON's scalars and arrays
    are TOML's."""
    fields = msgspec.to_builtins(config)
    peers = fields.pop("peers")
    tables = {name: fields.pop(name) for name, value in list(fields.items()) if _is_table(value)}
    lines = list(_assignments(fields))
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_assignments(table)]
    for peer in peers:
        inner = {name: peer.pop(name) for name, value in list(peer.items()) if _is_table(value)}
        lines += ["", "[[peers]]", *_assignments(peer)]
        for name, table in inner.items():
            lines += ["", f"[peers.{name}]", *_assignments(table)]
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _assignments(fields: Mapping[str, object]) -> Iterator[str]:
    return (f"{name} = {json.dumps(value)}" for name, value in fields.items())
