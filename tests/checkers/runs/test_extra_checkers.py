"""Checkers that come through the door: which judge a run, and what of theirs is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from shalott.checkers.checker import CHECKERS, Anomaly, Checker, Result
from shalott.checkers.runs.compose import (
    Outside,
    check_all,
    extra_checkers,
    extra_requirements,
)
from shalott.checkers.runs.standard import RUN_WIDE, common_checkers
from shalott.checkers.runs.stats import Stats
from shalott.core.doors import load_module
from shalott.core.history import History
from shalott.core.plan import GatePlan, Plan, SystemPlan
from shalott.workloads.record import WORKLOADS
from tests.checkers.runs.test_compose import good
from tests.plug_ins import PlugIns, plug_ins
from tests.world.harness.memory import memory_plan

pytestmark = pytest.mark.unit

__all__ = ["plug_ins"]

ALL_GATES = GatePlan(
    must_settle=True,
    must_not_crash=True,
    must_stay_up=True,
    orderly_exits=(0,),
    must_converge=True,
    one_master=True,
)

OF_EVERY_RUN = ("rates", "noticed", "stalls")

PLUG_IN = '''
from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.checker import CheckerRecord


class Late:
    """No operation takes longer than a millisecond."""

    name = "late"

    def __init__(self, most_ns):
        self.most_ns = most_ns

    def check(self, history):
        late = [
            row["index"]
            for row in history.ops.to_pylist()
            if row["complete_ns"] and row["complete_ns"] - row["invoke_ns"] > self.most_ns
        ]
        found = Anomaly(kind="late", summary=f"{len(late)} were late", operations=tuple(late[:32]))
        return Result(checker="late", valid=not late, anomalies=(found,) if late else ())


RECORD = CheckerRecord(
    name="late",
    summary="whether an operation took too long",
    make=lambda plan: Late(1_000_000),
    reads=("operations",),
    promise="Every operation is answered within a millisecond.",
    source="the operator's handbook",
    fits=lambda plan: plan.name != "slow",
)
'''


def plan_of(gates: GatePlan | None = None, **fields: Any) -> Plan:
    return msgspec.structs.replace(memory_plan(), gates=gates or GatePlan(), **fields)


def configurable(checkers: Sequence[Checker]) -> tuple[Checker, ...]:
    """Without those that no workload configures: they judge every run."""
    names = tuple(checker.name for checker in checkers)
    assert all(names.count(name) == 1 for name in OF_EVERY_RUN)
    return tuple(checker for checker in checkers if checker.name not in OF_EVERY_RUN)


def test_our_own_come_through_the_door() -> None:
    assert CHECKERS.records()[: len(RUN_WIDE)] == RUN_WIDE
    assert CHECKERS.requirement("stats").provider == "shalott"
    for record in RUN_WIDE:
        assert record.make(plan_of()).name == record.name
        assert record.promise.endswith(".") and record.source and record.reads and record.summary


@pytest.mark.parametrize("gates", [GatePlan(), ALL_GATES, GatePlan(max_rto_ms=7, min_acked=3)])
def test_without_plug_ins_they_are_what_a_run_was_always_judged_by(gates: GatePlan) -> None:
    plan = plan_of(gates, observe_interval_ms=123)
    assert configurable(extra_checkers(plan)) == common_checkers(gates, poll_round_ms=123)


@pytest.mark.parametrize("gates", [GatePlan(), ALL_GATES])
@pytest.mark.parametrize("workload", ["queue", "lock", "fifo", "metadata", "log", "elections"])
def test_what_a_workload_has_configured_itself_does_not_judge_twice(
    workload: str, gates: GatePlan
) -> None:
    system = "dledger" if "rocketmq-remoting" in WORKLOADS.find(workload).needs else "mirrored"
    plan = msgspec.structs.replace(plan_of(gates), system=SystemPlan(name=system, profile="safe"))
    own = WORKLOADS.find(workload).checkers(plan)
    assert configurable(extra_checkers(plan, own)) == ()
    without = [checker for checker in own if not isinstance(checker, Stats)]
    assert configurable(extra_checkers(plan, without)) == (Stats(min_acked=50),)


def test_a_loaded_checker_judges_the_plans_that_it_fits(plug_ins: PlugIns) -> None:
    plug_ins.module("mine", PLUG_IN)
    before = extra_checkers(plan_of())
    load_module("mine")
    (late,) = [each for each in extra_checkers(plan_of()) if each not in before]
    assert late.name == "late"
    assert extra_checkers(plan_of(name="slow")) == before
    result = check_all((late,), good().history()).of("late")
    assert result.valid is False and len(result.anomalies[0].operations) == 32
    (needed,) = extra_requirements(plan_of())
    assert (needed.kind, needed.name, needed.provider, needed.is_module) == (
        "checker", "late", "mine", True,
    )  # fmt: skip
    assert extra_requirements(plan_of(name="slow")) == ()


def test_an_installed_checker_judges_though_another_can_not_be_imported(
    plug_ins: PlugIns,
) -> None:
    plug_ins.module("acme", PLUG_IN)
    plug_ins.module("bad", "import no_such_library")
    plug_ins.distribution("acme-checkers", "shalott.checkers", late="acme:RECORD")
    plug_ins.distribution("bad-checkers", "shalott.checkers", lost="bad:RECORD")
    verdict = check_all(extra_checkers(plan_of()), good().history())
    assert verdict.of("late").valid is False
    assert verdict.of("mastership").valid is True
    told = verdict.of("checkers")
    assert told.valid is True
    assert told.notes[0].startswith("bad-checkers's checker lost can't be used: ModuleNotFound")


def test_two_providers_of_one_name_are_refused(plug_ins: PlugIns) -> None:
    """Which of them was meant is not known: the others judge, and the run is unknown."""
    for name in ("one", "two"):
        plug_ins.module(name, PLUG_IN)
        plug_ins.distribution(f"dist-{name}", "shalott.checkers", late=f"{name}:RECORD")
    verdict = check_all(extra_checkers(plan_of()), good().history())
    assert verdict.valid == "unknown" and verdict.of("stats").valid is True
    assert "late is provided by dist-one and by dist-two" in verdict.of("checkers").notes[0]


@pytest.mark.parametrize(
    "broken",
    [
        PLUG_IN.replace('plan.name != "slow"', "plan.no_such_field"),
        PLUG_IN.replace("Late(1_000_000)", "1 / 0"),
        PLUG_IN.replace("late = [", "raise SystemExit(0)\n        late = ["),
        PLUG_IN.replace("return Result", "Result"),
        PLUG_IN.replace("not late,", "'maybe',"),
    ],
    ids=["fits", "make", "it ends the process", "it returns nothing", "no verdict"],
)
def test_a_checker_that_crashes_is_unknown(plug_ins: PlugIns, broken: str) -> None:
    assert broken != PLUG_IN
    plug_ins.module("mine", broken)
    load_module("mine")
    verdict = check_all(extra_checkers(plan_of()), good().history())
    assert verdict.valid == "unknown" and verdict.of("stats").valid is True
    assert verdict.of("late").notes[0].startswith("The checker late crashed: ")


def test_the_name_of_a_checker_of_the_workload_is_taken(plug_ins: PlugIns) -> None:
    plug_ins.module("mine", PLUG_IN.replace('"late"', '"total-queue"'))
    load_module("mine")
    own = WORKLOADS.find("queue").checkers(plan_of())
    (renamed,) = configurable(extra_checkers(plan_of(), own))
    result = check_all((renamed,), good().history()).of("total-queue (plug-in)")
    assert result.valid == "unknown"
    assert "the workload has a checker total-queue of its own: rename" in result.notes[0]


@dataclass(frozen=True)
class Giving:
    """A checker that gives what it is told to."""

    result: Any
    name: str = "giving"

    def check(self, history: History) -> Result:
        found: Result = self.result
        return found


def result_with(**fields: Any) -> Result:
    return Result(checker="x", **{"valid": True, **fields})


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "it returned NoneType, not a Result"),
        ({"valid": True}, "it returned dict, not a Result"),
        (result_with(valid=None), "Expected `bool | str`, got `null`"),
        (result_with(valid="fine"), "valid is True, False or 'unknown', not 'fine'"),
        (result_with(counts={"n": "many"}), "Expected `int | float`, got `str`"),
        (result_with(detail={"when": object()}), "type object is unsupported"),
        (result_with(detail={"loss": {}}), "a detail 'loss' is total-queue's"),
        (
            result_with(anomalies=(Anomaly(kind="k", summary="s", detail={"begin_ns": "soon"}),)),
            "Expected `int | null`, got `str` - at `$.begin_ns`",
        ),
    ],
)
def test_what_is_no_result_is_not_believed(result: Any, said: str) -> None:
    verdict = check_all((Outside("giving", Giving(result)),), good().history())
    assert verdict.valid == "unknown"
    assert said in verdict.of("giving").notes[0]


def test_a_result_has_the_name_of_its_record() -> None:
    checker = Outside("giving", Giving(result_with(valid=False)))
    verdict = check_all((checker,), good().history())
    assert verdict.of("giving").valid is False
