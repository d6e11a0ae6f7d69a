"""A few small plans have the digests that are written down in golden-digests.json, on every version
of Python.

A change of what the simulated world sees (of a broker, a client, the nemesis, the network or the
disk) changes digests; then write them anew and say in the commit why they changed:

    python -m tests.simulation.test_golden_digests

If they differ in one version of Python alone, something that runs in the simulation depends on the
version: on the order of a set, the text of an error, or the turn of the loop in which asyncio does
something (cluster/sim/loop/tasks.py). `shalott replay` of the plan names the event.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from shalott.cluster.sim.loop.trace import DIGEST_VERSION
from shalott.core.plan import load_plan
from shalott.harness.run.simulate import simulate
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.sim

HERE = ROOT / "tests" / "simulation"
PLANS = sorted((HERE / "golden").glob("*.json"))
GOLDEN = HERE / "golden-digests.json"


def outcome_of(plan: Path) -> dict[str, object]:
    """What is written down of a plan's run."""
    outcome = simulate(load_plan(plan), stop_early=False)
    assert outcome.error is None
    return {
        "anomalies": list(outcome.anomalies),
        "digest": outcome.digest,
        "segments": outcome.segments,
        "virtual_ns": outcome.virtual_ns,
    }


def test_the_digests_are_of_this_kind_and_of_these_plans() -> None:
    golden = json.loads(GOLDEN.read_text())
    assert golden["digest_version"] == DIGEST_VERSION
    assert list(golden["plans"]) == [plan.stem for plan in PLANS]
    systems = {load_plan(plan).system.name for plan in PLANS}
    assert systems == {"controller", "dledger", "master-slave", "mirrored"}


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_a_plan_has_its_digest(plan: Path) -> None:
    assert outcome_of(plan) == json.loads(GOLDEN.read_text())["plans"][plan.stem]


def write() -> None:
    """Write down what the plans' runs are now."""
    plans = {plan.stem: outcome_of(plan) for plan in PLANS}
    text = json.dumps({"digest_version": DIGEST_VERSION, "plans": plans}, indent=1)
    GOLDEN.write_text(f"{text}\n")
    sys.stdout.write(f"{GOLDEN.relative_to(ROOT)}: {len(plans)} plans\n")


if __name__ == "__main__":
    write()
