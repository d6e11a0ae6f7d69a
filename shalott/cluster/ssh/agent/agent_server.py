"""The agent: carries out what the harness asks for, and undoes it all when the harness is silent.

Requests and answers are lines of JSON over a Unix socket, to which ``attach`` leads an SSH
channel. A request has an id; its answer is kept, so that a harness whose connection broke may ask
again and nothing is done twice. Ends of the node that were not asked for are told as numbered
events, and told again to who attaches and has not heard them.

The dead man's switch: each line from the harness renews the lease. When none comes for ``lease_s``
seconds, when the agent is asked to end, or when its keeper is gone, everything is undone
(state.py), and the agent ends.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections import OrderedDict
from collections.abc import Callable, Mapping

from shalott.cluster.ssh.agent import firewall
from shalott.cluster.ssh.agent.agent_node import Node, NodeError
from shalott.cluster.ssh.agent.launching import login_user
from shalott.cluster.ssh.agent.packets import Packets
from shalott.cluster.ssh.agent.requests import (
    FileRequests,
    LinkRequests,
    MachineRequests,
    NodeRequests,
    ProbeRequests,
)
from shalott.cluster.ssh.agent.resources import Resources
from shalott.cluster.ssh.agent.state import Request, State, place_of, undo

ANSWERS_KEPT = 2000
LINE_MAX = 64 * 1024 * 1024


class Server:
    """One run's agent on this host. ``keeper``: a pipe that ends when the keeper does."""

    def __init__(self, state: State, keeper: int) -> None:
        self._state = state
        self._keeper = keeper
        self._user = login_user()
        self._node = Node(state, self._user, self._tell_exit)
        self._node.on_helper_end = self._tell_helper_end
        self._resources = Resources(state, self._node)
        self._machine = MachineRequests(state, self._node, self._resources)
        self._handlers = (
            self,
            NodeRequests(state, self._node, self._resources),
            FileRequests(self._node),
            self._machine,
            LinkRequests(state, Packets(state, self._tell_stall, self._node.helpers)),
            ProbeRequests(),
        )
        self._answers: OrderedDict[str, Mapping[str, object]] = OrderedDict()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._events: list[Mapping[str, object]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._renewed_s = 0.0
        self._over: asyncio.Future[str] | None = None

    async def serve(self, ready: Callable[[], None]) -> None:
        """Returns when everything is undone."""
        loop = asyncio.get_event_loop()
        self._over = loop.create_future()
        self._renewed_s = loop.time()
        path = place_of(self._state.name) / "socket"
        server = await asyncio.start_unix_server(self._attached, str(path), limit=LINE_MAX)
        loop.add_signal_handler(signal.SIGCHLD, self._node.reap)
        loop.add_signal_handler(signal.SIGTERM, self._end, "it was terminated")
        loop.add_reader(self._keeper, self._end, "its keeper was ended")
        self._look_at_lease()
        ready()
        why = await self._over
        server.close()
        loop.remove_reader(self._keeper)
        loop.remove_signal_handler(signal.SIGCHLD)
        self._machine.close()
        undo(self._state)
        for writer in self._writers:
            writer.write(_line({"gone": f"{why}, and everything there is undone"}))
            writer.close()

    def _end(self, why: str) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(why)

    def _look_at_lease(self) -> None:
        loop = asyncio.get_event_loop()
        over_s = self._renewed_s + self._state.lease_s
        if loop.time() < over_s:
            loop.call_at(over_s, self._look_at_lease)
        else:
            self._end(f"the harness was silent for {self._state.lease_s:g} s")

    def _tell_exit(self, code: int) -> None:
        is_out = self._resources.was_out_of_memory()
        self._tell({"exit_code": code, "out_of_memory": is_out})

    def _tell_helper_end(self, helper: str, code: int) -> None:
        self._tell({"helper": helper, "exit_code": code})

    def _tell_stall(self, took_s: float) -> None:
        self._tell({"stall_s": took_s})

    def _tell(self, event: Mapping[str, object]) -> None:
        self._events.append({"event": len(self._events) + 1, **event})
        self._send(self._events[-1])

    def _send(self, message: Mapping[str, object]) -> None:
        for writer in self._writers:
            writer.write(_line(message))

    # -- requests

    async def _attached(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while line := await reader.readline():
                self._renewed_s = asyncio.get_event_loop().time()
                self._take(json.loads(line))
        except (ConnectionError, ValueError):
            pass  # the connection broke, perhaps in the middle of a line
        finally:
            if writer in self._writers:
                self._writers.remove(writer)
            writer.close()

    def _take(self, request: Request) -> None:
        identity = request["id"]
        if identity in self._answers:
            self._send(self._answers[identity])
        elif identity not in self._running:
            task = asyncio.get_event_loop().create_task(self._answer(identity, request))
            self._running[identity] = task

    async def _answer(self, identity: str, request: Request) -> None:
        try:
            done = self._handler(request["do"])(request)
            result = await done if asyncio.iscoroutine(done) else done
            answer = {"id": identity, "result": result}
        except (NodeError, firewall.FirewallError, OSError, subprocess.SubprocessError) as error:
            answer = {"id": identity, "error": str(error)}
        self._answers[identity] = answer
        while len(self._answers) > ANSWERS_KEPT:
            self._answers.popitem(last=False)
        self._running.pop(identity, None)
        self._send(answer)

    def _handler(self, name: str) -> Callable[[Request], object]:
        for each in self._handlers:
            if (found := getattr(each, f"do_{name}", None)) is not None:
                return found  # type: ignore[no-any-return]
        raise NodeError(f"this agent does not know the request {name}")

    def do_hello(self, request: Request) -> Mapping[str, object]:
        """A harness that attaches says which event it heard last."""
        for event in self._events:
            if event["event"] > request["heard"]:
                self._send(event)
        return {"name": self._state.name}

    def do_renew(self, request: Request) -> None:
        """That it came is enough."""

    async def do_end(self, request: Request) -> None:
        """Has no answer: that it is gone is told when everything is undone."""
        self._end("it was asked to end")
        await asyncio.get_event_loop().create_future()


def _line(message: Mapping[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"
