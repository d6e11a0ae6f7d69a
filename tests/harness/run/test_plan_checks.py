"""Plans whose faults are over before the system can notice them are told before the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shalott.core.doors import load_module
from shalott.core.errors import UsageError
from shalott.core.plan import Plan
from shalott.harness.run.plan_checks import faults_too_short
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from tests.plug_ins import PlugIns, plug_ins

pytestmark = pytest.mark.unit

__all__ = ["plug_ins"]


def plan(**request: Any) -> Plan:
    return make_plan(Request(**request), backend="sim", seed=1)


def test_partitions_shorter_than_a_net_tick_are_told() -> None:
    (note,) = faults_too_short(plan(nemesis="partition", nemesis_duration="3"))
    assert note.startswith("No fault of this plan lasts longer than 3")
    assert "and mirrored notices that a node is silent after up to 5 s" in note
    (note,) = faults_too_short(plan(nemesis="pause", nemesis_duration="3"))
    assert "after up to 5 s" in note


@pytest.mark.parametrize(
    "request_of",
    [
        {"nemesis": "none"},
        {"nemesis": "partition", "nemesis_duration": "6"},
        {"nemesis": "partition,kill", "nemesis_duration": "3"},
        {"nemesis": "partition", "nemesis_duration": "3", "given": {"net-tick": "2s"}},
        {"nemesis": "kill", "nemesis_duration": "1"},
        {"nemesis": "partition", "nemesis_duration": "3", "system": "master-slave"},
    ],
)
def test_plans_that_can_be_noticed_are_not(request_of: dict[str, Any]) -> None:
    assert faults_too_short(plan(**request_of)) == ()


def test_a_follower_misses_its_leader_after_some_heartbeats() -> None:
    request: dict[str, Any] = {"system": "dledger", "nemesis": "pause", "nemesis_duration": "4"}
    (note,) = faults_too_short(plan(**request))
    assert "dledger notices that a node is silent after up to 6 s" in note
    quick = ("raft.heartbeat_interval_ms=500",)
    assert faults_too_short(plan(**request, policy=quick)) == ()


@pytest.mark.parametrize(
    ("asked", "is_allowed"),
    [
        ({"system": "kafka"}, True),
        ({"system": "toy-partitions"}, False),
        ({"system": "toy-partitions", "client": "cat"}, True),
        ({"system": "mirrored"}, True),
        ({"system": "mirrored", "workload": "consume"}, False),
        ({"system": "controller", "workload": "log"}, False),
    ],
)
def test_in_a_cluster_of_others_all_names_have_the_run_s_prefix(
    asked: dict[str, Any], is_allowed: bool, tmp_path: Path, plug_ins: PlugIns
) -> None:
    for module in ("shalott_kafka.system", "shalott_partitions.toy"):
        load_module(module)
    inventory = tmp_path / "inventory.toml"
    inventory.write_text("".join(f'[nodes.n{n}]\ncontainer = "c{n}"\n' for n in (1, 2, 3)))
    request = Request(cluster="existing", inventory=str(inventory), **asked)
    if is_allowed:
        assert make_plan(request, backend="existing", seed=1).cluster.existing
        return
    with pytest.raises(UsageError, match="whose names may be others' too"):
        make_plan(request, backend="existing", seed=1)
