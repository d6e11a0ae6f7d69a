"""A node program for the backends' contract tests: a management port, and a cluster port that
echoes.

Run with a JSON file: name, data_dir, ports by name (with the host to bind), peers by name.
Standard library only: it runs inside a container as well; ``Life`` is what a simulated machine
(fake_program.py) does otherwise than an operating system. On its management port it answers

  GET /deaf                 from now on SIGTERM is ignored
  GET /use/<what>           200 if there is some left of it: a file, a thread, room in /tmp; a MiB
                            of memory, 64 of which it takes; CPU: how many seconds 0.1 s of it take
  GET /starts               how often it has been started over its data directory
  GET /echo/<peer>          200 if a byte sent to the peer's cluster port comes back within a second
  GET /bulk/<peer>          how many seconds 128 KiB take to come back
  GET /held/<peer>          the same over one connection that is opened once and kept
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BULK_BYTES = 128 * 1024


class Life:
    """One life of a fake node's process on an operating system."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    async def note_start(self) -> int:
        """Count this start where it outlives the process, and say so; returns the count."""
        path = Path(self.config["data_dir"]) / "starts"
        starts = 1 + (int(path.read_text()) if path.exists() else 0)
        keep(path, str(starts))
        event = {
            "at_ns": time.monotonic_ns(),
            "wall_ns": time.time_ns(),
            "node": self.config["name"],
            "incarnation": starts,
            "group": "",
            "kind": "role",
            "role": "running",
            "epoch": 0,
            "detail": {},
        }
        with (Path(self.config["data_dir"]) / "events.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")
        sys.stdout.write(f"{self.config['name']} starts for the {starts}. time\n")
        sys.stdout.flush()
        return starts

    def go_deaf(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def keep(path: Path, text: str) -> None:
    """Write a file that outlives a loss of power."""
    fresh = path.with_suffix(".new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def burn() -> float:
    """How long it takes to spend 0.1 s of CPU."""
    began, until = time.monotonic(), time.process_time() + 0.1
    while time.process_time() < until:
        pass
    return time.monotonic() - began


class FakeNode:
    def __init__(self, config: dict[str, Any], life: Life) -> None:
        self.config = config
        self.life = life
        self.starts = 0
        self.kept: list[object] = []
        self.uses: dict[str, Callable[[], object]] = {
            "cpu": burn,
            "memory": lambda: self.keep(b"x" * (64 << 20)),
            "file": lambda: self.keep(os.open("/dev/null", os.O_RDONLY)),
            "thread": lambda: threading.Thread(target=lambda: None).start(),
            "tmp": lambda: self.keep(Path("/tmp", "used").write_bytes(bytes(4096))),
        }
        self.held: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    def keep(self, something: object) -> None:
        self.kept.append(something)

    async def run(self) -> None:
        self.starts = await self.life.note_start()
        handlers = {"cluster": self.echo, "management": self.answer}
        for name, (host, port) in self.config["ports"].items():
            if name in handlers:
                await asyncio.start_server(handlers[name], host, port)
        await asyncio.Event().wait()

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        status, body = await self.route(path)
        content = json.dumps(body).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n"
            "Content-Type: application/json\r\nConnection: close\r\n\r\n".encode()
            + content
        )
        await writer.drain()
        writer.close()

    async def route(self, path: str) -> tuple[int, object]:
        if path == "/starts":
            return 200, self.starts
        if path == "/deaf":
            self.life.go_deaf()
            return 200, {}
        if path.startswith("/use/"):
            try:
                return 200, self.uses[path.removeprefix("/use/")]()
            except (OSError, RuntimeError) as error:
                return 507, str(error)
        if path.startswith("/bulk/"):
            return 200, await self.bulk_seconds(path.removeprefix("/bulk/"))
        if path.startswith("/echo/"):
            return (200 if await self.echoes(path.removeprefix("/echo/"), keep=False) else 504), {}
        if path.startswith("/held/"):
            return (200 if await self.echoes(path.removeprefix("/held/"), keep=True) else 504), {}
        return 404, {}

    async def bulk_seconds(self, peer: str) -> float:
        reader, writer = await asyncio.open_connection(*self.config["peers"][peer])
        loop = asyncio.get_running_loop()
        started = loop.time()
        writer.write(bytes(BULK_BYTES))
        await reader.readexactly(BULK_BYTES)
        writer.close()
        return loop.time() - started

    async def echoes(self, peer: str, keep: bool) -> bool:
        try:
            async with asyncio.timeout(1):
                if keep and peer in self.held:
                    reader, writer = self.held[peer]
                else:
                    reader, writer = await asyncio.open_connection(*self.config["peers"][peer])
                if keep:
                    self.held[peer] = reader, writer
                token = str(asyncio.get_running_loop().time()).rjust(24).encode()
                writer.write(token)
                while await reader.readexactly(24) != token:
                    pass  # an answer to an earlier attempt that was held
                if not keep:
                    writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return False
        return True


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    asyncio.run(FakeNode(given, Life(given)).run())
