"""Plans and swarms of RocketMQ's systems: defaults, refusals, and what is drawn."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from shalott.cluster.systems.record import SYSTEMS
from shalott.cluster.systems.rocket.drawing import (
    EVERYWHERE,
    OF_SYSTEM,
    SAFE_SETTINGS,
    TWICE_WITHIN,
)
from shalott.cluster.systems.rocket.settings import check_settings
from shalott.core.errors import UsageError
from shalott.core.generator import TimeLimit
from shalott.core.log_generator import ReadAll
from shalott.core.plan import Plan, canonical, nodes_hosting
from shalott.harness.run.coverage import sometimes
from shalott.harness.run.plan_checks import check_plan
from shalott.harness.run.planning import make_plan, repeat_command
from shalott.harness.run.request import Request
from shalott.harness.scenarios.swarm import (
    DENSE,
    USUAL,
    Subject,
    draw_plan,
    fault_kinds,
    plain_subject,
    wanted_events,
)
from shalott.harness.search.search import SearchRequest, plan_search
from shalott.harness.shrinking import candidates
from shalott.workloads.log import log_workload
from tests.checkers.histories import Story

LOG_SYSTEMS = ("master-slave", "dledger", "controller")
pytestmark = pytest.mark.explore


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_a_plan_needs_no_more_than_its_system(system: str) -> None:
    plan = make_plan(Request(system=system), backend="sim", seed=1)
    assert plan.workload.name == "log"
    assert plan.name == f"{system}-upstream-log"
    assert plan.system.policy == {} and plan.system.parameters == {}


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_the_users_settings_lie_over_the_profiles(system: str) -> None:
    policy = ("store.segment_bytes=65536", "store.flush=")
    request = Request(system=system, profile="safe", policy=policy)
    plan = make_plan(request, backend="sim", seed=1)
    wanted = {**SAFE_SETTINGS[system], "store.segment_bytes": 65536}
    assert plan.system.policy == {name: v for name, v in wanted.items() if name != "store.flush"}


def test_the_queue_systems_keep_their_default() -> None:
    assert {record.name: record.workload for record in SYSTEMS.records()} == {
        "mirrored": "queue", "rabbitmq": "queue",
        "master-slave": "log", "dledger": "log", "controller": "log",
        "rocketmq": "log", "compose": "queue",
    }  # fmt: skip
    request = Request()
    assert make_plan(request, backend="local", seed=3).workload.name == "queue"
    assert repeat_command(request, 3) == "shalott test --seed 3"


REFUSED = {
    "a queue of a log": (
        Request(system="dledger", workload="queue"),
        "the workload queue is for mirrored, rabbitmq, and not for dledger",
    ),
    "a log of queues": (
        Request(workload="log"),
        "the workload log is for controller, dledger, master-slave, rocketmq, and not for mirrored",
    ),
    "a partition mode": (
        Request(system="controller", given={"partition-mode": "autoheal"}),
        "--partition-mode is a parameter of mirrored and rabbitmq",
    ),
    "an unknown setting": (
        Request(system="controller", policy=("ha.in_sink_replicas=2",)),
        "did you mean ha.in_sync_replicas",
    ),
    "another system's bug": (
        Request(system="dledger", bug=("KB-RKT-01",)),
        "KB-RKT-01 is a bug of master-slave, not of dledger",
    ),
    "a mirrored bug": (
        Request(system="dledger", bug=("KB-RMQ-02",)), "KB-RMQ-02 is a bug of mirrored",
    ),
    "a log's bug": (
        Request(bug=("KB-DL-01",)), "KB-DL-01 is a bug of dledger, not of mirrored",
    ),
    "a startup delay": (
        Request(system="dledger", given={"startup-delay": "1s"}), "parameter of mirrored",
    ),
    "an unknown layout": (
        Request(system="controller", layout="x"),
        "^unknown layout x: choose one of together, separate, standalone$",
    ),
    "too few nodes for a layout": (
        Request(system="controller", layout="standalone"),
        "^--layout standalone of controller needs at least 4 nodes, .* the plan has 3: use --no",
    ),
    "a layout of mirrored queues": (
        Request(layout="separate"), "^mirrored has no services to lay out on its nodes: leave out",
    ),
    "an unknown profile": (
        Request(system="dledger", profile="fast"), "unknown profile fast: choose one of upstream",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_one_sentence(case: str) -> None:
    request, sentence = REFUSED[case]
    with pytest.raises(UsageError, match=sentence):
        make_plan(request, backend="sim", seed=1)


# -- layouts ---------------------------------------------------------------------------------------


def laid_out(system: str, layout: str, nodes: str, **more: Any) -> Plan:
    request = Request(system=system, layout=layout, nodes=nodes, **more)
    return make_plan(request, backend="sim", seed=1)


def test_a_plan_says_which_node_hosts_what() -> None:
    plan = laid_out("controller", "standalone", "7")
    assert {service: nodes_hosting(plan, service) for service in ("broker", "controller")} == {
        "broker": ("n1", "n2", "n3"), "controller": ("n5", "n6", "n7"),
    }  # fmt: skip
    assert nodes_hosting(plan, "nameserver") == ("n4",)
    assert canonical(plan) == plan
    together = laid_out("controller", "together", "3")
    assert together.system.services == {}
    assert nodes_hosting(together, "controller") == ("n1", "n2", "n3")


def test_clients_are_bound_to_brokers_alone() -> None:
    plan = laid_out("dledger", "separate", "5")
    workload = log_workload(plan)
    assert plan.workload.concurrency == 6 and plan.workload.parameters["queues"] == 3
    assert workload.nodes == ("n1", "n2", "n3")
    assert workload.several is not None
    at = workload.several.at
    assert [at(node, "remoting") for node in workload.nodes] == ["n1", "n2", "n3"]
    reading = workload.final_generator
    assert isinstance(reading, TimeLimit) and isinstance(reading.inner, ReadAll)
    assert {node for node, _ in reading.inner.open} == {"n1", "n2", "n3"}
    assert [at(node, "nameserver") for node in workload.nodes] == ["n4", "n5", "n4"]
    together = log_workload(laid_out("dledger", "together", "3")).several
    assert together is not None
    assert [together.at(node, "nameserver") for node in ("n1", "n3")] == ["n1", "n3"]
    with pytest.raises(UsageError, match="2 leaves some of the 3 nodes without a client"):
        laid_out("dledger", "separate", "5", concurrency="2")


def test_a_repeated_command_lays_out_as_it_did() -> None:
    request = Request(system="controller", layout="separate", nodes="6")
    command = "shalott test --system controller --nodes 6 --layout separate --seed 3"
    assert repeat_command(request, 3) == command


@pytest.mark.parametrize("name", ["mirrored", "dledger", "controller"])
def test_a_stored_plan_with_impossible_services_is_refused(name: str) -> None:
    plan = make_plan(Request(system=name), backend="sim", seed=1)
    system = msgspec.structs.replace(plan.system, services={"n1": ("broker",)})
    with pytest.raises(UsageError, match="services|hosts"):
        check_plan(msgspec.structs.replace(plan, system=system))


def test_a_smaller_plan_keeps_a_node_for_each_service() -> None:
    """A shrinker takes nodes away: never the last one of a kind."""
    plan = laid_out("controller", "separate", "3", nemesis="none")
    seen = [smaller.system.services for smaller in candidates.fewer_nodes(plan)]
    both = ("nameserver", "controller")
    assert seen == [{"n1": ("broker",), "n3": both}, {"n2": ("broker",), "n3": both}]
    for smaller in candidates.fewer_nodes(plan):
        check_plan(smaller)
    fewer = [p.workload.concurrency for p in candidates.fewer_operations(plan)]
    assert min(fewer) == 2  # a client for each broker


# -- the swarm -------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_what_is_drawn_keeps_the_promise_of_safe(system: str) -> None:
    drawn: dict[str, set[object]] = {}
    for seed in range(1, 40):
        plan = draw_plan(Subject(system=system, profile="safe"), seed)
        check_plan(plan)
        assert plan.workload.name == "log"
        assert SAFE_SETTINGS[system].items() <= plan.system.policy.items()
        assert all(action.kind != "disk-corrupt" for action in plan.faults)
        for name, value in plan.system.policy.items():
            drawn.setdefault(name, set()).add(value)
    constant = {name for name, values in drawn.items() if len(values) == 1}
    assert constant == set(SAFE_SETTINGS[system])


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_what_keeps_alive_comes_twice_before_it_is_missed(system: str) -> None:
    """Slaves of a quiet group left the SyncStateSet and came back, and it was never ready."""
    capped, choices = 0, {**EVERYWHERE, **OF_SYSTEM[system]}
    for seed in range(1, 60):
        policy = draw_plan(Subject(system=system, profile="safe"), seed).system.policy
        for period, limit in TWICE_WITHIN:
            assert period not in policy or 2 * policy[period] <= policy.get(limit, 1 << 30)
            capped += period in policy and policy[period] not in choices[period]
    assert capped > 2


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_half_of_a_search_takes_several_nodes_at_once(system: str) -> None:
    subject = plain_subject(system, "safe")
    one_node = several = 0
    for seed in range(1, 40):
        plan = draw_plan(subject, seed)
        check_plan(plan)
        assert SAFE_SETTINGS[system].items() <= plan.system.policy.items()
        assert all(action.kind != "disk-corrupt" for action in plan.faults)
        is_wide = any(a.kind.endswith("-all") or a.target == "majority" for a in plan.faults)
        if any(action.settle for action in plan.faults):
            one_node += 1
            assert not is_wide
        several += is_wide
    assert one_node > 8 and several > 8, (one_node, several)
    assert {"power-all", "kill"} <= set(fault_kinds(subject))


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_few_searched_clusters_have_services_on_nodes_of_their_own(system: str) -> None:
    """And who draws a layout moves nobody else's draws: all other seeds are as they were."""
    subject = plain_subject(system, "safe")
    together = replace(subject, swarm=subject.swarm.but(layouts=("together",)))
    laid_out_plans = []
    for seed in range(1, 150):
        plan = draw_plan(subject, seed)
        check_plan(plan)
        if plan.system.services:
            laid_out_plans.append(plan)
        else:
            assert plan == draw_plan(together, seed)
    assert 3 <= len(laid_out_plans) <= 40
    assert {len(nodes_hosting(plan, "broker")) for plan in laid_out_plans} <= {2, 3}
    for plan in laid_out_plans:
        before = draw_plan(together, plan.seed)
        assert plan.system.policy == before.system.policy
        assert len(plan.cluster.nodes) >= 5
    kinds = {len(dict.fromkeys(plan.system.services.values())) for plan in laid_out_plans}
    assert kinds == ({2, 3} if system == "controller" else {2})


