"""Verdicts by cell, and by day of true time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from shalott.harness.fleet.page.data import (
    LINKS,
    SPARK_DAYS,
    Axes,
    CellRow,
    Day,
    Days,
    Listed,
    count_verdicts,
    listed,
)
from shalott.harness.fleet.page.facts import Fact, worst_first
from shalott.harness.fleet.page.losses import told_losses

DRAWN_DAYS = 60


def cell_rows(sample: Sequence[Fact], at_most: int) -> Listed[CellRow]:
    """The reddest first: by invalid runs, then by unknown ones."""
    days = sorted({fact.day for fact in sample if fact.day})[-SPARK_DAYS:]
    by_axes: dict[Axes, list[Fact]] = {}
    for fact in sample:
        by_axes.setdefault(fact.axes, []).append(fact)
    rows = [_cell_row(axes, own, days) for axes, own in by_axes.items()]

    def redness(row: CellRow) -> tuple[int, int, Axes]:
        return -row.verdicts.invalid, -row.verdicts.unknown - row.verdicts.none, row.axes

    return listed(sorted(rows, key=redness), at_most)


def _cell_row(axes: Axes, own: Sequence[Fact], days: Sequence[str]) -> CellRow:
    by_day: dict[str, list[str]] = {}
    for fact in own:
        by_day.setdefault(fact.day, []).append(fact.verdict)
    return CellRow(
        axes=axes,
        verdicts=count_verdicts(fact.verdict for fact in own),
        days=tuple(count_verdicts(by_day[day]) if day in by_day else None for day in days),
        worst=worst_first(own)[:LINKS],
    )


def days_of(sample: Sequence[Fact], at_most: int) -> Days:
    """Calendar days up to the newest on which anything ran."""
    by_day: dict[str, list[Fact]] = {}
    for fact in sample:
        if fact.day:
            by_day.setdefault(fact.day, []).append(fact)
    rows = [_day(day, by_day[day]) for day in sorted(by_day, reverse=True)]
    drawn = _calendar(rows)
    first = drawn[0].day if drawn else ""
    return Days(
        drawn=drawn,
        earlier=sum(row.verdicts.total for row in rows if row.day < first),
        rows=listed(rows, at_most),
        undated=sum(not fact.day for fact in sample),
    )


def _calendar(rows: Sequence[Day]) -> tuple[Day, ...]:
    """The newest days, those without a run between them too."""
    if not rows:
        return ()
    told = {row.day: row for row in rows}
    last = date.fromisoformat(rows[0].day)
    span = (last - date.fromisoformat(rows[-1].day)).days + 1
    names = [(last - timedelta(days=back)).isoformat() for back in range(min(span, DRAWN_DAYS))]
    return tuple(told.get(name) or _day(name, ()) for name in reversed(names))


def _day(day: str, own: Sequence[Fact]) -> Day:
    counted = [told for fact in own if (told := told_losses(fact)) is not None and told.messages]
    return Day(
        day=day,
        verdicts=count_verdicts(fact.verdict for fact in own),
        counted=len(counted),
        acknowledged=sum(told.acknowledged for told in counted),
        lost=sum(told.lost for told in counted),
        worst=worst_first(own)[:LINKS],
    )
