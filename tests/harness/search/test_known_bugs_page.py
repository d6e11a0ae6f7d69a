"""docs/evidence/known-bugs.md and what is measured for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shalott.broker.known_bugs import CATALOGUE
from shalott.checkers.checker import Anomaly, Result
from shalott.core.errors import StoreError
from shalott.core.plan import Plan
from shalott.harness.run.simulate import SimOutcome
from shalott.harness.scenarios.catalogue import SCENARIOS
from shalott.harness.search.known_bugs_page import (
    COSTS,
    DOCUMENT,
    Cost,
    Plain,
    load_costs,
    measure,
    measure_plain,
    render,
    write,
)
from tests.tidy.sources import ROOT
from tests.world.harness.toy_simulation import simulate_toy

pytestmark = pytest.mark.unit

SOME = Cost(
    seeds="50000-50199", found_after=3, seed=50_002, cpu_s=2.25, virtual_s=40, controls=3,
    plain=Plain(found=True, runs=7, cpu_s=9.9),
)  # fmt: skip
IN_VAIN = Cost(
    seeds="50000-50199", found_after=None, seed=None, cpu_s=90.0, virtual_s=900, controls=5,
    control_findings=1,
)  # fmt: skip


def row_of(document: str, name: str) -> str:
    (row,) = [
        line for line in document.splitlines() if line.startswith((f"| [{name}]", f"| {name} |"))
    ]
    return row


def test_the_document_lists_every_bug_and_every_window() -> None:
    document = render({})
    for name in (*(bug.id for bug in CATALOGUE), *SCENARIOS):
        assert "not measured" in row_of(document, name)
    for bug in CATALOGUE:
        assert f"\n## {bug.id}\n" in document
        assert all(f"<{link}>" in document for link in bug.links)


def test_a_row_says_what_was_measured() -> None:
    document = render({"KB-RMQ-22": SOME, "L1": IN_VAIN})
    assert row_of(document, "KB-RMQ-22").endswith("| lost | 50 | 3 | 2.2 | 0 of 3 | 7 | 9.9 |")
    assert row_of(document, "L1").endswith("| not found | 90.0 | 1 of 5 | - | - |")


@pytest.mark.parametrize(
    ("control", "error", "findings"),
    [("lost", None, 0), ("duplicated", None, 2), ("lost", "it never booted", 2)],
)
def test_a_control_shows_nothing_but_what_is_said_to_remain(
    control: str, error: str | None, findings: int
) -> None:
    scenario = SCENARIOS["KB-RMQ-29"]
    assert set(scenario.remains) == {"lost"}
    tried: list[Plan] = []

    def simulate(plan: Plan, **_: object) -> SimOutcome:
        tried.append(plan)
        kinds = (control, scenario.anomaly) if len(tried) == 2 else (control,)
        anomalies = tuple(Anomaly(kind=kind, summary="seen") for kind in kinds)
        result = Result(checker="a-checker", valid=False, anomalies=anomalies)
        return replace(simulate_toy(plan), valid=False, results=(result,), error=error)

    cost = measure(scenario, range(7, 20), simulate)
    assert (cost.found_after, cost.controls, cost.control_findings) == (2, 2, findings)


def test_costs_of_what_is_gone_are_forgotten(tmp_path: Path) -> None:
    write(tmp_path, {"KB-RMQ-22": SOME, "KB-RMQ-999": SOME})
    assert load_costs(tmp_path) == {"KB-RMQ-22": SOME}
    assert load_costs(tmp_path / "elsewhere") == {}


def test_a_broken_file_of_costs_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / COSTS).parent.mkdir()
    (tmp_path / COSTS).write_text("{")
    with pytest.raises(StoreError, match=rf"^cannot read .*{COSTS}: "):
        load_costs(tmp_path)


def test_the_document_in_docs_lists_every_bug() -> None:
    document = (ROOT / "docs" / DOCUMENT).read_text(encoding="utf-8")
    for bug in CATALOGUE:
        advice = f"{bug.id} is not as the catalogue has it: run `shalott bugs --document`"
        assert bug.title in row_of(document, bug.id), advice
        assert f"- Trigger: {bug.trigger}." in document, advice


@pytest.mark.parametrize(("off", "runs"), [("duplicated", 3), ("lost", 5)])
def test_the_plain_search_counts_what_is_not_there_without_the_bug(off: str, runs: int) -> None:
    """The third run shows it, and the control of it perhaps as well."""
    scenario = SCENARIOS["KB-RMQ-22"]
    tried: list[Plan] = []

    def simulate(plan: Plan, **_: object) -> SimOutcome:
        tried.append(plan)
        is_on = "KB-RMQ-22" in plan.system.bugs
        kind = (scenario.anomaly if len(tried) >= 3 else "duplicated") if is_on else off
        result = Result(checker="a", valid=False, anomalies=(Anomaly(kind=kind, summary="seen"),))
        return replace(simulate_toy(plan), valid=False, results=(result,))

    plain = measure_plain(scenario, range(7, 12), simulate)
    assert plain is not None and (plain.found, plain.runs) == (runs == 3, runs)
    assert len({plan.workload.name for plan in tried}) > 1
    assert measure_plain(SCENARIOS["L1"], range(7, 12), simulate) is None
