"""The agent: carries out what the harness asks for, and undoes it all when the harness is silent.

Requests and answers are lines of JSON over a Unix socket, to which ``attach`` leads an SSH
channel. A request has an id; its answer is kept, so that a harness whose connection broke may ask
again and nothing is done twice. Ends of the node that nobody asked for are told as numbered
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
from typing import Any

from shalott.cluster.ssh.agent import disk, firewall
from shalott.cluster.ssh.agent.agent_node import Node, NodeError
from shalott.cluster.ssh.agent.clocks import NodeClock
from shalott.cluster.ssh.agent.launching import login_user
from shalott.cluster.ssh.agent.packets import Packets
from shalott.cluster.ssh.agent.probes import Measuring, Probes
from shalott.cluster.ssh.agent.resources import Resources
from shalott.cluster.ssh.agent.state import State, place_of, undo, write_state

ANSWERS_KEPT = 2000
LINE_MAX = 64 * 1024 * 1024
SCRIPT_TIMEOUT_S = 20
# Queues that the kernel puts in place by itself: they come back when ours goes.
OWN_QUEUES = ("noqueue", "pfifo_fast", "pfifo", "fq_codel", "fq", "mq")


class Server:
    """One run's agent on this host. ``keeper``: a pipe that ends when the keeper does."""

    def __init__(self, state: State, keeper: int) -> None:
        self._state = state
        self._keeper = keeper
        self._user = login_user()
        self._node = Node(state, self._user, self._tell_exit)
        self._clock = NodeClock(state, self._node)
        self._resources = Resources(state, self._node)
        self._node.on_start = self._resources.starting
        self._node.on_started = self._has_started
        self._bringing: asyncio.Task[None] | None = None
        self._probes = Probes()
        self._packets = Packets(state, self._tell_stall)
        self._measuring = Measuring()
        self._answers: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._events: list[Mapping[str, Any]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._is_dark = False
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
        self._clock.close()
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

    def _has_started(self) -> None:
        """Also when it started by itself: it lacks what it lacked."""
        self._bringing = asyncio.get_event_loop().create_task(self._resources.started())

    def _tell_stall(self, took_s: float) -> None:
        self._tell({"stall_s": took_s})

    def _tell(self, event: Mapping[str, Any]) -> None:
        self._events.append({"event": len(self._events) + 1, **event})
        self._send(self._events[-1])

    def _send(self, message: Mapping[str, Any]) -> None:
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

    def _take(self, request: Mapping[str, Any]) -> None:
        identity = request["id"]
        if identity in self._answers:
            self._send(self._answers[identity])
        elif identity not in self._running:
            task = asyncio.get_event_loop().create_task(self._answer(identity, request))
            self._running[identity] = task

    async def _answer(self, identity: str, request: Mapping[str, Any]) -> None:
        try:
            done = getattr(self, "do_" + request["do"])(request)
            result = await done if asyncio.iscoroutine(done) else done
            answer = {"id": identity, "result": result}
        except (NodeError, firewall.FirewallError, OSError, subprocess.SubprocessError) as error:
            answer = {"id": identity, "error": str(error)}
        self._answers[identity] = answer
        while len(self._answers) > ANSWERS_KEPT:
            self._answers.popitem(last=False)
        self._running.pop(identity, None)
        self._send(answer)

    def do_hello(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Whoever attaches says which event it heard last."""
        for event in self._events:
            if event["event"] > request["heard"]:
                self._send(event)
        return {"name": self._state.name}

    def do_renew(self, request: Mapping[str, Any]) -> None:
        """That it came is enough."""

    async def do_end(self, request: Mapping[str, Any]) -> None:
        """Has no answer: that it is gone is told when everything is undone."""
        self._end("it was asked to end")
        await asyncio.get_event_loop().create_future()

    def do_prepare(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        prepared = self._node.prepare(request)
        if request["resources"]:
            self._resources.prepare(request["small_tmp"])
        return prepared

    async def do_mount(self, request: Mapping[str, Any]) -> None:
        await disk.mount(self._state, request["program"], request["options"])

    async def do_disk(self, request: Mapping[str, Any]) -> str:
        return await disk.ask(self._state, request["line"])

    async def do_darken(self, request: Mapping[str, Any]) -> None:
        """End the node as a loss of power does: nobody hears of it."""
        firewall.silence(self._state.name, request["peers"], request["ports"])
        self._is_dark = True
        await self._node.kill()

    async def do_start(self, request: Mapping[str, Any]) -> None:
        if self._is_dark:
            firewall.end_silence(self._state.name)
            self._is_dark = False
        self._node.start()
        if self._bringing is not None:
            await self._bringing

    async def do_stop(self, request: Mapping[str, Any]) -> None:
        await self._resources.stopping()
        await self._node.stop(request["timeout_s"])

    async def do_kill(self, request: Mapping[str, Any]) -> None:
        await self._node.kill()

    async def do_pause(self, request: Mapping[str, Any]) -> None:
        await self._node.pause()

    def do_resume(self, request: Mapping[str, Any]) -> None:
        self._node.resume()
        self._resources.stop_again()

    async def do_shortage(self, request: Mapping[str, Any]) -> None:
        await self._resources.set(request["shortage"])
        if self._node.is_paused:
            await self._node.pause()  # what stood still was let run

    async def do_read_shortage(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._resources.seen()

    def do_wipe(self, request: Mapping[str, Any]) -> None:
        self._node.wipe()

    def do_status(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._node.status()

    def do_output(self, request: Mapping[str, Any]) -> str:
        return self._node.output(request["lines"])

    async def do_command(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._node.run_command(request["command"], request["timeout_s"])

    def do_clock(self, request: Mapping[str, Any]) -> None:
        self._clock.set(request)

    async def do_read_clock(self, request: Mapping[str, Any]) -> float:
        return await self._clock.offset_ms(request["command"])

    def do_drop(self, request: Mapping[str, Any]) -> None:
        firewall.drop(self._state.name, request["sources"])

    def do_cut_clients(self, request: Mapping[str, Any]) -> None:
        firewall.cut_clients(
            self._state.name, request["peers"], request["requests"], request["answers"]
        )

    def do_client_cuts(self, request: Mapping[str, Any]) -> Any:
        return firewall.client_cuts(self._state.name)

    def do_routes(self, request: Mapping[str, Any]) -> Mapping[str, str]:
        """The network device through which each address is reached."""
        found = {}
        for address in request["addresses"]:
            words = _run(["ip", "-o", "route", "get", address]).split()
            found[address] = words[words.index("dev") + 1]
        return found

    def do_shape(self, request: Mapping[str, Any]) -> None:
        """Put queues of ours on a device, or take them away; somebody else's queues stay."""
        device = request["device"]
        if device not in self._state.devices:
            words = _run(["tc", "qdisc", "show", "dev", device, "root"]).split()
            kind = words[1] if len(words) > 1 else "noqueue"
            if kind not in OWN_QUEUES:
                raise NodeError(f"{device} has a queue of its own ({kind}), which would be lost")
            self._state.devices = [*self._state.devices, device]
            write_state(self._state)
        _run(["sh", "-c", request["script"]])
        if not request["shaped"]:
            self._state.devices = [each for each in self._state.devices if each != device]
            write_state(self._state)

    async def do_packets(self, request: Mapping[str, Any]) -> None:
        await self._packets.shape(request)

    async def do_packet_links(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._packets.links(request["node"])

    def do_expect(self, request: Mapping[str, Any]) -> int:
        return self._measuring.expect(request["token"], request["address"], request["count"])

    async def do_send_numbered(self, request: Mapping[str, Any]) -> None:
        await self._measuring.send(
            request["token"], request["address"], request["port"], request["count"]
        )

    async def do_seen(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._measuring.seen(request["token"], request["hold_s"])

    def do_run_script(self, request: Mapping[str, Any]) -> str:
        return _run(["sh", "-c", request["script"]])

    def do_listen(self, request: Mapping[str, Any]) -> int:
        return self._probes.listen(request["token"], request["address"])

    def do_send(self, request: Mapping[str, Any]) -> None:
        self._probes.send(request["token"], request["address"], request["port"], request["for_s"])

    def do_hush(self, request: Mapping[str, Any]) -> None:
        self._probes.hush(request["token"])

    async def do_heard(self, request: Mapping[str, Any]) -> bool:
        return await self._probes.heard(request["token"], request["timeout_s"])


def _run(command: list[str]) -> str:
    """Raises NodeError with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S)
    if done.returncode != 0:
        raise NodeError(f"{command[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
