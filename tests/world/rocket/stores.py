"""Stores on simulated disks: what they need of a node, and messages to put into them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import StoreConfig
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.env import LoopClock, NoEvents

T = TypeVar("T")

SMALL = StoreConfig(segment_bytes=1024, queue_segment_units=16, checkpoint_interval_ms=20)


def in_sim(body: Coroutine[Any, Any, T]) -> T:
    """On a loop of its own, as a node's program."""
    return SimLoop().run(body, SimProcess("n1", 0))


def this_loop() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop


def env_of(loop: SimLoop, disk: Disk, *bugs: str) -> Env:
    return Env("n1", 1, LoopClock(loop), seeded_rng(1, 1), disk, NoEvents(), bugs=bugs)


async def opened(
    loop: SimLoop,
    disk: Disk,
    *bugs: str,
    config: StoreConfig = SMALL,
    confirm_from_checkpoint: bool = False,
) -> MessageStore:
    return await MessageStore.open(
        env_of(loop, disk, *bugs), config, confirm_from_checkpoint=confirm_from_checkpoint
    )


def message(
    body: bytes | str, queue_id: int = 0, topic: str = "t", properties: str = ""
) -> Message:
    data = body.encode() if isinstance(body, str) else body
    return Message(topic=topic, queue_id=queue_id, body=data, properties=properties)


def put(store: MessageStore, *bodies: str, queue_id: int = 0) -> int:
    """Append one by one; returns the end."""
    end = 0
    for body in bodies:
        end = store.append([message(body, queue_id)]).end
    return end


async def bodies(store: MessageStore, queue_id: int = 0, topic: str = "t") -> list[str]:
    """Of all messages of a queue, as a consumer gets them."""
    first, end = store.reader.queue_range(topic, queue_id)
    found: list[str] = []
    while first < end:
        got = await store.reader.get(topic, queue_id, first, max_messages=8, max_bytes=1 << 20)
        found += [body_of(data) for data in got.messages]
        assert got.next_offset > first
        first = got.next_offset
    return found


def body_of(stored: bytes) -> str:
    length = int.from_bytes(stored[84:88], "big")
    return stored[88 : 88 + length].decode()
