"""Every planted bug and every loss window is found within its budget, and nothing without it.

The seeds begin where SHALOTT_PLANTED_SEEDS says, or at a fixed number to which nobody tuned a
scenario. With the variable set the control, which has the switch off, runs all seeds up to the one
that found the bug; by default it runs that one and a few before it, for time's sake.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shalott.broker.known_bugs import CATALOGUE, KnownBug
from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.catalogue import SCENARIOS, scenario_of_bug
from shalott.harness.scenarios.scenario import Scenario
from shalott.harness.scenarios.swarm import draw_plan
from shalott.harness.search.known_bugs_page import measure

pytestmark = pytest.mark.sim

ROOT = Path(__file__).resolve().parents[2]

ASKED = os.environ.get("SHALOTT_PLANTED_SEEDS")
FIRST_SEED = int(ASKED) if ASKED else 70_000
CONTROLS = 2


# Their scenarios take the most seeds, or the longest ones.
LONG = (
    *("KB-RKT-10", "KB-RKT-13", "KB-RKT-15", "KB-RKT-16", "KB-RKT-18", "KB-RKT-19", "KB-RKT-20"),
    *("KB-RKT-23", "KB-RKT-24", "KB-DL-14", "KB-DL-15", "KB-RMQ-29"),
    *("KB-RKT-12", "KB-RKT-27", "KB-RKT-A", "KB-DL-13", "KB-DL-16", "OUR-02", "OUR-04", "OUR-05"),
    *("OUR-09", "OUR-10", "L1", "L2", "L4", "L5", "L6", "L7", "L8", "L9", "W-MS-1", "W-DL-1"),
)
NIGHT = pytest.mark.nightly("longest of its kind")
CASES = [
    pytest.param(each, id=each.id, marks=NIGHT if each.id in LONG else ())
    for each in SCENARIOS.values()
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", CASES)
def test_it_is_found_within_its_budget_and_not_without_it(scenario: Scenario) -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + scenario.seed_budget)
    cost = measure(scenario, seeds, simulate, controls=len(seeds) if ASKED else CONTROLS)
    assert cost.found_after is not None, f"not found in {len(seeds)} seeds from {FIRST_SEED}"
    assert cost.control_findings == 0, f"not clean without the bug, by seed {cost.seed}"


@pytest.mark.parametrize("bug", CATALOGUE, ids=lambda bug: bug.id)
def test_every_bug_of_the_catalogue_has_a_scenario_or_a_test(bug: KnownBug) -> None:
    if not bug.shown_by:
        assert scenario_of_bug(bug.id) is not None
        return
    assert scenario_of_bug(bug.id) is None, "a search looks for it: shown_by is out of date"
    assert f'"{bug.id}"' in (ROOT / bug.shown_by).read_text()


# L1 and L2 come as L4, their usual form: nodes restart, and nobody synchronises them.
NAMED = {
    "L1": ("L1", "L2", "L4"),
    "L2": ("L1", "L2", "L4"),
    "L3": ("L3",),
    "L4": ("L1", "L2", "L4"),
    "L5": ("L5",),
    "L6": ("L6",),
    "L7": ("L7",),
    "L8": ("L8",),
}


@pytest.mark.parametrize(
    "window", [pytest.param(each, marks=NIGHT if each in LONG else ()) for each in NAMED]
)
def test_a_window_that_was_open_explains_every_loss(window: str) -> None:
    """Each of its steps is seen in what the nodes tell: nothing is left unexplained."""
    subject = SCENARIOS[window].subject()
    for seed in range(FIRST_SEED, FIRST_SEED + SCENARIOS[window].seed_budget):
        outcome = simulate(draw_plan(subject, seed))
        (judged,) = [result for result in outcome.results if result.checker == "total-queue"]
        if judged.counts["lost-provably-count"]:
            assert set(judged.detail["loss"]["by-cause"]) <= set(NAMED[window])
            return
    pytest.fail(f"no loss in {SCENARIOS[window].seed_budget} seeds")
