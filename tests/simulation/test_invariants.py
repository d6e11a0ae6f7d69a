"""I1 to I4 over whole simulated runs: judged, kept by sound brokers, broken by known bugs."""

from __future__ import annotations

import pytest

from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.catalogue import SCENARIOS
from shalott.harness.scenarios.swarm import draw_plan

LOG_SYSTEMS = ("master-slave", "dledger", "controller")
pytestmark = pytest.mark.sim

FIRST_SEED = 70_000


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_a_failover_keeps_all_of_them(system: str) -> None:
    request = Request(
        system=system, profile="safe", cluster="sim", rate=30.0, time_limit="12", nemesis="kill",
        targets="master", nemesis_interval="5", nemesis_duration="2",
    )  # fmt: skip
    outcome = simulate(make_plan(request, backend="sim", seed=2))
    assert outcome.error is None and outcome.valid is True, outcome.results
    found = {result.checker: result.counts for result in outcome.results}
    judged = [name for name in found if name[:2] in ("i1", "i2", "i3", "i4")]
    assert len(judged) == (4 if system == "controller" else 3)
    assert all(found[name]["judged-count"] > 0 for name in judged), found
    assert found["i3-master-has-acked"]["judged-count"] > 1  # there were two tenures at least
    assert found["i1-acked-on-members"]["acked-count"] > 10


@pytest.mark.parametrize(
    ("bug", "invariant", "seeds"),
    [
        ("KB-RKT-10", "i1-acked-on-members", 4),
        ("KB-RKT-14", "i3-master-has-acked", 2),
        ("KB-DL-01", "i3-master-has-acked", 2),
        ("KB-DL-21", "i4-one-master-an-epoch", 2),
    ],
)
def test_a_known_bug_breaks_one(bug: str, invariant: str, seeds: int) -> None:
    subject = SCENARIOS[bug].subject()
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        outcome = simulate(draw_plan(subject, seed), stop_early=False)
        broken = [result.checker for result in outcome.results if result.valid is False]
        if invariant in broken:
            return
    pytest.fail(f"{invariant} held in {seeds} seeds with {bug}")
