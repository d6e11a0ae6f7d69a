"""A fault from outside: drawn, injected, proved, healed, proved, shrunk and told like our own."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.runs.stats import Stats
from shalott.core import doors
from shalott.core.doors import check_requirements, load_module
from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction, Plan
from shalott.harness.cli.commands import make_command
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.swarm import Subject, Swarm, draw_plan
from shalott.harness.shrinking.shrink import shrink
from shalott.nemesis.partitions import isolate
from shalott.nemesis.record import FAULTS, nemesis_names
from shalott.nemesis.requirements import check_actions
from shalott.nemesis.schedule import make_schedule
from shalott.nemesis.weaker import strength, weaker_actions
from tests.nemesis.test_runner import Scene, within
from tests.world.harness.nemesis import NODES

MODULE = "tests.nemesis.flap_fault"
LINKS = isolate(NODES, ["n2"])


@pytest.fixture(autouse=True)
def _flap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module is loaded for one test only."""
    monkeypatch.setattr(doors, "_loaded", {})
    monkeypatch.setattr(FAULTS, "_from_modules", {})
    load_module(MODULE)
    yield


def flap(**more: object) -> FaultAction:
    parameters = {"times": 5, "apart_ms": 10}
    base = {"nodes": ("n2",), "links": LINKS, "parameters": parameters, "kind": "flap", "seed": 7}
    return FaultAction(**({"id": 1, "at_ms": 0, "duration_ms": 20} | base | more))  # type: ignore[arg-type]


@pytest.mark.unit
def test_it_is_found_and_its_plan_says_who_brings_it() -> None:
    assert "flap" in nemesis_names()
    needed = FAULTS.requirement("flap")
    assert (needed.kind, needed.provider, needed.is_module) == ("fault", MODULE, True)
    assert check_requirements([needed], [FAULTS]) == []
    assert FAULTS.provider_of("partition-one").name == "shalott"  # which it has only imported


@pytest.mark.unit
def test_it_is_listed_beside_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert make_command(["faults", "--load", MODULE])() == 0
    told = capsys.readouterr().out.split()
    assert {*FAULTS.names(), "flap"} <= set(told)


@pytest.mark.unit
def test_it_is_scheduled_and_drawn_with_its_parameters() -> None:
    plan = make_plan(Request(nemesis="flap,kill", time_limit="120"), backend="local", seed=3)
    assert {need.name for need in plan.requires} >= {"flap", "kill"}
    mine = [action for action in plan.faults if action.kind == "flap"]
    assert len(mine) > 3
    for action in mine:
        assert len(action.nodes or ()) == 1
        assert action.links == isolate(NODES, action.nodes or ())
        assert action.parameters["times"] in (2, 5, 20)
    assert len({action.parameters["times"] for action in mine}) > 1
    alone = make_schedule(nemeses=["kill"], nodes=NODES, time_limit_ms=120_000, seed=3)
    both = make_schedule(nemeses=["flap", "kill"], nodes=NODES, time_limit_ms=120_000, seed=3)
    assert [a.at_ms for a in alone] == [a.at_ms for a in both if a.kind == "kill"]


@pytest.mark.unit
def test_it_is_injected_proved_healed_and_proved() -> None:
    async def scene() -> None:
        s = Scene(flap())
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls == [*(["cut", "mend"] * 5), "heal"]
        row = s.fault()
        assert row["kind"] == "flap" and row["parameters"]["times"] == 5 and row["error"] is None
        assert row["proved_effective"] is True and row["proved_healed"] is True
        (told,) = read_surroundings(s.recorder.history()).injected
        assert told.name == "1 flap n2"

    within(5, scene())


@pytest.mark.unit
@pytest.mark.parametrize("broken", ["cut_does_nothing", "mend_does_nothing"])
def test_a_planted_defect_of_the_backend_makes_the_run_unknown(broken: str) -> None:
    async def scene() -> None:
        s = Scene(flap(parameters={"times": 1}))
        setattr(s.cluster, broken, True)
        await s.perform()
        unproved = "proved_effective" if broken.startswith("cut") else "proved_healed"
        assert s.fault()[unproved] is False
        assert Stats(min_acked=0).check(s.recorder.history()).valid == "unknown"

    within(5, scene())


@pytest.mark.unit
def test_what_the_backend_can_not_do_is_the_faults_error() -> None:
    async def scene() -> None:
        s = Scene(flap())
        s.cluster.broken.add("cut")
        await s.perform()
        assert "the backend is broken" in s.fault()["error"]
        assert s.fault()["proved_effective"] is False

    within(5, scene())


@pytest.mark.unit
def test_parameters_that_it_does_not_take_are_refused() -> None:
    check_actions((flap(),), NODES)
    with pytest.raises(UsageError, match="--times often: expected `int`, got `str`"):
        check_actions((flap(parameters={"times": "often"}),), NODES)
    with pytest.raises(UsageError, match="unknown field `hours`"):
        check_actions((flap(parameters={"hours": 3}),), NODES)


@pytest.mark.unit
def test_it_is_shrunk_by_its_own_rule_and_by_everybodys() -> None:
    tried = list(weaker_actions(flap()))
    assert tried[0].kind == "partition-one" and tried[0].parameters == {}
    assert [action.parameters["times"] for action in tried[1:2]] == [2]
    assert all(strength(action) <= strength(flap()) for action in tried)
    assert any(len(action.links or ()) == 2 for action in tried)

    def fails(plan: Plan) -> bool:
        return any(a.kind == "flap" and a.parameters["times"] >= 5 for a in plan.faults)

    plan = drawn(seed=4)
    many = flap(at_ms=3000, parameters={"times": 20, "apart_ms": 100}, target="n2")
    plan = msgspec.structs.replace(plan, faults=(*plan.faults, many))
    (left,) = shrink(plan, fails, budget=2000).plan.faults
    assert left.parameters == {"times": 5, "apart_ms": 10}
    assert len(left.links or ()) == 2


def drawn(seed: int) -> Plan:
    swarm = Swarm(nodes=(3,), faults={"flap": 1.0}, time_limit_ms=(20_000,), buggify=(False,))
    return draw_plan(Subject(profile="upstream", swarm=swarm), seed)


@pytest.mark.sim
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_search_draws_it_and_the_simulation_proves_it() -> None:
    plan = drawn(seed=1)
    assert {action.kind for action in plan.faults} == {"flap"}
    outcome = simulate(plan, stop_early=False)
    assert outcome.error is None
    told = read_surroundings(outcome.history).injected
    assert [fault.kind for fault in told] == ["flap"] * len(plan.faults)
    assert all(fault.proved_effective and fault.proved_healed for fault in told)
    assert outcome.digest == simulate(plan, stop_early=False).digest
