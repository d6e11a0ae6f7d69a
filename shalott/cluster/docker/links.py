"""Links between containers: cut by a firewall, shaped by netem or a packet engine, and measured.

Cuts are made in the host's bridge where its table sees the nodes' packets, else in a chain inside
each node (firewall.py). Shapes are the kernel's where it has netem, and a process of ours serves
the rest (packets.py). All of it lives in the nodes' network namespaces, so a node that starts again
gets everything anew.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from shalott.cluster.capabilities import CLIENT_CUTS, CUTS, Can
from shalott.cluster.cut_counts import LinkCounts
from shalott.cluster.docker.firewall import (
    NO_CLIENT_DROPS,
    BridgeFirewall,
    ChainFirewall,
    ClientDrops,
    Firewall,
)
from shalott.cluster.docker.names import table_name
from shalott.cluster.docker.namespaces import (
    brings,
    can_enter,
    datagram_arrives,
    has_program,
    is_root,
    run_in_namespace,
)
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.docker.packets import PacketShaper, queue_capabilities, shaping_capabilities
from shalott.cluster.docker.probes import datagram_arrives_by_exec, measure
from shalott.cluster.nodes import CLIENTS, HelperEnd, Link, LinkShape, PacketsSeen
from shalott.cluster.packets.shaping import (
    UNSHAPED,
    describe_shaping,
    join_shapes,
    kinds_of_shape,
    listing_script,
    qdisc_script,
    read_shape,
    split_shape,
)
from shalott.cluster.stalls import Stall
from shalott.core.errors import HarnessError

log = logging.getLogger("shalott.cluster.docker")

TOOLS = ("sh", "iptables", "ip", "tc")  # what changes a node's network


class ContainerLinks:
    """See ``Links``. ``seed``: of what becomes of single packets."""

    def __init__(self, run: ContainerNodes, seed: int) -> None:
        self._tc = shaping_capabilities()
        can = self._tc | CUTS
        if is_root() and can_enter(os.getpid()):
            can |= queue_capabilities()
            if has_program("nft"):
                can |= CLIENT_CUTS
        self.capabilities: Can = can
        self.enters = False  # whether the host can enter the containers' namespaces
        self._run = run
        self._addresses: Mapping[str, str] = {}
        self._counts = LinkCounts()
        self._shapes: dict[Link, LinkShape] = {}
        self._packets = PacketShaper(run.owner, run.token, seed, self.run_script, run.pid_of)
        self._firewall: Firewall | None = None
        self._client_drops = NO_CLIENT_DROPS
        self._lock = asyncio.Lock()  # one change of the whole set at a time
        # Awaited before anything is changed in the nodes' own networks.
        self.before_entering: Callable[[], Awaitable[None]] = _go_on

    # -- life
    # ----------------------------------------------------------------------------------------------

    def set_addresses(self, addresses: Mapping[str, str]) -> None:
        """A node's address, which it keeps for the whole run."""
        self._addresses = addresses
        self._packets.set_addresses(addresses)

    async def open(self, pids: Mapping[str, int]) -> None:
        """When all nodes run. ``pids``: their first processes, as the host sees them."""
        self._firewall = await self._choose_firewall(pids)
        log.info("links: %s", self._firewall.describe())

    async def _choose_firewall(self, pids: Mapping[str, int]) -> Firewall:
        """The bridge if its table really sees the nodes' packets, else a chain in each node."""
        self.enters = bool(pids) and can_enter(next(iter(pids.values())))
        if self.enters and is_root() and has_program("nft") and len(pids) > 1:
            bridge = BridgeFirewall(table_name(self._run.token, self._run.owner), self._addresses)
            source, destination = list(pids)[:2]
            try:
                if await bridge.sees(pids[source], pids[destination], self._addresses[destination]):
                    return bridge
                await bridge.remove()
            except HarnessError as error:
                log.info("no cuts on the host's bridge: %s", error)
        return ChainFirewall(self._addresses, self.run_script)

    async def close(self) -> None:
        """Before the containers are removed. What the host's kernel still holds is swept with the
        rest of the run."""
        await self._packets.close()
        self._counts.clear()
        self._shapes.clear()
        self._firewall = None

    async def node_started(self, node: str) -> None:
        """Put everything back that lived in the namespace of its last life, and what goes by
        addresses where these have changed."""
        is_moved = await self._run.readdress()
        if self._firewall is not None:
            if is_moved:
                await self._apply_cuts()
            await self._firewall.node_started(node)
        for source in dict.fromkeys(source for source, _ in self._shapes):
            if is_moved or source == node:
                await self._apply_shapes(source)
        if is_moved:
            await self._packets.apply_again()
        else:
            await self._packets.node_started(node)

    async def heal(self) -> None:
        self._counts.clear()
        self._client_drops = NO_CLIENT_DROPS
        if self._firewall is not None:
            await self._apply_cuts()
        shaped = list(dict.fromkeys(source for source, _ in self._shapes))
        self._shapes.clear()
        await self._packets.clear()
        for node in shaped:
            if await self._run.pid_of(node) is not None:  # it has a network to be mended
                await self._apply_shapes(node)

    # -- cuts
    # ----------------------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link]) -> None:
        self._counts.cut(links)
        if isinstance(self._firewall, ChainFirewall):
            await self.before_entering()
        await self._apply_cuts()

    async def mend(self, links: Sequence[Link]) -> None:
        self._counts.mend(links)
        await self._apply_cuts()

    async def _apply_cuts(self) -> None:
        async with self._lock:
            if self._firewall is None:
                raise HarnessError("links can be cut only while the cluster is up")
            await self._firewall.drop(self._counts.cut_links(), self._client_drops)

    async def set_client_cuts(self, links: Sequence[Link], ports: Sequence[str]) -> None:
        """See ``CutsClients``. Between the host and the nodes, at these ports only."""
        at, nodes = self._addresses, self._run.nodes
        numbers = sorted({self._run.port_at(node, port) for node in nodes for port in ports})
        self._client_drops = ClientDrops(
            requests=_pairs((at[b] for a, b in links if a == CLIENTS), numbers),
            answers=_pairs((at[a] for a, b in links if b == CLIENTS), numbers),
        )
        await self._apply_cuts()

    async def client_cuts(self) -> list[Link]:
        if self._firewall is None:
            raise HarnessError("links can be cut only while the cluster is up")
        drops = await self._firewall.client_drops()
        nodes = {address: node for node, address in self._addresses.items()}
        links = {(CLIENTS, nodes[address]): None for address, _ in drops.requests}
        links |= {(nodes[address], CLIENTS): None for address, _ in drops.answers}
        return sorted(links)

    # -- shapes
    # --------------------------------------------------------------------------------------------

    async def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        by_tc, by_engine = split_shape(shape, self._tc)
        self._check(by_engine)
        if shape != UNSHAPED:
            await self.before_entering()
        link = (source, destination)
        if by_tc == UNSHAPED:
            changed = self._shapes.pop(link, None) is not None
        else:
            changed = self._shapes.get(link) != by_tc
            self._shapes[link] = by_tc
        if changed:
            await self._apply_shapes(source)
        await self._packets.shape(link, by_engine)

    def _check(self, by_engine: LinkShape) -> None:
        for name in kinds_of_shape(by_engine):
            if name not in self.capabilities:
                raise HarnessError(f"this host's kernel lacks {name} for links between containers")
        if by_engine != UNSHAPED and not self.enters:
            raise HarnessError("this host can't enter its containers' network namespaces")

    async def shape_of(self, source: str, destination: str) -> LinkShape:
        """As it is in force: read from the kernel and from the packet engine."""
        listing = await self.run_script(source, listing_script(self._run.device(source)))
        by_tc = read_shape(listing, self._addresses[destination])
        by_engine = (await self._packets.state((source, destination))).shape
        return join_shapes(by_tc, by_engine)

    async def _apply_shapes(self, source: str) -> None:
        shapes = {
            self._addresses[b]: shape for (a, b), shape in self._shapes.items() if a == source
        }
        await self.run_script(source, qdisc_script(shapes, self._run.device(source)))

    # -- proofs
    # --------------------------------------------------------------------------------------------

    async def measure(self, source: str, destination: str, count: int) -> PacketsSeen:
        """Send ``count`` numbered packets, and say what arrived."""
        pids = [await self._run.pid_of(node) for node in (source, destination)]
        if not self.enters or pids[0] is None or pids[1] is None:
            raise HarnessError(f"no packets can be sent from {source} to {destination}")
        shape = await self.shape_of(source, destination)
        address = self._addresses[destination]
        return await asyncio.to_thread(measure, pids[0], pids[1], address, count, shape)

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        pids = await asyncio.gather(self._run.pid_of(source), self._run.pid_of(destination))
        if pids[0] is None or pids[1] is None:
            return False
        address = self._addresses[destination]
        if self.enters:
            return await asyncio.to_thread(datagram_arrives, pids[0], pids[1], address, timeout_ms)
        return await datagram_arrives_by_exec(
            self._run.run_command, source, destination, address, timeout_ms
        )

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        """See ``CarriesTraffic``: the packet engine's, where it is needed."""
        self._packets.tell_stalls(tell)

    def tell_helper_ends(self, tell: Callable[[HelperEnd], None]) -> None:
        """Call this when the packet engine ended by itself."""
        self._packets.engine.on_end = tell

    # -- inside a node's network
    # --------------------------------------------------------------------------

    async def run_script(self, node: str, script: str) -> str:
        """Run a shell script with network tools in a node's network: with the node's own, or with
        the host's where its image has none."""
        pid = await self._run.pid_of(node)
        if pid is None:
            return ""  # no process, no network; ``node_started`` puts everything back
        if self.enters:
            try:
                own_files = brings(pid, TOOLS) and not self._run.others
                return await run_in_namespace(pid, script, own_files=own_files)
            except HarnessError as error:
                if not can_enter(pid):
                    return ""  # it has ended meanwhile
                lacking = [tool for tool in TOOLS if not has_program(tool)]
                if lacking and not brings(pid, TOOLS):
                    raise HarnessError(
                        f"neither the image of {node} nor this host has {' and '.join(lacking)}:"
                        " install the packages iptables and iproute2 in either"
                    ) from error
                raise
        result = await self._run.run_command(node, ["sh", "-c", script])
        if result.exit_code != 0:
            raise HarnessError(f"{node}: {result.output.strip()}")
        return result.output

    # -- what a run says of them
    # ----------------------------------------------------------------------------

    def describe(self) -> Mapping[str, str]:
        """For the report: how links are cut, probed and shaped here."""
        probe = "setns and a datagram" if self.enters else "a datagram sent by exec"
        return {
            "links": self._firewall.describe() if self._firewall else "not booted",
            "probe": f"{probe} from the source's network namespace to the destination's",
            "packets": describe_shaping(self._tc, self.capabilities),
        }


def _pairs(addresses: Iterable[str], ports: Sequence[int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((address, port) for address in addresses for port in ports))


async def _go_on() -> None:
    """Of containers that are the run's own."""
