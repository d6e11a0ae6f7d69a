"""Nodes' configurations of RocketMQ systems, in each world's topology."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from shalott.broker.nodes import parse_config
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.cluster.nodes import Endpoint, Topology
from shalott.cluster.systems.rocket.config import PORTS, node_config, to_toml
from shalott.cluster.systems.rocket.drawing import SAFE_SETTINGS
from shalott.core.errors import UsageError
from shalott.core.plan import SystemPlan

LOG_SYSTEMS = ("master-slave", "dledger", "controller")
pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")


def system_plan(name: str, **policy: Any) -> SystemPlan:
    return SystemPlan(name=name, profile="upstream", policy=policy)


def relayed(system: str) -> Topology:
    """As the local world has it: everybody on loopback, links through relays."""
    listen = {
        node: {port: Endpoint("127.0.0.1", 1000 * i + j) for j, port in enumerate(PORTS[system], 1)}
        for i, node in enumerate(NODES, 1)
    }
    dial = {
        source: {
            node: {port: Endpoint("127.0.0.1", at.port + 20_000) for port, at in ports.items()}
            for node, ports in listen.items()
            if node != source
        }
        for source in NODES
    }
    return topology(listen, dial)


def containers(system: str) -> Topology:
    """As containers have it: each listens on all of its own interfaces."""
    numbers = {port: 10_000 + i for i, port in enumerate(PORTS[system])}
    at = {
        node: {port: Endpoint(f"10.1.0.{11 + i}", number) for port, number in numbers.items()}
        for i, node in enumerate(NODES)
    }
    everywhere = {port: Endpoint("0.0.0.0", number) for port, number in numbers.items()}
    dial = {a: {b: at[b] for b in NODES if b != a} for a in NODES}
    return topology(dict.fromkeys(NODES, everywhere), dial)


def topology(listen: Any, dial: Any) -> Topology:
    directories = dict.fromkeys(NODES, "/data")
    return Topology(listen=listen, dial=dial, data_dir=directories, config_dir=directories)


def configs(system: str, world: Topology, **policy: Any) -> list[RocketConfig]:
    return [node_config(system_plan(system, **policy), world, node, 7) for node in NODES]


@pytest.mark.parametrize("system", LOG_SYSTEMS)
@pytest.mark.parametrize("make", [relayed, containers])
def test_what_is_written_is_what_the_node_reads(system: str, make: Any) -> None:
    for config in configs(system, make(system), **SAFE_SETTINGS[system]):
        assert parse_config(tomllib.loads(to_toml(config))) == config
        assert config.store.flush == "sync"
        assert config.nodes_with("broker") == NODES


@pytest.mark.parametrize("system", LOG_SYSTEMS)
@pytest.mark.parametrize("make", [relayed, containers])
def test_all_nodes_know_a_node_by_one_address_and_dial_their_own_way(
    system: str, make: Any
) -> None:
    world = make(system)
    found = configs(system, world)
    for port in PORTS[system]:
        for node in NODES:
            names = {AddressBook(config).advertised(node, port) for config in found}
            assert len(names) == 1 and not names.pop().startswith("0.0.0.0")
    for config in found:
        book = AddressBook(config)
        for peer, ports in world.dial[config.name].items():
            for port, at in ports.items():
                assert book.dial(book.advertised(peer, port)) == (at.host, at.port)


def test_the_first_node_is_the_master_and_the_others_are_slaves() -> None:
    found = configs("master-slave", relayed("master-slave"), **{"broker.role": "SYNC_MASTER"})
    assert [(c.broker.broker_id, c.broker.role) for c in found] == [
        (0, "SYNC_MASTER"), (1, "SLAVE"), (2, "SLAVE"),
    ]  # fmt: skip
    (first, *_) = configs("master-slave", relayed("master-slave"))
    assert first.broker.role == "ASYNC_MASTER"


def test_nodes_draw_from_different_sources() -> None:
    found = configs("dledger", relayed("dledger"))
    assert len({config.seed for config in found}) == 3 and all(c.seed for c in found)


def test_a_setting_that_can_not_be_is_refused() -> None:
    with pytest.raises(UsageError, match="can't be configured"):
        configs("dledger", relayed("dledger"), **{"raft.vote_min_ms": 0})
