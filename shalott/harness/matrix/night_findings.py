"""What a night found, cell by cell and kind of anomaly by kind, beside the nights before.

new             no earlier night that is compared showed it in this cell
known           one did
flaky           a run of the same plan and seed did not show it
fixed           the last night showed it, and a seed that did shows it no more
unseen          the last night showed it, but none of its seeds ran tonight, or it was flaky
missing         the cell must find something, and did not
harness-failed  no verdict: the harness, its machine or its command line
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from shalott.harness.matrix.cells import Cell
from shalott.harness.matrix.run_outcomes import (
    FAILED,
    CellNight,
    EarlierNights,
    Outcome,
    is_unknown,
)
from shalott.harness.report.results import gravity
from shalott.harness.store.intervals import wilson

NEW, KNOWN, FLAKY, FIXED = "new", "known", "flaky", "fixed"
UNSEEN, MISSING, UNKNOWN = "unseen", "missing", "unknown"
STATUSES = (FAILED, NEW, FLAKY, KNOWN, MISSING, FIXED, UNSEEN)


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """k of n, and which shares that is compatible with (Wilson, 95 %)."""

    k: int
    n: int
    low: float
    high: float

    def as_text(self) -> str:
        return f"{self.k} of {self.n} ({self.low:.0%} to {self.high:.0%})"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """``shown``: in how many of the cell's runs. ``again``: in how many of the runs that repeated
    a plan which had shown it. ``seen_in``: earlier nights that showed it, the newest first."""

    status: str
    cell: str
    kind: str
    seeds: tuple[int, ...] = ()
    shown: Share | None = None
    again: Share | None = None
    seen_in: tuple[str, ...] = ()
    headline: str = ""
    run: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class CellFindings:
    """All findings of one cell, the gravest first."""

    cell: str
    findings: tuple[Finding, ...]

    @property
    def status(self) -> str:
        return self.findings[0].status

    @property
    def chief(self) -> Finding:
        """The one that speaks for all; of several, one that has a run."""
        return next((one for one in self.findings if one.run or one.headline), self.findings[0])

    @property
    def seeds(self) -> tuple[int, ...]:
        """That showed what is of the gravest status."""
        own = self.by_status[self.status]
        return tuple(dict.fromkeys(seed for one in own for seed in one.seeds))

    @property
    def seen_in(self) -> tuple[str, ...]:
        """The earlier nights of these, the newest first."""
        own = sorted(self.by_status[self.status], key=lambda one: -len(one.seen_in))
        return tuple(dict.fromkeys(night for one in own for night in one.seen_in))

    @property
    def by_status(self) -> dict[str, list[Finding]]:
        found: dict[str, list[Finding]] = {}
        for one in self.findings:
            found.setdefault(one.status, []).append(one)
        return found


def by_cell(findings: Sequence[Finding]) -> tuple[CellFindings, ...]:
    """The cells in the order of their gravest findings: one run often shows several kinds."""
    found: dict[str, list[Finding]] = {}
    for one in sorted(findings, key=lambda one: (STATUSES.index(one.status), gravity(one.kind))):
        found.setdefault(one.cell, []).append(one)
    return tuple(CellFindings(cell, tuple(own)) for cell, own in found.items())


def share(k: int, n: int) -> Share:
    low, high = wilson(k, n)
    return Share(k=k, n=n, low=round(low, 4), high=round(high, 4))


def findings_of(
    cells: Sequence[Cell], outcomes: Sequence[Outcome], earlier: EarlierNights
) -> tuple[Finding, ...]:
    """All of a night, the worst first, independent of the order of its runs."""
    by_cell: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda one: (one.seed, one.is_again, one.turn)):
        by_cell.setdefault(outcome.cell, []).append(outcome)
    found: list[Finding] = []
    for cell in cells:
        own = by_cell.get(cell.key, [])
        nights = earlier.nights.get(cell.key, [])
        shown = _shown(cell, own)
        found += [_finding(cell, kind, runs, own, nights) for kind, runs in shown.items()]
        found += _gone(cell, shown, own, nights)
        if cell.must_find and own and not any(one.verdict == "invalid" for one in own):
            sentence = f"{len(own)} runs were to find something, and none did."
            found.append(Finding(status=MISSING, cell=cell.key, kind=MISSING, headline=sentence))
    return tuple(sorted(found, key=lambda one: (STATUSES.index(one.status), one.cell, one.kind)))


def _shown(cell: Cell, own: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Kind -> the runs that show it, where the cell does not expect it."""
    found: dict[str, list[Outcome]] = {}
    for outcome in own:
        for kind in cell.surprises(outcome.verdict, outcome.kinds):
            found.setdefault(kind, []).append(outcome)
    return found


def _finding(
    cell: Cell,
    kind: str,
    runs: Sequence[Outcome],
    own: Sequence[Outcome],
    nights: Sequence[CellNight],
) -> Finding:
    seeds = tuple(dict.fromkeys(one.seed for one in runs))
    sample = [one for one in own if not one.is_again]
    repeated = [one for one in own if one.seed in seeds and one.is_again]
    judged = [one for one in own if one.seed in seeds and one.verdict != FAILED]
    seen_in = tuple(night.night for night in nights if night.shows(kind))
    if kind == FAILED:
        status = FAILED
    elif any(kind not in one.kinds and kind != one.verdict for one in judged):
        status = FLAKY
    else:
        status = KNOWN if seen_in else NEW
    chief = runs[0]
    return Finding(
        status=status,
        cell=cell.key,
        kind=kind,
        seeds=seeds,
        shown=share(sum(one in runs for one in sample), len(sample)),
        again=share(sum(one in runs for one in repeated), len(repeated)) if repeated else None,
        seen_in=seen_in,
        headline=chief.headline,
        run=chief.run,
        command=chief.command,
    )


def _gone(
    cell: Cell, shown: Mapping[str, object], own: Sequence[Outcome], nights: Sequence[CellNight]
) -> list[Finding]:
    """What the last night showed and tonight does not."""
    if not nights or not own:
        return []
    last = nights[0]
    judged = {one.seed: None for one in own if one.verdict != FAILED}
    found = []
    kinds_shown = (kind for runs in last.runs.values() for each in runs for kind in each)
    for kind in dict.fromkeys(kinds_shown):
        verdict = UNKNOWN if is_unknown([kind]) else "invalid"
        if kind in shown or not cell.surprises(verdict, (kind,)):
            continue
        seeds = last.seeds(kind)
        ran = [seed for seed in seeds if seed in judged]
        status = FIXED if ran and not last.was_flaky(kind) else UNSEEN
        seen_in = tuple(night.night for night in nights if night.shows(kind))
        found.append(
            Finding(
                status=status, cell=cell.key, kind=kind, seeds=tuple(ran or seeds), seen_in=seen_in
            )
        )
    return found
