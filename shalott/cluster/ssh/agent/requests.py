"""What the harness may ask an agent for: each request is a method ``do_...`` of one of these.

A method is given the request's JSON object, and answers with what JSON can hold.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from shalott.cluster.data_files import cut_file, find_files, flip_bits, leave_file, read_places
from shalott.cluster.ssh.agent import disk, firewall
from shalott.cluster.ssh.agent.agent_node import Node, NodeError
from shalott.cluster.ssh.agent.clocks import NodeClock
from shalott.cluster.ssh.agent.host_clock import HOST_CLOCK
from shalott.cluster.ssh.agent.packets import Packets
from shalott.cluster.ssh.agent.probes import Measuring, Probes
from shalott.cluster.ssh.agent.resources import Resources
from shalott.cluster.ssh.agent.state import Request, State, write_state

T = TypeVar("T")

SCRIPT_TIMEOUT_S = 20
# Queues that the kernel puts in place by itself: they come back when ours goes.
OWN_QUEUES = ("noqueue", "pfifo_fast", "pfifo", "fq_codel", "fq", "mq")


class NodeRequests:
    """The node's processes and files."""

    def __init__(self, state: State, node: Node, resources: Resources) -> None:
        self._state = state
        self._node = node
        self._resources = resources
        self._is_dark = False
        self._bringing: asyncio.Task[None] | None = None
        node.on_start = resources.starting
        node.on_started = self._has_started

    def _has_started(self) -> None:
        """Also when it started by itself: it lacks what it lacked."""
        self._bringing = asyncio.get_event_loop().create_task(self._resources.started())

    def do_prepare(self, request: Request) -> Mapping[str, object]:
        prepared = self._node.prepare(request)
        if request["resources"]:
            self._resources.prepare(request["small_tmp"])
        return prepared

    async def do_darken(self, request: Request) -> None:
        """End the node as a loss of power does: no peer hears of it."""
        firewall.silence(self._state.name, request["peers"], request["ports"])
        self._is_dark = True
        await self._node.kill()

    async def do_start(self, request: Request) -> None:
        if self._is_dark:
            firewall.end_silence(self._state.name)
            self._is_dark = False
        self._node.start()
        if self._bringing is not None:
            await self._bringing

    async def do_stop(self, request: Request) -> None:
        await self._resources.stopping()
        await self._node.stop(request["timeout_s"])

    async def do_kill(self, request: Request) -> None:
        await self._node.kill()

    async def do_pause(self, request: Request) -> None:
        await self._node.pause()

    def do_resume(self, request: Request) -> None:
        self._node.resume()
        self._resources.stop_again()

    def do_wipe(self, request: Request) -> None:
        self._node.wipe()

    def do_status(self, request: Request) -> Mapping[str, object]:
        return self._node.status()

    def do_output(self, request: Request) -> str:
        return self._node.output(request["lines"])

    async def do_command(self, request: Request) -> Mapping[str, object]:
        return await self._node.run_command(request["command"], request["timeout_s"])


