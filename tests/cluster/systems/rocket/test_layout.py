"""Which node hosts what: layouts by their names, and plans that lay services out by hand."""

from __future__ import annotations

import tomllib
from collections import Counter

import pytest

from shalott.broker.nodes import parse_config
from shalott.broker.rocket.config import RocketConfig
from shalott.cluster.nodes import Endpoint, Topology
from shalott.cluster.systems.rocket.config import PORTS, node_config, to_toml
from shalott.cluster.systems.rocket.layout import (
    LAYOUTS,
    best_count,
    check_services,
    lay_out,
)
from shalott.core.errors import UsageError
from shalott.core.plan import SystemPlan

LOG_SYSTEMS = ("master-slave", "dledger", "controller")
pytestmark = pytest.mark.unit

BOTH = "nameserver+controller"


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(1, count + 1))


@pytest.mark.parametrize(
    ("system", "layout", "count", "wanted"),
    [
        ("controller", "separate", 3, {"broker": 2, BOTH: 1}),
        ("controller", "separate", 4, {"broker": 3, BOTH: 1}),
        ("controller", "separate", 5, {"broker": 2, BOTH: 3}),
        ("controller", "separate", 6, {"broker": 3, BOTH: 3}),
        ("controller", "separate", 7, {"broker": 4, BOTH: 3}),
        ("controller", "standalone", 4, {"broker": 2, "nameserver": 1, "controller": 1}),
        ("controller", "standalone", 5, {"broker": 3, "nameserver": 1, "controller": 1}),
        ("controller", "standalone", 6, {"broker": 2, "nameserver": 1, "controller": 3}),
        ("controller", "standalone", 7, {"broker": 3, "nameserver": 1, "controller": 3}),
        ("controller", "standalone", 8, {"broker": 3, "nameserver": 2, "controller": 3}),
        ("master-slave", "separate", 3, {"broker": 2, "nameserver": 1}),
        ("master-slave", "separate", 5, {"broker": 3, "nameserver": 2}),
        ("dledger", "separate", 4, {"broker": 3, "nameserver": 1}),
        ("dledger", "separate", 5, {"broker": 3, "nameserver": 2}),
        ("dledger", "separate", 6, {"broker": 5, "nameserver": 1}),
        ("dledger", "separate", 7, {"broker": 5, "nameserver": 2}),
    ],
)
def test_a_layout_says_how_many_of_each_there_are(
    system: str, layout: str, count: int, wanted: dict[str, int]
) -> None:
    services = lay_out(system, layout, names(count))
    assert tuple(services) == names(count)
    assert Counter("+".join(own) for own in services.values()) == wanted
    assert services["n1"] == ("broker",)  # the first nodes are brokers
    check_services(system, names(count), services)


@pytest.mark.parametrize("system", ["mirrored", "rabbitmq", *LOG_SYSTEMS])
def test_together_leaves_everything_as_it_was(system: str) -> None:
    assert lay_out(system, "together", names(1)) == {}
    check_services(system, names(1), {})


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_of_the_best_count_there_are_three_brokers_and_the_loss_of_any_node_is_survived(
    layout: str,
) -> None:
    for system in LOG_SYSTEMS if layout == "separate" else ("controller",):
        services = lay_out(system, layout, names(best_count(system, layout)))
        hosted = Counter(service for own in services.values() for service in own)
        assert hosted["broker"] == 3
        assert system != "controller" or hosted["controller"] == 3


TOO_FEW = [
    ("controller", "separate", 2, 3, 6),
    ("controller", "standalone", 3, 4, 7),
    ("master-slave", "separate", 2, 3, 5),
    ("dledger", "separate", 3, 4, 5),
]


@pytest.mark.parametrize(("system", "layout", "count", "least", "best"), TOO_FEW)
def test_too_few_nodes_are_refused(
    system: str, layout: str, count: int, least: int, best: int
) -> None:
    sentence = (
        f"^--layout {layout} of {system} needs at least {least} nodes, . of them brokers, and the"
        f" plan has {count}: use --nodes {best}$"
    )
    with pytest.raises(UsageError, match=sentence):
        lay_out(system, layout, names(count))


