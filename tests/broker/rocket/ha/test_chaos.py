"""Single faults, one after another, under safe settings: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from shalott.broker.rocket.commitlog.replica import PutStatus
from tests.world.clock.turns import passes
from tests.world.rocket.ha import Group

pytestmark = pytest.mark.explore


async def write(group: Group, acknowledged: list[bytes], stop: asyncio.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        body = b"<%08d>" % number + b"." * (number * 37 % 900)
        for name in group.names:
            broker = group[name]
            if broker.replica is None or broker.replica.role != "master":
                continue
            attempt = asyncio.ensure_future(broker.put(body))
            done, _ = await asyncio.wait([attempt], timeout=4)
            if done and attempt.result().status is PutStatus.PUT_OK:
                acknowledged.append(body)
            attempt.cancel()
        await passes(0.05)


async def break_one(group: Group, rng: random.Random) -> None:
    """One node fails in some way, comes back, and is given time to catch up."""
    name = rng.choice(group.names)
    master = next(each for each in group.names if group[each].replica.role == "master")
    slave = next(each for each in group.names if each != master)
    fault = rng.choice(["kill", "power", "cut", "failover"])
    if fault == "cut":
        links = [("a", "b"), ("b", "a")][: rng.choice([1, 2])]
        group.world.network.cut(links)
        await passes(rng.uniform(0.1, 15))
        group.world.network.mend(links)
    elif fault == "failover":
        rng.choice([group[master].kill, group[master].lose_power])()
        await group[slave].here(group[slave].replica.promote())
        await passes(rng.uniform(0.1, 3))
        await group[master].start()
        await group[master].here(group[master].replica.follow(slave))
        master, slave = slave, master
    else:
        (group[name].kill if fault == "kill" else group[name].lose_power)()
        await passes(rng.uniform(0.01, 3))
        await group[name].start()
    await group.connected(slave, master)
    await group.until(lambda: group.slave_at(master, slave) >= group[master].end - 5000)
    await passes(1)


@pytest.mark.parametrize("seed", range(4))
def test_no_single_fault_loses_what_was_acknowledged(seed: int) -> None:
    async def scenario(group: Group) -> None:
        rng = random.Random(seed)
        acknowledged: list[bytes] = []
        await group.start()
        await group.connected("b", "a")
        stop = asyncio.Event()
        writing = asyncio.ensure_future(write(group, acknowledged, stop))
        await passes(1)
        for _ in range(6):
            await break_one(group, rng)
        stop.set()
        await writing
        await group.until(lambda: group["a"].end == group["b"].end, "both have everything")
        one, other = await group["a"].log(), await group["b"].log()
        assert one == other
        assert [body for body in acknowledged if body not in one] == []
        assert len(acknowledged) > 30
        assert not group["a"].failures + group["b"].failures

    Group(seed=seed, read_flushed_only=True).run(scenario)
