"""The same exploration as test_quorum_model.py, in which nodes are replaced by empty ones as well.

A node of a Raft group that forgets its log and its vote may vote twice and undo what it was counted
for. Here it is forgotten by the tables first, in an entry that a majority holds without it, and let
in again before it starts (broker/rabbit/metadata/membership.py): then nothing may be lost. Planted:
a node that gets an empty disk and does not say so, which the same seeds must find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shalott.broker.base.errors import MetadataUnavailable
from shalott.broker.rabbit.metadata import membership
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from tests.broker.rabbit.metadata.test_quorum_model import Exploration
from tests.world.clock.turns import passes
from tests.world.rabbit.quorum import Life

pytestmark = pytest.mark.explore

ASK_S = 1.5
SEEDS = range(1, 13)
PLANTED_SEEDS = range(1, 17)


class Replacing(Exploration):
    """``tells``: whether the others are told of a node that comes back empty."""

    def __init__(self, loop: SimLoop, seed: int, *, tells: bool = True) -> None:
        super().__init__(loop, seed, ())
        self.tells = tells
        self.replaced = 0
        self.under_way: dict[str, asyncio.Task[None]] = {}

    def step(self) -> None:
        awake = [node for node, life in self.world.lives.items() if life.is_awake]
        if len(awake) == len(self.world.nodes) and self.rng.below(3) == 0:
            node = self.leader() if self.rng.below(2) else None
            node = node or self.rng.choice(awake)
            self.world.kill(node, is_power=False)
            self.under_way[node] = asyncio.create_task(self.replace(node))
        elif not self.under_way:
            super().step()
        else:
            self.start_others()
        self.under_way = {n: task for n, task in self.under_way.items() if not task.done()}

    def start_others(self) -> None:
        """A disk may have ended a node meanwhile, and without a majority no node is forgotten."""
        for node in self.world.nodes:
            if node not in self.world.lives and node not in self.under_way:
                self.start(node)

    async def replace(self, node: str) -> None:
        """It is started again at once, empty if that is safe."""
        if not self.tells:
            self.world.disks[node].replace()
        elif await self.ask(lambda tx: membership.forget(tx, node)):
            self.world.disks[node].replace()
            self.replaced += 1
        await self.let_in(node)
        self.start(node)

    async def let_in(self, node: str) -> None:
        """As long as it takes: of a request without an answer it is unknown whether it was done."""
        is_in = not self.tells
        while not is_in:
            await passes(0.05)
            is_in = await self.ask(lambda tx: membership.admit(tx, node))

    async def ask(self, body: Callable[[Transaction], Any]) -> bool:
        """Whether a node that runs has answered that it is done."""
        lives = [life for life in self.world.lives.values() if life.server.phase == "running"]
        if not lives:
            return False
        life = self.rng.choice(lives)
        asking = self.loop.create_task(self._transact(life, body), context=life.process.context)
        done, _ = await asyncio.wait({asking}, timeout=ASK_S)
        return bool(done) and asking.result()

    async def _transact(self, life: Life, body: Callable[[Transaction], Any]) -> bool:
        try:
            await life.metadata.transact(body, confirmed=True, timeout_ms=ASK_S * 500)
        except MetadataUnavailable:
            return False
        return True

    async def mended(self) -> None:
        self.world.heal()
        for disk in self.world.disks.values():
            disk.dies = None
        self.start_others()
        for task in self.under_way.values():
            await task
        await super().mended()


def explore(seed: int, *, tells: bool = True) -> Replacing:
    loop = SimLoop()
    exploration = Replacing(loop, seed, tells=tells)
    loop.run(exploration.run(), SimProcess("world"))
    return exploration


def test_nothing_is_lost_when_nodes_are_forgotten_and_come_back_empty() -> None:
    replaced = 0
    for seed in SEEDS:
        exploration = explore(seed)
        assert exploration.world.ledger.broken == [], seed
        replaced += exploration.replaced
    assert replaced > len(SEEDS)


def test_empty_nodes_that_nobody_was_told_of_break_what_is_promised() -> None:
    assert any(explore(seed, tells=False).world.ledger.broken for seed in PLANTED_SEEDS)
