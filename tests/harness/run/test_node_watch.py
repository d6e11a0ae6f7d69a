"""A node that ends while the cluster settles is started once more; one whose disk a fault has
spoilt, and that ends again, is left down, or gets an empty disk where that was asked for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from shalott.cluster.nodes import NodeExit
from shalott.harness.run.node_watch import DeathWatch
from tests.world.harness.memory import MemoryCluster, MemoryQueues, Trap
from tests.world.harness.nemesis import MemoryRecorder

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("rotten", "left_down", "calls"),
    [
        ({}, [], ["start"]),
        ({"n2": False}, ["n2"], ["start"]),
        ({"n2": True}, [], ["start", "wipe", "start"]),
    ],
    ids=["sound", "left down", "emptied"],
)
def test_what_becomes_of_a_node_that_ends_twice_while_it_settles(
    rotten: dict[str, bool], left_down: list[str], calls: list[str]
) -> None:
    async def scene() -> None:
        cluster: Any = MemoryCluster(
            MemoryQueues(Trap()), Trap(), capabilities=frozenset({"kill", "wipe"})
        )
        world: Any = SimpleNamespace(cluster=cluster, system=object())
        recorder: Any = MemoryRecorder()
        watch = DeathWatch(world, recorder, lambda: True, lambda: rotten)
        watch.start()
        for _ in range(2):
            cluster.service.down["n2"] = True
            cluster.on_exit(NodeExit(node="n2", exit_code=1))
            await watch._deaths.join()
        await watch.stop()
        assert cluster.left_down == left_down
        assert watch.left_down.is_set() is bool(left_down)
        assert cluster.calls == calls
        assert len(recorder.of("operator")) == ("wipe" in calls)

    asyncio.run(scene())
