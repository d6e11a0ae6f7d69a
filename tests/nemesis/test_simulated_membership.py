"""Whole runs in the simulation: nodes are restarted in turn, leave and join; nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from shalott.checkers.history.faults import read_surroundings
from shalott.core.plan import FaultAction, Plan
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from shalott.nemesis.record import FAULTS

pytestmark = [
    pytest.mark.sim,
    # A killed node is frozen, never cancelled: nobody closes what it had open.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NODES = ("n1", "n2", "n3")


def plan_of(
    *actions: FaultAction, system: str, seed: int, limit_ms: int, layout: str = "together"
) -> Plan:
    swarm = USUAL.but(
        nodes=(3,),
        layouts=(layout,),
        schedule=actions,
        time_limit_ms=(limit_ms,),
        buggify=(False,),
        loss=(0.0,),
    )
    return draw_plan(Subject(system=system, profile="safe", swarm=swarm), seed)


def rows_of(outcome: SimOutcome) -> list[dict[str, Any]]:
    return [
        json.loads(row["extra"]) | {"error": row["error"]}
        for row in outcome.history.ops.to_pylist()
        if row["process"] == -1 and FAULTS.has(row["f"])
    ]


def assert_valid(outcome: SimOutcome) -> None:
    assert outcome.error is None
    for row in rows_of(outcome):
        assert row["error"] is None and not row.get("refused") and not row.get("refused_at_end")
        assert row["proved_effective"] and row["proved_healed"], row
    assert outcome.valid is True, outcome.anomalies


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("system", ["mirrored", "controller", "master-slave", "dledger"])
def test_a_rolling_restart_loses_nothing(system: str, seed: int) -> None:
    action = FaultAction(
        id=1, at_ms=3000, duration_ms=1500, kind="rolling-restart", nodes=NODES, seed=seed
    )
    outcome = simulate(plan_of(action, system=system, seed=seed, limit_ms=40_000))
    assert_valid(outcome)
    (row,) = rows_of(outcome)
    assert row["rolled"] == list(NODES)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_replaced_nodes_come_back_empty_and_nothing_is_lost(seed: int) -> None:
    actions = [
        FaultAction(
            id=number + 1,
            at_ms=3000 + 8000 * number,
            duration_ms=500 + 700 * (seed + number) % 4000,
            kind="replace-node",
            nodes=(NODES[(seed + number) % 3],),
            seed=seed + number,
            settle=True,
        )
        for number in range(2)
    ]
    outcome = simulate(plan_of(*actions, system="mirrored", seed=seed, limit_ms=24_000))
    assert_valid(outcome)
    assert len(rows_of(outcome)) == 2


def removal(seed: int, *, and_back: bool) -> tuple[FaultAction, ...]:
    node = NODES[seed % 3]
    out = FaultAction(
        id=1,
        at_ms=3000,
        duration_ms=1000,
        kind="remove-node",
        nodes=(node,),
        seed=seed,
        settle=True,
    )
    back = FaultAction(
        id=2, at_ms=9000, duration_ms=1000, kind="add-node", nodes=(node,), seed=seed, settle=True
    )
    return (out, back) if and_back else (out,)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nobody_waits_for_a_node_that_was_removed(seed: int) -> None:
    actions = removal(seed, and_back=False)
    outcome = simulate(plan_of(*actions, system="mirrored", seed=seed, limit_ms=14_000))
    assert_valid(outcome)
    around = read_surroundings(outcome.history)
    assert around.left_out == actions[0].nodes
    settle, drain = around.phase("settle"), around.phase("drain")
    assert settle is not None and settle.settled is True
    assert drain is not None and drain.end_ns is not None
    assert drain.end_ns - drain.begin_ns < 20_000_000_000  # it has a minute, and does not need it
    drained = {
        row["node"]
        for row in outcome.history.ops.to_pylist()
        if row["process"] >= 0 and row["invoke_ns"] >= drain.begin_ns
    }
    assert drained == {*NODES} - {around.left_out[0]}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_node_that_was_removed_and_added_ends_as_a_member(seed: int) -> None:
    actions = removal(seed, and_back=True)
    outcome = simulate(plan_of(*actions, system="mirrored", seed=seed, limit_ms=18_000))
    assert_valid(outcome)
    assert read_surroundings(outcome.history).left_out == ()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_broker_of_controllers_is_replaced_by_an_empty_one(seed: int) -> None:
    action = FaultAction(
        id=1,
        at_ms=3000,
        duration_ms=2000,
        kind="replace-node",
        nodes=(NODES[seed % 3],),
        seed=seed,
        settle=True,
    )
    plan = plan_of(action, system="controller", seed=seed, limit_ms=30_000, layout="separate")
    assert_valid(simulate(plan))


@pytest.mark.parametrize("and_back", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_broker_of_controllers_leaves_for_good_or_comes_back(seed: int, and_back: bool) -> None:
    actions = removal(seed, and_back=and_back)
    later = msgspec.structs.replace(actions[-1], at_ms=9000 if not and_back else 25_000)
    plan = plan_of(
        *(*actions[:-1], later), system="controller", seed=seed, limit_ms=40_000, layout="separate"
    )
    outcome = simulate(plan)
    assert_valid(outcome)
    left_out = read_surroundings(outcome.history).left_out
    assert left_out == (() if and_back else actions[0].nodes)
