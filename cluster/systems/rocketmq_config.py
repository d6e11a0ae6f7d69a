"""Each node's configuration of a RocketMQ system: who it is, whom it knows, and the settings.

A node is *advertised* under the address by which everybody knows it in messages, and *dialled*
where the topology says: in the local world those differ, since links run through relays. Where a
node listens on all of its interfaces, it is known by the address at which another one dials it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from broker.rocketmq.config import RocketConfig
from cluster.base import Endpoint, Topology
from cluster.systems.rocketmq_settings import by_section
from harness.errors import UsageError
from harness.plan import SystemPlan

ANY_HOST = "0.0.0.0"  # noqa: S104 - as a topology writes "all interfaces"
SERVICES: Mapping[str, tuple[str, ...]] = {
    "master-slave": ("broker", "nameserver"),
    "dledger": ("broker", "nameserver"),
    "controller": ("broker", "nameserver", "controller"),
}
PORTS: Mapping[str, tuple[str, ...]] = {
    "master-slave": ("remoting", "ha", "nameserver", "management"),
    "dledger": ("remoting", "raft", "nameserver", "management"),
    "controller": ("remoting", "ha", "raft", "nameserver", "controller", "management"),
}


def node_config(plan: SystemPlan, topology: Topology, node: str, seed: int) -> RocketConfig:
    """One node's. Raises UsageError for settings that can't be."""
    listen, dial = topology.listen[node], topology.dial[node]
    sections = by_section(plan.policy)
    fields = {
        "system": plan.name,
        "name": node,
        "data_dir": topology.data_dir[node],
        "services": SERVICES[plan.name],
        "ports": {port: at.port for port, at in listen.items()},
        "advertised": advertised(topology, node),
        "peers": [
            {
                "name": peer,
                "services": SERVICES[plan.name],
                "advertised": advertised(topology, peer),
                "dial": {port: _address(at) for port, at in sorted(ports.items())},
            }
            for peer, ports in sorted(dial.items())
        ],
        "bind_host": listen["management"].host,
        "bugs": plan.bugs,
        "seed": _node_seed(seed, node),
        **sections.pop("", {}),
        **sections,
    }
    fields["broker"] = {**sections.get("broker", {}), **_place(plan.name, topology, node)}
    if plan.name == "master-slave" and node == master_of(topology):
        role = sections.get("broker", {}).get("role", "ASYNC_MASTER")
        fields["broker"] = {**fields["broker"], "role": role}
    try:
        return msgspec.convert(fields, RocketConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"the plan's system can't be configured: {error}") from error


def _place(system: str, topology: Topology, node: str) -> dict[str, Any]:
    """With master and slaves: the first node is the master, the others count from 1."""
    if system != "master-slave":
        return {}
    number = list(topology.listen).index(node)
    return {"broker_id": number, "role": "SLAVE"}


def master_of(topology: Topology) -> str:
    """The node that is configured to be the master, where that is configured."""
    return next(iter(topology.listen))


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
    """The configuration as ``broker.config.load_config`` reads it. JSON's scalars and arrays are
    TOML's."""
    fields: dict[str, Any] = msgspec.to_builtins(config)
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


def _assignments(fields: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name} = {json.dumps(value)}" for name, value in fields.items())