@pytest.mark.parametrize(
    ("system", "layout", "sentence"),
    [
        ("mirrored", "separate", "mirrored has no services to lay out on its nodes: leave out"),
        ("rabbitmq", "standalone", "rabbitmq has no services to lay out on its nodes: leave out"),
        ("dledger", "standalone", "dledger has no controllers to stand alone: use --layout sep"),
    ],
)
def test_what_a_system_does_not_have_is_not_laid_out(
    system: str, layout: str, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        lay_out(system, layout, names(7))


BROKER, SERVER = ("broker",), ("nameserver",)


@pytest.mark.parametrize(
    ("system", "services", "sentence"),
    [
        ("mirrored", {"n1": BROKER, "n2": SERVER}, "mirrored has no services to lay out"),
        ("dledger", {"n1": BROKER, "n2": SERVER, "n3": BROKER}, "name n3, which is no node"),
        ("dledger", {"n1": (*BROKER, *SERVER)}, "does not say what n2 hosts: broker, nameserver"),
        ("dledger", {"n1": (*BROKER, *SERVER), "n2": ()}, "does not say what n2 hosts"),
        ("dledger", {"n1": BROKER, "n2": ("controller",)}, "n2 can't host the service controller"),
        ("dledger", {"n1": BROKER, "n2": BROKER}, "hosts the service nameserver, which dledger"),
        ("controller", {"n1": BROKER, "n2": SERVER}, "hosts the service controller"),
        ("dledger", {"n1": SERVER, "n2": SERVER}, "hosts the service broker"),
    ],
)
def test_services_that_make_no_cluster_are_refused(
    system: str, services: dict[str, tuple[str, ...]], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        check_services(system, ("n1", "n2"), services)


# -- what the nodes are told -----------------------------------------------------------------------


def configs(system: str, services: dict[str, tuple[str, ...]]) -> dict[str, RocketConfig]:
    """Of each node, as in the local world: links through relays."""
    plan = SystemPlan(
        name=system,
        profile="upstream",
        services=services,
    )
    listen = {
        node: {p: Endpoint("127.0.0.1", 1000 * i + j) for j, p in enumerate(PORTS[system], 1)}
        for i, node in enumerate(services, 1)
    }
    dial = {
        source: {
            node: {port: Endpoint("127.0.0.1", at.port + 20_000) for port, at in ports.items()}
            for node, ports in listen.items()
            if node != source
        }
        for source in services
    }
    paths = dict.fromkeys(services, "/data")
    topology = Topology(listen=listen, dial=dial, data_dir=paths, config_dir=paths)
    return {node: node_config(plan, topology, node, 7) for node in services}


def test_each_node_is_told_who_hosts_what_and_only_of_ports_that_somebody_listens_on() -> None:
    found = configs("controller", lay_out("controller", "standalone", names(7)))
    ports = {"broker": ["ha", "management", "remoting"]}
    ports |= {"nameserver": ["management", "nameserver"]}
    ports |= {"controller": ["controller", "management", "raft"]}
    for node, config in found.items():
        assert parse_config(tomllib.loads(to_toml(config))) == config
        assert config.nodes_with("broker") == ("n1", "n2", "n3")
        assert config.nodes_with("nameserver") == ("n4",)
        assert config.nodes_with("controller") == ("n5", "n6", "n7")
        (service,) = config.services
        assert sorted(config.ports) == sorted(config.advertised) == ports[service]
        for peer in config.peers:
            (service,) = peer.services
            assert sorted(peer.advertised) == sorted(peer.dial) == ports[service]
            assert node != peer.name


def test_the_first_broker_is_the_master_wherever_it_is() -> None:
    services = {"a": SERVER, "b": BROKER, "c": SERVER, "d": BROKER, "e": BROKER}
    found = configs("master-slave", services)
    assert [(n, c.broker.broker_id, c.broker.role) for n, c in found.items() if n in "bde"] == [
        ("b", 0, "ASYNC_MASTER"), ("d", 1, "SLAVE"), ("e", 2, "SLAVE"),
    ]  # fmt: skip
