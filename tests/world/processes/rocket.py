"""Real RocketMQ nodes as child processes: ``python -m shalott.broker``, each with a directory and
ports of its own, linked directly."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shalott.broker.rocket.config import (
    BrokerConfig,
    HaConfig,
    RocketConfig,
    RocketPeer,
    Service,
    StoreConfig,
    SystemName,
)
from shalott.cluster.base import Endpoint
from shalott.cluster.http import Management
from shalott.cluster.local.ports import HOST, port_of, reserve_port
from shalott.cluster.systems.rocket.config import PORTS, to_toml
from shalott.cluster.systems.rocket.layout import SERVICES
from shalott.harness.core.errors import ClientError

ROOT = Path(__file__).parents[3]
READY_S = 30.0
ENDS_S = 30.0
POLL_S = 0.05
SMALL_STORE = StoreConfig(segment_bytes=1 << 20, queue_segment_units=1000)
QUICK_HA = HaConfig(
    heartbeat_interval_ms=200,
    housekeeping_interval_ms=2000,
    reconnect_interval_ms=100,
    slave_timeout_ms=2000,
)


@dataclass
class RocketProcess:
    """One node, over all its lives."""

    config: RocketConfig
    directory: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self.config.name

    def address(self, port: str) -> str:
        return self.config.advertised[port]

    @property
    def management(self) -> Management:
        return Management(Endpoint(HOST, self.config.ports["management"]))

    @property
    def output(self) -> str:
        return (self.directory / "output.log").read_text()

    def start(self) -> None:
        path = self.directory / "node.toml"
        path.write_text(to_toml(self.config))
        with (self.directory / "output.log").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shalott.broker", "--config", str(path)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait; the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(ENDS_S)

    def claims(self) -> Any:
        return asyncio.run(self.management.get("/api/shalott/claims"))

    def await_claims(self, wanted: Callable[[Any], bool]) -> Any:
        """What the node believes, as soon as it is what is wanted."""
        seen: Any = None
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, f"{self.name} ended:\n{self.output}"
            with contextlib.suppress(ClientError):
                seen = self.claims()
                if wanted(seen):
                    return seen
            time.sleep(POLL_S)
        raise AssertionError(f"{self.name} says {seen}\n{self.output}")

    def await_running(self, together: Sequence[str] = ()) -> Any:
        return self.await_claims(
            lambda seen: seen["status"] == "running" and set(together) <= set(seen["running_nodes"])
        )

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


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
        ports = {
            name: {
                port: port_of(stack.enter_context(contextlib.closing(reserve_port())))
                for port in PORTS[system]
            }
            for name in names
        }
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
        yield made
