"""Reports of the SyncStateSet, and heartbeats: what a controller that is slow or silent costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import cast

import pytest

from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.controller.messages import Fenced, OutcomeUnknown, ReplicaNotUsable
from shalott.broker.rocket.remoting.client import Unanswered
from shalott.broker.rocket.replicas.manager import Heartbeats
from shalott.broker.rocket.replicas.set_reports import SetReports
from shalott.cluster.sim.disk.disk import SimDisk
from tests.world.clock.latency import sim
from tests.world.clock.turns import passes
from tests.world.env import Events, LoopClock
from tests.world.rabbit.queues import run
from tests.world.rocket.autoswitch import SAFE, Group
from tests.world.rocket.machine import changed

pytestmark = pytest.mark.unit

ALONE_TOO = changed(SAFE, in_sync_replicas=1, min_in_sync_replicas=1)


class Controllers:
    """One set, changed by compare-and-set. ``delays_s`` and ``errors`` are of the next calls; an
    error comes after the change if it is an OutcomeUnknown."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self.members = members
        self.epoch = 1
        self.history = [members]
        self.calls: list[tuple[int, ...]] = []
        self.delays_s: list[float] = []
        self.errors: list[Exception] = []

    async def alter_sync_state_set(
        self, group: str, master_id: int, master_epoch: int, members: Sequence[int], epoch: int
    ) -> cm.SyncStateSet:
        self.calls.append(tuple(members))
        await passes(self.delays_s.pop(0) if self.delays_s else 0.01)
        error = self.errors.pop(0) if self.errors else None
        if error is not None and not isinstance(error, OutcomeUnknown):
            raise error
        if tuple(members) != self.members:
            if epoch != self.epoch:
                raise Fenced(2001, "another epoch")
            self.members, self.epoch = tuple(members), epoch + 1
            self.history.append(self.members)
        if error is not None:
            raise error
        return cm.SyncStateSet(sync_state_set=self.members, sync_state_set_epoch=self.epoch)


async def reporting(group: Group, controllers: Controllers) -> None:
    """a is the master, and reports; what it asks for it learns at once."""
    a = group["a"]
    await group.start()
    service = a.service
    client = cast(ControllerClient, controllers)

    def ask() -> None:
        a.tenure.learn(controllers.members, controllers.epoch)

    reports = SetReports(service._env, group.config_of("a"), service, client, ask=ask)
    assert a.process is not None
    asyncio.get_running_loop().create_task(reports.run(), context=a.process.context)
    names = [name for name in group.names if group[name].id in controllers.members]
    await a.lead(1, *names)


@pytest.mark.parametrize("bugs", [(), ("KB-RKT-11",)])
def test_kb_rkt_11_a_report_for_an_older_set_overwrites_a_newer_one(bugs: tuple[str, ...]) -> None:
    async def scenario(group: Group) -> None:
        controllers = Controllers((1, 2))
        await reporting(group, controllers)
        a = group["a"]
        await group["b"].follow("a", 1)
        await group.caught_up("a", "b")
        controllers.delays_s = [1.0, 0.1]  # the first report is slow
        group["b"].kill()
        await group.until(lambda: len(controllers.calls) == 1)
        await group["c"].follow("a", 1)
        await group.until(lambda: controllers.members == (1, 3))
        await passes(3)
        assert a.tenure.set.members == controllers.members == (1, 3)
        wrong = controllers.history[controllers.history.index((1, 3)) + 1 :]
        assert bool(wrong) == bool(bugs), f"{controllers.history}"

    Group(bugs=bugs, ha=ALONE_TOO).run(scenario)


def test_a_report_without_an_answer_keeps_counting_until_its_outcome_is_known() -> None:
    async def scenario(group: Group) -> None:
        controllers = Controllers((1,))
        await reporting(group, controllers)
        a = group["a"]
        seen: list[tuple[int, ...]] = []
        controllers.errors = [OutcomeUnknown(1, "unknown")]
        learn = a.tenure.learn

        def record(members: Iterable[int], set_epoch: int) -> bool:
            seen.append(a.tenure.set.judged)
            return learn(members, set_epoch)

        a.tenure.learn = record  # type: ignore[method-assign]
        await group["b"].follow("a", 1)
        await group.until(lambda: a.tenure.set.members == (1, 2))
        assert seen[0] == (1, 2)
        assert not a.tenure.set.is_synchronizing

    Group("a", "b", ha=ALONE_TOO).run(scenario)


def test_a_refused_report_is_void_and_repeated_while_it_is_wanted() -> None:
    async def scenario(group: Group) -> None:
        controllers = Controllers((1,))
        await reporting(group, controllers)
        a = group["a"]
        controllers.errors = [ReplicaNotUsable(2006, "broker 2 is not alive")]
        await group["b"].follow("a", 1)
        await group.until(lambda: len(controllers.calls) == 1)
        await group.until(lambda: not a.tenure.set.is_synchronizing)
        assert a.tenure.set.judged == (1,)
        assert await a.put(b"alone")
        await group.until(lambda: a.tenure.set.members == (1, 2))

    Group("a", "b", ha=ALONE_TOO).run(scenario)


def test_a_report_that_nobody_answers_does_not_hold_up_writes_for_ever() -> None:
    """c was proposed, is gone, and may be in the set: the set's epoch has to move on."""

    async def scenario(group: Group) -> None:
        controllers = Controllers((1, 2))
        await reporting(group, controllers)
        a = group["a"]
        await group["b"].follow("a", 1)
        await group.caught_up("a", "b")
        controllers.errors = [Unanswered("lost on the way")]
        await group["c"].follow("a", 1)
        await group.until(lambda: a.tenure.set.judged == (1, 2, 3))
        group["c"].kill()
        assert not await a.put(b"waits for c")
        await group.until(lambda: a.tenure.set.judged == (1, 2) and controllers.epoch > 1)
        assert await a.put(b"goes on")

    ha = changed(SAFE, max_time_slave_not_catchup_ms=2000)
    Group(ha=changed(ha, check_sync_state_set_period_ms=500)).run(scenario)


# -- heartbeats ------------------------------------------------------------------------------------


class Silent:
    """Two controllers; the first one can't be reached."""

    controllers = ("x", "y")

    def __init__(self) -> None:
        self.beats: list[float] = []

    async def heartbeat(self, address: str, heartbeat: cm.Heartbeat) -> None:
        if address == "x":
            await passes(3)
            raise Unanswered("x is silent")
        self.beats.append(sim().time())


@pytest.mark.parametrize(("bugs", "gap_s"), [((), 1.0), (("KB-RKT-31",), 4.0)])
def test_kb_rkt_31_a_silent_controller_delays_the_heartbeats_to_others(
    bugs: tuple[str, ...], gap_s: float
) -> None:
    async def scenario() -> None:
        client = Silent()
        disk = SimDisk(sim(), 1, "a")
        env = Env("a", 1, LoopClock(), seeded_rng(1, 1), disk, Events("a", []), bugs=bugs)
        beat = cm.Heartbeat(cluster_name="c", broker_addr="a:1", broker_name="g", broker_id=1)
        heartbeats = Heartbeats(
            env,
            cast(ControllerClient, client),
            lambda: beat,
            interval_ms=1000,
            busy=asyncio.Lock(),
        )
        running = asyncio.create_task(heartbeats.run())
        await passes(20)
        running.cancel()
        gaps = [b - a for a, b in zip(client.beats, client.beats[1:], strict=False)]
        assert max(gaps) == pytest.approx(gap_s, abs=0.05)

    run(scenario())
