"""Cuts between clients and nodes: the harness's clients can't use a node that the others reach.

The client's own path, not the nodes': what is dropped is what runs between the harness and the
ports that the workload's clients use. Other ports, such as the management's, go on answering,
unless the workload's clients use that one. Proved by what the cluster says is cut, by a connection
that a client asks for and that is not answered, and by the nodes, which still reach each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from shalott.cluster.nodes import CLIENTS
from shalott.cluster.system import ports_of
from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.cuts import Link
from shalott.nemesis.proofs import Check, Seen, living, reach_check
from shalott.nemesis.record import FaultRecord

CONNECT_TIMEOUT_S = 0.5

LinksOfNode = Callable[[str], tuple[Link, ...]]


def _both_ways(node: str) -> tuple[Link, ...]:
    return (CLIENTS, node), (node, CLIENTS)


def _answers(node: str) -> tuple[Link, ...]:
    return ((node, CLIENTS),)


def _effective(ctx: FaultContext, action: FaultAction) -> list[Check]:
    hit = action.nodes or ()
    others = [node for node in ctx.nodes if node not in hit]
    links = [
        link for node in hit for other in others[:1] for link in ((node, other), (other, node))
    ]
    return [*_healed(ctx, action), *(reach_check(ctx, link) for link in living(ctx, links))]


def _healed(ctx: FaultContext, action: FaultAction) -> list[Check]:
    """The same checks as of a cut: what they expect is what is in force."""
    checks = []
    for node in action.nodes or ():
        listening = ports_of(ctx.system, node)
        ports = [port for port in ctx.client_cuts.ports if port in listening]
        checks += [_cut_check(ctx, node), *(_connect_check(ctx, node, port) for port in ports)]
    return checks


def _cut_check(ctx: FaultContext, node: str) -> Check:
    """What is cut between clients and a node, as the kernel or the simulated network says."""

    def words(links: tuple[Link, ...]) -> str:
        return " ".join(f"{a}->{b}" for a, b in links if node in (a, b))

    async def look() -> Seen:
        return words(await ctx.client_cuts.seen())

    return Check(node, f"client cuts {node}", look, lambda: words(ctx.client_cuts.in_force))


def _connect_check(ctx: FaultContext, node: str, port: str) -> Check:
    """Whether a port that clients use answers where they are."""

    async def look() -> Seen:
        at = ctx.cluster.endpoint(node, port)
        return await is_answered(at.host, at.port)

    def expected() -> Seen:
        return not any(node in link for link in ctx.client_cuts.in_force)

    async def is_moot() -> bool:
        return ctx.processes.wanted(node) != "running" or await ctx.processes.is_gone(node)

    return Check(node, f"connect {node} {port}", look, expected, moot=is_moot)


async def is_answered(host: str, port: int) -> bool:
    """Whether a connection is made in time, or refused: that is an answer, too, of a node on which
    no program listens now, as a backup's does not. What is cut off is dropped without one."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except OSError:  # a timeout is one
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


async def _mend(ctx: FaultContext, action: FaultAction) -> None:
    await ctx.at_once([ctx.client_cuts.mend(action.id)])


def _as_one_way(action: FaultAction) -> Iterator[FaultAction]:
    yield msgspec.structs.replace(action, kind=ONE_WAY.name)


def _cut(name: str, summary: str, links: LinksOfNode, strength: int) -> FaultRecord:
    async def inject(ctx: FaultContext, action: FaultAction) -> None:
        own = [link for node in action.nodes or () for link in links(node)]
        await ctx.at_once([ctx.client_cuts.cut(action.id, own)])

    return FaultRecord(
        name=name,
        summary=summary,
        needs=("cut-clients",),
        inject=inject,
        heal=_mend,
        effective=_effective,
        healed=_healed,
        effects=("cuts-clients",),
        takes="nothing",
        weaker=_as_one_way if len(links("n")) > 1 else lambda action: (),
        strength=strength,
    )


BOTH = _cut("client-cut", "clients and a node no longer reach each other", _both_ways, 32)
ONE_WAY = _cut("client-cut-one-way", "a node hears clients and is not heard by them", _answers, 31)

FAULTS = (BOTH, ONE_WAY)
