"""Links between hosts: cut by the receiving host's firewall, shaped by the sender's kernel where it
has netem and by a packet engine on the receiver where it has not, and measured.

All of it is made by the hosts' agents, which undo it by themselves.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from shalott.cluster.capabilities import WORLDS, Can
from shalott.cluster.cut_counts import LinkCounts
from shalott.cluster.nodes import CLIENTS, Link, LinkShape, PacketsSeen
from shalott.cluster.packets.fates import REORDER_HOLD_MS
from shalott.cluster.packets.shaping import (
    UNSHAPED,
    LinkState,
    Source,
    join_shapes,
    kinds_of_shape,
    listing_script,
    qdisc_script,
    read_shape,
    split_shape,
)
from shalott.cluster.ssh.agent_link import AgentEvent
from shalott.cluster.ssh.facts import HostFacts
from shalott.cluster.ssh.nodes import HostNodes
from shalott.cluster.stalls import Stall
from shalott.core.errors import BootFailed, HarnessError

log = logging.getLogger("shalott.cluster.ssh")

PROBE_FIRST_MS = 3000  # at boot, when no address is resolved yet
ANSWER_S = 5.0  # of the sender of a probe, beyond the probe's own time


class HostShapes:
    """The shapes in force: by the senders' kernels where these have netem, else by the receivers'
    packet engines. ``seed``: of what becomes of single packets."""

    def __init__(self, run: HostNodes, seed: int) -> None:
        self._run = run
        self._addresses = run.addresses
        self._agent = run.agent
        self._facts = run.facts
        self._seed = seed
        self._devices: dict[Link, str] = {}
        self._shapes: dict[Link, LinkShape] = {}  # by the sender's kernel
        self._queued: dict[Link, LinkShape] = {}  # by the receiver's engine

    def forget(self) -> None:
        for each in (self._devices, self._shapes, self._queued):
            each.clear()

    async def heal(self) -> None:
        shaped = dict.fromkeys((a, self._devices[a, b]) for a, b in self._shapes)
        queued = dict.fromkeys(b for _, b in self._queued)
        self._shapes.clear()
        self._queued.clear()
        await asyncio.gather(
            *(self._apply_shapes(*each) for each in shaped),
            *(self._apply_queue(node) for node in queued),
        )

    async def set(self, link: Link, shape: LinkShape) -> None:
        source, destination = link
        by_tc, by_engine = split_shape(shape, frozenset(self._facts[source].shapes))
        if self._put(self._shapes, link, by_tc):
            await self._apply_shapes(source, await self._device(source, destination))
        if self._put(self._queued, link, by_engine):
            await self._apply_queue(destination)

    @staticmethod
    def _put(shapes: dict[Link, LinkShape], link: Link, shape: LinkShape) -> bool:
        """Whether there is anything to be done."""
        if shape == UNSHAPED:
            return shapes.pop(link, None) is not None
        shapes[link] = shape
        return True

    async def read(self, source: str, destination: str) -> LinkShape:
        """What is in force, from the sender's kernel and the receiver's engine."""
        by_tc = UNSHAPED
        if self._facts[source].shapes:
            script = listing_script(await self._device(source, destination))
            listing = await self._agent(source).call("run_script", script=script)
            by_tc = read_shape(listing, self._addresses[destination])
        links = await self._agent(destination).call("packet_links", node=destination)
        by_engine = msgspec.convert(links.get(source, {"shape": {}}), LinkState).shape
        return join_shapes(by_tc, by_engine)

    async def counts(self, source: str, destination: str) -> Mapping[str, int]:
        """What the packets of a link met since its shape was set, if an engine makes it."""
        links = await self._agent(destination).call("packet_links", node=destination)
        return msgspec.convert(links.get(source, {"shape": {}}), LinkState).counts

    async def _apply_shapes(self, source: str, device: str) -> None:
        shapes = {
            self._addresses[b]: shape
            for (a, b), shape in self._shapes.items()
            if a == source and self._devices[a, b] == device
        }
        script = qdisc_script(shapes, device)
        await self._agent(source).call("shape", device=device, script=script, shaped=bool(shapes))

    async def _apply_queue(self, node: str) -> None:
        sources = {
            self._addresses[a]: msgspec.to_builtins(Source(a, shape))
            for (a, b), shape in self._queued.items()
            if b == node
        }
        way = self._facts[node].queue
        await self._agent(node).call(
            "packets", node=node, sources=sources, way=way, seed=self._seed
        )

    async def _device(self, source: str, destination: str) -> str:
        if (source, destination) not in self._devices:
            address = self._addresses[destination]
            found = await self._agent(source).call("routes", addresses=[address])
            self._devices[source, destination] = found[address]
        return self._devices[source, destination]


class HostLinks:
    """See ``Links``. ``seed``: of what becomes of single packets."""

    def __init__(self, run: HostNodes, capabilities: Can, seed: int) -> None:
        self.capabilities = capabilities & WORLDS["ssh"]["links"]
        self._run = run
        self._nodes = run.nodes
        self._addresses = run.addresses
        self._agent = run.agent
        self._facts = run.facts
        self._is_open = False
        self._counts = LinkCounts()
        self._dropped: dict[str, tuple[str, ...]] = {}  # by destination, as its firewall has it
        self._lock = asyncio.Lock()  # one change of the whole set at a time
        self.shapes = HostShapes(run, seed)
        self._tell: Callable[[Stall], None] = _log_stall

    def open(self) -> None:
        """Every host is prepared."""
        self._is_open = True

    async def close(self) -> None:
        """The agents undo what there is."""
        self._is_open = False
        self._dropped.clear()
        self.shapes.forget()
        self._counts.clear()

    async def heal(self) -> None:
        self._counts.clear()
        if self._is_open:
            await self._apply_cuts()
        async with self._lock:
            await self.shapes.heal()
        if "cut-clients" in self.capabilities and self._is_open:
            await self.set_client_cuts((), ())

    # -- cuts
    # ----------------------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link]) -> None:
        self._counts.cut(links)
        await self._apply_cuts()

    async def mend(self, links: Sequence[Link]) -> None:
        self._counts.mend(links)
        await self._apply_cuts()

    async def _apply_cuts(self) -> None:
        async with self._lock:
            if not self._is_open:
                raise HarnessError("links can be cut only while the cluster is up")
            wanted = {node: self._sources(node) for node in self._nodes}
            changed = [n for n in self._nodes if wanted[n] != self._dropped.get(n, ())]
            await asyncio.gather(*(self._drop(node, wanted[node]) for node in changed))

    async def _drop(self, node: str, sources: tuple[str, ...]) -> None:
        self._dropped[node] = ("unknown",)  # until the host says that it is done
        await self._agent(node).call("drop", sources=list(sources))
        self._dropped[node] = sources

    def _sources(self, node: str) -> tuple[str, ...]:
        links = self._counts.cut_links()
        return tuple(sorted(self._addresses[a] for a, b in links if b == node))

    async def set_client_cuts(self, links: Sequence[Link], ports: Sequence[str]) -> None:
        """See ``CutsClients``. At the node's host, of every address that is no node's and not the
        host's own."""
        numbers = [self._run.ports[port] for port in ports]
        async with self._lock:
            nodes = self._nodes if self._is_open else ()
            await asyncio.gather(*(self._cut_clients(n, links, numbers) for n in nodes))

    async def _cut_clients(self, node: str, links: Sequence[Link], ports: Sequence[int]) -> None:
        peers = [address for name, address in self._addresses.items() if name != node]
        await self._agent(node).call(
            "cut_clients",
            peers=peers,
            requests=list(ports) if (CLIENTS, node) in links else [],
            answers=list(ports) if (node, CLIENTS) in links else [],
        )

    async def client_cuts(self) -> list[Link]:
        found: list[Link] = []
        for node in self._nodes if self._is_open else ():
            requests, answers = await self._agent(node).call("client_cuts")
            found += [(CLIENTS, node)] if requests else []
            found += [(node, CLIENTS)] if answers else []
        return sorted(found)

    # -- shapes
    # --------------------------------------------------------------------------------------------

    async def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        """One direction is so from now on, all of it. Raises HarnessError."""
        for name in kinds_of_shape(shape):
            if name not in self.capabilities:
                raise HarnessError(f"the hosts' kernels lack {name} for links between nodes")
        if ":" in self._addresses[destination] + self._addresses[source]:
            raise HarnessError("links are shaped between addresses of IPv4 only")
        async with self._lock:
            await self.shapes.set((source, destination), shape)

    async def shape_of(self, source: str, destination: str) -> LinkShape:
        """As it is in force: read from the sender's kernel and from the receiver's engine."""
        return await self.shapes.read(source, destination)

    # -- proofs
    # --------------------------------------------------------------------------------------------

    async def measure(self, source: str, destination: str, count: int) -> PacketsSeen:
        """Send ``count`` numbered packets, and say what arrived. Raises HarnessError."""
        shape = await self.shape_of(source, destination)
        token, address = secrets.token_hex(8), self._addresses[destination]
        port = await self._agent(destination).call(
            "expect", token=token, address=address, count=count
        )
        await self._agent(source).call(
            "send_numbered", token=token, address=address, port=port, count=count
        )
        hold_s = (shape.delay_ms + shape.jitter_ms + REORDER_HOLD_MS) / 1000
        seen = await self._agent(destination).call("seen", token=token, hold_s=hold_s)
        return msgspec.convert(seen, PacketsSeen)

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        states = await asyncio.gather(
            *(self._agent(node).call("status") for node in (source, destination))
        )
        if any(status.get("pid") is None for status in states):
            return False
        return await self.datagram(source, destination, timeout_ms)

    async def datagram(self, source: str, destination: str, timeout_ms: int) -> bool:
        """Whether a datagram passes from host to host."""
        token, address = secrets.token_hex(8), self._addresses[destination]
        timeout_s = timeout_ms / 1000
        port = await self._agent(destination).call("listen", token=token, address=address)
        sending = self._agent(source).call(
            "send", token=token, address=address, port=port, for_s=timeout_s + ANSWER_S
        )
        hearing = self._agent(destination).call("heard", token=token, timeout_s=timeout_s)
        _, heard = await asyncio.gather(sending, hearing)
        await self._agent(source).call("hush", token=token)
        return bool(heard)

    async def check(self) -> None:
        """Every probe must arrive before a fault is made. Raises BootFailed."""
        if "cut" not in self.capabilities:
            return
        pairs = [(a, b) for a in self._nodes for b in self._nodes if a != b]
        arrived = await asyncio.gather(*(self.datagram(a, b, PROBE_FIRST_MS) for a, b in pairs))
        silent = [f"{a} to {b}" for (a, b), came in zip(pairs, arrived, strict=True) if not came]
        if silent:
            raise BootFailed(
                f"datagrams don't pass from {', '.join(silent)}: the hosts' own firewalls must let"
                " UDP pass between them at all ports, or no fault of a link can be proved"
            )

    # -- engines that stand still
    # ------------------------------------------------------------------------

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        """See ``CarriesTraffic``: of the hosts' packet engines."""
        self._tell = tell

    def stalled(self, event: AgentEvent) -> None:
        """An agent tells of it when it is over."""
        now_s = time.monotonic()
        self._tell(Stall("relays", now_s - event["stall_s"], now_s))

    def describe(self) -> Mapping[str, str]:
        """For the report."""
        facts = list(self._facts.values())
        firewall = "nftables, a table of the run's own" if _all_nft(facts) else "iptables"
        return {
            "links": f"{firewall}, on the receiving host",
            "probe": "a datagram from host to host",
            "packets": _described(facts),
        }


def _all_nft(facts: Sequence[HostFacts]) -> bool:
    return all(each.nft for each in facts)


def _described(facts: Sequence[HostFacts]) -> str:
    if facts and all("delay" in each.shapes for each in facts):
        return "netem on the sending host"
    if facts and all(each.queue for each in facts):
        return "a packet queue on the receiving host, where the sender's kernel has no netem"
    return (
        "throttled at most" if all("throttle" in each.shapes for each in facts) else "as they are"
    )


def _log_stall(stall: Stall) -> None:
    log.warning("a host's packet engine did not run for %.2f s", stall.end_s - stall.begin_s)
