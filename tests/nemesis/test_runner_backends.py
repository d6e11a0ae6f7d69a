"""The runner on real backends: every kind of fault that they can make, overlapping, is proved
effective and healed by the backend's own probes. The nodes are fake, the faults are not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from shalott.core.plan import FaultAction
from shalott.core.rng import Stream
from shalott.nemesis.clocks import FAULTS as CLOCKS
from shalott.nemesis.links import FAULTS as LINKS
from shalott.nemesis.partitions import FAULTS as PARTITIONS
from shalott.nemesis.record import FAULTS
from shalott.nemesis.runner import NemesisRunner
from tests.world.cluster.backends import fresh_run_id, make
from tests.world.cluster.fake_system import NODES, FakeSystem
from tests.world.harness.nemesis import MemoryRecorder, make_plan

APART_MS = 8000
ALL_BACK_MS = 3000  # until nodes that were all taken have come back on a busy machine

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
    """One of each, a second long: each overlaps its neighbours.

    Links and clocks are spoilt, and links cut, well before nodes are taken away: a container that
    is down has none to look at, and a busy machine takes its time to look. What is done to nodes is
    less dense, since a node that was taken has to be back before it is hit again.
    """
    actions = []
    records = [
        record
        for record in FAULTS.records()
        if {*record.needs} <= capabilities
        and all(isinstance(FakeSystem(), asked) for asked in record.asks)
        and not record.must_tell
    ]
    order = (*LINKS, *CLOCKS, *PARTITIONS)
    records.sort(key=lambda record: order.index(record) if record in order else len(order))
    at_ms, of_links = 0, sum(record in order for record in records)
    for number, record in enumerate(records, start=1):
        at_ms += 500 if record in order else 2000
        at_ms += APART_MS if number == of_links + 1 else 0
        at_ms += ALL_BACK_MS if record not in order and records[number - 2].hits_all else 0
        hit = NODES if record.hits_all else (NODES[number % 3],)
        links = record.links(NODES, hit, Stream(number)) if record.links is not None else None
        action = FaultAction(
            id=number,
            at_ms=at_ms,
            duration_ms=1000,
            kind=record.name,
            nodes=hit,
            links=links,
            amount=(record.amounts or (0,))[0],
            jitter_ms=300,
            seed=number,
            parameters={"replace": True}
            if "replace" in record.parameters.__struct_fields__
            else {},
        )
        actions.append(action)
    return actions


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(
            "local-disks",
            marks=[pytest.mark.local, pytest.mark.nightly("containers have all kinds by day")],
        ),
        pytest.param("docker-all", marks=pytest.mark.docker),
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
            runner = NemesisRunner(
                cluster, system, make_plan(*actions), recorder, client_ports=("management",)
            )
            await runner.run()
            await runner.heal()
            states = [(await cluster.processes.status(node)).state for node in NODES]
            assert states == ["running"] * 3
        finally:
            await cluster.teardown()
        faults = {row["kind"]: row for row in recorder.faults()}
        assert set(faults) == {action.kind for action in actions} >= LEAST
        failed = [
            p["extra"]
            for p in recorder.of("probe")
            if p["type"] != "ok" and not (p["error"] or "").startswith("moot")
        ]
        for kind, row in faults.items():
            assert row["error"] is None, (kind, row["error"])
            assert row["proved_effective"] and row["proved_healed"], (kind, json.dumps(failed))

    asyncio.run(scene())
