"""defragment: an operator who has members defragment their files, again and again while it lasts.

A member serves nobody meanwhile, and goes on as soon as its file is written anew.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, runtime_checkable

import shalott.api as api

AGAIN_MS = 20


@runtime_checkable
class Defragments(Protocol):
    """A System whose members can be asked to write their files anew."""

    async def defragment(self, cluster: api.Cluster, node: str) -> None: ...


async def _begin(ctx: api.FaultContext, action: api.FaultAction) -> None:
    done = dict.fromkeys(action.nodes or (), 0)
    silent: set[str] = set()  # that did not answer when they were asked last
    system = ctx.system
    assert isinstance(system, Defragments)

    async def ask(node: str) -> None:
        while True:
            try:
                await system.defragment(ctx.cluster, node)
                done[node] += 1
                silent.discard(node)
            except (api.Indefinite, api.Unreachable):
                silent.add(node)
            except api.Definite:
                silent.discard(node)  # it refuses
            await asyncio.sleep(AGAIN_MS / 1000)

    ctx.told["defragmented"] = ctx.left["done"] = done
    ctx.left["silent"] = silent
    ctx.left["asking"] = [asyncio.ensure_future(ask(node)) for node in action.nodes or ()]


async def _end(ctx: api.FaultContext, action: api.FaultAction) -> None:
    asking = ctx.left.get("asking", ())
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


def _it_was_done(ctx: api.FaultContext, action: api.FaultAction) -> list[api.Check]:
    def check(node: str) -> api.Check:
        async def look() -> bool:
            return bool(ctx.left["done"][node])

        async def moot() -> bool:
            return ctx.processes.state(node) != "running" or node in ctx.left["silent"]

        return api.Check(node, "defragmented", look, lambda: True, moot=moot)

    return [check(node) for node in action.nodes or ()]


def _it_is_over(ctx: api.FaultContext, action: api.FaultAction) -> list[api.Check]:
    async def look() -> bool:
        return all(each.done() for each in ctx.left.get("asking", ()))

    return [api.Check(node, "asked no more", look, lambda: True) for node in action.nodes or ()]


FAULT = api.FaultRecord(
    name="defragment",
    summary="an operator has a member defragment its file, again and again",
    asks=(Defragments,),
    inject=_begin,
    heal=_end,
    effective=_it_was_done,
    healed=_it_is_over,
    takes="contact",
    strength=20,
)
