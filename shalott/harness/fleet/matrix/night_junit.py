"""One JUnit document of a night: the class of a case is its cell, its name the seed.

A run that shows what its cell does not expect is a failure, one that nobody can judge an error, as
is one whose harness failed. What is flaky says so. A night that is not over has a case that is an
error; what was not run has no case.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from shalott.harness.fleet.matrix.cells import Cell
from shalott.harness.fleet.matrix.findings import FLAKY
from shalott.harness.fleet.matrix.outcome import FAILED, FIRST, Outcome
from shalott.harness.fleet.matrix.summary import NightSummary
from shalott.harness.report.junit_document import (
    add_case,
    add_error,
    add_property,
    make_suite,
    render_suites,
    spoken,
)


def render_night(
    summary: NightSummary, cells: Sequence[Cell], outcomes: Sequence[Outcome], command: str
) -> bytes:
    """The document."""
    suite = make_suite(
        summary.matrix, summary.started_wall_ns, round(summary.spent_s * 1e9), command
    )
    add_property(suite, "night", summary.night)
    by_key = {cell.key: cell for cell in cells}
    repeated: dict[tuple[str, int], list[Outcome]] = {}
    for one in outcomes:
        if one.is_again:
            repeated.setdefault((one.cell, one.seed), []).append(one)
    for one in sorted(outcomes, key=lambda each: (each.cell, each.seed, each.turn)):
        cell = by_key.get(one.cell)
        if cell is not None and not one.is_again:
            _case(suite, cell, one, repeated.get((one.cell, one.seed), []), summary)
    if not summary.over:
        case = add_case(suite, "night", summary.matrix, 0)
        add_error(case, "unended", "The night did not end: it was stopped, or it still runs.")
    return render_suites([suite])


def _case(
    suite: ElementTree.Element,
    cell: Cell,
    one: Outcome,
    again: Sequence[Outcome],
    summary: NightSummary,
) -> None:
    turn = "" if one.turn == FIRST else f", {one.turn}"
    case = add_case(suite, f"seed {one.seed}{turn}", one.cell, round(one.elapsed_s * 1e9))
    kinds = cell.surprises(one.verdict, one.kinds)
    lines = [one.headline, one.run, one.command]
    if again:
        same = sum(bool(cell.surprises(each.verdict, each.kinds)) for each in again)
        lines.append(f"Run again, it failed {same} of {len(again)} times.")
    text = spoken("\n".join(line for line in lines if line))
    if not kinds:
        if one.verdict != "valid":
            ElementTree.SubElement(case, "system-out").text = spoken(f"As expected: {text}")
        return
    flaky = [f.kind for f in summary.findings if f.status == FLAKY and f.cell == one.cell]
    told = [f"{kind} (flaky)" if kind in flaky else kind for kind in kinds]
    tag = "failure" if one.verdict not in ("unknown", FAILED) else "error"
    message = spoken(f"{', '.join(told)}: {one.headline}")
    ElementTree.SubElement(case, tag, message=message, type=one.verdict).text = text
