"""docs/evidence/originals.md, from runs that were made by hand, and as it lies in docs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shalott.harness.originals.document import DOCUMENT, LADDER, find_row, is_decided, render
from shalott.harness.originals.evidence import Look, Side, load_looks
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit

ROW = find_row("KB-RKT-12")


def a_look(side: Side, *, found: bool = False, void: str = "", release: str = "5.1.0") -> Look:
    return Look(
        side=side, release=release, run="r", seed=18_000, found=found, valid=not found, void=void,
        counts={"vanished-count": 13, "longest-gap-ms": 6469.0} if found else {}, elapsed_s=84.0,
        load=3.5,
    )  # fmt: skip


def line_of(document: str, row_id: str) -> str:
    (line,) = [
        line for line in document.splitlines() if line.startswith((f"| [{row_id}]", f"| {row_id} "))
    ]
    return line


DECIDED: Sequence[Look] = (
    a_look("with", void="saw too little: stalls"),
    a_look("with", found=True),
    a_look("control", release="5.1.1"),
    a_look("ours-on", found=True, release="controller"),
    a_look("ours-off", release="controller"),
)


def test_nothing_is_decided_without_a_run() -> None:
    document = render({})
    assert "Decided on real releases: 0; found: 0" in document
    for row in LADDER:
        assert line_of(document, row.id)
    assert line_of(document, ROW.id).endswith("| its run |")


def test_what_the_control_shows_as_well_is_not_found() -> None:
    document = render({ROW.id: [*DECIDED, a_look("control", found=True, release="5.1.1")]})
    assert "Decided on real releases: 1; found: 0" in document
    assert "| 1 of 2 |" in line_of(document, ROW.id)


def test_a_decided_row_tells_both_sides() -> None:
    document = render({ROW.id: DECIDED})
    assert "Decided on real releases: 1; found: 1" in document
    cells = [cell.strip() for cell in line_of(document, ROW.id).strip("|").split("|")]
    assert cells[2:] == [
        "vanished", "5.1.0", "1 of 1", "2.8", "5.1.1", "0 of 1", "1 of 1", "0 of 1"
    ]  # fmt: skip
    assert "- 5.1.0, seed 18000: found (vanished 13); longest time" in document
    assert "void (saw too little: stalls), load 3.5." in document


@pytest.mark.parametrize("missing", ["with", "control"])
def test_a_row_with_one_side_only_is_not_decided(missing: str) -> None:
    looks = [look for look in DECIDED if look.side != missing or look.void]
    assert not is_decided(ROW, {ROW.id: looks})
    assert "Decided on real releases: 0" in render({ROW.id: looks})


@pytest.mark.parametrize("missing", ["", "ours-on", "ours-off"])
def test_a_row_without_a_control_needs_our_switch_on_and_off(missing: str) -> None:
    row = find_row("KB-RKT-A")
    assert not row.control_words and row.ours is not None
    sides: Sequence[Side] = ("with", "ours-on", "ours-off")
    looks = [a_look(side, found=side != "ours-off") for side in sides if side != missing]
    assert is_decided(row, {row.id: looks}) == (not missing)
    if missing:
        assert line_of(render({row.id: looks}), row.id).endswith("| the runs of our broker |")


def test_a_row_without_a_control_and_without_a_switch_is_decided_by_the_release() -> None:
    row = find_row("M-MS-POWER")
    assert not row.control_words and row.ours is None
    assert is_decided(row, {row.id: [a_look("with")]})


def test_the_document_in_docs_is_what_its_runs_say() -> None:
    kept = load_looks(ROOT / "docs")
    known = {row.id for row in LADDER}
    assert set(kept) <= known
    assert (ROOT / "docs" / DOCUMENT).read_text() == render(kept)


def test_a_row_that_was_run_often_on_both_sides_is_compared() -> None:
    originals = [a_look("with", found=True) for _ in range(3)]
    ours = [a_look("ours-on", found=index < 2, release="controller") for index in range(3)]
    document = render({ROW.id: (*originals, *ours, a_look("with", void="saw too little"))})
    assert "| 5.1.0 in containers | 3 of 3 | 0 / 0 / 0 | 0 / 0 / 0 | 6.5 / 6.5 / 6.5 |" in document
    assert "| controller in simulation | 2 of 3 | " in document


def test_too_few_runs_are_not_compared() -> None:
    assert "## Side by side" not in render({ROW.id: DECIDED})
