"""``acked`` events: what was acknowledged in a tenth of a second, and how far that goes."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.rocket.processor.acked import AckedEvents
from tests.world.clock.turns import passes
from tests.world.clock.virtual import run
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import Event, Events, LoopClock

pytestmark = pytest.mark.unit


def told(*acks: dict[str, Any]) -> list[Event]:
    """What is told of these, one after the other."""

    async def scenario() -> list[Event]:
        events: list[Event] = []
        env = Env("n1", 1, LoopClock(), seeded_rng(1, 1), MemoryDisk(), Events("n1", events))
        acked = AckedEvents(env, "g")
        for ack in acks:
            acked.acked(**{"epoch": 3, "taken_ns": 5, **ack})
        await passes(1)
        return events

    return run(scenario())


def test_it_tells_how_far_the_log_is_acknowledged() -> None:
    (event,) = told({"end": 100}, {"end": 300}, {"end": 200})
    assert (event.detail["end"], event.detail["count"]) == (300, 3)
    assert "holders" not in event.detail


def test_holders_are_those_that_had_each_of_the_messages() -> None:
    both = {"end": 100, "holders": (2, 3)}
    (event,) = told(both, {"end": 200, "holders": (2, 4)}, both)
    assert event.detail["holders"] == [2]


def test_another_epoch_is_another_line() -> None:
    first, second = told({"end": 100, "holders": (2,)}, {"end": 90, "epoch": 4, "holders": ()})
    assert (first.detail["end"], first.detail["holders"]) == (100, [2])
    assert (second.epoch, second.detail["end"], second.detail["holders"]) == (4, 90, [])
