"""The broker's storage on simulated disks: nothing that was promised is lost in any power loss, and
a storage that promises too early is found out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import BrokerError
from shalott.broker.base.journal import Journal
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.buggify import Buggify
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk, SimFile
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.core.rng import Stream
from tests.world.disk.disk_runs import outcomes

pytestmark = pytest.mark.explore

PATH = "metadata/journal"
DIRECTORY = "queues/q"
SEEDS = range(24)
LIVES = 4
KNOBS = DiskKnobs(sync_us=(200, 6000))


class ForgetfulDisk:
    """Planted: a disk whose ``forgotten`` call does nothing and says that it did."""

    def __init__(self, disk: SimDisk, forgotten: str) -> None:
        self._disk = disk
        self._forgotten = forgotten

    async def open(self, path: str, *, create: bool) -> SimFile:
        file = await self._disk.open(path, create=create)
        if self._forgotten == "sync":
            file.sync = file.size  # type: ignore[assignment,method-assign]
        return file

    async def rename(self, source: str, target: str) -> None:
        await self._disk.rename(source, target)

    async def remove(self, path: str) -> None:
        await self._disk.remove(path)

    async def sync_dir(self, path: str) -> None:
        if self._forgotten != "sync_dir":
            await self._disk.sync_dir(path)

    async def listdir(self, path: str) -> list[str]:
        return await self._disk.listdir(path)

    async def free_bytes(self) -> int:
        return await self._disk.free_bytes()


async def journal_life(disk: Disk, seed: int, life: int, promised: list[bytes]) -> None:
    """Appends, flushes and rewrites for ever; ``promised`` is what a power loss must leave."""
    draws = Stream(seed, "life", life)
    journal = await Journal.open(disk, PATH)
    found = journal.replay()
    assert found[: len(promised)] == promised, "something that was flushed is gone"
    promised[:] = found
    number = 0
    while True:
        number += 1
        record = b"%d/%d" % (life, number) * (1 + draws.below(300))
        journal.append(record)
        if draws.below(8) == 0:
            everything = [*promised, record]
            await journal.rewrite(everything)
            promised[:] = everything
        else:
            await journal.flush()
            promised.append(record)


async def queue_life(disk: Disk, seed: int, life: int, promised: list[bytes]) -> None:
    """Publishes for ever; ``promised`` are the bodies whose publishes were durable."""
    draws = Stream(seed, "life", life)
    queue = await BackingQueue.recover(disk, DIRECTORY)
    found = [held.content.body for held in queue.messages.contents()]
    assert [body for body in found if body in promised] == promised, "a durable message is gone"
    promised[:] = found
    queue.index.buggify = Buggify(seed, "n1", activation=1.0)
    number = 0
    while True:
        number += 1
        body = b"%d/%d." % (life, number) + b"x" * draws.below(900)
        message_id = life * 1_000_000 + number
        mark = queue.publish(Content(message_id, "x", "k", b"p", body, True, 3, 1000))
        await queue.index.wait_durable(mark)
        promised.append(body)


Life = Callable[[Disk, int, int, list[bytes]], Coroutine[Any, Any, None]]


def survives(life: Life, make_disk: Callable[[SimDisk], Disk], *, power: bool = True) -> list[int]:
    """Seeds under which a life found that a former one's promise was broken."""
    loop = SimLoop()
    broken: list[int] = []

    async def one(seed: int) -> None:
        disk = SimDisk(loop, seed, f"n{seed}", KNOBS)
        draws, promised = Stream(seed, "crashes"), list[bytes]()
        for number in range(LIVES):
            process = SimProcess("n1", number)
            loop.add_process(process)
            task = loop.create_task(
                life(make_disk(disk), seed, number, promised),
                context=process.context,
            )
            await asyncio.wait([task], timeout=draws.between(0.001, 0.1))
            process.freeze()
            if task.done():
                assert isinstance(task.exception(), AssertionError | BrokerError)
                broken.append(seed)
                return
            if power:
                disk.power_loss()
            else:
                disk.kill()

    async def main() -> None:
        for seed in SEEDS:
            await one(seed)

    loop.run(main(), SimProcess("harness"))
    return broken


def sound(disk: SimDisk) -> Disk:
    return disk


@pytest.mark.parametrize("life", [journal_life, queue_life])
@pytest.mark.parametrize("power", [True, False], ids=["power loss", "kill"])
def test_what_was_flushed_survives(life: Life, power: bool) -> None:
    assert survives(life, sound, power=power) == []


LONG = pytest.param(queue_life, marks=pytest.mark.nightly("half a minute; a journal is by day"))


@pytest.mark.parametrize("life", [journal_life, LONG])
@pytest.mark.parametrize("forgotten", ["sync", "sync_dir"])
def test_a_storage_that_does_not_sync_is_found_out(life: Life, forgotten: str) -> None:
    """But only by power losses: a kill leaves the page cache."""

    def forgetful(disk: SimDisk) -> Disk:
        return ForgetfulDisk(disk, forgotten)

    assert survives(life, forgetful, power=False) == []
    assert len(survives(life, forgetful)) >= 5


def test_short_transfers_cost_nothing_but_time() -> None:
    def short(disk: SimDisk) -> Disk:
        disk.set_faults(DiskFaults(short=True))
        return disk

    assert survives(journal_life, short) == []


def test_a_batch_whose_sync_failed_is_written_anew_by_the_next_life() -> None:
    """After a failed sync the kernel calls the pages clean. The next life reads them, and a sync of
    clean pages saves nothing: without writing them again a power loss leaves a hole in the middle.
    """

    async def body(loop: SimLoop, disk: SimDisk) -> list[bytes]:
        first = await Journal.open(disk, PATH)
        first.append(b"sound")
        await first.flush()
        disk.set_faults(DiskFaults(fail_sync=True))
        first.append(b"not synced")
        with pytest.raises(BrokerError):
            await first.flush()
        disk.kill()
        disk.set_faults(None)
        second = await Journal.open(disk, PATH)
        found = second.replay()
        second.append(b"after")
        await second.flush()
        disk.power_loss()
        third = await Journal.open(disk, PATH)
        assert third.replay() == [*found, b"after"]
        return found

    for found in outcomes(body, DiskKnobs(power_loss="drop")):
        assert found in ([b"sound"], [b"sound", b"not synced"])