class FileRequests:
    """The node's data files, changed behind its back. What is read is told in hexadecimal."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def do_find(self, request: Request) -> Mapping[str, int]:
        spared: Sequence[str] = request["spared"]
        return await self._in_thread(lambda root: find_files(root, request["pattern"], spared))

    async def do_read_places(self, request: Request) -> Sequence[str]:
        path, places = request["path"], request["places"]
        found = await self._in_thread(lambda root: read_places(root, path, places))
        return [each.hex() for each in found]

    async def do_flip_bits(self, request: Request) -> Sequence[Sequence[int]]:
        path, places = request["path"], request["places"]
        return await self._in_thread(lambda root: flip_bits(root, path, places))

    async def do_leave_file(self, request: Request) -> None:
        path, data = request["path"], bytes.fromhex(request["data"])
        await self._in_thread(lambda root: leave_file(root, path, data))

    async def do_cut_file(self, request: Request) -> None:
        path, size = request["path"], request["size"]
        await self._in_thread(lambda root: cut_file(root, path, size))

    async def _in_thread(self, work: Callable[[Path], T]) -> T:
        loop = asyncio.get_event_loop()
        try:
            return await loop.run_in_executor(None, work, self._node.data)
        except OSError as error:
            raise NodeError(f"a file can't be changed: {error}") from error


class MachineRequests:
    """The node's clock, disk, and what its machine has too little of."""

    def __init__(self, state: State, node: Node, resources: Resources) -> None:
        self._state = state
        self._node = node
        self._resources = resources
        self._clock = NodeClock(state, node)

    def close(self) -> None:
        self._clock.close()

    async def do_shortage(self, request: Request) -> None:
        await self._resources.set(request["shortage"])
        if self._node.is_paused:
            await self._node.pause()  # what stood still was let run

    async def do_read_shortage(self, request: Request) -> Mapping[str, object]:
        return await self._resources.seen()

    def do_clock(self, request: Request) -> None:
        self._clock.set(request)

    def do_clocks(self, request: Request) -> Sequence[int]:
        """The host's monotonic clock and its wall clock, at one moment."""
        monotonic, _, wall = HOST_CLOCK.read()
        return monotonic, wall

    async def do_read_clock(self, request: Request) -> float:
        return await self._clock.offset_ms(request["command"])

    async def do_mount(self, request: Request) -> None:
        server = await disk.mount(self._state, request["program"], request["options"])
        self._node.helpers[server] = "file system"

    async def do_disk(self, request: Request) -> str:
        return await disk.ask(self._state, request["line"])


class LinkRequests:
    """The links to the node."""

    def __init__(self, state: State, packets: Packets) -> None:
        self._state = state
        self._packets = packets

    def do_drop(self, request: Request) -> None:
        firewall.drop(self._state.name, request["sources"])

    def do_cut_clients(self, request: Request) -> None:
        firewall.cut_clients(
            self._state.name, request["peers"], request["requests"], request["answers"]
        )

    def do_client_cuts(self, request: Request) -> object:
        return firewall.client_cuts(self._state.name)

    def do_routes(self, request: Request) -> Mapping[str, str]:
        """The network device through which each address is reached."""
        found = {}
        for address in request["addresses"]:
            words = _run(["ip", "-o", "route", "get", address]).split()
            found[address] = words[words.index("dev") + 1]
        return found

    def do_shape(self, request: Request) -> None:
        """Put queues of ours on a device, or take them away; other programs' queues stay."""
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

    async def do_packets(self, request: Request) -> None:
        await self._packets.shape(request)

    async def do_packet_links(self, request: Request) -> Mapping[str, object]:
        return await self._packets.links(request["node"])

    def do_run_script(self, request: Request) -> str:
        return _run(["sh", "-c", request["script"]])


class ProbeRequests:
    """Datagrams that are sent and heard to see what links do."""

    def __init__(self) -> None:
        self._probes = Probes()
        self._measuring = Measuring()

    def do_expect(self, request: Request) -> int:
        return self._measuring.expect(request["token"], request["address"], request["count"])

    async def do_send_numbered(self, request: Request) -> None:
        await self._measuring.send(
            request["token"], request["address"], request["port"], request["count"]
        )

    async def do_seen(self, request: Request) -> Mapping[str, object]:
        return await self._measuring.seen(request["token"], request["hold_s"])

    def do_listen(self, request: Request) -> int:
        return self._probes.listen(request["token"], request["address"])

    def do_send(self, request: Request) -> None:
        self._probes.send(request["token"], request["address"], request["port"], request["for_s"])

    def do_hush(self, request: Request) -> None:
        self._probes.hush(request["token"])

    async def do_heard(self, request: Request) -> bool:
        return await self._probes.heard(request["token"], request["timeout_s"])


def _run(command: list[str]) -> str:
    """Raises NodeError with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S)
    if done.returncode != 0:
        raise NodeError(f"{command[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
