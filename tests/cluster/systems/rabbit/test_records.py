"""Which windows of loss the settings of a plan rule out, as docs/evidence/loss-windows.md has
it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from shalott.checkers.queues.total_queue import TotalQueue
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.plan import Plan
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.workloads.record import WORKLOADS

pytestmark = pytest.mark.unit


def plan_of(system: str, **flags: Any) -> Plan:
    request = dataclasses.replace(Request(system=system, nemesis="none"), **flags)
    return make_plan(request, backend="docker", seed=1)


def closed(plan: Plan) -> set[str]:
    """As the checker of the plan's workload has been told."""
    checkers = WORKLOADS.find(plan.workload.name).checkers(plan)
    (judge,) = [each for each in checkers if isinstance(each, TotalQueue)]
    assert set(judge.guarantees.closed) == set(SYSTEMS.find(plan.system.name).closes(plan))
    return set(judge.guarantees.closed)


def test_under_safe_our_replicas_have_no_window_left() -> None:
    every = {"L1", "L2", "L3", "L4", "L8", "L11", "L12"}
    assert closed(plan_of("mirrored", profile="safe")) == every


def test_rabbitmq_keeps_those_of_pauses_and_of_the_last_moment() -> None:
    assert closed(plan_of("rabbitmq", profile="safe")) == {"L1", "L2", "L4", "L8"}


@pytest.mark.parametrize("system", ["mirrored", "rabbitmq"])
def test_upstream_closes_what_is_closed_by_default(system: str) -> None:
    assert closed(plan_of(system)) == {"L8"}
    assert closed(plan_of(system, policy=("ha-promote-on-shutdown=always",))) == set()


@pytest.mark.parametrize("mode", ["ignore", "autoheal"])
def test_without_a_quorum_partitions_lose(mode: str) -> None:
    plan = plan_of("mirrored", profile="safe", given={"partition-mode": mode})
    assert closed(plan) == {"L1", "L2", "L4", "L8"}
