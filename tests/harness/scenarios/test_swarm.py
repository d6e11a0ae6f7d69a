"""The swarm: whole plans from seeds, every knob drawn on its own, within what a profile allows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import UsageError
from shalott.core.plan import Plan, dump_plan, load_plan
from shalott.core.rng import Range
from shalott.harness.run.plan_checks import check_plan
from shalott.harness.scenarios.catalogue import (
    KNOWN_BUGS,
    SCENARIOS,
    WINDOWS,
    scenario_of,
    scenario_of_bug,
)
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from shalott.nemesis.requirements import required_capabilities
from shalott.nemesis.targets import is_single
from tests.world.harness.nemesis import PlainSystem

pytestmark = pytest.mark.explore

SEEDS = range(1, 101)
SAFE, UPSTREAM = Subject(profile="safe"), Subject(profile="upstream")


def flat(plan: Plan) -> dict[str, object]:
    """Every scalar of a plan by its path; the faults as one."""
    found: dict[str, object] = {"faults": repr(plan.faults)}

    def walk(prefix: str, struct: msgspec.Struct) -> None:
        for name in struct.__struct_fields__:
            value = getattr(struct, name)
            if isinstance(value, msgspec.Struct):
                walk(f"{prefix}{name}.", value)
            elif isinstance(value, dict) and name == "parameters":
                found.update({f"{prefix}{key}": repr(inner) for key, inner in value.items()})
            elif f"{prefix}{name}" != "faults":
                found[f"{prefix}{name}"] = repr(value)

    walk("", plan)
    return found


def test_a_seed_is_one_plan_and_another_seed_is_another_plan() -> None:
    plans = [draw_plan(SAFE, seed) for seed in SEEDS]
    assert plans == [draw_plan(SAFE, seed) for seed in SEEDS]
    assert len({dump_plan(plan) for plan in plans}) == len(SEEDS)


def test_every_knob_is_drawn() -> None:
    seen: dict[str, set[bytes]] = {}
    for seed in SEEDS:
        for name, value in flat(draw_plan(UPSTREAM, seed)).items():
            seen.setdefault(name, set()).add(msgspec.json.encode(value))
    constant = {name for name, values in seen.items() if len(values) == 1}
    assert constant == {
        "version", "name", "time_limit_ms", "quiet_ms", "settle_timeout_ms", "reread",
        "cluster.backend", "cluster.leave_running", "cluster.ssh", "cluster.existing",
        "cluster.power_loss", "system.name",
        "system.profile", "system.bugs",
        "system.services", "system.operator", "workload.name", "workload.ack_mode",
        "workload.client",
         "workload.durable", "workload.persistent", "workload.confirms", "workload.depth",
         "workload.transactions",
         "workload.ack_after_ms", "gates.delivery",
         "gates.max_rto_ms", "gates.min_acked", "gates.min_rate_share", "gates.must_settle",
         "gates.must_not_crash",
        "gates.must_stay_up", "gates.orderly_exits",
        "gates.must_converge", "gates.one_master", "gates.crash_text", "sim.buggify_off",
        "sim.buggify_on", "sim.callback_cost_ns", "sim.schedule",
    }  # fmt: skip


def test_a_knob_that_may_be_something_else_moves_no_other_draw() -> None:
    other = dataclasses.replace(SAFE, swarm=USUAL.but(rate_hz=Range(1, 3), latency_us=(7, 8, 9)))
    for seed in SEEDS:
        first, second = flat(draw_plan(SAFE, seed)), flat(draw_plan(other, seed))
        differing = {name for name in first if first[name] != second[name]}
        assert differing == {"workload.rate_hz", "sim.network.latency_us"}


def test_the_safe_profile_draws_only_what_it_promises_to_survive() -> None:
    for seed in SEEDS:
        plan = draw_plan(SAFE, seed)
        assert plan.system.parameters["partition_mode"] == "pause_minority"
        assert plan.system.policy["ha-sync-mode"] == "automatic"
        assert plan.system.policy["ha-promote-on-failure"] == "when-synced"
        assert plan.system.policy["ha-promote-on-shutdown"] == "when-synced"
        assert all(not a.target or is_single(a.target) for a in plan.faults)
        assert not any(a.kind.endswith("-all") for a in plan.faults)


def test_plans_are_whole_before_the_run_and_stay_within_the_load(tmp_path: Path) -> None:
    for seed in SEEDS:
        plan = draw_plan(UPSTREAM, seed)
        check_plan(plan)
        assert plan.sim is not None
        assert plan.faults
        assert all(a.at_ms + a.duration_ms <= plan.time_limit_ms for a in plan.faults)
        assert all(a.nodes is not None or a.target == "master" for a in plan.faults)
    path = tmp_path / "plan.json"
    path.write_bytes(dump_plan(plan))
    assert load_plan(path) == plan


def test_a_few_hundred_seeds_hold_every_kind_of_fault_and_both_sizes() -> None:
    plans = [draw_plan(SAFE, seed) for seed in range(1, 301)]
    needed = required_capabilities(tuple(a for plan in plans for a in plan.faults))
    assert {"power", "pause", "cut-one-way", "loss", "clock", "disk-error", "disk-full"} <= needed
    assert {len(plan.cluster.nodes) for plan in plans} == {3, 5}


def test_a_schedule_of_ones_own_is_taken_as_it_is() -> None:
    schedule = draw_plan(SAFE, 4).faults
    swarm = USUAL.but(nodes=(5,), schedule=schedule)
    assert draw_plan(Subject(swarm=swarm), 99).faults == schedule


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda scenario: scenario.id)
def test_every_scenario_draws_plans_with_and_without_its_bug(scenario: object) -> None:
    found = SCENARIOS[getattr(scenario, "id", "")]
    for seed in range(1, 21):
        plan, sound = draw_plan(found.subject(), seed), draw_plan(found.sound_subject(), seed)
        assert plan.system.bugs == tuple(sorted((*found.bugs, *found.stage)))
        assert sound.system.bugs == tuple(sorted(found.stage))
        if not found.bugs:
            assert found.sound, "a loss window must say what closes it"
    assert found.seed_budget > 0
    assert found.anomaly


def test_scenarios_have_ids_of_their_own() -> None:
    assert len(SCENARIOS) == len(KNOWN_BUGS) + len(WINDOWS)
    assert scenario_of_bug("KB-RMQ-22") == SCENARIOS["KB-RMQ-22"]
    assert scenario_of_bug("KB-RMQ-99") is None


def test_whether_replicas_agree_is_asked_only_where_they_are_recorded() -> None:
    assert draw_plan(SAFE, 1).gates.must_converge
    ours = SYSTEMS.find("mirrored")
    SYSTEMS.offer(dataclasses.replace(ours, name="plain", make=lambda plan: PlainSystem()))
    gates = draw_plan(Subject(system="plain", profile="safe"), 1).gates
    assert not gates.must_converge and gates.must_settle and gates.must_not_crash


def test_an_unknown_scenario_is_one_clear_sentence() -> None:
    with pytest.raises(UsageError, match=r"^there is no scenario KB-RMQ-222: did you mean KB-RMQ"):
        scenario_of("KB-RMQ-222")
    with pytest.raises(UsageError, match=r"^there is no scenario x: there are KB-"):
        scenario_of("x")


def test_an_unknown_bug_or_profile_is_one_clear_sentence() -> None:
    with pytest.raises(UsageError, match=r"there is no known bug KB-RMQ-999"):
        draw_plan(Subject(bugs=("KB-RMQ-999",)), 1)
    with pytest.raises(UsageError, match=r"^unknown profile x: choose one of"):
        draw_plan(Subject(profile="x"), 1)
    with pytest.raises(UsageError, match=r"^unknown system x: choose one of"):
        draw_plan(Subject(system="x"), 1)
