"""What becomes of single packets that come to this host, where its kernel has no netem: the packet
engine (cluster/packets/engine.py), a process of its own, serves a queue that rules fill.

It ends with the agent, which is its standard input; then every packet passes. A connection of the
harness's that is lost changes nothing: the engine is the agent's, and undone with the rest.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shalott.cluster.packets.engine import serve
from shalott.cluster.packets.queue import PacketQueue
from shalott.cluster.ssh.agent import queueing
from shalott.cluster.ssh.agent.agent_node import NodeError
from shalott.cluster.ssh.agent.state import Request, State, place_of, start_ticks, write_state

ANSWER_MAX = 1 << 24
ERRORS_MAX = 500


class Packets:
    """``tell_stall`` is called with the seconds for which the engine did not run. In ``helpers`` it
    is noted, by its process's id, as one whose end is told."""

    def __init__(
        self, state: State, tell_stall: Callable[[float], None], helpers: dict[int, str]
    ) -> None:
        self._helpers = helpers
        self._state = state
        self._tell_stall = tell_stall
        self._engine: subprocess.Popen[bytes] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._asked: dict[int, asyncio.Future[Mapping[str, object]]] = {}
        self._numbers = itertools.count(1)
        self._lock: asyncio.Lock | None = None  # made inside the loop

    async def shape(self, request: Request) -> None:
        """The links to this host are so from now on, and no others are shaped. Raises NodeError,
        FirewallError."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        node, sources = request["node"], request["sources"]
        async with self._lock:
            if sources:
                # The queue first: without it the rule lets everything pass.
                await self._start(request["seed"])
                await self._ask("shape", node, sources)
                queueing.queue(self._state.name, request["way"], list(sources))
            else:
                queueing.remove(self._state.name)
                if self._engine is not None:
                    await self._ask("shape", node, {})

    async def links(self, node: str) -> Mapping[str, object]:
        """What is in force on the links to this host, by the sender's name, as the engine says."""
        if self._engine is None:
            return {}
        return dict((await self._ask("read", node, {}))["links"])

    async def _ask(self, do: str, node: str, sources: Mapping[str, object]) -> Request:
        assert self._engine is not None and self._engine.stdin is not None
        if self._reading is None or self._reading.done():
            raise self._ended()
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_event_loop().create_future()
        order = {"number": number, "do": do, "node": node, "sources": sources}
        try:
            self._engine.stdin.write(json.dumps(order).encode() + b"\n")
            self._engine.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        answer: Mapping[str, object] = await asked
        if answer.get("error"):
            raise NodeError(f"the packet engine: {answer['error']}")
        return answer

    async def _start(self, seed: int) -> None:
        if self._engine is not None:
            return
        number = queueing.number_of(self._state.name)
        words = ["-I", sys.argv[0], "engine", str(number), str(seed)]
        said = place_of(self._state.name) / "packets.log"
        self._engine = _launch([sys.executable, *words], said)
        pid = self._engine.pid
        self._helpers[pid] = "packet engine"
        self._state.servers = [*self._state.servers, (pid, start_ticks(pid) or 0)]
        write_state(self._state)
        assert self._engine.stdout is not None
        reader = asyncio.StreamReader(limit=ANSWER_MAX)
        loop = asyncio.get_event_loop()
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._engine.stdout
        )
        self._reading = loop.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Answers, until the engine ends."""
        while line := await reader.readline():
            answer = json.loads(line)
            if "stall" in answer:
                begin_s, end_s = answer["stall"]
                self._tell_stall(end_s - begin_s)
                continue
            asked = self._asked.pop(answer["number"], None)
            if asked is not None and not asked.done():
                asked.set_result(answer)
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(self._ended())
        self._asked.clear()

    def _ended(self) -> NodeError:
        said = (place_of(self._state.name) / "packets.log").read_text(errors="replace").strip()
        return NodeError(
            "the packet engine ended, so links to this host are as they were before any fault"
            f"{': ' + said[-ERRORS_MAX:] if said else ''}"
        )


def _launch(command: Sequence[str], said: Path) -> subprocess.Popen[bytes]:
    with said.open("wb") as errors:
        engine = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        )
    engine.returncode = 0  # the agent reaps its children itself
    return engine


def run_engine(number: int, seed: int) -> None:
    """The engine's process, in the host's own network."""
    serve(seed, 0, os.dup(1), lambda pid: PacketQueue(number))
