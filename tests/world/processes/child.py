"""Child: a real node as a child process, ``python -m shalott.broker``, over all its lives."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from shalott.cluster.http import Management
from shalott.cluster.local.backend import HOST, port_of, reserve_port
from shalott.cluster.nodes import Endpoint
from shalott.core.errors import ClientError

ROOT = Path(__file__).parents[3]
READY_S = 60.0
ENDS_S = 60.0
POLL_S = 0.02


class Child:
    """A kind of node says what its configuration is. What it says is appended to ``output``."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None
        self._lives: list[int] = []

    def config_text(self) -> str:
        """The configuration of the next life, as TOML."""
        raise NotImplementedError

    @property
    def management_port(self) -> int:
        raise NotImplementedError

    @property
    def management(self) -> Management:
        return Management(Endpoint(HOST, self.management_port))

    @property
    def output(self) -> str:
        return (self.directory / "output.log").read_text()

    def start(self) -> None:
        """Begin a new life; ``await_running`` says when it serves."""
        path = self.directory / "node.toml"
        path.write_text(self.config_text())
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

    def claims(self) -> Any:
        return asyncio.run(self.management.get("/api/shalott/claims"))

    def await_claims(self, wanted: Callable[[Any], bool]) -> Any:
        """What the node believes, as soon as it is what is wanted."""
        seen: Any = None
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, f"{self.name} ended:\n{self.last_words()}"
            with contextlib.suppress(ClientError):
                seen = self.claims()
                if wanted(seen):
                    return seen
            time.sleep(POLL_S)
        raise AssertionError(f"{self.name} says {seen}\n{self.last_words()}")

    def await_running(self, together: Sequence[str] = ()) -> Any:
        """Until it serves clients, with the nodes ``together`` in its cluster."""
        return self.await_status("running", together)

    def await_status(self, status: str, together: Sequence[str] = ()) -> Any:
        return self.await_claims(
            lambda seen: seen["status"] == status and set(together) <= set(seen["running_nodes"])
        )

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def held_ports(names: Iterable[str], kinds: Sequence[str]) -> Iterator[dict[str, dict[str, int]]]:
    """Free ports on loopback, one of each kind for a node, which no other process takes."""
    with ExitStack() as stack:
        yield {
            name: {
                kind: port_of(stack.enter_context(contextlib.closing(reserve_port())))
                for kind in kinds
            }
            for name in names
        }
