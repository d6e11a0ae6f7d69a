"""Nodes of a mirrored cluster as child processes, each with a directory and ports of its own,
linked directly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from shalott.broker.rabbit.config import NodeConfig, Peer
from shalott.cluster.local.backend import HOST
from shalott.cluster.systems.rabbit.mirrored import to_toml
from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.processes.child import Child, held_ports

PORTS = ("amqp", "cluster", "management")


class NodeProcess(Child):
    def __init__(self, config: NodeConfig, directory: Path) -> None:
        super().__init__(config.name, directory)
        self.config = config

    def config_text(self) -> str:
        return to_toml(self.config)

    @property
    def management_port(self) -> int:
        return self.config.management_port

    @property
    def address(self) -> Address:
        return Address(HOST, self.config.amqp_port)


@contextmanager
def nodes(directory: Path, names: Sequence[str] = ("n1",)) -> Iterator[list[NodeProcess]]:
    """Nodes of one cluster, not started. All are killed at the end."""
    with ExitStack() as stack:
        ports = stack.enter_context(held_ports(names, PORTS))
        made = []
        for name in names:
            home = directory / name
            home.mkdir(parents=True)
            config = NodeConfig(
                name=name,
                data_dir=str(home / "data"),
                bind_host=HOST,
                peers=tuple(
                    Peer(peer, HOST, ports[peer]["cluster"]) for peer in names if peer != name
                ),
                amqp_port=ports[name]["amqp"],
                cluster_port=ports[name]["cluster"],
                management_port=ports[name]["management"],
            )
            node = NodeProcess(config, home)
            stack.callback(node.close)
            made.append(node)
        yield made


@contextmanager
def running_nodes(directory: Path, names: Sequence[str] = ("n1",)) -> Iterator[list[NodeProcess]]:
    """Nodes that serve clients as one cluster."""
    with nodes(directory, names) as made:
        for node in made:
            node.start()
        for node in made:
            node.await_running(names)
        yield made
