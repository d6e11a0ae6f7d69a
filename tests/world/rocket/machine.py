"""Machine: a host of a simulated network with a disk of its own, over the lives of its program."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import msgspec

from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import HaConfig
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.env import Event, Events, LoopClock
from tests.world.network.hosts import World


class Machine:
    """A kind of node says in ``run`` what it is made of; that lives on until it is killed.

    Each life draws its own numbers, from ``rng_seed`` (``seed`` if there is none) and the life's.
    """

    def __init__(
        self,
        world: World,
        name: str,
        *,
        seed: int,
        events: list[Event],
        rng_seed: int | None = None,
        bugs: tuple[str, ...] = (),
        knobs: DiskKnobs | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.disk = SimDisk(world.loop, seed, name, knobs)
        self.bugs = bugs
        self.lives = 0
        self.process: SimProcess | None = None
        self._rng_seed = seed if rng_seed is None else rng_seed
        self._events = events
        self.failures: list[str] = []

    async def run(self, env: Env) -> None:
        """Start the node's parts; return when it serves."""
        raise NotImplementedError

    def gone(self) -> None:
        """A life has been ended: what it left behind answers no more."""

    def failed(self, error: object) -> None:
        """The node says that it can't go on."""
        self.failures.append(str(error))

    async def start(self) -> None:
        """Begin a new life; returns when it serves, and raises what kept it from that."""
        self.lives += 1
        ready = asyncio.Event()
        self.process, life = self.world.spawn(self.name, self._live(ready, self.lives))
        waiting = asyncio.ensure_future(ready.wait())
        await asyncio.wait([life, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if life.done():
            life.result()

    async def _live(self, ready: asyncio.Event, life: int) -> None:
        events = Events(self.name, self._events)
        rng = seeded_rng(self._rng_seed, life)
        await self.run(Env(self.name, life, LoopClock(), rng, self.disk, events, bugs=self.bugs))
        ready.set()
        await asyncio.Event().wait()

    def kill(self) -> None:
        assert self.process is not None
        self.world.kill(self.process)
        self.disk.kill()
        self.gone()

    def lose_power(self) -> None:
        """Off, and on again at once; the program does not start by itself."""
        assert self.process is not None
        self.world.power_off(self.process)
        self.disk.power_loss()
        self.gone()
        self.world.network.host_up(self.name)

    async def here(self, action: Coroutine[Any, Any, Any]) -> Any:
        """Do something as a part of this machine's program."""
        assert self.process is not None
        return await asyncio.get_running_loop().create_task(action, context=self.process.context)


async def whole_log(store: MessageStore) -> bytes:
    """All bytes of a store's log, as a reader finds them."""
    parts, position = [], store.log.min_offset
    while part := await store.log.read(position, 1 << 20):
        parts.append(part)
        position += len(part)
    return b"".join(parts)


async def whole_queue(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """All messages of a queue as they are stored, in its order."""
    offset, end = store.reader.queue_range(topic, queue_id)
    found: list[bytes] = []
    while offset < end:
        got = await store.reader.get(topic, queue_id, offset, max_messages=32, max_bytes=1 << 20)
        assert got.next_offset > offset, got
        found += got.messages
        offset = got.next_offset
    return found


def isolate(world: World, name: str, others: Iterable[str]) -> list[tuple[str, str]]:
    """Cut one host from others, both ways; the links that were cut."""
    links = [link for other in others for link in ((name, other), (other, name))]
    world.network.cut(links)
    return links


def changed(ha: HaConfig, **changes: Any) -> HaConfig:
    return msgspec.structs.replace(ha, **changes)
