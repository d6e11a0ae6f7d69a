"""The parts of a queue's process, each without the others: state, monitors, transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shalott.broker.base.errors import MetadataUnavailable
from shalott.broker.rabbit.mirrored.messages import MirrorStart, StopNow
from shalott.broker.rabbit.processes.messages import Down, Message, Pid
from shalott.broker.rabbit.processes.runtime import ExitProcess
from shalott.broker.rabbit.queue_process import queue_shell
from shalott.broker.rabbit.queue_process.queue_shell import STOP_GRACE_MS, Monitors, Transactions
from shalott.broker.rabbit.queue_process.state import (
    Identity,
    MirrorsStop,
    MirrorSync,
    QueueState,
)
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.replica.mirror import Mirror
from tests.world.clock.turns import turns

pytestmark = pytest.mark.unit

ME, OTHER = Pid("a", 1, 1), Pid("b", 1, 1)


class Contents:
    """Of a mirror's queue: only how much there is counts."""

    def __init__(self) -> None:
        self.messages = SimpleNamespace(depth=3)

    def clear(self) -> None:
        self.messages.depth = 0

    def publish(self, content: object, **more: object) -> int:
        self.messages.depth += 1
        return 0


def test_a_mirror_whose_synchronisation_was_broken_off_lacks_all_that_its_master_has() -> None:
    clock = SimpleNamespace(monotonic_ns=lambda: 0)
    env = SimpleNamespace(clock=clock, witness=lambda *told: None)
    shell: Any = SimpleNamespace(env=env, key="q@/", pid=ME)
    contents: Any = Contents()
    mirror = Mirror(shell, contents, cast(Any, SimpleNamespace(pid=OTHER, durable=True)))
    mirror.depth_delta = 4
    mirror.begin_sync()
    sent = [cast(Any, (SimpleNamespace(id=number), False, None)) for number in (1, 2)]
    mirror.take_synced(tuple(sent))
    mirror.abort_sync(master_lives=True)
    assert (mirror.depth_delta, contents.messages.depth) == (7, 0)


# -- the state -------------------------------------------------------------------------------------


def state_as(role: type[Master] | type[Mirror] | None) -> QueueState:
    """In a role whose contents don't matter."""
    state = QueueState(Identity("q@/", MirrorStart(None)))
    if role is not None:
        state.role = object.__new__(role)
    return state


def ring(*, is_ready: bool) -> Any:
    return SimpleNamespace(is_ready=is_ready)


@pytest.mark.parametrize("role", [Master, Mirror])
def test_clients_are_served_in_a_role_while_nothing_else_is_under_way(role: Any) -> None:
    state = state_as(role)
    assert not state.is_blocked
    assert state.activity == "running"


def delete(state: QueueState) -> None:
    state.ending.is_deleting = True


def stop_mirrors(state: QueueState) -> None:
    state.ending.mirrors = MirrorsStop("shutdown", {OTHER: None})


def sync_as_master(state: QueueState) -> None:
    state.sync.as_master = object()  # type: ignore[assignment]


def sync_as_mirror(state: QueueState) -> None:
    state.sync.as_mirror = MirrorSync(1, OTHER)


def lose_role(state: QueueState) -> None:
    state.role = None


@pytest.mark.parametrize(
    ("begin", "activity"),
    [
        (delete, "running"),
        (stop_mirrors, "running"),
        (sync_as_master, "syncing"),
        (sync_as_mirror, "syncing"),
        (lose_role, "running"),
    ],
)
def test_clients_wait_for_what_is_under_way(
    begin: Callable[[QueueState], None], activity: str
) -> None:
    state = state_as(Master)
    begin(state)
    assert state.is_blocked
    assert state.activity == activity


def test_a_master_serves_nobody_before_its_ring_would_carry_a_broadcast() -> None:
    master, mirror = state_as(Master), state_as(Mirror)
    master.ring.gm = mirror.ring.gm = ring(is_ready=False)
    assert master.is_blocked
    assert not mirror.is_blocked
    master.ring.gm = ring(is_ready=True)
    assert not master.is_blocked


def test_a_process_without_a_role_claims_to_be_starting() -> None:
    claim = state_as(None).claim()
    assert (claim.queue, claim.role, claim.synchronised) == ("q@/", "starting", False)


# -- monitors --------------------------------------------------------------------------------------


