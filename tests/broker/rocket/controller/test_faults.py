"""Controllers under drawn faults: killed, out of power, cut off, while brokers die and sets change.

What was answered with success is kept: no two answers tell of one epoch differently, epochs only
grow from one answer to the next, and in the end all controllers hold the last of it. Every fault is
healed in the end, and then the group gets a master.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.controller.client import Master
from tests.world.clock.turns import passes
from tests.world.rocket.controllers import BROKERS, CONTROLLERS, GROUP, World

pytestmark = pytest.mark.unit

STEPS = 14


class Story:
    """What clients were told, in the order in which they were told."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.draws = random.Random(seed)
        self.masters: dict[int, tuple[int | None, str]] = {}  # by master epoch
        self.sets: dict[int, tuple[int, ...]] = {}  # by epoch of the set
        self.newest = (0, 0)
        self.successes = 0

    def committed(self, master: Master) -> None:
        """An answer to a request that changed something."""
        self.successes += 1
        assert (master.epoch, master.sync_state_set_epoch) >= self.newest
        self.newest = (master.epoch, master.sync_state_set_epoch)
        self.seen(master)

    def seen(self, master: Master) -> None:
        """Any answer, however stale."""
        ruler = (master.broker_id, master.address)
        assert self.masters.setdefault(master.epoch, ruler) == ruler
        members = master.sync_state_set
        assert self.sets.setdefault(master.sync_state_set_epoch, members) == members

    # -- what brokers do ---------------------------------------------------------------------------

    async def elect(self) -> None:
        broker = self.draws.choice(list(self.world.brokers.values()))
        designate = self.draws.random() < 0.3
        election = await self.world.client.elect_master(
            "c", GROUP, broker.broker_id, designate=designate
        )
        self.committed(election.master)

    async def alter(self) -> None:
        master = await self.world.client.replica_info(GROUP)
        self.seen(master)
        if master.broker_id is None:
            return
        others = [i for i in (1, 2, 3) if i != master.broker_id]
        members = [master.broker_id, *(i for i in others if self.draws.random() < 0.7)]
        changed = await self.world.client.alter_sync_state_set(
            GROUP, master.broker_id, master.epoch, members, master.sync_state_set_epoch
        )
        assert changed.sync_state_set == tuple(sorted(members))
        self.committed(
            Master(
                master.broker_id,
                master.address,
                master.epoch,
                changed.sync_state_set,
                changed.sync_state_set_epoch,
            )
        )

    async def keep_asking(self) -> None:
        while True:
            await passes(self.draws.random() * 0.3)
            ask = self.draws.choice((self.elect, self.alter, self.alter))
            try:
                await ask()
            except BrokerError:
                pass  # refused, or unknown

    # -- what happens to them ----------------------------------------------------------------------

    async def break_something(self) -> None:
        world, draws = self.world, self.draws
        what = draws.choice(("kill", "power", "cut", "cut", "slow broker", "stop broker"))
        if what in ("kill", "power"):
            victim = draws.choice(CONTROLLERS)
            world.kill(victim, power=what == "power")
            await passes(draws.random() * 2)
            await world.boot(victim)
        elif what == "cut":
            side = draws.sample((*CONTROLLERS, *BROKERS[:3]), draws.randint(1, 3))
            world.isolate(*side)
            await passes(draws.random() * 3)
            world.mend(*side)
        else:
            broker = draws.choice(list(world.brokers.values()))
            if what == "slow broker":
                broker.pause()
                await passes(draws.random() * 3)
                broker.resume()
            else:
                broker.kill()
                await passes(draws.random() * 2)
                broker.offset = draws.randint(1, 1000)
                world.brokers[broker.name] = broker
                await broker.start()


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(6))
def test_what_was_answered_is_kept(seed: int) -> None:
    world = World(
        seed=seed,
        is_process_read_event=bool(seed % 2),
        scan_inactive_master_interval_ms=1000,
        scan_not_active_broker_interval_ms=500,
    )

    async def main() -> None:
        story = Story(world, seed)
        await world.served()
        for name in BROKERS[:3]:
            await world.broker(name, offset=story.draws.randint(1, 1000))
        asking = asyncio.create_task(story.keep_asking())
        for _ in range(STEPS):
            await story.break_something()
            await passes(story.draws.random())
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await world.agreed()
        assert story.successes > 10
        final = await world.master()
        assert (final.epoch, final.sync_state_set_epoch) >= story.newest
        story.seen(final)
        await world.until(lambda: world.states_of(world.leader).groups[GROUP].sync.master)
        for event in world.events_of("elected"):
            ruler = event.detail["master_id"]
            assert story.masters.setdefault(event.epoch, (ruler, ""))[0] == ruler

    world.run(main)
