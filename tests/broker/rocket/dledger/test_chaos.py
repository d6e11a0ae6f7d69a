"""Faults of one node or of links, one after another, under safe settings: nothing acknowledged is
lost, moved or doubled, and all logs end as the same bytes.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from shalott.broker.rocket.commitlog.replica import PutStatus
from tests.world.clock.turns import passes
from tests.world.rocket.dledger import Broker, Group

pytestmark = pytest.mark.explore

MINORITY_FAULTS = ("kill", "power", "cut", "bridge", "isolate leader", "kill leader")


async def write(group: Group, acknowledged: dict[int, bytes], stop: asyncio.Event) -> None:
    """Send to everybody who says to be the master."""
    number = 0
    while not stop.is_set():
        for broker in group.brokers.values():
            if broker.role == "master":
                number += 1
                await send(broker, b"<%08d>" % number + b"." * (number * 37 % 700), acknowledged)
        await passes(0.1)


async def send(broker: Broker, body: bytes, acknowledged: dict[int, bytes]) -> None:
    attempt = asyncio.ensure_future(broker.put(body))
    done, _ = await asyncio.wait([attempt], timeout=1)
    if done and (result := attempt.result()).status is PutStatus.PUT_OK:
        assert result.stage is not None
        [appended] = result.stage.messages
        assert appended.queue_offset not in acknowledged, "two messages have one queue offset"
        acknowledged[appended.queue_offset] = body
    attempt.cancel()


async def break_something(group: Group, rng: random.Random) -> None:
    fault = rng.choice(MINORITY_FAULTS)
    leader = next((each for each in group.brokers.values() if each.role == "master"), None)
    broker = rng.choice(list(group.brokers.values()))
    if "leader" in fault and leader is not None:
        broker = leader
    duration_s = rng.uniform(0.1, 6)
    if fault in ("kill", "power", "kill leader"):
        (broker.lose_power if fault == "power" else broker.kill)()
        await passes(duration_s)
        await broker.start()
    else:
        links = [("a", "b"), ("b", "a")]
        if fault == "bridge":
            group.world.network.cut(links)
        elif fault == "cut":
            links = [rng.choice([("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")])]
            group.world.network.cut(links)
        else:
            links = group.isolate(broker)
        await passes(duration_s)
        group.world.network.mend(links)
    await passes(rng.uniform(0, 3))


async def power_of_all(group: Group) -> None:
    for broker in group.brokers.values():
        broker.lose_power()
    await group.start()


async def chaos(group: Group, seed: int, faults: int) -> None:
    rng = random.Random(seed)
    acknowledged: dict[int, bytes] = {}
    await group.start()
    await group.master()
    stop = asyncio.Event()
    writing = asyncio.ensure_future(write(group, acknowledged, stop))
    for number in range(faults):
        await break_something(group, rng)
        if number == faults // 2:
            await power_of_all(group)
    await group.master()
    await passes(2)
    stop.set()
    await writing
    await group.settled()
    await check(group, acknowledged)


async def check(group: Group, acknowledged: dict[int, bytes]) -> None:
    logs = []
    for broker in group.brokers.values():
        assert not broker.failures
        queue = await broker.queue()
        for offset, body in acknowledged.items():
            assert offset < len(queue), f"{broker.name} lacks {offset}"
            assert body in queue[offset], f"{broker.name} has something else at {offset}"
        store = broker.up.store
        logs.append(await broker.here(store.reader.digest(0, store.log.max_offset)))
    assert logs[0] == logs[1] == logs[2]
    assert len(acknowledged) > 20
    masters: dict[int, str] = {}
    for event in group.seen("role"):
        if event.role == "master":
            assert masters.setdefault(event.epoch, event.node) == event.node


@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    Group(seed=seed).run(lambda group: chaos(group, seed, 4))
