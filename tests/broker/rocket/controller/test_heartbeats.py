"""Who is alive: by heartbeats, by connections, and by what a broker said last. With what
DefaultBrokerHeartbeatManagerTest of RocketMQ checks: an expired broker is noticed.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller.elect_policy import LiveInfo
from shalott.broker.rocket.controller.heartbeats import TICK_MS, HeartbeatManager, Identity
from shalott.broker.rocket.remoting.server import Caller
from tests.world.env import ManualClock
from tests.world.rocket.registry import env_with

pytestmark = pytest.mark.unit

WHO = Identity("c", "g", 1)


def beat(broker_id: int = 1, **more: Any) -> cm.Heartbeat:
    return cm.Heartbeat(
        cluster_name="c",
        broker_addr=f"h{broker_id}:1",
        broker_name="g",
        broker_id=broker_id,
        **{"heartbeat_timeout_mills": 3000, **more},
    )


def connection() -> Caller:
    """One that says nothing."""
    transport: Any = SimpleNamespace(get_extra_info=lambda name: ("10.0.0.1", 4000))
    return Caller(transport)


def made() -> tuple[HeartbeatManager, ManualClock]:
    clock = ManualClock()
    return HeartbeatManager(env_with(clock=clock)), clock


def listen_ms(manager: HeartbeatManager, clock: ManualClock, duration_ms: int) -> None:
    """Time passes, and the controller ticks."""
    while duration_ms > 0:
        step_ms = min(duration_ms, TICK_MS)
        clock.pass_ms(step_ms)
        manager.tick()
        duration_ms -= step_ms


def test_a_broker_is_alive_for_as_long_as_its_heartbeat_allows() -> None:
    manager, clock = made()
    assert not manager.is_alive("c", "g", 1)
    assert manager.heard(beat())
    listen_ms(manager, clock, 3000)
    assert manager.is_alive("c", "g", 1)
    assert manager.expired() == []
    assert not manager.heard(beat(heartbeat_timeout_mills=500))
    listen_ms(manager, clock, 501)
    assert not manager.is_alive("c", "g", 1)
    assert manager.expired() == [WHO]
    assert manager.expired() == []


def test_only_the_silent_expire() -> None:
    manager, clock = made()
    manager.heard(beat(1))
    manager.heard(beat(2))
    listen_ms(manager, clock, 2000)
    manager.heard(beat(2))
    listen_ms(manager, clock, 1500)
    assert manager.expired() == [WHO]
    assert manager.is_alive("c", "g", 2)
    assert manager.active() == {"c": {"g": 1}}


def test_silence_counts_only_while_the_controller_listens() -> None:
    manager, clock = made()
    manager.heard(beat())
    listen_ms(manager, clock, 2000)
    clock.pass_ms(60_000)  # it was paused
    assert manager.is_alive("c", "g", 1)
    assert manager.settling_ms() == 0
    manager.tick()
    assert manager.is_alive("c", "g", 1)
    assert manager.settling_ms() == 2000
    listen_ms(manager, clock, 1000)
    assert not manager.is_alive("c", "g", 1)
    assert manager.settling_ms() == 1000
    listen_ms(manager, clock, 1200)
    assert manager.settling_ms() == 0


def test_the_end_of_the_connection_is_the_end_of_those_who_spoke_over_it() -> None:
    async def main() -> None:
        manager, _ = made()
        one, other = connection(), connection()
        manager.heard(beat(1), one)
        manager.heard(beat(2), other)
        assert manager.over(one) == [WHO]
        assert manager.is_alive("c", "g", 1)  # it may have another
        assert manager.drop(WHO, one)
        assert not manager.is_alive("c", "g", 1)
        assert manager.is_alive("c", "g", 2)
        assert manager.over(one) == []
        assert not manager.drop(WHO, one)

    asyncio.run(main())


def test_the_end_of_an_older_connection_ends_nobody() -> None:
    async def main() -> None:
        manager, _ = made()
        older, newer = connection(), connection()
        manager.heard(beat(), older)
        assert manager.over(older) == [WHO]
        manager.heard(beat(), newer)
        assert not manager.drop(WHO, older)
        assert manager.over(older) == []
        assert manager.is_alive("c", "g", 1)
        assert manager.drop(WHO, newer)

    asyncio.run(main())


def test_a_broker_is_judged_by_its_last_word_also_if_its_log_is_shorter_now() -> None:
    manager, _ = made()
    manager.heard(beat(epoch=3, max_offset=900, confirm_offset=800, election_priority=4))
    assert manager.live_info("c", "g", 1) == LiveInfo(3, 900, 800, 4)
    manager.heard(beat(epoch=3, max_offset=500))
    assert manager.live_info("c", "g", 1) == LiveInfo(3, 500, -1, 0x7FFFFFFF)
    assert manager.live_info("c", "other", 1) is None
