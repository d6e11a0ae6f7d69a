"""The packet engine: stands in for netem on machines whose kernel has none.

A rule where each shaped node receives gives packets of named senders to a queue, and this says when
each of them goes on, whether it does, and what it looks like then (fates.py). It runs as a process
of its own, so that a harness or an agent that is busy is no slow network, and it ends with its
standard input; then every packet passes, but those that it holds. Orders and answers are
messages.py's, read and written without a library: it runs on hosts too (Python 3.9).
"""

from __future__ import annotations

import ctypes
import heapq
import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from shalott.cluster.packets.fates import LinkFates, PacketShape, Shape, damage
from shalott.cluster.packets.queue import Packet, PacketQueue
from shalott.cluster.precedence import STALL_S, TICK_S, go_first_or_be_less_nice

PR_SET_PDEATHSIG = 1
READ_BYTES = 1 << 16

OpenQueue = Callable[[int], PacketQueue]  # in the network of a process; raises OSError


@dataclass
class Node:
    """A node's queue, and the links to it by the sender's address."""

    pid: int
    queue: PacketQueue
    links: dict[str, tuple[str, LinkFates]] = field(default_factory=dict)
    is_open: bool = True


class Engine:
    """Serves queues until its orders end. ``out`` is a file descriptor for the answers."""

    def __init__(self, seed: int, out: int, open_queue: OpenQueue) -> None:
        self._seed = seed
        self._out = out
        self._open_queue = open_queue
        self._nodes: dict[str, Node] = {}
        self._links: dict[str, LinkFates] = {}  # by name: they go on where they were
        # (when, number, node, packet, data, whether it is doubled)
        self._held: list[tuple[int, int, Node, int, bytes | None, bytes | None]] = []
        self._numbers = 0

    # -- orders

    def carry_out(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """``messages.Order`` and ``Answer``, as plain data."""
        name = order["node"]
        try:
            if order["do"] == "shape":
                self._shape(name, order.get("pid", 0), order.get("sources", {}))
        except OSError as error:
            return {"number": order["number"], "error": f"{name}: {error}"}
        node = self._nodes.get(name)
        states = {
            source: {"shape": _as_data(fates.shape), "counts": asdict(fates.counts)}
            for source, fates in (node.links.values() if node else ())
        }
        return {"number": order["number"], "links": states}

    def _shape(self, name: str, pid: int, sources: Mapping[str, Mapping[str, Any]]) -> None:
        node = self._nodes.get(name)
        if node is not None and node.pid != pid:
            self._close(name, node)  # it has started anew, in another namespace
            node = None
        if not sources:
            if node is not None:
                self._close(name, node)
            return
        if node is None:
            node = self._nodes[name] = Node(pid, self._open_queue(pid))
        links = {}
        for address, source in sources.items():
            link = f"{source['name']}->{name}"
            fates = self._links.setdefault(link, LinkFates(self._seed, link))
            shape = PacketShape(**source["shape"])
            if fates.shape != shape:
                fates.set_shape(shape)
            links[address] = source["name"], fates
        node.links = links
        node.queue.copy(everything=any(fates.needs_payload for _, fates in links.values()))

    def _close(self, name: str, node: Node) -> None:
        """Let go on what is held."""
        for _, _, other, packet, data, _ in self._held:
            if other is node:
                node.queue.accept(packet, data)
        self._held = [entry for entry in self._held if entry[2] is not node]
        heapq.heapify(self._held)
        node.is_open = False
        node.queue.close()
        del self._nodes[name]

    # -- packets

    def take(self, node: Node) -> None:
        """Decide on the packets that wait at a node."""
        for packet in node.queue.packets():
            link = node.links.get(packet.source) if len(packet.data) >= 20 else None
            if link is None:
                node.queue.accept(packet.id)
            else:
                self._decide(node, packet, link[1])

    def _decide(self, node: Node, packet: Packet, fates: LinkFates) -> None:
        now_ns = time.monotonic_ns()
        fate = fates.decide(now_ns, packet.size)
        if fate.is_lost:
            node.queue.drop(packet.id)
            return
        data = damage(packet.data, fate.damaged) if fate.damaged is not None else None
        copy = packet.data if fate.is_doubled else None
        if fate.at_ns <= now_ns:
            self._go_on(node, packet.id, data, copy)
        else:
            self._numbers += 1
            held = (fate.at_ns, self._numbers, node, packet.id, data, copy)
            heapq.heappush(self._held, held)

    def _go_on(self, node: Node, packet: int, data: bytes | None, copy: bytes | None) -> None:
        node.queue.accept(packet, data)
        if copy is not None:
            node.queue.inject(copy)

    def release(self) -> float:
        """Let go on what is due; seconds until the next is."""
        while self._held:
            left_ns = self._held[0][0] - time.monotonic_ns()
            if left_ns > 0:
                return left_ns / 1e9
            _, _, node, packet, data, copy = heapq.heappop(self._held)
            self._go_on(node, packet, data, copy)
        return TICK_S

    # -- the loop

    def serve(self, orders: int) -> None:
        """Until the end of ``orders``, a file descriptor."""
        buffer = b""
        while True:
            wait_s = min(self.release(), TICK_S)
            before_s = time.monotonic()
            # select and no epoll: that rounds up to milliseconds.
            sockets = {node.queue.socket.fileno(): node for node in self._nodes.values()}
            ready, _, _ = select.select([orders, *sockets], [], [], wait_s)
            late_s = time.monotonic() - before_s - wait_s
            if late_s > STALL_S:
                self._say({"stall": (before_s + wait_s, before_s + wait_s + late_s)})
            for descriptor in ready:
                if descriptor in sockets:
                    self.take(sockets[descriptor])
            if orders in ready:
                data = os.read(orders, READ_BYTES)
                if not data:
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._say(self.carry_out(json.loads(line)))

    def _say(self, answer: Mapping[str, object]) -> None:
        line = json.dumps(answer).encode() + b"\n"
        while line:
            line = line[os.write(self._out, line) :]


def _as_data(shape: Shape) -> Mapping[str, object]:
    return {name: getattr(shape, name) for name in PacketShape.__dataclass_fields__}


def serve(seed: int, orders: int, out: int, open_queue: OpenQueue) -> None:
    """The process: it ends with its orders, and at the latest with the process that began it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    go_first_or_be_less_nice()  # a busy machine shall not be a slow network
    Engine(seed, out, open_queue).serve(orders)
