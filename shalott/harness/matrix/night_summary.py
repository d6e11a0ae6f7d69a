"""A night's summary: summary.json, the text of it, and the command's exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from shalott.harness.matrix.cells import Cell
from shalott.harness.matrix.night_findings import (
    FIXED,
    FLAKY,
    KNOWN,
    MISSING,
    NEW,
    UNKNOWN,
    UNSEEN,
    CellFindings,
    Finding,
    Share,
    by_cell,
    findings_of,
    share,
)
from shalott.harness.matrix.run_outcomes import FAILED, EarlierNights, Outcome, is_unknown

SUMMARY_VERSION = 1
TITLES = {
    FAILED: "The harness failed",
    NEW: "New",
    FLAKY: "Flaky",
    KNOWN: "Known",
    MISSING: "Missing",
    FIXED: "Fixed",
    UNSEEN: "Not seen tonight, which proves little",
}


class CellSummary(msgspec.Struct, frozen=True, kw_only=True):
    """``planned`` and the counts are of the sample: runs that were due, without those that were
    repeated because they had failed. ``invalid_share``: of the runs with a verdict. ``again``: of
    the runs that were repeated, how many showed what the cell does not expect; ``anomalies`` and
    ``must_find`` as in Rule."""

    cell: str
    expect: tuple[str, ...]
    planned: int
    ran: int
    valid: int
    invalid: int
    unknown: int
    harness_failed: int
    invalid_share: Share
    kinds: dict[str, int]
    surprises: int
    earlier: tuple[tuple[str, dict[str, int]], ...]
    anomalies: tuple[str, ...] = ()
    must_find: bool = False
    again: Share | None = None

    @property
    def expected(self) -> int:
        """Runs that are not valid, and need not be."""
        return self.invalid + self.unknown + self.harness_failed - self.surprises


class NightSummary(msgspec.Struct, frozen=True, kw_only=True):
    """summary.json; docs/how-to/run-a-night.md has each field."""

    version: int = SUMMARY_VERSION
    matrix: str
    night: str
    digest: str
    shards: tuple[int, ...]  # that are in it
    of_shards: int
    started_wall_ns: int
    spent_s: float
    over: bool
    why: str
    commit: str
    planned: int
    ran: int
    again: int
    not_run: int
    verdicts: dict[str, int]
    compared_with: tuple[str, ...]
    findings: tuple[Finding, ...]
    cells: tuple[CellSummary, ...]
    exit_code: int
    store: str = ""


def summarise(
    cells: Sequence[Cell],
    outcomes: Sequence[Outcome],
    earlier: EarlierNights,
    *,
    repeat: int,
    due: Sequence[tuple[str, int]],
    fail_on: Sequence[str],
) -> dict[str, object]:
    """All of the summary that does not depend on when and in which shards the night was run.

    ``due``: (cell, seed) of what was to be run, in each of ``repeat`` turns.
    """
    findings = findings_of(cells, outcomes, earlier)
    sample = [one for one in outcomes if not one.is_again]
    planned = Counter(cell for cell, _ in due)
    rows = tuple(
        _cell_summary(cell, planned[cell.key] * repeat, outcomes, earlier)
        for cell in cells
        if planned[cell.key]
    )
    nights = {n.night: n.began_ns for each in earlier.nights.values() for n in each}
    return {
        "planned": len(due) * repeat,
        "ran": len(sample),
        "again": len(outcomes) - len(sample),
        "not_run": len(due) * repeat - len(sample),
        "verdicts": dict(sorted(Counter(one.verdict for one in sample).items())),
        "compared_with": tuple(sorted(nights, key=lambda name: -nights[name])),
        "findings": findings,
        "cells": rows,
        "exit_code": exit_code(findings, fail_on),
    }


def _cell_summary(
    cell: Cell, planned: int, outcomes: Sequence[Outcome], earlier: EarlierNights
) -> CellSummary:
    own = [one for one in outcomes if one.cell == cell.key and not one.is_again]
    again = [one for one in outcomes if one.cell == cell.key and one.is_again]
    failed = sum(bool(cell.surprises(one.verdict, one.kinds)) for one in again)
    counts = Counter(one.verdict for one in own)
    judged = len(own) - counts[FAILED]
    return CellSummary(
        cell=cell.key,
        expect=cell.expect,
        planned=planned,
        ran=len(own),
        valid=counts["valid"],
        invalid=counts["invalid"],
        unknown=counts[UNKNOWN],
        harness_failed=counts[FAILED],
        invalid_share=share(counts["invalid"], judged),
        kinds=dict(sorted(Counter(kind for one in own for kind in one.kinds).items())),
        surprises=sum(bool(cell.surprises(one.verdict, one.kinds)) for one in own),
        earlier=tuple(
            (night.night, dict(sorted(night.verdicts.items())))
            for night in earlier.nights.get(cell.key, [])
        ),
        anomalies=cell.anomalies,
        must_find=cell.must_find,
        again=share(failed, len(again)) if again else None,
    )


def exit_code(findings: Sequence[Finding], fail_on: Sequence[str]) -> int:
    """255: a run has no verdict because the harness failed; 1: something was found that the night
    fails on; 2: nothing but unknown verdicts; 0."""
    if any(one.status == FAILED for one in findings):
        return 255
    failing = [one for one in findings if one.status in fail_on]
    doubts = [one for one in failing if is_unknown([one.kind])]
    if len(failing) > len(doubts):
        return 1
    return 2 if doubts and UNKNOWN in fail_on else 0


def summary_lines(summary: NightSummary) -> Iterator[str]:
    counts = ", ".join(f"{number:,} {word}" for word, number in summary.verdicts.items())
    shards = ""
    if summary.of_shards > 1:
        shards = f", shards {', '.join(map(str, summary.shards))} of {summary.of_shards}"
    yield (
        f"Night {summary.night} of {summary.matrix}{shards}: {summary.ran:,} of"
        f" {summary.planned:,} runs in {summary.spent_s / 60:,.1f} min: {counts or 'nothing'};"
        f" {summary.again:,} run again."
    )
    if not summary.over:
        yield "The night is not over: the same command goes on with it."
    elif summary.why:
        yield f"{summary.not_run:,} were not run: {summary.why}."
    nights = len(summary.compared_with)
    yield f"Compared with {nights} earlier night{'' if nights == 1 else 's'}."
    own = {one.cell: one for one in summary.cells}
    blocks = by_cell(summary.findings)
    for status, title in TITLES.items():
        told = [block for block in blocks if block.status == status]
        if told:
            yield f"{title} ({len(told)}):"
        for block in told:
            yield from _block(block, own.get(block.cell))
    if not summary.findings:
        yield "All of it is as expected."
    expected = [one for one in summary.cells if one.expected > 0]
    if expected:
        runs = sum(one.expected for one in expected)
        names = ", ".join(one.cell for one in expected[:3]) + (", ..." if expected[3:] else "")
        words = "run that is" if runs == 1 else "runs that are"
        yield f"Expected: {runs:,} {words} not valid, as the file says of {names}."


def _block(block: CellFindings, cell: CellSummary | None) -> Iterator[str]:
    """A cell: how often, the cause in words, the kinds, and one run of it."""
    chief = block.chief
    yield f"  {block.cell}{_how_often(block, cell)}"
    if chief.headline:
        yield f"    {chief.headline}"
    for status, own in block.by_status.items():
        kinds = dict.fromkeys(one.kind for one in own)
        if list(kinds) == [status]:
            continue  # that the harness failed is told already
        seen = dict.fromkeys(night for one in own for night in one.seen_in)
        yield f"    {status}: {', '.join(kinds)}{_nights(list(seen))}"
    if chief.run:
        yield f"    {chief.run}"
    if chief.command:
        yield f"    {chief.command}"


def _nights(seen: Sequence[str]) -> str:
    return f" (seen in {', '.join(seen[:3])}{', ...' if seen[3:] else ''})" if seen else ""


def _how_often(block: CellFindings, cell: CellSummary | None) -> str:
    parts = []
    if cell is not None and cell.surprises:
        runs = share(cell.surprises, cell.ran)
        parts.append(f" {runs.k} of {runs.n} runs ({runs.low:.0%} to {runs.high:.0%})")
        if cell.again is not None:
            parts.append(f" run again, {cell.again.as_text()}")
    seeds = block.seeds
    if seeds:
        shown = ", ".join(map(str, seeds[:5])) + (", ..." if len(seeds) > 5 else "")
        parts.append(f" seed{'s' if len(seeds) > 1 else ''} {shown}")
    return f":{';'.join(parts)}" if parts else ""
