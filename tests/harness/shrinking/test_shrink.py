"""Shrinking: minimal plans by a pure oracle, closed under every step, never beyond the budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import FaultAction, Plan, dump_plan, load_plan
from shalott.harness.report.results import Violation
from shalott.harness.run.plan_checks import check_plan
from shalott.harness.run.simulate import SimOutcome
from shalott.harness.run.simulation_record import load_record
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from shalott.harness.shrinking import candidates
from shalott.harness.shrinking.candidates import measure
from shalott.harness.shrinking.shrink import ddmin, shrink
from shalott.harness.shrinking.simulated_shrink import fails_by, shrink_plan
from shalott.nemesis.record import FAULTS
from tests.world.harness.toy_simulation import loses, simulate_toy

pytestmark = pytest.mark.explore

UPSTREAM = Subject(profile="upstream", swarm=USUAL.but(nodes=(5,), fault_share=1))
replace = msgspec.structs.replace


@cache
def failing_plans(count: int) -> list[Plan]:
    """Drawn plans in which the toy loses a message."""
    plans = (draw_plan(UPSTREAM, seed) for seed in range(1, 400))
    return list(islice(filter(loses, plans), count))


# -- ddmin -----------------------------------------------------------------------------------------


@given(st.integers(1, 24), st.data())
@settings(max_examples=200, deadline=None)
def test_ddmin_finds_the_least_cause_and_asks_for_proper_subsets_only(
    size: int, data: st.DataObject
) -> None:
    cause = data.draw(st.sets(st.integers(0, size - 1), max_size=4))

    def still_fails(subset: Sequence[int]) -> bool:
        assert len(subset) < size
        return cause <= set(subset)

    assert ddmin(range(size), still_fails) == sorted(cause)


@given(st.integers(1, 12), st.integers(0, 2**64))
@settings(max_examples=100, deadline=None)
def test_ddmin_ends_where_no_single_item_can_go(size: int, salt: int) -> None:
    """For oracles as wild as they come: subsets fail or not by their hash."""

    def still_fails(subset: Sequence[int]) -> bool:
        return len(subset) == size or hash((salt, tuple(subset))) % 3 == 0

    least = ddmin(list(range(size)), still_fails)
    assert still_fails(least)
    assert not any(still_fails([x for x in least if x != gone]) for gone in least)


# -- the candidates --------------------------------------------------------------------------------

STEPS = (
    candidates.fewer_operations,
    candidates.fewer_nodes,
    candidates.weaker,
    candidates.shorter,
    candidates.calmer,
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: str(step.__name__))
def test_every_candidate_is_a_plan_that_can_run_and_that_is_smaller(
    step: Callable[[Plan], Sequence[Plan]],
) -> None:
    for seed in range(1, 21):
        plan = draw_plan(UPSTREAM, seed)
        for candidate in step(plan):
            check_plan(candidate)
            assert candidate != plan
            assert measure(candidate) < measure(plan), msgspec.to_builtins(candidate)


def test_a_cut_ends_what_goes_on_and_drops_what_comes_later() -> None:
    plan = draw_plan(UPSTREAM, 3)
    cut = candidates.cut_at(plan, 20_000)
    assert cut.time_limit_ms == 20_000
    assert [a.id for a in cut.faults] == [a.id for a in plan.faults if a.at_ms < 20_000]
    assert all(a.at_ms + a.duration_ms <= 20_000 for a in cut.faults)


def test_a_node_that_goes_takes_its_faults_and_its_clock_with_it() -> None:
    plan = draw_plan(UPSTREAM, 1)
    assert plan.sim is not None
    kill = FaultAction(id=1, at_ms=1000, duration_ms=9, kind="kill", target="n4", nodes=("n4",))
    both = replace(kill, id=2, target="n4+n5", nodes=("n4", "n5"))
    links = (("n1", "n4"), ("n1", "n2"))
    cut = FaultAction(id=3, at_ms=1, duration_ms=9, kind="partition-one", links=links)
    broken = replace(plan, faults=(kill, both, cut))
    without = {smaller.cluster.nodes: smaller for smaller in candidates.fewer_nodes(broken)}
    smaller = without[("n1", "n2", "n3", "n5")]
    assert [(a.id, a.target, a.nodes, a.links) for a in smaller.faults] == [
        (2, "n5", ("n5",), None),
        (3, "", None, (("n1", "n2"),)),
    ]
    assert smaller.sim is not None
    assert all(clock.node != "n4" for clock in smaller.sim.clocks)


# -- the whole -------------------------------------------------------------------------------------


def test_a_plan_shrinks_to_its_cause() -> None:
    for plan in failing_plans(10):
        shrunk = shrink(plan, loses, budget=2000)
        assert shrunk.whole
        assert loses(shrunk.plan)
        assert len(shrunk.plan.faults) == 2
        first, second = sorted(shrunk.plan.faults, key=lambda action: action.kind == "power")
        assert second.kind == "power"  # the bug needs it; the other one is as weak as can be
        assert FAULTS.find(first.kind).strength <= 40
        hit = {node for action in shrunk.plan.faults for node in action.nodes or ()}
        assert len(shrunk.plan.cluster.nodes) <= max(len(hit), 1) or first.links is not None
        needed = {need.name for need in shrunk.plan.requires if need.kind == FAULTS.kind}
        assert needed == {action.kind for action in shrunk.plan.faults}
        assert shrunk.plan.workload.rate_hz == 1
        assert shrunk.plan.workload.parameters["queues"] == 1
        assert shrunk.plan.time_limit_ms <= 10_000
        assert shrunk.plan.sim is not None
        assert not shrunk.plan.sim.buggify
        assert shrunk.plan.sim.network == candidates.CALM_NETWORK


def test_shrinking_what_is_minimal_changes_nothing() -> None:
    minimal = shrink(failing_plans(1)[0], loses, budget=2000).plan
    assert shrink(minimal, loses, budget=2000).plan == minimal


def test_no_plan_is_run_twice_and_the_budget_is_never_exceeded() -> None:
    plan = failing_plans(1)[0]
    for budget in (0, 1, 5, 20, 40):
        ran: list[bytes] = []

        def probe(candidate: Plan, ran: list[bytes] = ran) -> bool:
            ran.append(dump_plan(candidate))
            return loses(candidate)

        shrunk = shrink(plan, probe, budget=budget)
        assert len(ran) == shrunk.probes <= budget
        assert len(set(ran)) == len(ran)
        assert loses(shrunk.plan)
        assert not shrunk.whole
        assert measure(shrunk.plan) <= measure(plan)


def test_a_failure_without_any_fault_is_found_to_need_none() -> None:
    plan = failing_plans(1)[0]
    shrunk = shrink(plan, lambda candidate: candidate.workload.rate_hz >= 5, budget=500)
    assert shrunk.plan.faults == ()
    assert shrunk.plan.workload.rate_hz == 5


def test_weaker_faults_are_preferred_down_to_what_still_fails() -> None:
    power = FaultAction(
        id=1, at_ms=9000, duration_ms=4000, kind="power", target="n2", nodes=("n2",)
    )
    plan = replace(draw_plan(UPSTREAM, 1), faults=(power,))

    def needs_an_end(candidate: Plan) -> bool:
        return any(action.kind in ("power", "kill", "stop") for action in candidate.faults)

    assert [a.kind for a in shrink(plan, needs_an_end, budget=500).plan.faults] == ["stop"]


def test_a_partition_becomes_one_way_and_as_narrow_as_it_can() -> None:
    links = tuple((a, b) for a in ("n1", "n2") for b in ("n3", "n4", "n5"))
    links += tuple((b, a) for a, b in links)
    cut = FaultAction(id=1, at_ms=5000, duration_ms=5000, kind="partition-halves", links=links)
    plan = replace(draw_plan(UPSTREAM, 1), faults=(cut,))

    def needs_a_link(candidate: Plan) -> bool:
        return any(("n4", "n2") in (action.links or ()) for action in candidate.faults)

    (left,) = shrink(plan, needs_a_link, budget=500).plan.faults
    assert (left.kind, left.links) == ("partition-one-way", (("n4", "n2"),))


def test_only_the_buggify_site_that_matters_stays_loud() -> None:
    plan = draw_plan(UPSTREAM, 1)
    assert plan.sim is not None
    plan = replace(plan, sim=replace(plan.sim, buggify=True))
    sites = ("a", "b", "c", "d", "e")

    def needs_c(candidate: Plan) -> bool:
        sim = candidate.sim
        return sim is not None and sim.buggify and "c" not in sim.buggify_off

    sim = shrink(plan, needs_c, budget=500, sites=sites).plan.sim
    assert sim is not None
    assert sim.buggify_off == ("a", "b", "d", "e")


def test_what_every_pass_gained_is_told() -> None:
    told: list[tuple[str, int]] = []
    shrink(
        failing_plans(1)[0],
        loses,
        budget=2000,
        tell=lambda name, plan, probes: told.append((name, len(plan.faults))),
    )
    assert [name for name, _ in told][:2] == ["cut after the violation", "fewer faults"]
    assert told[-1][1] == 2


# -- the command -----------------------------------------------------------------------------------


def stored(plan: Plan, directory: Path) -> Path:
    path = directory / "plan.json"
    path.write_bytes(dump_plan(plan))
    return path


def test_the_minimal_plan_is_stored_with_its_digest(tmp_path: Path) -> None:
    path = stored(failing_plans(1)[0], tmp_path)
    assert shrink_plan(path, budget=2000, anomaly="", out=None, simulate=simulate_toy) == 0
    minimal = load_plan(tmp_path / "minimal.json")
    record = load_record(tmp_path / "minimal.json")
    assert loses(minimal)
    assert len(minimal.faults) == 2
    assert record is not None
    assert record.digest == simulate_toy(minimal).digest
    assert record.violations == ("lost",)


def test_the_oracle_is_the_same_checker_and_the_same_class() -> None:
    plan = failing_plans(1)[0]
    assert fails_by(plan, Violation("toy-queue", "lost"), simulate_toy)
    assert not fails_by(plan, Violation("other-queue", "lost"), simulate_toy)
    assert not fails_by(plan, Violation("toy-queue", "diverged"), simulate_toy)
    # a checker's remark is no violation
    assert not fails_by(plan, Violation("toy-masters", "dual-master-claimed"), simulate_toy)


def test_a_plan_that_does_not_fail_is_refused_in_one_sentence(tmp_path: Path) -> None:
    plan = replace(draw_plan(UPSTREAM, 1), faults=())
    with pytest.raises(UsageError, match=r"does not fail here: there is nothing to shrink$"):
        shrink_plan(stored(plan, tmp_path), budget=9, anomaly="", out=None, simulate=simulate_toy)


def test_an_anomaly_that_the_plan_does_not_have_is_refused(tmp_path: Path) -> None:
    path = stored(failing_plans(1)[0], tmp_path)
    with pytest.raises(UsageError, match=r"does not fail by diverged: it fails by lost$"):
        shrink_plan(path, budget=9, anomaly="diverged", out=None, simulate=simulate_toy)
    with pytest.raises(UsageError, match=r"^--budget 0: give 1 or more$"):
        shrink_plan(path, budget=0, anomaly="", out=None, simulate=simulate_toy)


def test_a_minimal_plan_with_two_digests_is_the_simulations_fault(tmp_path: Path) -> None:
    path = stored(failing_plans(1)[0], tmp_path)
    calls = iter(range(10_000))

    def simulate(
        plan: Plan, *, stop_early: bool = True, label_chunk: int | None = None, order: bool = False
    ) -> SimOutcome:
        return dataclasses.replace(simulate_toy(plan), digest=str(next(calls)))

    with pytest.raises(HarnessError, match=r"the simulation is not deterministic$"):
        shrink_plan(path, budget=3, anomaly="", out=None, simulate=simulate)
