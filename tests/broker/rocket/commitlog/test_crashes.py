"""Stores that live through kills and power losses, against a model of what they promised.

What was flushed is there byte for byte; what was cut never comes back; the consume queues are
exactly the messages of the log below the confirmed end, contiguous and unique.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from shalott.cluster.sim.disk.page_cache import PowerLoss
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.core.rng import Stream
from tests.cluster.sim.disk.test_disk_storage import ForgetfulDisk
from tests.world.clock.turns import passes
from tests.world.rocket.stores import bodies, message, opened

pytestmark = pytest.mark.explore

SEEDS = range(16)
LIVES = 5
QUEUES = 3


@dataclass
class Sent:
    offset: int
    end: int
    queue: int
    body: str


@dataclass
class Model:
    """What one disk was promised over all its lives."""

    confirming: bool  # dispatch stops at a confirm offset
    sent: list[Sent] = field(default_factory=list)  # in the order of the log
    flushed: int = 0
    confirm_max: int = 0

    @property
    def end(self) -> int:
        return self.sent[-1].end if self.sent else 0

    def cut(self, offset: int) -> None:
        self.sent = [sent for sent in self.sent if sent.end <= offset]

    def queue(self, number: int, end: int) -> list[str]:
        return [sent.body for sent in self.sent if sent.queue == number and sent.end <= end]


async def check(store: MessageStore, model: Model) -> None:
    """Right after a start; the model learns what was lost that was never promised."""
    end = store.log.max_offset
    assert end >= model.flushed, f"flushed to {model.flushed}, found {end}"
    model.cut(end)
    assert model.end == end or await is_filler(store, model.end, end), "the log has another tail"
    for sent in model.sent:
        stored = await store.reader.message_at(sent.offset)
        assert stored is not None, f"no message at {sent.offset}"
        assert sent.body.encode() in stored, f"another message at {sent.offset}"
    if model.confirming:
        assert store.dispatched_offset <= max(model.confirm_max, 0), "beyond the confirmed end"
    await check_queues(store, model)
    model.flushed = max(model.flushed, store.log.flushed_offset)


async def is_filler(store: MessageStore, start: int, end: int) -> bool:
    return end % 1024 == 0 and (await store.log.read(start, 8))[4:] == bytes.fromhex("cbd43194")


async def check_queues(store: MessageStore, model: Model) -> None:
    end = store.dispatched_offset
    for number in range(QUEUES):
        wanted = model.queue(number, end)
        found = await bodies(store, number)  # more may be dispatched meanwhile
        assert found[: len(wanted)] == wanted, f"queue {number} to {end}"
        assert found == model.queue(number, store.dispatched_offset)[: len(found)]


async def life(
    loop: SimLoop, disk: Disk, seed: int, number: int, model: Model, bugs: tuple[str, ...]
) -> None:
    draws = Stream(seed, "life", number)
    store = await opened(loop, disk, *bugs, confirm_from_checkpoint=model.confirming)
    await check(store, model)
    count = 0
    while True:
        step = draws.below(16)
        if step < 9:
            for _ in range(1 + draws.below(4)):
                count += 1
                append(store, model, f"{number}/{count}." + "x" * draws.below(300), draws)
        elif step < 12:
            end = model.end
            await store.log.flushed(end)
            model.flushed = max(model.flushed, end)
        elif step == 12 and draws.below(3) == 0 and model.sent:
            await cut(store, model, draws)
        elif step == 13 and model.confirming and model.sent:
            confirm = draws.choice([sent.end for sent in model.sent[-8:]])
            if confirm >= store.confirm_offset:
                model.confirm_max = max(model.confirm_max, confirm)
                store.set_confirm_offset(confirm)
        elif step == 14:
            await store.dispatched(min(store.confirm_offset, store.log.written_offset, model.end))
            await check_queues(store, model)
        else:
            await passes(draws.below(30) / 1000)


def append(store: MessageStore, model: Model, body: str, draws: Stream) -> None:
    queue = draws.below(QUEUES)
    appended = store.append([message(body, queue)]).messages[0]
    assert appended.queue_offset == len(model.queue(queue, 1 << 60)), "a queue offset twice"
    model.sent.append(Sent(appended.offset, appended.end, queue, body))


async def cut(store: MessageStore, model: Model, draws: Stream) -> None:
    offset = draws.choice([0, *(sent.end for sent in model.sent[-30:])])
    model.flushed = min(model.flushed, offset)  # from now on it may be gone
    await store.truncate(offset)
    model.cut(offset)
    model.confirm_max = min(model.confirm_max, offset)


def survive(
    make_disk: type[ForgetfulDisk] | None = None,
    *,
    forgotten: str = "",
    power: bool = True,
    loss: PowerLoss = "torn",
    bugs: tuple[str, ...] = (),
    confirming: bool = False,
    faults: DiskFaults | None = None,
) -> list[str]:
    """What lives found to be broken, by seed."""
    loop = SimLoop()
    broken: list[str] = []

    async def one(seed: int) -> None:
        disk = SimDisk(loop, seed, f"n{seed}", DiskKnobs(sync_us=(200, 6000), power_loss=loss))
        disk.set_faults(faults)
        seen: Disk = disk if make_disk is None else make_disk(disk, forgotten)
        draws, model = Stream(seed, "crashes"), Model(confirming)
        for number in range(LIVES):
            process = SimProcess("n1", number)
            loop.add_process(process)
            task = loop.create_task(
                life(loop, seen, seed, number, model, bugs), context=process.context
            )
            await asyncio.wait([task], timeout=draws.between(0.005, 0.4))
            process.freeze()
            if task.done():
                error = task.exception()
                assert isinstance(error, AssertionError | BrokerError), error
                broken.append(f"{seed}/{number}: {error}")
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


@pytest.mark.parametrize("confirming", [False, True], ids=["to the end", "to the confirmed end"])
@pytest.mark.parametrize("loss", ["torn", "drop"])
def test_a_power_loss_breaks_no_promise(confirming: bool, loss: PowerLoss) -> None:
    assert survive(loss=loss, confirming=confirming) == []


@pytest.mark.parametrize("confirming", [False, True], ids=["to the end", "to the confirmed end"])
def test_a_kill_breaks_no_promise(confirming: bool) -> None:
    assert survive(power=False, confirming=confirming) == []


def test_short_transfers_cost_nothing_but_time() -> None:
    assert survive(faults=DiskFaults(short=True)) == []


@pytest.mark.parametrize("forgotten", ["sync", "sync_dir"])
def test_a_store_that_does_not_sync_is_found_out(forgotten: str) -> None:
    assert len(survive(ForgetfulDisk, forgotten=forgotten)) >= 5


@pytest.mark.parametrize(
    ("bug", "confirming", "symptom"),
    [
        ("KB-RKT-15", True, "a queue offset twice"),
        ("KB-RKT-16", True, "beyond the confirmed end"),
        ("KB-DL-16", False, "queue"),
    ],
)
def test_a_bug_is_found_by_its_symptom(bug: str, confirming: bool, symptom: str) -> None:
    found = survive(power=False, confirming=confirming, bugs=(bug,))
    assert len(found) >= 2
    assert any(symptom in line for line in found), found
