"""The runner on real backends: every kind of fault, overlapping, is proved effective and healed by
the backend's own probes. The nodes are fake, the faults are not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.plan import FaultAction
from harness.rng import Stream
from nemesis.runner import NemesisRunner
from nemesis.schedule import NEMESES, aimed_links
from tests.cluster.conftest import BACKENDS, fresh_run_id, make
from tests.cluster.fake_system import NODES, FakeSystem
from tests.nemesis.fakes import MemoryRecorder, make_plan

KINDS = [kind for kind in NEMESES if kind != "partition"]


def every_kind() -> list[FaultAction]:
    """One of each, half a second apart and a second long: each overlaps its neighbours."""
    actions = []
    for number, kind in enumerate(KINDS, start=1):
        hit = NODES if kind == "restart-all" else (NODES[number % 3],)
        links = None
        if kind.startswith("partition"):
            links = aimed_links(kind, NODES, hit, Stream(number))
        action = FaultAction(
            id=number,
            at_ms=500 * number,
            duration_ms=1000,
            kind=kind,
            nodes=hit,
            links=links,
            jitter_ms=300,
            seed=number,
        )
        actions.append(action)
    return actions


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_every_kind_of_fault_is_proved_on_a_real_backend(backend: str, tmp_path: Path) -> None:
    async def scene() -> None:
        cluster, system = make(backend, fresh_run_id(), tmp_path), FakeSystem()
        recorder = MemoryRecorder()
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, NODES, 20_000)
            runner = NemesisRunner(cluster, system, make_plan(*every_kind()), recorder)
            await runner.run()
            await runner.heal()
            states = [(await cluster.status(node)).state for node in NODES]
            assert states == ["running"] * 3
        finally:
            await cluster.teardown()
        faults = {row["kind"]: row for row in recorder.faults()}
        assert set(faults) == set(KINDS)
        failed = [p["extra"] for p in recorder.of("probe") if p["type"] != "ok"]
        for kind, row in faults.items():
            assert row["error"] is None, (kind, row["error"])
            assert row["proved_effective"] and row["proved_healed"], (kind, failed)

    asyncio.run(scene())
