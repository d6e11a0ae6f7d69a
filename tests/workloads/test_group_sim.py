"""The workload group, simulated: each feature is used, and the rows keep their contract."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from shalott.core.plan import FaultAction, Plan
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan

pytestmark = pytest.mark.sim

Row = dict[str, Any]
CALM: Mapping[str, tuple[Any, ...]] = {
    "schedule": (),
    "nodes": (3,),
    "time_limit_ms": (8000,),
    "topics": (2,),
    "queues": (2,),
    "members": (2,),
    "groups": (("concurrent", "orderly", "tagged", "broadcast"),),
    "retry_level": (1,),
    "max_reconsume": (2,),
    "clients_a_node": (2,),
    "delay_levels": (2,),
    "change_ms": (60_000,),
    "heartbeat_ms": (1000,),
    "rebalance_ms": (1000,),
    "persist_ms": (500,),
    "process_ms": (20,),
    "parallel": (4,),
    "reset_ms": (0,),
    **dict.fromkeys(("delayed", "timed", "later", "suspend", "poison", "slow", "die"), (0.0,)),
}
# Every 2.5 s the master's process ends, and comes back.
KILLS = tuple(
    FaultAction(
        id=number, at_ms=1000 + 5000 * number, duration_ms=2500, kind="kill", target="master"
    )
    for number in range(2)
)


def plan_of(seed: int = 1, system: str = "controller", **knobs: Any) -> Plan:
    swarm = USUAL.but(**{**CALM, **knobs})
    return draw_plan(Subject(system=system, profile="safe", workload="group", swarm=swarm), seed)


def rows_of(outcome: SimOutcome) -> list[Row]:
    assert outcome.error is None, outcome.error
    assert outcome.history is not None
    return [
        {**row, "extra": json.loads(row["extra"] or "{}")}
        for row in outcome.history.ops.to_pylist()
        if row["process"] >= 0
    ]


def run(plan: Plan) -> list[Row]:
    """The rows of a run that is valid."""
    outcome = simulate(plan)
    wrong = [(r.checker, r.notes, r.anomalies) for r in outcome.results if r.valid is not True]
    assert outcome.valid is True, wrong
    return rows_of(outcome)


def of_f(rows: list[Row], f: str, **extra: Any) -> list[Row]:
    return [
        row
        for row in rows
        if row["f"] == f and all(row["extra"].get(k) == v for k, v in extra.items())
    ]


def sent(rows: list[Row]) -> set[int]:
    return {row["value"] for row in of_f(rows, "send") if row["type"] == "ok"}


def test_members_that_stay_consume_everything_once() -> None:
    rows = run(plan_of())
    assert len(sent(rows)) > 50
    for group in ("concurrent", "orderly"):
        values = Counter(row["value"] for row in of_f(rows, "deliver", group=group))
        assert values == dict.fromkeys(sent(rows), 1)
    assert {row["extra"]["outcome"] for row in of_f(rows, "deliver")} == {"success"}
    assert Counter(row["extra"]["ended"] for row in of_f(rows, "member")) == {"left": 12}


def test_a_tagged_group_gets_its_tags_and_no_others() -> None:
    rows = run(plan_of(tags=(3,)))
    wanted = {row["value"] for row in of_f(rows, "send") if row["extra"]["tag"] != "tag2"}
    assert {row["value"] for row in of_f(rows, "deliver", group="tagged")} == wanted
    assert len(wanted) < len(sent(rows))


def test_every_member_of_a_broadcast_gets_everything() -> None:
    rows = run(plan_of())
    got = Counter(row["value"] for row in of_f(rows, "deliver", group="broadcast"))
    assert got == dict.fromkeys(sent(rows), 3)  # two, and the one that the drain adds
    assert not of_f(rows, "commit", group="broadcast")
    assert {row["extra"]["why"] for row in of_f(rows, "assignment", group="broadcast")} == {"first"}


def test_retries_and_dead_letters() -> None:
    rows = run(plan_of(later=(0.1,), poison=(0.1,), groups=(("concurrent",),)))
    again = [row for row in of_f(rows, "deliver") if row["key"] == "%RETRY%concurrent/0"]
    assert {row["extra"]["reconsumed"] for row in again} == {1, 2}
    assert all(row["redelivered"] and row["extra"]["origin"].startswith("shalott") for row in again)
    dead = {
        value
        for row in of_f(rows, "poll")
        if row["key"] == "%DLQ%concurrent/0"
        for _, value in row["extra"].get("records", ())
    }
    assert len(dead) >= 3 and dead <= sent(rows)


def test_an_orderly_group_locks_suspends_and_gives_up() -> None:
    rows = run(plan_of(suspend=(0.2,), poison=(0.05,), groups=(("orderly",),)))
    assert Counter(row["extra"]["outcome"] for row in of_f(rows, "deliver"))["suspend"] > 10
    assert {row["extra"]["held"] for row in of_f(rows, "lock")} >= {True}
    assert any(row["type"] == "ok" for row in of_f(rows, "send-back"))
    busy: dict[str, int] = {}
    for row in sorted(of_f(rows, "deliver"), key=lambda row: int(row["invoke_ns"])):
        assert row["invoke_ns"] >= busy.get(row["key"], 0)
        busy[row["key"]] = row["complete_ns"]


def test_delayed_messages_have_no_offset_until_they_are_due() -> None:
    rows = run(plan_of(delayed=(0.3,), groups=(("concurrent",),)))
    delayed = {r["value"]: r for r in of_f(rows, "send") if "delay" in r["extra"]}
    assert len(delayed) > 10 and all(row["offset"] is None for row in delayed.values())
    levels_ns = {1: 1e9, 2: 5e9}
    for row in of_f(rows, "deliver"):
        if row["value"] in delayed:
            send = delayed[row["value"]]
            assert row["invoke_ns"] - send["invoke_ns"] >= levels_ns[send["extra"]["delay"]] * 0.99


def test_members_come_go_and_die() -> None:
    rows = run(plan_of(change_ms=(700,), die=(0.5,), time_limit_ms=(15_000,)))
    ended = Counter(row["extra"]["ended"] for row in of_f(rows, "member"))
    assert ended["died"] >= 2 and ended["left"] >= 12
    assert Counter(row["extra"]["ended"] for row in of_f(rows, "assignment"))["rebalanced"] >= 4
    assert {row["extra"]["why"] for row in of_f(rows, "assignment")} >= {"first", "committed"}


def test_the_operator_resets_offsets() -> None:
    rows = run(
        plan_of(reset_ms=(2000,), groups=(("concurrent", "tagged"),), time_limit_ms=(20_000,))
    )
    done = [row for row in of_f(rows, "reset") if row["type"] == "ok"]
    assert len(done) >= 4 and all(row["offset"] is not None for row in done)
    assert len({row["key"] for row in done}) > 1
    values = Counter(row["value"] for row in of_f(rows, "deliver", group="concurrent"))
    assert max(values.values()) > 1


@pytest.mark.parametrize("system", ["master-slave", "dledger", "controller"])
def test_rows_keep_the_contract_while_masters_die(system: str) -> None:
    rows = run(
        plan_of(
            3,
            system,
            schedule=KILLS,
            time_limit_ms=(12_000,),
            change_ms=(1500,),
            die=(0.5,),
            **dict.fromkeys(("later", "suspend", "delayed"), (0.1,)),
        )
    )
    names = [row["extra"]["member"] for row in of_f(rows, "member")]
    assert len(names) == len(set(names))
    lives = {row["extra"]["member"]: row for row in of_f(rows, "member")}
    for f in ("assignment", "deliver", "send-back", "commit", "lock", "moved"):
        for row in of_f(rows, f):
            life = lives[row["extra"]["member"]]
            assert row["extra"]["group"] == life["extra"]["group"] == life["key"]
            assert life["invoke_ns"] <= row["invoke_ns"]
            assert row["complete_ns"] is not None and row["complete_ns"] <= life["complete_ns"]
    assigned: dict[tuple[str, str], list[Row]] = {}
    for row in of_f(rows, "assignment"):
        assert row["offset"] is not None and row["extra"]["why"] in ("committed", "first", "local")
        assert row["extra"]["ended"] in ("rebalanced", "lock-lost", "left", "died", "closed")
        assigned.setdefault((row["extra"]["member"], row["key"]), []).append(row)
    for row in of_f(rows, "deliver"):
        within = [
            one
            for one in assigned[row["extra"]["member"], row["key"]]
            if one["invoke_ns"] <= row["invoke_ns"] and row["complete_ns"] <= one["complete_ns"]
        ]
        assert len(within) == 1 and row["offset"] >= within[0]["offset"]
        assert (row["type"] == "info") == ("outcome" not in row["extra"])
    for row in of_f(rows, "commit"):
        assert row["offset"] is not None
    assert {row["key"] for row in of_f(rows, "final-offset")} >= {"%RETRY%concurrent/0"}
    assert all(row["type"] == "ok" for row in of_f(rows, "final-offset"))


def test_a_plan_is_one_run() -> None:
    plan = plan_of(5, schedule=KILLS, later=(0.1,), change_ms=(1000,), die=(0.5,))
    one, other = simulate(plan), simulate(plan)
    assert one.digest == other.digest and rows_of(one) == rows_of(other)
