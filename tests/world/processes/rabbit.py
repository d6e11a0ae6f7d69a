"""Real nodes as child processes: ``python -m shalott.broker``, each with a directory and ports of
its own, linked directly."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shalott.broker.rabbit.config import NodeConfig, Peer
from shalott.cluster.base import Endpoint
from shalott.cluster.http import Management
from shalott.cluster.local.ports import HOST, port_of, reserve_port
from shalott.cluster.systems.rabbit.mirrored import to_toml
from shalott.harness.core.errors import ClientError
from tests.broker.rabbit.amqp.pika_flows import Address

ROOT = Path(__file__).parents[3]
READY_S = 60.0
ENDS_S = 60.0
POLL_S = 0.02
PORTS = ("amqp", "cluster", "management")


@dataclass
class NodeProcess:
    """One node, over all its lives. Its output is appended to ``output``."""

    config: NodeConfig
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    _lives: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def address(self) -> Address:
        return Address(HOST, self.config.amqp_port)

    @property
    def management(self) -> Management:
        return Management(Endpoint(HOST, self.config.management_port))

    @property
    def output(self) -> str:
        return (self.directory / "output.log").read_text()

    def start(self) -> None:
        """Begin a new life; ``await_running`` says when it serves."""
        path = self.directory / "node.toml"
        path.write_text(to_toml(self.config))
        with (self.directory / "output.log").open("ab") as output:
            self._lives.append(output.tell())
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

    def last_words(self) -> str:
        """What this life has said."""
        return (self.directory / "output.log").read_bytes()[self._lives[-1] :].decode()

    def await_running(self, together: Sequence[str] = ()) -> None:
        """Until it serves clients, with the nodes ``together`` in its cluster."""
        self.await_status("running", together)

    def await_status(self, status: str, together: Sequence[str] = ()) -> None:
        seen: Any = None
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, f"{self.name} ended:\n{self.last_words()}"
            with contextlib.suppress(ClientError):
                seen = self.claims()
                if seen["status"] == status and set(together) <= set(seen["running_nodes"]):
                    return
            time.sleep(POLL_S)
        raise AssertionError(f"{self.name} is not {status}: {seen}\n{self.last_words()}")

    def claims(self) -> Any:
        return asyncio.run(self.management.get("/api/shalott/claims"))

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def nodes(directory: Path, names: Sequence[str] = ("n1",)) -> Iterator[list[NodeProcess]]:
    """Nodes of one cluster, not started. All are killed at the end."""
    with ExitStack() as stack:
        ports = {
            name: {port: stack.enter_context(_held_port()) for port in PORTS} for name in names
        }
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


@contextmanager
def _held_port() -> Iterator[int]:
    with contextlib.closing(reserve_port()) as holder:
        assert isinstance(holder, socket.socket)
        yield port_of(holder)
