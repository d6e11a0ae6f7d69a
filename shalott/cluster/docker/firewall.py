"""Cutting links: the set of (source, destination) pairs whose packets are dropped, replaced as a
whole.

Two ways, chosen by ``choose_firewall`` by trying them:

``BridgeFirewall``: one nftables table a run, in the bridge family on the host. Replaced in one
transaction, so a partition of any shape begins and ends at once for all nodes. It needs root on
the engine's own host and nothing inside the nodes, and it outlives their restarts.

``ChainFirewall``: an iptables chain of our own (SHALOTT) in every destination's INPUT, through
the container. One transaction a node, so a partition takes effect node by node, and a node that
is started again is without its chain for a moment until it is put back.

Only the first one can cut off clients: it drops what runs between the host and single ports of
nodes. Established connections hang and resume in both; nothing but our own table or chain is ever
touched.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from shalott.cluster.docker.namespaces import datagram_arrives, has_program, is_root, run_program
from shalott.cluster.nodes import Link
from shalott.core.errors import HarnessError

PROBE_PORT = 9  # the discard service: nothing of a broker's is ever sent there
CHAIN = "SHALOTT"

RunInNode = Callable[[str, str], Awaitable[str]]  # (node, shell script) -> output


class ClientDrops(msgspec.Struct, frozen=True, kw_only=True):
    """What is dropped between the host and nodes: (address, port) of what is sent to nodes, and of
    what comes from them. Sorted."""

    requests: tuple[tuple[str, int], ...] = ()
    answers: tuple[tuple[str, int], ...] = ()


NO_CLIENT_DROPS = ClientDrops()


class Firewall(Protocol):
    async def drop(self, links: Sequence[Link], clients: ClientDrops = NO_CLIENT_DROPS) -> None:
        """From now on, drop what these links carry, and this between the host and nodes, and
        nothing else. Raises HarnessError."""
        ...

    async def client_drops(self) -> ClientDrops:
        """What is dropped between the host and nodes, as the kernel says."""
        ...

    async def node_started(self, node: str) -> None:
        """A node has a fresh network namespace."""
        ...

    async def remove(self) -> None:
        """Leave nothing behind. Safe to call twice."""
        ...

    def describe(self) -> str: ...


class BridgeFirewall:
    """One table of the bridge family."""

    def __init__(self, table: str, addresses: Mapping[str, str]) -> None:
        self._table = table
        self._addresses = addresses

    async def drop(self, links: Sequence[Link], clients: ClientDrops = NO_CLIENT_DROPS) -> None:
        pairs = [(self._addresses[a], self._addresses[b]) for a, b in links]
        await nft("-f", "-", script=_table_script(self._table, pairs, clients))

    async def client_drops(self) -> ClientDrops:
        return ClientDrops(
            requests=await self._listed("requests"), answers=await self._listed("answers")
        )

    async def _listed(self, name: str) -> tuple[tuple[str, int], ...]:
        listed = json.loads(await nft("-j", "list", "set", "bridge", self._table, name))
        (found,) = [item["set"] for item in listed["nftables"] if "set" in item]
        pairs = [element["concat"] for element in found.get("elem", ())]
        return tuple(sorted((str(address), int(port)) for address, port in pairs))

    async def node_started(self, node: str) -> None:
        return

    async def remove(self) -> None:
        await remove_table(self._table)

    def describe(self) -> str:
        return f"nftables on the host, table bridge {self._table}"

    async def sees(self, source_pid: int, destination_pid: int, address: str) -> bool:
        """Whether packets between two nodes really pass through the table: its counter moves."""
        await self.drop(())
        before = await _probe_packets(self._table)
        arrived = await asyncio.to_thread(
            datagram_arrives, source_pid, destination_pid, address, 1000, PROBE_PORT
        )
        return arrived and await _probe_packets(self._table) > before


def _table_script(table: str, pairs: Sequence[tuple[str, str]], clients: ClientDrops) -> str:
    """The table as it shall be, in one transaction. Probe packets are counted, so that ``sees``
    can tell."""
    return f"""table bridge {table}