def test_other_searches_keep_their_promise() -> None:
    """They draw moments and schedules beside."""
    for system, profile in (("mirrored", "safe"), ("dledger", "upstream")):
        plain = plain_subject(system, profile).swarm
        assert plain.triggered > 0 and plain.scheduled > 0
        assert plain.interval_ms == DENSE
        own = {"promises": (), "more_faults": {}, "interval_ms": USUAL.interval_ms}
        own |= {"outages": 0.0, "outage_ms": 0, "outage_parameters": {}}
        bare = plain.but(triggered=0.0, scheduled=0.0, **own)
        assert dataclasses.replace(bare, knobs={}) == USUAL


def test_upstream_may_rot_disks_and_lose_all_nodes() -> None:
    kinds = fault_kinds(Subject(system="controller", profile="upstream"))
    assert {"disk-corrupt", "power-all"} <= set(kinds)
    assert "disk-corrupt" in fault_kinds(Subject(profile="safe"))


def test_a_scenarios_settings_lie_over_what_is_drawn() -> None:
    swarm = USUAL.but(policies=({"raft.heartbeat_interval_ms": 77, "store.segment_bytes": None},))
    subject = Subject(system="dledger", swarm=swarm, workload="elections")
    plan = draw_plan(subject, 4)
    assert plan.system.policy["raft.heartbeat_interval_ms"] == 77
    assert "store.segment_bytes" not in plan.system.policy
    assert plan.workload.name == "elections"
    check_settings("dledger", plan.system.policy)