class Watched:
    """A watcher whose runtime counts monitors."""

    pid = ME

    def __init__(self) -> None:
        self.asked: list[Pid] = []
        self.dropped: list[int] = []
        self.runtime: Any = SimpleNamespace(monitor=self._monitor, demonitor=self.dropped.append)

    def _monitor(self, target: Pid, watcher: Pid) -> int:
        assert watcher == ME
        self.asked.append(target)
        return len(self.asked)


def test_a_process_is_watched_once_in_each_part() -> None:
    watched = Watched()
    monitors = Monitors(watched)
    for _ in range(2):
        monitors.add_user(OTHER)
        monitors.add_peer(OTHER)
    assert watched.asked == [OTHER, OTHER]
    assert monitors.take(Down(1, OTHER, "normal")) == "user"
    assert monitors.take(Down(2, OTHER, "normal")) == "peer"
    assert monitors.take(Down(2, OTHER, "normal")) is None


def test_a_user_that_was_dropped_is_watched_no_more() -> None:
    watched = Watched()
    monitors = Monitors(watched)
    monitors.add_user(OTHER)
    monitors.drop_user(OTHER)
    monitors.drop_user(OTHER)
    assert watched.dropped == [1]
    assert monitors.take(Down(1, OTHER, "normal")) is None
    monitors.add_user(OTHER)
    assert monitors.take(Down(1, OTHER, "normal")) is None, "of the first monitor"
    assert monitors.take(Down(2, OTHER, "normal")) == "user"


# -- transactions ----------------------------------------------------------------------------------


class Timers:
    def __init__(self) -> None:
        self.set: list[tuple[float, Message]] = []

    def after(self, delay_ms: float, message: Message) -> None:
        self.set.append((delay_ms, message))


class Leaderless:
    """Metadata whose transactions fail ``failures`` times, and then hang or commit."""

    def __init__(self, failures: int = 0, *, hangs: bool = False) -> None:
        self.failures, self.hangs, self.tries = failures, hangs, 0

    async def transact(self, body: Callable[[Any], Any], **how: bool) -> Any:
        self.tries += 1
        if self.tries <= self.failures:
            raise MetadataUnavailable("no leader")
        if self.hangs:
            await asyncio.Event().wait()
        return body(None)


def transactions_over(metadata: Any) -> tuple[Transactions, Timers]:
    timers = Timers()
    return Transactions(metadata, "q@/", timers), timers


def test_a_transaction_is_tried_until_there_is_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(duration_ms: float) -> None:
        await turns()

    async def scenario() -> None:
        metadata = Leaderless(failures=3)
        made, _ = transactions_over(metadata)
        assert await made.transact(lambda tx: "done") == "done"
        assert metadata.tries == 4

    monkeypatch.setattr(queue_shell, "pause_ms", at_once)
    asyncio.run(scenario())


def test_one_that_must_not_be_written_twice_is_tried_once() -> None:
    async def scenario() -> None:
        metadata = Leaderless(failures=1)
        made, _ = transactions_over(metadata)
        with pytest.raises(MetadataUnavailable):
            await made.transact_once(lambda tx: "done")
        assert metadata.tries == 1

    asyncio.run(scenario())


def test_a_process_that_waits_for_a_leader_ends_when_the_grace_does() -> None:
    async def scenario() -> None:
        made, timers = transactions_over(Leaderless(hangs=True))
        made.start_grace()
        assert timers.set == [(STOP_GRACE_MS, StopNow())]
        waiting = asyncio.ensure_future(_reason_of(made))
        await turns()
        assert not waiting.done()
        made.end_grace()
        assert await waiting == "shutdown"

    asyncio.run(scenario())


def test_a_renewed_grace_lets_another_transaction_be_made() -> None:
    async def scenario() -> None:
        made, timers = transactions_over(Leaderless())
        made.end_grace()
        made.renew_grace()
        assert timers.set == [(STOP_GRACE_MS, StopNow())]
        hanging, _ = transactions_over(Leaderless(hangs=True))
        hanging.end_grace()
        assert await _reason_of(hanging) == "shutdown"
        assert await made.transact(lambda tx: "done") == "done"

    asyncio.run(scenario())


async def _reason_of(made: Transactions) -> str:
    """With which reason the process ends that makes a transaction."""
    try:
        await made.transact(lambda tx: None)
    except ExitProcess as wish:
        return wish.reason
    return ""
