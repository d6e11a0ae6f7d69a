"""docs/evidence/known-bugs.md and what is measured for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shalott.broker.known_bugs import CATALOGUE
from shalott.core.errors import StoreError
from shalott.harness.scenarios.catalogue import SCENARIOS
from shalott.harness.search.known_bugs_page import COSTS, DOCUMENT, Cost, load_costs, render, write
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit

SOME = Cost(
    seeds="50000-50199", found_after=3, seed=50_002, cpu_s=2.25, virtual_s=40, controls=3
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
    assert row_of(document, "KB-RMQ-22").endswith("| lost | 50 | 3 | 2.2 | 0 of 3 |")
    assert row_of(document, "L1").endswith("| not found | 90.0 | 1 of 5 |")


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
