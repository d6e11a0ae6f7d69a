"""Plans carried over: the same faults and load on another system, and what can't come along."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shalott.cluster.capabilities import MOST
from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction, Plan, dump_plan
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from shalott.harness.search.carried_plans import (
    CarriedPlan,
    CarriedPlans,
    Target,
    carry,
    carry_all,
    find_plans,
)
from shalott.nemesis.targets import is_role

pytestmark = pytest.mark.unit

replace = msgspec.structs.replace
DOCKER = Target(cluster="docker", can=MOST["docker"], system="rocketmq")


def drawn(system: str, seed: int = 3, profile: str = "upstream") -> Plan:
    swarm = USUAL.but(faults={"kill": 1, "partition": 1, "pause": 1}, fault_share=1.0)
    return draw_plan(Subject(system=system, profile=profile, swarm=swarm, name="t"), seed)


@pytest.mark.parametrize("system", ["controller", "dledger", "master-slave"])
@pytest.mark.parametrize("profile", ["upstream", "safe"])
@pytest.mark.parametrize("seed", range(1, 8))
def test_a_plan_of_each_rebuild_becomes_one_of_the_original(
    system: str, profile: str, seed: int
) -> None:
    before = drawn(system, seed, profile)
    after, notes = carry(before, DOCKER)
    assert after.system.name == "rocketmq"
    assert after.system.parameters["replication"] == system
    assert (after.cluster.backend, after.cluster.nodes) == ("docker", before.cluster.nodes)
    assert after.workload.parameters == before.workload.parameters
    assert after.sim is None and after.seed == before.seed
    kept = [(a.id, a.kind, a.amount, a.target) for a in after.faults]
    assert kept == [(a.id, a.kind, a.amount, a.target) for a in before.faults]
    assert not notes
    assert not after.gates.must_settle
    assert carry(after, replace_system(DOCKER, ""))[0] == after  # and stays what it is


def test_what_a_plan_of_real_nodes_asks_for_is_asked_again() -> None:
    """A group that is stuck is a failure only where the plan says so."""
    there, _ = carry(drawn("controller"), DOCKER)
    strict = replace(there, gates=replace(there.gates, must_settle=True, must_converge=True))
    assert carry(strict, replace_system(DOCKER, ""))[0].gates == strict.gates
    simulated = replace(drawn("controller"), gates=strict.gates)
    assert not carry(simulated, DOCKER)[0].gates.must_settle


def replace_system(target: Target, system: str) -> Target:
    return Target(cluster=target.cluster, can=target.can, system=system)


def test_timings_come_along_by_upstreams_names_and_sizes_do_not() -> None:
    plan = drawn("controller")
    policy = {
        "broker.controller_heartbeat_timeout_ms": 2000,
        "ha.in_sync_replicas": 2,
        "store.flush": "sync",
        "store.segment_bytes": 65536,
        "raft.heartbeat_interval_ms": 200,
    }
    plan = replace(plan, system=replace(plan.system, policy=policy))
    after, _ = carry(plan, DOCKER)
    assert after.system.policy == {
        "controllerHeartBeatTimeoutMills": 2000,
        "inSyncReplicas": 2,
        "flushDiskType": "SYNC_FLUSH",
    }


def test_a_release_gets_no_setting_that_it_lacks() -> None:
    plan = drawn("master-slave")
    policy = {"ha.min_in_sync_replicas": 2, "ha.heartbeat_interval_ms": 1000}
    plan = replace(plan, system=replace(plan.system, policy=policy))
    old = Target(
        cluster="docker", can=MOST["docker"], system="rocketmq", parameters={"version": "4.9.7"}
    )
    assert carry(plan, old)[0].system.policy == {"haSendHeartbeatInterval": 1000}


def test_what_the_profile_and_the_user_say_comes_first() -> None:
    plan = drawn("controller")
    plan = replace(plan, system=replace(plan.system, policy={"ha.in_sync_replicas": 1}))
    target = Target(
        cluster="docker",
        can=MOST["docker"],
        system="rocketmq",
        profile="safe",
        policy={"minInSyncReplicas": 3},
    )
    policy = carry(plan, target)[0].system.policy
    assert (policy["inSyncReplicas"], policy["minInSyncReplicas"]) == (2, 3)


def test_who_was_the_master_then_is_not_the_master_now() -> None:
    plan = drawn("controller")
    known = FaultAction(
        id=1, at_ms=3000, duration_ms=2000, kind="kill", target="master", nodes=("n2",)
    )
    chosen = FaultAction(
        id=2, at_ms=9000, duration_ms=2000, kind="kill", target="n3", nodes=("n3",)
    )
    master = FaultAction(
        id=3,
        at_ms=13_000,
        duration_ms=2000,
        kind="partition-isolate-master",
        nodes=("n2",),
        links=(("n2", "n1"), ("n1", "n2")),
    )
    after, _ = carry(replace(plan, faults=(known, chosen, master)), DOCKER)
    assert [action.nodes for action in after.faults] == [None, ("n3",), None]
    assert after.faults[2].links is None
    assert is_role(after.faults[0].target)


def test_faults_that_can_not_be_made_are_left_out_and_told() -> None:
    plan = drawn("controller")
    slow = FaultAction(
        id=50, at_ms=100, duration_ms=500, kind="loss", nodes=("n1",), amount=0.05, target="n1"
    )
    target = Target(cluster="local", can=MOST["local"])
    after, notes = carry(replace(plan, faults=(slow, *plan.faults)), target)
    assert [a.kind for a in after.faults] == [a.kind for a in plan.faults]
    assert notes == ["left out, for it can't be made on local: loss at 0.1 s"]
    with pytest.raises(UsageError, match="none of its faults"):
        carry(replace(plan, faults=(slow,)), target)


def test_switches_of_known_bugs_stay_behind() -> None:
    plan = drawn("controller")
    plan = replace(plan, system=replace(plan.system, bugs=("KB-RKT-17",)))
    after, notes = carry(plan, DOCKER)
    assert not after.system.bugs
    assert "KB-RKT-17" in notes[0]


def test_a_plan_of_queues_is_no_plan_of_logs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rebuild of rocketmq"):
        carry(drawn("mirrored"), DOCKER)
    queues = tmp_path / "a.json"
    logs = tmp_path / "b.json"
    queues.write_bytes(dump_plan(drawn("mirrored")))
    logs.write_bytes(dump_plan(drawn("dledger")))
    carried, notes = carry_all([queues, logs], DOCKER)
    assert [each.origin for each in carried.carried] == [str(logs)]
    assert "is not carried over" in notes[0]
    with pytest.raises(UsageError, match="no plan can be carried over"):
        carry_all([queues], DOCKER)


@pytest.mark.parametrize("mode", ["ignore", "pause_minority"])
def test_mirrored_queues_become_rabbitmqs(mode: str) -> None:
    plan = drawn("mirrored")
    own = {**plan.system.parameters, "partition_mode": mode}
    plan = replace(plan, system=replace(plan.system, parameters=own))
    target = Target(cluster="docker", can=MOST["docker"], system="rabbitmq")
    after, _ = carry(plan, target)
    assert after.system.parameters["partition_mode"] == mode
    assert "startup_delay_ms" not in after.system.parameters
    assert after.gates.orderly_exits == (0,)


def test_a_directorys_plans_are_its_minimal_ones_where_there_are(tmp_path: Path) -> None:
    one, two = tmp_path / "seed-1", tmp_path / "seed-2"
    for directory in (one, two):
        directory.mkdir()
        (directory / "plan.json").write_bytes(dump_plan(drawn("dledger")))
        (directory / "results.json").write_text("{}")
    (two / "minimal.json").write_bytes(dump_plan(drawn("dledger")))
    named = tmp_path / "windows.json"
    named.write_bytes(dump_plan(drawn("controller")))
    found = [one / "plan.json", two / "minimal.json", named]
    assert find_plans([tmp_path]) == found
    assert find_plans([named, one]) == [named, one / "plan.json"]
    for wrong in (tmp_path / "none", _empty(tmp_path)):
        with pytest.raises(UsageError, match="there is no"):
            find_plans([wrong])


def _empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty"
    path.mkdir()
    return path


def test_plans_take_turns_and_are_told_apart() -> None:
    first, second = drawn("dledger", 1), drawn("dledger", 2)
    plans = CarriedPlans((CarriedPlan("a", first), CarriedPlan("b", second)))
    assert [plans.of(number).origin for number in (1, 2, 3, 4)] == ["a", "b", "a", "b"]
    assert plans.plan(4) == second
    other = CarriedPlans((CarriedPlan("a", first), CarriedPlan("b", first)))
    assert repr(plans) != repr(other)
