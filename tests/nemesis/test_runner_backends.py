"""The runner on real backends: every kind of fault that they can make, overlapping, is proved
effective and healed by the backend's own probes. The nodes are fake, the faults are not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shalott.harness.core.plan import FaultAction
from shalott.harness.core.rng import Stream
from shalott.nemesis.links import FAULTS as LINKS
from shalott.nemesis.partitions import FAULTS as PARTITIONS
from shalott.nemesis.record import FAULTS
from shalott.nemesis.runner import NemesisRunner
from tests.world.cluster.backends import fresh_run_id, make
from tests.world.cluster.fake_system import NODES, FakeSystem
from tests.world.harness.nemesis import MemoryRecorder, make_plan

# What both can, whatever the kernel.
LEAST = {
    *(record.name for record in PARTITIONS),
    "kill",
    "stop",
    "pause",
    "restart-all",
    "kill-all",
}


def every_kind(capabilities: frozenset[str]) -> list[FaultAction]:
    """One of each, half a second apart and a second long: each overlaps its neighbours.

    Links are shaped before nodes are taken away: a container that is down has no links to look at.
    """
    actions = []
    records = [record for record in FAULTS.records() if {*record.needs} <= capabilities]
    records.sort(key=lambda record: record not in LINKS)
    for number, record in enumerate(records, start=1):
        hit = NODES if record.hits_all else (NODES[number % 3],)
        links = record.links(NODES, hit, Stream(number)) if record.links is not None else None
        action = FaultAction(
            id=number,
            at_ms=500 * number,
            duration_ms=1000,
            kind=record.name,
            nodes=hit,
            links=links,
            amount=(record.amounts or (0,))[0],
            jitter_ms=300,
            seed=number,
        )
        actions.append(action)
    return actions


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("local", marks=pytest.mark.local),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def test_every_kind_of_fault_is_proved_on_a_real_backend(backend: str, tmp_path: Path) -> None:
    async def scene() -> None:
        cluster, system = make(backend, fresh_run_id(), tmp_path), FakeSystem()
        recorder = MemoryRecorder()
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, NODES, 20_000)
            actions = every_kind(cluster.capabilities)
            runner = NemesisRunner(cluster, system, make_plan(*actions), recorder)
            await runner.run()
            await runner.heal()
            states = [(await cluster.status(node)).state for node in NODES]
            assert states == ["running"] * 3
        finally:
            await cluster.teardown()
        faults = {row["kind"]: row for row in recorder.faults()}
        assert set(faults) == {action.kind for action in actions} >= LEAST
        failed = [p["extra"] for p in recorder.of("probe") if p["type"] != "ok"]
        for kind, row in faults.items():
            assert row["error"] is None, (kind, row["error"])
            assert row["proved_effective"] and row["proved_healed"], (kind, failed)

    asyncio.run(scene())