delete table bridge {table}
table bridge {table} {{
  set cut {{ type ipv4_addr . ipv4_addr; {_elements(pairs)} }}
  set requests {{ type ipv4_addr . inet_service; {_elements(clients.requests)} }}
  set answers {{ type ipv4_addr . inet_service; {_elements(clients.answers)} }}
  chain between {{ type filter hook forward priority 0;
    udp dport {PROBE_PORT} counter; ip saddr . ip daddr @cut counter drop; }}
  chain from_host {{ type filter hook output priority 0; ip saddr . ip daddr @cut counter drop;
    ip daddr . tcp dport @requests counter drop; }}
  chain to_host {{ type filter hook input priority 0; ip saddr . ip daddr @cut counter drop;
    ip saddr . tcp sport @answers counter drop; }}
}}
"""


def _elements(pairs: Sequence[tuple[str, str | int]]) -> str:
    told = ", ".join(f"{first} . {second}" for first, second in pairs)
    return f"elements = {{ {told} }}" if told else ""


async def nft(*arguments: str, script: str = "") -> str:
    """Run nft, with ``script`` as its input. Raises HarnessError if it is refused."""
    done = await run_program("nft", *arguments, script=script)
    if done.exit_code != 0:
        raise HarnessError(f"nft: {done.errors.strip()}")
    return done.output


async def remove_table(table: str) -> None:
    # Naming it first makes the deletion of an absent table succeed.
    await nft("-f", "-", script=f"table bridge {table}\ndelete table bridge {table}\n")


async def list_tables() -> list[str]:
    """Names of all tables of the bridge family; empty where there is no nft or no right to ask."""
    if not (is_root() and has_program("nft")):
        return []
    listed = json.loads(await nft("-j", "list", "tables", "bridge"))
    items = listed.get("nftables", [])
    return [item["table"]["name"] for item in items if "table" in item]


async def _probe_packets(table: str) -> int:
    listed = json.loads(await nft("-j", "list", "chain", "bridge", table, "between"))
    for item in listed["nftables"]:
        for part in item.get("rule", {}).get("expr", []):
            if "counter" in part:
                return int(part["counter"]["packets"])
    raise HarnessError(f"nft: table {table} has lost its counter")


class ChainFirewall:
    """A chain of our own in each destination node."""

    def __init__(self, addresses: Mapping[str, str], run_in_node: RunInNode) -> None:
        self._addresses = addresses
        self._run = run_in_node
        self._links: tuple[Link, ...] = ()

    async def client_drops(self) -> ClientDrops:
        return NO_CLIENT_DROPS

    async def drop(self, links: Sequence[Link], clients: ClientDrops = NO_CLIENT_DROPS) -> None:
        if clients != NO_CLIENT_DROPS:
            raise HarnessError("clients are cut off in the host's bridge, which is out of reach")
        before, self._links = self._links, tuple(links)
        changed = [node for node in self._addresses if _sources(before, node) != self._of(node)]
        await asyncio.gather(*(self._restore(node) for node in changed))

    async def node_started(self, node: str) -> None:
        if self._of(node):
            await self._restore(node)

    async def remove(self) -> None:
        await self.drop(())

    def describe(self) -> str:
        return f"iptables in each node, chain {CHAIN}"

    def _of(self, node: str) -> tuple[str, ...]:
        return _sources(self._links, node)

    async def _restore(self, node: str) -> None:
        rules = "".join(
            f"-A {CHAIN} -s {self._addresses[source]} -j DROP\n" for source in self._of(node)
        )
        await self._run(
            node,
            f"iptables-restore -w -n <<'END' && "
            f"(iptables -w -C INPUT -j {CHAIN} 2>/dev/null || iptables -w -I INPUT -j {CHAIN})\n"
            f"*filter\n:{CHAIN} - [0:0]\n{rules}COMMIT\nEND\n",
        )


def _sources(links: Sequence[Link], node: str) -> tuple[str, ...]:
    return tuple(sorted(source for source, destination in links if destination == node))