def test_a_search_of_a_log_system_is_planned() -> None:
    search = plan_search(SearchRequest(system="dledger", profile="safe", seeds="5"))
    assert search.subject.name == "dledger-safe" and len(search.seeds) == 5
    wanted = search.wanted_events
    assert {"became_master", "mastership_moved", "fault_kill"} <= set(wanted)
    assert "promoted" not in wanted and "set_expanded" not in wanted


# -- coverage --------------------------------------------------------------------------------------


def test_moves_of_mastership_and_changes_of_sets_are_counted() -> None:
    told = Story(queue="shalott").role("n1", 1, "master", 1).role("n2", 1, "slave", 1)
    for at, members in ((2, ["n1", "n2"]), (5, ["n1"]), (7, ["n1", "n2"])):
        told.event("n1", at, "set_changed", "", 0, set=members)
    told.role("n2", 9, "master", 2).event("n1", 10, "truncated", "slave", 2)
    told.event("n3", 9, "elected", "", 2, master="n2", set=["n2"])
    told.row("send", 1, value=1)
    counts = sometimes(told.history())
    assert counts["became_master"] == 2 and counts["became_slave"] == 1
    assert counts["mastership_moved"] == 1 and counts["elected"] == 1 and counts["truncated"] == 1
    assert counts["set_expanded"] == 2 and counts["set_shrunk"] == 1


def test_mirrored_masters_are_not_counted_so() -> None:
    told = Story().role("n1", 1, "master", 1).role("n2", 1, "mirror", 1).row("enqueue", 1, value=1)
    assert "became_master" not in sometimes(told.history())


def test_each_systems_searches_want_what_it_can_show() -> None:
    assert "set_shrunk" in wanted_events(plain_subject("controller", "safe"))
    assert "mastership_moved" not in wanted_events(plain_subject("master-slave", "safe"))
    assert "promoted" in wanted_events(plain_subject("mirrored", "safe"))
