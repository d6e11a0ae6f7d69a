"""Whole runs in the simulation: every kind of fault is made, proved, healed and proved healed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from shalott.cluster.system import DeclaresQueues, FailsOver, MovesMirrors
from shalott.core.errors import MissingCapability
from shalott.core.plan import FaultAction, Plan
from shalott.core.rng import Stream
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from shalott.nemesis import clocks, disks, links, operators, partitions, processes
from shalott.nemesis.record import FAULTS, FaultRecord

pytestmark = [
    pytest.mark.sim,
    # A killed node is frozen, never cancelled: nobody closes what it had open.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NODES = ("n1", "n2", "n3")


def plan_of(*actions: FaultAction, limit_ms: int, system: str = "mirrored") -> Plan:
    swarm = USUAL.but(
        nodes=(3,), schedule=actions, time_limit_ms=(limit_ms,), buggify=(False,), loss=(0.0,)
    )
    return draw_plan(Subject(system=system, profile="upstream", swarm=swarm), 5)


def one_of_each(
    records: Sequence[FaultRecord], *, apart_ms: int, lasts_ms: int
) -> list[FaultAction]:
    actions = []
    for number, record in enumerate(records, start=1):
        # Lasting harm may hit one node only, the first is the master; the others take turns.
        is_first = record.does_not_heal or FailsOver in record.asks
        node = NODES[0] if is_first else NODES[number % 3]
        hit = NODES if record.hits_all else (node,)
        actions.append(
            FaultAction(
                id=number,
                at_ms=2000 + apart_ms * number,
                duration_ms=lasts_ms,
                kind=record.name,
                nodes=hit,
                links=record.links(NODES, hit, Stream(number)) if record.links else None,
                amount=record.amounts[0] if record.amounts else 0,
                seed=number,
            )
        )
    return actions


def fault_rows(outcome: SimOutcome) -> list[dict[str, Any]]:
    rows = outcome.history.ops.to_pylist()
    return [
        json.loads(row["extra"]) | {"error": row["error"]}
        for row in rows
        if row["process"] == -1 and FAULTS.has(row["f"])
    ]


# Of single packets, which a simulated stream does not have.
OF_PACKETS = {"duplicate", "reorder", "corrupt"}
STREAMS = tuple(record for record in links.FAULTS if not OF_PACKETS & {*record.needs})

OF_QUEUES = tuple(
    record for record in operators.FAULTS if {DeclaresQueues, MovesMirrors} & {*record.asks}
)
BY_HAND = tuple(record for record in operators.FAULTS if record not in OF_QUEUES)


@pytest.mark.parametrize(
    ("system", "records", "apart_ms", "lasts_ms"),
    [
        ("mirrored", partitions.FAULTS, 1500, 1000),
        ("mirrored", processes.FAULTS, 4000, 1500),
        ("mirrored", OF_QUEUES, 4000, 1500),
        ("mirrored", (*STREAMS, *clocks.FAULTS), 700, 2000),  # each overlaps its neighbours
        ("mirrored", disks.FAULTS, 4000, 1500),
        ("master-slave", BY_HAND, 4000, 1500),
    ],
)
def test_every_kind_is_proved_in_the_simulation(
    system: str, records: Sequence[FaultRecord], apart_ms: int, lasts_ms: int
) -> None:
    actions = one_of_each(records, apart_ms=apart_ms, lasts_ms=lasts_ms)
    limit_ms = max(action.at_ms + action.duration_ms for action in actions) + 2000
    outcome = simulate(plan_of(*actions, limit_ms=limit_ms, system=system), stop_early=False)
    assert outcome.error is None
    rows = {row["kind"]: row for row in fault_rows(outcome)}
    assert list(rows) == [action.kind for action in actions]
    for name, row in rows.items():
        assert row["error"] is None, (name, row["error"])
        assert row["proved_effective"] and row["proved_healed"], row
        assert row.get("amount", 0) == (FAULTS.find(name).amounts or (0,))[0]


def test_a_node_whose_syncs_fail_gives_itself_up_and_the_run_goes_on() -> None:
    error = FaultAction(
        id=1, at_ms=3000, duration_ms=3000, kind="disk-error", nodes=("n2",), seed=1
    )
    outcome = simulate(plan_of(error, limit_ms=12_000))
    (row,) = fault_rows(outcome)
    assert row["exited"] == {"n2": [70]}
    assert row["proved_effective"] and row["proved_healed"] and row["error"] is None
    assert outcome.valid != "unknown" and "crashed" not in outcome.anomalies
    assert outcome.virtual_ns > 12_000_000_000


def test_what_happens_to_single_packets_is_refused_in_one_sentence() -> None:
    action = FaultAction(
        id=1, at_ms=2000, duration_ms=1000, kind="reorder", nodes=("n2",), amount=0.25, seed=1
    )
    sentence = r"can't reorder packets \(reorder\): its links carry streams, which have no packets"
    with pytest.raises(MissingCapability, match=sentence):
        simulate(plan_of(action, limit_ms=5000))
