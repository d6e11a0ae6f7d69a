"""Nodes of a RocketMQ cluster as child processes, each with a directory and ports of its own,
linked directly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from shalott.broker.rocket.config import (
    BrokerConfig,
    HaConfig,
    RocketConfig,
    RocketPeer,
    Service,
    StoreConfig,
    SystemName,
)
from shalott.cluster.local.backend import HOST
from shalott.cluster.systems.rocket.config import PORTS, to_toml
from shalott.cluster.systems.rocket.layout import SERVICES
from tests.world.processes.child import Child, held_ports

SMALL_STORE = StoreConfig(segment_bytes=1 << 20, queue_segment_units=1000)
QUICK_HA = HaConfig(
    heartbeat_interval_ms=200,
    housekeeping_interval_ms=2000,
    reconnect_interval_ms=100,
    slave_timeout_ms=2000,
)


class RocketProcess(Child):
    def __init__(self, config: RocketConfig, directory: Path) -> None:
        super().__init__(config.name, directory)
        self.config = config

    def config_text(self) -> str:
        return to_toml(self.config)

    @property
    def management_port(self) -> int:
        return self.config.ports["management"]

    def address(self, port: str) -> str:
        return self.config.advertised[port]


def node_configs(
    directory: Path, system: SystemName, ports: dict[str, dict[str, int]]
) -> list[RocketConfig]:
    """Of nodes that host all that their system has. By configuration the first is the master."""
    services: tuple[Service, ...] = tuple(SERVICES[system])  # type: ignore[arg-type]
    addresses = {
        name: {port: f"{HOST}:{number}" for port, number in numbers.items()}
        for name, numbers in ports.items()
    }
    return [
        RocketConfig(
            system=system,
            name=name,
            data_dir=str(directory / name / "data"),
            services=services,
            ports=numbers,
            advertised=addresses[name],
            peers=tuple(
                RocketPeer(
                    name=peer,
                    services=services,
                    advertised=addresses[peer],
                    dial=addresses[peer],
                )
                for peer in ports
                if peer != name
            ),
            bind_host=HOST,
            broker=BrokerConfig(
                broker_id=place if system == "master-slave" else 0,
                role=_role(place, len(ports)),
                register_interval_ms=1000,
                slave_sync_interval_ms=500,
                slave_read_enable=True,
            ),
            store=SMALL_STORE,
            ha=QUICK_HA,
        )
        for place, (name, numbers) in enumerate(ports.items())
    ]


def _role(place: int, count: int) -> Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]:
    if place > 0:
        return "SLAVE"
    return "SYNC_MASTER" if count > 1 else "ASYNC_MASTER"


@contextmanager
def rocket_nodes(
    directory: Path,
    names: Sequence[str] = ("n1",),
    *,
    system: SystemName = "master-slave",
    change: Callable[[RocketConfig], RocketConfig] = lambda config: config,
) -> Iterator[list[RocketProcess]]:
    """Nodes of one cluster, not started. All are killed at the end."""
    with ExitStack() as stack:
        ports = stack.enter_context(held_ports(names, PORTS[system]))
        made = []
        for config in node_configs(directory, system, ports):
            home = directory / config.name
            home.mkdir(parents=True)
            node = RocketProcess(change(config), home)
            stack.callback(node.close)
            made.append(node)
        yield made


@contextmanager
def running_rocket_nodes(
    directory: Path,
    names: Sequence[str] = ("n1",),
    *,
    system: SystemName = "master-slave",
    change: Callable[[RocketConfig], RocketConfig] = lambda config: config,
) -> Iterator[list[RocketProcess]]:
    """Nodes that serve, and know of each other."""
    with rocket_nodes(directory, names, system=system, change=change) as made:
        for node in made:
            node.start()
        for node in made:
            node.await_running(names)
            node.await_claims(lambda seen: set(names) <= set(seen.get("registered", names)))
        yield made
